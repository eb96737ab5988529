//! Leveled compaction of RALT's own runs (paper §3.2), so that a hotness check asks few filters.

use std::sync::atomic::Ordering;

use kelvin_base::{KeyRange, Result};

use crate::core::{Core, Fate, Work};
use crate::record::Record;
use crate::version::{LEVELS, Placed, Version, is_hot_in};

impl Core {
    /// Bytes that `level` (1 or deeper) may have.
    fn level_bytes_max(&self, level: usize) -> u64 {
        let first = (self.options.buffer_bytes as u64).saturating_mul(self.options.level0_runs as u64);
        let ratio = self.options.level_ratio.max(2);
        (1..level).fold(first, |bytes, _| bytes.saturating_mul(ratio))
    }

    /// Merges one level's runs into the next where a level has too many; false if none has.
    pub fn compact(&self, work: &mut Work) -> Result<bool> {
        let version = self.version.load_full();
        let (level, taken) = if version.levels[0].len() >= self.options.level0_runs.max(1) {
            (0, version.levels[0].clone())
        } else {
            let is_full = |&level: &usize| version.level_bytes(level) > self.level_bytes_max(level);
            let Some(level) = (1..LEVELS - 1).find(is_full) else { return Ok(false) };
            (level, vec![next_of(&work.compacted_to[level], &version.levels[level])])
        };
        let Some(first) = taken.iter().map(Placed::first).min() else { return Ok(false) };
        let Some(last) = taken.iter().map(|placed| placed.run.last()).max() else { return Ok(false) };
        let range = KeyRange::closed(first, last);
        let below: Vec<Placed> =
            version.levels[level + 1].iter().filter(|placed| placed.meets(range)).cloned().collect();
        let inputs: Vec<Placed> = taken.iter().chain(&below).cloned().collect();
        let gone: Vec<u64> = inputs.iter().map(|placed| placed.run.number()).collect();
        let now = work.now;
        let fate =
            |key: &[u8], record: &Record| Fate::Keep { is_hot: self.is_hot(&version, now, key, record) };
        let knows = |key: &[u8]| is_hot_in(&version.levels[level + 2..], key);
        let runs = self.rewrite(work, &knows, inputs, KeyRange::ALL, fate)?;
        self.counters.compactions.fetch_add(1, Ordering::Relaxed);
        work.compacted_to[level] = last.to_vec();
        let mut next = Version { now, ..Version::clone(&version) };
        for level in [level, level + 1] {
            next.levels[level].retain(|placed| !gone.contains(&placed.run.number()));
        }
        place(&mut next.levels[level + 1], runs.into_iter().map(Placed::whole));
        drop(version);
        self.install(work, next);
        Ok(true)
    }
}

/// Of a level's `runs`, the first behind the key at which the last compaction ended; from the start again at its end.
fn next_of(behind: &[u8], runs: &[Placed]) -> Placed {
    runs.iter().find(|placed| placed.run.first() > behind).unwrap_or(&runs[0]).clone()
}

/// Puts `runs` where their keys belong in a sorted level.
pub fn place(level: &mut Vec<Placed>, runs: impl Iterator<Item = Placed>) {
    level.extend(runs);
    level.sort_by(|a, b| a.run.first().cmp(b.run.first()));
}
