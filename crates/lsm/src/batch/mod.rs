//! Write batches: operations that become visible and durable together, in the bytes the write-ahead log stores.
//!
//! Encoding (docs/formats/wal.md): a little-endian `u32` count, then that many operations: kind byte, keyspace as
//! a varint, key behind its length, and for kinds with a value the stored value behind its length (for a range
//! deletion: the end key).
//!
//! Invariants
//! - A [`WriteBatch`] holds only what its own checks passed, so iterating over it cannot fail on honest bytes.
//! - [`BatchOps`] believes no length and no count before comparing it with the bytes that remain, and refuses
//!   whatever [`WriteBatch`] would refuse; it is the decoder for bytes read from disk.
//!
//! Tests: `tests.rs` beside this file.

#[cfg(test)]
mod tests;

use kelvin_base::coding::{get_bytes, get_u32, get_varint, put_bytes, put_varint};
use kelvin_base::key::EXPIRES;
use kelvin_base::{Error, ErrorKind, KEY_BYTES_MAX, Kind, Result, VALUE_BYTES_MAX};

/// The largest encoded batch, bytes.
pub const BATCH_BYTES_MAX: usize = 1 << 30;
/// Bytes of the count in front of the operations.
pub const BATCH_HEADER_BYTES: usize = 4;
/// Bytes of the shortest operation: kind, keyspace, key length, one key byte.
const OP_BYTES_MIN: usize = 4;
/// Bytes of an expiry in front of a value.
const EXPIRY_BYTES: usize = 8;

/// One operation of a batch, borrowed from its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchOp<'a> {
    /// A put or a deletion of one key.
    Point {
        /// The keyspace's id.
        keyspace: u32,
        /// The user key.
        key: &'a [u8],
        /// `Kind::Value` (with or without the expiry bit) or `Kind::Deletion`.
        kind_byte: u8,
        /// The stored value: expiry (if the bit is set) and user value; empty for a deletion.
        stored: &'a [u8],
    },
    /// A deletion of every key in `[start, end)`.
    RangeDelete {
        /// The keyspace's id.
        keyspace: u32,
        /// First user key deleted.
        start: &'a [u8],
        /// First user key kept; greater than `start`.
        end: &'a [u8],
    },
}

impl BatchOp<'_> {
    /// The id of the keyspace it writes.
    #[must_use]
    pub const fn keyspace(&self) -> u32 {
        let (Self::Point { keyspace, .. } | Self::RangeDelete { keyspace, .. }) = self;
        *keyspace
    }
}

/// Operations applied together. Each gets its own sequence number, in order; later ones win.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteBatch {
    data: Vec<u8>,
    count: u32,
    /// The distinct keyspaces: most batches have one, which needs no allocation.
    keyspace_first: Option<u32>,
    keyspaces_more: Vec<u32>,
}

impl Default for WriteBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl WriteBatch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// An empty batch with room for `bytes` of encoded operations.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        let mut data = Vec::with_capacity(BATCH_HEADER_BYTES.saturating_add(bytes));
        data.resize(BATCH_HEADER_BYTES, 0);
        Self { data, count: 0, keyspace_first: None, keyspaces_more: Vec::new() }
    }

    /// The batch of encoded bytes, all of them checked.
    ///
    /// # Errors
    /// `Corruption` if they are no batch.
    pub fn from_encoded(data: Vec<u8>) -> Result<Self> {
        let mut batch = Self::new();
        let ops = BatchOps::new(&data)?;
        batch.count = ops.operations();
        for op in ops {
            batch.note_keyspace(op?.keyspace());
        }
        batch.data = data;
        Ok(batch)
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// `InvalidArgument` if the key is empty or too long, the value too long, or the batch would be too large.
    pub fn put(&mut self, keyspace: u32, key: &[u8], value: &[u8]) -> Result<()> {
        check_key(key)?;
        check_value(value.len())?;
        self.check_room(key.len() + value.len())?;
        self.begin(Kind::Value as u8, keyspace, key);
        put_bytes(&mut self.data, value);
        Ok(())
    }

    /// Sets `key` to `value` until `expiry_ms` (Unix milliseconds).
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn put_expiring(&mut self, keyspace: u32, key: &[u8], value: &[u8], expiry_ms: u64) -> Result<()> {
        check_key(key)?;
        check_value(value.len())?;
        self.check_room(key.len() + value.len() + EXPIRY_BYTES)?;
        self.begin(Kind::Value as u8 | EXPIRES, keyspace, key);
        put_varint(&mut self.data, (value.len() + EXPIRY_BYTES) as u64);
        self.data.extend_from_slice(&expiry_ms.to_le_bytes());
        self.data.extend_from_slice(value);
        Ok(())
    }

    /// Deletes `key`. Deleting an absent key is no error.
    ///
    /// # Errors
    /// `InvalidArgument` as [`Self::put`].
    pub fn delete(&mut self, keyspace: u32, key: &[u8]) -> Result<()> {
        check_key(key)?;
        self.check_room(key.len())?;
        self.begin(Kind::Deletion as u8, keyspace, key);
        Ok(())
    }

    /// Deletes every key in `[start, end)`; nothing at all if the two are equal.
    ///
    /// # Errors
    /// `InvalidArgument` if `start` lies behind `end`, or as [`Self::put`] for either key.
    pub fn delete_range(&mut self, keyspace: u32, start: &[u8], end: &[u8]) -> Result<()> {
        check_key(start)?;
        check_key(end)?;
        if start > end {
            return Err(Error::invalid("delete_range: the start key lies behind the end key")
                .advice("give the smaller key first; the end key itself is not deleted"));
        }
        if start == end {
            return Ok(());
        }
        self.check_room(start.len() + end.len())?;
        self.begin(Kind::RangeDeletion as u8, keyspace, start);
        put_bytes(&mut self.data, end);
        Ok(())
    }

    /// Adds the operations of `other` behind those here.
    ///
    /// # Errors
    /// `InvalidArgument` if the sum would be too large; nothing is added then.
    pub fn append(&mut self, other: &Self) -> Result<()> {
        let body = &other.data[BATCH_HEADER_BYTES..];
        let too_many = self.count.checked_add(other.count).is_none();
        if too_many || self.data.len() + body.len() > BATCH_BYTES_MAX {
            return Err(too_large(self.data.len() + body.len()));
        }
        self.data.extend_from_slice(body);
        self.set_count(self.count + other.count);
        for keyspace in other.keyspaces() {
            self.note_keyspace(keyspace);
        }
        Ok(())
    }

    /// Takes every operation out; the memory stays for reuse.
    pub fn clear(&mut self) {
        self.data.truncate(BATCH_HEADER_BYTES);
        self.set_count(0);
        self.keyspace_first = None;
        self.keyspaces_more.clear();
    }

    /// Operations in the batch: the sequence numbers it takes.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// True if it holds no operation.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The encoding, as the write-ahead log stores it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.data
    }

    /// The operations in order.
    #[must_use]
    pub fn ops(&self) -> CheckedOps<'_> {
        let rest = &self.data[BATCH_HEADER_BYTES..];
        CheckedOps(BatchOps { rest, count: self.count, left: self.count, size: self.data.len() })
    }

    /// The ids of the keyspaces it writes, each once.
    pub fn keyspaces(&self) -> impl Iterator<Item = u32> + '_ {
        self.keyspace_first.into_iter().chain(self.keyspaces_more.iter().copied())
    }

    fn note_keyspace(&mut self, keyspace: u32) {
        match self.keyspace_first {
            None => self.keyspace_first = Some(keyspace),
            Some(first) if first != keyspace && !self.keyspaces_more.contains(&keyspace) => {
                self.keyspaces_more.push(keyspace);
            }
            Some(_) => {}
        }
    }

    fn begin(&mut self, kind_byte: u8, keyspace: u32, key: &[u8]) {
        self.data.push(kind_byte);
        put_varint(&mut self.data, u64::from(keyspace));
        put_bytes(&mut self.data, key);
        self.set_count(self.count + 1);
        self.note_keyspace(keyspace);
    }

    fn set_count(&mut self, count: u32) {
        self.count = count;
        self.data[..BATCH_HEADER_BYTES].copy_from_slice(&count.to_le_bytes());
    }

    /// Refuses an operation with `payload` bytes of keys and values that would not fit. At 4 bytes or more an
    /// operation, a batch within the byte limit cannot overflow the count.
    fn check_room(&self, payload: usize) -> Result<()> {
        // Kind, keyspace and two lengths take at most 1 + 5 + 5 + 5 bytes.
        let size = self.data.len() + 16 + payload;
        if size > BATCH_BYTES_MAX { Err(too_large(size)) } else { Ok(()) }
    }
}

/// The operations of a [`WriteBatch`], whose bytes were checked as they went in.
#[derive(Clone, Debug)]
pub struct CheckedOps<'a>(BatchOps<'a>);

impl<'a> Iterator for CheckedOps<'a> {
    type Item = BatchOp<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let op = self.0.next()?;
        debug_assert!(op.is_ok(), "a batch holds only what its checks passed");
        op.ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.left as usize, Some(self.0.left as usize))
    }
}

/// Decodes the operations of an encoded batch, in order. After an error it ends.
#[derive(Clone, Debug)]
pub struct BatchOps<'a> {
    rest: &'a [u8],
    count: u32,
    left: u32,
    size: usize,
}

impl<'a> BatchOps<'a> {
    /// The operations of `encoded`, whose header is checked now and whose operations as they are met.
    ///
    /// # Errors
    /// `Corruption` if the count is missing or impossible, or the batch larger than any that is written.
    pub fn new(encoded: &'a [u8]) -> Result<Self> {
        let mut rest = encoded;
        let size = encoded.len();
        let Some(count) = get_u32(&mut rest) else {
            return Err(corrupt(0, "the batch ends inside its count"));
        };
        if size > BATCH_BYTES_MAX {
            return Err(corrupt(0, "the batch is too large")
                .expected(format!("at most {BATCH_BYTES_MAX} bytes"), size));
        }
        let possible = rest.len() / OP_BYTES_MIN;
        if u64::from(count) > possible as u64 {
            return Err(corrupt(0, "the batch is too short for its count")
                .expected(format!("at most {possible} operations in {size} bytes"), count));
        }
        if count == 0 && !rest.is_empty() {
            return Err(corrupt(BATCH_HEADER_BYTES, "bytes follow an empty batch").expected(0, rest.len()));
        }
        Ok(Self { rest, count, left: count, size })
    }

    /// Operations the batch says it holds.
    #[must_use]
    pub const fn operations(&self) -> u32 {
        self.count
    }

    fn decode(&mut self) -> Result<BatchOp<'a>> {
        let at = self.size - self.rest.len();
        let op = self.decode_op().ok_or_else(|| corrupt(at, "the batch holds a malformed operation"))?;
        if self.left == 1 && !self.rest.is_empty() {
            let found = self.rest.len();
            return Err(corrupt(at, "bytes follow the batch's last operation").expected(0, found));
        }
        Ok(op)
    }

    fn decode_op(&mut self) -> Option<BatchOp<'a>> {
        let (&kind_byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        let kind = Kind::from_byte(kind_byte)?;
        let keyspace = u32::try_from(get_varint(&mut self.rest)?).ok()?;
        let key = get_bytes(&mut self.rest).filter(|key| is_key(key))?;
        match kind {
            Kind::Deletion => Some(BatchOp::Point { keyspace, key, kind_byte, stored: &[] }),
            Kind::RangeDeletion => {
                let end = get_bytes(&mut self.rest).filter(|end| is_key(end) && key < *end)?;
                Some(BatchOp::RangeDelete { keyspace, start: key, end })
            }
            Kind::Value => {
                let stored = get_bytes(&mut self.rest)?;
                let expiry = if kind_byte & EXPIRES == 0 { 0 } else { EXPIRY_BYTES };
                let value = stored.len().checked_sub(expiry)?;
                (value <= VALUE_BYTES_MAX).then_some(BatchOp::Point { keyspace, key, kind_byte, stored })
            }
            // Copies are made by promotions, which are never logged.
            Kind::Copy => None,
        }
    }
}

impl<'a> Iterator for BatchOps<'a> {
    type Item = Result<BatchOp<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let op = self.decode();
        self.left = if op.is_ok() { self.left - 1 } else { 0 };
        Some(op)
    }
}

fn is_key(key: &[u8]) -> bool {
    !key.is_empty() && key.len() <= KEY_BYTES_MAX
}

/// Refuses a key that no record can have.
///
/// # Errors
/// `InvalidArgument` that says why.
pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    if is_key(key) {
        return Ok(());
    }
    let what = if key.is_empty() { "the key is empty" } else { "the key is too long" };
    Err(Error::invalid(what).expected(format!("1 to {KEY_BYTES_MAX} bytes"), format!("{} bytes", key.len())))
}

/// Refuses a value too long for a record.
///
/// # Errors
/// `InvalidArgument` that says why.
pub(crate) fn check_value(len: usize) -> Result<()> {
    if len <= VALUE_BYTES_MAX {
        return Ok(());
    }
    Err(Error::invalid("the value is too long")
        .expected(format!("at most {VALUE_BYTES_MAX} bytes"), format!("{len} bytes")))
}

fn too_large(size: usize) -> Error {
    Error::invalid("the batch is too large")
        .expected(format!("at most {BATCH_BYTES_MAX} bytes"), format!("{size} bytes"))
        .advice("write it as several batches")
}

fn corrupt(at: usize, what: &str) -> Error {
    Error::new(ErrorKind::Corruption, format!("{what} (byte {at} of the batch)"))
}
