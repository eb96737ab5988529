//! Facts about one table that the manifest keeps, so that planning and lookups need no file.
//!
//! Tests: round trips and refusals in `edit.rs`.

use bytes::Bytes;
use kelvin_base::coding::{get_bytes, get_varint, put_bytes, put_varint};
use kelvin_base::{KEY_BYTES_MAX, Sequence, Tier};

/// Facts about one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMeta {
    /// Number of its file; no number is used twice in a store.
    pub number: u64,
    /// Where its file lies.
    pub tier: Tier,
    /// Length of its file, bytes.
    pub size_bytes: u64,
    /// Bytes at its end that opening it reads; 0 if unknown. A hint: opening works with any value.
    pub tail_bytes: u64,
    /// Its smallest user key, starts of range tombstones included.
    pub smallest: Bytes,
    /// Its largest user key, or the end of a range tombstone if that is beyond.
    pub largest: Bytes,
    /// `largest` is the end of a range tombstone and not itself in the table.
    pub largest_exclusive: bool,
    /// Smallest sequence number in it.
    pub sequence_min: Sequence,
    /// Largest sequence number in it.
    pub sequence_max: Sequence,
    /// Point entries, deletions and copies included.
    pub entries: u64,
    /// Point entries that delete their key.
    pub deletions: u64,
    /// Range tombstones.
    pub range_tombstones: u64,
    /// Entries of kind `Copy`.
    pub copies: u64,
    /// Entries that expire.
    pub expiring: u64,
    /// When the first of them does, Unix milliseconds; 0 if none does.
    pub expiry_min_ms: u64,
    /// Bytes of user keys before compression.
    pub key_bytes: u64,
    /// Bytes of values before compression.
    pub value_bytes: u64,
}

impl TableMeta {
    /// True if `user_key` is in the table's range.
    #[must_use]
    pub fn contains(&self, user_key: &[u8]) -> bool {
        self.smallest.as_ref() <= user_key && self.reaches(user_key)
    }

    /// True if the table's range ends at `user_key` or behind it.
    #[must_use]
    pub fn reaches(&self, user_key: &[u8]) -> bool {
        if self.largest_exclusive {
            user_key < self.largest.as_ref()
        } else {
            user_key <= self.largest.as_ref()
        }
    }

    /// True if the table's range and that of `other` have a key in common.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.reaches(&other.smallest) && other.reaches(&self.smallest)
    }

    /// True if the table's range meets `[lower, upper)`; `None` is unbounded.
    #[must_use]
    pub fn meets(&self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> bool {
        lower.is_none_or(|lower| self.reaches(lower))
            && upper.is_none_or(|upper| self.smallest.as_ref() < upper)
    }

    /// True if a compaction to the bottom may find something to drop in it for good.
    #[must_use]
    pub const fn has_deletions(&self) -> bool {
        self.deletions > 0 || self.range_tombstones > 0
    }

    /// Appends the table's facts to `out`.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.number);
        let tier = match self.tier {
            Tier::Fast => 0,
            Tier::Slow => 1,
        };
        put_varint(out, tier | u64::from(self.largest_exclusive) << 1);
        put_bytes(out, &self.smallest);
        put_bytes(out, &self.largest);
        for figure in [
            self.size_bytes,
            self.tail_bytes,
            self.sequence_min,
            self.sequence_max,
            self.entries,
            self.deletions,
            self.range_tombstones,
            self.copies,
            self.expiring,
            self.expiry_min_ms,
            self.key_bytes,
            self.value_bytes,
        ] {
            put_varint(out, figure);
        }
    }

    /// Reads a table's facts; `None` if they are cut off or contradict themselves.
    pub(super) fn decode(input: &mut &[u8]) -> Option<Self> {
        let number = get_varint(input)?;
        let flags = get_varint(input)?;
        if flags > 3 {
            return None;
        }
        let smallest = get_key(input)?;
        let largest = get_key(input)?;
        let meta = Self {
            number,
            tier: if flags & 1 == 0 { Tier::Fast } else { Tier::Slow },
            largest_exclusive: flags & 2 != 0,
            smallest,
            largest,
            size_bytes: get_varint(input)?,
            tail_bytes: get_varint(input)?,
            sequence_min: get_varint(input)?,
            sequence_max: get_varint(input)?,
            entries: get_varint(input)?,
            deletions: get_varint(input)?,
            range_tombstones: get_varint(input)?,
            copies: get_varint(input)?,
            expiring: get_varint(input)?,
            expiry_min_ms: get_varint(input)?,
            key_bytes: get_varint(input)?,
            value_bytes: get_varint(input)?,
        };
        (meta.reaches(&meta.smallest) && meta.sequence_min <= meta.sequence_max).then_some(meta)
    }
}

fn get_key(input: &mut &[u8]) -> Option<Bytes> {
    let key = get_bytes(input)?;
    (key.len() <= KEY_BYTES_MAX).then(|| Bytes::copy_from_slice(key))
}
