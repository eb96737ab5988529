//! Settings that few need: each `None` is derived from the settings in [`super::Options`].
//!
//! Tests: `tests.rs` beside.

use std::time::Duration;

use kelvin_storage::IoMode;

use super::{HotParts, Hotness};

/// Everything a user does not meet. `None` means: derive it.
#[derive(Clone, Debug, PartialEq)]
pub struct Advanced {
    /// How hot records are told from cold ones. Not said, a store with a slow tier goes on with what it was kept with, if that lies on
    /// disk, and begins with [`Hotness::Ralt`]; one without has none. Another choice than before begins anew.
    pub hotness: Option<Hotness>,
    /// What is done about hot records.
    pub hot_parts: HotParts,
    /// Bytes of keys and values that may be hot at once; `None` lets that follow the workload (HotRAP §3.7).
    pub hot_set_bytes: Option<u64>,
    /// Bytes of a data block on the fast tier before compression.
    pub fast_block_bytes: Option<usize>,
    /// Bytes of a data block of the hot level before compression: a hot record is wanted alone.
    pub hot_block_bytes: Option<usize>,
    /// Bytes of a data block on the slow tier before compression.
    pub slow_block_bytes: Option<usize>,
    /// Entries between two restart points of a block.
    pub restart_interval: usize,
    /// Bits of filter for each key; 0 for no filter.
    pub filter_bits_per_key: Option<u32>,
    /// Bytes that records read from the slow tier may take in memory before the hot ones of them are written to the fast tier.
    pub promotion_bytes: Option<u64>,
    /// Bytes at which a memtable is sealed.
    pub memtable_bytes: Option<u64>,
    /// Memtables of one keyspace, the active one included, before writes wait.
    pub memtables_max: Option<usize>,
    /// Bytes at which a table is closed and the next begun.
    pub table_bytes: Option<u64>,
    /// How many times larger each level is than the one above.
    pub level_ratio: u32,
    /// Levels, level 0 included.
    pub levels_max: usize,
    /// Runs at level 0 at which they are merged down.
    pub level0_compact_at: Option<usize>,
    /// Runs at level 0 at which writes are delayed.
    pub level0_delay_at: Option<usize>,
    /// Runs at level 0 at which writes stop.
    pub level0_stop_at: Option<usize>,
    /// Bytes awaiting compaction at which writes are delayed.
    pub debt_delay_bytes: Option<u64>,
    /// Bytes awaiting compaction at which writes stop.
    pub debt_stop_bytes: Option<u64>,
    /// Compactions (and parts of one) running at once.
    pub compactions_max: Option<usize>,
    /// Flushes running at once.
    pub flushes_max: usize,
    /// Threads that read for `multi_get`.
    pub read_threads: usize,
    /// How table data travels. Direct falls back to buffered where the file system refuses it.
    pub table_io: IoMode,
    /// Bytes of log kept at once over all its files; the oldest holder is flushed beyond.
    pub wal_bytes_max: Option<u64>,
    /// Bytes of manifest at which a new one is begun.
    pub manifest_bytes_max: Option<u64>,
    /// How long an operation on the slow tier may take before the tier counts as away. A deadline costs each of them
    /// a hand-over to another thread; [`Duration::MAX`] is none, and then a hanging disk hangs its callers.
    pub slow_deadline: Duration,
    /// Bytes a compaction reads at once from each input.
    pub compaction_readahead_bytes: Option<usize>,
    /// Most bytes a scan reads ahead at once.
    pub scan_readahead_bytes: Option<usize>,
    /// Bytes read back from new tables are checked once more before they are installed.
    pub verify_new_tables: bool,
    /// Seed of everything random; `None` for the environment's.
    pub seed: Option<u64>,
}

impl Default for Advanced {
    fn default() -> Self {
        Self {
            hotness: None,
            hot_parts: HotParts::default(),
            hot_set_bytes: None,
            fast_block_bytes: None,
            hot_block_bytes: None,
            slow_block_bytes: None,
            restart_interval: 16,
            filter_bits_per_key: None,
            promotion_bytes: None,
            memtable_bytes: None,
            memtables_max: None,
            table_bytes: None,
            level_ratio: 10,
            levels_max: 8,
            level0_compact_at: None,
            level0_delay_at: None,
            level0_stop_at: None,
            debt_delay_bytes: None,
            debt_stop_bytes: None,
            compactions_max: None,
            flushes_max: 1,
            read_threads: 8,
            table_io: IoMode::Direct,
            wal_bytes_max: None,
            manifest_bytes_max: None,
            slow_deadline: Duration::from_secs(10),
            compaction_readahead_bytes: None,
            scan_readahead_bytes: None,
            verify_new_tables: false,
            seed: None,
        }
    }
}
