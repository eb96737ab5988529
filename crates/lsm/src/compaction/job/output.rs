//! The output tables of one part of a merge: when they are cut, and which range tombstones each gets.
//!
//! Invariants
//! - O1 Tables are cut only between user keys.
//! - O2 A part's key range is cut into the tables' ranges without gap or overlap; each table gets the range
//!   tombstones clipped to its own, so tables stay disjoint, tombstone extents included.
//! - O3 No table is empty; range tombstones alone make a table.
//!
//! Tests: `tests.rs`.

use std::sync::Arc;

use bytes::Bytes;
use kelvin_base::{Result, Tier};
use kelvin_table::{Fragments, TableOptions, TableWriter};

use super::{JobContext, JobTable, Made, NewTable, Outputs};
use crate::memory::{MemoryBudget, MemoryCharge, MemoryPart};
use crate::version::TableFile;

/// What a part's tables depend on.
#[derive(Debug)]
pub struct Shape<'a> {
    /// Where tables go.
    pub tier: Tier,
    /// How they are made.
    pub options: TableOptions,
    /// Their size, bytes.
    pub target_bytes: u64,
    /// Bytes of `grandparents` that a table should not pass.
    pub overlap_bytes_max: u64,
    /// The tables below the output, in key order.
    pub grandparents: &'a [Arc<TableFile>],
    /// The range tombstones to keep.
    pub tombstones: &'a Fragments,
    /// First user key of the part; `None` for no bound.
    pub lower: Option<Bytes>,
    /// First user key behind the part; `None` for no bound.
    pub upper: Option<Bytes>,
}

impl<'a> Shape<'a> {
    /// Tables of `target_bytes` on the fast tier, cut by nothing else, with these range tombstones.
    pub const fn plain(options: TableOptions, target_bytes: u64, tombstones: &'a Fragments) -> Self {
        Self {
            tier: Tier::Fast,
            options,
            target_bytes,
            overlap_bytes_max: u64::MAX,
            grandparents: &[],
            tombstones,
            lower: None,
            upper: None,
        }
    }
}

struct Open {
    number: u64,
    writer: TableWriter,
    buffer_bytes: usize,
    memory: Option<MemoryCharge>,
}

impl Open {
    fn memory_bytes(&self) -> u64 {
        (self.buffer_bytes + self.writer.memory_bytes()) as u64
    }
}

/// Writes the tables of one part.
pub struct OutputWriter<'a> {
    shape: Shape<'a>,
    outputs: &'a dyn Outputs,
    made: &'a Made,
    memory: Option<MemoryBudget>,
    open: Option<Open>,
    /// Where the open, or the next, table's range begins.
    begin: Option<Bytes>,
    grandparent: usize,
    overlapped_bytes: u64,
    /// What the open table had when the last one below that it passes ended.
    ended_bytes: u64,
    tables: Vec<JobTable>,
}

impl<'a> OutputWriter<'a> {
    /// Writes tables of `shape` as `ctx` says, and notes their files in `made`.
    pub fn new(shape: Shape<'a>, ctx: &'a JobContext, made: &'a Made) -> Self {
        let begin = shape.lower.clone();
        let grandparent = begin
            .as_ref()
            .map_or(0, |begin| shape.grandparents.partition_point(|file| !file.meta.reaches(begin)));
        let (outputs, memory, tables) = (&*ctx.outputs, ctx.memory.clone(), Vec::new());
        Self {
            shape,
            outputs,
            made,
            memory,
            open: None,
            begin,
            grandparent,
            overlapped_bytes: 0,
            ended_bytes: 0,
            tables,
        }
    }

    /// Writes an entry. `first_of_key`: none of its user key was written before.
    ///
    /// # Errors
    /// The output file's.
    pub fn add(
        &mut self,
        user_key: &[u8],
        first_of_key: bool,
        internal_key: &[u8],
        stored: &[u8],
    ) -> Result<()> {
        if first_of_key && self.is_full(user_key) {
            self.cut(Some(Bytes::copy_from_slice(user_key)))?;
        }
        let open = match self.open.take() {
            Some(open) => open,
            None => self.create()?,
        };
        self.open.insert(open).writer.add(internal_key, stored)
    }

    /// True if the open table should end before `user_key`.
    fn is_full(&mut self, user_key: &[u8]) -> bool {
        let before = self.grandparent;
        while let Some(file) = self.shape.grandparents.get(self.grandparent)
            && !file.meta.reaches(user_key)
        {
            self.overlapped_bytes += if self.open.is_some() { file.meta.size_bytes } else { 0 };
            self.grandparent += 1;
        }
        let Some(open) = &self.open else { return false };
        let bytes = open.writer.estimated_size_bytes();
        // What a block takes is less once it is compressed.
        let span_bytes = bytes.saturating_sub(self.ended_bytes);
        if self.grandparent > before {
            self.ended_bytes = bytes;
        }
        bytes >= self.shape.target_bytes
            || self.overlapped_bytes > self.shape.overlap_bytes_max
            || self.grandparent > before && self.is_last_to_align(bytes, span_bytes)
    }

    /// True if the open table, at the end of one below that took `span_bytes` of it, is better cut here: it is half full, and would be
    /// full before the next one below ends. Cut in the middle of one below, it and the table after it would both write that one
    /// anew when they move on.
    const fn is_last_to_align(&self, bytes: u64, span_bytes: u64) -> bool {
        bytes >= self.shape.target_bytes / 2 && bytes.saturating_add(span_bytes) > self.shape.target_bytes
    }

    fn create(&self) -> Result<Open> {
        let NewTable { number, path, file, buffer_bytes } = self.outputs.create(self.shape.tier)?;
        self.made.note(self.shape.tier, number);
        let writer = TableWriter::new(file, &path, number, self.shape.options);
        let mut open = Open { number, writer, buffer_bytes, memory: None };
        open.memory =
            self.memory.as_ref().map(|memory| memory.charge(MemoryPart::Writers, open.memory_bytes()));
        Ok(open)
    }

    /// Ends the open table's range at `end` and finishes it.
    fn cut(&mut self, end: Option<Bytes>) -> Result<()> {
        let begin = std::mem::replace(&mut self.begin, end.clone());
        let stones = if self.shape.tombstones.is_empty() {
            Fragments::default()
        } else {
            self.shape.tombstones.clip(begin.as_deref(), end.as_deref())
        };
        (self.overlapped_bytes, self.ended_bytes) = (0, 0);
        let Open { number, mut writer, memory: _counted, .. } = match self.open.take() {
            Some(open) => open,
            None if stones.is_empty() => return Ok(()),
            None => self.create()?,
        };
        for stone in stones.tombstones() {
            writer.add_tombstone(stone);
        }
        let properties = writer.finish()?;
        self.tables.push(JobTable { number, tier: self.shape.tier, properties });
        Ok(())
    }

    /// Bytes of the open table so far.
    pub fn open_bytes(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.writer.estimated_size_bytes())
    }

    /// Counts the memory of the open table anew.
    pub fn count_memory(&mut self) {
        if let Some(open) = &mut self.open {
            let bytes = open.memory_bytes();
            if let Some(memory) = &mut open.memory {
                memory.resize(bytes);
            }
        }
    }

    /// Finished tables.
    pub const fn finished(&self) -> usize {
        self.tables.len()
    }

    /// Bytes of the finished tables.
    pub fn finished_bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.properties.size_bytes).sum()
    }

    /// Finishes the last table; all tables, in key order.
    ///
    /// # Errors
    /// The output file's.
    pub fn finish(mut self) -> Result<Vec<JobTable>> {
        let upper = self.shape.upper.clone();
        self.cut(upper)?;
        Ok(self.tables)
    }
}
