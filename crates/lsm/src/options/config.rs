//! The derived configuration: every figure fixed, nothing left to decide. Made only by [`super::Options::derive`].
//!
//! Tests: `tests.rs` beside.

use std::path::PathBuf;
use std::time::Duration;

use kelvin_base::Tier;
use kelvin_storage::IoMode;

use super::{CompressionChoice, Durability, HotParts, Hotness, Profile};
use crate::version::is_hot_run;

/// Every figure the engine runs by. Sizes are bytes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// Directory of the fast tier.
    pub dir: PathBuf,
    /// Directory of the slow tier.
    pub slow_dir: Option<PathBuf>,
    /// Hard limit on each tier, by [`Tier::index`]; `None` where only the disk limits.
    pub capacity_bytes: [Option<u64>; 2],
    /// The part of each tier's capacity kept for work that must go on when the tier is full.
    pub reserve_bytes: [u64; 2],
    /// What the levels on the fast tier may hold together: capacity less reserve, log and manifest.
    pub fast_levels_bytes: Option<u64>,
    /// The one limit on memory: of all that the store takes, and of the process's code, stacks and small objects as far
    /// as [`Config::process_bytes`] goes.
    pub memory_bytes: u64,
    /// The part of memory for write buffers over all keyspaces.
    pub memtable_budget_bytes: u64,
    /// The part of memory left to what does not grow with the data: see [`Config::memory_bytes`].
    pub process_bytes: u64,
    /// Indexes and filters of open tables get what the other parts and the least cache leave, and never less than this; tables
    /// that were not read lately are closed beyond.
    pub pinned_bytes_min: u64,
    /// How hot records are told from cold ones.
    pub hotness: Hotness,
    /// It was not chosen: what the store was kept with goes on, as long as that lies on disk.
    pub keeps_hotness: bool,
    /// What is done about them.
    pub hot_parts: HotParts,
    /// What may be hot at once; `None` lets that follow the workload.
    pub hot_set_bytes: Option<u64>,
    /// What the hot-key tracker may take of the memory; 0 where it keeps none of its own, or knows no limit.
    pub hotness_memory_bytes: u64,
    /// Bytes of records read from the slow tier that promotion caches keep over all keyspaces; 0 to keep none.
    pub promotion_bytes_max: u64,
    /// Bytes gathered for a table's file before they are written.
    pub write_buffer_bytes: usize,
    /// Bytes that all scans together read ahead.
    pub scans_bytes: u64,
    /// The cache is never squeezed below this.
    pub cache_bytes_min: u64,
    /// Durability of writes that do not name one.
    pub durability: Durability,
    /// How tables are compressed; see [`Config::compression_at`].
    pub compression: CompressionChoice,
    /// What the store is mostly used for.
    pub profile: Profile,
    /// Bytes of a data block, by [`Tier::index`].
    pub block_bytes: [usize; 2],
    /// Bytes of a data block of the hot level.
    pub hot_block_bytes: usize,
    /// Entries between two restart points of a block.
    pub restart_interval: usize,
    /// Bits of filter for each key; 0 for no filter.
    pub filter_bits_per_key: u32,
    /// Bytes at which a memtable is sealed.
    pub memtable_bytes: u64,
    /// Memtables of one keyspace, the active one included, before writes wait.
    pub memtables_max: usize,
    /// Bytes at which a table is closed and the next begun.
    pub table_bytes: u64,
    /// The same on the slow tier.
    pub slow_table_bytes: u64,
    /// How many times larger each level is than the one above.
    pub level_ratio: u32,
    /// Levels, level 0 included.
    pub levels_max: usize,
    /// Target of level 1.
    pub level1_bytes: u64,
    /// Runs at level 0 at which they are merged down.
    pub level0_compact_at: usize,
    /// Runs at level 0 at which writes are delayed.
    pub level0_delay_at: usize,
    /// Runs at level 0 at which writes stop.
    pub level0_stop_at: usize,
    /// Bytes awaiting compaction at which writes are delayed.
    pub debt_delay_bytes: u64,
    /// Bytes awaiting compaction at which writes stop.
    pub debt_stop_bytes: u64,
    /// Compactions (and parts of one) running at once.
    pub compactions_max: usize,
    /// Flushes running at once.
    pub flushes_max: usize,
    /// Threads that read for `multi_get`.
    pub read_threads: usize,
    /// How table data travels.
    pub table_io: IoMode,
    /// Bytes of log kept at once over all its files.
    pub wal_bytes_max: u64,
    /// Bytes of manifest at which a new one is begun.
    pub manifest_bytes_max: u64,
    /// How long an operation on the slow tier may take before the tier counts as away.
    pub slow_deadline: Duration,
    /// Bytes a compaction reads at once from each input on the fast tier.
    pub compaction_readahead_bytes: usize,
    /// The same on the slow tier, where the number of reads is what is short.
    pub slow_readahead_bytes: usize,
    /// Most bytes a scan reads ahead at once.
    pub scan_readahead_bytes: usize,
    /// New tables are read back and checked before they are installed.
    pub verify_new_tables: bool,
    /// Seed of everything random; `None` for the environment's.
    pub seed: Option<u64>,
    /// What was set by hand under `advanced`, by name: `explain` says so.
    pub(super) by_hand: Vec<&'static str>,
}

impl Config {
    /// True if there is a slow tier.
    #[must_use]
    pub fn is_tiered(&self) -> bool {
        self.slow_dir.is_some()
    }

    /// Hard limit on `tier`, bytes; `None` where only the disk limits.
    #[must_use]
    pub fn capacity(&self, tier: Tier) -> Option<u64> {
        self.capacity_bytes[tier.index()]
    }

    /// The part of `tier`'s capacity kept for work that must go on, bytes.
    #[must_use]
    pub fn reserve(&self, tier: Tier) -> u64 {
        self.reserve_bytes[tier.index()]
    }

    /// Bytes of a data block on `tier`.
    #[must_use]
    pub fn block_size(&self, tier: Tier) -> usize {
        self.block_bytes[tier.index()]
    }

    /// Bytes of a data block of a table at `level` on `tier`.
    #[must_use]
    pub fn block_size_at(&self, level: usize, tier: Tier) -> usize {
        if is_hot_run(level) { self.hot_block_bytes } else { self.block_size(tier) }
    }

    /// How a table at `level` on `tier` is compressed: never [`CompressionChoice::ByTier`].
    ///
    /// Levels 0 and 1 live for minutes and are read back at once by the next compaction: they stay plain.
    #[must_use]
    pub fn compression_at(&self, level: usize, tier: Tier) -> CompressionChoice {
        match (self.compression, tier) {
            _ if level < 2 && tier == Tier::Fast => CompressionChoice::None,
            (CompressionChoice::ByTier, Tier::Fast) => CompressionChoice::Lz4,
            (CompressionChoice::ByTier, Tier::Slow) => CompressionChoice::Zstd,
            (choice, _) => choice,
        }
    }
}
