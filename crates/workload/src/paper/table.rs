//! Tables of results: the same cells as text, CSV and HTML. Tests stand below.

use std::fmt::Write as _;

use crate::html::escape;

/// A table: a heading, what to see in it, and cells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Heading.
    pub title: String,
    /// One sentence: what is compared, and what to see.
    pub caption: String,
    /// Names of the columns; the first names the rows.
    pub header: Vec<String>,
    /// As many cells as there are columns in each row.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty one.
    #[must_use]
    pub fn new(title: &str, caption: &str, header: &[&str]) -> Self {
        let header = header.iter().map(ToString::to_string).collect();
        Self { title: title.into(), caption: caption.into(), header, rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Aligned, for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let lines = || std::iter::once(&self.header).chain(&self.rows);
        let mut widths = vec![0; self.header.len()];
        for line in lines() {
            for (width, cell) in widths.iter_mut().zip(line) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = format!("{}\n{}\n", self.title, self.caption);
        for line in lines() {
            let mut row = String::new();
            for (index, (cell, &width)) in line.iter().zip(&widths).enumerate() {
                // Writing to a string cannot fail.
                let _written = match index {
                    0 => write!(row, "{cell:<width$}"),
                    _ => write!(row, "  {cell:>width$}"),
                };
            }
            let _written = writeln!(text, "  {}", row.trim_end());
        }
        text
    }

    /// As comma-separated values, header first.
    #[must_use]
    pub fn csv(&self) -> String {
        let field = |cell: &String| match cell.contains([',', '"', '\n']) {
            true => format!("\"{}\"", cell.replace('"', "\"\"")),
            false => cell.clone(),
        };
        let mut csv = String::new();
        for line in std::iter::once(&self.header).chain(&self.rows) {
            let _written = writeln!(csv, "{}", line.iter().map(field).collect::<Vec<_>>().join(","));
        }
        csv
    }

    /// As an HTML table with its caption.
    #[must_use]
    pub fn html(&self) -> String {
        let cells = |line: &[String], tag: &str| {
            let cell = |cell: &String| format!("<{tag}>{}</{tag}>", escape(cell));
            format!("<tr>{}</tr>", line.iter().map(cell).collect::<String>())
        };
        let rows: String = self.rows.iter().map(|row| cells(row, "td")).collect();
        format!("<p>{}</p>\n<table>{}{rows}</table>\n", escape(&self.caption), cells(&self.header, "th"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_cells_stand_in_text_csv_and_html() {
        let mut table = Table::new("Table 0", "What to see.", &["version", "GB, ours", "paper"]);
        table.row(["HotRAP".into(), "1.5".into(), "2".into()]);
        table.row(["no \"x\" <y>".into(), "100.25".into(), "-".into()]);
        assert_eq!(
            table.text(),
            "Table 0\nWhat to see.\n  version     GB, ours  paper\n  HotRAP           1.5      2\n  no \"x\" <y>    100.25      -\n"
        );
        assert_eq!(table.csv(), "version,\"GB, ours\",paper\nHotRAP,1.5,2\n\"no \"\"x\"\" <y>\",100.25,-\n");
        assert!(
            table.html().contains("<td>no \"x\" &lt;y&gt;</td>") && table.html().contains("What to see.")
        );
    }
}
