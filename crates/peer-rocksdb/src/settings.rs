//! How the peer is set up: the figures that must equal Kelvin's, given by whoever compares.
//!
//! The rest is fixed: compression off, direct I/O for reads, flushes and compactions, full Bloom filters, index and
//! filters kept in the table readers (the fastest place for them; their memory is taken off the block cache), WAL on,
//! written to the operating system at each write and not synced.
//!
//! Two figures make another system of it, and need two tiers: a cache of blocks on the fast disk, and a tracker of hot records.

use std::ffi::{CString, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kelvin_base::{Error, HotTracker, Result};

use crate::ffi;

/// `rocksdb_no_compression`.
const NO_COMPRESSION: c_int = 0;
/// The newest table format of the library: the fastest index and filter.
const FORMAT_VERSION: c_int = 5;

/// The second path of a peer with two tiers.
#[derive(Clone, Debug)]
pub struct SlowTier {
    /// Its directory.
    pub dir: PathBuf,
    /// Bytes of levels that the fast directory takes; the levels that do not fit go here.
    pub fast_capacity: u64,
    /// Levels, level 0 included. Only the last may lie on this tier: its reads are what is counted as slow.
    pub levels: i32,
}

/// A cache of blocks of the slow tier on the fast disk.
#[derive(Clone, Debug)]
pub struct FlashSettings {
    /// Its directory: nothing else may lie in it.
    pub dir: PathBuf,
    /// What its files may have together, bytes.
    pub bytes: u64,
}

/// Figures of a peer.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its directory; the fast one of two.
    pub dir: PathBuf,
    /// The slow directory, if there are two tiers.
    pub slow: Option<SlowTier>,
    /// Bytes at which a memtable is flushed.
    pub write_buffer_bytes: usize,
    /// Memtables, the active one included.
    pub write_buffers: i32,
    /// Block cache, bytes.
    pub cache_bytes: usize,
    /// Data block, bytes.
    pub block_bytes: usize,
    /// Filter bits a key.
    pub filter_bits_per_key: u32,
    /// Table file, bytes.
    pub table_bytes: u64,
    /// Level 1, bytes.
    pub level1_bytes: u64,
    /// Size of each further level over the one before.
    pub level_ratio: f64,
    /// Runs at level 0 at which writes are delayed, and stop.
    pub level0_delay_stop: [i32; 2],
    /// Bytes that await compaction at which writes are delayed, and stop; `None` for the library's own (64 and 256 GiB).
    /// RocksDB has no capacity of the fast path: this is what keeps it near one.
    pub debt_delay_stop_bytes: Option<[usize; 2]>,
    /// Flushes and compactions at once.
    pub background_jobs: i32,
    /// Keep blocks that are read from the slow tier on the fast disk.
    pub flash: Option<FlashSettings>,
    /// Put a record again if it is hot and a read found it on the slow tier, so that it comes to the top levels.
    pub reput: Option<Arc<dyn HotTracker>>,
    /// Collect statistics (costs processor time): exact bytes, and reads of the slow tier.
    pub has_statistics: bool,
}

/// The name of a file for C.
pub(crate) fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::invalid("the path holds a zero byte, which RocksDB cannot take").file(path))
}

/// Owned options; freed on drop.
#[derive(Debug)]
pub(crate) struct OptionsHandle(pub(crate) *mut ffi::Options);

impl Drop for OptionsHandle {
    fn drop(&mut self) {
        // SAFETY: made by `rocksdb_options_create`, owned here alone, destroyed once.
        unsafe { ffi::rocksdb_options_destroy(self.0) }
    }
}

impl Settings {
    pub(crate) fn options(&self) -> Result<OptionsHandle> {
        // SAFETY: each call gets the live options object and plain numbers.
        let options = unsafe {
            let options = ffi::rocksdb_options_create();
            ffi::rocksdb_options_set_create_if_missing(options, 1);
            ffi::rocksdb_options_set_compression(options, NO_COMPRESSION);
            ffi::rocksdb_options_set_use_direct_reads(options, 1);
            ffi::rocksdb_options_set_use_direct_io_for_flush_and_compaction(options, 1);
            ffi::rocksdb_options_set_max_open_files(options, -1);
            ffi::rocksdb_options_set_max_background_jobs(options, self.background_jobs);
            ffi::rocksdb_options_set_write_buffer_size(options, self.write_buffer_bytes);
            ffi::rocksdb_options_set_max_write_buffer_number(options, self.write_buffers);
            ffi::rocksdb_options_set_target_file_size_base(options, self.table_bytes);
            ffi::rocksdb_options_set_max_bytes_for_level_base(options, self.level1_bytes);
            ffi::rocksdb_options_set_max_bytes_for_level_multiplier(options, self.level_ratio);
            ffi::rocksdb_options_set_level_compaction_dynamic_level_bytes(options, 0);
            ffi::rocksdb_options_set_recycle_log_file_num(options, 2);
            ffi::rocksdb_options_set_stats_dump_period_sec(options, 0);
            let [delay_at, stop_at] = self.level0_delay_stop;
            ffi::rocksdb_options_set_level0_slowdown_writes_trigger(options, delay_at);
            ffi::rocksdb_options_set_level0_stop_writes_trigger(options, stop_at);
            if let Some([delay_bytes, stop_bytes]) = self.debt_delay_stop_bytes {
                ffi::rocksdb_options_set_soft_pending_compaction_bytes_limit(options, delay_bytes);
                ffi::rocksdb_options_set_hard_pending_compaction_bytes_limit(options, stop_bytes);
            }
            if self.has_statistics {
                ffi::rocksdb_options_enable_statistics(options);
            }
            OptionsHandle(options)
        };
        self.set_table(&options);
        if let Some(slow) = &self.slow {
            self.set_paths(&options, slow)?;
        }
        Ok(options)
    }

    fn set_table(&self, options: &OptionsHandle) {
        // SAFETY: the policy passes to the table options; cache and factory are counted references inside RocksDB, so
        // the handles made here may be destroyed at once.
        unsafe {
            let table = ffi::rocksdb_block_based_options_create();
            ffi::rocksdb_block_based_options_set_block_size(table, self.block_bytes);
            let policy = ffi::rocksdb_filterpolicy_create_bloom_full(f64::from(self.filter_bits_per_key));
            ffi::rocksdb_block_based_options_set_filter_policy(table, policy);
            ffi::rocksdb_block_based_options_set_format_version(table, FORMAT_VERSION);
            ffi::rocksdb_block_based_options_set_cache_index_and_filter_blocks(table, 0);
            let cache = ffi::rocksdb_cache_create_lru(self.cache_bytes);
            ffi::rocksdb_block_based_options_set_block_cache(table, cache);
            ffi::rocksdb_options_set_block_based_table_factory(options.0, table);
            ffi::rocksdb_cache_destroy(cache);
            ffi::rocksdb_block_based_options_destroy(table);
        }
    }

    fn set_paths(&self, options: &OptionsHandle, slow: &SlowTier) -> Result<()> {
        let (fast_name, slow_name) = (c_path(&self.dir)?, c_path(&slow.dir)?);
        // SAFETY: names live through the calls; RocksDB copies the paths, so both are destroyed here.
        unsafe {
            let fast_path = ffi::rocksdb_dbpath_create(fast_name.as_ptr(), slow.fast_capacity);
            let slow_path = ffi::rocksdb_dbpath_create(slow_name.as_ptr(), u64::MAX / 2);
            let paths = [fast_path.cast_const(), slow_path.cast_const()];
            ffi::rocksdb_options_set_db_paths(options.0, paths.as_ptr(), paths.len());
            ffi::rocksdb_options_set_num_levels(options.0, slow.levels);
            ffi::rocksdb_dbpath_destroy(fast_path);
            ffi::rocksdb_dbpath_destroy(slow_path);
        }
        Ok(())
    }
}
