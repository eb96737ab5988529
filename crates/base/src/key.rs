//! Internal keys: user key, 56-bit sequence number, 8-bit kind; ascending by user key, newest first.
//!
//! In memory and on disk an internal key is the user key followed by the trailer `sequence << 8 | kind` as a
//! little-endian `u64`. The kind byte's low nibble is the kind; bit 4 says that the stored value begins with an
//! 8-byte little-endian expiry (Unix milliseconds). DESIGN section 4. Format: docs/formats/table.md.

use std::cmp::Ordering;

/// A sequence number: the position of a write in the commit order. 56 bits.
pub type Sequence = u64;

/// The largest sequence number.
pub const SEQUENCE_MAX: Sequence = (1 << 56) - 1;
/// The longest user key, bytes.
pub const KEY_BYTES_MAX: usize = 64 * 1024;
/// The longest value, bytes.
pub const VALUE_BYTES_MAX: usize = 512 * 1024 * 1024;
/// Bytes of the trailer behind the user key.
pub const TRAILER_BYTES: usize = 8;

/// What an entry says about its key. The numbers are on disk: do not change them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// The key is deleted.
    Deletion = 1,
    /// A range of keys is deleted (never inside a table's data blocks; see [`crate::RangeTombstone`]).
    RangeDeletion = 2,
    /// The key has this value.
    Value = 3,
    /// The key has this value and the original, with the same sequence number, lives lower in the tree.
    Copy = 4,
}

/// Kind byte bit: the value begins with its expiry.
pub const EXPIRES: u8 = 0x10;

impl Kind {
    /// The kind of a kind byte, `None` for bytes this version does not know.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte & !EXPIRES {
            1 if byte & EXPIRES == 0 => Some(Self::Deletion),
            2 if byte & EXPIRES == 0 => Some(Self::RangeDeletion),
            3 => Some(Self::Value),
            4 => Some(Self::Copy),
            _ => None,
        }
    }

    /// True for `Value` and `Copy`.
    #[must_use]
    pub const fn has_value(self) -> bool {
        matches!(self, Self::Value | Self::Copy)
    }
}

/// The trailer of `sequence` and a kind byte.
#[must_use]
pub const fn trailer(sequence: Sequence, kind_byte: u8) -> u64 {
    (sequence << 8) | kind_byte as u64
}

/// The trailer that sorts before every entry of a key that a reader at `sequence` may see.
#[must_use]
pub const fn seek_trailer(sequence: Sequence) -> u64 {
    trailer(sequence, 0xff)
}

/// The sequence number of a trailer.
#[must_use]
pub const fn trailer_sequence(trailer: u64) -> Sequence {
    trailer >> 8
}

/// The kind byte of a trailer.
#[must_use]
pub const fn trailer_kind_byte(trailer: u64) -> u8 {
    (trailer & 0xff) as u8
}

/// Appends the internal key of `user_key` and `trailer` to `out`.
pub fn append_internal(out: &mut Vec<u8>, user_key: &[u8], trailer: u64) {
    out.extend_from_slice(user_key);
    out.extend_from_slice(&trailer.to_le_bytes());
}

/// Splits an internal key into user key and trailer; `None` if it is shorter than a trailer.
#[must_use]
pub fn split_internal(internal: &[u8]) -> Option<(&[u8], u64)> {
    let (user_key, trailer) = internal.split_last_chunk::<TRAILER_BYTES>()?;
    Some((user_key, u64::from_le_bytes(*trailer)))
}

/// The user key of an internal key. Keys shorter than a trailer (corrupt) give the empty key.
#[must_use]
pub fn user_key(internal: &[u8]) -> &[u8] {
    split_internal(internal).map_or(&[], |(key, _)| key)
}

/// Order of internal keys: user key ascending, then trailer descending (newest first).
#[must_use]
pub fn compare_internal(a: &[u8], b: &[u8]) -> Ordering {
    match (split_internal(a), split_internal(b)) {
        (Some((a_key, a_trailer)), Some((b_key, b_trailer))) => {
            a_key.cmp(b_key).then(b_trailer.cmp(&a_trailer))
        }
        _ => a.cmp(b),
    }
}

/// Splits a stored value of an entry with `kind_byte` into expiry (Unix milliseconds) and user value.
/// `None` if the expiry is announced and missing (corrupt).
#[must_use]
pub fn split_expiry(kind_byte: u8, stored: &[u8]) -> Option<(Option<u64>, &[u8])> {
    if kind_byte & EXPIRES == 0 {
        return Some((None, stored));
    }
    let (expiry, value) = stored.split_first_chunk::<8>()?;
    Some((Some(u64::from_le_bytes(*expiry)), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn internal(key: &[u8], sequence: Sequence, kind: Kind) -> Vec<u8> {
        let mut out = Vec::new();
        append_internal(&mut out, key, trailer(sequence, kind as u8));
        out
    }

    #[test]
    fn newest_sorts_first_within_a_key_and_a_copy_before_its_original() {
        let newer = internal(b"k", 9, Kind::Deletion);
        let copy = internal(b"k", 8, Kind::Copy);
        let original = internal(b"k", 8, Kind::Value);
        let longer = internal(b"ka", 1, Kind::Value);
        let mut all = vec![&longer, &original, &copy, &newer];
        all.sort_by(|a, b| compare_internal(a, b));
        assert_eq!(all, vec![&newer, &copy, &original, &longer]);
    }

    #[test]
    fn a_seek_trailer_sorts_before_every_visible_entry() {
        let mut seek = Vec::new();
        append_internal(&mut seek, b"k", seek_trailer(8));
        assert_eq!(compare_internal(&seek, &internal(b"k", 8, Kind::Copy)), Ordering::Less);
        assert_eq!(compare_internal(&seek, &internal(b"k", 9, Kind::Copy)), Ordering::Greater);
    }

    #[test]
    fn unknown_kind_bytes_are_refused() {
        assert_eq!(Kind::from_byte(3 | EXPIRES), Some(Kind::Value));
        assert_eq!(Kind::from_byte(1 | EXPIRES), None);
        assert_eq!(Kind::from_byte(5), None);
        assert_eq!(Kind::from_byte(0xff), None);
    }
}
