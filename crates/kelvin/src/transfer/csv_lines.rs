//! CSV: a key column, a value column, perhaps one for the expiry.
//!
//! Column names: `key` or `key_escape`, `key_base64`, `key_hex`; `value` likewise; `expiry_ms` (milliseconds since 1970)
//! or `ttl_ms` (from now), empty for records without end. Without a header the columns are key, value and, if there
//! is a third, `expiry_ms`. Quoting as in RFC 4180, so a cell may hold commas, quotes and line feeds.

use std::io::{self, BufRead, Write};

use csv::ByteRecord;
use kelvin_base::{Error, Result};

use super::input::{Bounded, Budget, failed};
use super::{DecodeOptions, Encoding, Header, Position, Record};

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Key(Encoding),
    Value(Encoding),
    ExpiryMs,
    TtlMs,
}

impl Column {
    fn of_name(name: &[u8]) -> Option<Self> {
        let name = std::str::from_utf8(name).ok()?.trim().trim_start_matches('\u{feff}').to_ascii_lowercase();
        match name.as_str() {
            "expiry_ms" => return Some(Self::ExpiryMs),
            "ttl_ms" => return Some(Self::TtlMs),
            _ => {}
        }
        Encoding::ALL.into_iter().find_map(|encoding| {
            let rest = name.strip_suffix(encoding.suffix())?;
            match rest {
                "key" => Some(Self::Key(encoding)),
                "value" => Some(Self::Value(encoding)),
                _ => None,
            }
        })
    }
}

/// Reads lines.
#[derive(Debug)]
pub struct Reader<R: BufRead> {
    lines: csv::Reader<Bounded<R>>,
    budget: Budget,
    options: DecodeOptions,
    columns: Vec<Column>,
    row: ByteRecord,
    started: bool,
}

impl<R: BufRead> Reader<R> {
    pub fn new(input: R, options: DecodeOptions) -> Self {
        let budget = Budget::new(options.limits.record_bytes_max);
        let lines = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .from_reader(Bounded::new(input, budget.clone()));
        Self { lines, budget, options, columns: Vec::new(), row: ByteRecord::new(), started: false }
    }

    pub fn position(&self) -> Position {
        let start = self.row.position().map_or(0, csv::Position::line);
        Position { line: start, offset: self.lines.position().byte() }
    }

    pub fn next(&mut self, record: &mut Record) -> Result<bool> {
        if !self.read()? {
            return Ok(false);
        }
        if !self.started {
            self.started = true;
            if self.take_header()? && !self.read()? {
                return Ok(false);
            }
        }
        let line = self.position().line;
        self.fill(record).map_err(|why| Error::invalid(format!("line {line}: {why}")))?;
        Ok(true)
    }

    fn read(&mut self) -> Result<bool> {
        self.budget.renew();
        self.lines.read_byte_record(&mut self.row).map_err(|error| {
            let place = format!("line {}", self.lines.position().line());
            match error.into_kind() {
                csv::ErrorKind::Io(error) => failed(&place, &error),
                other => Error::invalid(format!("{place}: {other:?}")),
            }
        })
    }

    /// Learns the columns from the first row; true if that row was a header.
    fn take_header(&mut self) -> Result<bool> {
        let names: Vec<Option<Column>> = self.row.iter().map(Column::of_name).collect();
        let header = match self.options.header {
            Header::Present => true,
            Header::Absent => false,
            Header::Detect => names.len() > 1 && names.iter().all(Option::is_some),
        };
        if !header {
            let encoding = self.options.encoding;
            self.columns = vec![Column::Key(encoding), Column::Value(encoding), Column::ExpiryMs];
            return Ok(false);
        }
        for (name, column) in self.row.iter().zip(names) {
            let column = column.ok_or_else(|| {
                let name = String::from_utf8_lossy(name).into_owned();
                Error::invalid(format!("line 1: a column Kelvin does not know: {name:?}")).expected(
                    "key, value (or with _escape, _base64, _hex), expiry_ms, ttl_ms",
                    format!("{name:?}"),
                )
            })?;
            self.columns.push(column);
        }
        let keys = self.columns.iter().filter(|column| matches!(column, Column::Key(_))).count();
        let values = self.columns.iter().filter(|column| matches!(column, Column::Value(_))).count();
        let ends = self.columns.len() - keys - values;
        if keys != 1 || values != 1 || ends > 1 {
            return Err(Error::invalid(
                "line 1: the header must name one key column, one value column and at most one expiry",
            )
            .expected(
                "for example key,value,expiry_ms",
                format!("{keys} key, {values} value, {ends} expiry columns"),
            ));
        }
        Ok(true)
    }

    fn fill(&self, record: &mut Record) -> Result<(), String> {
        let (cells, columns) = (self.row.len(), self.columns.len());
        let ends = matches!(self.columns.last(), Some(Column::ExpiryMs | Column::TtlMs));
        let least = columns - usize::from(ends);
        if cells > columns || cells < least {
            let expected = if ends { format!("{least} or {columns}") } else { columns.to_string() };
            let cells = if cells == 1 { "1 cell".to_string() } else { format!("{cells} cells") };
            return Err(format!("{cells} instead of {expected} (is a quote missing?)"));
        }
        record.expiry_ms = None;
        for (cell, column) in self.row.iter().zip(&self.columns) {
            match column {
                Column::Key(encoding) => {
                    record.key = encoding.decode(cell).map_err(|why| format!("key: {why}"))?;
                }
                Column::Value(encoding) => {
                    record.value = encoding.decode(cell).map_err(|why| format!("value: {why}"))?;
                }
                Column::ExpiryMs => record.expiry_ms = number(cell)?,
                Column::TtlMs => {
                    let ttl_ms = number(cell)?;
                    record.expiry_ms = ttl_ms.map(|ttl_ms| self.options.now_ms.saturating_add(ttl_ms));
                }
            }
        }
        Ok(())
    }
}

/// A number of milliseconds; an empty cell is none.
fn number(cell: &[u8]) -> Result<Option<u64>, String> {
    let text = std::str::from_utf8(cell).unwrap_or("?").trim();
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| format!("the expiry is no number of milliseconds: {text:?}"))
}

/// Writes lines.
#[derive(Debug)]
pub struct Writer<W: Write> {
    lines: csv::Writer<W>,
    encoding: Encoding,
    started: bool,
}

impl<W: Write> Writer<W> {
    pub fn new(output: W, encoding: Encoding) -> Self {
        let lines = csv::WriterBuilder::new().buffer_capacity(128 * 1024).from_writer(output);
        Self { lines, encoding, started: false }
    }

    fn start(&mut self) -> io::Result<()> {
        if !self.started {
            self.started = true;
            let suffix = self.encoding.suffix();
            self.lines.write_record([
                format!("key{suffix}").as_str(),
                format!("value{suffix}").as_str(),
                "expiry_ms",
            ])?;
        }
        Ok(())
    }

    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        self.start()?;
        let text = |name: &str, bytes: &[u8]| {
            self.encoding.encode(bytes).ok_or_else(|| {
                let shown = Encoding::Escape.encode(&record.key).unwrap_or_default();
                io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("the {name} of {shown} is not UTF-8; use --encoding escape, base64 or hex"),
                )
            })
        };
        let (key, value) = (text("key", &record.key)?, text("value", &record.value)?);
        let expiry = record.expiry_ms.map(|ms| ms.to_string()).unwrap_or_default();
        self.lines.write_record([key, value, expiry])?;
        Ok(())
    }

    pub fn finish(mut self) -> io::Result<()> {
        self.start()?;
        self.lines.flush()
    }
}
