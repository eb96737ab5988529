//! Who stands in the figures, and one run of one of them.
//!
//! The names of runs are a promise: results are kept under them. Tests: `item.rs` and `tests.rs`.

use kelvin::{HotParts, Hotness};

use super::scale::{KEY_SIZE, Scale, VALUE_SIZE};
use super::traces::TraceRun;
use crate::generate::keys::HOTSPOT_5;
use crate::options::{BenchOptions, DeviceLimits, System, Workload};

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

/// A system that stands in a figure; of the system `kelvin` the whole, or one with parts left out.
#[derive(Clone, Copy, Debug)]
pub struct Contender {
    /// The system.
    pub system: System,
    /// What of it.
    pub variant: Variant,
}

impl Contender {
    /// The whole of `system`.
    #[must_use]
    pub fn whole(system: System) -> Self {
        Self { system, variant: Variant::default() }
    }

    /// What tables and plots call it.
    #[must_use]
    pub fn label(&self) -> String {
        match self.variant.suffix() {
            Some(suffix) => format!("{} {suffix}", self.system),
            None => self.system.to_string(),
        }
    }

    /// The name of its run of what is called `base`.
    #[must_use]
    pub fn run_name(&self, base: &str) -> String {
        match self.variant.suffix() {
            Some(suffix) => format!("{base}-{}-{suffix}", self.system),
            None => format!("{base}-{}", self.system),
        }
    }

    /// Its run of what is called `base`.
    pub(super) fn run(&self, scale: Scale, base: &str, workload: Workload, ops: u64) -> RunSpec {
        let run = RunSpec::new(scale, &self.run_name(base), self.system, workload, ops.max(1));
        run.with(|options| self.variant.apply(options))
    }
}

/// What the figures are drawn of.
#[derive(Clone, Debug)]
pub struct Choice {
    /// How large.
    pub scale: Scale,
    /// Who stands in them, in their order.
    pub contenders: Vec<Contender>,
    /// The traces of Figures 9 to 11.
    pub traces: Vec<super::traces::TraceSource>,
}

impl Choice {
    /// The contenders that are `system`, or one of its variants.
    pub(super) fn of(&self, systems: &[System]) -> impl Iterator<Item = &Contender> {
        self.contenders.iter().filter(move |one| systems.contains(&one.system))
    }
}

/// One run of one system.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// The name its result is kept under.
    pub name: String,
    /// What to run; the directories are filled in when it runs.
    pub options: BenchOptions,
    /// The trace that it replays, if it does; then that says which operations there are.
    pub trace: Option<TraceRun>,
    /// The slow disk is of this run's own: no other is wanted for it.
    pub has_own_disk: bool,
}

impl RunSpec {
    pub(super) fn new(scale: Scale, name: &str, system: System, workload: Workload, ops: u64) -> Self {
        let options = BenchOptions {
            workload,
            keys: HOTSPOT_5,
            records: scale.records(),
            key_size: KEY_SIZE,
            value_size: VALUE_SIZE,
            ops: Some(ops),
            threads: 4,
            fast_capacity: system.is_tiered().then(|| scale.fast_bytes()),
            memory: scale.memory_bytes(),
            limits: if system.is_tiered() { scale.slow_disk() } else { DeviceLimits::default() },
            reuse: true,
            ..BenchOptions::new(system, "")
        };
        Self { name: name.to_string(), options, trace: None, has_own_disk: false }
    }

    pub(super) fn with(mut self, change: impl FnOnce(&mut BenchOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Another slow disk than the scale's, for a run that has two and none of its own.
    #[must_use]
    pub fn on_disk(self, limits: DeviceLimits) -> Self {
        if self.has_own_disk || !self.options.system.is_tiered() {
            return self;
        }
        self.with(|options| options.limits = limits)
    }

    /// About how long it takes, seconds: its reads of the slow disk, which makes `slow_reads` a second where the run has no limit of its
    /// own, and the processor's part of the rest.
    #[must_use]
    pub fn expected_seconds(&self, slow_reads: Option<f64>) -> f64 {
        let options = &self.options;
        let mix = options.workload.mix();
        let ops = options.run_ops() as f64;
        let reads = match &self.trace {
            Some(_) => ops,
            None => ops * f64::from(mix.read + mix.scan + mix.modify) / 100.0,
        };
        let kept = options.fast_capacity.unwrap_or(u64::MAX) / (options.key_size + options.value_size) as u64;
        let best = crate::best::best_possible_hit_rate(options.keys, options.records, kept);
        // Without a tracker what is fast is fast by chance; with one the hot records are read from the slow disk once.
        let hits = match options.hotness() {
            Some(Hotness::Off) | None if options.system.is_tiered() => 0.09,
            _ => best,
        };
        let learnt = if hits > 0.5 { kept.min(options.records / 20) as f64 } else { 0.0 };
        let slow = if options.system.is_tiered() { reads * (1.0 - hits) + 2.0 * learnt } else { 0.0 };
        let slow_reads = options.limits.slow_read_iops.map(|iops| iops as f64).or(slow_reads);
        let waits = slow_reads.map_or(0.0, |a_second| slow / a_second);
        waits + ops * 60e-6 + (ops - reads) * 100e-6
    }
}
