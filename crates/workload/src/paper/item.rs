//! The figures and tables of HotRAP's evaluation that one command repeats: what each runs.
//!
//! An item is a list of runs; a run that several items want is made once. The names are a promise: results are kept
//! under them. Tests stand below.

use std::fmt;
use std::str::FromStr;

use kelvin::{HotParts, Hotness};
use kelvin_base::{Error, Result};

use super::pairs;
use super::reference::ROWS;
use super::scale::{KEY_SIZE, OPERATIONS, Scale, VALUE_SIZE};
use crate::generate::keys::KeyDistribution;
use crate::generate::stages;
use crate::options::{BenchOptions, DeviceLimits, System, Workload};

/// The fast disk's part that the hot set may have in the comparison of scorers: 5.5 of 10 GB (paper §4.7).
const SCORERS_LIMIT: f64 = 0.55;

/// The keys of most runs.
pub(super) const HOTSPOT: KeyDistribution = KeyDistribution::Hotspot { percent: 5.0 };

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
    /// Figures 6 and 7, uniform keys: what telling hot records costs where none is hot.
    Uniform,
    /// Figures 6 and 7, hotspot: Kelvin between its bounds with records of 1 KiB and of 200 B.
    Speedup,
    /// Kelvin beside its bounds and the authors' implementation.
    Reference,
}

impl Item {
    /// All of them, in the order of the report.
    pub const ALL: [Self; 8] = [
        Self::Table3,
        Self::Table4,
        Self::Table5,
        Self::Scorers,
        Self::Dynamic,
        Self::Uniform,
        Self::Speedup,
        Self::Reference,
    ];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Table3 => "table3",
            Self::Table4 => "table4",
            Self::Table5 => "table5",
            Self::Scorers => "scorers",
            Self::Dynamic => "dynamic",
            Self::Uniform => "uniform",
            Self::Speedup => "speedup",
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
            Self::Uniform => {
                "what hotness costs where nothing is hot: RO and RW uniform, with and without in turn (HotRAP Figures 6 and 7)"
            }
            Self::Speedup => {
                "kelvin over fat, and beside fast-only: RO and RW hotspot-5 %, 1 KiB and 200 B (HotRAP Figures 6 and 7)"
            }
            Self::Reference => {
                "RO, RW, WH, UH hotspot-5 %, RO Zipf, RO uniform: kelvin, fat, fast-only, and HotRAP's own code"
            }
        }
    }

    /// The runs it is made of, in the order of its table; of the reference those of a `variant` too.
    #[must_use]
    pub fn runs(self, scale: Scale, variant: &Variant) -> Vec<RunSpec> {
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
            Self::Uniform => pairs::uniform_runs(scale),
            Self::Speedup => pairs::speedup_runs(scale),
            Self::Reference => ROWS.iter().flat_map(|row| row.runs(scale, variant)).collect(),
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

/// Kelvin with parts left out, or with another tracker, beside the whole.
#[derive(Clone, Copy, Debug, Default)]
pub struct Variant {
    /// What it does about hot records.
    pub parts: HotParts,
    /// How it tells them; `None` for its default.
    pub hotness: Option<Hotness>,
}

impl Variant {
    /// What names the variant; `None` if it is none.
    #[must_use]
    pub fn suffix(&self) -> Option<String> {
        let left_out = [
            (!self.parts.retention, "no-retention"),
            (!self.parts.hotness_check, "no-hotness-check"),
            (!self.parts.promotion_by_compaction, "no-promotion-by-compaction"),
            (!self.parts.promotion_by_flush, "no-promotion-by-flush"),
        ];
        let mut parts: Vec<&str> =
            left_out.iter().filter(|(is_out, _)| *is_out).map(|(_, name)| *name).collect();
        parts.extend(self.hotness.map(Hotness::name));
        (!parts.is_empty()).then(|| parts.join("-"))
    }

    pub(super) fn apply(&self, options: &mut BenchOptions) {
        (options.hot_parts, options.hotness) = (self.parts, self.hotness);
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
    pub(super) fn new(scale: Scale, name: &str, system: System, workload: Workload, ops: u64) -> Self {
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

    pub(super) fn with(mut self, change: impl FnOnce(&mut BenchOptions)) -> Self {
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
        let kept = options.fast_capacity.unwrap_or(u64::MAX) / (options.key_size + options.value_size) as u64;
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
pub fn plan(items: &[Item], scale: Scale, variant: &Variant) -> Vec<RunSpec> {
    let mut plan: Vec<RunSpec> = Vec::new();
    for run in items.iter().flat_map(|item| item.runs(scale, variant)) {
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
            for run in item.runs(scale(), &Variant::default()) {
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
        let plan_of = |items: &[Item]| plan(items, scale(), &Variant::default());
        assert_eq!(plan_of(&Item::ALL).len(), named.len());
        assert_eq!(plan_of(&[Item::Table3, Item::Table5]).len(), 3, "the whole system runs once");
    }

    #[test]
    fn each_table_at_a_thousandth_is_a_matter_of_minutes() {
        for item in Item::ALL.into_iter().filter(|item| *item != Item::Reference) {
            let runs = item.runs(scale(), &Variant::default());
            let seconds: f64 = runs.iter().map(RunSpec::expected_seconds).sum();
            assert!((10.0..480.0).contains(&seconds), "{item}: {seconds:.0} s");
        }
    }

    #[test]
    fn a_variant_stands_beside_the_whole_under_a_name_of_its_own() {
        let parts = HotParts { retention: false, promotion_by_flush: false, ..HotParts::default() };
        let variant = Variant { parts, hotness: Some(Hotness::Lru) };
        assert_eq!(variant.suffix().unwrap(), "no-retention-no-promotion-by-flush-lru");
        let runs = Item::Reference.runs(scale(), &variant);
        assert_eq!(runs.len(), 4 * ROWS.len());
        assert_eq!(runs[1].name, "reference-ro-hotspot5-kelvin-no-retention-no-promotion-by-flush-lru");
        let (whole, less) = (&runs[0].options, &runs[1].options);
        assert!(whole.hot_parts == HotParts::default() && less.hot_parts == parts);
        assert_eq!((less.hotness, less.ops), (Some(Hotness::Lru), whole.ops));
        assert_eq!(Variant::default().suffix(), None);
        assert_eq!(Item::Table3.runs(scale(), &variant).len(), 2, "tables have their own");
    }
}
