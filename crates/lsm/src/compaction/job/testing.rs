//! Tables in memory for tests of level cursors and jobs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use kelvin_base::hash::hash64_seeded;
use kelvin_base::key::compare_internal;
use kelvin_base::sync::Mutex;
use kelvin_base::{
    Error, Executor, HotKeys, HotTracker, KeyRange, ManualClock, ManualExecutor, NoTracker, RangeTombstone,
    Result, Sequence, Tier,
};
use kelvin_storage::memory::MemoryStorage;
use kelvin_storage::{Create, IoMode, Storage};
use kelvin_table::{Fragments, Table, TableOptions, TableWriter};

use super::{JobContext, JobTable, NewTable, Outputs};
use crate::iter::testing::NOW_MS;
use crate::iter::{DbIter, LevelIter, Sight};
use crate::tiers::Purpose;
use crate::version::{TableFile, TableMeta, TableOpener};

pub type Entry = (Vec<u8>, Vec<u8>);

/// A tracker for which a fixed part of all keys is hot.
#[derive(Debug)]
pub struct HashTracker {
    pub seed: u64,
    /// Of 256.
    pub hot: u64,
}

impl HotTracker for HashTracker {
    fn access(&self, _: &[u8], _: usize) {}

    fn is_hot(&self, key: &[u8]) -> bool {
        hash64_seeded(self.seed, key) % 256 < self.hot
    }

    fn hot_size(&self, _: KeyRange<'_>) -> u64 {
        0
    }

    fn hot_keys(&self, _: KeyRange<'_>) -> Box<dyn HotKeys + '_> {
        Box::new(NoTracker)
    }

    fn catch_up(&self) {}

    fn turn(&self) -> u64 {
        0
    }
}

/// Table files on a storage.
#[derive(Debug)]
pub struct TestFiles {
    pub storage: Arc<dyn Storage>,
    pub options: TableOptions,
    next: AtomicU64,
    /// Tables opened so far.
    pub opens: AtomicUsize,
    /// What whoever made a table was doing.
    pub purposes: Mutex<Vec<Purpose>>,
}

impl TestFiles {
    pub fn new() -> Arc<Self> {
        Self::on(Arc::new(MemoryStorage::new()))
    }

    pub fn on(storage: Arc<dyn Storage>) -> Arc<Self> {
        Self::with_blocks(storage, 64)
    }

    pub fn with_blocks(storage: Arc<dyn Storage>, block_size_bytes: usize) -> Arc<Self> {
        for tier in Tier::ALL {
            storage.create_dir_all(&dir(tier)).unwrap();
        }
        let options = TableOptions { block_size_bytes, ..TableOptions::default() };
        Arc::new(Self {
            storage,
            options,
            next: AtomicU64::new(1),
            opens: AtomicUsize::new(0),
            purposes: Mutex::default(),
        })
    }

    /// Writes a table.
    pub fn table(
        self: &Arc<Self>,
        tier: Tier,
        mut entries: Vec<Entry>,
        tombstones: &[RangeTombstone],
    ) -> Arc<TableFile> {
        entries.sort_by(|a, b| compare_internal(&a.0, &b.0));
        let NewTable { number, path, file, .. } = self.create(tier).unwrap();
        let mut writer = TableWriter::new(file, &path, number, self.options);
        for (key, stored) in &entries {
            writer.add(key, stored).unwrap();
        }
        for stone in tombstones {
            writer.add_tombstone(stone.clone());
        }
        let properties = writer.finish().unwrap();
        self.file(&JobTable { number, tier, properties })
    }

    pub fn file(self: &Arc<Self>, table: &JobTable) -> Arc<TableFile> {
        Arc::new(TableFile::new(table.meta(), Arc::clone(self) as Arc<dyn TableOpener>))
    }

    pub fn context(self: &Arc<Self>, snapshots: Vec<Sequence>) -> JobContext {
        self.context_on(snapshots, Arc::new(ManualExecutor::new()))
    }

    pub fn context_on(self: &Arc<Self>, snapshots: Vec<Sequence>, executor: Arc<dyn Executor>) -> JobContext {
        JobContext {
            outputs: Arc::clone(self) as Arc<dyn Outputs>,
            executor,
            clock: Arc::new(ManualClock::new(NOW_MS)),
            options: self.options,
            snapshots,
            deeper: Vec::new(),
            range: (None, None),
            readahead_bytes: [256, 512],
            memory: None,
            cancel: Arc::new(AtomicBool::new(false)),
            limiter: None,
            progress: Arc::default(),
            retention: None,
            cooling: None,
        }
    }

    /// Names of all files.
    pub fn names(&self) -> Vec<PathBuf> {
        let of =
            |tier| self.storage.list(&dir(tier)).unwrap().into_iter().map(move |name| dir(tier).join(name));
        Tier::ALL.into_iter().flat_map(of).collect()
    }
}

fn dir(tier: Tier) -> PathBuf {
    Path::new("/store").join(tier.to_string())
}

fn path(tier: Tier, number: u64) -> PathBuf {
    dir(tier).join(format!("{number:06}.tbl"))
}

impl Outputs for TestFiles {
    fn create(&self, tier: Tier) -> Result<NewTable> {
        self.purposes.lock().push(Purpose::current());
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = path(tier, number);
        let file = self.storage.create(&path, Create::new(IoMode::Buffered));
        let file = file.map_err(|source| Error::io("making a table", &path, source))?;
        Ok(NewTable { number, path, file, buffer_bytes: 0 })
    }

    fn sync_dir(&self, tier: Tier) -> Result<()> {
        let dir = dir(tier);
        self.storage.sync_dir(&dir).map_err(|source| Error::io("syncing a directory", &dir, source))
    }

    fn remove(&self, tier: Tier, number: u64) {
        self.storage.remove(&path(tier, number)).unwrap();
    }
}

impl TableOpener for TestFiles {
    fn open(&self, meta: &TableMeta) -> Result<Arc<Table>> {
        self.opens.fetch_add(1, Ordering::Relaxed);
        let path = path(meta.tier, meta.number);
        let file = self.storage.open(&path, IoMode::Buffered);
        let file = file.map_err(|source| Error::io("opening a table", &path, source))?;
        Ok(Arc::new(Table::open(file, &path, meta.number, meta.size_bytes, meta.tail_bytes, None)?))
    }

    fn delete(&self, _meta: &TableMeta) {}
}

/// Levels of tables: L0 newest first, deeper ones disjoint and sorted.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    pub levels: Vec<Vec<Arc<TableFile>>>,
}

impl Tree {
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableFile>> {
        self.levels.iter().flatten()
    }

    /// The range tombstones of all tables.
    pub fn tombstones(&self) -> Vec<Arc<Fragments>> {
        let sets = self.tables().filter_map(|file| file.table().unwrap().tombstones().map(Arc::clone));
        sets.collect()
    }

    /// What a reader at `at` sees.
    pub fn read(&self, at: Sequence) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut sources = Vec::new();
        for (level, files) in self.levels.iter().enumerate() {
            if level == 0 {
                let one = |file| LevelIter::of_files(vec![Arc::clone(file)], Default::default());
                sources.extend(files.iter().map(one));
            } else {
                sources.push(LevelIter::of_files(files.clone(), Default::default()));
            }
        }
        let sight = Sight { at, now_ms: NOW_MS, lower: None, upper: None };
        let mut iter = DbIter::new(sources, self.tombstones(), sight);
        let mut seen = Vec::new();
        iter.seek_to_first().unwrap();
        while iter.valid() {
            seen.push((iter.key().to_vec(), iter.value().to_vec()));
            iter.next().unwrap();
        }
        seen
    }
}

/// All entries of a table, in order.
pub fn entries_of(file: &Arc<TableFile>) -> Vec<Entry> {
    use kelvin_base::InternalIterator;
    let mut iter = file.table().unwrap().share().iter(Default::default());
    let mut entries = Vec::new();
    iter.seek_to_first().unwrap();
    while iter.valid() {
        entries.push((iter.key().to_vec(), iter.value().to_vec()));
        iter.next().unwrap();
    }
    entries
}
