//! The report as one HTML page that needs nothing else: for each item its table and the plots of the paper's figure.
//!
//! Tests: `tests.rs`.

use std::fmt::Write as _;

use kelvin_base::Result;
use serde_json::Value;

use super::Paper;
use crate::device;
use crate::html::{HEAD, escape};
use crate::plot::Line;

/// The page.
///
/// # Errors
/// If a plot cannot be drawn.
pub fn html(paper: &Paper) -> Result<String> {
    let mut page = String::from(HEAD);
    let _written = writeln!(
        page,
        "<title>HotRAP's evaluation</title></head><body><h1>HotRAP's evaluation, at {}</h1>\n<p>{}</p>",
        paper.choice.scale,
        escape(&setup(paper))
    );
    if !paper.devices.is_empty() {
        let named: Vec<_> = paper.devices.iter().map(|(name, device)| (*name, device)).collect();
        let disks = device::table(&named);
        let _written = writeln!(page, "<h2 id=\"disks\">{}</h2>\n{}", escape(&disks.title), disks.html());
    }
    for item in &paper.items {
        let table = item.table(paper);
        let _written = writeln!(page, "<h2 id=\"{item}\">{}</h2>", escape(&table.title));
        page.push_str(&table.html());
        for (caption, svg) in item.plots(paper)? {
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
    if paper.is_simulated {
        return format!(
            "In simulated time, on the paper's machine: 8 processors, its local SSD and gp3 at their full speed (Figure 16: its NVMe and its \
             hard disk), {} client threads; {} of its data, {:.0} MB of fast disk, {:.0} MiB of memory.",
            options.threads,
            paper.choice.scale,
            paper.choice.scale.fast_bytes() as f64 / 1e6,
            options.memory as f64 / (1 << 20) as f64,
        );
    }
    format!(
        "{} records of {} + {} bytes; {:.0} MB of fast disk; a slow disk of {}, {}; {:.0} MiB of memory; {} threads.",
        options.records,
        options.key_size,
        options.value_size,
        paper.choice.scale.fast_bytes() as f64 / 1e6,
        limit(options.limits.slow_read_iops, "reads a second"),
        limit(options.limits.slow_bandwidth.map(|bytes| bytes / 1_000_000), "MB/s"),
        options.memory as f64 / (1 << 20) as f64,
        options.threads,
    )
}

/// The points of a run's timeline.
pub(super) fn points(report: &Value, x: &str, y: &str, times: f64) -> Vec<(f64, f64)> {
    let rows = report["time_series"].as_array().map_or(&[][..], Vec::as_slice);
    rows.iter().filter_map(|row| Some((row[x].as_f64()?, row[y].as_f64()? * times))).collect()
}

/// The line of a run's timeline, if it was made: what over what, times what.
pub(super) fn line(
    paper: &Paper,
    index: usize,
    (name, run): (&str, &str),
    axes: (&str, &str, f64),
) -> Option<Line> {
    let points = points(paper.report(run)?, axes.0, axes.1, axes.2);
    (!points.is_empty()).then(|| Line::new(name, index, points))
}
