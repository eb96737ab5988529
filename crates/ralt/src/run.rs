//! A sorted file of access records, with what is kept in memory of it: index, filter of hot keys, prefix sums.
//!
//! A run is a table (docs/formats/table.md) whose filter knows the hot keys only, and whose annotation holds the sizes and, for
//! each data block, the HotRAP size of the hot keys in all blocks before it (paper §3.2). Which keys are hot was decided when
//! the run was written; a key that cooled down since is found out at the next merge.
//!
//! Invariant: the file goes when the last user of an obsolete run does. Tests: `tests.rs`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kelvin_base::coding::{get_varint, put_varint};
use kelvin_base::key::trailer;
use kelvin_base::{Error, KeyRange, Kind, Result};
use kelvin_storage::{Create, IoMode, Storage};
use kelvin_table::{ScanOptions, Table, TableIter, TableOptions, TableWriter};

use crate::merge::How;
use crate::options::io_bytes_of_many;
use crate::record::{Record, physical_size};
use crate::state::NUMBER_MAX;

/// Bytes of a data block (paper §3.2).
const BLOCK_BYTES: usize = 8 << 10;
/// Every record has this trailer: a run holds a key once.
const TRAILER: u64 = trailer(0, Kind::Value as u8);

/// Sums over records. Sizes leave out the records of *known* keys, those that a deeper run has as hot when this one is written: a
/// key that is accessed all the time lies in many runs, and counts in the deepest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Records.
    pub records: u64,
    /// HotRAP size of them all.
    pub hotrap_bytes: u64,
    /// Physical size of them all.
    pub physical_bytes: u64,
    /// Records that are hot.
    pub hot_records: u64,
    /// HotRAP size of those.
    pub hot_bytes: u64,
}

impl Sizes {
    /// Adds what `other` has.
    pub fn add(&mut self, other: &Self) {
        self.records += other.records;
        self.hotrap_bytes += other.hotrap_bytes;
        self.physical_bytes += other.physical_bytes;
        self.hot_records += other.hot_records;
        self.hot_bytes += other.hot_bytes;
    }

    /// Adds a record.
    pub fn see(&mut self, key: &[u8], record: &Record, is_hot: bool, is_known: bool) {
        self.records += 1;
        self.hot_records += u64::from(is_hot);
        if is_known {
            return;
        }
        self.hotrap_bytes += record.hotrap_size(key);
        self.physical_bytes += physical_size(key);
        if is_hot {
            self.hot_bytes += record.hotrap_size(key);
        }
    }

    /// HotRAP size of as many such records as have this physical size.
    pub fn in_hotrap_bytes(&self, physical_bytes: u64) -> u64 {
        let bytes = u128::from(physical_bytes) * u128::from(self.hotrap_bytes);
        u64::try_from(bytes / u128::from(self.physical_bytes.max(1))).unwrap_or(u64::MAX)
    }
}

/// Where runs lie and how they are made.
#[derive(Clone, Debug)]
pub struct Shelf {
    /// The device.
    pub storage: Arc<dyn Storage>,
    /// The directory.
    pub dir: PathBuf,
    /// How their bytes travel.
    pub io: IoMode,
    /// Filter bits a hot key.
    pub filter_bits_per_key: u32,
    /// What is read of a run at once by merges, and gathered before it is written, bytes.
    pub io_bytes: usize,
}

impl Shelf {
    /// Where the run `number` lies.
    pub fn path(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{number:06}.ralt"))
    }

    /// Removes the file of run `number`. What cannot be removed now is at the next opening.
    pub fn remove(&self, number: u64) {
        let _left_for_later = self.storage.remove(&self.path(number));
    }
}

/// A run being written.
pub struct RunWriter {
    shelf: Shelf,
    number: u64,
    path: PathBuf,
    writer: TableWriter,
    sizes: Sizes,
    sums: Vec<u64>,
    stored: Vec<u8>,
}

impl RunWriter {
    /// A run `number` on `shelf`.
    ///
    /// # Errors
    /// The device's.
    pub fn new(shelf: &Shelf, number: u64) -> Result<Self> {
        let path = shelf.path(number);
        let how = Create { buffer_bytes: shelf.io_bytes, ..Create::new(shelf.io) };
        let file = shelf.storage.create(&path, how);
        let file = file.map_err(|source| Error::io("making a run of the hot-key tracker", &path, source))?;
        let options = TableOptions {
            block_size_bytes: BLOCK_BYTES,
            filter_bits_per_key: shelf.filter_bits_per_key,
            ..TableOptions::default()
        };
        let writer = TableWriter::new(file, &path, number, options);
        let (sizes, sums) = (Sizes::default(), Vec::new());
        Ok(Self { shelf: shelf.clone(), number, path, writer, sizes, sums, stored: Vec::new() })
    }

    /// Adds a record, behind the last one.
    ///
    /// # Errors
    /// As [`TableWriter::add_split`].
    pub fn add(&mut self, key: &[u8], record: &Record, is_hot: bool, is_known: bool) -> Result<()> {
        self.stored.clear();
        record.encode(&mut self.stored);
        self.writer.add_split(key, TRAILER, &self.stored, is_hot)?;
        let block = usize::try_from(self.writer.data_block()).unwrap_or(usize::MAX);
        if self.sums.len() <= block {
            self.sums.push(self.sizes.hot_bytes);
        }
        self.sizes.see(key, record, is_hot, is_known);
        Ok(())
    }

    /// Bytes of the file if it were finished now, roughly.
    pub fn estimated_size_bytes(&self) -> u64 {
        self.writer.estimated_size_bytes()
    }

    /// Finishes and opens it.
    ///
    /// # Errors
    /// The device's.
    pub fn finish(mut self) -> Result<Arc<Run>> {
        self.writer.annotate(annotation(&self.sizes, &self.sums));
        let facts = self.writer.finish()?;
        Run::open(&self.shelf, self.number, facts.size_bytes).map(Arc::new)
    }

    /// Removes what was written.
    pub fn discard(self) {
        let Self { shelf, number, writer, .. } = self;
        drop(writer);
        shelf.remove(number);
    }
}

impl fmt::Debug for RunWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunWriter")
            .field("path", &self.path)
            .field("sizes", &self.sizes)
            .finish_non_exhaustive()
    }
}

/// Sizes and prefix sums: varints, the sums as differences.
fn annotation(sizes: &Sizes, sums: &[u64]) -> Vec<u8> {
    let mut out = Vec::with_capacity(32 + 3 * sums.len());
    let Sizes { records, hotrap_bytes, physical_bytes, hot_records, hot_bytes } = *sizes;
    for number in [records, hotrap_bytes, physical_bytes, hot_records, hot_bytes, sums.len() as u64] {
        put_varint(&mut out, number);
    }
    let mut before = 0;
    for &sum in sums {
        put_varint(&mut out, sum - before);
        before = sum;
    }
    out
}

/// Sizes, and for each block the HotRAP size of the hot keys before it.
type Annotation = (Sizes, Vec<u64>);

/// The reverse of [`annotation`]; `None` if malformed.
fn read_annotation(mut bytes: &[u8]) -> Option<Annotation> {
    let input = &mut bytes;
    let mut numbers = [0; 6];
    for number in &mut numbers {
        *number = get_varint(input)?;
    }
    let [records, hotrap_bytes, physical_bytes, hot_records, hot_bytes, blocks] = numbers;
    // A difference takes a byte at least.
    let blocks = usize::try_from(blocks).ok().filter(|&blocks| blocks <= input.len())?;
    let mut sums = Vec::with_capacity(blocks);
    let mut sum: u64 = 0;
    for _ in 0..blocks {
        sum = sum.checked_add(get_varint(input)?)?;
        sums.push(sum);
    }
    let is_small = numbers.iter().all(|&number| number <= NUMBER_MAX);
    let is_sound = input.is_empty() && is_small && sum <= hot_bytes && hot_records <= records;
    is_sound.then_some((Sizes { records, hotrap_bytes, physical_bytes, hot_records, hot_bytes }, sums))
}

/// What an annotation says, and what it says once it was written and read again.
pub fn reread_annotation(bytes: &[u8]) -> Option<(Annotation, Option<Annotation>)> {
    let first = read_annotation(bytes)?;
    let again = read_annotation(&annotation(&first.0, &first.1));
    Some((first, again))
}

/// A sorted file of access records.
pub struct Run {
    shelf: Shelf,
    number: u64,
    file_bytes: u64,
    table: Arc<Table>,
    sizes: Sizes,
    sums: Vec<u64>,
    is_obsolete: AtomicBool,
}

impl Run {
    /// Opens the run `number` of `file_bytes`.
    ///
    /// # Errors
    /// `Corruption` if it is damaged or no run, else the device's.
    pub fn open(shelf: &Shelf, number: u64, file_bytes: u64) -> Result<Self> {
        let path = shelf.path(number);
        let file = shelf.storage.open(&path, shelf.io);
        let file = file.map_err(|source| Error::io("opening a run of the hot-key tracker", &path, source))?;
        let table = Table::open(file, &path, number, file_bytes, 0, None)?;
        let facts = table.properties();
        let wrong = || Error::corruption(&path, 0, "a table of the hot-key tracker is annotated wrongly");
        let (sizes, sums) = read_annotation(&facts.annotation).ok_or_else(wrong)?;
        if sizes.records != facts.entries || sums.len() as u64 != facts.data_blocks {
            return Err(wrong());
        }
        let (shelf, table) = (shelf.clone(), Arc::new(table));
        Ok(Self { shelf, number, file_bytes, table, sizes, sums, is_obsolete: AtomicBool::new(false) })
    }

    /// Number of its file.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Length of its file.
    pub const fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Sums over its records.
    pub const fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Its first key.
    pub fn first(&self) -> &[u8] {
        &self.table.properties().smallest
    }

    /// Its last key.
    pub fn last(&self) -> &[u8] {
        &self.table.properties().largest
    }

    /// Memory that it pins, bytes.
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes() + self.sums.len() * size_of::<u64>() + size_of::<Self>()
    }

    /// True if `key`, of this hash, was hot when the run was written, and rarely if it was not.
    pub fn is_hot(&self, key: &[u8], hash: u64) -> bool {
        // A filter of no key at all would answer for every key.
        self.sizes.hot_records > 0
            && self.table.may_contain(hash)
            && self.first() <= key
            && key <= self.last()
    }

    /// HotRAP size of the hot keys in `range`, without a read: of the blocks at its edges a half is taken.
    pub fn hot_size(&self, range: KeyRange<'_>) -> u64 {
        if range.ends_before(self.first()) || range.start > self.last() {
            return 0;
        }
        let end = match range.end {
            std::ops::Bound::Included(key) | std::ops::Bound::Excluded(key) => self.middle_of(key),
            std::ops::Bound::Unbounded => 2 * self.sizes.hot_bytes,
        };
        let start = if range.start <= self.first() { 0 } else { self.middle_of(range.start) };
        end.saturating_sub(start) / 2
    }

    /// Twice the HotRAP size of the hot keys before the middle of the block that may hold `key`.
    fn middle_of(&self, key: &[u8]) -> u64 {
        if key > self.last() {
            return 2 * self.sizes.hot_bytes;
        }
        let before = |block: usize| self.sums.get(block).copied().unwrap_or(self.sizes.hot_bytes);
        let block = self.table.block_of(key);
        before(block) + before(block + 1)
    }

    /// A cursor over its records.
    pub fn iter(&self, how: How) -> TableIter {
        let readahead_bytes =
            if how == How::MergeOfMany { io_bytes_of_many(self.shelf.io_bytes) } else { self.shelf.io_bytes };
        self.table.iter(ScanOptions {
            readahead_bytes,
            sequential: how != How::Some,
            ..ScanOptions::default()
        })
    }

    /// Its table's path.
    pub fn path(&self) -> &Path {
        self.table.path()
    }

    /// The file goes when the last user has gone.
    pub fn retire(&self) {
        self.is_obsolete.store(true, Ordering::Relaxed);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if *self.is_obsolete.get_mut() {
            self.shelf.remove(self.number);
        }
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("number", &self.number)
            .field("sizes", &self.sizes)
            .finish_non_exhaustive()
    }
}
