//! What a benchmark runs: system, workload, sizes, devices. Everything the command line can say.
//!
//! Tests: names round-trip, below; refusals in `runner`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use kelvin::events::Listener;
use kelvin::{HotParts, Hotness};
use kelvin_base::{Error, Result};

use crate::generate::keys::{HOTSPOT_5, KeyDistribution};

/// A system that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Kelvin as it is meant: it tells hot records from cold ones.
    Kelvin,
    /// Kelvin with hotness off and the last fast level enlarged to fill the fast tier.
    Fat,
    /// Kelvin with everything on the fast tier.
    FastOnly,
    /// RocksDB over both tiers, its last fast level enlarged to fill the fast tier.
    RocksdbFat,
    /// RocksDB with everything on the fast tier.
    RocksdbFast,
    /// RocksDB over both tiers, with a cache of blocks of the slow one on the fast one.
    RocksdbCached,
    /// RocksDB over both tiers; a hot record that a read finds on the slow one is put again.
    RocksdbReput,
    /// fjall with everything on the fast tier.
    Fjall,
}

impl System {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; 8] = [
        Self::Kelvin,
        Self::Fat,
        Self::FastOnly,
        Self::RocksdbFat,
        Self::RocksdbFast,
        Self::RocksdbCached,
        Self::RocksdbReput,
        Self::Fjall,
    ];

    /// The name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kelvin => "kelvin",
            Self::Fat => "fat",
            Self::FastOnly => "fast-only",
            Self::RocksdbFat => "rocksdb-fat",
            Self::RocksdbFast => "rocksdb-fast",
            Self::RocksdbCached => "rocksdb-cached",
            Self::RocksdbReput => "rocksdb-reput",
            Self::Fjall => "fjall",
        }
    }

    /// True if it keeps data on the slow tier.
    #[must_use]
    pub const fn is_tiered(self) -> bool {
        !matches!(self, Self::FastOnly | Self::RocksdbFast | Self::Fjall)
    }

    /// True if what is read decides what it keeps on the fast tier.
    #[must_use]
    pub const fn learns(self) -> bool {
        matches!(self, Self::Kelvin | Self::RocksdbCached | Self::RocksdbReput)
    }

    /// True if it is not Kelvin's own: it opens its own files, and tells of no events.
    #[must_use]
    pub const fn is_peer(self) -> bool {
        !matches!(self, Self::Kelvin | Self::Fat | Self::FastOnly)
    }
}

/// A workload: which operations in which shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Only the load phase, which is then what is measured.
    Load,
    /// 100 % reads.
    Ro,
    /// 75 % reads, 25 % inserts.
    Rw,
    /// 50 % reads, 50 % inserts.
    Wh,
    /// 50 % reads, 50 % updates.
    Uh,
    /// Seek and read a fixed number of entries.
    Scan,
    /// 50 % reads, 50 % scans of a fixed number of entries from the same keys.
    Rs,
    /// YCSB A: 50 % reads, 50 % updates.
    YcsbA,
    /// YCSB B: 95 % reads, 5 % updates.
    YcsbB,
    /// YCSB C: 100 % reads.
    YcsbC,
    /// YCSB D: 95 % reads, 5 % inserts (meant for `latest`).
    YcsbD,
    /// YCSB E: 95 % scans of 1 to 100 entries, 5 % inserts.
    YcsbE,
    /// YCSB F: 50 % reads, 50 % read-modify-writes.
    YcsbF,
    /// A trace, replayed; [`crate::trace`] runs it, and no name stands for it.
    Trace,
}

/// Shares of the operations, per cent; together 100.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mix {
    /// Point reads.
    pub read: u32,
    /// Overwrites of existing records.
    pub update: u32,
    /// New records.
    pub insert: u32,
    /// Scans.
    pub scan: u32,
    /// Atomic read-modify-writes.
    pub modify: u32,
}

impl Workload {
    /// All that have a name on the command line, in the order of the documentation.
    pub const ALL: [Self; 13] = [
        Self::Load,
        Self::Ro,
        Self::Rw,
        Self::Wh,
        Self::Uh,
        Self::Scan,
        Self::Rs,
        Self::YcsbA,
        Self::YcsbB,
        Self::YcsbC,
        Self::YcsbD,
        Self::YcsbE,
        Self::YcsbF,
    ];

    /// The name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Ro => "RO",
            Self::Rw => "RW",
            Self::Wh => "WH",
            Self::Uh => "UH",
            Self::Scan => "scan",
            Self::Rs => "RS",
            Self::YcsbA => "A",
            Self::YcsbB => "B",
            Self::YcsbC => "C",
            Self::YcsbD => "D",
            Self::YcsbE => "E",
            Self::YcsbF => "F",
            Self::Trace => "trace",
        }
    }

    /// The shares of its operations; all zero for `load` and a trace.
    #[must_use]
    pub const fn mix(self) -> Mix {
        let none = Mix { read: 0, update: 0, insert: 0, scan: 0, modify: 0 };
        match self {
            Self::Load | Self::Trace => none,
            Self::Ro | Self::YcsbC => Mix { read: 100, ..none },
            Self::Rw => Mix { read: 75, insert: 25, ..none },
            Self::Wh => Mix { read: 50, insert: 50, ..none },
            Self::Uh | Self::YcsbA => Mix { read: 50, update: 50, ..none },
            Self::Scan => Mix { scan: 100, ..none },
            Self::Rs => Mix { read: 50, scan: 50, ..none },
            Self::YcsbB => Mix { read: 95, update: 5, ..none },
            Self::YcsbD => Mix { read: 95, insert: 5, ..none },
            Self::YcsbE => Mix { scan: 95, insert: 5, ..none },
            Self::YcsbF => Mix { read: 50, modify: 50, ..none },
        }
    }
}

macro_rules! named {
    ($type:ty, $what:literal) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl FromStr for $type {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                let bare = text.strip_prefix("ycsb-").or_else(|| text.strip_prefix("YCSB-")).unwrap_or(text);
                Self::ALL.into_iter().find(|one| one.name().eq_ignore_ascii_case(bare)).ok_or_else(|| {
                    let names: Vec<&str> = Self::ALL.iter().map(|one| one.name()).collect();
                    Error::invalid(format!(concat!("no ", $what, " is called '{}'"), text))
                        .advice(format!("use one of {}", names.join(", ")))
                })
            }
        }
    };
}

named!(System, "system");
named!(Workload, "workload");

/// Limits of the emulated devices; `None` is as fast as the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Reads a second of the slow tier.
    pub slow_read_iops: Option<u64>,
    /// Writes a second of the slow tier.
    pub slow_write_iops: Option<u64>,
    /// Bytes a second of the slow tier, reading and writing each.
    pub slow_bandwidth: Option<u64>,
    /// What each read of the slow tier takes longer.
    pub slow_latency: Option<Duration>,
    /// Reads a second of the fast tier.
    pub fast_read_iops: Option<u64>,
    /// Bytes a second of the fast tier, reading and writing each.
    pub fast_bandwidth: Option<u64>,
}

impl DeviceLimits {
    /// True if nothing is limited.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Those that `system` would meet: one without a slow tier none of that.
    const fn of(self, system: System) -> Self {
        if system.is_tiered() {
            return self;
        }
        Self { slow_read_iops: None, slow_write_iops: None, slow_bandwidth: None, slow_latency: None, ..self }
    }
}

/// Everything a benchmark needs to know.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// The system under test.
    pub system: System,
    /// How the system `kelvin` tells hot records from cold ones; `None` for its default.
    pub hotness: Option<Hotness>,
    /// What the system `kelvin` does about hot records.
    pub hot_parts: HotParts,
    /// Bytes of records that may be hot at once; `None` lets that follow the workload.
    pub hot_set_bytes: Option<u64>,
    /// What is done to it.
    pub workload: Workload,
    /// Which records are wanted how often.
    pub keys: KeyDistribution,
    /// Records loaded before the run.
    pub records: u64,
    /// Bytes of a key.
    pub key_size: usize,
    /// Bytes of a value.
    pub value_size: usize,
    /// Operations of the run phase; with `seconds` too, whichever ends first. With neither: as many as records.
    pub ops: Option<u64>,
    /// Seconds of the run phase.
    pub seconds: Option<f64>,
    /// Client threads.
    pub threads: usize,
    /// Directory on the fast disk; the store is a directory of its own inside.
    pub fast: PathBuf,
    /// Directory on the slow disk, for systems with two tiers.
    pub slow: Option<PathBuf>,
    /// Bytes of the fast tier that the store may use; needed by systems with two tiers.
    pub fast_capacity: Option<u64>,
    /// Bytes of memory for everything.
    pub memory: u64,
    /// Reads before the run phase that are not measured.
    pub warm_up: u64,
    /// Entries of a scan of the `scan` workload.
    pub scan_length: usize,
    /// Emulated devices.
    pub limits: DeviceLimits,
    /// What all random choices follow from.
    pub seed: u64,
    /// Use the store of an earlier run instead of loading one.
    pub reuse: bool,
    /// Kelvin's systems only: all but as many records as the fast tier holds are loaded at once, in order of their keys, and the rest is put as others are.
    pub bulk_load: bool,
    /// Values are zeros behind what tells them apart: a simulation keeps their files in memory.
    pub sparse_values: bool,
    /// RocksDB's systems only: collect its statistics (costs it processor time). `None`: only where the hit rate needs them.
    pub peer_statistics: Option<bool>,
    /// Kelvin's systems only: is told what happens in the store, from its opening for the load phase on.
    pub listener: Option<Listener>,
}

impl BenchOptions {
    /// Defaults: 100,000 records of 24 + 1000 bytes, RO, hotspot:5, one thread, 64 MiB of memory.
    #[must_use]
    pub fn new(system: System, fast: impl Into<PathBuf>) -> Self {
        Self {
            system,
            hotness: None,
            hot_parts: HotParts::default(),
            hot_set_bytes: None,
            workload: Workload::Ro,
            keys: HOTSPOT_5,
            records: 100_000,
            key_size: 24,
            value_size: 1000,
            ops: None,
            seconds: None,
            threads: 1,
            fast: fast.into(),
            slow: None,
            fast_capacity: None,
            memory: 64 << 20,
            warm_up: 0,
            scan_length: 100,
            limits: DeviceLimits::default(),
            seed: 1,
            reuse: false,
            bulk_load: false,
            sparse_values: false,
            peer_statistics: None,
            listener: None,
        }
    }

    /// How the system tells hot records from cold ones; `None` where it is not ours.
    #[must_use]
    pub fn hotness(&self) -> Option<Hotness> {
        match self.system {
            System::Kelvin => Some(self.hotness.unwrap_or(Hotness::Ralt)),
            System::Fat | System::FastOnly => Some(Hotness::Off),
            System::RocksdbFat
            | System::RocksdbFast
            | System::RocksdbCached
            | System::RocksdbReput
            | System::Fjall => None,
        }
    }

    /// Operations of the run phase, if nothing ends it before.
    #[must_use]
    pub fn run_ops(&self) -> u64 {
        match (self.ops, self.seconds) {
            (Some(ops), _) => ops,
            (None, Some(_)) => u64::MAX,
            (None, None) => self.records,
        }
    }

    /// The store's own directory on the fast disk.
    #[must_use]
    pub fn fast_dir(&self) -> PathBuf {
        self.fast.join(format!("bench-{}", self.system))
    }

    /// The store's own directory on the slow disk, if the system has two tiers and a slow disk is given.
    #[must_use]
    pub fn slow_dir(&self) -> Option<PathBuf> {
        self.slow
            .as_ref()
            .filter(|_| self.system.is_tiered())
            .map(|dir| dir.join(format!("bench-{}-slow", self.system)))
    }

    /// Records that are loaded at once: all but as many bytes as the fast tier may hold, which are put.
    #[must_use]
    pub fn bulk_records(&self) -> u64 {
        let put_bytes = self.fast_capacity.filter(|_| self.system.is_tiered()).unwrap_or(0);
        let put = put_bytes / (self.key_size + self.value_size).max(1) as u64;
        if self.bulk_load { self.records.saturating_sub(put) } else { 0 }
    }

    /// Refuses what cannot be run.
    ///
    /// # Errors
    /// `InvalidArgument` that names the option.
    pub fn check(&self) -> Result<()> {
        let refuse = |what: &str, advice: &str| Err(Error::invalid(what).advice(advice));
        if self.threads == 0 || self.records == 0 || self.scan_length == 0 || self.ops == Some(0) {
            return refuse(
                "threads, records, ops and the scan length must be at least 1",
                "give larger figures",
            );
        }
        if self.seconds.is_some_and(|seconds| !(seconds > 0.0 && seconds < 1e7)) {
            return refuse("--seconds must be more than 0", "give the seconds of the run phase");
        }
        if self.keys == KeyDistribution::Dynamic && self.seconds.is_some() {
            return refuse(
                "the keys 'dynamic' change with the operations done, so --seconds cannot end them",
                "give --ops: a seventh of them for each stage, or about that",
            );
        }
        if self.hot_parts != HotParts::default() && self.system != System::Kelvin {
            let what = format!("--no-retention and its kind say nothing to system {}", self.system);
            return refuse(&what, "leave them out, or measure the system kelvin");
        }
        if self.hotness.is_some() && self.system != System::Kelvin {
            let what = format!("--hotness says nothing to system {}", self.system);
            return refuse(&what, "leave it out, or measure the system kelvin");
        }
        if self.system.is_tiered() && (self.slow.is_none() || self.fast_capacity.is_none()) {
            let what = format!("system {} has two tiers", self.system);
            return refuse(&what, "give --slow DIR and --fast-capacity BYTES");
        }
        if self.system.is_peer() && self.bulk_load {
            let what = format!("system {} cannot be loaded at once", self.system);
            return refuse(&what, "leave --bulk-load out, or measure a system of Kelvin's");
        }
        if self.system.is_peer() && self.listener.is_some() {
            let what = format!("system {} tells of no events", self.system);
            return refuse(&what, "leave --events out, or measure a system of Kelvin's");
        }
        if self.system.is_peer() && !self.limits.of(self.system).is_none() {
            let what = format!(
                "the emulated disks of --slow-read-iops and its kind cannot slow down {}, which opens its own files",
                self.system
            );
            return refuse(
                &what,
                "throttle the disk itself with bench/tiers.sh and leave these options out, for every system compared",
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use kelvin::events::Event;

    use super::*;

    #[test]
    fn names_are_read_as_they_are_printed() {
        for system in System::ALL {
            assert_eq!(system.name().parse::<System>().unwrap(), system);
        }
        for workload in Workload::ALL {
            assert_eq!(workload.name().to_lowercase().parse::<Workload>().unwrap(), workload);
        }
        assert_eq!("ycsb-e".parse::<Workload>().unwrap(), Workload::YcsbE);
        assert!("RX".parse::<Workload>().unwrap_err().to_string().contains("RO, RW"));
    }

    #[test]
    fn shares_add_up() {
        for workload in Workload::ALL.into_iter().filter(|&one| one != Workload::Load) {
            let mix = workload.mix();
            assert_eq!(mix.read + mix.update + mix.insert + mix.scan + mix.modify, 100, "{workload}");
        }
    }

    #[test]
    fn hotness_is_for_the_system_that_has_it() {
        let mut options = BenchOptions::new(System::Fat, "x");
        options.hotness = Some(Hotness::Lru);
        assert!(options.check().unwrap_err().to_string().contains("--hotness says nothing to system fat"));
    }

    #[test]
    fn a_throttle_that_a_peer_would_not_feel_is_refused_where_it_should_feel_it() {
        let check = |system, limits| {
            let slow = Some("y".into());
            BenchOptions { slow, fast_capacity: Some(1 << 20), limits, ..BenchOptions::new(system, "x") }
                .check()
        };
        let (slow, fast) = (
            DeviceLimits { slow_read_iops: Some(1000), ..DeviceLimits::default() },
            DeviceLimits { fast_bandwidth: Some(1 << 20), ..DeviceLimits::default() },
        );
        for system in System::ALL {
            assert!(check(system, DeviceLimits::default()).is_ok());
            assert_eq!(check(system, slow).is_ok(), !(system.is_peer() && system.is_tiered()), "{system}");
            assert_eq!(check(system, fast).is_ok(), !system.is_peer(), "{system}");
        }
        let told = check(System::RocksdbFat, slow).unwrap_err().to_string();
        assert!(told.contains("bench/tiers.sh") && told.contains("slow down rocksdb-fat"), "{told}");
    }

    #[test]
    fn events_are_asked_of_kelvin_alone() {
        let listener = Listener(std::sync::Arc::new(|_: &Event| {}));
        let options =
            |system| BenchOptions { listener: Some(listener.clone()), ..BenchOptions::new(system, "x") };
        assert!(options(System::FastOnly).check().is_ok());
        assert!(options(System::RocksdbFast).check().unwrap_err().to_string().contains("--events"));
    }
}
