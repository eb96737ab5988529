//! Entry points for fuzzing: any bytes give a table's parts or an error, never a panic and never unbounded memory.
//!
//! [`parts`] decodes bytes as each kind of block, [`file`] opens them as a whole table, and [`signed`] lays them out as a
//! table whose checksums are good, so that what lies behind the checksums is reached too. [`BytesFile`] and [`BytesSink`]
//! are the files in memory that fuzzing, tests and benchmarks use. Tests: `tests/table/damage.rs`.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use kelvin_base::coding::{get_bytes, get_u64};
use kelvin_base::key::{append_internal, split_internal};
use kelvin_base::{ErrorKind, InternalIterator, Result, hash64};
use kelvin_storage::{AlignedBuf, ReadFile, WriteFile};
use parking_lot::Mutex;

use crate::block::BlockRef;
use crate::filter::Filter;
use crate::format::{Compression, FOOTER_BYTES, Footer, append_trailer};
use crate::index::{Index, IndexBuilder};
use crate::iter::ScanOptions;
use crate::lookup::{LookupKey, ReadIo};
use crate::properties::Properties;
use crate::reader::{Table, decode_tombstones};

/// The number that fuzzed tables go by.
pub const FILE_NUMBER: u64 = 7;

/// A file in memory, for reading only.
#[derive(Debug)]
pub struct BytesFile(pub Vec<u8>);

impl ReadFile for BytesFile {
    fn read_at(&self, offset: u64, len: usize, buf: &mut AlignedBuf) -> io::Result<Range<usize>> {
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let part = self.0.get(start..).and_then(|rest| rest.get(..len));
        let part = part.ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.grow(len);
        buf.as_mut_slice()[..len].copy_from_slice(part);
        Ok(0..len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }
}

/// A file in memory, for appending only. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct BytesSink(Arc<Mutex<Vec<u8>>>);

impl BytesSink {
    /// What was appended; the file is empty then.
    #[must_use]
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl WriteFile for BytesSink {
    fn append(&mut self, data: &[u8]) -> io::Result<()> {
        self.0.lock().extend_from_slice(data);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> u64 {
        self.0.lock().len() as u64
    }
}

/// Decodes `bytes` as every part that a table has.
pub fn parts(bytes: &[u8]) {
    if let Some(index) = Index::decode(bytes) {
        for number in 0..index.len() {
            let key = index.separator_key(number);
            assert!(index.seek(&key, index.separator_trailer(number)) <= index.len());
        }
    }
    if let Some(filter) = Filter::decode(bytes) {
        assert!(filter.may_contain(hash64(bytes)) || !filter.is_empty());
    }
    if let Some(properties) = Properties::decode(bytes) {
        assert_eq!(Properties::decode(&properties.encode()), Some(properties));
    }
    if let Some(stones) = decode_tombstones(bytes) {
        assert!(stones.iter().all(|stone| stone.start < stone.end));
    }
    if let Some(footer) = bytes.first_chunk::<FOOTER_BYTES>() {
        drop(Footer::decode(Path::new("fuzzed"), FILE_NUMBER, 0, footer));
    }
    for compression in [Compression::Lz4, Compression::Zstd] {
        if let Ok((len, packed)) = compression.unpacked_len(bytes) {
            let fits = compression.unpack(packed, &mut vec![0; len.min(1 << 20)]).is_ok();
            assert!(!fits || len <= 1 << 20);
        }
    }
    block(bytes);
}

/// Decodes `bytes` as a data block: walks it and searches it for its own entries.
pub fn block(bytes: &[u8]) {
    let Ok(block) = BlockRef::new(bytes) else { return };
    let (mut offset, mut key) = (0, Vec::new());
    while offset < block.end() {
        let Ok(entry) = block.entry(offset) else { break };
        assert!(entry.next > offset && entry.next <= block.end());
        key.truncate(entry.shared);
        key.extend_from_slice(entry.unshared);
        let found = block.get(&key, entry.trailer);
        let shorter = block.get(&key[..key.len() / 2], u64::MAX);
        for entry in [found, shorter].into_iter().flatten().flatten() {
            assert!(entry.next <= block.end());
        }
        if let Ok(start) = block.restart_at_or_before(offset) {
            assert!(start <= offset);
        }
        offset = entry.next;
    }
}

/// Opens `bytes` as a table and reads all of it.
///
/// # Errors
/// What is wrong with the table.
pub fn file(bytes: &[u8]) -> Result<()> {
    let file = Arc::new(BytesFile(bytes.to_vec()));
    let table = Table::open(file, Path::new("fuzzed"), FILE_NUMBER, bytes.len() as u64, 0, None)?;
    read_all(&Arc::new(table))
}

/// Lays `input` out as a table under good checksums and reads it: filter, tombstones, properties, then blocks with
/// compression, separator and trailer, each behind its length.
///
/// # Errors
/// What is wrong with the table; never a checksum.
pub fn signed(input: &[u8]) -> Result<()> {
    file(&sign(input))
}

/// The table that [`signed`] reads.
#[must_use]
pub fn sign(mut input: &[u8]) -> Vec<u8> {
    let mut part = || get_bytes(&mut input).map(<[u8]>::to_vec).unwrap_or_default();
    let (filter, tombstones, properties) = (part(), part(), part());
    let (mut out, mut index) = (Vec::new(), IndexBuilder::default());
    let append = |out: &mut Vec<u8>, mut block: Vec<u8>, compression| {
        let len = block.len();
        append_trailer(&mut block, FILE_NUMBER, out.len() as u64, compression);
        out.append(&mut block);
        len
    };
    while let Some(payload) = get_bytes(&mut input) {
        let Some((kind, rest)) = input.split_first() else { break };
        input = rest;
        let compression = Compression::from_byte(kind % 3).unwrap_or_default();
        let separator = get_bytes(&mut input).unwrap_or_default();
        let trailer = get_u64(&mut input).unwrap_or_default();
        let len = append(&mut out, payload.to_vec(), compression);
        index.add(separator, trailer, len);
    }
    let meta_offset = out.len() as u64;
    let lens = [filter, index.finish(), tombstones, properties]
        .map(|block| u32::try_from(append(&mut out, block, Compression::None)).unwrap_or(u32::MAX));
    let footer = Footer { file_number: FILE_NUMBER, meta_offset, lens };
    let bytes = footer.encode(out.len() as u64);
    out.extend_from_slice(&bytes);
    out
}

/// Scans the table both ways, looks every key up, seeks to every entry, and verifies it.
fn read_all(table: &Arc<Table>) -> Result<()> {
    for error in table.verify() {
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    }
    if let Some(stones) = table.tombstones() {
        assert!(stones.max_covering(b"k", 100) <= 100);
    }
    let keys = scan(table)?;
    let mut iter = table.iter(ScanOptions { readahead_bytes: 1 << 16, ..ScanOptions::default() });
    iter.seek_to_last()?;
    while iter.valid() {
        iter.prev()?;
    }
    for internal in keys {
        let Some((user_key, trailer)) = split_internal(&internal) else { continue };
        iter.seek(&internal)?;
        iter.seek_before(&internal)?;
        let key = LookupKey { user_key, hash: hash64(user_key), at: trailer >> 8 };
        table.get(&key, &mut ReadIo::default())?;
    }
    Ok(())
}

fn scan(table: &Arc<Table>) -> Result<Vec<Vec<u8>>> {
    let mut keys = Vec::new();
    let mut seek = Vec::new();
    append_internal(&mut seek, b"k", u64::MAX);
    let mut iter = table.iter(ScanOptions::default());
    iter.seek(&seek)?;
    iter.seek_to_first()?;
    while iter.valid() {
        assert!(iter.key().len() >= 8);
        // Long shared prefixes unfold: keep what a fuzzer's run can hold.
        if keys.len() < 1000 && iter.key().len() < 1 << 16 {
            keys.push(iter.key().to_vec());
        }
        iter.next()?;
    }
    Ok(keys)
}
