//! What the engine asks of whoever tracks which keys are hot: the four operations of HotRAP's RALT (paper §3.2).
//!
//! A tracker is advisory: no answer of it may change what a store returns, only how fast. So nothing here fails. A tracker
//! that cannot read what it knows says that nothing is hot. Implementors: RALT, an exact oracle in memory, and none.

use std::fmt::Debug;
use std::ops::Bound;

/// A range of user keys, from `start` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange<'a> {
    /// The first key.
    pub start: &'a [u8],
    /// Where it ends.
    pub end: Bound<&'a [u8]>,
}

impl<'a> KeyRange<'a> {
    /// Every key there can be.
    pub const ALL: KeyRange<'static> = KeyRange { start: &[], end: Bound::Unbounded };

    /// From `start` to `last`, which belongs to it.
    #[must_use]
    pub const fn closed(start: &'a [u8], last: &'a [u8]) -> Self {
        Self { start, end: Bound::Included(last) }
    }

    /// From `lower` to before `upper`; `None` is unbounded.
    #[must_use]
    pub fn half_open(lower: Option<&'a [u8]>, upper: Option<&'a [u8]>) -> Self {
        Self { start: lower.unwrap_or_default(), end: upper.map_or(Bound::Unbounded, Bound::Excluded) }
    }

    /// True if `key` lies behind it.
    #[must_use]
    pub fn ends_before(&self, key: &[u8]) -> bool {
        match self.end {
            Bound::Included(last) => key > last,
            Bound::Excluded(end) => key >= end,
            Bound::Unbounded => false,
        }
    }

    /// True if `key` lies in it.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= self.start && !self.ends_before(key)
    }
}

/// Hot keys of a range, in order.
pub trait HotKeys: Send {
    /// The next one; `None` behind the last.
    fn next(&mut self) -> Option<&[u8]>;
}

/// What a tracker knows of one key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Heat {
    /// How hot it is, by the tracker's own measure; `None` if no access of it is known.
    pub score: Option<f64>,
    /// The score from which on a key is hot.
    pub hot_score: f64,
    /// It was accessed again while it was tracked, not too long ago (HotRAP section 3.7): it outlasts keys that were not.
    pub is_stable: bool,
}

/// Tracks which keys are hot.
pub trait HotTracker: Send + Sync + Debug {
    /// A record with a value of `value_len` bytes was read. Never waits; an access may be lost.
    fn access(&self, key: &[u8], value_len: usize);
    /// True if `key` is hot, and rarely if it is not.
    fn is_hot(&self, key: &[u8]) -> bool;
    /// Bytes of the hot records (keys and values) in `range`, rather too many than too few.
    fn hot_size(&self, range: KeyRange<'_>) -> u64;
    /// The hot keys of `range`, as they are now.
    fn hot_keys(&self, range: KeyRange<'_>) -> Box<dyn HotKeys + '_>;
    /// Why `key` is hot or not, for people; may read. `None` if the tracker cannot say.
    fn heat(&self, key: &[u8]) -> Option<Heat> {
        let _cannot_say = key;
        None
    }
    /// Nobody will ask for the keys of `range` again: what is known of them may go. A tracker may also leave that to time, as
    /// keys that are not accessed cool down.
    fn forget(&self, range: KeyRange<'_>) {
        let _cools_down = range;
    }
    /// Makes all accesses noted so far count in the answers that follow. May take a while and read and write files.
    fn catch_up(&self);
    /// A number that changes when keys may have ceased to be hot: as long as it stays the same, what was hot still is.
    fn turn(&self) -> u64;
}

/// Tracks nothing: no key is hot.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTracker;

impl HotKeys for NoTracker {
    fn next(&mut self) -> Option<&[u8]> {
        None
    }
}

impl HotTracker for NoTracker {
    fn access(&self, key: &[u8], value_len: usize) {
        let _nobody_asks = (key, value_len);
    }

    fn is_hot(&self, key: &[u8]) -> bool {
        let _whichever = key;
        false
    }

    fn hot_size(&self, range: KeyRange<'_>) -> u64 {
        let _whichever = range;
        0
    }

    fn hot_keys(&self, range: KeyRange<'_>) -> Box<dyn HotKeys + '_> {
        let _whichever = range;
        Box::new(Self)
    }

    fn catch_up(&self) {}

    fn turn(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_tracker_nothing_is_hot() {
        NoTracker.access(b"k", 1);
        assert!(!NoTracker.is_hot(b"k") && NoTracker.hot_keys(KeyRange::ALL).next().is_none());
        assert_eq!(NoTracker.hot_size(KeyRange::ALL), 0);
    }

    #[test]
    fn a_range_knows_what_it_holds() {
        let closed = KeyRange::closed(b"b", b"d");
        assert_eq!([b"a", b"b", b"d", b"e"].map(|key| closed.contains(key)), [false, true, true, false]);
        let open = KeyRange { start: b"b", end: Bound::Excluded(b"d") };
        assert_eq!([b"a", b"b", b"c", b"d"].map(|key| open.contains(key)), [false, true, true, false]);
        assert!(KeyRange::ALL.contains(b"") && KeyRange::ALL.contains(&[0xff; 9]));
        assert!(open.ends_before(b"d") && !open.ends_before(b"a"));
    }
}
