//! Other stores as subjects: the settings that make the comparison fair, and their counters in the runner's words.
//!
//! Same memory as Kelvin: write buffers, what the process itself needs, index and filters (kept in memory, estimated), what a
//! system has of its own, then what is left as block cache. Each store is there with its cargo feature. Tests stand beside
//! each module.

use kelvin_base::Result;

use crate::options::BenchOptions;

#[cfg(feature = "fjall")]
pub(crate) mod fjall;
#[cfg(feature = "rocksdb")]
pub(crate) mod rocksdb;

/// Bytes of an index entry beside its key: the block's place, restarts, the reader's own.
const INDEX_ENTRY_BYTES: u64 = 24;

/// What Kelvin derives from the same options.
struct Same {
    config: kelvin::Config,
    /// Index and filters of all records, bytes.
    pinned_bytes: u64,
}

impl Same {
    fn of(options: &BenchOptions) -> Result<Self> {
        let config = crate::kelvin::settings(options).derive()?;
        let blocks =
            options.records * (options.key_size + options.value_size) as u64 / config.block_bytes[0] as u64;
        let filters = options.records * u64::from(config.filter_bits_per_key) / 8;
        let pinned_bytes = filters + blocks * (options.key_size as u64 + INDEX_ENTRY_BYTES);
        Ok(Self { config, pinned_bytes })
    }

    /// What of the memory is left to the block cache beside `taken` bytes, which are neither the process's nor pinned.
    fn cache_bytes(&self, options: &BenchOptions, taken: u64) -> u64 {
        let taken = taken + self.config.process_bytes + self.pinned_bytes;
        options.memory.saturating_sub(taken).max(self.config.cache_bytes_min)
    }
}
