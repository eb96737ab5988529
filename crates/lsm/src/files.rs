//! The store's tables as files: where they lie, and how they are opened.
//!
//! Opening pins a table's index and filter, which the memory budget accounts for and has tables closed for where it must; blocks
//! go through the one block cache. How they go: `leaving.rs`.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use kelvin_base::sync::Mutex;
use kelvin_base::{Error, ErrorKind, Result, Signal, Tier};
use kelvin_cache::{ByteCache, Weigh};
use kelvin_storage::{Create, IoMode, WriteFile};
use kelvin_table::{Block, BlockCache, Table};

use crate::leaving::Leaving;
use crate::memory::{Closing, MemoryBudget, MemoryPart, Yielding};
use crate::options::{Config, Env};
use crate::space::Space;
use crate::tiers::{Purpose, TierHandle};
use crate::version::{Slot, TableMeta, TableOpener};

/// What an open file takes beside its table: the handles of the layers it is read through, their names for it.
const OPEN_FILE_BYTES: u64 = 384;

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

impl Yielding for Blocks {
    fn set_capacity(&self, bytes: u64) {
        if self.cache.capacity_bytes() != bytes {
            self.cache.set_capacity(bytes);
        }
    }

    fn used_bytes(&self) -> u64 {
        self.cache.used_bytes()
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

/// The tables that are open, in the order in which they will be looked at when one must be closed (CLOCK: the least
/// recently used, roughly).
#[derive(Default)]
struct OpenTables {
    queue: VecDeque<Weak<Slot>>,
    /// At this length, tables that are gone leave the queue.
    sweep_at: usize,
}

impl std::fmt::Debug for OpenTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenTables").field("queued", &self.queue.len()).finish_non_exhaustive()
    }
}

impl OpenTables {
    fn add(&mut self, slot: &Arc<Slot>) {
        if self.queue.len() >= self.sweep_at {
            self.queue.retain(|one| one.strong_count() > 0);
            self.sweep_at = (2 * self.queue.len()).max(64);
        }
        self.queue.push_back(Arc::downgrade(slot));
    }

    /// Closes tables, those that were not used since the last look first, until `is_enough`. The last one stays.
    fn close_until(&mut self, is_enough: &dyn Fn() -> bool) {
        // Twice around: the first may find all of them used.
        for _ in 0..2 * self.queue.len() {
            if is_enough() || self.queue.len() <= 1 {
                return;
            }
            let Some(slot) = self.queue.pop_front() else { return };
            match slot.upgrade() {
                Some(open) if open.take_used() => self.queue.push_back(slot),
                Some(open) => open.close(),
                None => {}
            }
        }
    }
}

impl Closing for Mutex<OpenTables> {
    fn close_until(&self, is_enough: &dyn Fn() -> bool) {
        self.lock().close_until(is_enough);
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
    /// Bytes gathered for a new table's file.
    pub write_buffer_bytes: usize,
    /// Tables on their way out.
    pub leaving: Arc<Leaving>,
    open: Arc<Mutex<OpenTables>>,
}

impl Files {
    /// The tables in `tiers`.
    #[must_use]
    pub fn new(
        tiers: [Option<TierHandle>; 2],
        config: &Config,
        memory: MemoryBudget,
        space: Space,
        env: &Env,
        signal: Arc<Signal>,
    ) -> Self {
        // Where hot records fill the fast tier, theirs are most of what is wanted again.
        let block_bytes =
            if config.is_tiered() { config.hot_block_bytes } else { config.block_size(Tier::Fast) };
        let seed = config.seed.unwrap_or_default();
        let blocks = Arc::new(Blocks::new(memory.cache_capacity(), block_bytes as u64, seed));
        let open: Arc<Mutex<OpenTables>> = Arc::default();
        memory.yields(Arc::clone(&blocks) as _);
        memory.closes(Arc::clone(&open) as _);
        Self {
            tiers,
            blocks,
            memory,
            leaving: Leaving::new(space.clone(), env, signal),
            space,
            mode: config.table_io,
            write_buffer_bytes: config.write_buffer_bytes,
            open,
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
        let how = Create { buffer_bytes: self.write_buffer_bytes, ..Create::new(self.mode) };
        // A disk that did not answer in time may make it yet. No other file will have its number.
        let file = handle.create(&name, how, purpose).inspect_err(|_| self.remove(tier, number))?;
        Ok((handle.path(&name), file))
    }

    /// Removes the file of a table that is in no version, now if that can be.
    pub fn remove(&self, tier: Tier, number: u64) {
        if let Ok(handle) = self.tier(tier) {
            self.leaving.remove(handle, number);
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
        let charge = self.memory.charge(MemoryPart::Pinned, table.memory_bytes() as u64 + OPEN_FILE_BYTES);
        Ok(Arc::new(table.keeping(Box::new(charge))))
    }

    fn opened(&self, slot: &Arc<Slot>) {
        self.open.lock().add(slot);
    }

    fn classify(&self, meta: &TableMeta, error: Error) -> Error {
        match self.tier(meta.tier) {
            Ok(handle) => handle.classify(error),
            Err(_) => error,
        }
    }

    fn left(&self, meta: &TableMeta) {
        self.leaving.left(meta);
    }

    fn delete(&self, meta: &TableMeta) {
        let handle = self.tier(meta.tier).ok();
        self.leaving.remove_later(handle, meta.number);
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
