//! What RALT consists of at one moment. Immutable, so that readers never wait (paper §3.2: multiple versions).
//!
//! Level 0 holds runs as they were flushed, newest first; each deeper level is one sorted sequence of runs. While an eviction
//! goes through the keys step by step, what it has passed is cut off from the runs that reach further: a run counts from
//! `from` on.
//!
//! Tests: `tests.rs`.

use std::sync::Arc;

use kelvin_base::events::TrackerSizes;
use kelvin_base::{KeyRange, hash64};
use kelvin_storage::ALIGNMENT;

use crate::limits::Limits;
use crate::run::{Run, Sizes};
use crate::score::Now;

/// Levels there can be; the deepest is never full.
pub const LEVELS: usize = 7;

/// A run in a version.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The run.
    pub run: Arc<Run>,
    /// Its records before this key were merged elsewhere.
    pub from: Option<Arc<[u8]>>,
}

impl Placed {
    /// The whole of `run`.
    pub const fn whole(run: Arc<Run>) -> Self {
        Self { run, from: None }
    }

    /// The first key that counts, or one before it.
    pub fn first(&self) -> &[u8] {
        match &self.from {
            Some(from) => self.run.first().max(from),
            None => self.run.first(),
        }
    }

    /// True if it has keys at or behind `start` that do not lie behind `end`.
    pub fn meets(&self, range: KeyRange<'_>) -> bool {
        range.start <= self.run.last() && !range.ends_before(self.first())
    }

    /// HotRAP size of its hot keys, those cut off left out.
    pub fn hot_bytes(&self) -> u64 {
        if self.from.is_none() { self.run.sizes().hot_bytes } else { self.hot_size(KeyRange::ALL) }
    }

    /// True if `key`, of this hash, is hot in it, and rarely if it is not.
    pub fn is_hot(&self, key: &[u8], hash: u64) -> bool {
        self.run.is_hot(key, hash) && self.from.as_ref().is_none_or(|from| &**from <= key)
    }

    fn hot_size(&self, range: KeyRange<'_>) -> u64 {
        let start = range.start.max(self.first());
        if range.ends_before(start) { 0 } else { self.run.hot_size(KeyRange { start, end: range.end }) }
    }
}

/// True if a run of the sorted `levels` has `key`, of this hash, as hot.
pub fn is_hot_in(levels: &[Vec<Placed>], key: &[u8], hash: impl Fn() -> u64) -> bool {
    levels.iter().any(|level| {
        let at = level.partition_point(|placed| placed.run.last() < key);
        level.get(at).is_some_and(|placed| placed.is_hot(key, hash()))
    })
}

/// RALT's runs at one moment, and what makes a key hot.
#[derive(Clone, Debug, Default)]
pub struct Version {
    /// The runs by level.
    pub levels: [Vec<Placed>; LEVELS],
    /// Keys with this score or a higher one are hot.
    pub hot_score: f64,
    /// The clocks when it was made.
    pub now: Now,
    /// How large it may be.
    pub limits: Limits,
}

impl Version {
    /// True if `key` is hot, and rarely if it is not: nobody looks twice (paper §3.2).
    pub fn is_hot(&self, key: &[u8]) -> bool {
        let ([newest, sorted @ ..], hash) = (&self.levels, hash64(key));
        newest.iter().any(|placed| placed.is_hot(key, hash)) || is_hot_in(sorted, key, || hash)
    }

    /// HotRAP size of the hot keys in `range`. A key of several runs counts in the deepest that has it as hot.
    pub fn hot_size(&self, range: KeyRange<'_>) -> u64 {
        let upper = self.levels[0].iter().map(|placed| placed.hot_size(range)).sum::<u64>();
        let level = |level: &Vec<Placed>| {
            let from = level.partition_point(|placed| placed.run.last() < range.start);
            let met = level[from..].iter().take_while(|placed| !range.ends_before(placed.first()));
            met.map(|placed| placed.hot_size(range)).sum::<u64>()
        };
        upper + self.levels[1..].iter().map(level).sum::<u64>()
    }

    /// The runs that meet `range`, newest first.
    pub fn meeting(&self, range: KeyRange<'_>) -> Vec<Placed> {
        self.placed().filter(|placed| placed.meets(range)).cloned().collect()
    }

    /// Every run, newest first.
    pub fn placed(&self) -> impl Iterator<Item = &Placed> {
        self.levels.iter().flatten()
    }

    /// Sums over all runs. Those cut off still count.
    pub fn sizes(&self) -> Sizes {
        let mut sum = Sizes::default();
        self.placed().for_each(|placed| sum.add(placed.run.sizes()));
        sum.hot_bytes = self.placed().map(Placed::hot_bytes).sum();
        sum
    }

    /// How large everything is, and may be.
    pub fn tracker_sizes(&self) -> TrackerSizes {
        let (sizes, limits) = (self.sizes(), self.limits);
        TrackerSizes {
            hot_set_bytes: sizes.hot_bytes,
            hot_set_limit_bytes: limits.hot_bytes,
            physical_bytes: sizes.physical_bytes,
            physical_limit_bytes: limits.physical_bytes,
        }
    }

    /// Bytes of the runs of `level`.
    pub fn level_bytes(&self, level: usize) -> u64 {
        self.levels.get(level).map_or(0, |level| level.iter().map(|placed| placed.run.file_bytes()).sum())
    }

    /// The deepest level with a run; 0 if there is none.
    pub fn deepest(&self) -> usize {
        (0..LEVELS).rfind(|&level| !self.levels[level].is_empty()).unwrap_or(0)
    }

    /// Memory that its runs pin, bytes.
    pub fn memory_bytes(&self) -> usize {
        self.placed().map(|placed| placed.run.memory_bytes()).sum()
    }

    /// What its files take of a disk: whole blocks.
    pub fn disk_bytes(&self) -> u64 {
        self.placed().map(|placed| placed.run.file_bytes().next_multiple_of(ALIGNMENT as u64)).sum()
    }
}
