//! A cursor over disjoint sorted tables that opens a table when it gets there.
//!
//! In:  one level of a version, or any list of disjoint tables in key order (one L0 table, a compaction's inputs).
//! Out: their entries in internal-key order.
//!
//! Invariants
//! - L1 A seek opens the one table that may hold the target, and the next one only if that has nothing behind it.
//! - L2 Bounds are hints: tables that lie wholly outside are not opened, entries outside may still be yielded.
//! - L3 The first error is kept: the cursor is invalid for good and every move repeats it.
//!
//! Tests: `level_tests.rs`.

use std::sync::Arc;

use bytes::Bytes;
use kelvin_base::key::user_key;
use kelvin_base::{Error, InternalIterator, Result, Tier};
use kelvin_table::{ReadIo, ScanOptions, TableIter};

use crate::version::{TableFile, Version};

/// Where the tables come from.
#[derive(Clone, Debug)]
enum Run {
    Level(Arc<Version>, usize),
    Files(Vec<Arc<TableFile>>),
}

/// A cursor over disjoint sorted tables.
pub struct LevelIter {
    run: Run,
    scan: ScanOptions,
    lower: Option<Bytes>,
    upper: Option<Bytes>,
    /// The open table and its index; kept while the cursor is off an entry, for the next seek.
    open: Option<(usize, TableIter)>,
    valid: bool,
    /// What tables left behind have read, by tier.
    io: [ReadIo; 2],
    error: Option<Error>,
}

impl LevelIter {
    /// A cursor over `level` (1 or deeper) of `version`, not positioned.
    #[must_use]
    pub const fn of_level(version: Arc<Version>, level: usize, scan: ScanOptions) -> Self {
        Self::new(Run::Level(version, level), scan)
    }

    /// A cursor over `files`, which must be disjoint and in key order, not positioned.
    #[must_use]
    pub const fn of_files(files: Vec<Arc<TableFile>>, scan: ScanOptions) -> Self {
        Self::new(Run::Files(files), scan)
    }

    const fn new(run: Run, scan: ScanOptions) -> Self {
        let none = ReadIo { reads: 0, bytes: 0, cache_hits: 0, filter_negatives: 0 };
        Self { run, scan, lower: None, upper: None, open: None, valid: false, io: [none, none], error: None }
    }

    /// Tables wholly below `lower`, or at `upper` and above, need not be opened.
    #[must_use]
    pub fn bounded(mut self, lower: Option<Bytes>, upper: Option<Bytes>) -> Self {
        (self.lower, self.upper) = (lower, upper);
        self
    }

    fn files(&self) -> &[Arc<TableFile>] {
        match &self.run {
            Run::Level(version, level) => version.levels.get(*level).map_or(&[], |level| &level.tables),
            Run::Files(files) => files,
        }
    }

    /// What was read since this was last asked, by tier.
    pub fn take_io(&mut self) -> [ReadIo; 2] {
        self.collect_io();
        std::mem::take(&mut self.io)
    }

    fn collect_io(&mut self) {
        let Some((index, read)) = self.open.as_mut().map(|(index, iter)| (*index, iter.take_io())) else {
            return;
        };
        let tier = self.files().get(index).map_or(Tier::Fast, |file| file.meta.tier);
        let sum = &mut self.io[tier.index()];
        sum.reads += read.reads;
        sum.bytes += read.bytes;
        sum.cache_hits += read.cache_hits;
        sum.filter_negatives += read.filter_negatives;
    }

    /// Makes table `index`, which must be there, the open one.
    fn open(&mut self, index: usize) -> Result<&mut TableIter> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != index) {
            self.collect_io();
            let mut scan = self.scan;
            if let Some((before, iter)) = self.open.take()
                && before + 1 == index
            {
                scan.expected_bytes = iter.expected_bytes();
            }
            let table = self.files()[index].table()?.share();
            let iter = table.iter(scan);
            self.open = Some((index, iter));
        }
        match &mut self.open {
            Some((_, iter)) => Ok(iter),
            None => Err(Error::invalid("a table cursor was lost")),
        }
    }

    /// Stands on the first entry of table `index` or a later one.
    fn first_from(&mut self, mut index: usize) -> Result<()> {
        while let Some(file) = self.files().get(index) {
            if self.upper.as_ref().is_some_and(|upper| file.meta.smallest >= *upper) {
                return Ok(());
            }
            let iter = self.open(index)?;
            iter.seek_to_first()?;
            if iter.valid() {
                self.valid = true;
                return Ok(());
            }
            index += 1;
        }
        Ok(())
    }

    /// Stands on the last entry of a table before `end`.
    fn last_before(&mut self, end: usize) -> Result<()> {
        for index in (0..end.min(self.files().len())).rev() {
            if self.lower.as_ref().is_some_and(|lower| !self.files()[index].meta.reaches(lower)) {
                return Ok(());
            }
            let iter = self.open(index)?;
            iter.seek_to_last()?;
            if iter.valid() {
                self.valid = true;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Runs a move: repeats a kept error, keeps a new one.
    fn run(&mut self, step: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        self.valid = false;
        let outcome = step(self).map_err(|error| self.classify(error));
        if let Err(error) = &outcome {
            self.valid = false;
            self.error = Some(error.clone());
        }
        outcome
    }

    /// A failure in the terms of the tier of the table being read.
    fn classify(&self, error: Error) -> Error {
        match self.open.as_ref().and_then(|(index, _)| self.files().get(*index)) {
            Some(file) => file.classify(error),
            None => error,
        }
    }

    /// Index of the first table that reaches the user key of `target`.
    fn first_reaching(&self, target: &[u8]) -> usize {
        let target = user_key(target);
        self.files().partition_point(|file| !file.meta.reaches(target))
    }
}

impl InternalIterator for LevelIter {
    fn seek_to_first(&mut self) -> Result<()> {
        self.run(|this| this.first_from(0))
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.run(|this| this.last_before(usize::MAX))
    }

    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.run(|this| {
            let index = this.first_reaching(target);
            let Some(file) = this.files().get(index) else { return Ok(()) };
            if file.meta.smallest.as_ref() > user_key(target) {
                return this.first_from(index);
            }
            let iter = this.open(index)?;
            iter.seek(target)?;
            if iter.valid() {
                this.valid = true;
                return Ok(());
            }
            this.first_from(index + 1)
        })
    }

    fn seek_before(&mut self, target: &[u8]) -> Result<()> {
        self.run(|this| {
            let index = this.first_reaching(target);
            let inside =
                this.files().get(index).is_some_and(|file| file.meta.smallest.as_ref() <= user_key(target));
            if inside {
                let iter = this.open(index)?;
                iter.seek_before(target)?;
                if iter.valid() {
                    this.valid = true;
                    return Ok(());
                }
            }
            this.last_before(index)
        })
    }

    fn next(&mut self) -> Result<()> {
        if !self.valid {
            return self.error.as_ref().map_or(Ok(()), |error| Err(error.clone()));
        }
        let Some((index, iter)) = &mut self.open else { return Ok(()) };
        let (index, moved) = (*index, iter.next());
        if moved.is_ok() && iter.valid() {
            return Ok(());
        }
        self.run(|this| {
            moved?;
            this.first_from(index + 1)
        })
    }

    fn prev(&mut self) -> Result<()> {
        if !self.valid {
            return self.error.as_ref().map_or(Ok(()), |error| Err(error.clone()));
        }
        let Some((index, iter)) = &mut self.open else { return Ok(()) };
        let (index, moved) = (*index, iter.prev());
        if moved.is_ok() && iter.valid() {
            return Ok(());
        }
        self.run(|this| {
            moved?;
            this.last_before(index)
        })
    }

    fn valid(&self) -> bool {
        self.valid
    }

    fn key(&self) -> &[u8] {
        match &self.open {
            Some((_, iter)) if self.valid => iter.key(),
            _ => &[],
        }
    }

    fn value(&self) -> &[u8] {
        match &self.open {
            Some((_, iter)) if self.valid => iter.value(),
            _ => &[],
        }
    }
}

impl std::fmt::Debug for LevelIter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let open = self.open.as_ref().map(|(index, _)| index);
        f.debug_struct("LevelIter").field("open", &open).field("valid", &self.valid).finish_non_exhaustive()
    }
}
