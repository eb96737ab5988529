//! Reports as one HTML file that needs nothing else: plots as inline SVG, figures as a table. Tests stand below.

use std::fmt::Write as _;

use kelvin_base::{Error, Result};
use plotters::prelude::*;

use crate::report::Report;

const PLOT: (u32, u32) = (860, 300);
const COLOURS: [RGBColor; 6] = [
    RGBColor(0xd6, 0x27, 0x28),
    RGBColor(0x1f, 0x77, 0xb4),
    RGBColor(0x2c, 0xa0, 0x2c),
    RGBColor(0xff, 0x7f, 0x0e),
    RGBColor(0x94, 0x67, 0xbd),
    RGBColor(0x7f, 0x7f, 0x7f),
];

const HEAD: &str = "<!doctype html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Kelvin benchmark</title>
<style>body{font:15px/1.5 system-ui,sans-serif;max-width:900px;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:1em 0}td,th{padding:.25em .8em;text-align:right;border-bottom:1px solid #ddd}
td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto}pre{background:#f6f6f6;padding:1em;overflow:auto}</style>
</head><body><h1>Kelvin benchmark</h1>
";

/// One line of a plot: its name and its points.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

/// One page that shows and compares `reports`.
///
/// # Errors
/// If a plot cannot be drawn.
pub fn html(reports: &[Report]) -> Result<String> {
    let mut page = String::from(HEAD);
    figures(&mut page, reports);
    let name = |report: &Report| {
        format!("{} {} {}", report.options.system, report.options.workload, report.options.keys)
    };
    let throughput = reports.iter().map(|report| Line {
        name: name(report),
        points: report.rows.iter().map(|row| (row.seconds, row.ops_per_s)).collect(),
    });
    let hits = reports.iter().map(|report| Line {
        name: name(report),
        points: report.rows.iter().filter_map(|row| Some((row.seconds, row.hit_rate? * 100.0))).collect(),
    });
    page.push_str("<h2>Throughput</h2>\n");
    page.push_str(&plot("operations/s", None, &throughput.collect::<Vec<_>>())?);
    let hits: Vec<Line> = hits.filter(|line| !line.points.is_empty()).collect();
    if !hits.is_empty() {
        page.push_str("<h2>Reads answered without the slow disk</h2>\n");
        page.push_str(&plot("per cent", Some(100.0), &hits)?);
    }
    latency(&mut page, reports);
    for report in reports {
        let _written = writeln!(page, "<pre>{}</pre>", escape(&report.table()));
    }
    page.push_str("</body></html>\n");
    Ok(page)
}

fn figures(page: &mut String, reports: &[Report]) {
    page.push_str(
        "<table><tr><th>system</th><th>workload</th><th>ops/s</th><th>final tenth</th><th>fast hits, final tenth</th>\
         <th>best possible</th><th>CPU us/op</th></tr>\n",
    );
    for report in reports {
        let hits =
            report.last10.hit_rate.map_or_else(|| "-".to_string(), |rate| format!("{:.1} %", rate * 100.0));
        let _written = writeln!(
            page,
            "<tr><td>{}</td><td>{} {}</td><td>{:.0}</td><td>{:.0}</td><td>{hits}</td><td>{:.1} %</td><td>{:.1}</td></tr>",
            report.options.system,
            report.options.workload,
            escape(&report.options.keys.to_string()),
            report.whole.ops_per_s,
            report.last10.ops_per_s,
            report.best_possible_hit_rate * 100.0,
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

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn plot(label: &str, top: Option<f64>, lines: &[Line]) -> Result<String> {
    let mut svg = String::new();
    draw(&mut svg, label, top, lines)
        .map_err(|e| Error::invalid(format!("the plot of {label} failed: {e}")))?;
    // Only the element itself may stand inside a page.
    Ok(svg.find("<svg").map_or_else(String::new, |start| svg[start..].to_string()))
}

fn draw(
    svg: &mut String,
    label: &str,
    top: Option<f64>,
    lines: &[Line],
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let right = points().map(|point| point.0).fold(1.0, f64::max);
    let highest = top.unwrap_or_else(|| points().map(|point| point.1).fold(1.0, f64::max) * 1.05);
    let area = SVGBackend::with_string(svg, PLOT).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..right, 0.0..highest)?;
    chart.configure_mesh().x_desc("seconds").y_desc(label).light_line_style(WHITE).draw()?;
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let style = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), style))?
            .label(line.name.clone())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.2))
        .draw()?;
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{BenchOptions, System};
    use crate::runner::{Peaks, PhaseResult};
    use crate::samples::Row;

    #[test]
    fn a_page_holds_a_line_for_each_report_and_its_figures() {
        let report = |system| {
            let options = BenchOptions::new(system, "x");
            let mut report = Report::new(&options, PhaseResult::default(), None, Peaks::default(), 0);
            report.rows = (1..20u32)
                .map(|s| Row { seconds: f64::from(s), ops_per_s: 100.0 * f64::from(s), hit_rate: Some(0.5) })
                .collect();
            report
        };
        let page = html(&[report(System::Kelvin), report(System::Fat)]).unwrap();
        assert_eq!(page.matches("<svg").count(), 2);
        assert!(page.matches("<polyline").count() >= 4);
        assert!(page.contains("<td>kelvin</td>") && page.contains("<td>fat</td>") && !page.contains("<?xml"));
        assert!(html(&[]).is_ok());
    }
}
