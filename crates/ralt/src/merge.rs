//! The records of several runs, merged by key: the sum of what each knows of it.
//!
//! In:  runs, newest first, and a range.
//! Out: its keys in order, each with one record.
//!
//! Runs of the same age that lie one behind the other are read as one, each opened when the one before it has ended: so there is a source a
//! level and one for each run of level 0. Sources stand in the order of their keys, and one that has moved on is put where it belongs, mostly in its
//! old place: most records come from the level below, which has many between two of the others. Tests: `tests.rs`.

use kelvin_base::key::{append_internal, seek_trailer, user_key};
use kelvin_base::{Error, InternalIterator, KeyRange, Result, SEQUENCE_MAX};
use kelvin_table::TableIter;

use crate::record::Record;
use crate::score::Scoring;
use crate::version::Placed;

/// How runs are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Little of them, from one place on.
    Some,
    /// All that follows.
    Merge,
    /// All that follows, of one run among many.
    MergeOfMany,
}

/// Runs one behind the other.
struct Source {
    placed: Placed,
    iter: TableIter,
    /// Those behind it, the next one last.
    rest: Vec<Placed>,
    how: How,
    /// Of the runs that have ended.
    read_bytes: u64,
}

impl Source {
    /// The records of `runs`, the first one last, from `start` on; `None` without any.
    fn open(mut runs: Vec<Placed>, start: &[u8], is_merge: bool) -> Result<Option<Self>> {
        let Some(placed) = runs.pop() else { return Ok(None) };
        let how = match is_merge {
            false => How::Some,
            true if runs.is_empty() => How::MergeOfMany,
            true => How::Merge,
        };
        let iter = records(&placed, start, how)?;
        let mut source = Self { placed, iter, rest: runs, how, read_bytes: 0 };
        source.pass_ended()?;
        Ok(Some(source))
    }

    fn next(&mut self) -> Result<()> {
        self.iter.next()?;
        self.pass_ended()
    }

    fn pass_ended(&mut self) -> Result<()> {
        while !self.iter.valid()
            && let Some(next) = self.rest.pop()
        {
            self.read_bytes += self.iter.take_io().bytes;
            self.iter = records(&next, &[], self.how)?;
            self.placed = next;
        }
        Ok(())
    }
}

/// The records of `placed` from `start` on.
fn records(placed: &Placed, start: &[u8], how: How) -> Result<TableIter> {
    let mut target = Vec::new();
    append_internal(&mut target, start.max(placed.first()), seek_trailer(SEQUENCE_MAX));
    let mut iter = placed.run.iter(how);
    iter.seek(&target)?;
    Ok(iter)
}

/// `runs`, oldest first, such that those that follow each other and share no key are together, the one with the last keys first.
fn chains(runs: impl Iterator<Item = Placed>) -> Vec<Vec<Placed>> {
    let mut chains: Vec<Vec<Placed>> = Vec::new();
    for placed in runs {
        match chains.last_mut() {
            // A level's runs come with the last keys first, like everything that is turned round.
            Some(chain) if chain.last().is_some_and(|last| placed.run.last() < last.first()) => {
                chain.push(placed)
            }
            _ => chains.push(vec![placed]),
        }
    }
    chains
}

/// Merged records of a range.
pub struct Merged {
    /// Oldest first.
    sources: Vec<Source>,
    /// Those that have not ended: the one that is next last, of those with the same key the oldest.
    order: Vec<usize>,
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
        let met = runs.into_iter().rev().filter(|placed| placed.meets(range));
        let mut sources = Vec::new();
        for chain in chains(met) {
            sources.extend(Source::open(chain, range.start, is_merge)?);
        }
        let end = match range.end {
            std::ops::Bound::Included(key) => Some(End::With(key.to_vec())),
            std::ops::Bound::Excluded(key) => Some(End::Before(key.to_vec())),
            std::ops::Bound::Unbounded => None,
        };
        let order = Vec::with_capacity(sources.len());
        let mut merged = Self { sources, order, scoring, end, key: Vec::new() };
        (0..merged.sources.len()).for_each(|at| merged.put_in_order(at));
        Ok(merged)
    }

    /// Puts the source `at` where it belongs, unless it has ended.
    fn put_in_order(&mut self, at: usize) {
        let place = |at: usize| (user_key(self.sources[at].iter.key()), at);
        if self.sources[at].iter.valid() {
            let before = self.order.iter().rposition(|&other| place(other) > place(at));
            self.order.insert(before.map_or(0, |before| before + 1), at);
        }
    }

    /// The next key and its record; `None` behind the last.
    ///
    /// # Errors
    /// If a run cannot be read, or holds what is no record.
    pub fn next(&mut self) -> Result<Option<(&[u8], Record)>> {
        let Some(&first) = self.order.last() else { return Ok(None) };
        let smallest = user_key(self.sources[first].iter.key());
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
        while let Some(&at) = self.order.last() {
            let source = &mut self.sources[at];
            if user_key(source.iter.key()) != self.key {
                break;
            }
            let newer = Record::decode(source.iter.value()).ok_or_else(|| {
                Error::corruption(source.placed.run.path(), 0, "an entry is no access record")
            })?;
            merged = Some(match &merged {
                Some(older) => Record::merge(self.scoring, older, &newer),
                None => newer,
            });
            self.order.pop();
            source.next()?;
            self.put_in_order(at);
        }
        Ok(merged.map(|record| (self.key.as_slice(), record)))
    }

    /// Bytes read since this was last asked.
    pub fn take_read_bytes(&mut self) -> u64 {
        let taken =
            |source: &mut Source| std::mem::take(&mut source.read_bytes) + source.iter.take_io().bytes;
        self.sources.iter_mut().map(taken).sum()
    }
}
