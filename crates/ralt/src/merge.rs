//! The records of several runs, merged by key: the sum of what each knows of it.
//!
//! In:  runs, newest first, and a range.
//! Out: its keys in order, each with one record.
//!
//! There are few runs, so the smallest key is found by looking at all of them. Tests: `tests.rs`.

use kelvin_base::key::{append_internal, seek_trailer, user_key};
use kelvin_base::{Error, InternalIterator, KeyRange, Result, SEQUENCE_MAX};
use kelvin_table::TableIter;

use crate::record::Record;
use crate::score::Scoring;
use crate::version::Placed;

struct Source {
    placed: Placed,
    iter: TableIter,
}

/// Merged records of a range.
pub struct Merged {
    /// Oldest first.
    sources: Vec<Source>,
    scoring: Scoring,
    end: Option<End>,
    key: Vec<u8>,
}

/// The first key that is not wanted any more, or the last that is.
enum End {
    Before(Vec<u8>),
    With(Vec<u8>),
}

impl Merged {
    /// The records of `range` in `runs`, which are newest first. `is_merge`: all of it will be read.
    ///
    /// # Errors
    /// If a run cannot be read.
    pub fn new(runs: Vec<Placed>, range: KeyRange<'_>, scoring: Scoring, is_merge: bool) -> Result<Self> {
        let mut sources = Vec::with_capacity(runs.len());
        let mut target = Vec::new();
        for placed in runs.into_iter().rev().filter(|placed| placed.meets(range)) {
            let mut iter = placed.run.iter(is_merge);
            target.clear();
            append_internal(&mut target, range.start.max(placed.first()), seek_trailer(SEQUENCE_MAX));
            iter.seek(&target)?;
            sources.push(Source { placed, iter });
        }
        let end = match range.end {
            std::ops::Bound::Included(key) => Some(End::With(key.to_vec())),
            std::ops::Bound::Excluded(key) => Some(End::Before(key.to_vec())),
            std::ops::Bound::Unbounded => None,
        };
        Ok(Self { sources, scoring, end, key: Vec::new() })
    }

    /// The next key and its record; `None` behind the last.
    ///
    /// # Errors
    /// If a run cannot be read, or holds what is no record.
    pub fn next(&mut self) -> Result<Option<(&[u8], Record)>> {
        let keys = self
            .sources
            .iter()
            .filter(|source| source.iter.valid())
            .map(|source| user_key(source.iter.key()));
        let Some(smallest) = keys.min() else { return Ok(None) };
        let is_behind = match &self.end {
            None => false,
            Some(End::Before(end)) => smallest >= end.as_slice(),
            Some(End::With(last)) => smallest > last.as_slice(),
        };
        if is_behind {
            return Ok(None);
        }
        self.key.clear();
        self.key.extend_from_slice(smallest);
        let mut merged: Option<Record> = None;
        for source in &mut self.sources {
            if !source.iter.valid() || user_key(source.iter.key()) != self.key {
                continue;
            }
            let newer = Record::decode(source.iter.value()).ok_or_else(|| {
                Error::corruption(source.placed.run.path(), 0, "an entry is no access record")
            })?;
            merged = Some(match &merged {
                Some(older) => Record::merge(self.scoring, older, &newer),
                None => newer,
            });
            source.iter.next()?;
        }
        Ok(merged.map(|record| (self.key.as_slice(), record)))
    }

    /// Bytes read since this was last asked.
    pub fn take_read_bytes(&mut self) -> u64 {
        self.sources.iter_mut().map(|source| source.iter.take_io().bytes).sum()
    }
}
