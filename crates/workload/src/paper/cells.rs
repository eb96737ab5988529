//! How figures of reports are written in the cells of tables. Tests: beside the tables.

use serde_json::Value;

/// A cell of which nothing is known.
pub(super) const NONE: &str = "-";

/// A figure of a report, by its JSON pointer.
#[must_use]
pub fn figure(report: &Value, pointer: &str) -> Option<f64> {
    report.pointer(pointer).and_then(Value::as_f64)
}

/// The sum of figures, if all are there.
pub(super) fn sum(report: &Value, pointers: &[&str]) -> Option<f64> {
    pointers.iter().map(|pointer| figure(report, pointer)).sum()
}

pub(super) fn bytes(number: Option<f64>) -> String {
    let Some(number) = number else { return NONE.into() };
    match number.abs() {
        large if large >= 1e11 => format!("{:.0} GB", number / 1e9),
        large if large >= 1e9 => format!("{:.2} GB", number / 1e9),
        large if large >= 1e8 => format!("{:.0} MB", number / 1e6),
        large if large >= 1e6 => format!("{:.1} MB", number / 1e6),
        _ => format!("{:.2} MB", number / 1e6),
    }
}

pub(super) fn percent(part: Option<f64>) -> String {
    part.map_or_else(|| NONE.into(), |part| format!("{:.1} %", part * 100.0))
}

pub(super) fn ratio(above: Option<f64>, below: Option<f64>) -> String {
    ratio_of(above, below).map_or_else(|| NONE.into(), |ratio| format!("{ratio:.2}x"))
}

pub(super) fn rate(number: Option<f64>) -> String {
    number.map_or_else(
        || NONE.into(),
        |number| if number >= 1e4 { format!("{:.1} k", number / 1e3) } else { format!("{number:.0}") },
    )
}

/// One figure over another, if that is not zero.
pub(super) fn ratio_of(above: Option<f64>, below: Option<f64>) -> Option<f64> {
    above.zip(below).filter(|(_, below)| *below > 0.0).map(|(above, below)| above / below)
}

pub(super) fn micros(number: Option<f64>) -> String {
    number.map_or_else(|| NONE.into(), |us| format!("{us:.0}"))
}
