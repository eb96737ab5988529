//! Which records what was lost may have overwritten or deleted.
//!
//! A lost piece of a place (the logs; a level of the tree) held entries of a range of keys, of sequence numbers below a bound that the manifest
//! says. A record is doubtful if its key lies in that range, its sequence number below that bound, and the piece not in a place
//! below its own: what lies below is never newer (DESIGN section 6, H2).
//!
//! Invariant: keys are asked about in ascending order, so that what ends before a key can be forgotten. Tests: below.

use bytes::Bytes;
use kelvin_base::{Sequence, seeded_bug};

/// The place of the logs, above every level.
pub(super) const LOGS: usize = 0;

/// The place of a level: lower ones come later in every read.
pub(super) const fn rank_of(level: usize) -> usize {
    level + 1
}

/// A lost piece.
#[derive(Clone, Debug)]
pub(super) struct Doubt {
    /// The first user key concerned.
    pub(super) from: Bytes,
    /// The last one; `None` for all behind the first.
    pub(super) to: Option<Bytes>,
    /// Its place.
    pub(super) rank: usize,
    /// What it held has lower sequence numbers, or this one in an entry of its own.
    pub(super) before: Sequence,
}

/// The lost pieces of a keyspace.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    /// Those that begin behind the keys asked about so far, the next one last, once `is_sorted`.
    ahead: Vec<Doubt>,
    is_sorted: bool,
    /// Those that may hold the next key.
    here: Vec<Doubt>,
}

impl Doubts {
    /// Notes a lost piece.
    pub(super) fn add(&mut self, doubt: Doubt) {
        self.ahead.push(doubt);
        self.is_sorted = false;
    }

    /// True if a lost piece may hold something newer of `key` than its version `sequence` at place `rank`.
    pub(super) fn is_doubtful(&mut self, key: &[u8], sequence: Sequence, rank: usize) -> bool {
        if !self.is_sorted {
            self.ahead.sort_by(|a, b| b.from.cmp(&a.from));
            self.is_sorted = true;
        }
        while let Some(next) = self.ahead.pop_if(|next| next.from.as_ref() <= key) {
            self.here.push(next);
        }
        self.here.retain(|one| one.to.as_ref().is_none_or(|to| key <= to.as_ref()));
        let is_doubtful = self.here.iter().any(|one| one.rank <= rank && sequence < one.before);
        is_doubtful && !seeded_bug!("salvage-ignores-doubt")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubt(from: &'static str, to: Option<&'static str>, rank: usize, before: Sequence) -> Doubt {
        Doubt { from: from.into(), to: to.map(Into::into), rank, before }
    }

    #[test]
    fn what_is_older_and_not_above_what_was_lost_is_doubtful() {
        let mut doubts = Doubts::default();
        doubts.add(doubt("m", Some("p"), 3, 50));
        doubts.add(doubt("d", Some("f"), 1, 50));
        let asked = [
            ("c", 1, 5, false),
            ("d", 49, 1, true),
            ("e", 49, 0, false),
            ("f", 50, 9, false),
            ("g", 1, 9, false),
            ("m", 1, 2, false),
            ("o", 1, 3, true),
            ("p", 1, 9, true),
            ("q", 1, 9, false),
        ];
        for (key, sequence, rank, expected) in asked {
            assert_eq!(doubts.is_doubtful(key.as_bytes(), sequence, rank), expected, "{key}");
        }
        doubts.add(doubt("", None, LOGS, 7));
        assert!(doubts.is_doubtful(b"r", 6, 9) && !doubts.is_doubtful(b"s", 7, 9));
    }
}
