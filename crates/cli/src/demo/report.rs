//! The demo's report: one HTML file with tables and plots, nothing loaded from elsewhere.

use std::fmt::Write as _;

use hdrhistogram::Histogram;
use kelvin::Result;
use kelvin_workload::plot::{BarPlot, Line, LinePlot};

use super::phases::{Sample, Step};
use super::seen::Seen;
use crate::commands::levels;
use crate::exit::Failure;

/// Colours, by their place in the list that everybody can tell apart.
const ON: usize = 0;
const OFF: usize = 1;
const OTHER: usize = 2;

const HEAD: &str = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
<meta name=\"viewport\" content=\"width=device-width\"><title>Kelvin demo</title><style>\
body{font:16px/1.5 system-ui,sans-serif;max-width:1120px;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}\
h1{margin-bottom:0}table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem 1rem .2rem 0;text-align:left;\
border-bottom:1px solid #ddd}td:not(:first-child),th:not(:first-child){text-align:right;font-variant-numeric:tabular-nums}\
svg{max-width:100%;height:auto}figure{margin:1.5rem 0}figcaption{color:#555}</style></head><body>";

/// The report as HTML.
///
/// # Errors
/// The plotting library's.
pub fn html(seen: &Seen) -> std::result::Result<String, Failure> {
    let mut page = String::from(HEAD);
    page.push_str("<h1>Kelvin demo</h1>");
    let _written = write!(page, "<p>{}</p>", text(&seen.setup()));
    page.push_str("<p>95 % of the reads want 5 % of the records. They are done twice, by four readers: with the tracker of hot records off, and on.</p>");
    let compared = seen.compared().into_iter().map(Vec::from);
    push_table(&mut page, "The same reads", &["", "hotness off", "hotness on"], compared);
    let mut drawn = plots(seen).into_iter();
    drawn.by_ref().take(3).try_for_each(|plot| push_plot(&mut page, plot))?;
    push_table(&mut page, "Where the data lies", &levels::HEADER, seen.places().into_iter().map(Vec::from));
    drawn.try_for_each(|plot| push_plot(&mut page, plot))?;
    push_table(&mut page, "What it cost", &["", ""], seen.cost().into_iter().map(|(a, b)| vec![a, b]));
    page.push_str("</body></html>\n");
    Ok(page)
}

type Plot = (&'static str, Result<String>);

fn plots(seen: &Seen) -> Vec<Plot> {
    vec![
        (
            "Reads answered by memory and the fast disk: with hotness the records that are read most come to the fast disk.",
            hits(seen),
        ),
        (
            "Reads a second: each read that needs the slow disk waits for one of its thousand a second.",
            pace(seen),
        ),
        ("How long reads took: so many of them at most this long.", latency(seen)),
        ("Bytes of each level, by the disk it lies on.", sizes(seen)),
        ("Bytes on the fast disk never pass the limit given.", space(seen)),
    ]
}

fn push_plot(page: &mut String, (caption, drawn): Plot) -> std::result::Result<(), Failure> {
    let svg = drawn?;
    let _written = write!(page, "<figure>{svg}<figcaption>{}</figcaption></figure>", text(caption));
    Ok(())
}

fn seconds(y: &str, top: Option<f64>, lines: Vec<Line>) -> Result<String> {
    let x = "seconds of reading".to_string();
    LinePlot { x, y: y.into(), top, lines, ..LinePlot::default() }.draw()
}

/// A line for the reads of each step, over the seconds since it began.
fn both(seen: &Seen, of: fn(&Sample) -> f64) -> Vec<Line> {
    let line = |(step, name, colour)| {
        let samples = seen.samples.iter().filter(|sample| sample.step == step);
        Line::new(name, colour, samples.map(|sample| (sample.step_s, of(sample))).collect())
    };
    [(Step::On, "hotness on", ON), (Step::Off, "hotness off", OFF)].map(line).into()
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / (1 << 20) as f64
}

fn pace(seen: &Seen) -> Result<String> {
    seconds("reads a second", None, both(seen, |sample| sample.per_second))
}

fn hits(seen: &Seen) -> Result<String> {
    let lines = both(seen, |sample| 100.0 * sample.fast_hit_rate);
    seconds("per cent of the reads", Some(100.0), lines)
}

fn space(seen: &Seen) -> Result<String> {
    let used: Vec<(f64, f64)> =
        seen.samples.iter().map(|sample| (sample.at_s, mebibytes(sample.fast_used))).collect();
    let limit = mebibytes(seen.fast_capacity);
    let end = used.last().map_or(1.0, |point| point.0);
    let begins = |step: Step, name: &str| {
        let first = seen.samples.iter().find(|sample| sample.step == step);
        first.map(|sample| (sample.at_s, name.to_string()))
    };
    let marks = [begins(Step::Off, "reads, hotness off"), begins(Step::On, "reads, hotness on")];
    let lines = vec![
        Line::new("used", ON, used),
        Line::new("fast capacity", OTHER, vec![(0.0, limit), (end, limit)]).dashed(),
    ];
    let marks = marks.into_iter().flatten().collect();
    let (x, y) = ("seconds since the demo began".into(), "MiB on the fast disk".into());
    LinePlot { x, y, lines, marks, ..LinePlot::default() }.draw()
}

fn sizes(seen: &Seen) -> Result<String> {
    let levels: Vec<_> = seen.levels.iter().filter(|level| level.bytes > 0).collect();
    let on = |tier: kelvin::Tier| {
        let height = |level: &&kelvin::LevelInfo| (level.tier == tier).then(|| mebibytes(level.bytes));
        levels.iter().map(height).collect()
    };
    BarPlot {
        y: "MiB".into(),
        groups: levels.iter().map(|level| level.name.clone()).collect(),
        series: vec![
            ("fast disk".into(), on(kelvin::Tier::Fast)),
            ("slow disk".into(), on(kelvin::Tier::Slow)),
        ],
    }
    .draw()
}

/// Nines: 1 is 90 %, 2 is 99 %, 3 is 99.9 %.
fn nines(value: f64) -> String {
    let part = 100.0 * (1.0 - 10f64.powf(-value));
    format!("{} %", (part * 1_000.0).round() / 1_000.0)
}

fn latency(seen: &Seen) -> Result<String> {
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let points = |latencies: &Histogram<u64>| {
        let at = |step: u32| {
            let nines = f64::from(step) / 20.0;
            let quantile = 1.0 - 10f64.powf(-nines);
            (nines, latencies.value_at_quantile(quantile) as f64 / 1_000_000.0)
        };
        (0..=60).map(at).collect::<Vec<_>>()
    };
    let [off, on] = &seen.reads;
    let lines = vec![
        Line::new("hotness on", ON, points(&on.latencies)),
        Line::new("hotness off", OFF, points(&off.latencies)),
    ];
    let (x, y) = ("part of the reads".into(), "milliseconds".into());
    LinePlot { x, y, lines, x_label: Some((4, nines)), ..LinePlot::default() }.draw()
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
