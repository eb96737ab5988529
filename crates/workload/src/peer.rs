//! RocksDB as a subject: the settings that make the comparison fair, and its counters in the runner's words.
//!
//! Same memory as Kelvin: write buffers, what the process itself needs, index and filters (kept in the table readers,
//! estimated), then what is left as block cache. Same shape and same patience with writers: buffer, block, level and table
//! sizes, runs of level 0 and background jobs are those that Kelvin derives from the same options; with two tiers the last
//! fast level is enlarged to fill the fast capacity. Tests: the crate `kelvin-peer-rocksdb`, and below.

use kelvin_base::{OrderedStore, Result, SystemClock};
use kelvin_peer_rocksdb::{Peer, Settings, SlowTier};

use crate::options::{BenchOptions, System};
use crate::subject::{ByteCounts, Counters, Subject};

/// Bytes of an index entry beside its key: the block's place, restarts, the reader's own.
const INDEX_ENTRY_BYTES: u64 = 24;

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// The settings of the peer for these options.
fn settings(options: &BenchOptions) -> Result<Settings> {
    let capacity = options.fast_capacity.filter(|_| options.system.is_tiered());
    let same = crate::kelvin::settings(options).derive()?;
    let block_bytes = same.block_bytes[0];
    let blocks = options.records * (options.key_size + options.value_size) as u64 / block_bytes as u64;
    let filters = options.records * u64::from(same.filter_bits_per_key) / 8;
    let pinned = filters + blocks * (options.key_size as u64 + INDEX_ENTRY_BYTES);
    let taken = same.memtable_budget_bytes + same.process_bytes + pinned;
    let cache = options.memory.saturating_sub(taken).max(same.cache_bytes_min);
    let slow = options.slow_dir().zip(capacity);
    Ok(Settings {
        dir: options.fast_dir(),
        write_buffer_bytes: size(same.memtable_bytes),
        write_buffers: count(same.memtables_max),
        cache_bytes: size(cache),
        block_bytes,
        filter_bits_per_key: same.filter_bits_per_key,
        table_bytes: same.table_bytes,
        // With two tiers: levels 0 and 1 a tenth of the capacity each, level 2 seven tenths, the rest for the log and
        // for compactions in flight; level 3 is the slow tier.
        level1_bytes: capacity.map_or(same.level1_bytes, |bytes| bytes / 10),
        level_ratio: if capacity.is_some() { 7.0 } else { f64::from(same.level_ratio) },
        level0_delay_stop: [same.level0_delay_at, same.level0_stop_at].map(count),
        // An eighth of the capacity may be overdue before writes slow down, as much again before they stop.
        debt_delay_stop_bytes: capacity.map(|bytes| [size(bytes / 8), size(bytes / 4)]),
        background_jobs: count(same.compactions_max + same.flushes_max),
        has_statistics: options.peer_statistics.unwrap_or(options.system == System::RocksdbFat),
        slow: slow.map(|(dir, fast_capacity)| SlowTier { dir, fast_capacity, levels: 4 }),
    })
}

/// Opens RocksDB for these options.
pub(crate) fn open(options: &BenchOptions) -> Result<Box<dyn Subject>> {
    let settings = settings(options)?;
    let peer = Peer::open(&settings)?;
    Ok(Box::new(PeerSubject { peer, is_tiered: settings.slow.is_some() }))
}

struct PeerSubject {
    peer: Peer,
    is_tiered: bool,
}

impl PeerSubject {
    fn count(&self) -> Counters {
        let counted = self.peer.counters();
        let device = kelvin_base::process::device_bytes();
        let tables_written = counted.flush_bytes.zip(counted.compaction_write_bytes).map(|(a, b)| a + b);
        let (fast_read, fast_written) = if self.is_tiered {
            // Which level a compaction wrote to is not told apart.
            (counted.other_level_read_bytes, None)
        } else {
            (device.map(|bytes| bytes.0), device.map(|bytes| bytes.1))
        };
        let wal = counted.wal_bytes.map(|bytes| ("peer.wal_bytes".to_string(), bytes));
        let tables = tables_written.map(|bytes| ("peer.table_bytes_written".to_string(), bytes));
        Counters {
            slow_hits: if self.is_tiered { counted.last_level_reads } else { Some(0) },
            bytes: ByteCounts {
                flushed: counted.flush_bytes,
                compaction_read: counted.compaction_read_bytes,
                compaction_written: counted.compaction_write_bytes,
                fast_read,
                fast_written,
                slow_read: if self.is_tiered { counted.last_level_read_bytes } else { Some(0) },
                slow_written: (!self.is_tiered).then_some(0),
            },
            traffic: None,
            more: wal.into_iter().chain(tables).collect(),
            sizes: Vec::new(),
            hot_set: None,
        }
    }
}

impl Subject for PeerSubject {
    fn store(&self) -> &dyn OrderedStore {
        &self.peer
    }

    fn counters(&self) -> Counters {
        self.count()
    }

    fn settle(&self) -> Result<()> {
        self.peer.settle(&SystemClock::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::{NoProgress, run};

    fn options(system: System, dir: &std::path::Path) -> BenchOptions {
        let mut options = BenchOptions::new(system, dir.join("fast"));
        options.slow = Some(dir.join("slow"));
        options.fast_capacity = Some(2 << 20);
        options.memory = 4 << 20;
        options.records = 10_000;
        options.ops = Some(5_000);
        options.threads = 2;
        options
    }

    #[test]
    fn rocksdb_runs_every_kind_of_operation_on_one_tier_and_on_two() {
        for system in [System::RocksdbFast, System::RocksdbFat] {
            for workload in ["RW", "E", "F"] {
                let dir = tempfile::tempdir().unwrap();
                let mut options = options(system, dir.path());
                options.workload = workload.parse().unwrap();
                let report = run(&options, &mut NoProgress).unwrap();
                assert_eq!(report.ops, 5_000, "{system} {workload}");
                assert_eq!(report.slow_used_bytes > 1 << 20, system.is_tiered());
            }
        }
    }

    #[test]
    fn a_reused_store_is_not_loaded_again_and_a_missing_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = options(System::RocksdbFat, dir.path());
        options.reuse = true;
        assert!(run(&options, &mut NoProgress).unwrap_err().to_string().contains("without --reuse"));
        options.reuse = false;
        assert!(run(&options, &mut NoProgress).unwrap().load.is_some());
        options.reuse = true;
        let report = run(&options, &mut NoProgress).unwrap();
        assert!(report.load.is_none());
        assert!(report.whole.hit_rate.is_some_and(|rate| (0.01..0.99).contains(&rate)), "{:?}", report.whole);
    }

    #[test]
    fn memory_is_shared_out_and_not_exceeded() {
        let mut options = BenchOptions::new(System::RocksdbFast, "x");
        options.records = 1_100_000;
        let settings = settings(&options).unwrap();
        let buffers = settings.write_buffer_bytes * 4;
        assert!(buffers + settings.cache_bytes < 64 << 20 && settings.cache_bytes > 40 << 20, "{settings:?}");
    }
}
