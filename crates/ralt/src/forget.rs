//! Keys that nobody will ask for again leave at once, and do not wait until they have cooled down.
//!
//! Runs that lie in the range are dropped whole, and those that reach over its edges are written anew without it. Tests: `tests.rs`.

use std::ops::Bound;
use std::sync::Arc;

use kelvin_base::{KeyRange, Result, hash64};

use crate::core::{Core, Fate, Work};
use crate::record::Record;
use crate::run::Run;
use crate::version::{LEVELS, Placed, Version, is_hot_in};

/// A range of keys that are not wanted any more.
#[derive(Clone, Debug)]
pub struct Forgotten {
    start: Vec<u8>,
    end: Bound<Vec<u8>>,
}

impl Forgotten {
    /// The keys of `range`.
    pub fn new(range: KeyRange<'_>) -> Self {
        Self { start: range.start.to_vec(), end: range.end.map(<[u8]>::to_vec) }
    }

    fn range(&self) -> KeyRange<'_> {
        KeyRange { start: &self.start, end: self.end.as_ref().map(Vec::as_slice) }
    }
}

impl Core {
    /// Drops what is known of the keys of `forgotten`.
    pub fn forget(&self, work: &mut Work, forgotten: &Forgotten) -> Result<()> {
        let range = forgotten.range();
        let version = self.version.load_full();
        if version.meeting(range).is_empty() {
            return Ok(());
        }
        let mut next = Version { now: work.now, ..Version::clone(&version) };
        let mut made = Vec::new();
        let outcome = (0..LEVELS).try_for_each(|level| {
            next.levels[level] = self.level_without(work, &version, level, range, &mut made)?;
            Ok(())
        });
        if outcome.is_err() {
            made.iter().for_each(|run| run.retire());
            return outcome;
        }
        drop(version);
        self.install(work, next);
        Ok(())
    }

    /// The runs of a level of `version` without the keys of `range`; those that are new are also put into `made`.
    fn level_without(
        &self,
        work: &mut Work,
        version: &Version,
        level: usize,
        range: KeyRange<'_>,
        made: &mut Vec<Arc<Run>>,
    ) -> Result<Vec<Placed>> {
        let now = work.now;
        let mut kept = Vec::new();
        for (at, placed) in version.levels[level].iter().enumerate() {
            if !placed.meets(range) {
                kept.push(placed.clone());
            } else if !(range.contains(placed.first()) && range.contains(placed.run.last())) {
                let older = if level == 0 { &version.levels[0][at + 1..] } else { &[] };
                let knows = |key: &[u8]| {
                    let hash = hash64(key);
                    older.iter().any(|one| one.is_hot(key, hash))
                        || is_hot_in(&version.levels[level + 1..], key, || hash)
                };
                let fate = |key: &[u8], record: &Record| {
                    let is_hot = self.is_hot(version, now, key, record);
                    if range.contains(key) { Fate::Drop } else { Fate::Keep { is_hot } }
                };
                let runs = self.rewrite(work, &knows, vec![placed.clone()], KeyRange::ALL, fate)?;
                made.extend(runs.iter().cloned());
                kept.extend(runs.into_iter().map(Placed::whole));
            }
        }
        Ok(kept)
    }
}
