//! The reference: the authors' own implementation, measured once, and the runs of Kelvin that stand beside it.
//!
//! A row is a workload; its runs are those of every contender.
//! Tests: `tests.rs`, and `item.rs`.

use kelvin_base::Result;

use super::cells::{NONE, bytes, figure, micros, percent, rate};
use super::page::line;
use super::plan::{Choice, Contender, RunSpec};
use super::scale::Scale;
use super::{Paper, Plots, Table};
use crate::generate::keys::{HOTSPOT_5, KeyDistribution};
use crate::html::over_time;
use crate::options::{System, Workload};
use crate::plot::{BarPlot, Line};

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
        keys: HOTSPOT_5,
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
        keys: HOTSPOT_5,
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
        keys: HOTSPOT_5,
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
        keys: HOTSPOT_5,
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
    /// What the names of its runs begin with.
    fn base(&self) -> String {
        let keys = match self.keys {
            KeyDistribution::Hotspot { .. } => "hotspot5",
            KeyDistribution::Zipf { .. } => "zipf",
            _ => "uniform",
        };
        format!("reference-{}-{keys}", self.workload.name().to_lowercase())
    }

    fn run(&self, scale: Scale, one: &Contender) -> RunSpec {
        // What a system that learns nothing does with two tiers, it does from the first second: a fifth shows it, and spares
        // minutes at the slow disk's pace.
        let is_steady = one.system.is_tiered() && !one.system.learns();
        let part = if is_steady && self.keys != KeyDistribution::Uniform { 5 } else { 1 };
        let run = one.run(scale, &self.base(), self.workload, scale.of(self.ops * 100.0) / part);
        run.with(|options| options.keys = self.keys)
    }
}

/// The runs of every row.
pub(super) fn runs(choice: &Choice) -> Vec<RunSpec> {
    ROWS.iter().flat_map(|row| choice.contenders.iter().map(|one| row.run(choice.scale, one))).collect()
}

fn reached(ops: Option<f64>, seconds: Option<f64>) -> String {
    ops.zip(seconds)
        .map_or_else(|| NONE.into(), |(ops, seconds)| format!("{} ({seconds:.1} s)", rate(Some(ops))))
}

/// The table.
pub(super) fn table(paper: &Paper) -> Table {
    let mut table = Table::new(
        "Reference: Kelvin between its bounds, and beside HotRAP's own code (1 KiB)",
        "'HotRAP' is the authors' code at 1/100 on two cores over a disk throttled by the kernel: its rates belong to that \
         scale and disk; the bytes it wrote are scaled. 'fat' has no tracker, 'fast-only' has everything on the fast disk. \
         'best' is what an oracle would have of the fast disk.",
        &[
            "workload, system",
            "operations/s",
            "final tenth",
            "hit rate, final tenth",
            "best",
            "CPU us/op, final tenth",
            "compaction written",
            "to 90 % of final",
        ],
    );
    for row in &ROWS {
        for one in &paper.choice.contenders {
            let report = paper.report(&one.run_name(&row.base()));
            let of = |pointer: &str| figure(report?, pointer);
            table.row([
                format!("{}, {}", row.name, one.label()),
                rate(of("/ops_per_s")),
                rate(of("/ops_per_s_last10")),
                percent(of("/fast_hit_rate_last10").filter(|_| one.system.is_tiered())),
                percent(of("/best_possible_hit_rate").filter(|_| one.system == System::Kelvin)),
                micros(of("/cpu_us_per_op_last10")),
                bytes(of("/bytes/compaction_written")),
                reached(of("/ops_to_90_percent"), of("/seconds_to_90_percent")),
            ]);
        }
        let part = paper.choice.scale.part() * 100.0;
        table.row([
            format!("{}, HotRAP", row.name),
            rate(Some(row.ops_per_s)),
            rate(Some(row.ops_per_s_last10)),
            percent(Some(row.hit_percent_last10 / 100.0)),
            NONE.into(),
            format!("{:.0}", row.cpu_us_last10),
            bytes(Some(row.compaction_written_gb * 1e9 * part)),
            reached(row.reached.map(|one| one.0), row.reached.map(|one| one.1)),
        ]);
        if let Some(rate_of_all) = row.all_fast_ops_per_s {
            let mut cells = vec![NONE.to_string(); table.header.len()];
            cells[0] = format!("{}, RocksDB all fast", row.name);
            cells[2] = rate(Some(rate_of_all));
            table.row(cells);
        }
    }
    table
}

/// Throughput at the end, and hits and throughput over time.
pub(super) fn plots(paper: &Paper) -> Result<Plots> {
    let system = |one: &Contender| {
        let height =
            |row: &ReferenceRow| figure(paper.report(&one.run_name(&row.base()))?, "/ops_per_s_last10");
        (one.label(), ROWS.iter().map(height).collect())
    };
    let mut series: Vec<(String, Vec<Option<f64>>)> = paper.choice.contenders.iter().map(system).collect();
    series.push(("HotRAP at 1/100".into(), ROWS.iter().map(|row| Some(row.ops_per_s_last10)).collect()));
    let bars = BarPlot {
        y: "operations a second, final tenth".into(),
        groups: ROWS.iter().map(|row| row.name.to_string()).collect(),
        series,
    };
    let lines = |y: &str, times: f64| -> Vec<Line> {
        let kelvin = Contender::whole(System::Kelvin);
        let runs = ROWS.iter().enumerate();
        let runs = runs.map(|(index, row)| (index, row.name, kelvin.run_name(&row.base())));
        runs.filter_map(|(index, name, run)| line(paper, index, (name, &run), ("second", y, times))).collect()
    };
    Ok(vec![
        ("Throughput at the end of each run: kelvin stands between fat and fast-only.".into(), bars.draw()?),
        (
            "Reads that kelvin answered without the slow disk, from a cold start: the steeper, the sooner it is warm.".into(),
            over_time("per cent of the reads, fast", Some(100.0), lines("fast_hit_rate", 100.0), Vec::new())?,
        ),
        (
            "Throughput of kelvin from a cold start.".into(),
            over_time("operations a second", None, lines("ops_per_s", 1.0), Vec::new())?,
        ),
    ])
}
