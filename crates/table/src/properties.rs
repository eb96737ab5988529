//! What a table says about itself: counts, ranges, and a sample of its keys.
//!
//! On disk: pairs of a tag (varint) and length-prefixed bytes; unknown tags are passed over, so that later versions
//! may add facts that do not change how a table is read.

use bytes::Bytes;
use kelvin_base::Sequence;
use kelvin_base::coding::{get_bytes, get_varint, put_bytes, put_varint};
use kelvin_base::key::{Kind, split_expiry, trailer_kind_byte, trailer_sequence};

/// Facts about a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Point entries.
    pub entries: u64,
    /// Of these, deletions.
    pub deletions: u64,
    /// Of these, copies.
    pub copies: u64,
    /// Of these, that expire.
    pub expiring: u64,
    /// The earliest expiry, Unix milliseconds; 0 if none expires.
    pub expiry_min_ms: u64,
    /// The latest expiry, Unix milliseconds; 0 if none expires.
    pub expiry_max_ms: u64,
    /// Range tombstones.
    pub range_tombstones: u64,
    /// Oldest sequence number, tombstones counted.
    pub sequence_min: Sequence,
    /// Newest sequence number.
    pub sequence_max: Sequence,
    /// First user key, tombstones counted.
    pub smallest: Bytes,
    /// Last user key, tombstones counted.
    pub largest: Bytes,
    /// `largest` is a tombstone's end: the table says nothing of that key itself.
    pub largest_exclusive: bool,
    /// Bytes of user keys.
    pub key_bytes: u64,
    /// Bytes of stored values.
    pub value_bytes: u64,
    /// Data blocks.
    pub data_blocks: u64,
    /// What the table's owner keeps with it; empty for none.
    pub annotation: Bytes,
    /// Bytes of the file. Not on disk: known when it is finished.
    pub size_bytes: u64,
    /// Bytes behind the data blocks: one read of so many opens the table. Not on disk.
    pub tail_bytes: u64,
}

/// The numbers on disk by tag; do not change the tags.
macro_rules! numbers {
    ($apply:ident) => {
        $apply!(
            1 entries, 2 deletions, 3 copies, 4 expiring, 5 expiry_min_ms, 6 expiry_max_ms, 7 range_tombstones,
            8 sequence_min, 9 sequence_max, 10 key_bytes, 11 value_bytes, 12 data_blocks
        )
    };
}

const TAG_SMALLEST: u64 = 32;
const TAG_LARGEST: u64 = 33;
const TAG_LARGEST_EXCLUSIVE: u64 = 34;
const TAG_ANNOTATION: u64 = 35;

impl Properties {
    /// Counts an entry.
    ///
    /// # Errors
    /// If its kind is unknown or its expiry is missing.
    pub fn see(&mut self, user_key: &[u8], trailer: u64, stored: &[u8]) -> Result<(), &'static str> {
        let kind_byte = trailer_kind_byte(trailer);
        let kind = Kind::from_byte(kind_byte).filter(|kind| *kind != Kind::RangeDeletion);
        let kind = kind.ok_or("an entry is of a kind that data blocks do not hold")?;
        let (expiry, _) = split_expiry(kind_byte, stored).ok_or("an entry's expiry is missing")?;
        self.entries += 1;
        self.key_bytes += user_key.len() as u64;
        self.value_bytes += stored.len() as u64;
        self.deletions += u64::from(kind == Kind::Deletion);
        self.copies += u64::from(kind == Kind::Copy);
        if let Some(expiry) = expiry {
            self.expiry_min_ms = if self.expiring == 0 { expiry } else { self.expiry_min_ms.min(expiry) };
            self.expiry_max_ms = self.expiry_max_ms.max(expiry);
            self.expiring += 1;
        }
        self.saw(trailer_sequence(trailer));
        Ok(())
    }

    /// Widens the range of sequence numbers.
    pub fn saw(&mut self, sequence: Sequence) {
        self.sequence_min = self.sequence_min.min(sequence);
        self.sequence_max = self.sequence_max.max(sequence);
    }

    /// Memory behind its pointers, bytes.
    pub(crate) const fn heap_bytes(&self) -> usize {
        self.smallest.len() + self.largest.len() + self.annotation.len()
    }

    /// Their bytes on disk.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |tag: u64, value: u64| {
            let mut number = Vec::with_capacity(10);
            put_varint(&mut number, value);
            put_varint(&mut out, tag);
            put_bytes(&mut out, &number);
        };
        macro_rules! put_all {
            ($($tag:literal $field:ident),*) => { $(put($tag, self.$field);)* };
        }
        numbers!(put_all);
        put(TAG_LARGEST_EXCLUSIVE, u64::from(self.largest_exclusive));
        put_varint(&mut out, TAG_SMALLEST);
        put_bytes(&mut out, &self.smallest);
        put_varint(&mut out, TAG_LARGEST);
        put_bytes(&mut out, &self.largest);
        if !self.annotation.is_empty() {
            put_varint(&mut out, TAG_ANNOTATION);
            put_bytes(&mut out, &self.annotation);
        }
        out
    }

    /// The properties in `bytes`; `None` if malformed.
    #[must_use]
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut found = Self::default();
        while !bytes.is_empty() {
            let tag = get_varint(&mut bytes)?;
            let mut value = get_bytes(&mut bytes)?;
            match tag {
                TAG_SMALLEST => found.smallest = Bytes::copy_from_slice(value),
                TAG_ANNOTATION => found.annotation = Bytes::copy_from_slice(value),
                TAG_LARGEST => found.largest = Bytes::copy_from_slice(value),
                TAG_LARGEST_EXCLUSIVE => found.largest_exclusive = get_varint(&mut value)? != 0,
                _ => {
                    macro_rules! take_all {
                        ($($tag:literal $field:ident),*) => {
                            match tag { $($tag => found.$field = get_varint(&mut value)?,)* _ => {} }
                        };
                    }
                    numbers!(take_all);
                }
            }
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_round_trip_and_unknown_tags_are_passed_over() {
        let properties = Properties {
            entries: 300,
            expiry_max_ms: u64::MAX,
            smallest: Bytes::from_static(b""),
            largest: Bytes::from_static(b"zz"),
            largest_exclusive: true,
            sequence_max: 77,
            annotation: Bytes::from_static(b"the owner's"),
            ..Properties::default()
        };
        let mut bytes = properties.encode();
        put_varint(&mut bytes, 1000);
        put_bytes(&mut bytes, b"from the future");
        assert_eq!(Properties::decode(&bytes), Some(properties));
        assert_eq!(Properties::decode(&bytes[..bytes.len() - 1]), None);
    }
}
