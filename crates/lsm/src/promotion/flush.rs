//! Promotion by flush (HotRAP section 3.5): what is hot of a full promotion cache becomes a run of the hot level, and while the fast
//! tier has room to spare, or many were let go that are read again, also what was read once.
//!
//! Invariants
//! - PF1 From the moment the cache's records are taken until the run is installed, no compaction that writes the slow tier begins (the
//!   schedule holds them): nothing newer can get below the run before the run stands there (DESIGN section 6, H3). One that runs
//!   already took the records of its range out before, and keeps new ones out.
//! - PF2 The run is a copy: whatever fails, nothing is lost but the heat.
//! - PF3 A run takes nothing of the room of flushes and compactions: it waits until compactions have made some of the levels' own, if some records
//!   are hotter than others.
//!
//! Tests: `flush_tests.rs`, the model test.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use kelvin_base::events::What;
use kelvin_base::{Error, ErrorKind, KeyRange, Lane, Result, Tier, seeded_bug};

use super::Promoted;
use super::cache::RECORD_BYTES;
use super::claimed::{Records, bytes_of, entries};
use super::skew::{Reads, Sizes};
use crate::compaction::job::{self, JobTable};
use crate::db::engine::Engine;
use crate::memory::MemoryPart;
use crate::space::Priority;
use crate::tiers::Purpose;
use crate::version::{Edit, FIRST_SLOW, LEVELS, LEVELS_FAST};
use crate::view::KeyspaceState;
use crate::write::room::flush_slack_bytes;

/// Less than this part of the cache is not worth a run (the paper: half a table). What the cache takes beside the records counts, or
/// small records would never be enough.
const WORTHWHILE: u64 = 4;
/// Records that were read only once leave this part of the fast tier's levels free.
const SLACK: u64 = 16;
/// With one record in so many read before and not kept then, all are kept.
const REGRET: usize = 8;
/// With fewer than one in so many, next to nothing is left to promote.
const SKEWED: usize = 16;
/// Much is such a part of the levels on the fast tier.
const MUCH: u64 = 4;
/// Where no records are hotter than others, those that were read only once fill no more than such a part of the fast tier's levels.
const UNPROVEN: u64 = 8;
/// A promotion that waits has room made for so many full caches.
const AHEAD: u64 = 2;
/// The hot level leaves this part of the fast tier's levels to what is on its way down.
const PIPELINE: u64 = 6;
/// The last part in so many of the hot level's room is for records that were hot before they were read from the slow tier.
const TIGHT: u64 = 12;

/// After a flush that could not be done, the next one waits.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// What compactions are to do for a promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// None waits.
    Nothing,
    /// They are to leave it so many bytes of the fast tier.
    Bytes(u64),
    /// The hot level is as large as it may be: only what is cold there can give way.
    WhatIsCold,
}

/// What a promotion may come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chance {
    /// There is room; whether some records are hotter than others.
    Good { is_skewed: bool },
    /// There will be.
    Waits,
    /// There is none, and nothing is worth it: what would be promoted is no hotter than what would give way.
    Useless,
}

/// The tables of the fast tier, bytes.
pub(super) struct FastLevels {
    /// What they may fill.
    usable: u64,
    /// What they do.
    used: u64,
    /// Of that, the hot level.
    hot: u64,
    /// What level 0 will grow by before it is merged down.
    level_zero_growth: u64,
}

impl FastLevels {
    /// True if the hot level, with `run_bytes` more, leaves the levels above it their part.
    const fn hot_level_may_grow(&self, run_bytes: u64) -> bool {
        self.hot.saturating_add(run_bytes) <= self.hot_max()
    }

    /// True if the hot level has little room left for records that nobody knows to be hot.
    const fn hot_level_is_tight(&self) -> bool {
        self.hot > self.hot_max() / TIGHT * (TIGHT - 1)
    }

    /// What no level fills and no step of a compaction will want soon.
    pub(super) const fn spare(&self) -> u64 {
        let used = self.used.saturating_add(self.level_zero_growth);
        self.usable.saturating_sub(used).saturating_sub(self.usable / SLACK)
    }

    /// The same for records that were read only once, where of `count` records so many were read `again`. Where next to none is, they fill no more than
    /// what nothing else has filled for long: what evictions empty would be filled in vain each time. Where all records are read alike, they fill
    /// but a part, from which it can be told if it becomes otherwise.
    fn spare_for(&self, again: usize, count: usize, is_skewed: bool) -> u64 {
        let spare = self.spare();
        let most = if is_skewed { u64::MAX } else { (self.usable / UNPROVEN).saturating_sub(self.hot) };
        if again * SKEWED >= count || spare > self.usable / MUCH { spare.min(most) } else { 0 }
    }

    const fn hot_max(&self) -> u64 {
        self.usable - self.usable / PIPELINE
    }
}

impl Engine {
    /// Starts a promotion by flush unless one runs, or the last one failed a moment ago. Waits for nobody: a reader calls it.
    pub(crate) fn request_promotion(&self) {
        let Some(mut work) = self.work.try_lock() else { return };
        let now = self.env.clock.now();
        if self.is_closing() || self.health.fatal().is_some() || !work.promotion.begin(now) {
            return;
        }
        drop(work);
        let Some(engine) = self.me.upgrade() else { return };
        self.env.executor.spawn(
            Lane::Flush,
            Box::new(move || {
                let chance = engine.chance_of_promotion();
                let promote = || engine.guarded(|| engine.promote_all(chance));
                let outcome = if chance == Chance::Waits { Ok(()) } else { promote() };
                engine.end_promotion(chance, &outcome);
            }),
        );
    }

    /// Lets compactions of the slow tier begin again.
    fn end_promotion(&self, chance: Chance, outcome: &Result<()>) {
        let wait = if chance != Chance::Waits && outcome.is_ok() { Duration::ZERO } else { AGAIN_AFTER };
        let mut work = self.work.lock();
        work.promotion.end(self.env.clock.now().saturating_add(wait));
        work.running.keep_run(None);
        drop(work);
        match outcome {
            Ok(()) => {}
            // Compactions make some, and the records are still there.
            Err(error) if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Busy) => {
                self.counters.promotion.postponed.add(1);
            }
            Err(_) => self.counters.work.failures.add(1),
        }
        self.refresh_pressure();
        self.go_on();
    }

    fn promote_all(&self, chance: Chance) -> Result<()> {
        let _purpose = Purpose::Flush.enter();
        self.settle_manifest()?;
        let keyspaces = self.keyspaces.load();
        keyspaces.iter().try_for_each(|keyspace| self.promote(keyspace, chance))
    }

    /// Writes what is hot of the promotion cache of `keyspace` as a run; too little of it goes back.
    fn promote(&self, keyspace: &KeyspaceState, chance: Chance) -> Result<()> {
        let taken = keyspace.promotion.freeze();
        let _counted = self.files.memory.charge(MemoryPart::Promotion, bytes_of(&taken));
        let parts = self.config.hot_parts;
        // With room to spare it costs next to nothing to keep what was read once: dropping a copy writes nothing. And where many are
        // read again, too few were kept; but not for want of room, which is better left to those.
        let again = taken.iter().filter(|(_, record)| record.was_hot).count();
        let fast = self.fast_levels_now();
        let is_skewed = matches!(chance, Chance::Good { is_skewed: true });
        let regrets = is_skewed && again * REGRET >= taken.len() && !fast.hot_level_is_tight();
        let keeps_all = !parts.hotness_check || regrets;
        let spare_bytes = fast.spare_for(again, taken.len(), is_skewed);
        let mut spare_bytes = if keeps_all { u64::MAX } else { spare_bytes };
        let may = parts.promotion_by_flush && chance != Chance::Useless;
        let is_wanted = |(key, record): &(Bytes, Promoted)| {
            let bytes = (key.len() + record.stored.len()) as u64;
            let is_wanted = record.was_hot && is_skewed || spare_bytes > bytes;
            spare_bytes = spare_bytes.saturating_sub(bytes);
            may && is_wanted
        };
        let (hot, cold): (Records, Records) = taken.iter().cloned().partition(is_wanted);
        if parts.promotion_by_flush {
            self.counters.work.boundary.not_hot_bytes.add(bytes_of(&cold));
        }
        let (records, bytes) = (hot.len() as u64, bytes_of(&hot));
        let hot_bytes = bytes + records * RECORD_BYTES;
        let is_worthwhile = hot_bytes >= self.config.promotion_bytes_max / WORTHWHILE;
        let outcome = if is_worthwhile { self.write_run(keyspace, &hot) } else { Ok(()) };
        let is_written = is_worthwhile && outcome.is_ok();
        let back = if is_written { Records::default() } else { hot };
        let back_records = keyspace.promotion.thaw(back) as u64;
        if records > 0 || !cold.is_empty() {
            let (records, bytes) = if is_written { (records, bytes) } else { (0, 0) };
            self.events.post(|| What::Promoted {
                keyspace: keyspace.name.clone(),
                records,
                bytes,
                back_records,
                not_hot_records: cold.len() as u64,
                not_hot_bytes: bytes_of(&cold),
            });
        }
        self.forgive_dropped(keyspace, outcome)
    }

    /// A run may fit into the levels' part of the fast tier, with level 0 as large as it may become: what flushes and compactions need is not for copies.
    /// If it does not, and some records are hotter than others, records stay where they are, nothing more is promoted meanwhile, and compactions make the
    /// room, if what they move is colder.
    fn chance_of_promotion(&self) -> Chance {
        let fast = self.fast_levels_now();
        let run_bytes = self.config.promotion_bytes_max;
        let fits = fast.used.saturating_add(fast.level_zero_growth).saturating_add(run_bytes) <= fast.usable;
        let has_room = fits && fast.hot_level_may_grow(run_bytes) || goes_without_room();
        let is_skewed = self.is_skewed(&fast);
        let chance = match has_room {
            true => Chance::Good { is_skewed },
            false if is_skewed || !self.config.hot_parts.hotness_check => Chance::Waits,
            false => Chance::Useless,
        };
        self.promotion_waits.store(chance == Chance::Waits, Ordering::Relaxed);
        chance
    }

    /// True if some records are hotter than others.
    fn is_skewed(&self, fast: &FastLevels) -> bool {
        let reads = &self.counters.reads;
        let of = |levels: Range<usize>| levels.map(|level| reads.level(level).get()).sum::<u64>();
        let from_fast = reads.memtable.get() + reads.promotion.get() + of(0..FIRST_SLOW);
        let known = self.counters.promotion.known.get();
        let slow: u64 = self.versions_now().iter().map(|version| version.tier_bytes(Tier::Slow)).sum();
        // Copies have their originals on the slow tier.
        let all = fast.used.saturating_sub(fast.hot).saturating_add(slow);
        let sizes = Sizes { fast: fast.used, all, hot: self.hotness.tracker().hot_size(KeyRange::ALL) };
        self.skew.lock().is_seen(Reads { fast: from_fast, slow: of(FIRST_SLOW..LEVELS), known }, sizes)
    }

    /// True if what compactions hand up will go on to the hot level.
    pub(crate) fn takes_lifted(&self) -> bool {
        self.config.hot_parts.promotion_by_flush && !self.promotion_waits.load(Ordering::Relaxed)
    }

    pub(super) fn fast_levels_now(&self) -> FastLevels {
        let versions = self.versions_now();
        let newest: u64 = versions.iter().map(|version| version.levels[0].size_bytes()).sum();
        let newest_max = self.config.memtable_bytes.saturating_mul(self.config.level0_compact_at as u64);
        FastLevels {
            usable: self.pick_config.fast_usable_bytes.saturating_sub(self.hotness_bytes()),
            used: versions.iter().map(|version| version.tier_bytes(Tier::Fast)).sum(),
            hot: versions.iter().map(|version| version.hot_level_bytes()).sum(),
            level_zero_growth: newest_max.saturating_sub(newest),
        }
    }

    /// What a promotion waits for.
    pub(crate) fn promotion_wants(&self) -> Wants {
        if !self.promotion_waits.load(Ordering::Relaxed) {
            return Wants::Nothing;
        }
        let fast = self.fast_levels_now();
        match fast.hot_level_may_grow(self.config.promotion_bytes_max) {
            true => {
                Wants::Bytes(fast.level_zero_growth.saturating_add(AHEAD * self.config.promotion_bytes_max))
            }
            false if seeded_bug!("full-hot-level-stays-full") => Wants::Nothing,
            false => Wants::WhatIsCold,
        }
    }

    fn write_run(&self, keyspace: &KeyspaceState, hot: &Records) -> Result<()> {
        let level = if seeded_bug!("promotion-into-level-zero") { 0 } else { self.free_run(keyspace)? };
        let bytes = bytes_of(hot);
        let wanted = if goes_without_room() { 0 } else { bytes + flush_slack_bytes(bytes) };
        if self
            .space
            .available(Tier::Fast, Priority::Essential)
            .is_some_and(|free| wanted > 0 && free < wanted + self.comfortable_bytes())
        {
            return Err(Error::new(ErrorKind::NoSpace, "the fast tier has no room for a run of hot records"));
        }
        let reservation = self.space.reserve(Tier::Fast, wanted, Priority::Essential)?;
        let copies = entries(hot);
        let context = self.job_context(self.outputs(Purpose::Flush), level, Tier::Fast);
        let output = job::write_run(&copies, self.config.table_bytes, &context)?;
        let metas: Vec<_> = output.tables.iter().map(JobTable::meta).collect();
        let mut edit = Edit::default();
        for meta in &metas {
            edit.add(keyspace.id, level, meta.clone());
        }
        self.account_tables(&mut [reservation], &metas);
        let cooled_at = self.cooled_now();
        self.install_or_remove(keyspace, edit, &[], &metas, &[])?;
        let version = &keyspace.peek().version;
        let made = metas.iter().filter_map(|meta| version.find(meta.number));
        made.for_each(|(_, file)| file.set_cooled_at(cooled_at));
        self.counters.work.boundary.flushed_bytes.add(bytes);
        Ok(())
    }

    /// A run of the hot level that nobody uses, kept for this promotion until it ends.
    fn free_run(&self, keyspace: &KeyspaceState) -> Result<usize> {
        let mut work = self.work.lock();
        let version = Arc::clone(&keyspace.peek().version);
        let is_free = |level: &usize| {
            version.levels[*level].tables.is_empty() && !work.running.outputs(keyspace.id, *level)
        };
        // From the end: merges take theirs from the front.
        let level = (LEVELS_FAST..FIRST_SLOW).rev().find(is_free);
        let level =
            level.ok_or_else(|| Error::new(ErrorKind::Busy, "every run of the hot level is in use"))?;
        work.running.keep_run(Some((keyspace.id, level)));
        Ok(level)
    }
}

/// A deliberate mistake, for tests of the tests: room is not asked for.
fn goes_without_room() -> bool {
    seeded_bug!("promotion-without-room")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_of_the_hot_levels_room_is_not_for_what_was_read_once() {
        let of = |hot: u64| FastLevels { usable: 600, used: 0, hot, level_zero_growth: 0 };
        assert_eq!(of(0).hot_max(), 500);
        assert_eq!([440, 451, 452, 500].map(|hot| of(hot).hot_level_is_tight()), [false, false, true, true]);
        assert!(of(490).hot_level_may_grow(10) && !of(490).hot_level_may_grow(11));
    }

    #[test]
    fn where_nothing_is_read_again_little_room_is_left_as_it_is() {
        let of = |used: u64| FastLevels { usable: 1600, used, hot: 0, level_zero_growth: 0 };
        assert_eq!([0, 1000, 1200].map(|used| of(used).spare()), [1500, 500, 300]);
        assert_eq!([0, 1000, 1200].map(|used| of(used).spare_for(0, 160, true)), [1500, 500, 0]);
        assert_eq!([9, 10].map(|again| of(1200).spare_for(again, 160, true)), [0, 300]);
    }

    #[test]
    fn where_all_are_read_alike_what_was_read_once_fills_but_a_part() {
        let of = |used: u64, hot: u64| FastLevels { usable: 1600, used, hot, level_zero_growth: 0 };
        assert_eq!([0, 1000, 1450].map(|used| of(used, 0).spare_for(10, 160, false)), [200, 200, 50]);
        assert_eq!([150, 200, 300].map(|hot| of(1000, hot).spare_for(0, 160, false)), [50, 0, 0]);
    }
}
