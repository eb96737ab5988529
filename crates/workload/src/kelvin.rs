//! Kelvin as a subject: the benchmark's options as the store's, emulated devices, its counters in the runner's words.
//!
//! The systems: `kelvin` and `fat` keep the last levels on the slow tier, and fill the fast tier with the levels above;
//! `kelvin` tells hot records from cold ones, `fat` does not. `fast-only` has one tier and no capacity. Tables are not compressed, as RocksDB's are not in this benchmark, and writes survive the
//! process (`Durability::Os`), as RocksDB's do by default. Tests stand below.

use std::sync::Arc;

use kelvin::{CompressionChoice, Db, Durability, Env, Hotness, Options, Stats};
use kelvin_base::{Clock, OrderedStore, Result};
use kelvin_storage::throttle::Limits;
use kelvin_storage::{Storage, ThrottledStorage};

use crate::options::{BenchOptions, DeviceLimits};
use crate::samples::HotSet;
use crate::subject::{ByteCounts, Counters, Fill, Subject, Traffic};

/// The store's directory beside the benchmark's mark: the engine refuses a new store among files it does not know.
const STORE: &str = "store";

/// The store's options for these of the benchmark, without its environment. What RocksDB gets follows from them too.
pub(crate) fn settings(options: &BenchOptions) -> Options {
    let mut settings = Options::new(options.fast_dir().join(STORE))
        .memory(options.memory)
        .durability(Durability::Os)
        .compression(CompressionChoice::None);
    settings.listener.clone_from(&options.listener);
    if let Some((dir, bytes)) = options.slow_dir().zip(options.fast_capacity) {
        let hotness = options.hotness().unwrap_or(Hotness::Off);
        settings = settings.slow(dir.join(STORE)).fast_capacity(bytes).advanced(|a| {
            a.hotness = Some(hotness);
            a.hot_parts = options.hot_parts;
            a.hot_set_bytes = options.hot_set_bytes;
        });
    }
    settings
}

/// What the device of each tier allows: fast, slow; `None` where nothing is limited.
pub(crate) fn device_limits(limits: &DeviceLimits) -> [Option<Limits>; 2] {
    let fast = Limits {
        read_iops: limits.fast_read_iops,
        read_bandwidth: limits.fast_bandwidth,
        write_bandwidth: limits.fast_bandwidth,
        ..Limits::default()
    };
    let slow = Limits {
        read_iops: limits.slow_read_iops,
        write_iops: limits.slow_write_iops,
        read_bandwidth: limits.slow_bandwidth,
        write_bandwidth: limits.slow_bandwidth,
        latency: limits.slow_latency.unwrap_or_default(),
        ..Limits::default()
    };
    [fast, slow].map(|one| (one != Limits::default()).then_some(one))
}

/// A device as slow as `limits` say. Its waits are outside the store's deadline for the slow tier, which is for disks
/// that hang and not for slow ones.
pub(crate) fn throttled(
    inner: Arc<dyn Storage>,
    limits: Option<Limits>,
    clock: &Arc<dyn Clock>,
) -> Arc<dyn Storage> {
    match limits {
        None => inner,
        Some(limits) => Arc::new(ThrottledStorage::new(inner, limits, Arc::clone(clock))),
    }
}

/// Opens Kelvin for these options.
pub(crate) fn open(options: &BenchOptions) -> Result<Box<dyn Subject>> {
    let settings = settings(options);
    let Env { fast, slow, clock, executor, .. } = Env::system(&settings.derive()?)?;
    let [fast_limits, slow_limits] = device_limits(&options.limits);
    let env = Env {
        fast: throttled(fast, fast_limits, &clock),
        slow: throttled(slow, slow_limits, &clock),
        clock,
        executor,
        seed: options.seed,
    };
    Ok(Box::new(KelvinSubject { db: Db::open(settings.env(env))? }))
}

/// Kelvin, opened.
pub(crate) struct KelvinSubject {
    pub(crate) db: Db,
}

/// Bytes by purpose and tier; read and written apart they go to `more`.
fn traffic(stats: &Stats, more: &mut Vec<(String, u64)>) -> Traffic {
    let mut traffic = Traffic::default();
    for ((purpose, tiers), sums) in stats.io.iter().zip(&mut traffic.0) {
        for ((tier, count), sum) in ["fast", "slow"].into_iter().zip(tiers).zip(sums) {
            *sum = (count.read_bytes + count.written_bytes) as f64;
            more.push((format!("io.{}_{tier}_read_bytes", purpose.name()), count.read_bytes));
            more.push((format!("io.{}_{tier}_written_bytes", purpose.name()), count.written_bytes));
        }
    }
    traffic
}

impl Subject for KelvinSubject {
    fn store(&self) -> &dyn OrderedStore {
        &self.db
    }

    fn bulk_load(&self, fill: Fill<'_>) -> Result<()> {
        self.db.bulk_load(|load| fill(&mut |key, value| load.put(key, value))).map(drop)
    }

    fn counters(&self) -> Counters {
        let stats = self.db.stats();
        let [fast_read, slow_read] = stats.device_read_bytes.map(Some);
        let [fast_written, slow_written] = stats.device_written_bytes.map(Some);
        let mut more = vec![
            ("kelvin.gets_memtable".to_string(), stats.gets_memtable),
            ("kelvin.cache_hits".to_string(), stats.cache_hits),
            ("kelvin.cache_misses".to_string(), stats.cache_misses),
            ("kelvin.flushes".to_string(), stats.flushes),
            ("kelvin.compactions".to_string(), stats.compactions),
            ("kelvin.trivial_moves".to_string(), stats.trivial_moves),
            ("kelvin.background_failures".to_string(), stats.background_failures),
        ];
        let routed = &stats.boundary;
        for (name, count) in [
            ("kelvin.gets_promotion", stats.gets_promotion),
            ("kelvin.gets_hot", stats.gets_hot),
            ("kelvin.boundary_compactions", routed.compactions),
            ("bytes.retained", routed.retained_bytes),
            ("bytes.guarded", routed.guarded_bytes),
            ("bytes.lifted", routed.lifted_bytes),
            ("bytes.promoted_compaction", routed.promoted_bytes),
            ("bytes.promoted_flush", routed.flushed_bytes),
            ("bytes.not_hot", routed.not_hot_bytes),
        ] {
            more.push((name.to_string(), count));
        }
        let counted = stats.promotion.iter().filter(|(name, _)| *name != "records");
        more.extend(counted.map(|(name, count)| (format!("promotion.{name}"), *count)));
        for (what, reasons) in [("delayed_us", &stats.delayed_us), ("stopped_us", &stats.stopped_us)] {
            more.extend(reasons.iter().map(|(reason, us)| (format!("kelvin.{what}.{reason}"), *us)));
        }
        more.extend(
            stats.background_cpu_us.iter().map(|(lane, us)| (format!("cpu.background_{lane}_us"), *us)),
        );
        let traffic = traffic(&stats, &mut more);
        let parts = stats.memory.iter().map(|(part, bytes)| (format!("memory_bytes.{part}"), *bytes));
        let mut sizes: Vec<(String, u64)> = parts.collect();
        sizes.push(("memory_bytes.all_max".to_string(), stats.memory_used_bytes_max));
        // By the store's own books, beside what is measured from outside.
        let [fast_max, slow_max] = stats.used_bytes_max;
        sizes.push(("kelvin.used_bytes_max.fast".to_string(), fast_max));
        sizes.push(("kelvin.used_bytes_max.slow".to_string(), slow_max));
        if let Some(hotness) = &stats.hotness {
            let named = |(name, value): (&str, u64)| (format!("ralt.{name}"), value);
            more.extend(hotness.counts().map(named));
            sizes.extend(hotness.sizes().map(named));
        }
        Counters {
            slow_hits: Some(stats.gets_slow + stats.iterators_slow),
            bytes: ByteCounts {
                flushed: Some(stats.flushed_bytes),
                compaction_read: Some(stats.compaction_read_bytes.iter().sum()),
                compaction_written: Some(stats.compaction_written_bytes.iter().sum()),
                fast_read,
                fast_written,
                slow_read,
                slow_written,
            },
            traffic: Some(traffic),
            more,
            sizes,
            hot_set: stats.hotness.as_ref().map(|hotness| HotSet {
                bytes: hotness.hot_set_bytes,
                limit_bytes: hotness.hot_set_limit_bytes,
            }),
        }
    }

    fn levels(&self) -> Vec<(String, u64)> {
        let mut sizes: Vec<(String, u64)> = Vec::new();
        for level in self.db.levels() {
            // The runs of the hot level together.
            let name = level.name.split(' ').next().unwrap_or_default();
            match sizes.iter_mut().find(|(known, _)| known == name) {
                Some((_, bytes)) => *bytes += level.bytes,
                None => sizes.push((name.to_string(), level.bytes)),
            }
        }
        sizes
    }

    fn settle(&self) -> Result<()> {
        self.db.flush()?;
        self.db.wait_idle()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::System;
    use crate::runner::{NoProgress, run};

    const FAST_CAPACITY: u64 = 2 << 20;

    fn options(system: System, dir: &std::path::Path) -> BenchOptions {
        let mut options = BenchOptions::new(system, dir.join("fast"));
        options.slow = Some(dir.join("slow"));
        options.fast_capacity = Some(FAST_CAPACITY);
        options.memory = 8 << 20;
        options.records = 6_000;
        options.ops = Some(3_000);
        options.threads = 2;
        options
    }

    #[test]
    fn kelvin_runs_every_kind_of_operation_on_one_tier_and_on_two() {
        for system in [System::Kelvin, System::Fat, System::FastOnly] {
            for workload in ["RW", "E", "F"] {
                let dir = tempfile::tempdir().unwrap();
                let mut options = options(system, dir.path());
                options.workload = workload.parse().unwrap();
                let report = run(&options, &mut NoProgress).unwrap();
                assert_eq!(report.ops, 3_000, "{system} {workload}");
                assert_eq!(report.slow_used_bytes > 1 << 20, system.is_tiered());
                let rate = report.whole.hit_rate.unwrap();
                assert_eq!(rate < 0.99, system.is_tiered(), "{system} {workload}: {rate}");
                // The benchmark's mark takes one block beside the store.
                assert!(report.peaks.fast_bytes <= FAST_CAPACITY + 4096 || !system.is_tiered());
            }
        }
    }

    #[test]
    fn a_reused_store_is_not_loaded_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = options(System::Kelvin, dir.path());
        assert!(run(&options, &mut NoProgress).unwrap().load.is_some());
        options.reuse = true;
        assert!(run(&options, &mut NoProgress).unwrap().load.is_none());
    }

    #[test]
    fn only_limited_devices_are_throttled() {
        let mut limits = DeviceLimits::default();
        assert_eq!(device_limits(&limits), [None, None]);
        limits.slow_read_iops = Some(1000);
        limits.slow_bandwidth = Some(1 << 20);
        let [fast, slow] = device_limits(&limits);
        assert_eq!(fast, None);
        let slow = slow.unwrap();
        assert_eq!(
            (slow.read_iops, slow.write_iops, slow.write_bandwidth),
            (Some(1000), None, Some(1 << 20))
        );
    }
}
