//! The report as one HTML page that needs nothing else: for each item its table and the plots of the paper's figure.
//!
//! Tests: `tests.rs`.

use std::fmt::Write as _;

use kelvin_base::Result;
use serde_json::Value;

use super::item::Item;
use super::pairs;
use super::reference::{ROWS, ReferenceRow};
use super::tables::{SCORERS, figure, table};
use super::{Paper, Table};
use crate::device;
use crate::generate::stages::STAGES;
use crate::html::{HEAD, escape, over_time};
use crate::options::System;
use crate::plot::{BarPlot, Line, LinePlot};

const RW_RUNS: [(&str, &str); 3] = [
    ("HotRAP", "rw-hotspot5-kelvin"),
    ("no retention", "rw-hotspot5-no-retention"),
    ("no promotion by compaction", "rw-hotspot5-no-promotion-by-compaction"),
];
const UNIFORM_RUNS: [(&str, &str); 2] =
    [("HotRAP", "ro-uniform-kelvin"), ("no hotness check", "ro-uniform-no-hotness-check")];

/// The page.
///
/// # Errors
/// If a plot cannot be drawn.
pub fn html(paper: &Paper) -> Result<String> {
    let mut page = String::from(HEAD);
    let _written = writeln!(
        page,
        "<title>HotRAP's evaluation</title></head><body><h1>HotRAP's evaluation, at {}</h1>\n<p>{}</p>",
        paper.scale,
        escape(&setup(paper))
    );
    if !paper.devices.is_empty() {
        let named: Vec<_> = paper.devices.iter().map(|(name, device)| (*name, device)).collect();
        let disks = device::table(&named);
        let _written = writeln!(page, "<h2 id=\"disks\">{}</h2>\n{}", escape(&disks.title), disks.html());
    }
    for item in &paper.items {
        let table: Table = table(paper, *item);
        let _written = writeln!(page, "<h2 id=\"{item}\">{}</h2>", escape(&table.title));
        page.push_str(&table.html());
        for (caption, svg) in plots(paper, *item)? {
            let _written =
                writeln!(page, "<figure>{svg}<figcaption>{}</figcaption></figure>", escape(&caption));
        }
    }
    page.push_str("</body></html>\n");
    Ok(page)
}

/// What was set up, in a sentence.
#[must_use]
pub fn setup(paper: &Paper) -> String {
    let Some((run, _)) = paper.runs.first() else { return String::new() };
    let options = &run.options;
    let limit = |limit: Option<u64>, unit: &str| {
        limit.map_or_else(|| format!("unlimited {unit}"), |limit| format!("{limit} {unit}"))
    };
    format!(
        "{} records of {} + {} bytes; {:.0} MB of fast disk; a slow disk of {}, {}; {:.0} MiB of memory; {} threads.",
        options.records,
        options.key_size,
        options.value_size,
        paper.scale.fast_bytes() as f64 / 1e6,
        limit(options.limits.slow_read_iops, "reads a second"),
        limit(options.limits.slow_bandwidth.map(|bytes| bytes / 1_000_000), "MB/s"),
        options.memory as f64 / (1 << 20) as f64,
        options.threads,
    )
}

type Plots = Vec<(String, String)>;

fn plots(paper: &Paper, item: Item) -> Result<Plots> {
    match item {
        Item::Table3 => {
            let caption = "Hit rate over the operations done: with retention it stays up, without it hot records keep leaving.";
            Ok(vec![(caption.into(), hits(paper, &RW_RUNS[..2])?), moved(paper, &RW_RUNS[..2])?])
        }
        Item::Table5 => Ok(vec![moved(paper, &[RW_RUNS[0], RW_RUNS[2]])?]),
        Item::Table4 => Ok(vec![moved(paper, &UNIFORM_RUNS)?]),
        Item::Scorers => {
            let runs = SCORERS.map(|(name, run, _)| (name, run));
            let caption =
                "Hit rate over the operations done: the higher, the better the scorer tells hot keys.";
            Ok(vec![(caption.into(), hits(paper, &runs)?)])
        }
        Item::Dynamic => dynamic(paper),
        Item::Uniform => bars(
            "Throughput with hotness and without: nothing is hot, so nothing should differ.",
            "operations a second, whole run",
            pairs::uniform_bars(paper),
        ),
        Item::Speedup => bars(
            "Throughput at the end of each run: kelvin is to stand near fast-only, as far as the slow disk allows.",
            "operations a second, final tenth",
            pairs::speedup_bars(paper),
        ),
        Item::Reference => reference(paper),
    }
}

/// The points of a run's timeline.
fn points(report: &Value, x: &str, y: &str, times: f64) -> Vec<(f64, f64)> {
    let rows = report["time_series"].as_array().map_or(&[][..], Vec::as_slice);
    rows.iter().filter_map(|row| Some((row[x].as_f64()?, row[y].as_f64()? * times))).collect()
}

fn line(paper: &Paper, index: usize, (name, run): (&str, &str), axes: (&str, &str, f64)) -> Option<Line> {
    let points = points(paper.report(run)?, axes.0, axes.1, axes.2);
    (!points.is_empty()).then(|| Line::new(name, index, points))
}

/// Hit rate of several runs over their operations, so that fast and slow ones can be compared.
fn hits(paper: &Paper, runs: &[(&str, &str)]) -> Result<String> {
    let axes = ("ops", "fast_hit_rate", 100.0);
    let lines = runs.iter().enumerate().filter_map(|(index, run)| line(paper, index, *run, axes)).collect();
    let y = "per cent of the reads, fast";
    LinePlot { x: "operations".into(), y: y.into(), top: Some(100.0), lines, ..LinePlot::default() }.draw()
}

/// Bytes that two runs moved, by what for.
fn moved(paper: &Paper, runs: &[(&str, &str)]) -> Result<(String, String)> {
    let kinds = [
        ("promoted by flush", "/bytes/promoted_flush"),
        ("promoted by compaction", "/bytes/promoted_compaction"),
        ("retained", "/bytes/retained"),
        ("compaction read", "/bytes/compaction_read"),
        ("compaction written", "/bytes/compaction_written"),
    ];
    let series = runs.iter().map(|(name, run)| {
        let height = |pointer: &str| figure(paper.report(run)?, pointer).map(|bytes| bytes / 1e6);
        (name.to_string(), kinds.iter().map(|(_, pointer)| height(pointer)).collect())
    });
    let plot = BarPlot {
        y: "MB in the run phase".into(),
        groups: kinds.iter().map(|(name, _)| name.to_string()).collect(),
        series: series.collect(),
    };
    Ok(("What was moved: less is better, of as many operations.".into(), plot.draw()?))
}

/// One plot of bars: groups, and the heights of each system.
fn bars(caption: &str, y: &str, (groups, series): pairs::Bars) -> Result<Plots> {
    Ok(vec![(caption.into(), BarPlot { y: y.into(), groups, series }.draw()?)])
}

fn dynamic(paper: &Paper) -> Result<Plots> {
    let run = ("kelvin", "ro-dynamic-kelvin");
    let Some(report) = paper.report(run.1) else { return Ok(Vec::new()) };
    let stages = report["stages"].as_array().map_or(&[][..], Vec::as_slice);
    let marks: Vec<(f64, String)> = stages
        .iter()
        .zip(STAGES)
        .filter_map(|(report, stage)| Some((report["from_op"].as_f64()?, stage.name.to_string())))
        .collect();
    let over_operations = |y: &str, top: Option<f64>, lines: Vec<Option<Line>>| {
        let lines = lines.into_iter().flatten().collect();
        LinePlot { x: "operations".into(), y: y.into(), top, lines, marks: marks.clone(), x_label: None }
            .draw()
    };
    let throughput = line(paper, 1, ("operations/s", run.1), ("ops", "ops_per_s", 1.0));
    let hit_rate = line(paper, 0, ("hit rate", run.1), ("ops", "fast_hit_rate", 100.0));
    let size = line(paper, 2, ("hot set", run.1), ("ops", "hot_set_bytes", 1e-6));
    let limit = line(paper, 0, ("limit", run.1), ("ops", "hot_set_limit_bytes", 1e-6)).map(Line::dashed);
    Ok(vec![
        (
            "Reads answered without the slow disk: a drop where the hotspot grows or moves, and back within the stage."
                .into(),
            over_operations("per cent of the reads, fast", Some(100.0), vec![hit_rate])?,
        ),
        ("Throughput follows the hit rate.".into(), over_operations("operations a second", None, vec![throughput])?),
        (
            "The hot set and its limit: the limit falls when nothing is hot, and follows the hotspot's size.".into(),
            over_operations("MB of keys and values", None, vec![size, limit])?,
        ),
    ])
}

fn reference(paper: &Paper) -> Result<Plots> {
    let system = |system| {
        let height = |row: &ReferenceRow| figure(paper.report(&row.run_name(system))?, "/ops_per_s_last10");
        (system.name().to_string(), ROWS.iter().map(height).collect())
    };
    let mut series: Vec<(String, Vec<Option<f64>>)> = ReferenceRow::SYSTEMS.map(system).into();
    series.push(("HotRAP at 1/100".into(), ROWS.iter().map(|row| Some(row.ops_per_s_last10)).collect()));
    let bars = BarPlot {
        y: "operations a second, final tenth".into(),
        groups: ROWS.iter().map(|row| row.name.to_string()).collect(),
        series,
    };
    let lines = |y: &str, times: f64| -> Vec<Line> {
        let runs =
            ROWS.iter().enumerate().map(|(index, row)| (index, row.name, row.run_name(System::Kelvin)));
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
