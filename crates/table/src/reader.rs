//! Opens a table and answers point lookups: filter, index, at most one block read.
//!
//! Index, filter and tombstones stay in memory; data blocks go through the block cache. A block whose checksum does
//! not match is read once more past the cache before it is reported (RELIABILITY M10). Tests: `tests.rs` beside.

use std::cell::RefCell;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use kelvin_base::coding::{get_bytes, get_varint};
use kelvin_base::key::{seek_trailer, trailer_kind_byte, trailer_sequence};
use kelvin_base::{Error, RangeTombstone, Result, Sequence};
use kelvin_storage::{AlignedBuf, ReadFile};

use crate::block::{Block, BlockRef};
use crate::filter::Filter;
use crate::format::{Compression, FOOTER_BYTES, Footer, Handle, checked_payload};
use crate::fragments::Fragments;
use crate::index::Index;
use crate::iter::{ScanOptions, TableIter};
use crate::properties::Properties;

/// Read at the end of a table whose `tail_bytes` nobody remembers.
const TAIL_GUESS_BYTES: u64 = 64 * 1024;

/// What a lookup looks for.
#[derive(Clone, Copy, Debug)]
pub struct LookupKey<'a> {
    /// User key.
    pub user_key: &'a [u8],
    /// Its [`kelvin_base::hash64`].
    pub hash: u64,
    /// Newest sequence number the reader may see.
    pub at: Sequence,
}

/// An entry found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// Its sequence number.
    pub sequence: Sequence,
    /// Its kind byte.
    pub kind_byte: u8,
    /// Its stored value, the expiry included.
    pub value: Bytes,
}

/// What reading cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadIo {
    /// Device reads.
    pub reads: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Blocks found in the cache.
    pub cache_hits: u64,
    /// Tables excluded by their filter.
    pub filter_negatives: u64,
}

/// Blocks in memory, by file number and offset.
pub trait BlockCache: Send + Sync + fmt::Debug {
    /// The block, if it is there.
    fn get(&self, file: u64, offset: u64) -> Option<Block>;
    /// Offers a block.
    fn insert(&self, file: u64, offset: u64, block: Block);
}

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

/// A thread keeps at most this much scratch memory between reads.
const SCRATCH_BYTES_MAX: usize = 1 << 20;

/// Runs `with` on this thread's read buffer.
pub(crate) fn with_scratch<T>(with: impl FnOnce(&mut AlignedBuf) -> T) -> T {
    SCRATCH.with(|scratch| {
        let mut buf = std::mem::take(&mut *scratch.borrow_mut());
        let answer = with(&mut buf);
        if buf.capacity() <= SCRATCH_BYTES_MAX {
            *scratch.borrow_mut() = buf;
        }
        answer
    })
}

impl Table {
    /// Opens the table `number` in `file`, which lies at `path`, has `size_bytes` and ends with `tail_bytes` of index,
    /// filter, tombstones, properties and footer (0 if unknown): one read then does.
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
        with_scratch(|buf| {
            let mut tail_len = guess.min(size_bytes);
            loop {
                let tail = read(&*file, path, size_bytes - tail_len, tail_len, buf)?;
                let footer = decode_footer(path, number, size_bytes, tail)?;
                if footer.meta_offset >= size_bytes - tail_len {
                    let mut table = Self::from_tail(file, path, number, size_bytes, &footer, tail)?;
                    table.cache = cache;
                    return Ok(table);
                }
                tail_len = size_bytes - footer.meta_offset;
            }
        })
    }

    fn from_tail(
        file: Arc<dyn ReadFile>,
        path: &Path,
        number: u64,
        size_bytes: u64,
        footer: &Footer,
        tail: &[u8],
    ) -> Result<Self> {
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
        let stones =
            decode_tombstones(part(tombstones)?).ok_or_else(|| broken(tombstones, "range tombstones"))?;
        let mut facts =
            Properties::decode(part(properties)?).ok_or_else(|| broken(properties, "properties"))?;
        facts.size_bytes = size_bytes;
        facts.tail_bytes = size_bytes - footer.meta_offset;
        Ok(Self {
            filter: Filter::decode(part(filter)?).ok_or_else(|| broken(filter, "filter"))?,
            index: decoded_index,
            tombstones: (!stones.is_empty()).then(|| Arc::new(Fragments::build(stones))),
            properties: facts,
            file,
            path: path.to_path_buf(),
            number,
            size_bytes,
            cache: None,
        })
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
            + size_of::<Self>()
    }

    /// False if no key of this hash is in the table.
    #[must_use]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.filter.may_contain(hash)
    }

    /// The index.
    pub(crate) const fn index(&self) -> &Index {
        &self.index
    }

    /// User keys that cut the table into about `parts` pieces of like size.
    #[must_use]
    pub fn split_keys(&self, parts: usize) -> Vec<Vec<u8>> {
        let blocks = self.index.len();
        let at = |part: usize| part * blocks / parts.max(1);
        (1..parts)
            .map(at)
            .filter(|&block| block > 0)
            .map(|block| self.index.separator_key(block - 1))
            .collect()
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
        let block = self.block(handle, true, io)?;
        let found = block.entries().and_then(|entries| entries.get(key.user_key, trailer));
        let found = found.map_err(|what| Error::corruption(&self.path, handle.offset, what))?;
        Ok(found.map(|entry| TableEntry {
            sequence: trailer_sequence(entry.trailer),
            kind_byte: trailer_kind_byte(entry.trailer),
            value: Bytes::copy_from_slice(entry.value),
        }))
    }

    /// The block at `handle`, from the cache or the file; put into the cache if `fill`.
    pub(crate) fn block(&self, handle: Handle, fill: bool, io: &mut ReadIo) -> Result<Block> {
        if let Some(cache) = &self.cache
            && let Some(block) = cache.get(self.number, handle.offset)
        {
            io.cache_hits += 1;
            return Ok(block);
        }
        let read_once = |io: &mut ReadIo| {
            with_scratch(|buf| {
                let len = handle.len_with_trailer() as u64;
                io.reads += 1;
                io.bytes += len;
                let bytes = read(&*self.file, &self.path, handle.offset, len, buf)?;
                self.decode_block(handle.offset, bytes)
            })
        };
        let block = match read_once(io) {
            Err(error) if error.kind() == kelvin_base::ErrorKind::Corruption => read_once(io)?,
            other => other?,
        };
        if fill && let Some(cache) = &self.cache {
            cache.insert(self.number, handle.offset, block.clone());
        }
        Ok(block)
    }

    /// The block in `bytes` (trailer included), which lay at `offset`.
    pub(crate) fn decode_block(&self, offset: u64, bytes: &[u8]) -> Result<Block> {
        let (compression, payload) = checked_payload(&self.path, self.number, offset, bytes)?;
        let bad = |what: &'static str| Error::corruption(&self.path, offset, what);
        if compression == Compression::None {
            Block::new(payload).map_err(bad)
        } else {
            Block::new(&compression.decompress(payload).map_err(bad)?).map_err(bad)
        }
    }

    /// The blocks at `handles`, which lie one behind the other, in one device read.
    pub(crate) fn blocks(&self, handles: &[Handle], io: &mut ReadIo) -> Result<Vec<Block>> {
        let (Some(first), Some(last)) = (handles.first(), handles.last()) else { return Ok(Vec::new()) };
        let len = last.offset + last.len_with_trailer() as u64 - first.offset;
        let all = with_scratch(|buf| {
            io.reads += 1;
            io.bytes += len;
            let bytes = read(&*self.file, &self.path, first.offset, len, buf)?;
            let one = |handle: &Handle| {
                let start = usize::try_from(handle.offset - first.offset).unwrap_or(usize::MAX);
                let part = bytes.get(start..).and_then(|rest| rest.get(..handle.len_with_trailer()));
                self.decode_block(handle.offset, part.unwrap_or(&[]))
            };
            handles.iter().map(one).collect::<Result<Vec<Block>>>()
        });
        match all {
            Err(error) if error.kind() == kelvin_base::ErrorKind::Corruption => {
                handles.iter().map(|handle| self.block(*handle, false, io)).collect()
            }
            other => other,
        }
    }

    /// An iterator over its entries.
    #[must_use]
    pub fn iter(self: &Arc<Self>, scan: ScanOptions) -> TableIter {
        TableIter::new(Arc::clone(self), scan)
    }

    /// Reads every byte of the file and checks it: every block, the order of the entries, and the counts. Answers
    /// the damage found, one error a damaged block.
    #[must_use]
    pub fn verify(&self) -> Vec<Error> {
        let mut damage = Vec::new();
        let mut io = ReadIo::default();
        let (mut entries, mut last) = (0u64, Vec::new());
        for number in 0..self.index.len() {
            let Some(handle) = self.index.handle(number) else { break };
            let outcome = self.blocks(&[handle], &mut io).and_then(|blocks| {
                blocks.iter().try_for_each(|block| {
                    walk(block, &mut entries, &mut last)
                        .map_err(|what| Error::corruption(&self.path, handle.offset, what))
                })
            });
            damage.extend(outcome.err());
        }
        if damage.is_empty() && entries != self.properties.entries {
            damage.push(
                Error::corruption(&self.path, 0, "a table has not as many entries as it says")
                    .expected(self.properties.entries, entries),
            );
        }
        damage
    }

    /// The range of user keys that block `offset` of a damage report holds: what is lost with it.
    #[must_use]
    pub fn keys_of_block(&self, offset: u64) -> Option<(Vec<u8>, Vec<u8>)> {
        let number =
            (0..self.index.len()).find(|&n| self.index.handle(n).is_some_and(|h| h.offset == offset))?;
        let before = if number == 0 {
            self.properties.smallest.to_vec()
        } else {
            self.index.separator_key(number - 1)
        };
        Some((before, self.index.separator_key(number)))
    }
}

/// Walks a block's entries, counting them and checking their order.
fn walk(block: &Block, entries: &mut u64, last: &mut Vec<u8>) -> Result<(), &'static str> {
    let entries_of: BlockRef<'_> = block.entries()?;
    let mut offset = 0;
    let mut key: Vec<u8> = Vec::new();
    while offset < entries_of.end() {
        let entry = entries_of.entry(offset)?;
        if entry.shared > key.len() {
            return Err("an entry shares more than the key before it has");
        }
        key.truncate(entry.shared);
        key.extend_from_slice(entry.unshared);
        let mut internal = Vec::with_capacity(key.len() + 8);
        kelvin_base::key::append_internal(&mut internal, &key, entry.trailer);
        if !last.is_empty() && kelvin_base::key::compare_internal(last, &internal).is_ge() {
            return Err("entries are out of order");
        }
        *last = internal;
        *entries += 1;
        offset = entry.next;
    }
    Ok(())
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
    let range = file
        .read_at(offset, len, buf)
        .map_err(|source| Error::io("reading a table", path, source).offset(offset))?;
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

#[cfg(test)]
mod tests;
