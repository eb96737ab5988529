//! The reference: the authors' own implementation, measured once, and the runs of Kelvin that stand beside it.
//!
//! A row is a workload; its runs are those of three systems, and of Kelvin with parts left out where that was asked for.
//! Tests: `tests.rs`, and `item.rs`.

use super::item::{HOTSPOT, RunSpec, Variant};
use super::scale::Scale;
use crate::generate::keys::KeyDistribution;
use crate::options::{System, Workload};

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

    /// Its runs; one more, of the system `kelvin`, if a `variant` of that is wanted.
    pub(super) fn runs(&self, scale: Scale, variant: &Variant) -> Vec<RunSpec> {
        let run = |system: System| {
            // What `fat` does, it does from the first second: a fifth shows it, and spares minutes at the slow disk's pace.
            let is_steady = system == System::Fat && self.keys != KeyDistribution::Uniform;
            let ops = scale.of(self.ops * 100.0) / if is_steady { 5 } else { 1 };
            let run = RunSpec::new(scale, &self.run_name(system), system, self.workload, ops.max(1));
            run.with(|options| options.keys = self.keys)
        };
        let mut runs: Vec<RunSpec> = Self::SYSTEMS.map(run).into();
        if let Some(suffix) = variant.suffix() {
            let name = format!("{}-{suffix}", self.run_name(System::Kelvin));
            let of_kelvin = RunSpec { name, ..run(System::Kelvin) };
            runs.insert(1, of_kelvin.with(|options| variant.apply(options)));
        }
        runs
    }
}
