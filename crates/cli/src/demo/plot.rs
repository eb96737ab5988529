//! The report's plots, as SVG text.

use std::error::Error as StdError;
use std::ops::Range;

use plotters::coord::Shift;
use plotters::prelude::*;

/// Width and height of a plot, pixels.
const SIZE: (u32, u32) = (760, 300);
const FONT: (&str, u32) = ("sans-serif", 13);

/// What can go wrong while drawing into memory; only ever reported.
type Drawn = Result<String, Box<dyn StdError>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// One line of a plot.
pub struct Line {
    /// What it shows.
    pub name: &'static str,
    /// Its colour.
    pub color: RGBColor,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

/// What a plot of lines shows.
pub struct LinePlot {
    /// What the x axis counts.
    pub x: &'static str,
    /// What the y axis counts.
    pub y: &'static str,
    /// How a value on the x axis is written.
    pub x_label: fn(f64) -> String,
    /// Labels on the x axis at most.
    pub x_labels: usize,
    /// The top of the y axis; the largest value if `None`.
    pub y_max: Option<f64>,
    /// The lines.
    pub lines: Vec<Line>,
}

fn span(values: impl Iterator<Item = f64>, least: f64) -> Range<f64> {
    0.0..values.fold(least, f64::max) * 1.05
}

impl LinePlot {
    /// The plot as SVG.
    ///
    /// # Errors
    /// The plotting library's.
    pub fn draw(&self) -> Drawn {
        let mut svg = String::new();
        {
            let area: Area<'_> = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            let points = || self.lines.iter().flat_map(|line| line.points.iter());
            let x = span(points().map(|point| point.0), 0.001);
            let y = match self.y_max {
                Some(max) => 0.0..max,
                None => span(points().map(|point| point.1), 0.001),
            };
            let mut chart = ChartBuilder::on(&area)
                .margin(12)
                .x_label_area_size(38)
                .y_label_area_size(72)
                .build_cartesian_2d(x, y)?;
            chart
                .configure_mesh()
                .x_desc(self.x)
                .y_desc(self.y)
                .label_style(FONT)
                .x_labels(self.x_labels)
                .x_label_formatter(&|value| (self.x_label)(*value))
                .y_label_formatter(&|value| plain(*value))
                .light_line_style(WHITE)
                .draw()?;
            for line in &self.lines {
                let color = line.color;
                chart
                    .draw_series(LineSeries::new(line.points.iter().copied(), color.stroke_width(2)))?
                    .label(line.name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
            }
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperLeft)
                .background_style(WHITE.mix(0.8))
                .label_font(FONT)
                .draw()?;
            area.present()?;
        }
        Ok(svg)
    }
}

/// A bar of a bar plot: name, height, colour.
pub type Bar = (String, f64, RGBColor);

/// Bars side by side, as SVG.
///
/// # Errors
/// The plotting library's.
pub fn bars(y_name: &str, bars: &[Bar]) -> Drawn {
    let mut svg = String::new();
    {
        let area: Area<'_> = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let count = i32::try_from(bars.len()).unwrap_or(i32::MAX);
        let y = span(bars.iter().map(|bar| bar.1), 0.001);
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(38)
            .y_label_area_size(72)
            .build_cartesian_2d((0..(count - 1).max(0)).into_segmented(), y)?;
        let name = |segment: &SegmentValue<i32>| match segment {
            SegmentValue::CenterOf(at) => usize::try_from(*at)
                .ok()
                .and_then(|at| bars.get(at))
                .map(|bar| bar.0.clone())
                .unwrap_or_default(),
            _ => String::new(),
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .y_desc(y_name)
            .label_style(FONT)
            .x_labels(bars.len().max(1))
            .x_label_formatter(&name)
            .y_label_formatter(&|value| plain(*value))
            .light_line_style(WHITE)
            .draw()?;
        for (at, bar) in (0..count).zip(bars) {
            let (left, right) = (SegmentValue::Exact(at), SegmentValue::Exact(at + 1));
            let mut rectangle = Rectangle::new([(left, 0.0), (right, bar.1)], bar.2.filled());
            rectangle.set_margin(0, 0, 12, 12);
            chart.draw_series([rectangle])?;
        }
        area.present()?;
    }
    Ok(svg)
}

/// A number as an axis shows it.
pub fn plain(value: f64) -> String {
    match value.abs() {
        large if large >= 10_000.0 => format!("{:.0}k", value / 1_000.0),
        large if large >= 1_000.0 => format!("{:.1}k", value / 1_000.0),
        small if small < 0.1 && small > 0.0 => format!("{value:.3}"),
        small if small < 10.0 && small.fract() != 0.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
