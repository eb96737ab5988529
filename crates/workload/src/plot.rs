//! Plots as inline SVG: lines over time, and bars side by side. Drawn for a page of 1200 pixels.
//!
//! The colours are those of Okabe and Ito, which the colour-blind tell apart; lines of one colour differ by dashes.
//! Every axis says what it counts and in which unit. Tests stand below.

use kelvin_base::{Error, Result};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Width and height of a plot, pixels.
const SIZE: (u32, u32) = (1100, 380);
const FONT: (&str, u32) = ("sans-serif", 16);
const FONT_SMALL: (&str, u32) = ("sans-serif", 14);
/// For the figures of many narrow bars.
const FONT_NARROW: (&str, u32) = ("sans-serif", 10);
/// So many bars in a group are many.
const BARS_MANY: usize = 6;
/// Labels on an axis, about.
const LABELS: usize = 10;

/// Colours that everybody can tell apart, in the order they are used.
pub const COLOURS: [RGBColor; 8] = [
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x4d, 0x4d, 0x4d),
    RGBColor(0xf0, 0xe4, 0x42),
];

/// Colour `index`, begun anew behind the last one.
#[must_use]
pub fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

/// A line.
#[derive(Clone, Debug)]
pub struct Line {
    /// What the legend calls it.
    pub name: String,
    /// Its colour.
    pub colour: RGBColor,
    /// Dashed, for limits and bounds.
    pub is_dashed: bool,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
}

impl Line {
    /// A line in colour `index`.
    #[must_use]
    pub fn new(name: impl Into<String>, index: usize, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), colour: colour(index), is_dashed: false, points }
    }

    /// The same, dashed.
    #[must_use]
    pub fn dashed(self) -> Self {
        Self { is_dashed: true, ..self }
    }
}

/// A stretch of the x axis in which something holds, shown behind the lines. The page says which colour stands for what.
#[derive(Clone, Copy, Debug)]
pub struct Band {
    /// Its colour, of which it has [`BAND_OPACITY`].
    pub colour: RGBColor,
    /// Where it begins and ends.
    pub ends: (f64, f64),
}

/// How much of its colour a band has.
pub const BAND_OPACITY: f64 = 0.28;

/// A plot of lines.
#[derive(Clone, Debug, Default)]
pub struct LinePlot {
    /// What the x axis counts, with its unit.
    pub x: String,
    /// What the y axis counts, with its unit.
    pub y: String,
    /// Where the y axis ends, if not at the highest point.
    pub top: Option<f64>,
    /// The lines.
    pub lines: Vec<Line>,
    /// Places on the x axis where something begins, and what.
    pub marks: Vec<(f64, String)>,
    /// Stretches of the x axis in which something holds.
    pub bands: Vec<Band>,
    /// The legend stands above the lines, in room of its own, and not in the lower corner.
    pub has_legend_above: bool,
    /// How many labels the x axis has, about, and how each is written; `None` for plain numbers.
    pub x_label: Option<(usize, AxisLabel)>,
}

/// Bars: for each group one of each series.
#[derive(Clone, Debug, Default)]
pub struct BarPlot {
    /// What the y axis counts, with its unit.
    pub y: String,
    /// The names of the groups.
    pub groups: Vec<String>,
    /// Name and heights, one for each group; `None` leaves a gap.
    pub series: Vec<(String, Vec<Option<f64>>)>,
}

/// Bars side by side in groups, each a stack of parts.
#[derive(Clone, Debug, Default)]
pub struct StackPlot {
    /// What the y axis counts, with its unit.
    pub y: String,
    /// The names of the groups.
    pub groups: Vec<String>,
    /// The names of the bars of each group.
    pub bars: Vec<String>,
    /// Name of each part, and its heights by group and bar; `None` leaves it out.
    pub parts: Vec<(String, Vec<Vec<Option<f64>>>)>,
}

/// Points with names, both axes from 0 to 100.
#[derive(Clone, Debug, Default)]
pub struct ScatterPlot {
    /// What the x axis counts, with its unit.
    pub x: String,
    /// What the y axis counts, with its unit.
    pub y: String,
    /// Name and place of each point.
    pub points: Vec<(String, (f64, f64))>,
}

/// How a number on an axis is written.
pub type AxisLabel = fn(f64) -> String;

type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

fn svg(name: &str, draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, Shift>) -> Drawn) -> Result<String> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    let drawn = area.fill(&WHITE).map_err(Into::into).and_then(|()| draw(&area));
    let drawn = drawn.and_then(|()| area.present().map_err(Into::into));
    drop(area);
    drawn.map_err(|e| Error::invalid(format!("the plot of {name} failed: {e}")))?;
    // Only the element itself may stand inside a page.
    Ok(svg.find("<svg").map_or_else(String::new, |start| svg[start..].to_string()))
}

impl LinePlot {
    /// The plot as an SVG element.
    ///
    /// # Errors
    /// `InvalidArgument` if it cannot be drawn.
    pub fn draw(&self) -> Result<String> {
        svg(&self.y, |area| self.draw_on(area))
    }

    fn draw_on(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Drawn {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let ends = self.bands.iter().map(|band| band.ends.1).chain(self.marks.iter().map(|(at, _)| *at));
        let right = points().map(|point| point.0).chain(ends).fold(f64::MIN_POSITIVE, f64::max);
        let highest = points().map(|point| point.1).fold(f64::MIN_POSITIVE, f64::max);
        let top = self.top.unwrap_or(highest * if self.has_legend_above { 1.7 } else { 1.08 });
        let (x_labels, x_label) = self.x_label.unwrap_or((LABELS, number));
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .margin_right(24)
            .x_label_area_size(48)
            .y_label_area_size(84)
            .build_cartesian_2d(0.0..right, 0.0..top)?;
        chart
            .configure_mesh()
            .x_desc(self.x.as_str())
            .y_desc(self.y.as_str())
            .label_style(FONT_SMALL)
            .axis_desc_style(FONT)
            .x_labels(x_labels)
            .y_labels(6)
            .x_label_formatter(&|value| x_label(*value))
            .y_label_formatter(&|value| number(*value))
            .light_line_style(WHITE)
            .draw()?;
        let bands = self.bands.iter().map(|Band { colour, ends: (from, to) }| {
            Rectangle::new([(*from, 0.0), (*to, top)], colour.mix(BAND_OPACITY).filled())
        });
        chart.draw_series(bands)?;
        for (at, name) in &self.marks {
            chart.draw_series(LineSeries::new([(*at, 0.0), (*at, top)], BLACK.mix(0.4)))?;
            let place = (*at + right * 0.004, top * 0.985);
            chart.draw_series([Text::new(name.clone(), place, FONT_SMALL.into_font())])?;
        }
        for line in &self.lines {
            let style = line.colour.stroke_width(if line.is_dashed { 2 } else { 3 });
            let points = line.points.iter().copied();
            let drawn = if line.is_dashed {
                chart.draw_series(DashedLineSeries::new(points, 8, 6, style))?
            } else {
                chart.draw_series(LineSeries::new(points, style))?
            };
            let dash = if line.is_dashed { 8 } else { 24 };
            drawn.label(line.name.clone()).legend(move |(x, y)| {
                EmptyElement::at((x, y))
                    + PathElement::new([(0, 0), (dash, 0)], style)
                    + PathElement::new([(24 - dash, 0), (24, 0)], style)
            });
        }
        let place = match self.has_legend_above {
            true => SeriesLabelPosition::UpperRight,
            false => SeriesLabelPosition::LowerRight,
        };
        legend(&mut chart, place)
    }
}

impl BarPlot {
    /// The plot as an SVG element, each bar with its figure on top.
    ///
    /// # Errors
    /// `InvalidArgument` if it cannot be drawn.
    pub fn draw(&self) -> Result<String> {
        svg(&self.y, |area| self.draw_on(area))
    }

    fn draw_on(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Drawn {
        let heights = || self.series.iter().flat_map(|(_, heights)| heights.iter().flatten().copied());
        // Room above the bars for their figures and the legend.
        let top = heights().fold(f64::MIN_POSITIVE, f64::max) * 1.4;
        let groups = self.groups.len().max(1);
        let mut chart = groups_chart(area, (groups, 36), (&self.y, top))?;
        for (at, name) in self.groups.iter().enumerate() {
            let (x, y) = chart.backend_coord(&(at as f64 + 0.5, 0.0));
            let centred = FONT.into_text_style(area).pos(Pos::new(HPos::Center, VPos::Top));
            area.draw(&Text::new(name.clone(), (x, y + 10), centred))?;
        }
        let width = 0.8 / self.series.len().max(1) as f64;
        let font = if self.series.len() < BARS_MANY { FONT_SMALL } else { FONT_NARROW };
        for (index, (name, heights)) in self.series.iter().enumerate() {
            let style = colour(index).filled();
            let left = |at: usize| at as f64 + 0.1 + width * index as f64;
            let bars = heights.iter().enumerate().filter_map(|(at, height)| Some((left(at), (*height)?)));
            let shapes = bars.clone().map(|(x, y)| Rectangle::new([(x, 0.0), (x + width * 0.94, y)], style));
            chart
                .draw_series(shapes)?
                .label(name.clone())
                .legend(move |(x, y)| Rectangle::new([(x, y - 6), (x + 24, y + 6)], style));
            let figures =
                bars.map(|(x, y)| Text::new(number(y), (x + width * 0.1, y + top * 0.045), font.into_font()));
            chart.draw_series(figures)?;
        }
        legend(&mut chart, SeriesLabelPosition::UpperRight)
    }
}

impl StackPlot {
    /// The plot as an SVG element.
    ///
    /// # Errors
    /// `InvalidArgument` if it cannot be drawn.
    pub fn draw(&self) -> Result<String> {
        svg(&self.y, |area| self.draw_on(area))
    }

    fn height(&self, part: usize, group: usize, bar: usize) -> f64 {
        let heights = self.parts.get(part).and_then(|(_, groups)| groups.get(group));
        heights.and_then(|bars| bars.get(bar).copied().flatten()).unwrap_or(0.0)
    }

    /// Where part `part` of a bar begins.
    fn below(&self, part: usize, group: usize, bar: usize) -> f64 {
        (0..part).map(|below| self.height(below, group, bar)).sum()
    }

    fn draw_on(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Drawn {
        let (groups, bars) = (self.groups.len().max(1), self.bars.len().max(1));
        let places = || (0..groups).flat_map(|group| (0..bars).map(move |bar| (group, bar)));
        let highest = places().map(|(group, bar)| self.below(self.parts.len(), group, bar));
        // Room above the bars for the legend.
        let top = highest.fold(f64::MIN_POSITIVE, f64::max) * 1.3;
        let mut chart = groups_chart(area, (groups, 52), (&self.y, top))?;
        let width = 0.86 / bars as f64;
        let left = |group: usize, bar: usize| group as f64 + 0.07 + width * bar as f64;
        let centred =
            |font: (&'static str, u32)| font.into_text_style(area).pos(Pos::new(HPos::Center, VPos::Top));
        for (at, name) in self.groups.iter().enumerate() {
            let (x, y) = chart.backend_coord(&(at as f64 + 0.5, 0.0));
            area.draw(&Text::new(name.clone(), (x, y + 26), centred(FONT)))?;
        }
        for (group, bar) in places() {
            let (x, y) = chart.backend_coord(&(left(group, bar) + width * 0.45, 0.0));
            let name = self.bars.get(bar).cloned().unwrap_or_default();
            area.draw(&Text::new(name, (x, y + 6), centred(FONT_SMALL)))?;
        }
        for (part, (name, _)) in self.parts.iter().enumerate() {
            let style = colour(part).filled();
            let shape = |(group, bar): (usize, usize)| {
                let (x, from) = (left(group, bar), self.below(part, group, bar));
                Rectangle::new([(x, from), (x + width * 0.9, from + self.height(part, group, bar))], style)
            };
            let drawn = places().filter(|(group, bar)| self.height(part, *group, *bar) > 0.0);
            chart
                .draw_series(drawn.map(shape))?
                .label(name.clone())
                .legend(move |(x, y)| Rectangle::new([(x, y - 6), (x + 24, y + 6)], style));
        }
        legend(&mut chart, SeriesLabelPosition::UpperRight)
    }
}

impl ScatterPlot {
    /// The plot as an SVG element.
    ///
    /// # Errors
    /// `InvalidArgument` if it cannot be drawn.
    pub fn draw(&self) -> Result<String> {
        svg(&self.y, |area| self.draw_on(area))
    }

    fn draw_on(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Drawn {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .margin_right(24)
            .x_label_area_size(48)
            .y_label_area_size(84)
            .build_cartesian_2d(0.0..100.0, 0.0..100.0)?;
        chart
            .configure_mesh()
            .x_desc(self.x.as_str())
            .y_desc(self.y.as_str())
            .label_style(FONT_SMALL)
            .axis_desc_style(FONT)
            .x_labels(LABELS)
            .y_labels(6)
            .x_label_formatter(&|value| number(*value))
            .y_label_formatter(&|value| number(*value))
            .light_line_style(WHITE)
            .draw()?;
        for (name, place) in &self.points {
            chart.draw_series([Circle::new(*place, 5, colour(1).filled())])?;
            // Beside the point, on the side where there is room.
            let is_right = place.0 > 70.0;
            let side = if is_right { HPos::Right } else { HPos::Left };
            let beside = FONT_SMALL.into_text_style(area).pos(Pos::new(side, VPos::Center));
            let (x, y) = chart.backend_coord(place);
            area.draw(&Text::new(name.clone(), (x + if is_right { -10 } else { 10 }, y), beside))?;
        }
        Ok(())
    }
}

type Chart<'b> = ChartContext<'b, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Room for bars: so many groups with so many pixels below for their names, and what the y axis counts up to which height.
fn groups_chart<'a, 'b>(
    area: &'a DrawingArea<SVGBackend<'b>, Shift>,
    (groups, names_size): (usize, u32),
    (y, top): (&str, f64),
) -> std::result::Result<Chart<'b>, Box<dyn std::error::Error>>
where
    'b: 'a,
{
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .margin_right(24)
        .x_label_area_size(names_size)
        .y_label_area_size(84)
        .build_cartesian_2d(0.0..groups as f64, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .y_desc(y)
        .label_style(FONT_SMALL)
        .axis_desc_style(FONT)
        .x_labels(0)
        .y_labels(6)
        .y_label_formatter(&|value| number(*value))
        .light_line_style(WHITE)
        .draw()?;
    Ok(chart)
}

/// What each colour stands for.
fn legend(chart: &mut Chart<'_>, place: SeriesLabelPosition) -> Drawn {
    chart
        .configure_series_labels()
        .position(place)
        .legend_area_size(34)
        .label_font(FONT_SMALL)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}

/// A number as an axis shows it.
#[must_use]
pub fn number(value: f64) -> String {
    let short = |value: f64, unit: &str| {
        let text = format!("{value:.1}");
        format!("{}{unit}", text.strip_suffix(".0").unwrap_or(&text))
    };
    match value.abs() {
        large if large >= 1e6 => short(value / 1e6, " M"),
        large if large >= 1e3 => short(value / 1e3, " k"),
        small if small > 0.0 && small < 0.1 => format!("{value:.3}"),
        small if small < 1.0 && small > 0.0 => format!("{value:.2}"),
        _ => short(value, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_of_lines_holds_its_axes_lines_legend_and_marks() {
        let plot = LinePlot {
            x: "seconds".into(),
            y: "operations/s".into(),
            top: None,
            lines: vec![
                Line::new("one", 0, vec![(0.0, 1.0), (1.0, 2000.0)]),
                Line::new("limit", 1, vec![(0.0, 5.0), (1.0, 5.0)]).dashed(),
            ],
            marks: vec![(0.5, "a stage".into())],
            bands: vec![Band { colour: colour(4), ends: (0.1, 0.2) }],
            x_label: Some((2, |_| "a label".into())),
            has_legend_above: false,
        };
        let svg = plot.draw().unwrap();
        for word in
            ["<svg ", "seconds", "operations/s", "one", "limit", "a stage", "#D55E00", "#0072B2", "a label"]
        {
            assert!(svg.contains(word), "{word}: {svg}");
        }
        assert!(svg.contains("opacity=\"0.28\" fill=\"#E69F00\""), "{svg}");
        assert!(LinePlot::default().draw().is_ok(), "nothing to show is no error");
        let without_lines = LinePlot { lines: Vec::new(), ..plot };
        assert!(without_lines.draw().unwrap().contains("a stage"), "nor are marks and bands without lines");
    }

    #[test]
    fn bars_stand_in_groups_with_their_figures_and_gaps() {
        let plot = BarPlot {
            y: "GB".into(),
            groups: vec!["RO".into(), "RW".into()],
            series: vec![("a".into(), vec![Some(1.5), Some(12_000.0)]), ("b".into(), vec![None, Some(7.0)])],
        };
        let svg = plot.draw().unwrap();
        for word in ["RO", "RW", "1.5", "12 k", "GB"] {
            assert!(svg.contains(&format!("\n{word}\n")), "{word}: {svg}");
        }
        // Background, three bars, legend: two boxes for the entries, and its frame.
        assert_eq!(
            svg.matches("fill=\"#0072B2\"").count(),
            2,
            "the bar of b and its entry in the legend: {svg}"
        );
        assert!(BarPlot::default().draw().is_ok());
    }

    #[test]
    fn stacks_stand_on_one_another_with_the_names_of_bars_groups_and_parts() {
        let plot = StackPlot {
            y: "us".into(),
            groups: vec!["RO".into(), "RW".into()],
            bars: vec!["kelvin".into(), "fat".into()],
            parts: vec![
                ("reads".into(), vec![vec![Some(10.0), Some(20.0)], vec![Some(5.0), None]]),
                ("tracker".into(), vec![vec![Some(1.0), None], vec![Some(2.0), None]]),
            ],
        };
        assert!((plot.below(2, 0, 0) - 11.0).abs() < 1e-9 && (plot.below(1, 0, 1) - 20.0).abs() < 1e-9);
        let svg = plot.draw().unwrap();
        for word in ["RO", "RW", "kelvin", "fat", "reads", "tracker", "us"] {
            assert!(svg.contains(&format!("\n{word}\n")), "{word}: {svg}");
        }
        // The parts of two bars, and the entry in the legend.
        assert_eq!(svg.matches("fill=\"#0072B2\"").count(), 3, "{svg}");
        assert!(StackPlot::default().draw().is_ok());
    }

    #[test]
    fn points_have_their_names_beside_them() {
        let points = vec![("one".into(), (10.0, 20.0)), ("other".into(), (95.0, 90.0))];
        let svg = ScatterPlot { x: "hot".into(), y: "sunk".into(), points }.draw().unwrap();
        assert!(svg.contains("\none\n") && svg.contains("\nother\n") && svg.matches("<circle").count() == 2);
        assert!(ScatterPlot::default().draw().is_ok());
    }

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 0.05, 0.5, 2.0, 12.5, 999.0, 1_000.0, 12_345.0, 2_500_000.0].map(number);
        assert_eq!(shown, ["0", "0.050", "0.50", "2", "12.5", "999", "1 k", "12.3 k", "2.5 M"]);
    }
}
