//! A range tombstone: every older entry with a key in `[start, end)` is deleted.

use bytes::Bytes;

use crate::key::Sequence;

/// Deletes every entry of keys in `[start, end)` whose sequence number is below `sequence`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RangeTombstone {
    /// First user key covered.
    pub start: Bytes,
    /// First user key behind the range.
    pub end: Bytes,
    /// When it was written.
    pub sequence: Sequence,
}

impl RangeTombstone {
    /// True if it deletes an entry of `user_key` written at `sequence`.
    #[must_use]
    pub fn covers(&self, user_key: &[u8], sequence: Sequence) -> bool {
        self.start.as_ref() <= user_key && user_key < self.end.as_ref() && sequence < self.sequence
    }
}
