//! Reports as one HTML file that needs nothing else: plots as inline SVG, figures as a table. Tests stand below.

use std::fmt::Write as _;

use kelvin_base::Result;

use crate::plot::{Line, LinePlot};
use crate::report::Report;
use crate::samples::{HotSet, Row};

/// What every page begins with; the title stands behind it.
pub(crate) const HEAD: &str = "<!doctype html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:1120px;margin:2em auto;padding:0 1em;color:#222;background:#fff}
table{border-collapse:collapse;margin:1em 0}td,th{padding:.25em .8em;text-align:right;border-bottom:1px solid #ddd;font-variant-numeric:tabular-nums}
td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto}figure{margin:1em 0 2em}figcaption{color:#555}
pre{background:#f6f6f6;padding:1em;overflow:auto}</style>
";

/// One page that shows and compares `reports`.
///
/// # Errors
/// If a plot cannot be drawn.
pub fn html(reports: &[Report]) -> Result<String> {
    let mut page = String::from(HEAD);
    page.push_str("<title>Kelvin benchmark</title></head><body><h1>Kelvin benchmark</h1>\n");
    figures(&mut page, reports);
    page.push_str("<h2>Throughput</h2>\n");
    let throughput =
        lines(reports, |report| report.rows.iter().map(|row| (row.seconds, row.ops_per_s)).collect());
    page.push_str(&over_time("operations a second", None, throughput, Vec::new())?);
    let hits = lines(reports, |report| {
        report.rows.iter().filter_map(|row| Some((row.seconds, row.hit_rate? * 100.0))).collect()
    });
    if !hits.is_empty() {
        page.push_str("<h2>Reads answered without the slow disk</h2>\n");
        page.push_str(&over_time("per cent of the reads", Some(100.0), hits, Vec::new())?);
    }
    let hot_sets = hot_sets(reports);
    if !hot_sets.is_empty() {
        page.push_str("<h2>Records held to be hot, and the limit of that</h2>\n");
        page.push_str(&over_time("MB of keys and values", None, hot_sets, Vec::new())?);
    }
    latency(&mut page, reports);
    for report in reports {
        let _written = writeln!(page, "<pre>{}</pre>", escape(&report.table()));
    }
    page.push_str("</body></html>\n");
    Ok(page)
}

fn name(report: &Report) -> String {
    format!("{} {} {}", report.options.system, report.options.workload, report.options.keys)
}

/// A line for each report that has points.
fn lines(reports: &[Report], points: impl Fn(&Report) -> Vec<(f64, f64)>) -> Vec<Line> {
    let line = |(index, report)| Line::new(name(report), index, points(report));
    reports.iter().enumerate().map(line).filter(|line| !line.points.is_empty()).collect()
}

/// The hot set of each report that has one, and its limit.
fn hot_sets(reports: &[Report]) -> Vec<Line> {
    let both = |(index, report): (usize, &Report)| {
        let points = |bytes: fn(HotSet) -> u64| {
            let point = |row: &Row| Some((row.seconds, bytes(row.hot_set?) as f64 / 1e6));
            report.rows.iter().filter_map(point).collect::<Vec<_>>()
        };
        let size = Line::new(format!("{}: hot set", name(report)), index, points(|set| set.bytes));
        let limit = Line::new(format!("{}: limit", name(report)), index, points(|set| set.limit_bytes));
        [size, limit.dashed()]
    };
    reports.iter().enumerate().flat_map(both).filter(|line| !line.points.is_empty()).collect()
}

/// A plot over the seconds of a run.
pub(crate) fn over_time(
    y: &str,
    top: Option<f64>,
    lines: Vec<Line>,
    marks: Vec<(f64, String)>,
) -> Result<String> {
    LinePlot { x: "seconds".into(), y: y.into(), top, lines, marks, ..LinePlot::default() }.draw()
}

fn figures(page: &mut String, reports: &[Report]) {
    page.push_str(
        "<table><tr><th>system</th><th>workload</th><th>ops/s</th><th>final tenth</th><th>fast hits, final tenth</th>\
         <th>best possible</th><th>CPU us/op</th></tr>\n",
    );
    for report in reports {
        let percent =
            |rate: Option<f64>| rate.map_or_else(|| "-".to_string(), |rate| format!("{:.1} %", rate * 100.0));
        let _written = writeln!(
            page,
            "<tr><td>{}</td><td>{} {}</td><td>{:.0}</td><td>{:.0}</td><td>{}</td><td>{}</td><td>{:.1}</td></tr>",
            report.options.system,
            report.options.workload,
            escape(&report.keys()),
            report.whole.ops_per_s,
            report.last10.ops_per_s,
            percent(report.last10.hit_rate),
            percent(report.best_possible_hit_rate),
            report.whole.cpu_us_per_op,
        );
    }
    page.push_str("</table>\n");
}

fn latency(page: &mut String, reports: &[Report]) {
    page.push_str(
        "<h2>Latency, microseconds</h2>\n<table><tr><th>system</th><th>operation</th><th>count</th>",
    );
    page.push_str("<th>p50</th><th>p99</th><th>p99.9</th><th>max</th></tr>\n");
    for report in reports {
        for one in &report.latency {
            let _written = writeln!(
                page,
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{:.1}</td><td>{:.1}</td><td>{:.1}</td><td>{:.0}</td></tr>",
                report.options.system, one.operation, one.count, one.p50, one.p99, one.p999, one.max
            );
        }
    }
    page.push_str("</table>\n");
}

/// Text as HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{BenchOptions, System};
    use crate::runner::{Peaks, PhaseResult};

    #[test]
    fn a_page_holds_a_line_for_each_report_and_its_figures() {
        let report = |system| {
            let options = BenchOptions::new(system, "x");
            let mut report = Report::new(&options, PhaseResult::default(), None, Peaks::default(), 0);
            report.rows = (1..20u32)
                .map(|s| Row {
                    seconds: f64::from(s),
                    ops_per_s: 100.0 * f64::from(s),
                    hit_rate: Some(0.5),
                    ops: 1,
                    cpu_us_per_op: 1.0,
                    hot_set: (system == System::Kelvin)
                        .then_some(HotSet { bytes: 5_000_000, limit_bytes: 7_000_000 }),
                    traffic: None,
                })
                .collect();
            report
        };
        let page = html(&[report(System::Kelvin), report(System::Fat)]).unwrap();
        assert_eq!(page.matches("<svg").count(), 3);
        assert!(page.contains("kelvin RO hotspot:5: limit") && !page.contains("fat RO hotspot:5: limit"));
        assert!(page.contains("<td>kelvin</td>") && page.contains("<td>fat</td>") && !page.contains("<?xml"));
        assert!(html(&[]).is_ok());
    }
}
