//! An exact tracker in memory: what RALT would know without limits on its memory and without approximations.
//!
//! For tests and for upper bounds. It counts every access of every key; hot are the keys with the most of them, as many as fit
//! the size it is given. The order is made anew each time as many keys as are hot have been accessed. Tests stand below.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use kelvin_base::sync::Mutex;
use kelvin_base::{Heat, HotKeys, HotTracker, KeyRange};

#[derive(Debug, Default)]
struct Counts {
    /// Accesses, and bytes of key and value.
    keys: BTreeMap<Vec<u8>, (u64, u64)>,
    hot: BTreeSet<Vec<u8>>,
    /// Bytes of the hot ones, as they were when they were ranked.
    hot_bytes: u64,
    since: u64,
    ranked: u64,
}

/// The exact tracker.
#[derive(Debug)]
pub struct Oracle {
    hot_bytes_max: u64,
    counts: Mutex<Counts>,
}

impl Oracle {
    /// A tracker whose hot records may have `hot_bytes_max` together.
    #[must_use]
    pub fn new(hot_bytes_max: u64) -> Self {
        Self { hot_bytes_max, counts: Mutex::default() }
    }
}

impl Counts {
    fn rank(&mut self, hot_bytes_max: u64) {
        let mut order: Vec<(&Vec<u8>, u64, u64)> =
            self.keys.iter().map(|(key, &(count, bytes))| (key, count, bytes)).collect();
        order.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        let mut bytes = 0;
        let mut fits = |one: &&(&Vec<u8>, u64, u64)| {
            let is_within = bytes + one.2 <= hot_bytes_max;
            bytes += if is_within { one.2 } else { 0 };
            is_within
        };
        self.hot = order.iter().take_while(&mut fits).map(|one| one.0.clone()).collect();
        self.hot_bytes = bytes;
        self.since = 0;
        self.ranked += 1;
    }
}

impl HotTracker for Oracle {
    fn access(&self, key: &[u8], value_len: usize) {
        let mut counts = self.counts.lock();
        let bytes = (key.len() + value_len) as u64;
        if let Some(known) = counts.keys.get_mut(key) {
            *known = (known.0 + 1, bytes);
        } else {
            counts.keys.insert(key.to_vec(), (1, bytes));
        }
        counts.since += 1;
        if counts.since > counts.hot.len() as u64 {
            counts.rank(self.hot_bytes_max);
        }
    }

    fn is_hot(&self, key: &[u8]) -> bool {
        self.counts.lock().hot.contains(key)
    }

    fn hot_size(&self, range: KeyRange<'_>) -> u64 {
        let counts = self.counts.lock();
        // Asked ten times a second by whoever watches.
        if range == KeyRange::ALL {
            return counts.hot_bytes;
        }
        let hot = counts.hot.range::<[u8], _>((Bound::Included(range.start), Bound::Unbounded));
        hot.take_while(|key| !range.ends_before(key))
            .filter_map(|key| counts.keys.get(key))
            .map(|&(_, bytes)| bytes)
            .sum()
    }

    fn hot_keys(&self, range: KeyRange<'_>) -> Box<dyn HotKeys + '_> {
        let counts = self.counts.lock();
        let hot = counts.hot.range::<[u8], _>((Bound::Included(range.start), Bound::Unbounded));
        let keys: Vec<Vec<u8>> = hot.take_while(|key| !range.ends_before(key)).cloned().collect();
        Box::new(Listed { keys: keys.into_iter(), key: Vec::new() })
    }

    fn heat(&self, key: &[u8]) -> Option<Heat> {
        let counts = self.counts.lock();
        let accesses = |key: &[u8]| counts.keys.get(key).map(|&(accesses, _)| accesses as f64);
        let hot_score = counts.hot.iter().filter_map(|key| accesses(key)).fold(f64::INFINITY, f64::min);
        let score = accesses(key);
        Some(Heat { score, hot_score, is_stable: score.is_some_and(|accesses| accesses > 1.0) })
    }

    fn forget(&self, range: KeyRange<'_>) {
        let counts = &mut *self.counts.lock();
        counts.keys.retain(|key, _| !range.contains(key));
        counts.hot.retain(|key| !range.contains(key));
        let bytes = counts.hot.iter().filter_map(|key| counts.keys.get(key)).map(|&(_, bytes)| bytes);
        counts.hot_bytes = bytes.sum();
    }

    fn catch_up(&self) {
        self.counts.lock().rank(self.hot_bytes_max);
    }

    fn turn(&self) -> u64 {
        self.counts.lock().ranked
    }
}

/// Hot keys that were listed.
struct Listed {
    keys: std::vec::IntoIter<Vec<u8>>,
    key: Vec<u8>,
}

impl HotKeys for Listed {
    fn next(&mut self) -> Option<&[u8]> {
        self.key = self.keys.next()?;
        Some(&self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_accessed_most_are_hot_as_many_as_fit() {
        let oracle = Oracle::new(25);
        for (key, times) in [(b"a", 1), (b"b", 5), (b"c", 9), (b"d", 2)] {
            (0..times).for_each(|_| oracle.access(key, 9));
        }
        oracle.counts.lock().rank(25);
        assert_eq!([b"a", b"b", b"c", b"d"].map(|key| oracle.is_hot(key)), [false, true, true, false]);
        assert_eq!(oracle.hot_size(KeyRange::ALL), 20);
        assert_eq!(oracle.hot_size(KeyRange::closed(b"c", b"z")), 10);
        let mut keys = oracle.hot_keys(KeyRange { start: b"a", end: Bound::Excluded(b"c") });
        assert_eq!(keys.next(), Some(&b"b"[..]));
        assert_eq!(keys.next(), None);
        oracle.forget(KeyRange::closed(b"c", b"c"));
        assert_eq!((oracle.hot_size(KeyRange::ALL), oracle.is_hot(b"c")), (10, false));
    }
}
