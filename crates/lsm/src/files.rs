//! The store's tables as files: where they lie, how they are opened, and when they go.
//!
//! Opening pins a table's index and filter, which the memory budget accounts for; blocks go through the one block
//! cache. A table's file is removed when the last version, iterator and lookup let go of it, and never before the
//! manifest edit that drops it is durable (RELIABILITY M2).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashMap;
use kelvin_base::{Error, ErrorKind, Executor, Lane, Result, Signal, Tier};
use kelvin_cache::{ByteCache, Weigh};
use kelvin_storage::{Create, IoMode, WriteFile};
use kelvin_table::{Block, BlockCache, Table};
use parking_lot::Mutex;

use crate::memory::{MemoryBudget, MemoryCharge, MemoryPart};
use crate::options::Config;
use crate::space::Space;
use crate::tiers::{Purpose, TierHandle};
use crate::version::{TableMeta, TableOpener};

/// Key of a block: file number and offset.
type BlockKey = (u64, u64);

/// A block as the cache weighs it.
#[derive(Clone, Debug)]
struct Cached(Block);

impl Weigh for Cached {
    fn heap_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

/// The block cache as tables see it.
#[derive(Debug)]
pub struct Blocks {
    cache: ByteCache<BlockKey, Cached>,
}

impl Blocks {
    /// A cache of `capacity_bytes` for blocks of about `block_bytes`.
    #[must_use]
    pub fn new(capacity_bytes: u64, block_bytes: u64, seed: u64) -> Self {
        Self { cache: ByteCache::new(capacity_bytes, block_bytes, seed) }
    }
}

impl BlockCache for Blocks {
    fn get(&self, file: u64, offset: u64) -> Option<Block> {
        self.cache.get(&(file, offset)).map(|Cached(block)| block)
    }

    fn insert(&self, file: u64, offset: u64, block: Block) {
        self.cache.insert((file, offset), Cached(block));
    }
}

/// The tables of a store.
#[derive(Debug)]
pub struct Files {
    /// Both tiers; the slow one if there is one.
    pub tiers: [Option<TierHandle>; 2],
    /// Blocks in memory.
    pub blocks: Arc<Blocks>,
    /// Memory by part.
    pub memory: MemoryBudget,
    /// Capacities.
    pub space: Space,
    /// How table data travels.
    pub mode: IoMode,
    /// Removes files.
    pub executor: Arc<dyn Executor>,
    /// Raised when a file was removed.
    pub signal: Arc<Signal>,
    /// Memory that open tables pin, by number.
    pinned: Mutex<HashMap<u64, MemoryCharge, foldhash::fast::RandomState>>,
    /// Files whose removal is queued.
    removals: Arc<AtomicUsize>,
}

impl Files {
    /// The tables in `tiers`.
    #[must_use]
    pub fn new(
        tiers: [Option<TierHandle>; 2],
        config: &Config,
        memory: MemoryBudget,
        space: Space,
        executor: Arc<dyn Executor>,
        signal: Arc<Signal>,
    ) -> Self {
        let block_bytes = config.block_size(Tier::Fast) as u64;
        let blocks =
            Arc::new(Blocks::new(memory.cache_capacity(), block_bytes, config.seed.unwrap_or_default()));
        Self {
            tiers,
            blocks,
            memory,
            space,
            mode: config.table_io,
            executor,
            signal,
            pinned: Mutex::default(),
            removals: Arc::default(),
        }
    }

    /// The handle of `tier`.
    ///
    /// # Errors
    /// `InvalidArgument` if the store has no such tier.
    pub fn tier(&self, tier: Tier) -> Result<&TierHandle> {
        self.tiers[tier.index()].as_ref().ok_or_else(|| {
            Error::invalid(format!("the store has no {tier} tier, but a table says it lies there"))
        })
    }

    /// The tiers there are.
    pub fn present(&self) -> impl Iterator<Item = &TierHandle> {
        self.tiers.iter().flatten()
    }

    /// Makes the file of a new table.
    ///
    /// # Errors
    /// The tier's.
    pub fn create(&self, tier: Tier, number: u64, purpose: Purpose) -> Result<(PathBuf, Box<dyn WriteFile>)> {
        let handle = self.tier(tier)?;
        let name = table_name(number);
        let file = handle.create(&name, Create::new(self.mode), purpose)?;
        Ok((handle.path(&name), file))
    }

    /// Removes the file of a table that is in no version. A file that cannot be removed now is an orphan that the
    /// next opening removes.
    pub fn remove(&self, tier: Tier, number: u64) {
        if let Ok(handle) = self.tier(tier) {
            remove_table(handle, &self.space, number);
            self.signal.raise();
        }
    }

    /// Tells an error of a job that works on both tiers in the terms of the one whose file it names.
    pub fn classify_by_path(&self, error: Error) -> Error {
        let handle =
            error.path().and_then(|path| self.present().find(|handle| path.starts_with(handle.dir())));
        match handle {
            Some(handle) if error.on().is_none() => handle.classify(error),
            _ => error,
        }
    }

    /// True if no removal is queued.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.removals.load(Ordering::Acquire) == 0
    }

    /// Gives the block cache what the other parts leave of the memory limit.
    pub fn share_memory(&self) {
        self.blocks.cache.set_capacity(self.memory.cache_capacity());
        self.memory.set(MemoryPart::Cache, self.blocks.cache.used_bytes());
    }
}

fn remove_table(handle: &TierHandle, space: &Space, number: u64) {
    let name = table_name(number);
    if handle.remove_if_there(&name).is_ok() {
        space.file_removed(handle.tier(), &name);
    }
}

/// A table's file name.
#[must_use]
pub fn table_name(number: u64) -> String {
    format!("{number:06}.tbl")
}

/// The number in a table's file name.
#[must_use]
pub fn table_number(name: &str) -> Option<u64> {
    name.strip_suffix(".tbl")?.parse().ok()
}

impl TableOpener for Files {
    fn open(&self, meta: &TableMeta) -> Result<Arc<Table>> {
        let handle = self.tier(meta.tier)?;
        let name = table_name(meta.number);
        let file = handle.open(&name, self.mode).map_err(|error| missing(error, meta))?;
        let blocks: Arc<dyn BlockCache> = Arc::clone(&self.blocks) as _;
        let path = handle.path(&name);
        let table = Table::open(file, &path, meta.number, meta.size_bytes, meta.tail_bytes, Some(blocks))
            .map_err(|error| handle.classify(error))?;
        let charge = self.memory.charge(MemoryPart::Pinned, table.memory_bytes() as u64);
        self.pinned.lock().insert(meta.number, charge);
        Ok(Arc::new(table))
    }

    fn classify(&self, meta: &TableMeta, error: Error) -> Error {
        match self.tier(meta.tier) {
            Ok(handle) => handle.classify(error),
            Err(_) => error,
        }
    }

    fn delete(&self, meta: &TableMeta) {
        self.pinned.lock().remove(&meta.number);
        let Ok(handle) = self.tier(meta.tier) else { return };
        let (handle, space, signal) = (handle.clone(), self.space.clone(), Arc::clone(&self.signal));
        let (removals, number) = (Arc::clone(&self.removals), meta.number);
        removals.fetch_add(1, Ordering::AcqRel);
        self.executor.spawn(
            Lane::Housekeeping,
            Box::new(move || {
                remove_table(&handle, &space, number);
                removals.fetch_sub(1, Ordering::AcqRel);
                signal.raise();
            }),
        );
    }
}

fn missing(error: Error, meta: &TableMeta) -> Error {
    let absent = error.os().is_some_and(|os| os.kind() == std::io::ErrorKind::NotFound);
    if error.kind() == ErrorKind::TierUnavailable || !absent {
        return error;
    }
    let lost = format!("{} entries from {:?} to {:?}", meta.entries, meta.smallest, meta.largest);
    error.as_kind(ErrorKind::Corruption).advice(format!(
        "the manifest names this table but it is gone; {lost} are lost unless the file is put back"
    ))
}
