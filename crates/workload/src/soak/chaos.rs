//! What is done to the store while clients are at work: outages, full disks, checkpoints, openings; one round after the other.
//!
//! A fault lasts for its time, and until somebody has met it. Then it is taken away, and everything must work again without an opening: that is
//! tried again and again until it does, so many times at most. A store at rest, with nobody on it, must have no file but those it needs and no
//! room set aside. Tests: `tests/soak.rs` of this crate.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kelvin::{Db, ErrorKind, IterOptions, Tier};
use kelvin_storage::fault::{EIO, ENODEV, ENOSPC, Effect, Op, Rule};
use kelvin_storage::{OsStorage, Storage};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::keys::{Known, key, number_of};
use super::meter::Kind;
use super::phase::Phase;
use super::setup::{CLIENTS, Setup};
use super::world::{Check, Watched, World};
use crate::dirs;

/// What a full disk refuses.
const FULL: [Op; 5] = [Op::Append, Op::Create, Op::Flush, Op::Link, Op::Rename];
/// A fault that nobody has met lasts so many times as long, and so long at least: machines are busy with other things for seconds.
const UNMET_MAX: u32 = 20;
const UNMET_MIN: Duration = Duration::from_secs(60);
/// After a fault it is tried so often whether everything works.
const TRIES_MAX: u32 = 1_200;
/// From one time to the next.
const TRY_EVERY: Duration = Duration::from_millis(50);
/// A compaction that is asked for takes one in so many keys of a client.
const COMPACTED_PART: u32 = 16;
/// Keys that are read each time, of all clients.
const TRY_KEYS: usize = 20;
/// Memory of the store that a checkpoint is opened as, bytes.
const CHECKPOINT_MEMORY: u64 = 8 << 20;
/// What a directory takes beside the store's own files, bytes: the file that locks it, and itself.
const DIRECTORY_BYTES: u64 = 16 << 10;

/// Does it.
pub(super) struct Chaos {
    world: Arc<World>,
    random: Xoshiro256PlusPlus,
}

impl Chaos {
    pub(super) fn new(world: &Arc<World>) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(world.setup.part_seed() ^ 0x5eed);
        Self { world: Arc::clone(world), random }
    }

    /// Waits for the data, and goes round until the time is over.
    pub(super) fn run(mut self) {
        let world = Arc::clone(&self.world);
        let _watched = Watched(Arc::clone(&world));
        world.wait_until(Duration::MAX, || world.loaded_at.get().is_some());
        // It is set unless all is over.
        if let Some(loaded_at) = world.loaded_at.get()
            && let Err(what) = self.rounds(*loaded_at + Duration::from_secs(world.setup.seconds))
        {
            world.fail(what);
        }
        world.end();
    }

    fn rounds(&mut self, end: Duration) -> Check {
        let slot = self.world.setup.round / u32::try_from(Phase::ROUND.len()).unwrap_or(1);
        loop {
            for phase in Phase::ROUND {
                self.world.phases.begin(Phase::Calm, self.world.now());
                let calm = slot.mul_f64(self.random.random_range(0.5..0.7));
                let has_been_round = self.world.rounds.load(Ordering::Relaxed) > 0;
                let until = self.world.now() + calm;
                self.world.wait_until(until, || has_been_round && self.world.now() >= end);
                if self.world.is_over() || has_been_round && self.world.now() >= end {
                    return Ok(());
                }
                let time = slot.mul_f64(self.random.random_range(0.15..0.35));
                self.world.phases.begin(phase, self.world.now());
                self.meet(phase, time).map_err(|what| format!("{}: {what}", phase.name()))?;
            }
            self.world.rounds.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Does what the phase says, and sees to it that all is well after it.
    fn meet(&mut self, phase: Phase, time: Duration) -> Check {
        let world = Arc::clone(&self.world);
        let [fast, slow] = &world.disks;
        let refused = |at: usize| world.meters.iter().map(|meter| meter.refusals()[at]).sum::<u64>();
        let failures = || world.stats().map_or(0, |stats| stats.background_failures);
        let before = (refused(0), refused(1), failures());
        let full = |files: &str| FULL.map(|op| Rule::new(op, Effect::Error(ENOSPC)).on(files));
        match phase {
            Phase::Load | Phase::Calm => return Ok(()),
            Phase::Checkpoint => return self.did(Kind::Checkpoint, Self::checkpoint),
            Phase::Reopen => return self.did(Kind::Reopen, Self::reopen),
            Phase::SlowAway => {
                // It begins where what was read by a compaction is removed.
                let injected = slow.injected();
                let is_begun = || slow.injected() > injected;
                slow.add(Rule::new(Op::Remove, Effect::Error(EIO)));
                self.provoke(time, true, is_begun)?;
                slow.away(if self.random.random() { EIO } else { ENODEV });
            }
            Phase::SlowHangs => slow.add(Rule::any(Effect::Stall)),
            Phase::FastFull => {
                // First there is room for logs, but not for what a flush writes, and then for nothing.
                full("*.tbl").into_iter().for_each(|rule| fast.add(rule));
                flush_without_room(&world)?;
                full("*").into_iter().for_each(|rule| fast.add(rule));
            }
            Phase::SlowFull => full("*").into_iter().for_each(|rule| slow.add(rule)),
        }
        // By clients, and by the background work, which leaves something behind.
        let is_met = || {
            failures() > before.2
                && match phase {
                    Phase::FastFull => refused(1) > before.1,
                    Phase::SlowFull => true,
                    _ => refused(0) > before.0,
                }
        };
        world.wait_until(world.now() + time, || false);
        self.provoke(time, phase != Phase::FastFull, is_met)?;
        let kind = match phase {
            Phase::SlowAway => Kind::SlowAway,
            Phase::SlowHangs => Kind::SlowHangs,
            Phase::FastFull => Kind::FastFull,
            _ => Kind::SlowFull,
        };
        if is_met() {
            world.meters[CLIENTS].count(kind);
        }
        slow.back();
        [fast, slow].iter().for_each(|disk| disk.clear());
        self.recover()
    }

    /// Waits until a fault is met, a while; each time that it is not within `time`, a compaction is asked for, if they help.
    fn provoke(&mut self, time: Duration, by_compactions: bool, is_met: impl Fn() -> bool) -> Check {
        let world = Arc::clone(&self.world);
        let latest = world.now() + (time * UNMET_MAX).max(UNMET_MIN);
        while !world.wait_until(world.now() + time, &is_met) && !world.is_over() && world.now() < latest {
            if by_compactions {
                self.compact_some()?;
            }
        }
        Ok(())
    }

    /// Asks for a compaction, as none may be due for long; a fault keeps it from being done, or it finds nothing to do.
    fn compact_some(&mut self) -> Check {
        let (keys, client) = (self.world.setup.keys, self.random.random_range(0..CLIENTS));
        let first = self.random.random_range(0..keys);
        let [lower, upper] =
            [first, (first + keys / COMPACTED_PART).min(keys)].map(|number| key(client, number));
        let _refused = self.world.db()?.compact_range(Some(&lower), Some(&upper));
        Ok(())
    }

    /// Counts and watches what no client does.
    fn did(&mut self, kind: Kind, what: fn(&mut Self) -> Check) -> Check {
        let world = Arc::clone(&self.world);
        world.meters[CLIENTS].begin(kind, world.now());
        let outcome = what(self);
        world.meters[CLIENTS].end();
        world.meters[CLIENTS].count(kind);
        outcome
    }

    /// Waits until everything works again.
    fn recover(&mut self) -> Check {
        let mut last = String::new();
        for _ in 0..TRIES_MAX {
            // An operation may have begun to stall after the last time.
            self.world.disks[1].release();
            self.world.wait_until(self.world.now() + TRY_EVERY, || false);
            if self.world.is_over() {
                return Ok(());
            }
            match self.works() {
                Ok(()) => return Ok(()),
                Err(what) => last = what,
            }
        }
        Err(format!("when it is over the store does not work again: {last}"))
    }

    /// A write, reads of all sorts of keys, and the background work.
    fn works(&mut self) -> Check {
        let db = self.world.db()?;
        db.put(b"probe", b"anything").map_err(|error| format!("a write fails: {error}"))?;
        for _ in 0..TRY_KEYS {
            let client = self.random.random_range(0..CLIENTS);
            let name = key(client, self.random.random_range(0..self.world.setup.keys));
            db.get(&name).map_err(|error| format!("a read fails: {error}"))?;
        }
        match db.stats().background_error {
            None => Ok(()),
            Some(error) => Err(format!("background work fails: {error}")),
        }
    }

    /// Makes a checkpoint while clients go on, and compares what it holds of one of them with what that knew before and after.
    fn checkpoint(&mut self) -> Check {
        let world = Arc::clone(&self.world);
        let client = self.random.random_range(0..CLIENTS);
        let known = || {
            let keys = world.keys[client].lock();
            (0..world.setup.keys).map(|number| keys.certain(number)).collect::<Vec<_>>()
        };
        let [fast, slow] = world.setup.dirs.each_ref().map(|dir| dir.join("checkpoint"));
        let (from_ms, before) = (world.wall_ms(), known());
        let made = world.db()?.checkpoint(&fast, Some(&slow));
        made.map_err(|error| format!("it cannot be made: {error}"))?;
        let after = known();
        let options = Setup::options_in(&fast, &slow)
            .fast_capacity(2 * world.setup.fast_capacity)
            .memory(CHECKPOINT_MEMORY);
        let db = Db::open(options).map_err(|error| format!("it cannot be opened: {error}"))?;
        self.compare(&db, client, from_ms, &[before, after])?;
        db.close().map_err(|error| format!("it cannot be closed: {error}"))?;
        for dir in [fast, slow] {
            std::fs::remove_dir_all(&dir).map_err(|error| format!("it cannot be removed: {error}"))?;
        }
        Ok(())
    }

    /// What `db` holds of `client` was there between two moments, of which `known` is what was known.
    fn compare(&self, db: &Db, client: usize, from_ms: u64, known: &[Vec<Option<Known>>; 2]) -> Check {
        let failed = |error: kelvin::Error| format!("it cannot be read: {error}");
        let maker = &self.world.maker;
        let between = |number: u32, answer: Option<&[u8]>| {
            let both = known.each_ref().map(|known| known.get(number as usize).copied().flatten());
            let [Some(before), Some(after)] = both else { return Ok(()) };
            if before == after {
                return maker.verify((client, number), before, answer, (from_ms, self.world.wall_ms()));
            }
            let Some(value) = answer else { return Ok(()) };
            let version = maker.version_of(client, number, value)?;
            if (before.version..=after.version).contains(&version) {
                return Ok(());
            }
            Err(format!("key {number} of client {client} has version {version}, not {before:?} to {after:?}"))
        };
        let [lower, upper] = [0, self.world.setup.keys].map(|number| Some(key(client, number).into()));
        let mut iter = db.iter(IterOptions { lower, upper, ..IterOptions::default() }).map_err(failed)?;
        iter.seek_to_first().map_err(failed)?;
        let mut next = 0;
        while iter.valid() {
            let number = number_of(iter.key())?;
            (next..number).try_for_each(|absent| between(absent, None))?;
            between(number, Some(iter.value()))?;
            next = number + 1;
            iter.next().map_err(failed)?;
        }
        (next..self.world.setup.keys).try_for_each(|absent| between(absent, None))
    }

    fn reopen(&mut self) -> Check {
        let world = Arc::clone(&self.world);
        world.close_gate();
        if !world.is_over() {
            at_rest(&world)?;
            world.reopen()?;
        }
        world.open_gate();
        Ok(())
    }

    /// Everything that all clients know, of a store that nobody is on: read by iterators, checked file by file, closed, opened and read again.
    pub(super) fn finish(&self) -> Check {
        let world = &self.world;
        at_rest(world)?;
        for is_opened_again in [false, true] {
            if is_opened_again {
                world.reopen()?;
            }
            self.is_as_known().map_err(|what| format!("at the end {what}"))?;
            let report = world.db()?.check();
            if !report.is_well() {
                return Err(format!("at the end files are damaged: {:?}", report.damaged_files()));
            }
        }
        world.close()
    }

    /// A store that nobody is on holds what all clients know.
    pub(super) fn is_as_known(&self) -> Check {
        let world = &self.world;
        let db = world.db()?;
        (0..CLIENTS).try_for_each(|client| {
            let keys = world.keys[client].lock();
            let known: Vec<_> = (0..world.setup.keys).map(|number| keys.certain(number)).collect();
            drop(keys);
            self.compare(&db, client, world.wall_ms(), &[known.clone(), known])
        })
    }
}

/// A flush is told that there is no room for its table.
fn flush_without_room(world: &World) -> Check {
    match world.db()?.flush() {
        Err(error) if error.kind() != ErrorKind::NoSpace => {
            Err(format!("a flush without room fails: {error}"))
        }
        _ => Ok(()),
    }
}

/// A store that nobody is on has the files it needs and no other, and no room set aside, once its work is done.
fn at_rest(world: &World) -> Check {
    let db = world.db()?;
    world.meters[CLIENTS].count(Kind::Rest);
    db.flush().map_err(|error| format!("a flush of a store at rest fails: {error}"))?;
    let mut last = String::new();
    for _ in 0..TRIES_MAX {
        db.wait_idle().map_err(|error| format!("the work of a store at rest fails: {error}"))?;
        match is_tidy(world, &db) {
            Ok(()) => return Ok(()),
            Err(what) => last = what,
        }
        // Files are removed, and hot records promoted, behind the work that is waited for; what an outage kept from being removed is
        // asked for again within seconds.
        world.pause(TRY_EVERY);
        if world.failure().is_some() {
            break;
        }
    }
    Err(format!("at rest {last}; {}", left_over(&db)?))
}

/// The tables' files on both disks.
fn table_files(db: &Db) -> Check<Vec<PathBuf>> {
    let config = db.config();
    let mut files = Vec::new();
    for dir in [Some(&config.dir), config.slow_dir.as_ref()].into_iter().flatten() {
        let names = OsStorage::new()
            .list(dir)
            .map_err(|error| format!("{} cannot be listed: {error}", dir.display()))?;
        let tables = names.iter().filter(|name| name.extension().is_some_and(|end| end == "tbl"));
        files.extend(tables.map(|name| dir.join(name)));
    }
    Ok(files)
}

/// Files of tables that the store does not have.
fn left_over(db: &Db) -> Check<String> {
    let needed: HashSet<PathBuf> = db.check().files.into_iter().map(|file| file.path).collect();
    let mut files = table_files(db)?;
    files.retain(|file| !needed.contains(file));
    Ok(format!("left over: {files:?}"))
}

fn is_tidy(world: &World, db: &Db) -> Check {
    let (levels, stats, there) = (db.levels(), db.stats(), table_files(db)?.len());
    let needed: usize = levels.iter().map(|level| level.tables).sum();
    if there != needed {
        return Err(format!("there are the files of {there} tables, and {needed} tables"));
    }
    for tier in Tier::ALL {
        let reserved = stats.reserved_bytes[tier.index()];
        if reserved > 0 {
            return Err(format!("{reserved} bytes of the {tier} disk are set aside for nothing"));
        }
    }
    let on_disk = dirs::used_bytes(&world.setup.dirs[0].join("store"));
    if on_disk > world.setup.fast_capacity + DIRECTORY_BYTES {
        return Err(format!("the fast disk holds {on_disk} bytes, more than {}", world.setup.fast_capacity));
    }
    Ok(())
}
