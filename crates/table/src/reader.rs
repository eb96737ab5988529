//! Opens a table and answers point lookups: filter, index, at most one block read.
//!
//! Index, filter and tombstones stay in memory; data blocks go through the block cache. A block whose checksum does
//! not match is read once more past the cache before it is reported (RELIABILITY M10). Tests: `tests/table/reader.rs`.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use kelvin_base::coding::{get_bytes, get_varint};
use kelvin_base::key::{seek_trailer, trailer_kind_byte, trailer_sequence};
use kelvin_base::{Error, ErrorKind, RangeTombstone, Result};
use kelvin_storage::{AlignedBuf, ReadFile};

use crate::block::{Block, BlockRef, Malformed};
use crate::filter::Filter;
use crate::format::{Compression, FOOTER_BYTES, Footer, Handle, checked_payload};
use crate::fragments::Fragments;
use crate::index::Index;
use crate::iter::{ScanOptions, TableIter};
pub use crate::lookup::{BlockCache, LookupKey, ReadIo, TableEntry};
use crate::properties::Properties;

/// Read at the end of a table whose `tail_bytes` nobody remembers.
pub(crate) const TAIL_GUESS_BYTES: u64 = 64 * 1024;

/// An open table.
pub struct Table {
    file: Arc<dyn ReadFile>,
    path: PathBuf,
    number: u64,
    size_bytes: u64,
    index: Index,
    filter: Filter,
    tombstones: Option<Arc<Fragments>>,
    properties: Properties,
    cache: Option<Arc<dyn BlockCache>>,
    /// See [`Table::keeping`].
    kept: Option<Box<dyn Any + Send + Sync>>,
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("path", &self.path)
            .field("size_bytes", &self.size_bytes)
            .finish_non_exhaustive()
    }
}

thread_local! {
    static SCRATCH: RefCell<AlignedBuf> = const { RefCell::new(AlignedBuf::new()) };
}

/// A thread keeps at most this much scratch memory between reads of single blocks.
const SCRATCH_BYTES_MAX: usize = 64 << 10;
/// While it reads ahead it keeps as much as it needs: an iterator that does gives it back when it goes.
const AHEAD_BYTES_MAX: usize = 4 << 20;

/// Runs `with` on this thread's read buffer.
pub(crate) fn with_scratch<T>(with: impl FnOnce(&mut AlignedBuf) -> T) -> T {
    SCRATCH.with(|scratch| {
        let mut buf = std::mem::take(&mut *scratch.borrow_mut());
        let answer = with(&mut buf);
        if buf.capacity() <= AHEAD_BYTES_MAX {
            *scratch.borrow_mut() = buf;
        }
        answer
    })
}

/// Gives back what this thread's read buffer has beyond the need of single blocks.
pub(crate) fn shrink_scratch() {
    // A thread that ends has given it back already.
    let _ended = SCRATCH.try_with(|scratch| {
        let mut buf = scratch.borrow_mut();
        if buf.capacity() > SCRATCH_BYTES_MAX {
            *buf = AlignedBuf::new();
        }
    });
}

impl Table {
    /// Opens the table `number` in `file`, which lies at `path`, has `size_bytes` and ends with `tail_bytes` of filter,
    /// index, tombstones, properties and footer (0 if unknown): one read then does.
    ///
    /// # Errors
    /// `Corruption` if it is damaged or another file, `InvalidArgument` for a newer format, else the file's.
    pub fn open(
        file: Arc<dyn ReadFile>,
        path: &Path,
        number: u64,
        size_bytes: u64,
        tail_bytes: u64,
        cache: Option<Arc<dyn BlockCache>>,
    ) -> Result<Self> {
        let actual = file.len().map_err(|source| Error::io("asking a table's length", path, source))?;
        if actual != size_bytes {
            return Err(Error::corruption(
                path,
                actual.min(size_bytes),
                "a table has not the length it was written with",
            )
            .expected(format!("{size_bytes} bytes"), format!("{actual} bytes")));
        }
        if size_bytes < FOOTER_BYTES as u64 {
            return Err(Error::corruption(path, 0, "a table is shorter than a footer")
                .expected(format!("at least {FOOTER_BYTES} bytes"), format!("{size_bytes} bytes")));
        }
        let guess = if tail_bytes == 0 { TAIL_GUESS_BYTES } else { tail_bytes.max(FOOTER_BYTES as u64) };
        let once = || Self::open_once(&file, path, number, size_bytes, guess.min(size_bytes));
        let mut table = once().or_else(|error| {
            // The format's number may be what was read wrong.
            let suspect = is_damage(&error) || error.kind() == kelvin_base::ErrorKind::InvalidArgument;
            if suspect { once() } else { Err(error) }
        })?;
        table.cache = cache;
        Ok(table)
    }

    fn open_once(
        file: &Arc<dyn ReadFile>,
        path: &Path,
        number: u64,
        size_bytes: u64,
        tail_len: u64,
    ) -> Result<Self> {
        let tail = Self::read_tail(file, path, number, size_bytes, tail_len)?;
        let (stones, facts, filter) = (tail.tombstones?, tail.properties?, tail.filter?);
        Ok(Self::of(Arc::clone(file), path, number, size_bytes, (tail.index, filter, stones, facts)))
    }

    /// The table of what was read of its tail.
    pub(crate) fn of(
        file: Arc<dyn ReadFile>,
        path: &Path,
        number: u64,
        size_bytes: u64,
        (index, filter, stones, properties): (Index, Filter, Vec<RangeTombstone>, Properties),
    ) -> Self {
        Self {
            index,
            filter,
            tombstones: (!stones.is_empty()).then(|| Arc::new(Fragments::build(stones))),
            properties,
            file,
            path: path.to_path_buf(),
            number,
            size_bytes,
            cache: None,
            kept: None,
        }
    }

    pub(crate) fn read_tail(
        file: &Arc<dyn ReadFile>,
        path: &Path,
        number: u64,
        size_bytes: u64,
        mut tail_len: u64,
    ) -> Result<Tail> {
        let is_short = tail_len <= SCRATCH_BYTES_MAX as u64;
        let mut read_tail = |buf: &mut AlignedBuf| loop {
            let tail = read(&**file, path, size_bytes - tail_len, tail_len, buf)?;
            let footer = decode_footer(path, number, size_bytes, tail)?;
            if footer.meta_offset >= size_bytes - tail_len {
                return Tail::decode(path, number, size_bytes, &footer, tail);
            }
            tail_len = size_bytes - footer.meta_offset;
        };
        // A small table's tail is no longer than a block: memory that is taken anew between its filter and the next one's
        // leaves holes. A large one's is read once.
        if is_short { with_scratch(read_tail) } else { read_tail(&mut AlignedBuf::new()) }
    }

    /// The table with something that is to live as long as it does.
    #[must_use]
    pub fn keeping(mut self, kept: Box<dyn Any + Send + Sync>) -> Self {
        self.kept = Some(kept);
        self
    }

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it says about itself.
    #[must_use]
    pub const fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Its range tombstones; `None` if it has none.
    #[must_use]
    pub const fn tombstones(&self) -> Option<&Arc<Fragments>> {
        self.tombstones.as_ref()
    }

    /// Memory it pins, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.index.memory_bytes()
            + self.filter.memory_bytes()
            + self.tombstones.as_ref().map_or(0, |stones| stones.memory_bytes())
            + self.properties.heap_bytes()
            + self.path.as_os_str().len()
            + size_of::<Self>()
    }

    /// False if no key of this hash is in the table.
    #[must_use]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.filter.may_contain(hash)
    }

    /// Reads the tail again and checks it.
    pub(crate) fn check_tail(&self) -> Result<()> {
        let tail_len = self.properties.tail_bytes;
        let once = || Self::open_once(&self.file, &self.path, self.number, self.size_bytes, tail_len);
        once().or_else(|error| if is_damage(&error) { once() } else { Err(error) }).map(drop)
    }

    /// The index.
    pub(crate) const fn index(&self) -> &Index {
        &self.index
    }

    /// Number of the first data block that can hold `user_key` or keys behind it; the count of blocks if none can.
    #[must_use]
    pub fn block_of(&self, user_key: &[u8]) -> usize {
        self.index.seek(user_key, seek_trailer(kelvin_base::SEQUENCE_MAX))
    }

    /// The newest point entry of `key` that its reader may see.
    ///
    /// # Errors
    /// `Corruption`, or the file's error.
    pub fn get(&self, key: &LookupKey<'_>, io: &mut ReadIo) -> Result<Option<TableEntry>> {
        if !self.filter.may_contain(key.hash) {
            io.filter_negatives += 1;
            return Ok(None);
        }
        let trailer = seek_trailer(key.at);
        // A separator between versions of one key is the exact last entry, so this is the only block to look at.
        let number = self.index.seek(key.user_key, trailer);
        let Some(handle) = self.index.handle(number) else { return Ok(None) };
        let search = |entries: BlockRef<'_>| match entries.get(key.user_key, trailer) {
            Ok(found) => Ok(found.map(|entry| TableEntry {
                sequence: trailer_sequence(entry.trailer),
                kind_byte: trailer_kind_byte(entry.trailer),
                value: Bytes::copy_from_slice(entry.value),
            })),
            Err(what) => Err(Error::corruption(&self.path, handle.offset, what)),
        };
        if self.cache.is_some() {
            return search(self.block(handle, true, io)?.entries());
        }
        // Nobody keeps the block: search it where it was read.
        self.read_checked(handle, io, |compression, payload| {
            if compression == Compression::None {
                search(self.sound(handle.offset, BlockRef::new(payload))?)
            } else {
                search(self.sound(handle.offset, Block::unpack(compression, payload))?.entries())
            }
        })
    }

    /// Names the place of what is wrong with a block.
    fn sound<T>(&self, offset: u64, outcome: Result<T, Malformed>) -> Result<T> {
        outcome.map_err(|what| Error::corruption(&self.path, offset, what))
    }

    /// The block at `handle` if the cache has it.
    pub(crate) fn cached(&self, handle: Handle, io: &mut ReadIo) -> Option<Block> {
        let block = self.cache.as_ref()?.get(self.number, handle.offset)?;
        io.cache_hits += 1;
        Some(block)
    }

    fn keep(&self, handle: Handle, block: &Block) {
        if let Some(cache) = &self.cache {
            cache.insert(self.number, handle.offset, block.clone());
        }
    }

    /// The block at `handle`, from the cache or the file; put into the cache if `fill`.
    pub(crate) fn block(&self, handle: Handle, fill: bool, io: &mut ReadIo) -> Result<Block> {
        if let Some(block) = self.cached(handle, io) {
            return Ok(block);
        }
        let block = self.read_block(handle, io)?;
        if fill {
            self.keep(handle, &block);
        }
        Ok(block)
    }

    fn read_block(&self, handle: Handle, io: &mut ReadIo) -> Result<Block> {
        self.read_checked(handle, io, |compression, payload| {
            self.sound(handle.offset, Block::unpack(compression, payload))
        })
    }

    /// Reads the block at `handle` past the cache and gives it, checked, to `with`; once more if it is damaged.
    fn read_checked<T>(
        &self,
        handle: Handle,
        io: &mut ReadIo,
        with: impl Fn(Compression, &[u8]) -> Result<T>,
    ) -> Result<T> {
        let mut once = || {
            with_scratch(|buf| {
                let len = handle.len_with_trailer() as u64;
                io.reads += 1;
                io.bytes += len;
                let bytes = read(&*self.file, &self.path, handle.offset, len, buf)?;
                let (compression, payload) = checked_payload(&self.path, self.number, handle.offset, bytes)?;
                with(compression, payload)
            })
        };
        once().or_else(|error| if is_damage(&error) { once() } else { Err(error) })
    }

    /// The blocks at `handles`, which lie one behind the other, in one device read; put into the cache if `fill`.
    pub(crate) fn blocks(&self, handles: &[Handle], fill: bool, io: &mut ReadIo) -> Result<Vec<Block>> {
        let (Some(first), Some(last)) = (handles.first(), handles.last()) else { return Ok(Vec::new()) };
        let len = last.offset + last.len_with_trailer() as u64 - first.offset;
        let all = with_scratch(|buf| {
            io.reads += 1;
            io.bytes += len;
            let bytes = read(&*self.file, &self.path, first.offset, len, buf)?;
            let one = |handle: &Handle| {
                let start = usize::try_from(handle.offset - first.offset).unwrap_or(usize::MAX);
                let part = bytes.get(start..).and_then(|rest| rest.get(..handle.len_with_trailer()));
                let part = part.unwrap_or(&[]);
                let (compression, payload) = checked_payload(&self.path, self.number, handle.offset, part)?;
                self.sound(handle.offset, Block::unpack(compression, payload))
            };
            handles.iter().map(one).collect::<Result<Vec<Block>>>()
        });
        let blocks = match all {
            // Which one is damaged, and whether it is at a second look, is seen one by one, past the cache.
            Err(error) if is_damage(&error) => {
                let one = |handle: &Handle| self.read_block(*handle, io);
                handles.iter().map(one).collect::<Result<Vec<Block>>>()?
            }
            other => other?,
        };
        if fill {
            handles.iter().zip(&blocks).for_each(|(handle, block)| self.keep(*handle, block));
        }
        Ok(blocks)
    }

    /// An iterator over its entries.
    #[must_use]
    pub fn iter(self: &Arc<Self>, scan: ScanOptions) -> TableIter {
        TableIter::new(Arc::clone(self), scan)
    }

    /// The range of user keys that block `offset` of a damage report holds: what is lost with it.
    #[must_use]
    pub fn keys_of_block(&self, offset: u64) -> Option<(Vec<u8>, Vec<u8>)> {
        let number =
            (0..self.index.len()).find(|&n| self.index.handle(n).is_some_and(|h| h.offset == offset))?;
        let (_, before, last) = self.block_place(number)?;
        Some((before, last))
    }

    /// A user key at or behind that of every entry; `None` without entries.
    #[must_use]
    pub fn last_key(&self) -> Option<Vec<u8>> {
        self.index.len().checked_sub(1).map(|last| self.index.separator_key(last))
    }

    /// Where the data block `number` lies, and user keys at or before its first and at or behind its last.
    #[must_use]
    pub fn block_place(&self, number: usize) -> Option<(Handle, Vec<u8>, Vec<u8>)> {
        let handle = self.index.handle(number)?;
        let before = match number.checked_sub(1) {
            None => self.properties.smallest.to_vec(),
            Some(before) => self.index.separator_key(before),
        };
        Some((handle, before, self.index.separator_key(number)))
    }
}

/// What a table's tail says; all but its index can be done without.
pub(crate) struct Tail {
    pub(crate) index: Index,
    pub(crate) filter: Result<Filter>,
    pub(crate) tombstones: Result<Vec<RangeTombstone>>,
    pub(crate) properties: Result<Properties>,
}

impl Tail {
    fn decode(path: &Path, number: u64, size_bytes: u64, footer: &Footer, tail: &[u8]) -> Result<Self> {
        let tail_start = size_bytes - tail.len() as u64;
        let part = |handle: Handle| {
            let start = usize::try_from(handle.offset - tail_start).unwrap_or(usize::MAX);
            let bytes =
                tail.get(start..).and_then(|rest| rest.get(..handle.len_with_trailer())).unwrap_or(&[]);
            checked_payload(path, number, handle.offset, bytes).map(|(_, payload)| payload)
        };
        let [filter, index, tombstones, properties] = footer.handles();
        let broken = |handle: Handle, what: &str| {
            Error::corruption(
                path,
                handle.offset,
                format!("a table's {what} is malformed under a good checksum"),
            )
        };
        let decoded_index = Index::decode(part(index)?).ok_or_else(|| broken(index, "index"))?;
        if decoded_index.end() != footer.meta_offset {
            return Err(broken(index, "index"));
        }
        let stones = part(tombstones)
            .and_then(|bytes| decode_tombstones(bytes).ok_or_else(|| broken(tombstones, "range tombstones")));
        let facts = part(properties)
            .and_then(|bytes| Properties::decode(bytes).ok_or_else(|| broken(properties, "properties")));
        let filter =
            part(filter).and_then(|bytes| Filter::decode(bytes).ok_or_else(|| broken(filter, "filter")));
        let tail_bytes = size_bytes - footer.meta_offset;
        let own = |facts| Properties { size_bytes, tail_bytes, ..facts };
        Ok(Self { index: decoded_index, tombstones: stones, properties: facts.map(own), filter })
    }
}

/// Bytes that are not those written, which a second read may find in order (RELIABILITY M10).
pub(crate) fn is_damage(error: &Error) -> bool {
    error.kind() == ErrorKind::Corruption
}

fn read<'a>(
    file: &dyn ReadFile,
    path: &Path,
    offset: u64,
    len: u64,
    buf: &'a mut AlignedBuf,
) -> Result<&'a [u8]> {
    let wrong = || Error::corruption(path, offset, "a length in a table is larger than memory");
    let len = usize::try_from(len).map_err(|_| wrong())?;
    let range = file.read_at(offset, len, buf).map_err(|source| match source.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            Error::corruption(path, offset, "a table ends before the block that it names")
        }
        _ => Error::io("reading a table", path, source).offset(offset),
    })?;
    buf.as_slice().get(range).ok_or_else(wrong)
}

fn decode_footer(path: &Path, number: u64, size_bytes: u64, tail: &[u8]) -> Result<Footer> {
    let bytes = tail
        .last_chunk::<FOOTER_BYTES>()
        .ok_or_else(|| Error::corruption(path, 0, "a table is shorter than a footer"))?;
    Footer::decode(path, number, size_bytes - FOOTER_BYTES as u64, bytes)
}

/// The range tombstones in a block's payload; `None` if malformed. For fuzzing, and for [`Table::open`].
#[must_use]
pub fn decode_tombstones(mut bytes: &[u8]) -> Option<Vec<RangeTombstone>> {
    let input = &mut bytes;
    let count = usize::try_from(get_varint(input)?).ok()?;
    // A tombstone takes at least three bytes.
    let mut stones = Vec::with_capacity(count.min(input.len() / 3));
    for _ in 0..count {
        let start = Bytes::copy_from_slice(get_bytes(input)?);
        let end = Bytes::copy_from_slice(get_bytes(input)?);
        let sequence = get_varint(input)?;
        if start >= end || sequence > kelvin_base::SEQUENCE_MAX {
            return None;
        }
        stones.push(RangeTombstone { start, end, sequence });
    }
    input.is_empty().then_some(stones)
}
