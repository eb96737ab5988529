//! A cursor over a table, both directions, with adaptive read-ahead.
//!
//! The first blocks are read one by one; once two have been read in sequence, reads grow from two blocks to
//! [`ScanOptions::readahead_bytes`], one device read each. Compactions ask for the full size at once. Blocks that the cache
//! has are taken from it. Tests: `reader/tests.rs`.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use kelvin_base::key::{TRAILER_BYTES, compare_internal, split_internal};
use kelvin_base::{Error, InternalIterator, Result};

use crate::block::{Block, RawEntry};
use crate::format::Handle;
use crate::reader::{ReadIo, Table};

/// How a table is scanned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanOptions {
    /// Most bytes read at once; 0 for one block at a time.
    pub readahead_bytes: usize,
    /// Read the full `readahead_bytes` from the first block on (compactions).
    pub sequential: bool,
    /// Put blocks into the cache.
    pub fill_cache: bool,
}

/// A cursor over a table's entries.
pub struct TableIter {
    table: Arc<Table>,
    scan: ScanOptions,
    block: Option<Block>,
    /// Number of the block in `block`.
    number: usize,
    /// Blocks read ahead, the first of them behind `number`.
    ahead: VecDeque<Block>,
    /// Blocks loaded in forward sequence so far.
    sequence: usize,
    /// Offsets in the block: of the current entry, of the next.
    at: usize,
    next: usize,
    key: Vec<u8>,
    value: Range<usize>,
    valid: bool,
    error: Option<Error>,
    io: ReadIo,
}

impl TableIter {
    /// A cursor that is nowhere yet.
    #[must_use]
    pub const fn new(table: Arc<Table>, scan: ScanOptions) -> Self {
        Self {
            table,
            scan,
            block: None,
            number: usize::MAX,
            ahead: VecDeque::new(),
            sequence: 0,
            at: 0,
            next: 0,
            key: Vec::new(),
            value: 0..0,
            valid: false,
            error: None,
            io: ReadIo { reads: 0, bytes: 0, cache_hits: 0, filter_negatives: 0 },
        }
    }

    /// What it has read since the last time this was asked.
    pub fn take_io(&mut self) -> ReadIo {
        std::mem::take(&mut self.io)
    }

    fn check(&self) -> Result<()> {
        self.error.as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn fail<T>(&mut self, error: Error) -> Result<T> {
        self.valid = false;
        self.error = Some(error.clone());
        Err(error)
    }

    fn malformed<T>(&mut self, what: &'static str) -> Result<T> {
        let offset = self.table.index().handle(self.number).map_or(0, |handle| handle.offset);
        let error = Error::corruption(self.table.path(), offset, what);
        self.fail(error)
    }

    /// Makes block `number` current; false if there is none.
    fn load(&mut self, number: usize) -> Result<bool> {
        if self.block.is_some() && number == self.number {
            return Ok(true);
        }
        let in_sequence = number == self.number.wrapping_add(1);
        if !in_sequence {
            self.ahead.clear();
            self.sequence = 0;
        }
        let Some(handle) = self.table.index().handle(number) else {
            self.block = None;
            self.number = usize::MAX;
            return Ok(false);
        };
        self.sequence += 1;
        let loaded = match self.ahead.pop_front() {
            Some(block) => Ok(block),
            None => self.read(number, handle),
        };
        match loaded {
            Ok(block) => {
                self.block = Some(block);
                self.number = number;
                Ok(true)
            }
            Err(error) => self.fail(error),
        }
    }

    /// Blocks to read at once from here on.
    fn readahead_bytes(&self) -> usize {
        if self.scan.sequential {
            self.scan.readahead_bytes
        } else if self.sequence > 2 {
            // 2, 4, 8 … blocks of 16 KiB: reading ahead follows what the scan has shown.
            let grown = (32 * 1024usize) << (self.sequence - 3).min(16);
            grown.min(self.scan.readahead_bytes)
        } else {
            0
        }
    }

    fn read(&mut self, number: usize, handle: Handle) -> Result<Block> {
        let limit = self.readahead_bytes() as u64;
        let mut handles = vec![handle];
        while let Some(next) = self.table.index().handle(number + handles.len()) {
            if next.offset + next.len_with_trailer() as u64 - handle.offset > limit {
                break;
            }
            handles.push(next);
        }
        if handles.len() == 1 {
            return self.table.block(handle, self.scan.fill_cache, &mut self.io);
        }
        self.ahead = self.table.blocks(&handles, &mut self.io)?.into();
        match self.ahead.pop_front() {
            Some(block) => Ok(block),
            None => self.table.block(handle, self.scan.fill_cache, &mut self.io),
        }
    }

    /// Takes the entry at `offset` as the current one; `self.key` must hold the key before it.
    #[inline]
    fn take(&mut self, offset: usize) -> Result<bool> {
        let Some(block) = &self.block else { return Ok(false) };
        let entry = match block.entries().and_then(|entries| {
            if offset >= entries.end() { Ok(None) } else { entries.entry(offset).map(Some) }
        }) {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(false),
            Err(what) => return self.malformed(what),
        };
        let RawEntry { shared, unshared, trailer, value_at, value, next } = entry;
        if shared + TRAILER_BYTES > self.key.len().max(TRAILER_BYTES) {
            return self.malformed("an entry shares more than the key before it has");
        }
        self.key.truncate(shared);
        self.key.extend_from_slice(unshared);
        self.key.extend_from_slice(&trailer.to_le_bytes());
        self.value = value_at..value_at + value.len();
        self.at = offset;
        self.next = next;
        self.valid = true;
        Ok(true)
    }

    /// The first entry of block `number` or a later one.
    fn first_from(&mut self, mut number: usize) -> Result<()> {
        self.valid = false;
        while self.load(number)? {
            self.key.clear();
            if self.take(0)? {
                return Ok(());
            }
            number += 1;
        }
        Ok(())
    }

    /// The last entry of block `number` or an earlier one.
    fn last_until(&mut self, number: Option<usize>) -> Result<()> {
        self.valid = false;
        let mut number = number;
        while let Some(this) = number {
            if !self.load(this)? {
                return Ok(());
            }
            if self.walk_to_last_before(usize::MAX)? {
                return Ok(());
            }
            number = this.checked_sub(1);
        }
        Ok(())
    }

    /// In the current block, the last entry that begins before `offset`.
    fn walk_to_last_before(&mut self, offset: usize) -> Result<bool> {
        let Some(block) = self.block.clone() else { return Ok(false) };
        let (end, start) = match block.entries() {
            Ok(entries) => {
                let end = offset.min(entries.end());
                (end, if end == 0 { 0 } else { entries.restart_at_or_before(end - 1) })
            }
            Err(what) => return self.malformed(what),
        };
        self.key.clear();
        let mut at = start;
        let mut any = false;
        while at < end && self.take(at)? {
            any = true;
            at = self.next;
        }
        self.valid = any;
        Ok(any)
    }
}

impl InternalIterator for TableIter {
    fn seek_to_first(&mut self) -> Result<()> {
        self.check()?;
        self.first_from(0)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.check()?;
        self.last_until(self.table.index().len().checked_sub(1))
    }

    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.check()?;
        self.valid = false;
        let Some((user_key, trailer)) = split_internal(target) else {
            return Err(Error::invalid("a target is shorter than a trailer"));
        };
        let number = self.table.index().seek(user_key, trailer);
        if !self.load(number)? {
            return Ok(());
        }
        let start = match &self.block {
            Some(block) => block.entries().and_then(|entries| entries.walk_start(target)),
            None => return Ok(()),
        };
        let mut at = match start {
            Ok(start) => start,
            Err(what) => return self.malformed(what),
        };
        self.key.clear();
        while self.take(at)? {
            if compare_internal(&self.key, target) != Ordering::Less {
                return Ok(());
            }
            at = self.next;
        }
        self.first_from(number + 1)
    }

    fn seek_before(&mut self, target: &[u8]) -> Result<()> {
        self.seek(target)?;
        if self.valid { self.prev() } else { self.seek_to_last() }
    }

    fn next(&mut self) -> Result<()> {
        self.check()?;
        self.valid = false;
        if self.take(self.next)? {
            return Ok(());
        }
        self.first_from(self.number.saturating_add(1))
    }

    fn prev(&mut self) -> Result<()> {
        self.check()?;
        self.valid = false;
        if self.at > 0 && self.walk_to_last_before(self.at)? {
            return Ok(());
        }
        self.last_until(self.number.checked_sub(1))
    }

    fn valid(&self) -> bool {
        self.valid
    }

    fn key(&self) -> &[u8] {
        &self.key
    }

    fn value(&self) -> &[u8] {
        self.block.as_ref().and_then(|block| block.bytes().get(self.value.clone())).unwrap_or(&[])
    }
}
