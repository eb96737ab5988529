//! The figures and tables of HotRAP's evaluation that one command repeats: what each runs.
//!
//! An item is a list of runs; a run that several items want is made once. The names are a promise: results are kept
//! under them. Tests stand below.

use std::fmt;
use std::str::FromStr;

use kelvin::{HotParts, Hotness};
use kelvin_base::{Error, Result};

use super::scale::{KEY_SIZE, OPERATIONS, Scale, VALUE_SIZE};
use crate::generate::keys::KeyDistribution;
use crate::generate::stages;
use crate::options::{BenchOptions, DeviceLimits, System, Workload};

/// The fast disk's part that the hot set may have in the comparison of scorers: 5.5 of 10 GB (paper §4.7).
const SCORERS_LIMIT: f64 = 0.55;

/// A figure or table of the paper, or of the project's own reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// Table 3: retention.
    Table3,
    /// Table 4: the hotness check.
    Table4,
    /// Table 5: promotion by compaction.
    Table5,
    /// §4.7: exponential smoothing, CLOCK and LRU.
    Scorers,
    /// §4.6, Figure 15: a hotspot that grows, moves and shrinks.
    Dynamic,
    /// Kelvin beside its bounds and the authors' implementation.
    Reference,
}

impl Item {
    /// All of them, in the order of the report.
    pub const ALL: [Self; 6] =
        [Self::Table3, Self::Table4, Self::Table5, Self::Scorers, Self::Dynamic, Self::Reference];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Table3 => "table3",
            Self::Table4 => "table4",
            Self::Table5 => "table5",
            Self::Scorers => "scorers",
            Self::Dynamic => "dynamic",
            Self::Reference => "reference",
        }
    }

    /// What it shows, in a line.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Table3 => "what retention is worth: RW hotspot-5 %, with and without (HotRAP Table 3)",
            Self::Table4 => "what the hotness check is worth: RO uniform, with and without (HotRAP Table 4)",
            Self::Table5 => {
                "what promotion by compaction is worth: RW hotspot-5 %, with and without (HotRAP Table 5)"
            }
            Self::Scorers => {
                "exponential smoothing, CLOCK and LRU, and exact counts above them: WH hotspot-5 % (HotRAP §4.7)"
            }
            Self::Dynamic => "a hotspot that appears, grows, moves and shrinks (HotRAP §4.6, Figure 15)",
            Self::Reference => {
                "RO, RW, WH, UH hotspot-5 %, RO Zipf, RO uniform: kelvin, fat, fast-only, and HotRAP's own code"
            }
        }
    }

    /// The runs it is made of, in the order of its table.
    #[must_use]
    pub fn runs(self, scale: Scale) -> Vec<RunSpec> {
        let ops = scale.of(OPERATIONS);
        let rw = |parts: HotParts, name: &str| {
            let run = RunSpec::new(scale, &format!("rw-hotspot5-{name}"), System::Kelvin, Workload::Rw, ops);
            run.with(|options| options.hot_parts = parts)
        };
        let all = HotParts::default();
        match self {
            Self::Table3 => {
                vec![rw(all, "kelvin"), rw(HotParts { retention: false, ..all }, "no-retention")]
            }
            Self::Table5 => vec![
                rw(all, "kelvin"),
                rw(HotParts { promotion_by_compaction: false, ..all }, "no-promotion-by-compaction"),
            ],
            Self::Table4 => {
                // A read waits for the slow disk more than nine times of ten: a quarter of the operations, or it takes
                // longer than all else together.
                let uniform = |parts: HotParts, name: &str| {
                    let name = format!("ro-uniform-{name}");
                    let run = RunSpec::new(scale, &name, System::Kelvin, Workload::Ro, ops / 4);
                    run.with(|options| {
                        options.keys = KeyDistribution::Uniform;
                        options.hot_parts = parts;
                    })
                };
                vec![
                    uniform(all, "kelvin"),
                    uniform(HotParts { hotness_check: false, ..all }, "no-hotness-check"),
                ]
            }
            Self::Scorers => {
                let scorer = |hotness: Hotness| {
                    let name = format!("wh-hotspot5-limit55-{hotness}");
                    RunSpec::new(scale, &name, System::Kelvin, Workload::Wh, ops).with(|options| {
                        options.hotness = Some(hotness);
                        options.hot_set_bytes = options.fast_capacity.map(|bytes| part(bytes, SCORERS_LIMIT));
                    })
                };
                [Hotness::Ralt, Hotness::Clock, Hotness::Lru, Hotness::Oracle].map(scorer).into()
            }
            Self::Dynamic => {
                let ops = stages::operations(ops);
                let run = RunSpec::new(scale, "ro-dynamic-kelvin", System::Kelvin, Workload::Ro, ops);
                vec![run.with(|options| options.keys = KeyDistribution::Dynamic)]
            }
            Self::Reference => ROWS.iter().flat_map(|row| row.runs(scale)).collect(),
        }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Item {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|item| item.name().eq_ignore_ascii_case(text)).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|item| item.name()).collect();
            Error::invalid(format!("no figure or table is called '{text}'"))
                .advice(format!("use {}; --list says what each is", names.join(", ")))
        })
    }
}

fn part(bytes: u64, of: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size, saturates")]
    let part = (bytes as f64 * of).round() as u64;
    part
}

/// A row of the reference table: the authors' own implementation, at 1/100, on two cores, over a disk throttled by the kernel to
/// 1000 reads a second and about 100 MB/s, with 4 threads, blocks of 16 KiB and 1.3 MiB of block cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReferenceRow {
    /// What it is called.
    pub name: &'static str,
    workload: Workload,
    keys: KeyDistribution,
    /// Operations at 1/100.
    ops: f64,
    /// Operations a second, whole run.
    pub ops_per_s: f64,
    /// Operations a second, final tenth.
    pub ops_per_s_last10: f64,
    /// Hit rate of the fast disk, final tenth, per cent.
    pub hit_percent_last10: f64,
    /// Processor time an operation, final tenth, microseconds.
    pub cpu_us_last10: f64,
    /// Bytes that compactions wrote, GB.
    pub compaction_written_gb: f64,
    /// Operations and seconds to 90 % of the final throughput.
    pub reached: Option<(f64, f64)>,
    /// RocksDB with everything on the fast disk: operations a second, final tenth.
    pub all_fast_ops_per_s: Option<f64>,
}

const HOTSPOT: KeyDistribution = KeyDistribution::Hotspot { percent: 5.0 };

/// The reference table, in its order.
pub const ROWS: [ReferenceRow; 6] = [
    ReferenceRow {
        name: "RO hotspot-5 %",
        workload: Workload::Ro,
        keys: HOTSPOT,
        ops: 1e6,
        ops_per_s: 3900.0,
        ops_per_s_last10: 17_600.0,
        hit_percent_last10: 95.2,
        cpu_us_last10: 29.0,
        compaction_written_gb: 1.20,
        reached: Some((915e3, 251.0)),
        all_fast_ops_per_s: Some(19_600.0),
    },
    ReferenceRow {
        name: "RW hotspot-5 %",
        workload: Workload::Rw,
        keys: HOTSPOT,
        ops: 1.2e6,
        ops_per_s: 4300.0,
        ops_per_s_last10: 17_500.0,
        hit_percent_last10: 94.7,
        cpu_us_last10: 51.0,
        compaction_written_gb: 6.04,
        reached: Some((994e3, 267.0)),
        all_fast_ops_per_s: Some(19_500.0),
    },
    ReferenceRow {
        name: "WH hotspot-5 %",
        workload: Workload::Wh,
        keys: HOTSPOT,
        ops: 1.2e6,
        ops_per_s: 4600.0,
        ops_per_s_last10: 15_100.0,
        hit_percent_last10: 92.5,
        cpu_us_last10: 62.0,
        compaction_written_gb: 10.60,
        reached: Some((1e6, 249.0)),
        all_fast_ops_per_s: Some(16_500.0),
    },
    ReferenceRow {
        name: "UH hotspot-5 %",
        workload: Workload::Uh,
        keys: HOTSPOT,
        ops: 1e6,
        ops_per_s: 10_900.0,
        ops_per_s_last10: 21_000.0,
        hit_percent_last10: 95.2,
        cpu_us_last10: 41.0,
        compaction_written_gb: 5.06,
        reached: Some((411e3, 70.0)),
        all_fast_ops_per_s: Some(23_200.0),
    },
    ReferenceRow {
        name: "RO Zipf 0.99",
        workload: Workload::Ro,
        keys: KeyDistribution::Zipf { exponent: 0.99 },
        ops: 0.6e6,
        ops_per_s: 2700.0,
        ops_per_s_last10: 3060.0,
        hit_percent_last10: 69.0,
        cpu_us_last10: 39.0,
        compaction_written_gb: 0.17,
        reached: Some((285e3, 117.0)),
        all_fast_ops_per_s: Some(28_400.0),
    },
    ReferenceRow {
        name: "RO uniform",
        workload: Workload::Ro,
        keys: KeyDistribution::Uniform,
        ops: 0.18e6,
        ops_per_s: 1080.0,
        ops_per_s_last10: 1030.0,
        hit_percent_last10: 8.2,
        cpu_us_last10: 40.0,
        compaction_written_gb: 0.01,
        reached: None,
        all_fast_ops_per_s: None,
    },
];

impl ReferenceRow {
    /// The systems of a row, in the order of the table.
    pub const SYSTEMS: [System; 3] = [System::Kelvin, System::Fat, System::FastOnly];

    /// The name of a system's run of this row.
    #[must_use]
    pub fn run_name(&self, system: System) -> String {
        let keys = match self.keys {
            KeyDistribution::Hotspot { .. } => "hotspot5",
            KeyDistribution::Zipf { .. } => "zipf",
            _ => "uniform",
        };
        format!("reference-{}-{keys}-{system}", self.workload.name().to_lowercase())
    }

    fn runs(&self, scale: Scale) -> Vec<RunSpec> {
        let run = |system: System| {
            // What `fat` does, it does from the first second: a fifth shows it, and spares minutes at the slow disk's pace.
            let is_steady = system == System::Fat && self.keys != KeyDistribution::Uniform;
            let ops = scale.of(self.ops * 100.0) / if is_steady { 5 } else { 1 };
            let run = RunSpec::new(scale, &self.run_name(system), system, self.workload, ops.max(1));
            run.with(|options| options.keys = self.keys)
        };
        Self::SYSTEMS.map(run).into()
    }
}

/// One run of one system.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// The name its result is kept under.
    pub name: String,
    /// What to run; the directories are filled in when it runs.
    pub options: BenchOptions,
}

impl RunSpec {
    fn new(scale: Scale, name: &str, system: System, workload: Workload, ops: u64) -> Self {
        let options = BenchOptions {
            workload,
            keys: HOTSPOT,
            records: scale.records(),
            key_size: KEY_SIZE,
            value_size: VALUE_SIZE,
            ops: Some(ops),
            threads: 4,
            fast_capacity: system.is_tiered().then(|| scale.fast_bytes()),
            memory: scale.memory_bytes(),
            limits: scale.slow_disk(),
            reuse: true,
            ..BenchOptions::new(system, "")
        };
        Self { name: name.to_string(), options }
    }

    fn with(mut self, change: impl FnOnce(&mut BenchOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Another slow disk than the scale's.
    #[must_use]
    pub fn on_disk(self, limits: DeviceLimits) -> Self {
        self.with(|options| options.limits = limits)
    }

    /// About how long it takes, seconds: its reads of the slow disk, and the processor's part of the rest.
    #[must_use]
    pub fn expected_seconds(&self) -> f64 {
        let options = &self.options;
        let mix = options.workload.mix();
        let ops = options.run_ops() as f64;
        let reads = ops * f64::from(mix.read + mix.scan + mix.modify) / 100.0;
        let kept = options.fast_capacity.unwrap_or(u64::MAX) / (KEY_SIZE + VALUE_SIZE) as u64;
        let best = crate::best::best_possible_hit_rate(options.keys, options.records, kept);
        // Without a tracker what is fast is fast by chance; with one the hot records are read from the slow disk once.
        let hits = match options.hotness() {
            Some(Hotness::Off) | None if options.system.is_tiered() => 0.09,
            _ => best,
        };
        let learnt = if hits > 0.5 { kept.min(options.records / 20) as f64 } else { 0.0 };
        let slow = if options.system.is_tiered() { reads * (1.0 - hits) + 2.0 * learnt } else { 0.0 };
        let waits = options.limits.slow_read_iops.map_or(0.0, |iops| slow / iops as f64);
        waits + ops * 60e-6 + (ops - reads) * 100e-6
    }
}

/// The runs that `items` are made of: each once, in their order.
#[must_use]
pub fn plan(items: &[Item], scale: Scale) -> Vec<RunSpec> {
    let mut plan: Vec<RunSpec> = Vec::new();
    for run in items.iter().flat_map(|item| item.runs(scale)) {
        if plan.iter().all(|known| known.name != run.name) {
            plan.push(run);
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale() -> Scale {
        "1/1000".parse().unwrap()
    }

    #[test]
    fn names_are_read_as_they_are_printed() {
        for item in Item::ALL {
            assert_eq!(item.name().parse::<Item>().unwrap(), item);
        }
        assert!("table9".parse::<Item>().unwrap_err().to_string().contains("table3, table4"));
    }

    #[test]
    fn every_run_can_be_run_and_a_name_means_one_run() {
        let mut named = std::collections::BTreeMap::new();
        for item in Item::ALL {
            for run in item.runs(scale()) {
                let mut options = run.options.clone();
                (options.fast, options.slow) = ("f".into(), options.system.is_tiered().then(|| "s".into()));
                assert!(options.check().is_ok(), "{}", run.name);
                let text = format!("{:?}", run.options);
                assert_eq!(
                    *named.entry(run.name.clone()).or_insert_with(|| text.clone()),
                    text,
                    "{}",
                    run.name
                );
            }
        }
        assert_eq!(plan(&Item::ALL, scale()).len(), named.len());
        assert_eq!(plan(&[Item::Table3, Item::Table5], scale()).len(), 3, "the whole system runs once");
    }

    #[test]
    fn each_table_at_a_thousandth_is_a_matter_of_minutes() {
        for item in [Item::Table3, Item::Table4, Item::Table5, Item::Scorers, Item::Dynamic] {
            let seconds: f64 = item.runs(scale()).iter().map(RunSpec::expected_seconds).sum();
            assert!((10.0..240.0).contains(&seconds), "{item}: {seconds:.0} s");
        }
    }
}
