//! Decides which background work starts when, and what follows its failure.
//!
//! [`Engine::schedule`] is called after everything that may make work due. It starts flushes first, then compactions
//! while threads and space last. A failed job is tried again after a delay that doubles; meanwhile other work
//! goes on. Nothing here does I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kelvin_base::{Error, ErrorKind, Lane, Tier, seeded_bug};

use crate::compaction::pick::{PickConfig, PickInput, Plan, Running, pick};
use crate::db::engine::Engine;
use crate::promotion::{Claimed, Wants};
use crate::space::Priority;
use crate::version::Version;
use crate::view::KeyspaceState;
use crate::write::stall::{Pressure, Reason};

const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// What background work may be held up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Flushes.
    Flush,
    /// Compactions within the fast tier.
    Fast,
    /// Compactions that read or write the slow tier.
    Slow,
}

impl Kind {
    /// The name in events.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flush => "flush",
            Self::Fast => "fast compaction",
            Self::Slow => "slow compaction",
        }
    }
}

/// Whether a promotion by flush is queued or runs, and when the next one may.
#[derive(Debug, Default)]
pub struct PromotionWork {
    is_running: bool,
    again_at: Duration,
}

impl PromotionWork {
    /// Begins one; false if that must wait.
    pub fn begin(&mut self, now: Duration) -> bool {
        let may = !self.is_running && now >= self.again_at;
        self.is_running |= may;
        may
    }

    /// True while one is queued or runs.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        self.is_running
    }

    /// Ends it; the next one waits until `again_at`.
    pub fn end(&mut self, again_at: Duration) {
        *self = Self { is_running: false, again_at };
    }
}

/// Background work queued and running.
#[derive(Default)]
pub struct Work {
    flushes: usize,
    /// Compactions that run, and what new ones must keep away from.
    pub running: Running,
    /// Kinds that wait after a failure.
    held: BTreeSet<Kind>,
    /// Promotion by flush.
    pub promotion: PromotionWork,
    /// The manifest is being settled.
    settles: bool,
    /// It will be, unless a job does before.
    will_settle: bool,
    /// The delay after the last failure of each kind that no success has followed.
    delays: BTreeMap<Kind, Duration>,
}

impl Work {
    /// True if no job is queued or running.
    pub fn is_quiet(&self) -> bool {
        self.flushes == 0 && self.running.is_empty() && !self.promotion.is_running && !self.settles
    }

    /// True while no promotion by flush keeps compactions that write the slow tier from beginning (PF1).
    pub fn may_write_slow(&self) -> bool {
        !self.promotion.is_running || seeded_bug!("slow-compaction-beside-a-promotion")
    }

    /// Kinds of compactions that wait, as the picker takes them: after a failure, for a promotion by flush, or with
    /// `slow_max` on the slow tier for one another.
    fn held_compactions(&self, slow_max: Option<usize>) -> [bool; 2] {
        let waits = !self.may_write_slow() || slow_max.is_some_and(|max| self.running.writing_slow() >= max);
        [self.held.contains(&Kind::Fast), self.held.contains(&Kind::Slow) || waits]
    }
}

fn kind_of(plan: &Plan) -> Kind {
    if plan.touches(Tier::Slow) { Kind::Slow } else { Kind::Fast }
}

impl Engine {
    /// Starts whatever background work is due.
    pub(crate) fn schedule(&self) {
        if self.is_closing() || self.health.fatal().is_some() {
            return;
        }
        for keyspace in self.keyspaces.load().iter() {
            self.schedule_flush(keyspace);
        }
        while self.schedule_compaction() {}
    }

    fn schedule_flush(&self, keyspace: &Arc<KeyspaceState>) {
        if keyspace.peek().imms.is_empty() {
            return;
        }
        let mut work = self.work.lock();
        if work.held.contains(&Kind::Flush) || keyspace.flushing.swap(true, Ordering::AcqRel) {
            return;
        }
        let Some(engine) = self.me.upgrade() else { return };
        work.flushes += 1;
        drop(work);
        let keyspace = Arc::clone(keyspace);
        self.env.executor.spawn(
            Lane::Flush,
            Box::new(move || {
                let flush = || engine.forgive_dropped(&keyspace, engine.flush_sealed(&keyspace));
                let outcome = engine.guarded(flush);
                keyspace.flushing.store(false, Ordering::Release);
                engine.work.lock().flushes -= 1;
                engine.ended(Kind::Flush, outcome);
            }),
        );
    }

    /// Starts one compaction if one is due and can run; true if it did, or if files have gone meanwhile that were in the way of one.
    fn schedule_compaction(&self) -> bool {
        let mut work = self.work.lock();
        if work.running.len() >= self.config.compactions_max {
            return false;
        }
        let versions = self.versions_now();
        let removed = self.files.leaving.removed();
        let Some(plan) = self.next_plan(&versions, &work) else {
            drop(work);
            return self.files.leaving.tell_when_removed(removed);
        };
        let (kind, space_bytes) = (kind_of(&plan), plan.space_bytes);
        let begun = self.begin_compaction(&mut work, plan);
        let quiet = work.is_quiet();
        drop(work);
        // It may have taken the room that writers counted on.
        self.refresh_pressure();
        begun.map_or_else(|error| self.not_begun(kind, space_bytes, quiet, &error), |()| true)
    }

    /// What follows when a compaction of `kind` did not get the `space_bytes` it was chosen for: true if another choice is to be made.
    fn not_begun(&self, kind: Kind, space_bytes: [u64; 2], quiet: bool, error: &Error) -> bool {
        // The log, or the tracker, took some of it since: another may fit in what is left, and nothing has failed.
        let has_shrunk = |tier: Tier| {
            let left = self.space.available(tier, Priority::Essential);
            left.is_some_and(|left| left < space_bytes[tier.index()])
        };
        if Tier::ALL.into_iter().any(has_shrunk) && !seeded_bug!("room-taken-meanwhile-is-a-failure") {
            return true;
        }
        // Work in flight starts it anew when it ends; without any, a disk that others fill is looked at later.
        if quiet {
            self.failed(kind, error);
        }
        false
    }

    /// The versions of all keyspaces.
    pub(crate) fn versions_now(&self) -> Vec<Arc<Version>> {
        self.keyspaces.load().iter().map(|one| Arc::clone(&one.peek().version)).collect()
    }

    /// The compaction to run next. It leaves room for flushes, which come first; only with nothing else going on
    /// may it have all the space there is, and writers wait meanwhile.
    fn next_plan(&self, versions: &[Arc<Version>], work: &Work) -> Option<Plan> {
        let kept_bytes = self.comfortable_bytes();
        let config = self.pick_config_now();
        pick(&self.pick_input(&config, versions, work, kept_bytes)).or_else(|| {
            let alone = work.is_quiet() && !self.has_sealed();
            // Asked before how much is free: files that go afterwards only make room.
            let is_quiet = !self.files.leaving.free_soon();
            let input = self.pick_input(&config, versions, work, 0);
            let needs_room = input.needs_room || input.wants_room && is_quiet;
            let input = PickInput { needs_room, ..input };
            alone.then(|| pick(&input)).flatten()
        })
    }

    /// Compactions that may write the slow tier beside each other, each in one part: readers share its disk with them, so no more than
    /// writers need. `None` for no limit.
    pub(crate) fn slow_compactions_max(&self) -> Option<usize> {
        match self.pressure.load() {
            _ if !self.hotness.is_on() => None,
            Pressure::None if !matches!(self.promotion_wants(), Wants::Bytes(_)) => Some(1),
            Pressure::None | Pressure::Delay { .. } => Some(2),
            Pressure::Stop(_) => None,
        }
    }

    /// True if a sealed memtable waits for its flush or is being flushed.
    fn has_sealed(&self) -> bool {
        self.keyspaces.load().iter().any(|one| !one.peek().imms.is_empty())
    }

    /// What a choice of compaction depends on, by the figures of now, `kept_bytes` of the fast tier not to be used.
    pub(crate) fn pick_input<'a>(
        &'a self,
        config: &'a PickConfig,
        versions: &'a [Arc<Version>],
        work: &'a Work,
        kept_bytes: u64,
    ) -> PickInput<'a> {
        let free = |tier| self.space.available(tier, Priority::Essential).unwrap_or(u64::MAX);
        // Asked before how much is free: files that go afterwards only make room.
        let (frees_soon, is_quiet) = (self.files.leaving.are_removed(), !self.files.leaving.free_soon());
        let debt = self.space_debt();
        let wants_room = debt.is_some_and(|debt| debt.amount > debt.slow_at);
        let is_stopped = match self.pressure.load() {
            // It may have been worked out while files were on their way out.
            Pressure::Stop(Reason::FastSpace) => debt.is_some_and(|debt| debt.amount >= debt.stop_at),
            Pressure::Stop(_) => true,
            Pressure::None | Pressure::Delay { .. } => false,
        };
        // What goes down makes room as soon as the promotion that it waits for has ended: copies need not be given up for that.
        let may_go_down = !work.promotion.is_running || seeded_bug!("copies-go-while-a-promotion-runs");
        PickInput {
            versions,
            config,
            running: &work.running,
            now_ms: self.env.clock.unix_millis(),
            oldest_snapshot: self.snapshots.oldest().unwrap_or_else(|| self.publisher.visible()),
            free_bytes: [free(Tier::Fast), free(Tier::Slow)],
            kept_bytes,
            frees_soon,
            wants_room,
            needs_room: is_stopped && is_quiet && may_go_down,
            tracker: self.hotness.is_on().then(|| &**self.hotness.tracker()),
            held: work.held_compactions(self.slow_compactions_max()),
        }
    }

    /// Claims what `plan` needs and queues it.
    ///
    /// # Errors
    /// `NoSpace` if the disk is fuller than the capacities say, or the space is gone meanwhile.
    pub(crate) fn begin_compaction(&self, work: &mut Work, mut plan: Plan) -> Result<(), Error> {
        let Some(engine) = self.me.upgrade() else {
            return Err(Error::new(ErrorKind::ReadOnly, "the store is closed"));
        };
        let mut reservations = Vec::new();
        for tier in Tier::ALL {
            let bytes = plan.space_bytes[tier.index()];
            if bytes > 0 {
                reservations.push(self.space.reserve(tier, bytes, Priority::Essential)?);
            }
        }
        work.running.begin(&mut plan);
        let mut claimed = self.claim_promoted(&plan);
        if let Some(early) = claimed.take_if(|_| seeded_bug!("claim-released-early")) {
            early.end(None);
        }
        let kind = kind_of(&plan);
        let checked = self.config.hot_parts.hotness_check;
        self.env.executor.spawn(
            Lane::Compaction,
            Box::new(move || {
                let exchange = claimed.as_ref().map(|one| one.exchange(checked)).unwrap_or_default();
                let outcome = engine.guarded(|| engine.compact(&mut plan, exchange, reservations));
                let is_full = claimed.as_ref().is_some_and(Claimed::is_full);
                if let Some(claimed) = claimed {
                    // After a panic nobody knows what was installed.
                    let is_known = outcome.is_ok() || engine.health.fatal().is_none();
                    claimed.end(is_known.then_some(outcome.is_ok()));
                }
                engine.end_compaction(&plan);
                // What it read is removed once nobody holds it: before anybody asks how much room there is.
                drop(plan);
                if is_full {
                    engine.request_promotion();
                }
                engine.ended(kind, outcome);
            }),
        );
        Ok(())
    }

    /// Takes what `plan` writes anew out of the promotion cache, if it writes slow levels, and keeps it out while it runs.
    fn claim_promoted(&self, plan: &Plan) -> Option<Claimed> {
        let claimed = Claimed::of(self.keyspaces.load().by_id(plan.keyspace)?, plan, &self.files.memory)?;
        self.counters.promotion.claimed.add(claimed.records() as u64);
        Some(claimed)
    }

    /// Lets go of what `plan` claimed. Tables found damaged stay claimed, so that no further plan takes them and the
    /// rest goes on.
    fn end_compaction(&self, plan: &Plan) {
        let mut work = self.work.lock();
        work.running.end(plan);
        let damaged = self.health.quarantined();
        for (_, file) in plan.tables().filter(|(_, file)| damaged.contains(&file.meta.number)) {
            file.set_being_compacted(true);
        }
    }

    /// Runs a job; a panic in it is a defect of ours, which must not take the store's waiters with it.
    pub(crate) fn guarded(&self, job: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).unwrap_or_else(|_| {
            let error =
                Error::new(ErrorKind::ReadOnly, "a background job met a defect in Kelvin and was ended")
                    .advice("nothing acknowledged is lost; please report this with the program's output");
            self.health.stop_writes(&error);
            Err(error)
        })
    }

    /// What follows the end of a background job.
    pub(crate) fn ended(&self, kind: Kind, outcome: Result<(), Error>) {
        match outcome {
            Ok(()) => {
                let mut work = self.work.lock();
                let recovered = work.delays.remove(&kind).is_some();
                // What failed beside it may go on, too: who waits for it would see neither a failure nor anything due.
                if recovered && !seeded_bug!("failed-work-waits-without-a-failure") {
                    work.held.remove(&kind);
                }
                // A flush that only waited for room need not wait longer.
                if !work.delays.contains_key(&Kind::Flush) {
                    work.held.remove(&Kind::Flush);
                }
                drop(work);
                if recovered {
                    self.health.note_background(kind, None);
                }
            }
            Err(_) if self.is_closing() => {}
            Err(error) => self.failed(kind, &self.files.classify_by_path(error)),
        }
        self.hotness.look_ahead(self.flush_need_bytes());
        self.refresh_pressure();
        self.go_on();
    }

    fn failed(&self, kind: Kind, error: &Error) {
        let mut work = self.work.lock();
        // Work in flight gives its space back when it ends: a flush that found none waits and has not failed.
        let frees_soon = !work.running.is_empty() || self.files.leaving.free_soon();
        if kind == Kind::Flush && error.kind() == ErrorKind::NoSpace && frees_soon {
            work.held.insert(kind);
            drop(work);
            self.hold(kind, RETRY_FIRST);
            return;
        }
        self.health.note_background(kind, Some(error));
        self.counters.work.failures.add(1);
        let delay = work.delays.get(&kind).map_or(RETRY_FIRST, |last| (*last * 2).min(RETRY_MAX));
        work.delays.insert(kind, delay);
        work.held.insert(kind);
        drop(work);
        if self.health.fatal().is_none() {
            self.hold(kind, delay);
        }
    }

    /// Does `then` after `delay`, unless the store has gone by then.
    fn after(&self, delay: Duration, then: impl FnOnce(&Self) + Send + 'static) {
        let engine = self.me.clone();
        self.env.executor.spawn_after(
            delay,
            Lane::Housekeeping,
            Box::new(move || {
                if let Some(engine) = engine.upgrade() {
                    then(&engine);
                }
            }),
        );
    }

    /// Lets work of `kind` go on after `delay`.
    fn hold(&self, kind: Kind, delay: Duration) {
        self.after(delay, move |engine| engine.try_again(kind));
    }

    /// Plans to end the doubt that a failed edit left: no job that would do it may be due, and its tables take room. To be asked after each failure.
    pub(crate) fn settle_later(&self) {
        if !seeded_bug!("doubt-is-not-ended-at-rest")
            && !std::mem::replace(&mut self.work.lock().will_settle, true)
        {
            self.settle_after(RETRY_FIRST);
        }
    }

    fn settle_after(&self, delay: Duration) {
        self.after(delay, move |engine| engine.settle_now(delay));
    }

    /// Ends the doubt, or will try to again after longer than it `waited`. A store that is closed meanwhile waits for it, as for jobs.
    fn settle_now(&self, waited: Duration) {
        let mut work = self.work.lock();
        if self.is_closing() || self.health.fatal().is_some() {
            return;
        }
        work.settles = true;
        drop(work);
        let outcome = self.guarded(|| self.settle_manifest());
        let mut work = self.work.lock();
        work.settles = false;
        work.will_settle = outcome.is_err();
        drop(work);
        if outcome.is_err() {
            self.settle_after((waited * 2).min(RETRY_MAX));
        }
        self.go_on();
    }

    /// Lets work of `kind` start again before the delay after its failure has passed.
    pub(crate) fn try_again(&self, kind: Kind) {
        self.work.lock().held.remove(&kind);
        self.go_on();
    }

    /// Lets all work start again: what failed may be unwanted now, and what found no room may find some.
    pub(crate) fn try_all_again(&self) {
        self.work.lock().held.clear();
        self.go_on();
    }

    /// Starts what is due, and tells who waits.
    pub(crate) fn go_on(&self) {
        self.schedule();
        self.forget_moot_failures();
        self.signal.raise();
    }

    /// Forgets the failures of work that nobody wants any more, which no success of its kind would follow: a compaction that
    /// was asked for, a flush whose keyspace was dropped. Work that only finds no room is still wanted.
    fn forget_moot_failures(&self) {
        let mut work = self.work.lock();
        if work.delays.keys().all(|kind| work.held.contains(kind)) {
            return;
        }
        let flushes = work.flushes > 0 || self.has_sealed();
        let versions = self.versions_now();
        let config = self.pick_config_now();
        let at_will = self.pick_input(&config, &versions, &work, 0);
        let at_will = PickInput { free_bytes: [u64::MAX; 2], held: [false; 2], ..at_will };
        let compactions = !work.running.is_empty() || pick(&at_will).is_some();
        let is_moot = |kind: &Kind| if *kind == Kind::Flush { !flushes } else { !compactions };
        let moot: Vec<Kind> =
            work.delays.keys().copied().filter(|kind| !work.held.contains(kind) && is_moot(kind)).collect();
        for kind in moot {
            work.delays.remove(&kind);
            self.health.note_background(kind, None);
        }
    }

    /// Lets a flush that waits for room try at once when nothing is left that would free any. For those who wait for it.
    pub(crate) fn retry_waiting_flush(&self) {
        let mut work = self.work.lock();
        let waits = work.held.contains(&Kind::Flush) && !work.delays.contains_key(&Kind::Flush);
        if waits && work.running.is_empty() && !self.files.leaving.free_soon() {
            work.held.remove(&Kind::Flush);
            drop(work);
            self.schedule();
        }
    }

    /// True if nothing is queued, running or due.
    pub(crate) fn is_idle(&self) -> bool {
        let work = self.work.lock();
        // A flush held up by its failure counts as done with for now; one that waits for room does not.
        let flush_failed = work.held.contains(&Kind::Flush) && work.delays.contains_key(&Kind::Flush);
        if !work.is_quiet() || self.files.leaving.are_removed() || self.has_sealed() && !flush_failed {
            return false;
        }
        let is_due = self.next_plan(&self.versions_now(), &work).is_some();
        drop(work);
        if is_due {
            // Something that was in the way of it went without a word: files that were being removed.
            self.schedule();
        }
        !is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::Db;
    use crate::db::testing::{World, key, put_on_slow, value};

    #[test]
    fn writers_wait_for_work_whose_failure_a_success_beside_it_made_forgotten() {
        let world = World::new();
        let db = Db::open(world.options()).unwrap();
        let engine = &db.engine;
        for kind in [Kind::Flush, Kind::Fast, Kind::Slow] {
            engine.ended(kind, Err(Error::new(ErrorKind::Io, "as the test wants")));
            assert!(engine.health.background_error().is_some());
            engine.ended(kind, Ok(()));
            assert!(engine.health.background_error().is_none());
        }
        // More than level 0 and the memtables take, with no job run but by the writer who waits, and no time passing.
        (0..20_000).for_each(|number| db.put(&key(number), &value(number, "put")).unwrap());
        assert!(engine.counters.work.compactions.get() > 0);
    }

    #[test]
    fn room_that_others_took_since_a_compaction_was_chosen_is_no_failure_of_it() {
        let world = World::new();
        let db = Db::open(world.options()).unwrap();
        let engine = &db.engine;
        // Jobs wait until somebody runs them: level 0 is due, and nothing of it has begun.
        engine.work.lock().held.insert(Kind::Fast);
        engine.work.lock().held.insert(Kind::Slow);
        while engine.keyspaces.load().default_one().peek().version.levels[0].tables.len() < 6 {
            (0..200).for_each(|number| db.put(&key(number), &value(number, "put")).unwrap());
            db.flush().unwrap();
        }
        engine.work.lock().held.clear();
        let mut work = engine.work.lock();
        let plan = engine.next_plan(&engine.versions_now(), &work).expect("level 0 is due");
        let (kind, space_bytes) = (kind_of(&plan), plan.space_bytes);
        let left = engine.space.available(Tier::Fast, Priority::Essential).unwrap() - space_bytes[0] + 1;
        let others = engine.space.reserve(Tier::Fast, left, Priority::Essential).unwrap();
        let refused = engine.begin_compaction(&mut work, plan).unwrap_err();
        drop(work);
        assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
        assert!(engine.not_begun(kind, space_bytes, true, &refused), "there may be another");
        assert!(engine.health.background_error().is_none() && engine.work.lock().held.is_empty());
        drop(others);
        // Where the store's own books have room it is the disk that is full.
        assert!(!engine.not_begun(kind, space_bytes, true, &refused));
        assert!(engine.health.background_error().is_some());
    }

    #[test]
    fn a_job_that_panics_stops_writes_and_neither_reads_nor_what_was_acknowledged() {
        let world = World::new();
        let db = Db::open(world.options()).unwrap();
        put_on_slow(&db, 0..50, "old");
        (50..60).for_each(|number| db.put(&key(number), &value(number, "log")).unwrap());
        let engine = &db.engine;
        let outcome = engine.guarded(|| panic!("as the test wants"));
        assert_eq!(outcome.clone().unwrap_err().kind(), ErrorKind::ReadOnly);
        engine.ended(Kind::Fast, outcome);
        world.let_time_pass();
        for refused in [db.put(b"k", b"v"), db.delete(&key(1)), db.flush(), db.compact_range(None, None)] {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
            assert!(error.to_string().contains("met a defect in Kelvin"), "{error}");
        }
        let all_there = |db: &Db| {
            (0..50).all(|number| db.get(&key(number)).unwrap().unwrap() == value(number, "old"))
                && (50..60).all(|number| db.get(&key(number)).unwrap().unwrap() == value(number, "log"))
        };
        assert!(all_there(&db));
        drop(db);
        world.executor.discard();
        let db = Db::open(world.options()).unwrap();
        assert!(all_there(&db));
        db.put(b"k", b"v").unwrap();
    }
}
