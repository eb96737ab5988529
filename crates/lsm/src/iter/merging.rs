//! Merges several sorted sources into one, forward and backward.
//!
//! In:  sources in internal-key order, each positioned by this iterator alone.
//! Out: their entries in internal-key order. Two sources may hold the same internal key (copies): both are
//!      yielded while the direction stays, and at least one of them across a change of direction.
//!
//! Invariants
//! - M1 Forward, every source but the current one stands at its first entry behind the current one, or is exhausted;
//!   backward, at its last entry before it. A change of direction restores this with one seek for each source.
//! - M2 `heap` holds the valid sources without the current one, so a move whose source still wins costs one
//!   comparison.
//! - M3 The first error is kept: the iterator is invalid for good and every move repeats it.
//!
//! Tests: `tests.rs`.

use std::cmp::Ordering;

use kelvin_base::key::compare_internal;
use kelvin_base::{Error, InternalIterator, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// The sorted merge of sources.
#[derive(Debug)]
pub struct MergingIter<S> {
    sources: Vec<S>,
    /// The source under the cursor.
    current: Option<usize>,
    /// The other valid sources, the next to win first.
    heap: Vec<usize>,
    direction: Direction,
    /// The current key while sources are turned round.
    turn_key: Vec<u8>,
    error: Option<Error>,
}

impl<S: InternalIterator> MergingIter<S> {
    /// A merge of `sources`, not positioned.
    #[must_use]
    pub fn new(sources: Vec<S>) -> Self {
        let heap = Vec::with_capacity(sources.len());
        Self {
            sources,
            current: None,
            heap,
            direction: Direction::Forward,
            turn_key: Vec::new(),
            error: None,
        }
    }

    /// The sources, to ask what they have read. Moving one breaks M1.
    pub fn sources(&mut self) -> impl Iterator<Item = &mut S> {
        self.sources.iter_mut()
    }

    /// Which source holds the entry under the cursor, if the iterator is valid.
    #[must_use]
    pub const fn current_source(&self) -> Option<usize> {
        self.current
    }

    /// The sources, whose places only this iterator may change.
    #[cfg(test)]
    pub(super) fn sources_mut(&mut self) -> &mut [S] {
        &mut self.sources
    }

    /// True if source `a` is yielded before source `b`. Ties go to the earlier source, whichever the direction.
    fn wins(&self, a: usize, b: usize) -> bool {
        let order = compare_internal(self.sources[a].key(), self.sources[b].key());
        let order = if self.direction == Direction::Forward { order } else { order.reverse() };
        order.then(a.cmp(&b)) == Ordering::Less
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let mut child = 2 * at + 1;
            if child >= self.heap.len() {
                return;
            }
            if child + 1 < self.heap.len() && self.wins(self.heap[child + 1], self.heap[child]) {
                child += 1;
            }
            if !self.wins(self.heap[child], self.heap[at]) {
                return;
            }
            self.heap.swap(child, at);
            at = child;
        }
    }

    fn pop(&mut self) -> Option<usize> {
        if self.heap.is_empty() {
            return None;
        }
        let top = self.heap.swap_remove(0);
        self.sift_down(0);
        Some(top)
    }

    /// Fills the heap with the valid sources but `without`.
    fn heapify(&mut self, without: Option<usize>) {
        self.heap.clear();
        let valid = (0..self.sources.len()).filter(|&at| Some(at) != without && self.sources[at].valid());
        self.heap.extend(valid);
        for at in (0..self.heap.len() / 2).rev() {
            self.sift_down(at);
        }
    }

    /// Keeps the error of `outcome`, if it is one.
    fn keep<T>(&mut self, outcome: Result<T>) -> Result<T> {
        if let Err(error) = &outcome {
            self.error = Some(error.clone());
            self.current = None;
        }
        outcome
    }

    fn place(&mut self, direction: Direction, mut each: impl FnMut(&mut S) -> Result<()>) -> Result<()> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        self.direction = direction;
        let moved = self.sources.iter_mut().try_for_each(&mut each);
        self.keep(moved)?;
        self.heapify(None);
        self.current = self.pop();
        Ok(())
    }

    /// Puts every source but the current one on the other side of the current key.
    fn turn(&mut self, current: usize, direction: Direction) -> Result<()> {
        self.direction = direction;
        let mut key = std::mem::take(&mut self.turn_key);
        key.clear();
        key.extend_from_slice(self.sources[current].key());
        let others = self.sources.iter_mut().enumerate().filter(|(index, _)| *index != current);
        let turned = others.map(|(_, source)| source).try_for_each(|source| match direction {
            Direction::Forward => {
                source.seek(&key)?;
                // Behind the current key, not at it: a copy of it was yielded already or is the same entry.
                if source.valid() && source.key() == key { source.next() } else { Ok(()) }
            }
            Direction::Backward => source.seek_before(&key),
        });
        self.turn_key = key;
        turned?;
        self.heapify(Some(current));
        Ok(())
    }

    fn advance(&mut self, direction: Direction) -> Result<()> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let Some(current) = self.current else { return Ok(()) };
        if self.direction != direction {
            let turned = self.turn(current, direction);
            self.keep(turned)?;
        }
        let source = &mut self.sources[current];
        let moved = if direction == Direction::Forward { source.next() } else { source.prev() };
        self.keep(moved)?;
        if !self.sources[current].valid() {
            self.current = self.pop();
        } else if let Some(&best) = self.heap.first()
            && self.wins(best, current)
        {
            self.heap[0] = current;
            self.current = Some(best);
            self.sift_down(0);
        }
        Ok(())
    }
}

impl<S: InternalIterator> InternalIterator for MergingIter<S> {
    fn seek_to_first(&mut self) -> Result<()> {
        self.place(Direction::Forward, S::seek_to_first)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.place(Direction::Backward, S::seek_to_last)
    }

    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.place(Direction::Forward, |source| source.seek(target))
    }

    fn seek_before(&mut self, target: &[u8]) -> Result<()> {
        self.place(Direction::Backward, |source| source.seek_before(target))
    }

    fn next(&mut self) -> Result<()> {
        self.advance(Direction::Forward)
    }

    fn prev(&mut self) -> Result<()> {
        self.advance(Direction::Backward)
    }

    fn valid(&self) -> bool {
        self.current.is_some()
    }

    fn key(&self) -> &[u8] {
        self.current.map_or(&[], |current| self.sources[current].key())
    }

    fn value(&self) -> &[u8] {
        self.current.map_or(&[], |current| self.sources[current].value())
    }
}
