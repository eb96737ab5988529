//! The bytes of a log: file header, fragments, names. The only place that knows them; docs/formats/wal.md.
//!
//! Invariant: nothing here believes a length before it is compared with the bytes at hand.
//! Tests: `tests/format.rs`.

use std::path::{Path, PathBuf};

use kelvin_base::coding::get_u64;
use kelvin_base::hash::{hash64_seeded, place_seed};

use crate::batch::BATCH_BYTES_MAX;

/// A block, bytes.
pub const BLOCK_BYTES: usize = 32 * 1024;
/// The file header, bytes: magic, version, log number, checksum.
pub const FILE_HEADER_BYTES: usize = 24;
/// In front of a fragment's payload, bytes: checksum, length, kind.
pub const FRAGMENT_HEADER_BYTES: usize = 11;
/// The largest record, bytes: sequence number and batch.
pub const RECORD_BYTES_MAX: usize = BATCH_BYTES_MAX + SEQUENCE_BYTES;
/// The sequence number in front of a record's batch, bytes.
pub const SEQUENCE_BYTES: usize = 8;
/// The version this code writes, and the newest it reads.
pub const VERSION: u8 = 1;

const MAGIC: &[u8; 7] = b"KELVWAL";
const CHECKSUM_BYTES: usize = 8;

/// What a fragment is. The numbers are on disk: do not change them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FragmentKind {
    /// A whole record.
    Full = 1,
    /// A record's beginning.
    First = 2,
    /// A record's further part.
    Middle = 3,
    /// A record's end.
    Last = 4,
    /// A sync mark: everything before the offset in its payload (`u64`), and every older log, was synced.
    Synced = 5,
    /// Nothing follows: the log was finished.
    End = 6,
    /// Zeros that fill a block whose rest is too short for a sync mark.
    Pad = 7,
}

impl FragmentKind {
    const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Full,
            2 => Self::First,
            3 => Self::Middle,
            4 => Self::Last,
            5 => Self::Synced,
            6 => Self::End,
            7 => Self::Pad,
            _ => return None,
        })
    }
}

/// What stands at a place of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// A fragment of this log.
    Fragment {
        /// What it is.
        kind: FragmentKind,
        /// Its bytes of the record.
        payload: &'a [u8],
        /// Where in the block it ends.
        end: usize,
    },
    /// Too few bytes of the block remain for a fragment: the next block goes on.
    BlockEnd,
    /// No fragment of this log.
    Bad,
}

/// Reads the fragment at `at` in `block`, which lies at `block_offset` in the log `number`. `block` is shorter than
/// [`BLOCK_BYTES`] only at the end of the file.
#[must_use]
pub fn parse(number: u64, block: &[u8], block_offset: u64, at: usize) -> Parsed<'_> {
    if at + FRAGMENT_HEADER_BYTES > BLOCK_BYTES {
        return Parsed::BlockEnd;
    }
    parse_fragment(number, block, block_offset, at).unwrap_or(Parsed::Bad)
}

fn parse_fragment(number: u64, block: &[u8], block_offset: u64, at: usize) -> Option<Parsed<'_>> {
    let (checksum, rest) = block.get(at..)?.split_first_chunk::<CHECKSUM_BYTES>()?;
    let (length, after) = rest.split_first_chunk::<2>()?;
    let (&kind, after) = after.split_first()?;
    let kind = FragmentKind::from_byte(kind)?;
    let payload = after.get(..usize::from(u16::from_le_bytes(*length)))?;
    let covered = rest.get(..FRAGMENT_HEADER_BYTES - CHECKSUM_BYTES + payload.len())?;
    let expected = hash64_seeded(place_seed(number, block_offset + at as u64), covered);
    let end = at + FRAGMENT_HEADER_BYTES + payload.len();
    (expected == u64::from_le_bytes(*checksum)).then_some(Parsed::Fragment { kind, payload, end })
}

/// Appends a fragment that will lie at `offset` in the log `number`. Its payload comes in two parts, together
/// shorter than a block.
pub fn put_fragment(out: &mut Vec<u8>, number: u64, offset: u64, kind: FragmentKind, payload: [&[u8]; 2]) {
    let payload_bytes = payload[0].len() + payload[1].len();
    debug_assert!(payload_bytes <= BLOCK_BYTES - FRAGMENT_HEADER_BYTES, "a fragment lies in one block");
    let start = out.len();
    let length = u16::try_from(payload_bytes).unwrap_or(u16::MAX);
    out.extend_from_slice(&[0; CHECKSUM_BYTES]);
    out.extend_from_slice(&length.to_le_bytes());
    out.push(kind as u8);
    out.extend_from_slice(payload[0]);
    out.extend_from_slice(payload[1]);
    let covered = &out[start + CHECKSUM_BYTES..];
    let checksum = hash64_seeded(place_seed(number, offset), covered);
    out[start..start + CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
}

/// The header of the log `number`.
#[must_use]
pub fn file_header(number: u64) -> [u8; FILE_HEADER_BYTES] {
    let mut header = [0; FILE_HEADER_BYTES];
    header[..7].copy_from_slice(MAGIC);
    header[7] = VERSION;
    header[8..16].copy_from_slice(&number.to_le_bytes());
    let checksum = hash64_seeded(place_seed(number, 0), &header[..16]);
    header[16..].copy_from_slice(&checksum.to_le_bytes());
    header
}

/// What a file begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// The header of the log asked for.
    Good,
    /// A header of a format this version cannot read.
    Newer(u8),
    /// No header of this log: a recycled file not yet written, or damage.
    Bad,
}

/// Reads the header of the log `number` from the file's first bytes.
#[must_use]
pub fn parse_header(number: u64, bytes: &[u8]) -> Header {
    let Some(header) = bytes.first_chunk::<FILE_HEADER_BYTES>() else { return Header::Bad };
    if !header.starts_with(MAGIC) {
        return Header::Bad;
    }
    // Before the checksum, whose rule a newer format may have changed.
    if header[7] > VERSION {
        return Header::Newer(header[7]);
    }
    if *header == file_header(number) { Header::Good } else { Header::Bad }
}

/// The offset in a sync mark's payload.
#[must_use]
pub fn synced_offset(mut payload: &[u8]) -> Option<u64> {
    get_u64(&mut payload).filter(|_| payload.is_empty())
}

/// The name of the log `number`.
#[must_use]
pub fn log_name(number: u64) -> String {
    format!("{number:06}.wal")
}

/// Where the log `number` lies.
#[must_use]
pub fn log_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(log_name(number))
}

/// The number of the log of this name; `None` for other files.
#[must_use]
pub fn parse_log_name(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    let number = name.strip_suffix(".wal")?.parse().ok()?;
    // One name per number: "1.wal" or "+00001.wal" is somebody else's file.
    (log_name(number) == name).then_some(number)
}
