//! RocksDB as a subject, in four kinds.
//!
//! Same shape as Kelvin and same patience with writers: buffer, block, level and table sizes, runs of level 0 and background
//! jobs are those that Kelvin derives from the same options; with two tiers the last fast level is enlarged to fill the fast
//! capacity, or what of it is the levels'. `rocksdb-cached` leaves six tenths of it to a cache of blocks, `rocksdb-reput` a
//! twentieth to RALT, Kelvin's own tracker, with the memory that it has in Kelvin. Tests: the crate `kelvin-peer-rocksdb`, and
//! below.

use std::sync::Arc;

use kelvin_base::{Error, HotTracker, Lane, OrderedStore, Result, SystemClock, ThreadPool};
use kelvin_peer_rocksdb::{FlashSettings, Peer, PeerCounters, Settings, SlowTier, flash};
use kelvin_ralt::Ralt;
use kelvin_ralt::limits::Limits;
use kelvin_storage::OsStorage;

use crate::options::{BenchOptions, System};
use crate::peer::Same;
use crate::samples::HotSet;
use crate::subject::{ByteCounts, Counters, Subject};

/// Whose accesses the tracker's files hold.
const TRACKER_OWNER: [u8; 16] = *b"rocksdb-reput's.";

/// The least fast capacity that figures can be derived from, bytes.
const LEVELS_BYTES_MIN: u64 = 1 << 20;

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// What of a fast capacity is the cache's of blocks; as in the paper, 6 of 10 GB.
const fn flash_bytes(system: System, capacity: u64) -> u64 {
    if matches!(system, System::RocksdbCached) { capacity / 10 * 6 } else { 0 }
}

/// What of it is the levels'.
const fn levels_bytes(system: System, capacity: u64) -> u64 {
    match system {
        System::RocksdbReput => capacity / 20 * 19,
        _ => capacity - flash_bytes(system, capacity),
    }
}

/// Memory of the tracker, bytes: as much as Kelvin gives it.
fn tracker_memory(options: &BenchOptions) -> Result<u64> {
    if options.system != System::RocksdbReput {
        return Ok(0);
    }
    let kelvin = BenchOptions { system: System::Kelvin, ..options.clone() };
    Ok(crate::kelvin::settings(&kelvin).derive()?.hotness_memory_bytes)
}

/// The settings of the peer for these options, without a tracker.
fn settings(options: &BenchOptions) -> Result<Settings> {
    let whole = options.fast_capacity.filter(|_| options.system.is_tiered());
    let capacity = whole.map(|bytes| levels_bytes(options.system, bytes));
    if let Some(bytes) = capacity.filter(|&bytes| bytes < LEVELS_BYTES_MIN) {
        let what = format!("of the fast capacity {} has {bytes} bytes for its levels", options.system);
        let advice = format!("give so much that these are {LEVELS_BYTES_MIN} at least");
        return Err(Error::invalid(what).advice(advice));
    }
    // Figures that follow from the capacity follow from the levels' part.
    let same = Same::of(&BenchOptions { fast_capacity: capacity, ..options.clone() })?;
    let config = &same.config;
    let block_bytes = config.block_bytes[0];
    let flash_bytes = whole.map(|bytes| flash_bytes(options.system, bytes)).filter(|&bytes| bytes > 0);
    let flash_memory = flash_bytes.map_or(0, |bytes| flash::memory_bytes(bytes, block_bytes as u64));
    let taken = config.memtable_budget_bytes + flash_memory + tracker_memory(options)?;
    let slow = options.slow_dir().zip(capacity);
    Ok(Settings {
        dir: options.fast_dir(),
        write_buffer_bytes: size(config.memtable_bytes),
        write_buffers: count(config.memtables_max),
        cache_bytes: size(same.cache_bytes(options, taken)),
        block_bytes,
        filter_bits_per_key: config.filter_bits_per_key,
        table_bytes: config.table_bytes,
        // With two tiers: levels 0 and 1 a tenth of the capacity each, level 2 seven tenths, the rest for the log and
        // for compactions in flight; level 3 is the slow tier.
        level1_bytes: capacity.map_or(config.level1_bytes, |bytes| bytes / 10),
        level_ratio: if capacity.is_some() { 7.0 } else { f64::from(config.level_ratio) },
        level0_delay_stop: [config.level0_delay_at, config.level0_stop_at].map(count),
        // An eighth of the capacity may be overdue before writes slow down, as much again before they stop.
        debt_delay_stop_bytes: capacity.map(|bytes| [size(bytes / 8), size(bytes / 4)]),
        background_jobs: count(config.compactions_max + config.flushes_max),
        has_statistics: options.peer_statistics.unwrap_or(options.system.is_tiered()),
        slow: slow.map(|(dir, fast_capacity)| SlowTier { dir, fast_capacity, levels: 4 }),
        flash: flash_bytes.map(|bytes| FlashSettings { dir: options.fast_dir().join("flash"), bytes }),
        reput: None,
    })
}

/// RALT as Kelvin has it, but that at most half of the fast capacity can be hot, in files of at most a tenth of it.
fn tracker(options: &BenchOptions) -> Result<Option<Ralt>> {
    let Some(capacity) = options.fast_capacity.filter(|_| options.system == System::RocksdbReput) else {
        return Ok(None);
    };
    let executor = ThreadPool::new(1, 1, 1)
        .map_err(|error| Error::io("start the threads of", &options.fast_dir(), error))?;
    let of_fast = kelvin_ralt::Options::of_fast(capacity, TRACKER_OWNER);
    let bounds = of_fast.bounds.within(capacity / 2);
    let first = Limits { hot_bytes: bounds.hot_bytes_max, ..of_fast.first };
    let ralt = kelvin_ralt::Options { bounds, first, seed: options.seed, ..of_fast }
        .within_memory(tracker_memory(options)?)
        .within_disk(capacity / 10);
    let env = kelvin_ralt::Env {
        storage: Arc::new(OsStorage::new()),
        dir: options.fast_dir().join("ralt"),
        io: kelvin_storage::IoMode::Direct,
        executor: Arc::new(executor),
        lane: Lane::Tracking,
        memory: None,
        evicted: None,
    };
    Ok(Some(Ralt::open(env, ralt)))
}

/// Opens RocksDB for these options.
pub(crate) fn open(options: &BenchOptions) -> Result<Box<dyn Subject>> {
    let tracker = tracker(options)?;
    let reput = tracker.clone().map(|ralt| -> Arc<dyn HotTracker> { Arc::new(ralt) });
    let peer = Peer::open(&Settings { reput, ..settings(options)? })?;
    Ok(Box::new(PeerSubject { peer, tracker, is_tiered: options.system.is_tiered() }))
}

struct PeerSubject {
    peer: Peer,
    tracker: Option<Ralt>,
    is_tiered: bool,
}

/// What this system alone has counted.
fn own(counted: &PeerCounters) -> Vec<(String, u64)> {
    let tables_written = counted.flush_bytes.zip(counted.compaction_write_bytes).map(|(a, b)| a + b);
    let [reput_records, reput_bytes] = [0, 1].map(|at| counted.reput.map(|counts: [u64; 2]| counts[at]));
    let named = [
        ("peer.wal_bytes", counted.wal_bytes),
        ("peer.table_bytes_written", tables_written),
        ("peer.flash_lookups", counted.flash.map(|flash| flash.lookups)),
        ("peer.flash_hits", counted.flash.map(|flash| flash.hits)),
        ("peer.flash_written_bytes", counted.flash.map(|flash| flash.written_bytes)),
        ("peer.flash_failures", counted.flash.map(|flash| flash.failures)),
        ("peer.reput_records", reput_records),
        ("peer.reput_bytes", reput_bytes),
    ];
    named.into_iter().filter_map(|(name, count)| Some((name.to_string(), count?))).collect()
}

impl PeerSubject {
    fn count(&self) -> Counters {
        let counted = self.peer.counters();
        let device = kelvin_base::process::device_bytes();
        let (fast_read, fast_written) = if self.is_tiered {
            // Which level a compaction wrote to is not told apart.
            (counted.other_level_read_bytes, None)
        } else {
            (device.map(|bytes| bytes.0), device.map(|bytes| bytes.1))
        };
        let tracked = self.tracker.as_ref().map(Ralt::stats);
        let sizes = tracked.iter().flat_map(|stats| {
            [("ralt.disk_bytes", stats.disk_bytes), ("ralt.memory_bytes", stats.memory_bytes)]
        });
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
            more: own(&counted),
            sizes: sizes.map(|(name, bytes)| (name.to_string(), bytes)).collect(),
            hot_set: tracked
                .as_ref()
                .map(|stats| HotSet { bytes: stats.hot_set_bytes, limit_bytes: stats.hot_set_limit_bytes }),
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

impl Drop for PeerSubject {
    fn drop(&mut self) {
        if let Some(tracker) = &self.tracker {
            tracker.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Report;
    use crate::runner::{NoProgress, run};

    const SYSTEMS: [System; 4] =
        [System::RocksdbFast, System::RocksdbFat, System::RocksdbCached, System::RocksdbReput];

    fn options(system: System, dir: &std::path::Path) -> BenchOptions {
        let mut options = BenchOptions::new(system, dir.join("fast"));
        options.slow = Some(dir.join("slow"));
        // The levels of one that shares it with a cache want 1 MiB.
        let shares = matches!(system, System::RocksdbCached | System::RocksdbReput);
        options.fast_capacity = Some(if shares { 4 << 20 } else { 2 << 20 });
        options.memory = 4 << 20;
        options.records = 10_000;
        options.ops = Some(5_000);
        options.threads = 2;
        options
    }

    #[test]
    fn rocksdb_runs_every_kind_of_operation_on_one_tier_and_on_two() {
        for system in SYSTEMS {
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

    /// A run in which few records are read most.
    fn hotspot(system: System) -> Report {
        let dir = tempfile::tempdir().unwrap();
        let mut options = options(system, dir.path());
        options.fast_capacity = Some(4 << 20);
        options.keys = "hotspot:5".parse().unwrap();
        options.ops = Some(30_000);
        run(&options, &mut NoProgress).unwrap()
    }

    fn counted(report: &Report, name: &str) -> u64 {
        report.more.iter().find(|(one, _)| one == name).unwrap().1
    }

    #[test]
    fn records_put_again_and_blocks_kept_on_the_fast_disk_make_more_reads_fast() {
        let [fat, cached, reput] =
            [System::RocksdbFat, System::RocksdbCached, System::RocksdbReput].map(hotspot);
        let rate = |report: &Report| report.whole.hit_rate.unwrap();
        let rates = [&fat, &cached, &reput].map(rate);
        assert!(rates[1] > rates[0] + 0.1 && rates[2] > rates[0] + 0.1, "{rates:?}");
        assert!(counted(&cached, "peer.flash_hits") > 1_000);
        let [records, bytes] = ["peer.reput_records", "peer.reput_bytes"].map(|name| counted(&reput, name));
        assert!(records > 100 && bytes == records * 1024, "{records} {bytes}");
    }

    #[test]
    fn the_fast_capacity_is_shared_out() {
        let of = |system| {
            let mut options = BenchOptions::new(system, "x");
            (options.slow, options.fast_capacity) = (Some("y".into()), Some(100 << 20));
            settings(&options).unwrap()
        };
        let levels = |settings: &Settings| settings.slow.as_ref().unwrap().fast_capacity >> 20;
        let [fat, cached, reput] = [System::RocksdbFat, System::RocksdbCached, System::RocksdbReput].map(of);
        assert_eq!([levels(&fat), levels(&cached), levels(&reput)], [100, 40, 95]);
        assert_eq!(cached.flash.as_ref().map(|flash| flash.bytes >> 20), Some(60));
        assert!(fat.flash.is_none() && reput.flash.is_none());
        let small =
            BenchOptions { fast_capacity: Some(2 << 20), ..BenchOptions::new(System::RocksdbCached, "x") };
        let error = settings(&BenchOptions { slow: Some("y".into()), ..small }).unwrap_err().to_string();
        assert!(error.contains("rocksdb-cached has 838") && error.contains("for its levels"), "{error}");
        assert!(reput.cache_bytes < fat.cache_bytes, "{reput:?}");
    }

    #[test]
    fn memory_is_shared_out_and_not_exceeded() {
        let mut options = BenchOptions::new(System::RocksdbFast, "x");
        options.records = 1_100_000;
        let settings = settings(&options).unwrap();
        let buffers = settings.write_buffer_bytes * 4;
        assert!(buffers + settings.cache_bytes < 64 << 20, "{settings:?}");
        // To the byte: buffers, the process, index and filters, and all the rest is the cache's.
        let same = Same::of(&options).unwrap();
        let others = same.config.memtable_budget_bytes + same.config.process_bytes + same.pinned_bytes;
        assert_eq!(settings.cache_bytes as u64 + others, options.memory, "{settings:?}");
        assert!(buffers as u64 <= same.config.memtable_budget_bytes, "{settings:?}");
    }
}
