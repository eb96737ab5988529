//! What commands print: aligned tables for people, JSON for programs, colour only where a terminal shows it.
//!
//! Numbers for people have separators and units; numbers in JSON are plain bytes and counts.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use bytesize::ByteSize;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use owo_colors::OwoColorize;
use serde_json::{Map, Value, json};

/// Colours, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint {
    on: bool,
}

impl Paint {
    /// No colour.
    pub const fn none() -> Self {
        Self { on: false }
    }

    /// Colour if `terminal` and neither NO_COLOR nor a dumb terminal forbids it.
    fn if_terminal(terminal: bool) -> Self {
        let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self { on: terminal && !forbidden }
    }

    /// For errors.
    pub fn for_stderr() -> Self {
        Self::if_terminal(io::stderr().is_terminal())
    }

    /// For results.
    pub fn for_stdout() -> Self {
        Self::if_terminal(io::stdout().is_terminal())
    }

    /// Bad news.
    pub fn red(self, text: &str) -> String {
        if self.on { text.red().bold().to_string() } else { text.to_string() }
    }

    /// Good news.
    pub fn green(self, text: &str) -> String {
        if self.on { text.green().to_string() } else { text.to_string() }
    }

    /// Headings.
    pub fn bold(self, text: &str) -> String {
        if self.on { text.bold().to_string() } else { text.to_string() }
    }
}

/// A table without borders: columns named in `right` are aligned to the right.
pub fn table(header: &[&str], right: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(header.iter().copied());
    for (index, name) in header.iter().enumerate() {
        if let Some(column) = table.column_mut(index) {
            column.set_padding((0, 2));
            if right.contains(name) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    table
}

/// The table's lines without the blanks that end them, the header bold.
pub fn lines(table: &Table, paint: Paint) -> String {
    let text = table.to_string();
    let mut lines = text.lines().map(str::trim_end);
    let header = lines.next().map(|header| paint.bold(header));
    header.into_iter().chain(lines.map(str::to_string)).collect::<Vec<_>>().join("\n")
}

/// Writes `text` and a line feed to stdout.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Writes `value` to stdout, indented.
pub fn print_json(value: &Value) -> io::Result<()> {
    print(&format!("{value:#}"))
}

/// Named values as nested objects: `read_ios.fast` becomes `{"read_ios": {"fast": …}}`.
pub fn nested(rows: impl IntoIterator<Item = (String, Value)>) -> Map<String, Value> {
    let mut object = Map::new();
    for (name, value) in rows {
        match name.split_once('.') {
            None => {
                object.insert(name, value);
            }
            Some((group, part)) => {
                let group = object.entry(group).or_insert_with(|| json!({}));
                group[part] = value;
            }
        }
    }
    object
}

/// `1234567` as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Bytes with a binary unit.
pub fn bytes(number: u64) -> String {
    ByteSize(number).display().iec().to_string()
}

/// `part` of `whole` in per cent; a dash if there is no whole.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_string();
    }
    format!("{:.1} %", 100.0 * ratio(part, whole))
}

/// `part` over `whole`; 0 if there is no whole.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// How many a second.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub fn rate(count: u64, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_have_units() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(bytes(1 << 20), "1.0 MiB");
        assert_eq!(percent(1, 3), "33.3 %");
        assert_eq!(percent(0, 0), "-");
    }

    #[test]
    fn a_table_is_aligned_and_has_no_trailing_blanks() {
        let mut table = table(&["name", "bytes"], &["bytes"]);
        table.add_row(["long name", "1"]);
        table.add_row(["x", "1000"]);
        assert_eq!(lines(&table, Paint::none()), "name       bytes\nlong name      1\nx           1000");
    }
}
