//! A soak as one HTML page: its verdicts, counts, and plots over time with what was done to the store behind the lines.
//!
//! Tests: `tests/soak.rs` of this crate.

use std::fmt::Write as _;
use std::time::Duration;

use kelvin::Result;

use super::phase::Phase;
use super::sample::Sample;
use super::{Soaked, word};
use crate::html::{HEAD, escape};
use crate::plot::{BAND_OPACITY, Band, Line, LinePlot, colour};

/// Times of faults are cut off at so many times the median of those of calm samples, so that the calm ones can be read.
const TOP_OVER_CALM: f64 = 6.0;

/// The colour of what is done to the store; none for what is nothing.
fn colour_of(phase: Phase) -> Option<usize> {
    match phase {
        Phase::Load => Some(6),
        Phase::Calm => None,
        Phase::SlowAway => Some(0),
        Phase::SlowHangs => Some(3),
        Phase::FastFull => Some(4),
        Phase::SlowFull => Some(7),
        Phase::Checkpoint => Some(2),
        Phase::Reopen => Some(5),
    }
}

fn bands(soaked: &Soaked) -> Vec<Band> {
    let band = |span: &super::phase::Span| {
        let ends = (span.from.as_secs_f64(), span.to.unwrap_or(Duration::ZERO).as_secs_f64());
        Some(Band { colour: colour(colour_of(span.phase)?), ends })
    };
    soaked.spans.iter().filter_map(band).collect()
}

/// Which colour stands for what.
fn legend() -> String {
    let swatch = |phase: &Phase| {
        let colour = colour(colour_of(*phase)?);
        let (r, g, b) = (colour.0, colour.1, colour.2);
        let name = phase.name();
        Some(format!(
            "<span style=\"background:rgba({r},{g},{b},{BAND_OPACITY});padding:.1em .6em;margin-right:.6em\">{name}</span>"
        ))
    };
    [Phase::Load].iter().chain(&Phase::ROUND).filter_map(swatch).collect()
}

/// A line for a figure of the samples, where there is one.
fn line(soaked: &Soaked, name: &str, index: usize, figure: impl Fn(&Sample) -> Option<f64>) -> Line {
    let points = soaked.samples.iter().filter_map(|sample| Some((sample.seconds, figure(sample)?)));
    Line::new(name, index, points.collect())
}

fn limit(soaked: &Soaked, name: &str, index: usize, value: f64) -> Line {
    let end = soaked.samples.last().map_or(1.0, |sample| sample.seconds);
    Line::new(name, index, vec![(0.0, value), (end, value)]).dashed()
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn plot(soaked: &Soaked, y: &str, top: Option<f64>, mut lines: Vec<Line>) -> Result<String> {
    if let Some(top) = top {
        lines.iter_mut().flat_map(|line| &mut line.points).for_each(|point| point.1 = point.1.min(top));
    }
    lines.retain(|line| !line.points.is_empty());
    // Above the highest point there is room for the legend.
    let top = top.map(|top| top * 1.6);
    LinePlot {
        x: "seconds since the run began".into(),
        y: y.into(),
        top,
        lines,
        bands: bands(soaked),
        has_legend_above: true,
        ..LinePlot::default()
    }
    .draw()
}

/// The highest time that a plot shows.
fn top_of(soaked: &Soaked, figures: [fn(&Sample) -> Option<f64>; 2]) -> Option<f64> {
    let calm = || soaked.samples.iter().filter(|sample| sample.phase == Phase::Calm);
    let middle = |figure: fn(&Sample) -> Option<f64>| {
        let mut values: Vec<f64> = calm().filter_map(figure).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    let highest = figures.into_iter().filter_map(middle).fold(0.0, f64::max);
    (highest > 0.0).then_some(highest * TOP_OVER_CALM)
}

type Plot = (&'static str, &'static str, Result<String>);

/// What it takes.
fn plots_of_room(soaked: &Soaked) -> [Plot; 3] {
    let resident_limit = soaked.setup.resident_limit_bytes() + soaked.own_bytes;
    let memory = vec![
        line(soaked, "resident", 0, |one| Some(megabytes(one.resident_bytes))),
        line(soaked, "accounts of the store", 1, |one| Some(megabytes(one.memory_bytes))),
        limit(soaked, "limit of what is resident", 6, megabytes(resident_limit)),
    ];
    let fast = vec![
        line(soaked, "used", 0, |one| Some(megabytes(one.used_bytes[0]))),
        limit(soaked, "capacity", 6, megabytes(soaked.setup.fast_capacity)),
    ];
    let space = vec![
        line(soaked, "stored", 0, |one| Some(megabytes(one.used_bytes.iter().sum()))),
        line(soaked, "records that are there", 1, |one| Some(megabytes(one.live_bytes))),
    ];
    [
        (
            "Memory",
            "What is resident, and what the store's accounts say. The limit is the option and a tenth, and what the clients hold themselves. \
             Beside a checkpoint there is a second store.",
            plot(soaked, "MB of memory", None, memory),
        ),
        (
            "The fast disk",
            "What the store's files take of it. The capacity is a hard limit.",
            plot(soaked, "MB on the fast disk", None, fast),
        ),
        (
            "Space",
            "What is there, and what it takes on both disks, compressed: older versions, deletions, copies and files under way are more.",
            plot(soaked, "MB on both disks", None, space),
        ),
    ]
}

/// What it does.
fn plots_of_work(soaked: &Soaked) -> [Plot; 4] {
    let p99: [fn(&Sample) -> Option<f64>; 2] = [|one| one.reads.p99, |one| one.writes.p99];
    let times = vec![line(soaked, "reads", 0, p99[0]), line(soaked, "writes", 1, p99[1])];
    let done = vec![
        line(soaked, "reads", 0, |one| Some(one.reads.per_second)),
        line(soaked, "writes", 1, |one| Some(one.writes.per_second)),
        line(soaked, "refused", 6, |one| Some(one.refused.iter().sum())),
    ];
    let hits = vec![line(soaked, "reads", 1, |one| Some(100.0 * one.hit_rate?))];
    let work = vec![
        line(soaked, "compactions, MB/s", 2, |one| Some(one.compaction_bytes / 1e6)),
        line(soaked, "open files", 5, |one| Some(one.open_files? as f64)),
    ];
    [
        (
            "Times",
            "Of each hundred reads and writes of a sample 99 took no longer. Those of faults are cut off where the scale ends.",
            plot(soaked, "p99, milliseconds", top_of(soaked, p99), times),
        ),
        (
            "Throughput",
            "Reads and writes that were done, and those that were told to come again later, as they may be while a disk is away or full.",
            plot(soaked, "a second", None, done),
        ),
        (
            "Reads answered without the slow disk",
            "The hot spot moves.",
            plot(soaked, "per cent of the point reads", Some(100.0), hits),
        ),
        (
            "Compactions, and open files",
            "Megabytes a second that compactions read and wrote, and files that the process has open.",
            plot(soaked, "MB/s, and files", None, work),
        ),
    ]
}

/// The page.
///
/// # Errors
/// If a plot cannot be drawn.
pub fn page(soaked: &Soaked) -> Result<String> {
    let mut page = String::from(HEAD);
    page.push_str("<title>Kelvin soak</title></head><body><h1>Kelvin soak</h1>\n");
    let _written = writeln!(page, "<p>{}</p>", escape(&soaked.setting()));
    if let Some(what) = &soaked.failure {
        let _written = writeln!(page, "<p><b>Broken: {}</b></p>", escape(what));
    }
    page.push_str("<table><tr><th>promise</th><th></th><th></th></tr>\n");
    for verdict in &soaked.verdicts {
        let says = escape(&verdict.says);
        let _written = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{says}</td></tr>",
            verdict.name,
            word(verdict.holds)
        );
    }
    page.push_str("</table>\n");
    for (title, caption, drawn) in plots_of_room(soaked).into_iter().chain(plots_of_work(soaked)) {
        let _written = writeln!(
            page,
            "<h2>{title}</h2><p>{}</p><figure>{}<figcaption>{}</figcaption></figure>",
            legend(),
            drawn?,
            escape(caption)
        );
    }
    page.push_str("<h2>What was done</h2><table><tr><th>what</th><th>how often</th></tr>\n");
    for (name, count) in &soaked.done {
        let _written = writeln!(page, "<tr><td>{name}</td><td>{count}</td></tr>");
    }
    page.push_str("</table></body></html>\n");
    Ok(page)
}
