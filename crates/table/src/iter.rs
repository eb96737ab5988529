//! A cursor over a table, both directions, with adaptive read-ahead.
//!
//! The first blocks are read one by one; once two have been read in sequence, reads grow from two blocks to
//! [`ScanOptions::readahead_bytes`], one device read each. Compactions ask for the full size at once, and who knows how
//! much a scan will want has that read at once. A block that the cache has is taken from it and ends no sequence.
//!
//! Invariants
//! - `key` and `value` describe the entry at `at` while `valid`; `next` is the offset behind it.
//! - `passed` holds entries of the current block only.
//!
//! Tests: `tests/table/reader.rs`, `tests/table/model.rs`.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use kelvin_base::key::{TRAILER_BYTES, compare_internal, split_internal};
use kelvin_base::{Error, InternalIterator, Result};

use crate::block::{Block, Malformed, RawEntry};
use crate::format::Handle;
use crate::reader::{ReadIo, Table, shrink_scratch};

/// How a table is scanned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanOptions {
    /// Most bytes read at once; 0 for one block at a time.
    pub readahead_bytes: usize,
    /// Read the full `readahead_bytes` from the first block on (compactions).
    pub sequential: bool,
    /// Bytes that will be wanted, forward, from where the cursor is first put: they are read at once, as far as
    /// `readahead_bytes` allows; 0 if nobody knows.
    pub expected_bytes: usize,
    /// Put blocks into the cache.
    pub fill_cache: bool,
}

/// Which way blocks are being loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// An entry that a walk to a later one has passed: moving back need not walk again.
#[derive(Clone, Debug)]
struct Passed {
    at: usize,
    next: usize,
    value: Range<usize>,
    /// End of its key in `TableIter::passed_keys`.
    key_end: usize,
}

/// A cursor over a table's entries.
pub struct TableIter {
    table: Arc<Table>,
    scan: ScanOptions,
    block: Option<Block>,
    /// Number of the block in `block`; `usize::MAX` if there is none.
    number: usize,
    /// Blocks read ahead, the first of them next to `number` in the direction.
    ahead: VecDeque<Block>,
    direction: Option<Direction>,
    /// Blocks loaded in sequence so far, those that were expected not counted.
    sequence: usize,
    /// What is left of [`ScanOptions::expected_bytes`].
    expected_bytes: usize,
    /// Offsets in the block: of the current entry, of the next.
    at: usize,
    next: usize,
    key: Vec<u8>,
    value: Range<usize>,
    valid: bool,
    /// Entries of this block before the current one, if it was reached from before; the last stands next to it.
    passed: Vec<Passed>,
    passed_keys: Vec<u8>,
    error: Option<Error>,
    io: ReadIo,
    /// It may have left a large read buffer with this thread.
    has_read_ahead: bool,
}

impl TableIter {
    /// A cursor that is nowhere yet.
    #[must_use]
    pub const fn new(table: Arc<Table>, scan: ScanOptions) -> Self {
        Self {
            table,
            expected_bytes: scan.expected_bytes,
            scan,
            block: None,
            number: usize::MAX,
            ahead: VecDeque::new(),
            direction: None,
            sequence: 0,
            at: 0,
            next: 0,
            key: Vec::new(),
            value: 0..0,
            valid: false,
            passed: Vec::new(),
            passed_keys: Vec::new(),
            error: None,
            io: ReadIo { reads: 0, bytes: 0, cache_hits: 0, filter_negatives: 0 },
            has_read_ahead: false,
        }
    }

    /// What is still to come of [`ScanOptions::expected_bytes`].
    #[must_use]
    pub const fn expected_bytes(&self) -> usize {
        self.expected_bytes
    }

    /// What it has read since the last time this was asked.
    pub fn take_io(&mut self) -> ReadIo {
        std::mem::take(&mut self.io)
    }

    #[inline]
    fn check(&self) -> Result<()> {
        match &self.error {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    #[cold]
    fn fail<T>(&mut self, error: Error) -> Result<T> {
        self.valid = false;
        self.error = Some(error.clone());
        Err(error)
    }

    #[cold]
    fn malformed<T>(&mut self, what: Malformed) -> Result<T> {
        let offset = self.table.index().handle(self.number).map_or(0, |handle| handle.offset);
        let error = Error::corruption(self.table.path(), offset, what);
        self.fail(error)
    }

    /// Makes block `number` current; false if there is none.
    fn load(&mut self, number: usize) -> Result<bool> {
        if self.block.is_some() && number == self.number {
            return Ok(true);
        }
        self.forget_passed();
        self.note_step(number);
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
                if self.expected_bytes > 0 {
                    self.expected_bytes = self.expected_bytes.saturating_sub(handle.len_with_trailer());
                    self.sequence = 1;
                }
                Ok(true)
            }
            Err(error) => {
                // What `pass_damaged_block` is to pass over.
                self.block = None;
                self.number = number;
                self.ahead.clear();
                self.fail(error)
            }
        }
    }

    /// After an error: the error, and the number of the block that could not be read, which is passed over; the cursor then stands on
    /// the first entry behind it, if that can be read. `None` without an error. To be called until it answers `None`.
    pub fn pass_damaged_block(&mut self) -> Option<(usize, Error)> {
        let error = self.error.take()?;
        let damaged = self.number;
        // Another block that cannot be read leaves its error for the next call.
        let _told_by_the_next_call = self.first_from(damaged.saturating_add(1));
        Some((damaged, error))
    }

    /// Keeps what was read ahead only while blocks are loaded one after the other in one direction.
    fn note_step(&mut self, number: usize) {
        let step = if number == self.number.wrapping_add(1) {
            Some(Direction::Forward)
        } else if number.wrapping_add(1) == self.number {
            Some(Direction::Backward)
        } else {
            None
        };
        if step.is_none() || (self.direction.is_some() && self.direction != step) {
            self.ahead.clear();
            self.sequence = 0;
        }
        self.direction = step;
    }

    /// Bytes to read at once from `handle` on.
    fn readahead_bytes(&self, handle: Handle) -> usize {
        if self.scan.sequential {
            self.scan.readahead_bytes
        } else if self.expected_bytes > 0 && self.direction != Some(Direction::Backward) {
            // The first of it may begin at the end of this block.
            self.expected_bytes.saturating_add(handle.len_with_trailer()).min(self.scan.readahead_bytes)
        } else if self.sequence > 2 {
            // 2, 4, 8 … blocks of 16 KiB: reading ahead follows what the scan has shown.
            let grown = (36 * 1024usize) << (self.sequence - 3).min(16);
            grown.min(self.scan.readahead_bytes)
        } else {
            0
        }
    }

    /// Block `number` and, if the scan has shown its direction, those next to it, with one device read.
    fn read(&mut self, number: usize, handle: Handle) -> Result<Block> {
        let limit = self.readahead_bytes(handle) as u64;
        let backward = self.direction == Some(Direction::Backward);
        if limit <= handle.len_with_trailer() as u64 {
            return self.table.block(handle, self.scan.fill_cache, &mut self.io);
        }
        if let Some(block) = self.table.cached(handle, &mut self.io) {
            return Ok(block);
        }
        self.has_read_ahead = true;
        let mut handles = vec![handle];
        let mut bytes = handle.len_with_trailer() as u64;
        loop {
            let count = handles.len();
            let next = if backward { number.checked_sub(count) } else { number.checked_add(count) };
            let Some(next) = next.and_then(|next| self.table.index().handle(next)) else { break };
            bytes += next.len_with_trailer() as u64;
            if bytes > limit {
                break;
            }
            handles.push(next);
        }
        if backward {
            handles.reverse();
        }
        let mut blocks: VecDeque<Block> =
            self.table.blocks(&handles, self.scan.fill_cache, &mut self.io)?.into();
        if backward {
            blocks.make_contiguous().reverse();
        } else {
            self.direction = Some(Direction::Forward);
        }
        self.ahead = blocks;
        match self.ahead.pop_front() {
            Some(block) => Ok(block),
            None => self.table.block(handle, self.scan.fill_cache, &mut self.io),
        }
    }

    /// Takes the entry at `offset` as the current one; `self.key` must hold the key before it.
    #[inline]
    fn take(&mut self, offset: usize) -> Result<bool> {
        let Some(block) = &self.block else { return Ok(false) };
        let entries = block.entries();
        if offset >= entries.end() {
            return Ok(false);
        }
        let entry = match entries.entry(offset) {
            Ok(entry) => entry,
            Err(what) => return self.malformed(what),
        };
        let RawEntry { shared, unshared, trailer, value_at, value, next } = entry;
        if shared > self.key.len().saturating_sub(TRAILER_BYTES) {
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

    fn forget_passed(&mut self) {
        self.passed.clear();
        self.passed_keys.clear();
    }

    /// In the current block, the last entry that begins before `offset`.
    fn walk_to_last_before(&mut self, offset: usize) -> Result<bool> {
        self.forget_passed();
        let Some(block) = &self.block else { return Ok(false) };
        let entries = block.entries();
        let end = offset.min(entries.end());
        if end == 0 {
            return Ok(false);
        }
        let mut at = match entries.restart_at_or_before(end - 1) {
            Ok(start) => start,
            Err(what) => return self.malformed(what),
        };
        self.key.clear();
        self.valid = false;
        while at < end && self.take(at)? {
            at = self.next;
            if at < end {
                self.passed_keys.extend_from_slice(&self.key);
                self.passed.push(Passed {
                    at: self.at,
                    next: self.next,
                    value: self.value.clone(),
                    key_end: self.passed_keys.len(),
                });
            }
        }
        Ok(self.valid)
    }

    /// Moves back to the entry passed last, if that stands right before the current one.
    fn step_back(&mut self) -> bool {
        match self.passed.pop() {
            Some(passed) if passed.next == self.at => {
                let start = self.passed.last().map_or(0, |before| before.key_end);
                self.key.clear();
                self.key.extend_from_slice(self.passed_keys.get(start..passed.key_end).unwrap_or(&[]));
                self.passed_keys.truncate(start);
                self.at = passed.at;
                self.next = passed.next;
                self.value = passed.value;
                self.valid = true;
                true
            }
            _ => false,
        }
    }
}

impl Drop for TableIter {
    fn drop(&mut self) {
        if self.has_read_ahead {
            shrink_scratch();
        }
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
        let Some(block) = &self.block else { return Ok(()) };
        let mut at = match block.entries().walk_start(target) {
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

    #[inline]
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
        if self.step_back() || (self.at > 0 && self.walk_to_last_before(self.at)?) {
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
