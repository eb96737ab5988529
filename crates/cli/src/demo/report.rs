//! The demo's report: one HTML file with tables and plots, nothing loaded from elsewhere.

use std::fmt::Write as _;

use hdrhistogram::Histogram;
use kelvin::Error;
use plotters::style::RGBColor;

use super::Seen;
use super::plot::{self, Line, LinePlot};
use crate::commands::levels;
use crate::exit::Failure;

const FAST: RGBColor = RGBColor(224, 108, 42);
const SLOW: RGBColor = RGBColor(58, 110, 165);
const LIMIT: RGBColor = RGBColor(160, 32, 48);

const HEAD: &str = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
<meta name=\"viewport\" content=\"width=device-width\"><title>Kelvin demo</title><style>\
body{font:16px/1.5 system-ui,sans-serif;max-width:820px;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}\
h1{margin-bottom:0}table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem 1rem .2rem 0;text-align:left;\
border-bottom:1px solid #ddd}td:not(:first-child),th:not(:first-child){text-align:right;font-variant-numeric:tabular-nums}\
svg{max-width:100%;height:auto}figure{margin:1.5rem 0}figcaption{color:#555}</style></head><body>";

/// The report as HTML.
///
/// # Errors
/// The plotting library's, as `Io`.
pub fn html(seen: &Seen) -> Result<String, Failure> {
    let mut page = String::from(HEAD);
    page.push_str("<h1>Kelvin demo</h1>");
    let _written = write!(page, "<p>{}</p>", text(&seen.setup()));
    push_table(&mut page, "What it cost", &["", ""], seen.cost().into_iter().map(|(a, b)| vec![a, b]));
    push_table(&mut page, "Where the data lies", &levels::HEADER, seen.places().into_iter().map(Vec::from));
    for (caption, drawn) in plots(seen) {
        let svg = drawn.map_err(|error| {
            Error::new(kelvin::ErrorKind::Io, format!("drawing a plot of the report: {error}"))
        })?;
        let _written = write!(page, "<figure>{svg}<figcaption>{}</figcaption></figure>", text(caption));
    }
    page.push_str("</body></html>\n");
    Ok(page)
}

type Plot = (&'static str, Result<String, Box<dyn std::error::Error>>);

fn plots(seen: &Seen) -> Vec<Plot> {
    let mut plots = vec![
        ("Records written and read a second.", pace(seen)),
        ("Reads answered without the slow disk: by memory and the fast disk.", hits(seen)),
        ("Bytes on the fast disk never pass the limit given.", space(seen)),
        ("Bytes by level: orange lies on the fast disk, blue on the slow one.", sizes(seen)),
    ];
    if !seen.latencies.is_empty() {
        plots.push(("Latency of a read: how many reads took at most this long.", latency(&seen.latencies)));
    }
    plots
}

fn seconds(value: f64) -> String {
    format!("{} s", plot::plain(value))
}

fn points(seen: &Seen, loading: Option<bool>, of: fn(&super::phases::Sample) -> f64) -> Vec<(f64, f64)> {
    seen.samples
        .iter()
        .filter(|sample| loading.is_none_or(|loading| sample.loading == loading))
        .map(|sample| (sample.at_s, of(sample)))
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / (1 << 20) as f64
}

fn pace(seen: &Seen) -> Result<String, Box<dyn std::error::Error>> {
    let line =
        |name, color, loading| Line { name, color, points: points(seen, Some(loading), |s| s.per_second) };
    let lines = vec![line("written", SLOW, true), line("read", FAST, false)];
    LinePlot { x: "time", y: "records a second", x_label: seconds, x_labels: 12, y_max: None, lines }.draw()
}

fn hits(seen: &Seen) -> Result<String, Box<dyn std::error::Error>> {
    let points = points(seen, Some(false), |sample| 100.0 * sample.fast_hit_rate);
    let lines = vec![Line { name: "not from the slow disk", color: FAST, points }];
    LinePlot { x: "time", y: "per cent of reads", x_label: seconds, x_labels: 12, y_max: Some(100.0), lines }
        .draw()
}

fn space(seen: &Seen) -> Result<String, Box<dyn std::error::Error>> {
    let used = points(seen, None, |sample| mebibytes(sample.fast_used));
    let limit = mebibytes(seen.fast_capacity);
    let end = used.last().map_or(1.0, |point| point.0);
    let lines = vec![
        Line { name: "used", color: FAST, points: used },
        Line { name: "fast capacity", color: LIMIT, points: vec![(0.0, limit), (end, limit)] },
    ];
    LinePlot { x: "time", y: "MiB on the fast disk", x_label: seconds, x_labels: 12, y_max: None, lines }
        .draw()
}

fn sizes(seen: &Seen) -> Result<String, Box<dyn std::error::Error>> {
    let bars: Vec<plot::Bar> = seen
        .levels
        .iter()
        .filter(|level| level.bytes > 0)
        .map(|level| {
            let color = if level.tier == kelvin::Tier::Fast { FAST } else { SLOW };
            (level.name.clone(), mebibytes(level.bytes), color)
        })
        .collect();
    plot::bars("MiB", &bars)
}

/// Nines: 1 is 90 %, 2 is 99 %, 3 is 99.9 %.
fn nines(value: f64) -> String {
    let part = 100.0 * (1.0 - 10f64.powf(-value));
    format!("{} %", (part * 1_000.0).round() / 1_000.0)
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn latency(latencies: &Histogram<u64>) -> Result<String, Box<dyn std::error::Error>> {
    let at = |step: u32| {
        let nines = f64::from(step) / 20.0;
        let quantile = 1.0 - 10f64.powf(-nines);
        (nines, latencies.value_at_quantile(quantile) as f64 / 1_000_000.0)
    };
    let lines = vec![Line { name: "latency", color: FAST, points: (0..=60).map(at).collect() }];
    LinePlot { x: "reads", y: "milliseconds", x_label: nines, x_labels: 4, y_max: None, lines }.draw()
}

fn push_table(page: &mut String, title: &str, header: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let _written = write!(page, "<h2>{}</h2><table>", text(title));
    if header.iter().any(|name| !name.is_empty()) {
        let cells: String = header.iter().map(|name| format!("<th>{}</th>", text(name))).collect();
        let _written = write!(page, "<tr>{cells}</tr>");
    }
    for row in rows {
        let cells: String = row.iter().map(|cell| format!("<td>{}</td>", text(cell))).collect();
        let _written = write!(page, "<tr>{cells}</tr>");
    }
    page.push_str("</table>");
}

/// Text as HTML.
fn text(plain: &str) -> String {
    plain.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
