//! A fjall store behind Kelvin's store traits.
//!
//! Invariant: read-modify-writes of one key exclude each other; fjall itself orders all other writes. Tests: `peer/tests.rs`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fjall::compaction::Leveled;
use fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
    PinningPolicy,
};
use fjall::{AbstractTree, CompressionType, Database, Keyspace, KeyspaceCreateOptions};
use kelvin_base::{Clock, Error, ErrorKind, OrderedStore, PointStore, Result};
use parking_lot::Mutex;

const STRIPES: usize = 256;
/// How often background work is asked whether it is done.
const POLL: Duration = Duration::from_millis(20);
/// The one keyspace.
const KEYSPACE: &str = "records";
/// fjall lets writers wait when four memtables wait to be flushed; another is being filled.
pub const MEMTABLES_MAX: u64 = 5;
/// The least and the most that fjall takes as a block, bytes.
const BLOCK_BYTES: [usize; 2] = [1 << 10, 1 << 20];

/// Figures of a peer.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its directory.
    pub dir: PathBuf,
    /// Bytes at which a memtable is flushed; there may be [`MEMTABLES_MAX`].
    pub memtable_bytes: u64,
    /// Block cache, bytes.
    pub cache_bytes: u64,
    /// Data block, bytes.
    pub block_bytes: usize,
    /// Filter bits a key.
    pub filter_bits_per_key: u32,
    /// Table file, bytes.
    pub table_bytes: u64,
    /// Tables of level 0 at which they are merged down; level 1 has so many.
    pub level0_tables: u8,
    /// Size of each further level over the one before.
    pub level_ratio: f32,
    /// Threads for flushes and compactions; one of several only flushes.
    pub background_threads: usize,
}

impl Settings {
    /// The strategy of compactions.
    fn strategy(&self) -> Arc<Leveled> {
        let strategy = Leveled::default()
            .with_l0_threshold(self.level0_tables)
            .with_table_target_size(self.table_bytes)
            .with_level_ratio_policy(vec![self.level_ratio]);
        Arc::new(strategy)
    }

    /// Index and filters of all levels whole and in memory, as RocksDB's are in this comparison.
    fn keyspace(&self, block_bytes: u32) -> KeyspaceCreateOptions {
        // At most some dozens: exact as a fraction.
        let bits = f32::from(u16::try_from(self.filter_bits_per_key).unwrap_or(u16::MAX));
        let filter = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(bits));
        KeyspaceCreateOptions::default()
            .max_memtable_size(self.memtable_bytes)
            .data_block_size_policy(BlockSizePolicy::all(block_bytes))
            .data_block_compression_policy(CompressionPolicy::all(CompressionType::None))
            .index_block_compression_policy(CompressionPolicy::all(CompressionType::None))
            .filter_policy(FilterPolicy::all(filter))
            .index_block_partitioning_policy(PinningPolicy::all(false))
            .filter_block_partitioning_policy(PinningPolicy::all(false))
            .index_block_pinning_policy(PinningPolicy::all(true))
            .filter_block_pinning_policy(PinningPolicy::all(true))
            .compaction_strategy(self.strategy())
    }
}

/// A fjall store.
pub struct Peer {
    db: Database,
    records: Keyspace,
    /// Keeps read-modify-writes of one key apart.
    stripes: Vec<Mutex<()>>,
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer").field("dir", &self.records.path()).finish_non_exhaustive()
    }
}

fn failed(error: &fjall::Error) -> Error {
    let kind = match error {
        fjall::Error::Io(_) | fjall::Error::Poisoned | fjall::Error::Locked => ErrorKind::Io,
        fjall::Error::Storage(fjall::LsmError::Io(_)) => ErrorKind::Io,
        _ => ErrorKind::Corruption,
    };
    Error::new(kind, format!("fjall: {error}"))
}

impl Peer {
    /// Opens or makes the store. One that is there keeps the settings of its tables.
    ///
    /// # Errors
    /// `InvalidArgument` for figures that fjall cannot take; what fjall reports.
    pub fn open(settings: &Settings) -> Result<Self> {
        let [least, most] = BLOCK_BYTES;
        let in_range = (least..=most).contains(&settings.block_bytes);
        let block_bytes = u32::try_from(settings.block_bytes).ok().filter(|_| in_range).ok_or_else(|| {
            Error::invalid(format!("fjall takes no blocks of {} bytes", settings.block_bytes))
                .advice("choose blocks of 1 KiB to 1 MiB")
        })?;
        if settings.background_threads == 0 {
            return Err(Error::invalid("fjall needs a thread for its background work").advice("give it one"));
        }
        let db = Database::builder(&settings.dir)
            .cache_size(settings.cache_bytes)
            .journal_compression(CompressionType::None)
            .worker_threads(settings.background_threads)
            .open()
            .map_err(|error| failed(&error).file(&settings.dir))?;
        let records = db
            .keyspace(KEYSPACE, || settings.keyspace(block_bytes))
            .map_err(|error| failed(&error).file(&settings.dir))?;
        let stripes = (0..STRIPES).map(|_| Mutex::new(())).collect();
        Ok(Self { db, records, stripes })
    }

    /// Flushes the memtables and waits until no flush or compaction is wanted or running.
    ///
    /// fjall tells what runs, not what is wanted: this asks its strategy on this thread, and does what that chooses, until it
    /// chooses nothing while nothing runs.
    ///
    /// # Errors
    /// What fjall reports.
    pub fn settle(&self, clock: &dyn Clock) -> Result<()> {
        self.records.rotate_memtable().map_err(|error| failed(&error))?;
        let tree = &self.records.tree;
        loop {
            while self.records.sealed_memtable_count() > 0 || self.is_busy() {
                clock.sleep(POLL);
            }
            let before = tree.current_version().id();
            // Of versions that a reader might still need none is dropped.
            tree.compact(self.records.config.compaction_strategy.clone(), 0)
                .map_err(|error| failed(&error.into()))?;
            if tree.current_version().id() == before && !self.is_busy() {
                return Ok(());
            }
        }
    }

    fn is_busy(&self) -> bool {
        self.db.outstanding_flushes() > 0 || self.db.active_compactions() > 0
    }

    /// Bytes of the memtables now.
    #[must_use]
    pub fn memtable_bytes(&self) -> u64 {
        self.db.write_buffer_size()
    }
}

impl PointStore for Peer {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let value = self.records.get(key).map_err(|error| failed(&error))?;
        Ok(value.map(Bytes::from_owner))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.records.insert(key, value).map_err(|error| failed(&error))
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.records.remove(key).map_err(|error| failed(&error))
    }

    fn update(&self, key: &[u8], change: &mut dyn FnMut(Option<&[u8]>) -> Option<Vec<u8>>) -> Result<()> {
        let stripe = usize::try_from(kelvin_base::hash64(key) % STRIPES as u64).unwrap_or(0);
        let _held = self.stripes[stripe].lock();
        let old = self.get(key)?;
        match change(old.as_deref()) {
            Some(value) => self.put(key, &value),
            None => self.delete(key),
        }
    }
}

impl OrderedStore for Peer {
    fn scan(&self, start: &[u8], limit: usize, each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        for found in self.records.range(start..).take(limit) {
            let (key, value) = found.into_inner().map_err(|error| failed(&error))?;
            if !each(&key, &value) {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
