//! Writes a table: entries in internal-key order, then filter, index, tombstones, properties and footer.
//!
//! Invariants: a key is refused if it does not sort behind the last; a filter hash is added once for each user key that
//! the filter is to know; blocks are cut before they pass `block_size_bytes`. Tests: `tests/table/reader.rs`.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use kelvin_base::coding::{put_bytes, put_varint};
use kelvin_base::hash64;
use kelvin_base::key::{TRAILER_BYTES, split_internal};
use kelvin_base::{Error, RangeTombstone, Result, SEQUENCE_MAX, seeded_bug};
use kelvin_storage::WriteFile;

use crate::block::{BlockBuilder, common_len};
use crate::filter::Filter;
use crate::format::{Compression, Footer, append_trailer};
use crate::index::{IndexBuilder, separator};
use crate::properties::Properties;

/// How a table is made.
#[derive(Clone, Copy, Debug)]
pub struct TableOptions {
    /// Bytes of entries in a data block at most, unless one entry alone is larger.
    pub block_size_bytes: usize,
    /// Entries between restart points.
    pub restart_interval: usize,
    /// Filter bits a key; 0 for no filter.
    pub filter_bits_per_key: u32,
    /// How blocks are compressed.
    pub compression: Compression,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            block_size_bytes: 16 * 1024,
            restart_interval: 16,
            filter_bits_per_key: 10,
            compression: Compression::None,
        }
    }
}

/// What an entry takes beside its key and its value: three lengths and, at times, a restart point.
const ENTRY_FRAMING_BYTES: usize = 8;

/// A table being written.
#[derive(Debug)]
pub struct TableWriter {
    file: Box<dyn WriteFile>,
    path: PathBuf,
    file_number: u64,
    options: TableOptions,
    block: BlockBuilder,
    last_trailer: u64,
    /// A finished block whose separator waits for the next key: its last key's trailer and its length on disk.
    pending: Option<(Vec<u8>, u64, usize)>,
    index: IndexBuilder,
    hashes: Vec<u64>,
    tombstones: Vec<RangeTombstone>,
    first_key: Option<Bytes>,
    last_key: Vec<u8>,
    properties: Properties,
    offset: u64,
    /// Room for a compressed block.
    packed: Vec<u8>,
}

impl TableWriter {
    /// A table `file_number` in `file`, which lies at `path`.
    #[must_use]
    pub fn new(file: Box<dyn WriteFile>, path: &Path, file_number: u64, options: TableOptions) -> Self {
        Self {
            file,
            path: path.to_path_buf(),
            file_number,
            options,
            block: BlockBuilder::new(options.restart_interval),
            last_trailer: 0,
            pending: None,
            index: IndexBuilder::default(),
            hashes: Vec::new(),
            tombstones: Vec::new(),
            first_key: None,
            last_key: Vec::new(),
            properties: Properties { sequence_min: SEQUENCE_MAX, ..Properties::default() },
            offset: 0,
            packed: Vec::new(),
        }
    }

    /// Adds an entry behind the last one.
    ///
    /// # Errors
    /// `InvalidArgument` if it does not sort behind the last one or is of no known kind; else the file's.
    pub fn add(&mut self, internal_key: &[u8], stored: &[u8]) -> Result<()> {
        let (user_key, trailer) = split_internal(internal_key)
            .ok_or_else(|| Error::invalid("an internal key is shorter than a trailer"))?;
        self.add_split(user_key, trailer, stored, true)
    }

    /// Keeps `bytes` with the table's properties: what its owner wants to know of it. The last call counts.
    pub fn annotate(&mut self, bytes: Vec<u8>) {
        self.properties.annotation = bytes.into();
    }

    /// Number of the data block that the entry added last lies in.
    #[must_use]
    pub const fn data_block(&self) -> u64 {
        self.properties.data_blocks
    }

    /// As [`Self::add`], of a key in its parts. The filter will know it if `in_filter`: a table whose filter tells some of its keys from the
    /// others is never asked for a key by [`crate::Table::get`].
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn add_split(&mut self, user_key: &[u8], trailer: u64, stored: &[u8], in_filter: bool) -> Result<()> {
        let first = self.first_key.is_none();
        let alike = common_len(&self.last_key, user_key);
        let by_key = self.last_key.get(alike).cmp(&user_key.get(alike));
        if !first && by_key.then(trailer.cmp(&self.last_trailer)) != Ordering::Less {
            return Err(Error::invalid("entries of a table must come in order").file(&self.path));
        }
        self.properties
            .see(user_key, trailer, stored)
            .map_err(|what| Error::invalid(what).file(&self.path))?;
        // A block ends before it passes its size, so that it takes no more sectors to read than it must.
        let entry_bytes = user_key.len() + TRAILER_BYTES + stored.len() + ENTRY_FRAMING_BYTES;
        if self.block.entries() > 0 && self.block.size_bytes() + entry_bytes > self.options.block_size_bytes {
            self.cut_block()?;
        }
        let new_user_key = first || by_key != Ordering::Equal;
        if first {
            self.first_key = Some(Bytes::copy_from_slice(user_key));
        }
        if let Some((last, last_trailer, len)) = self.pending.take() {
            if new_user_key {
                self.index.add(&separator(&last, user_key), 0, len);
            } else {
                self.index.add(&last, last_trailer, len);
            }
        }
        if new_user_key {
            if in_filter && self.options.filter_bits_per_key > 0 {
                self.hashes.push(hash64(user_key));
            }
            self.last_key.truncate(alike);
            self.last_key.extend_from_slice(&user_key[alike..]);
        }
        self.last_trailer = trailer;
        self.block.add(user_key, alike, trailer, stored);
        Ok(())
    }

    /// Adds a range tombstone, in any order. Empty ranges are left out.
    pub fn add_tombstone(&mut self, tombstone: RangeTombstone) {
        if tombstone.start < tombstone.end {
            self.properties.saw(tombstone.sequence);
            self.tombstones.push(tombstone);
        }
    }

    /// Bytes of the file if it were finished now, roughly.
    #[must_use]
    pub fn estimated_size_bytes(&self) -> u64 {
        let filter = self.hashes.len() * self.options.filter_bits_per_key as usize / 8;
        self.offset + (self.block.size_bytes() + self.index.size_bytes() + filter) as u64
    }

    /// Memory it takes, and will take to finish, bytes; without the file's.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        // Blocks being built and packed; the index, once more as it is written; the filter twice likewise.
        let filter = self.hashes.len() * self.options.filter_bits_per_key as usize / 8;
        let index = self.index.size_bytes();
        4 * self.options.block_size_bytes + self.hashes.capacity() * size_of::<u64>() + 2 * (index + filter)
    }

    fn cut_block(&mut self) -> Result<()> {
        let last = self.last_key.clone();
        let mut block = std::mem::take(self.block.finish());
        let mut packed = std::mem::take(&mut self.packed);
        let written = if self.options.compression.compress(&block, &mut packed) {
            self.write_block(&mut packed, self.options.compression)
        } else {
            self.write_block(&mut block, Compression::None)
        };
        self.packed = packed;
        self.block.reuse(block);
        self.properties.data_blocks += 1;
        self.pending = Some((last, self.last_trailer, written?));
        Ok(())
    }

    /// Writes a block and its trailer, which it appends to `bytes`; the length without the trailer.
    fn write_block(&mut self, bytes: &mut Vec<u8>, compression: Compression) -> Result<usize> {
        let len = bytes.len();
        append_trailer(bytes, self.file_number, self.offset, compression);
        self.append(bytes)?;
        Ok(len)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.append(bytes).map_err(|source| Error::io("writing a table", &self.path, source))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Writes what remains and syncs the file. The directory is the caller's to sync.
    ///
    /// # Errors
    /// The file's; the table is then unusable.
    pub fn finish(mut self) -> Result<Properties> {
        if self.block.entries() > 0 {
            self.cut_block()?;
        }
        if let Some((last, _, len)) = self.pending.take() {
            self.index.add(&last, 0, len);
        }
        self.note_range();
        let meta_offset = self.offset;
        let filter = if self.hashes.is_empty() {
            Vec::new()
        } else {
            Filter::build(&self.hashes, self.options.filter_bits_per_key).encode()
        };
        let index = std::mem::take(&mut self.index).finish();
        let tombstones = encode_tombstones(&self.tombstones);
        let properties = self.properties.encode();
        let mut lens = [0; 4];
        for (len, mut block) in lens.iter_mut().zip([filter, index, tombstones, properties]) {
            let payload_len = self.write_block(&mut block, Compression::None)?;
            *len = u32::try_from(payload_len)
                .map_err(|_| Error::invalid("a table's index or filter is over 4 GiB").file(&self.path))?;
        }
        let footer = Footer { file_number: self.file_number, meta_offset, lens }.encode(self.offset);
        self.append(&footer)?;
        self.file.sync().map_err(|source| Error::io("syncing a table", &self.path, source))?;
        self.properties.size_bytes = self.offset;
        self.properties.tail_bytes = self.offset - meta_offset;
        Ok(self.properties)
    }

    fn note_range(&mut self) {
        let facts = &mut self.properties;
        facts.range_tombstones = self.tombstones.len() as u64;
        if facts.sequence_min > facts.sequence_max {
            facts.sequence_min = facts.sequence_max;
        }
        if seeded_bug!("table-range-without-tombstones") && self.first_key.is_some() {
            facts.smallest = self.first_key.clone().unwrap_or_default();
            facts.largest = Bytes::copy_from_slice(&self.last_key);
            return;
        }
        let first_stone = self.tombstones.iter().map(|stone| &stone.start).min();
        let smallest = self.first_key.iter().chain(first_stone).min();
        facts.smallest = smallest.cloned().unwrap_or_default();
        facts.largest = Bytes::copy_from_slice(&self.last_key);
        if let Some(end) = self.tombstones.iter().map(|stone| &stone.end).max()
            && (self.first_key.is_none() || end.as_ref() > self.last_key.as_slice())
        {
            facts.largest = end.clone();
            facts.largest_exclusive = true;
        }
    }
}

/// Range tombstones: count, then `start, end` behind their lengths and the sequence number, varints.
fn encode_tombstones(tombstones: &[RangeTombstone]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, tombstones.len() as u64);
    for stone in tombstones {
        put_bytes(&mut out, &stone.start);
        put_bytes(&mut out, &stone.end);
        put_varint(&mut out, stone.sequence);
    }
    out
}
