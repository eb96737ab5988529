//! Leveled compaction of RALT's own runs (paper §3.2), so that a hotness check asks few filters.
//!
//! The runs of level 0 go down together, step by step through the keys: some runs of level 1 and what lies over them, an install, and on. Where
//! level 1 is larger than they are they wait for more, as long as there is room: each merge writes all of it anew.
//! Level 1 may be `T` times as large as level 0, so that what is tracked of all but large disks is one level of sorted runs, and nothing is
//! merged twice on its way. Of a deeper level a run goes at a time. Evictions go by the same steps (`evict.rs`). Tests: `tests.rs`, `tests/shape.rs`.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kelvin_base::{KeyRange, Result, hash64};

use crate::core::{Core, Fate, Work};
use crate::record::Record;
use crate::version::{LEVELS, Placed, Version, is_hot_in};

/// Runs of the level below that a step takes.
pub const STEP_RUNS: usize = 4;

/// A step of a merge: of the runs up to the number `begun`, from the key `from` on, into level `into`. It goes no further in that level than
/// to the run of the key `last`.
#[derive(Debug)]
pub struct Step<'a> {
    pub into: usize,
    pub begun: u64,
    pub from: &'a [u8],
    pub last: Option<&'a [u8]>,
}

impl Core {
    /// Bytes that `level` (1 or deeper) may have.
    fn level_bytes_max(&self, level: usize) -> u64 {
        let ratio = self.options.level_ratio.max(2);
        (0..level).fold(self.options.level0_bytes(), |bytes, _| bytes.saturating_mul(ratio))
    }

    /// Merges one level's runs into the next where a level has too many; false if none has.
    pub fn compact(&self, work: &mut Work) -> Result<bool> {
        let version = self.version.load_full();
        if self.is_newest_due(&version) {
            drop(version);
            self.compact_newest(work)?;
            return Ok(true);
        }
        let is_full = |&level: &usize| version.level_bytes(level) > self.level_bytes_max(level);
        let Some(level) = (1..LEVELS - 1).find(is_full) else { return Ok(false) };
        let taken = next_of(&work.compacted_to[level], &version.levels[level]);
        let range = KeyRange::closed(taken.first(), taken.run.last());
        let below = version.levels[level + 1].iter().filter(|placed| placed.meets(range));
        let inputs: Vec<Placed> = std::iter::once(&taken).chain(below).cloned().collect();
        let gone: Vec<u64> = inputs.iter().map(|placed| placed.run.number()).collect();
        let now = work.now;
        let fate =
            |key: &[u8], record: &Record| Fate::Keep { is_hot: self.is_hot(&version, now, key, record) };
        let knows = |key: &[u8]| is_hot_in(&version.levels[level + 2..], key, || hash64(key));
        let runs = self.rewrite(work, &knows, inputs, KeyRange::ALL, fate)?;
        self.counters.compactions.fetch_add(1, Ordering::Relaxed);
        work.compacted_to[level] = taken.run.last().to_vec();
        let mut next = Version { now, ..Version::clone(&version) };
        for level in [level, level + 1] {
            next.levels[level].retain(|placed| !gone.contains(&placed.run.number()));
        }
        place(&mut next.levels[level + 1], runs.into_iter().map(Placed::whole));
        drop(version);
        self.install(work, next);
        Ok(true)
    }

    /// True if the runs of level 0 are to be merged down.
    fn is_newest_due(&self, version: &Version) -> bool {
        let (count, runs) = (version.levels[0].len(), self.options.level0_runs.max(1));
        if count < runs || count >= self.options.level0_runs_max {
            return count >= runs;
        }
        let is_worthwhile = version.level_bytes(0) >= version.level_bytes(1);
        let another = self.options.buffer_bytes as u64;
        // An eviction is not to come of it.
        let memory_bytes = version.memory_bytes() as u64;
        let fits = version.disk_bytes() + another < self.options.evict_at_bytes()
            && memory_bytes + memory_bytes / 16 < self.options.pinned_bytes_max;
        // Room for the step after it, too: else there would be none any more.
        let wanted_bytes = self.options.step_bytes() + another;
        let has_room = || self.env.storage.free_space(&self.env.dir).is_ok_and(|free| free >= wanted_bytes);
        is_worthwhile || !fits || !has_room()
    }

    /// Merges the runs that level 0 has now into level 1.
    fn compact_newest(&self, work: &mut Work) -> Result<()> {
        let (begun, now) = (work.next_number, work.now);
        loop {
            let version = self.version.load_full();
            let taken = || version.levels[0].iter().filter(|placed| placed.run.number() <= begun);
            let Some(first) = taken().map(Placed::first).min() else { break };
            let last = taken().map(|placed| placed.run.last()).max();
            // Nothing of a run below may lie before the step.
            let under = version.levels[1].iter().find(|placed| placed.meets(KeyRange::closed(first, first)));
            let from = under.map_or(first, |placed| placed.first().min(first));
            let fate =
                |key: &[u8], record: &Record| Fate::Keep { is_hot: self.is_hot(&version, now, key, record) };
            self.merge_step(work, &Step { into: 1, begun, from, last }, &fate)?;
        }
        self.counters.compactions.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Does a step, and sorts what waits for it meanwhile; the key at which the next one begins. Runs that came after the merge had begun take
    /// no part, and runs that it has written lie before `from`.
    pub fn merge_step(
        &self,
        work: &mut Work,
        step: &Step<'_>,
        fate: &dyn Fn(&[u8], &Record) -> Fate,
    ) -> Result<Option<Vec<u8>>> {
        let &Step { into, begun, from, last } = step;
        let version = self.version.load_full();
        let below = &version.levels[into];
        let ahead = &below[below.partition_point(|placed| placed.first() < from)..];
        let wanted = |placed: &&Placed| last.is_none_or(|last| placed.first() <= last);
        let count = ahead.iter().take(STEP_RUNS).take_while(wanted).count();
        let end = ahead.get(count).map(|placed| placed.first().to_vec());
        let range = KeyRange { start: from, end: end.as_deref().map_or(Bound::Unbounded, Bound::Excluded) };
        let levels = &version.levels[..=into];
        let met = levels.iter().flatten().filter(|placed| placed.meets(range));
        let inputs = met.filter(|placed| placed.run.number() <= begun).cloned().collect();
        let knows = |key: &[u8]| is_hot_in(&version.levels[into + 1..], key, || hash64(key));
        let (runs, stopped) =
            self.rewrite_some(work, &knows, inputs, range, self.options.written_in_step(), fate)?;
        let end = stopped.or(end);
        let mut next = Version { now: work.now, ..Version::clone(&version) };
        for level in &mut next.levels[..=into] {
            cut(level, begun, from, end.as_deref());
        }
        place(&mut next.levels[into], runs.into_iter().map(Placed::whole));
        drop(version);
        self.install(work, next);
        // Where accesses come faster than they are merged, some are let go: each run of level 0 takes memory.
        let has_room = self.version.load().levels[0].len() < 2 * self.options.level0_runs_max;
        if self.buffer.wants_sorting() && has_room {
            self.flush(work, &self.buffer.take_full())?;
        }
        // A job may go on for long.
        self.count_time(work);
        Ok(end)
    }
}

/// Takes the records from `from` to `end` out of the runs of `level` up to the number `begun`: those that end there go, others
/// count from `end` on. Younger runs stay as they are: they lie before `from`, or came meanwhile.
fn cut(level: &mut Vec<Placed>, begun: u64, from: &[u8], end: Option<&[u8]>) {
    let takes_part = |placed: &Placed| placed.run.number() <= begun && placed.run.last() >= from;
    let reaches_on = |placed: &Placed| end.is_some_and(|end| placed.run.last() >= end);
    level.retain(|placed| !takes_part(placed) || reaches_on(placed));
    let Some(end) = end else { return };
    let end: Arc<[u8]> = end.into();
    for placed in level.iter_mut().filter(|placed| takes_part(placed) && placed.first() < &*end) {
        placed.from = Some(Arc::clone(&end));
    }
}

/// Of a level's `runs`, the first behind the key at which the last compaction ended; from the start again at its end.
fn next_of(behind: &[u8], runs: &[Placed]) -> Placed {
    runs.iter().find(|placed| placed.first() > behind).unwrap_or(&runs[0]).clone()
}

/// Puts `runs` where their keys belong in a sorted level. Before the first key of a run that a step has cut there may be others now.
pub fn place(level: &mut Vec<Placed>, runs: impl Iterator<Item = Placed>) {
    level.extend(runs);
    level.sort_by(|a, b| a.first().cmp(b.first()));
}

const _: () = assert!(LEVELS > 2, "level 0 and evictions are merged into a level below it");
