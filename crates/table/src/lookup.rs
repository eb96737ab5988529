//! What a lookup in a table is given and gives, and the seam to the block cache. Tests: `tests/table/reader.rs`.

use std::fmt;

use bytes::Bytes;
use kelvin_base::Sequence;

use crate::block::Block;

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
