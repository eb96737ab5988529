//! A data block: entries in internal-key order, user keys prefix-compressed between restart points.
//!
//! Entry: `shared varint, unshared varint, value_len varint, trailer u64, unshared key bytes, value`. Only user keys
//! share prefixes, so a search compares without rebuilding keys. Behind the entries: the restart offsets (`u32`
//! each) and their count (`u32`). A restart comes every `restart_interval` entries or every
//! [`RESTART_BYTES`], so that large values do not make the linear part of a search long.
//!
//! Decoding is bounded: any byte sequence gives entries or an error, never a panic. Tests: `tests` below.

use std::cmp::Ordering;
use std::sync::Arc;

use kelvin_base::coding::{get_varint, put_varint};
use kelvin_base::key::{TRAILER_BYTES, split_internal};
use kelvin_base::pages::PageBytes;

use crate::format::Compression;

/// Bytes of entries after which a restart point is set at the latest.
const RESTART_BYTES: usize = 1024;

/// Bytes that memory gives at once.
const CACHE_LINE_BYTES: usize = 64;

/// Length of the prefix that `a` and `b` have in common.
#[inline]
#[must_use]
pub fn common_len(a: &[u8], b: &[u8]) -> usize {
    let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
    let mut len = 0;
    for (one, other) in words {
        let differ = u64::from_le_bytes(*one) ^ u64::from_le_bytes(*other);
        if differ != 0 {
            return len + (differ.trailing_zeros() / 8) as usize;
        }
        len += 8;
    }
    len + a[len..].iter().zip(&b[len..]).take_while(|(one, other)| one == other).count()
}

/// Builds a block.
#[derive(Debug)]
pub struct BlockBuilder {
    out: Vec<u8>,
    restarts: Vec<u32>,
    interval: usize,
    since_restart: usize,
    restart_at: usize,
    entries: usize,
}

impl BlockBuilder {
    /// A builder with a restart at least every `interval` entries.
    #[must_use]
    pub fn new(interval: usize) -> Self {
        Self {
            out: Vec::new(),
            restarts: Vec::new(),
            interval: interval.max(1),
            since_restart: 0,
            restart_at: 0,
            entries: 0,
        }
    }

    /// Adds an entry behind the last one, with whose user key its own has the first `alike` bytes in common.
    pub fn add(&mut self, user_key: &[u8], alike: usize, trailer: u64, value: &[u8]) {
        let full = self.since_restart >= self.interval || self.out.len() - self.restart_at >= RESTART_BYTES;
        let shared = if self.entries == 0 || full {
            self.restarts.push(u32::try_from(self.out.len()).unwrap_or(u32::MAX));
            self.restart_at = self.out.len();
            self.since_restart = 0;
            0
        } else {
            alike
        };
        put_varint(&mut self.out, shared as u64);
        put_varint(&mut self.out, (user_key.len() - shared) as u64);
        put_varint(&mut self.out, value.len() as u64);
        self.out.extend_from_slice(&trailer.to_le_bytes());
        self.out.extend_from_slice(&user_key[shared..]);
        self.out.extend_from_slice(value);
        self.since_restart += 1;
        self.entries += 1;
    }

    /// Bytes of the block if it were finished now.
    #[must_use]
    pub const fn size_bytes(&self) -> usize {
        self.out.len() + (self.restarts.len() + 1) * 4
    }

    /// Entries added.
    #[must_use]
    pub const fn entries(&self) -> usize {
        self.entries
    }

    /// Ends the block: its bytes, which the writer may take. [`Self::reuse`] before the next.
    pub fn finish(&mut self) -> &mut Vec<u8> {
        for restart in &self.restarts {
            self.out.extend_from_slice(&restart.to_le_bytes());
        }
        let count = u32::try_from(self.restarts.len()).unwrap_or(u32::MAX);
        self.out.extend_from_slice(&count.to_le_bytes());
        &mut self.out
    }

    /// Begins a block in the memory of an old one.
    pub fn reuse(&mut self, mut memory: Vec<u8>) {
        memory.clear();
        self.out = memory;
        self.restarts.clear();
        self.entries = 0;
        self.since_restart = 0;
        self.restart_at = 0;
    }
}

/// A block's entries where they lie.
#[derive(Clone, Copy, Debug)]
pub struct BlockRef<'a> {
    entries: &'a [u8],
    restarts: &'a [u8],
}

/// One entry: where the next begins, and its parts.
#[derive(Clone, Copy, Debug)]
pub struct RawEntry<'a> {
    /// Length of the prefix shared with the user key before.
    pub shared: usize,
    /// The rest of the user key.
    pub unshared: &'a [u8],
    /// Sequence number and kind.
    pub trailer: u64,
    /// Offset of the value in the block, bytes.
    pub value_at: usize,
    /// Stored value.
    pub value: &'a [u8],
    /// Offset of the next entry.
    pub next: usize,
}

/// What is wrong with a block.
pub type Malformed = &'static str;

impl<'a> BlockRef<'a> {
    /// The block in `bytes`.
    ///
    /// # Errors
    /// If its restart array does not fit.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (rest, count) =
            bytes.split_last_chunk::<4>().ok_or("the block is shorter than its restart count")?;
        let count = u32::from_le_bytes(*count) as usize;
        let array = count.checked_mul(4).filter(|array| *array <= rest.len());
        let array = array.ok_or("the block's restart count is larger than the block")?;
        if count == 0 && !rest.is_empty() {
            return Err("the block has entries and no restart point");
        }
        let (entries, restarts) = rest.split_at(rest.len() - array);
        Ok(Self { entries, restarts })
    }

    fn restarts_count(&self) -> usize {
        self.restarts.len() / 4
    }

    fn restart(&self, index: usize) -> usize {
        let at = index * 4;
        let bytes = self.restarts.get(at..at + 4).and_then(|four| four.first_chunk::<4>());
        bytes.map_or(usize::MAX, |four| u32::from_le_bytes(*four) as usize)
    }

    /// Offset behind the last entry.
    #[must_use]
    pub const fn end(&self) -> usize {
        self.entries.len()
    }

    /// The entry at `offset`.
    ///
    /// # Errors
    /// If it does not fit.
    #[inline]
    pub fn entry(&self, offset: usize) -> Result<RawEntry<'a>, Malformed> {
        const CUT: Malformed = "an entry is cut off";
        let mut input = self.entries.get(offset..).ok_or(CUT)?;
        let (shared, unshared_len, value_len) = match input {
            // Three one-byte varints: the usual case of short keys and values, decoded without loops.
            [a, b, c, rest @ ..] if (a | b | c) & 0x80 == 0 => {
                input = rest;
                (usize::from(*a), usize::from(*b), usize::from(*c))
            }
            _ => {
                let mut length = || get_varint(&mut input).and_then(|v| usize::try_from(v).ok()).ok_or(CUT);
                (length()?, length()?, length()?)
            }
        };
        let (trailer, rest) = input.split_first_chunk::<TRAILER_BYTES>().ok_or(CUT)?;
        let (unshared, rest) = rest.split_at_checked(unshared_len).ok_or(CUT)?;
        let (value, rest) = rest.split_at_checked(value_len).ok_or(CUT)?;
        let next = self.entries.len() - rest.len();
        Ok(RawEntry {
            shared,
            unshared,
            trailer: u64::from_le_bytes(*trailer),
            value_at: next - value_len,
            value,
            next,
        })
    }

    /// The last restart point whose entry sorts before the target (the first if none does).
    fn restart_before(&self, user_key: &[u8], trailer: u64) -> Result<usize, Malformed> {
        let (mut low, mut high) = (0, self.restarts_count());
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            let entry = self.entry(self.restart(middle))?;
            if entry.shared != 0 {
                return Err("a restart point shares a prefix");
            }
            match entry.unshared.cmp(user_key).then(trailer.cmp(&entry.trailer)) {
                Ordering::Less => low = middle,
                Ordering::Greater | Ordering::Equal => high = middle,
            }
        }
        self.walk_from(low)
    }

    /// Where the walk from restart point `index` begins.
    fn walk_from(&self, index: usize) -> Result<usize, Malformed> {
        if self.restarts_count() == 0 {
            return Ok(self.end());
        }
        let offset = self.restart(index);
        if offset < self.end() { Ok(offset) } else { Err("a restart point lies outside the entries") }
    }

    /// Reads a byte of each cache line from `offset` to about the next restart point. The walk to come goes from entry to
    /// entry, each a miss that waits for the one before; these loads wait for nothing and bring the lines in together.
    #[inline]
    fn touch(&self, offset: usize) {
        let end = self.entries.len().min(offset + RESTART_BYTES);
        let lines = self.entries.get(offset..end).unwrap_or(&[]).iter().step_by(CACHE_LINE_BYTES);
        std::hint::black_box(lines.fold(0, |all, byte| all | byte));
    }

    /// The newest entry of `user_key` whose trailer is at most `trailer`.
    ///
    /// # Errors
    /// If the block is malformed.
    pub fn get(&self, user_key: &[u8], trailer: u64) -> Result<Option<RawEntry<'a>>, Malformed> {
        let mut offset = self.restart_before(user_key, trailer)?;
        self.touch(offset);
        // Bytes that the last key, which sorts before the target, has in common with the target.
        let mut matched = 0;
        while offset < self.end() {
            let entry = self.entry(offset)?;
            offset = entry.next;
            if entry.shared == 0 {
                // A restart point: it may well agree with the last key.
                matched = 0;
            }
            let order = if entry.shared > matched {
                // It agrees with the last key where that one differs from the target.
                Ordering::Less
            } else if entry.shared < matched {
                Ordering::Greater
            } else {
                let rest = &user_key[matched..];
                let common = common_len(entry.unshared, rest);
                let order = entry.unshared[common..].cmp(&rest[common..]);
                matched += common;
                order
            };
            match order {
                Ordering::Less => {}
                Ordering::Greater => return Ok(None),
                Ordering::Equal if entry.trailer <= trailer => return Ok(Some(entry)),
                Ordering::Equal => {}
            }
        }
        Ok(None)
    }

    /// The restart point at or before `offset`.
    ///
    /// # Errors
    /// If the block is malformed.
    pub fn restart_at_or_before(&self, offset: usize) -> Result<usize, Malformed> {
        let (mut low, mut high) = (0, self.restarts_count());
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if self.restart(middle) <= offset { low = middle } else { high = middle }
        }
        let start = self.walk_from(low)?;
        if start <= offset { Ok(start) } else { Err("no restart point stands before an entry") }
    }

    /// A restart point from which a forward walk meets the first entry at or behind `internal`.
    ///
    /// # Errors
    /// If the block is malformed.
    pub fn walk_start(&self, internal: &[u8]) -> Result<usize, Malformed> {
        let (user_key, trailer) = split_internal(internal).ok_or("a target is shorter than a trailer")?;
        self.restart_before(user_key, trailer)
    }
}

/// A decoded block in memory. Clones share it.
#[derive(Clone, Debug)]
pub struct Block {
    bytes: Arc<PageBytes>,
    /// Offset behind the last entry, which [`BlockRef::new`] has found to lie inside.
    end: usize,
}

impl Block {
    /// A block of `bytes`.
    ///
    /// # Errors
    /// If its restart array does not fit.
    pub fn new(bytes: &[u8]) -> Result<Self, Malformed> {
        let end = BlockRef::new(bytes)?.end();
        Ok(Self { bytes: Arc::new(PageBytes::copy_of(bytes)), end })
    }

    /// The block that `compression` packed into `payload`.
    ///
    /// # Errors
    /// If it cannot be unpacked or its restart array does not fit.
    pub fn unpack(compression: Compression, payload: &[u8]) -> Result<Self, Malformed> {
        if compression == Compression::None {
            return Self::new(payload);
        }
        let (len, packed) = compression.unpacked_len(payload)?;
        let mut bytes = PageBytes::new(len);
        compression.unpack(packed, bytes.as_mut_slice())?;
        let end = BlockRef::new(&bytes)?.end();
        Ok(Self { bytes: Arc::new(bytes), end })
    }

    /// Its entries.
    #[inline]
    #[must_use]
    pub fn entries(&self) -> BlockRef<'_> {
        let (entries, rest) = self.bytes.split_at(self.end);
        BlockRef { entries, restarts: &rest[..rest.len() - 4] }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Memory it takes, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        PageBytes::footprint(self.bytes.len()) + size_of::<PageBytes>() + 2 * size_of::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelvin_base::key::{append_internal, compare_internal, trailer};

    fn build(entries: &[(Vec<u8>, u64)], interval: usize) -> Vec<u8> {
        let mut builder = BlockBuilder::new(interval);
        let mut before: &[u8] = &[];
        for (index, (key, trailer)) in entries.iter().enumerate() {
            builder.add(key, common_len(before, key), *trailer, format!("value {index}").as_bytes());
            before = key;
        }
        std::mem::take(builder.finish())
    }

    fn sample() -> Vec<(Vec<u8>, u64)> {
        let mut entries = Vec::new();
        for number in 0..200u64 {
            let mut key = format!("key{:03}", number * 3).into_bytes();
            key.truncate(3 + usize::try_from(number % 4).unwrap());
            for sequence in [9, 5, 2] {
                if number % 3 != 0 || sequence == 5 {
                    entries.push((key.clone(), trailer(sequence, 3)));
                }
            }
        }
        let internal = |(key, trailer): &(Vec<u8>, u64)| {
            let mut out = Vec::new();
            append_internal(&mut out, key, *trailer);
            out
        };
        entries.sort_by(|a, b| compare_internal(&internal(a), &internal(b)));
        entries.dedup();
        entries
    }

    #[test]
    fn common_prefixes_are_counted_at_every_length() {
        for len in 0..30usize {
            let a = vec![b'a'; len];
            for at in 0..len {
                let mut b = a.clone();
                b[at] ^= 0x80;
                assert_eq!((common_len(&a, &b), common_len(&a, &a[..at])), (at, at));
            }
            assert_eq!(common_len(&a, &a), len);
        }
    }

    #[test]
    fn get_finds_what_a_linear_search_finds() {
        let entries = sample();
        for interval in [1, 2, 16] {
            let bytes = build(&entries, interval);
            let block = BlockRef::new(&bytes).unwrap();
            let mut targets: Vec<Vec<u8>> = entries.iter().map(|(key, _)| key.clone()).collect();
            targets.extend([
                b"".to_vec(),
                b"key0000".to_vec(),
                b"zzz".to_vec(),
                b"ke".to_vec(),
                b"key5".to_vec(),
            ]);
            for target in &targets {
                for at in [0, 1, 2, 4, 5, 8, 9, 10] {
                    let want = entries.iter().position(|(key, t)| key == target && *t <= trailer(at, 0xff));
                    let got = block.get(target, trailer(at, 0xff)).unwrap();
                    let want = want.map(|index| format!("value {index}").into_bytes());
                    assert_eq!(got.map(|entry| entry.value.to_vec()), want, "{target:?} at {at}");
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_entries_or_an_error() {
        let good = build(&sample(), 4);
        for index in 0..good.len() {
            for flip in [1u8, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[index] ^= flip;
                if let Ok(block) = BlockRef::new(&bad) {
                    let _any =
                        block.get(b"key123", trailer(9, 0xff)).map(|entry| entry.map(|e| e.value.len()));
                    let mut offset = 0;
                    while let Ok(entry) = block.entry(offset) {
                        offset = entry.next;
                    }
                }
            }
        }
        for cut in 0..good.len() {
            let _any =
                BlockRef::new(&good[..cut]).map(|block| block.get(b"key123", trailer(9, 0xff)).is_ok());
        }
    }
}
