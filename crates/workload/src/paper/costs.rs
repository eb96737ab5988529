//! What the processor and the disks are busy with (HotRAP §4.4): Figure 12 by activity, Figure 13 by purpose, on records of 200 B;
//! Figure 14 by purpose over time, on RW hotspot-5 % with records of 1 KiB.
//!
//! Only systems of our own say what their work is for. Of processor time that of clients is taken from one operation in sixteen,
//! that of background jobs when they are over; what is left is the benchmark's own and that of jobs under way. Tests: `tests.rs`.

use kelvin::Purpose;
use kelvin_base::Result;
use serde_json::Value;

use super::cells::{NONE, bytes, figure, percent, ratio_of};
use super::plan::Contender;
use super::throughput::{FIGURE_6, FIGURE_7, Row};
use super::{Paper, Plots, Table};
use crate::options::System;
use crate::plot::{Line, LinePlot, StackPlot};

/// The workload of Figure 14.
pub const OVER_TIME: Row = FIGURE_6[1];
/// The systems that say what their work is for.
const SYSTEMS: [System; 3] = [System::Kelvin, System::Fat, System::FastOnly];

/// A part of a stack: its name, and what it is of a report.
type Part = (&'static str, fn(&Value) -> Option<f64>);

fn all_cpu(report: &Value) -> Option<f64> {
    Some(figure(report, "/cpu_us_per_op")? * figure(report, "/ops")?)
}

/// The sum of figures; of none it is 0, and not the standard library's −0.
fn total(figures: impl Iterator<Item = f64>) -> f64 {
    figures.fold(0.0, |sum, one| sum + one)
}

/// Microseconds of what clients did for operations called `names`.
fn client(report: &Value, names: &[&str]) -> Option<f64> {
    let cpu = report["cpu"].as_object()?;
    let of = |name: &&str| cpu.get(&format!("client_{name}_us"))?.as_f64();
    Some(total(names.iter().filter_map(of)))
}

fn lane(report: &Value, name: &str) -> Option<f64> {
    report["cpu"].get(format!("background_{name}_us"))?.as_f64()
}

const CPU: [Part; 6] = [
    ("reads", |report| client(report, &["read", "scan"])),
    ("writes", |report| client(report, &["update", "insert", "modify", "delete"])),
    ("flush", |report| lane(report, "flush")),
    ("compaction", |report| lane(report, "compaction")),
    ("tracker", |report| lane(report, "tracking")),
    ("other", |report| {
        let known: Option<f64> = CPU[..5].iter().map(|(_, of)| of(report)).sum();
        Some((all_cpu(report)? - known?).max(0.0))
    }),
];

/// Bytes read and written on both tiers for `purposes`.
fn moved(report: &Value, purposes: &[Purpose]) -> Option<f64> {
    let io = report["io"].as_object()?;
    let of = |purpose: &Purpose| -> f64 {
        let names = ["fast_read", "fast_written", "slow_read", "slow_written"];
        let one = |name: &str| io.get(&format!("{}_{name}_bytes", purpose.name()))?.as_f64();
        total(names.iter().filter_map(|name| one(name)))
    };
    Some(total(purposes.iter().map(of)))
}

const IO: [Part; 5] = [
    ("reads", |report| moved(report, &[Purpose::Get, Purpose::Scan])),
    ("flush", |report| moved(report, &[Purpose::Flush])),
    ("compaction", |report| moved(report, &[Purpose::Compaction])),
    ("tracker", |report| moved(report, &[Purpose::Hotness])),
    ("log, other", |report| moved(report, &[Purpose::Log, Purpose::Upkeep])),
];

/// The runs of Figures 12 and 13 with their names: workload and contender.
fn stacks(paper: &Paper) -> impl Iterator<Item = (&'static Row, &Contender)> {
    FIGURE_7.iter().flat_map(|row| paper.choice.of(&SYSTEMS).map(move |one| (row, one)))
}

/// A row for each run: every part over `per`, the whole, and the tracker's part of that.
fn table(
    paper: &Paper,
    (title, caption): (&str, &str),
    parts: &[Part],
    shown: fn(Option<f64>) -> String,
    per: fn(&Value) -> Option<f64>,
) -> Table {
    let mut table = Table::new(title, caption, &["workload, system"]);
    table.header.extend(parts.iter().map(|(name, _)| name.to_string()));
    table.header.extend(["all", "tracker's part"].map(String::from));
    for (row, one) in stacks(paper) {
        let report = paper.report(&one.run_name(&row.base()));
        let of = |part: &Part| ratio_of((part.1)(report?), per(report?));
        let all: Option<f64> = parts.iter().map(of).sum();
        let tracker = parts.iter().find(|(name, _)| *name == "tracker").and_then(of);
        let cells = parts.iter().map(|part| shown(of(part)));
        table.row(
            std::iter::once(format!("{}, {}", row.name(), one.label()))
                .chain(cells)
                .chain([shown(all), percent(ratio_of(tracker, all))]),
        );
    }
    table
}

fn stack_plot(paper: &Paper, y: &str, parts: &[Part], per: fn(&Value) -> Option<f64>) -> Result<String> {
    let contenders: Vec<&Contender> = paper.choice.of(&SYSTEMS).collect();
    let height = |(_, of): &Part, row: &Row, one: &Contender| {
        let report = paper.report(&one.run_name(&row.base()))?;
        ratio_of(of(report), per(report))
    };
    let of_part = |part: &Part| {
        let of_row = |row: &Row| contenders.iter().map(|one| height(part, row, one)).collect();
        (part.0.to_string(), FIGURE_7.iter().map(of_row).collect())
    };
    StackPlot {
        y: y.into(),
        groups: FIGURE_7.iter().map(Row::name).collect(),
        bars: contenders.iter().map(|one| one.label()).collect(),
        parts: parts.iter().map(of_part).collect(),
    }
    .draw()
}

fn operations(report: &Value) -> Option<f64> {
    figure(report, "/ops")
}

fn micros(number: Option<f64>) -> String {
    number.map_or_else(|| NONE.into(), |us| format!("{us:.1}"))
}

/// Figure 12.
pub(super) fn cpu(paper: &Paper) -> Table {
    let caption = "Microseconds of processor time an operation, whole run. The paper's RALT takes 3.1 to 12.3 % of all; here the tracker is \
                   to stay below 12 %, and below 5 % in RO.";
    table(paper, ("Figure 12: processor time, 200 B", caption), &CPU, micros, operations)
}

/// Its plot.
pub(super) fn cpu_plots(paper: &Paper) -> Result<Plots> {
    let caption = "What an operation costs the processor, and for what: the tracker's part is to be thin.";
    Ok(vec![(caption.into(), stack_plot(paper, "microseconds an operation", &CPU, operations)?)])
}

fn thousands(report: &Value) -> Option<f64> {
    Some(figure(report, "/ops")? / 1e3)
}

/// Figure 13.
pub(super) fn io(paper: &Paper) -> Table {
    let caption = "Bytes read and written on both disks for a thousand operations, whole run. The paper's RALT takes 6.1 to 15.5 % of all; here \
                   the tracker is to stay below 6 %.";
    table(paper, ("Figure 13: bytes read and written, 200 B", caption), &IO, bytes, thousands)
}

/// Its plot.
pub(super) fn io_plots(paper: &Paper) -> Result<Plots> {
    let per = |report: &Value| Some(thousands(report)? * 1e6);
    let caption = "What a thousand operations move, and for what: the tracker's part is to be thin.";
    Ok(vec![(caption.into(), stack_plot(paper, "MB for a thousand operations", &IO, per)?)])
}

/// The lines of Figure 14: name, purposes, and tier.
const LINES: [(&str, &[Purpose], usize); 6] = [
    ("reads, fast disk", &[Purpose::Get, Purpose::Scan], 0),
    ("reads, slow disk", &[Purpose::Get, Purpose::Scan], 1),
    ("compaction, fast disk", &[Purpose::Compaction], 0),
    ("compaction, slow disk", &[Purpose::Compaction], 1),
    ("flush and log", &[Purpose::Flush, Purpose::Log], 0),
    ("tracker", &[Purpose::Hotness], 0),
];

/// Seconds and MB a second of `purposes` on a tier, row by row of the timeline.
fn traffic(report: &Value, purposes: &[Purpose], tier: usize) -> Vec<(f64, f64)> {
    let rows = report["time_series"].as_array().map_or(&[][..], Vec::as_slice);
    let point = |row: &Value| {
        let moved = row["bytes_per_s"].as_object()?;
        let of = |purpose: &Purpose| moved.get(purpose.name())?.get(tier)?.as_f64();
        Some((row["second"].as_f64()?, total(purposes.iter().filter_map(of)) / 1e6))
    };
    rows.iter().filter_map(point).collect()
}

/// Figure 14.
pub(super) fn over_time(paper: &Paper) -> Table {
    let mut table = Table::new(
        "Figure 14: what the disks move for what (RW hotspot-5 %, 1 KiB)",
        "MB a second read and written, mean of the first and of the last tenth of the run's time. As hot records come to the fast disk, reads \
         move there and grow. The paper shows curves and no figures.",
        &["system"],
    );
    let ends = ["begins", "ends"];
    table.header.extend(LINES.iter().flat_map(|(name, ..)| ends.map(|end| format!("{name}: {end}"))));
    for one in paper.choice.of(&SYSTEMS) {
        let report = paper.report(&one.run_name(&OVER_TIME.base()));
        let mean = |points: &[(f64, f64)]| {
            let sum: f64 = points.iter().map(|point| point.1).sum();
            (!points.is_empty()).then(|| sum / points.len() as f64)
        };
        let cells = LINES.iter().flat_map(|(_, purposes, tier)| {
            let points = report.map(|report| traffic(report, purposes, *tier)).unwrap_or_default();
            let tenth = points.len().div_ceil(10);
            [mean(&points[..tenth]), mean(&points[points.len() - tenth..])]
        });
        let shown = |rate: Option<f64>| rate.map_or_else(|| NONE.into(), |rate| format!("{rate:.1}"));
        table.row(std::iter::once(one.label()).chain(cells.map(shown)));
    }
    table
}

/// A plot for each system.
pub(super) fn over_time_plots(paper: &Paper) -> Result<Plots> {
    let mut plots = Plots::new();
    for one in paper.choice.of(&SYSTEMS) {
        let Some(report) = paper.report(&one.run_name(&OVER_TIME.base())) else { continue };
        let lines = LINES
            .iter()
            .enumerate()
            .map(|(index, (name, purposes, tier))| Line::new(*name, index, traffic(report, purposes, *tier)));
        let lines: Vec<Line> = lines.filter(|line| line.points.iter().any(|point| point.1 > 0.0)).collect();
        let caption = match one.system {
            System::Kelvin => "reads move from the slow disk to the fast one, and grow.",
            System::Fat => "reads stay on the slow disk, which bounds them.",
            _ => "everything is on the fast disk.",
        };
        let (x, y) = ("seconds".into(), "MB a second".into());
        let plot = LinePlot { x, y, lines, has_legend_above: true, ..LinePlot::default() };
        plots.push((format!("{}: {caption}", one.label()), plot.draw()?));
    }
    Ok(plots)
}
