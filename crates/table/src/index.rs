//! The index: for each data block a separator at or behind its last entry, and its length.
//!
//! On disk: count, then for each block `shared varint, unshared varint, key bytes, trailer u64, len varint`. In memory: flat
//! arrays, searched by the eight bytes that follow the keys' common prefix, so that most steps of the binary
//! search compare two integers. Some 20 bytes a block: the indexes of all tables are to fit into a small memory.
//!
//! Separators are shortened between different user keys; where versions of one user key go on in the next block, the
//! separator is the exact last entry, so that a search at an older moment finds the right block.

use std::cmp::Ordering;

use kelvin_base::coding::{get_u64, get_varint, put_varint};

use crate::block::common_len;
use crate::format::{Handle, TRAILER_BYTES};

/// Collects the index while a table is written.
#[derive(Debug, Default)]
pub struct IndexBuilder {
    out: Vec<u8>,
    count: u64,
    last: Vec<u8>,
}

/// The shortest key at or behind `last` and before `next`, where `last < next`.
#[must_use]
pub fn separator(last: &[u8], next: &[u8]) -> Vec<u8> {
    let common = common_len(last, next);
    if let (Some(&low), Some(&high)) = (last.get(common), next.get(common))
        && low + 1 < high
    {
        let mut short = last[..=common].to_vec();
        short[common] = low + 1;
        return short;
    }
    last.to_vec()
}

impl IndexBuilder {
    /// Adds a block of `len` bytes (trailer not counted) whose entries are at or before the separator.
    pub fn add(&mut self, user_key: &[u8], trailer: u64, len: usize) {
        let shared = common_len(&self.last, user_key);
        put_varint(&mut self.out, shared as u64);
        put_varint(&mut self.out, (user_key.len() - shared) as u64);
        self.out.extend_from_slice(&user_key[shared..]);
        self.out.extend_from_slice(&trailer.to_le_bytes());
        put_varint(&mut self.out, len as u64);
        self.last.truncate(shared);
        self.last.extend_from_slice(&user_key[shared..]);
        self.count += 1;
    }

    /// Bytes so far.
    #[must_use]
    pub const fn size_bytes(&self) -> usize {
        self.out.len() + 10
    }

    /// The index's bytes.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.out.len() + 10);
        put_varint(&mut out, self.count);
        out.extend_from_slice(&self.out);
        out
    }
}

/// An index in memory.
#[derive(Debug, Default)]
pub struct Index {
    /// Separators' user keys, one behind the other, without the common prefix.
    keys: Vec<u8>,
    /// Ends of the keys in `keys`.
    ends: Vec<u32>,
    prefixes: Vec<u64>,
    /// Empty if all are 0, as they are unless versions of one user key go on in a next block.
    trailers: Vec<u64>,
    offsets: Offsets,
    common: Vec<u8>,
}

/// Offsets of the blocks, and of what follows the last.
#[derive(Debug)]
enum Offsets {
    /// In a table below 4 GiB.
    Short(Vec<u32>),
    Long(Vec<u64>),
}

impl Default for Offsets {
    fn default() -> Self {
        Self::Short(Vec::new())
    }
}

impl Offsets {
    fn with_capacity(count: usize) -> Self {
        Self::Short(Vec::with_capacity(count))
    }

    fn push(&mut self, offset: u64) {
        match (&mut *self, u32::try_from(offset)) {
            (Self::Short(short), Ok(offset)) => short.push(offset),
            (Self::Short(short), Err(_)) => {
                let long = short.iter().map(|&one| u64::from(one)).chain([offset]);
                *self = Self::Long(long.collect());
            }
            (Self::Long(long), _) => long.push(offset),
        }
    }

    fn get(&self, index: usize) -> Option<u64> {
        match self {
            Self::Short(short) => short.get(index).map(|&offset| u64::from(offset)),
            Self::Long(long) => long.get(index).copied(),
        }
    }

    const fn memory_bytes(&self) -> usize {
        match self {
            Self::Short(short) => short.capacity() * size_of::<u32>(),
            Self::Long(long) => long.capacity() * size_of::<u64>(),
        }
    }
}

/// The first eight bytes as a number that sorts like them.
fn prefix_of(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(eight) => u64::from_be_bytes(*eight),
        None => {
            let mut eight = [0; 8];
            eight[..bytes.len()].copy_from_slice(bytes);
            u64::from_be_bytes(eight)
        }
    }
}

/// Takes an entry off `input`: `key` becomes its separator's user key. Trailer and block length, or `None` if malformed.
fn take_entry(input: &mut &[u8], key: &mut Vec<u8>) -> Option<(u64, u64)> {
    let shared = usize::try_from(get_varint(input)?).ok()?;
    let unshared = usize::try_from(get_varint(input)?).ok()?;
    let (rest, tail) = input.split_at_checked(unshared)?;
    *input = tail;
    if shared > key.len() {
        return None;
    }
    key.truncate(shared);
    key.extend_from_slice(rest);
    Some((get_u64(input)?, get_varint(input)?))
}

/// What the first `count` keys of `input` have in common.
fn common_prefix(mut input: &[u8], count: usize) -> Option<Vec<u8>> {
    let (mut common, mut key) = (Vec::new(), Vec::new());
    for number in 0..count {
        take_entry(&mut input, &mut key)?;
        if number == 0 {
            common.clone_from(&key);
        }
        let len = common_len(&common, &key);
        common.truncate(len);
    }
    common.shrink_to_fit();
    Some(common)
}

impl Index {
    /// The index in `bytes`; blocks begin at offset 0. `None` if malformed.
    #[must_use]
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let input = &mut bytes;
        let count = usize::try_from(get_varint(input)?).ok()?;
        // An entry takes at least eleven bytes.
        if count > input.len() / 11 {
            return None;
        }
        let mut index = Self {
            common: common_prefix(input, count)?,
            keys: Vec::new(),
            ends: Vec::with_capacity(count),
            prefixes: Vec::with_capacity(count),
            trailers: Vec::new(),
            offsets: Offsets::with_capacity(count + 1),
        };
        index.offsets.push(0);
        let (mut key, mut offset) = (Vec::new(), 0u64);
        for number in 0..count {
            let (trailer, len) = take_entry(input, &mut key)?;
            let own = &key[index.common.len()..];
            // Short pieces may share long prefixes: what they unfold to is bounded too.
            index.ends.push(u32::try_from(index.keys.len() + own.len()).ok()?);
            index.keys.extend_from_slice(own);
            index.prefixes.push(prefix_of(own));
            if trailer != 0 && index.trailers.is_empty() {
                index.trailers = vec![0; count];
            }
            if let Some(slot) = index.trailers.get_mut(number) {
                *slot = trailer;
            }
            offset = offset.checked_add(len)?.checked_add(TRAILER_BYTES as u64)?;
            index.offsets.push(offset);
        }
        index.keys.shrink_to_fit();
        input.is_empty().then_some(index)
    }

    /// True if every separator sorts behind the one before it.
    #[must_use]
    pub fn is_sorted(&self) -> bool {
        (1..self.len()).all(|at| {
            let keys = self.own_key(at - 1).cmp(self.own_key(at));
            keys.then(self.separator_trailer(at).cmp(&self.separator_trailer(at - 1))) == Ordering::Less
        })
    }

    /// How many blocks there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.prefixes.len()
    }

    /// True if there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// Where block `index` lies.
    #[must_use]
    pub fn handle(&self, index: usize) -> Option<Handle> {
        let (start, end) = (self.offsets.get(index)?, self.offsets.get(index + 1)?);
        Some(Handle { offset: start, len: usize::try_from(end - start).ok()?.checked_sub(TRAILER_BYTES)? })
    }

    /// Offset behind the last block.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offsets.get(self.len()).unwrap_or(0)
    }

    fn own_key(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.keys[start..self.ends[index] as usize]
    }

    /// The separator's user key of block `index`, which must exist.
    #[must_use]
    pub fn separator_key(&self, index: usize) -> Vec<u8> {
        [self.common.as_slice(), self.own_key(index)].concat()
    }

    /// The separator's trailer of block `index`, which must exist.
    #[must_use]
    pub fn separator_trailer(&self, index: usize) -> u64 {
        self.trailers.get(index).copied().unwrap_or(0)
    }

    /// The first block that can hold entries at or behind the target; `len()` if none can.
    #[must_use]
    pub fn seek(&self, user_key: &[u8], trailer: u64) -> usize {
        let own = match user_key.strip_prefix(self.common.as_slice()) {
            Some(own) => own,
            None if user_key < self.common.as_slice() => return 0,
            None => return self.len(),
        };
        let prefix = prefix_of(own);
        let low = self.prefixes.partition_point(|&have| have < prefix);
        let same = self.prefixes[low..].partition_point(|&have| have == prefix);
        let (mut low, mut high) = (low, low + same);
        while low < high {
            let middle = low + (high - low) / 2;
            let order = self.own_key(middle).cmp(own).then(trailer.cmp(&self.separator_trailer(middle)));
            if order == Ordering::Less { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Memory it takes, bytes.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        self.keys.capacity()
            + self.ends.capacity() * 4
            + (self.prefixes.capacity() + self.trailers.capacity()) * 8
            + self.offsets.memory_bytes()
            + self.common.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_separator_lies_between_and_is_short() {
        assert_eq!(separator(b"abcdef", b"abxyz"), b"abd");
        assert_eq!(separator(b"abc", b"abd"), b"abc");
        assert_eq!(separator(b"abc", b"abcd"), b"abc");
        assert_eq!(separator(b"a\xff\xff", b"b"), b"a\xff\xff");
    }

    #[test]
    fn seek_finds_the_first_block_at_or_behind_the_target() {
        let keys: Vec<Vec<u8>> = (0..300u32).map(|n| format!("user{:06}", n * 2).into_bytes()).collect();
        let mut builder = IndexBuilder::default();
        for key in &keys {
            builder.add(key, 0, 100);
        }
        let index = Index::decode(&builder.finish()).unwrap();
        for n in 0..600u32 {
            let target = format!("user{n:06}").into_bytes();
            let want = keys.partition_point(|key| key < &target);
            assert_eq!(index.seek(&target, 5), want);
        }
        assert_eq!((index.seek(b"a", 5), index.seek(b"z", 5), index.seek(b"user", 5)), (0, 300, 0));
        assert_eq!(index.handle(2), Some(Handle { offset: 218, len: 100 }));
        assert_eq!(index.handle(300), None);
    }

    #[test]
    fn versions_of_one_key_over_several_blocks_are_told_apart_by_trailer() {
        let mut builder = IndexBuilder::default();
        for trailer in [900, 600, 300] {
            builder.add(b"k", trailer, 10);
        }
        let index = Index::decode(&builder.finish()).unwrap();
        assert_eq!([1000, 900, 899, 600, 301, 300, 299].map(|t| index.seek(b"k", t)), [0, 0, 1, 1, 2, 2, 3]);
    }

    #[test]
    fn the_memory_counted_is_the_memory_of_its_parts() {
        let mut builder = IndexBuilder::default();
        for n in 0..1000u32 {
            builder.add(format!("user{n:08}").as_bytes(), 0, 100);
        }
        let index = Index::decode(&builder.finish()).unwrap();
        // Common: "user00000"; its own: three bytes of key, their end, prefix and offset.
        assert_eq!(index.memory_bytes(), 9 + 1000 * (3 + 4 + 8 + 4) + 4);
        assert!(index.is_sorted());
    }

    #[test]
    fn offsets_beyond_4_gib_are_kept_whole() {
        let mut builder = IndexBuilder::default();
        for (number, len) in [1, 3 << 30, 2 << 30, 7].into_iter().enumerate() {
            builder.add(&[u8::try_from(number).unwrap()], 0, len);
        }
        let index = Index::decode(&builder.finish()).unwrap();
        let handles: Vec<_> = (0..4).map(|number| index.handle(number).unwrap()).collect();
        let trailer = TRAILER_BYTES as u64;
        let starts = [0, 1 + trailer, (3 << 30) + 1 + 2 * trailer, (5 << 30) + 1 + 3 * trailer];
        assert_eq!(handles.iter().map(|handle| handle.offset).collect::<Vec<_>>(), starts);
        assert_eq!(handles.iter().map(|handle| handle.len).collect::<Vec<_>>(), [1, 3 << 30, 2 << 30, 7]);
        assert_eq!(index.end(), (5 << 30) + 8 + 4 * trailer);
    }

    #[test]
    fn malformed_indexes_are_refused() {
        let mut builder = IndexBuilder::default();
        builder.add(b"abc", 1, 10);
        builder.add(b"abd", 1, 10);
        let good = builder.finish();
        for cut in 0..good.len() {
            assert!(Index::decode(&good[..cut]).is_none(), "cut at {cut}");
        }
        assert!(Index::decode(&[0xff, 0xff, 0xff, 0xff, 0x0f]).is_none());
    }
}
