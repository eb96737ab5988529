//! The range tombstones of a memtable: those that came lately as written, the others as sets of fragments.
//!
//! Whoever asks has the late ones made into a set, which takes in the sets before it that are not much larger. So writes
//! and reads that take turns cost each tombstone a logarithmic number of merges, and a reader a logarithmic number of
//! sets, where one set of them all would be made anew for each read.
//!
//! Invariants
//! - A tombstone whose `insert` returned is found by every later question; without any it costs one atomic load.
//! - Each set but the last has at least [`RATIO`] times the tombstones of the next.
//!
//! Tests: below and `tests.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arc_swap::ArcSwapOption;
use kelvin_base::sync::Mutex;
use kelvin_base::{RangeTombstone, Sequence};
use kelvin_table::Fragments;

/// A set takes in the one before unless that is so many times larger.
const RATIO: usize = 4;

type Sets = Vec<Arc<Fragments>>;

/// The range tombstones of a memtable.
#[derive(Default)]
pub(super) struct Tombstones {
    /// How many there are; raised after `late` holds them and `known` forgot its older answer.
    count: AtomicU64,
    bytes: AtomicUsize,
    set_bytes: AtomicUsize,
    written: Mutex<Written>,
    /// The sets, if nothing is late. Only changed under the lock above.
    known: ArcSwapOption<Sets>,
}

#[derive(Default)]
struct Written {
    /// Those in no set yet.
    late: Vec<RangeTombstone>,
    sets: Sets,
    set_bytes: usize,
}

impl Written {
    /// Makes a set of the late ones.
    fn settle(&mut self) {
        let mut newest = Fragments::build(std::mem::take(&mut self.late));
        while let Some(before) = self.sets.pop_if(|before| before.len() < RATIO * newest.len()) {
            self.set_bytes -= before.memory_bytes();
            newest = Fragments::merge([&*before, &newest]);
        }
        if !newest.is_empty() {
            self.set_bytes += newest.memory_bytes();
            self.sets.push(Arc::new(newest));
        }
    }
}

impl Tombstones {
    /// Adds one.
    pub(super) fn insert(&self, tombstone: RangeTombstone) {
        let bytes = tombstone.start.len() + tombstone.end.len() + size_of::<RangeTombstone>();
        let mut written = self.written.lock();
        written.late.push(tombstone);
        self.known.store(None);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        // Release, last: whoever sees the count finds the tombstone.
        self.count.fetch_add(1, Ordering::Release);
    }

    /// How many were added.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Memory of what was added, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Memory of the sets, bytes.
    pub(super) fn set_bytes(&self) -> usize {
        self.set_bytes.load(Ordering::Relaxed)
    }

    /// Sets that together are all of them.
    pub(super) fn sets(&self) -> Option<Arc<Sets>> {
        if self.count() == 0 {
            return None;
        }
        self.known.load_full().or_else(|| Some(self.settled()))
    }

    /// The newest one at or before `at` that covers `user_key`; 0 if none does.
    pub(super) fn max_covering(&self, user_key: &[u8], at: Sequence) -> Sequence {
        if self.count() == 0 {
            return 0;
        }
        let newest = |sets: &Sets| sets.iter().map(|set| set.max_covering(user_key, at)).max().unwrap_or(0);
        match &*self.known.load() {
            Some(sets) => newest(sets),
            None => newest(&self.settled()),
        }
    }

    fn settled(&self) -> Arc<Sets> {
        let mut written = self.written.lock();
        if let Some(sets) = self.known.load_full() {
            return sets;
        }
        written.settle();
        self.set_bytes.store(written.set_bytes, Ordering::Relaxed);
        let sets = Arc::new(written.sets.clone());
        self.known.store(Some(Arc::clone(&sets)));
        sets
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// Ranges that overlap their neighbours, in an order of their own.
    fn stone(number: u64, count: u64) -> RangeTombstone {
        let at = number * 7919 % count;
        let key = |number: u64| Bytes::copy_from_slice(&number.to_be_bytes());
        RangeTombstone { start: key(at), end: key(at + 10), sequence: number + 1 }
    }

    #[test]
    fn a_question_after_each_tombstone_merges_each_a_few_times_and_meets_a_few_sets() {
        let count = if cfg!(miri) { 30 } else { 3000 };
        let tombstones = Tombstones::default();
        let (mut merged, mut before) = (0, Vec::new());
        for number in 0..count {
            tombstones.insert(stone(number, count));
            let sets = tombstones.sets().unwrap();
            assert!(sets.windows(2).all(|pair| pair[0].len() >= RATIO * pair[1].len()));
            assert!(sets.len() <= 6, "4 to the 6th is more than there are");
            assert_eq!(sets.iter().map(|set| set.len() as u64).sum::<u64>(), number + 1);
            let is_new = |set: &&Arc<Fragments>| !before.iter().any(|old| Arc::ptr_eq(old, set));
            merged += sets.iter().filter(is_new).map(|set| set.len()).sum::<usize>();
            assert_eq!(tombstones.set_bytes(), sets.iter().map(|set| set.memory_bytes()).sum::<usize>());
            before.clone_from(&sets);
        }
        // A set grows by a quarter at least each time, so that a tombstone is merged log(count) / log(1.25) times at most.
        assert!(merged <= usize::try_from(count).unwrap() * 37, "{merged}");
        for key in 0..count + 10 {
            let (at, key) = (key / 2 + count / 3, Bytes::copy_from_slice(&key.to_be_bytes()));
            let covers = |one: &RangeTombstone| one.sequence <= at && one.start <= key && key < one.end;
            let covering = (0..count).map(|number| stone(number, count)).filter(covers);
            let want = covering.map(|one| one.sequence).max().unwrap_or(0);
            assert_eq!(tombstones.max_covering(&key, at), want);
        }
    }

    #[test]
    fn what_is_asked_twice_is_answered_from_what_is_known() {
        let tombstones = Tombstones::default();
        assert!(tombstones.sets().is_none() && tombstones.max_covering(b"k", 9) == 0);
        tombstones.insert(stone(0, 10));
        let sets = tombstones.sets().unwrap();
        assert!(Arc::ptr_eq(&sets, &tombstones.sets().unwrap()));
        // An empty range is counted and covers nothing.
        let empty =
            RangeTombstone { start: Bytes::from_static(b"z"), end: Bytes::from_static(b"a"), sequence: 7 };
        tombstones.insert(empty);
        assert_eq!((tombstones.count(), tombstones.sets().unwrap().len()), (2, 1));
    }
}
