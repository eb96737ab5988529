//! Records in and out of a store: CSV, JSON lines, and Kelvin's own dump format.
//!
//! A [`Decoder`] reads records one by one from any reader and an [`Encoder`] writes them to any writer; neither
//! knows a store, so pipes, tests and fuzz targets use the shipped code. What an encoder wrote, the decoder of the
//! same format reads back byte for byte, expiry included.
//!
//! Invariants
//! - T1 No length is believed before the bytes are there: memory grows with the input that arrived, up to
//!   [`Limits::record_bytes_max`] a record.
//! - T2 A damaged or cut dump is an error that names the line or the byte, never a shorter list of records. CSV and
//!   JSON lines have no end mark, so a cut between two lines cannot be seen in them; in a dump it can.
//!
//! Formats: docs/formats/dump.md. Tests: `tests.rs` beside this file; fuzz target `transfer`.

mod binary;
mod csv_lines;
mod input;
mod json_lines;
mod text;

#[cfg(test)]
mod tests;

use std::io::{BufRead, Write};
use std::path::Path;

use kelvin_base::{Error, KEY_BYTES_MAX, Result, VALUE_BYTES_MAX};

pub use binary::MAGIC;
pub use text::Encoding;

/// A record on its way in or out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// When the record ends, milliseconds since 1970-01-01 UTC; `None` for never.
    pub expiry_ms: Option<u64>,
}

/// A format of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated values with a key and a value column.
    Csv,
    /// One JSON object a line.
    JsonLines,
    /// Kelvin's own: compact, with checksums and an end mark.
    Dump,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 3] = [Self::Csv, Self::JsonLines, Self::Dump];

    /// The format's name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::JsonLines => "jsonl",
            Self::Dump => "dump",
        }
    }

    /// The format that the file's extension names.
    #[must_use]
    pub fn of_path(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "csv" => Some(Self::Csv),
            "jsonl" | "ndjson" | "json" => Some(Self::JsonLines),
            "dump" | "kdump" | "kelvin" => Some(Self::Dump),
            _ => None,
        }
    }

    /// The format that the first bytes of an input look like: the dump's magic, a JSON object, else CSV.
    #[must_use]
    pub fn of_start(start: &[u8]) -> Self {
        let common = start.len().min(MAGIC.len());
        if common > 0 && start[..common] == MAGIC[..common] {
            return Self::Dump;
        }
        match start.iter().find(|byte| !byte.is_ascii_whitespace()) {
            Some(b'{') => Self::JsonLines,
            _ => Self::Csv,
        }
    }
}

/// Whether a CSV input begins with a line of column names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Header {
    /// It does if every cell of the first line is a column name Kelvin knows.
    #[default]
    Detect,
    /// It does.
    Present,
    /// It does not: every line is a record.
    Absent,
}

/// Bounds of what a decoder takes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most bytes one record may take in the input, encoded.
    pub record_bytes_max: u64,
}

impl Default for Limits {
    /// The longest key and value, each byte escaped by four.
    fn default() -> Self {
        Self { record_bytes_max: 4 * (KEY_BYTES_MAX as u64 + VALUE_BYTES_MAX as u64) + 1024 }
    }
}

/// How a decoder reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct DecodeOptions {
    /// CSV: whether there is a header.
    pub header: Header,
    /// CSV without header: how keys and values are written.
    pub encoding: Encoding,
    /// Bounds.
    pub limits: Limits,
    /// The time that relative lifetimes (`ttl_ms`) count from, milliseconds since 1970-01-01 UTC.
    pub now_ms: u64,
}

/// Where a decoder stands: after the last record it answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Line, from 1; 0 in a dump, which has none.
    pub line: u64,
    /// Bytes consumed.
    pub offset: u64,
}

#[derive(Debug)]
enum Reading<R: BufRead> {
    Csv(Box<csv_lines::Reader<R>>),
    Json(json_lines::Reader<R>),
    Dump(binary::Reader<R>),
}

/// Reads records from an input.
#[derive(Debug)]
pub struct Decoder<R: BufRead> {
    reading: Reading<R>,
}

impl<R: BufRead> Decoder<R> {
    /// A decoder of `format` at the start of `input`. Nothing is read yet.
    pub fn new(format: Format, input: R, options: DecodeOptions) -> Self {
        let reading = match format {
            Format::Csv => Reading::Csv(Box::new(csv_lines::Reader::new(input, options))),
            Format::JsonLines => Reading::Json(json_lines::Reader::new(input, options)),
            Format::Dump => Reading::Dump(binary::Reader::new(input, options.limits)),
        };
        Self { reading }
    }

    /// The next record into `record`; false at the end.
    ///
    /// # Errors
    /// `InvalidArgument` for a line that is no record, `Corruption` for a damaged or cut dump, `Io` if the input
    /// cannot be read. The error names the line or the byte. What was read before stays read; nothing can be read after.
    pub fn next(&mut self, record: &mut Record) -> Result<bool> {
        let more = match &mut self.reading {
            Reading::Csv(reader) => reader.next(record)?,
            Reading::Json(reader) => reader.next(record)?,
            Reading::Dump(reader) => reader.next(record)?,
        };
        if more {
            self.check(record)?;
        }
        Ok(more)
    }

    /// Refuses records no store takes, while the line is still known.
    fn check(&self, record: &Record) -> Result<()> {
        if record.key.is_empty() || record.key.len() > KEY_BYTES_MAX {
            let found = format!("{} bytes", record.key.len());
            return Err(self
                .refuse("the key has a length no record can have")
                .expected(format!("1 to {KEY_BYTES_MAX} bytes"), found));
        }
        if record.value.len() > VALUE_BYTES_MAX {
            let found = format!("{} bytes", record.value.len());
            return Err(self
                .refuse("the value is too long")
                .expected(format!("at most {VALUE_BYTES_MAX} bytes"), found));
        }
        Ok(())
    }

    fn refuse(&self, what: &str) -> Error {
        let position = self.position();
        match position.line {
            0 => Error::invalid(what).offset(position.offset),
            line => Error::invalid(format!("line {line}: {what}")),
        }
    }

    /// Where the decoder stands.
    #[must_use]
    pub fn position(&self) -> Position {
        match &self.reading {
            Reading::Csv(reader) => reader.position(),
            Reading::Json(reader) => reader.position(),
            Reading::Dump(reader) => reader.position(),
        }
    }
}

#[derive(Debug)]
enum Writing<W: Write> {
    Csv(Box<csv_lines::Writer<W>>),
    Json(json_lines::Writer<W>),
    Dump(binary::Writer<W>),
}

/// Writes records to an output.
#[derive(Debug)]
pub struct Encoder<W: Write> {
    writing: Writing<W>,
}

impl<W: Write> Encoder<W> {
    /// An encoder of `format`; CSV and JSON lines write keys and values as `encoding` says. Nothing is written yet.
    pub fn new(format: Format, output: W, encoding: Encoding) -> Self {
        let writing = match format {
            Format::Csv => Writing::Csv(Box::new(csv_lines::Writer::new(output, encoding))),
            Format::JsonLines => Writing::Json(json_lines::Writer::new(output, encoding)),
            Format::Dump => Writing::Dump(binary::Writer::new(output)),
        };
        Self { writing }
    }

    /// Writes `record`.
    ///
    /// # Errors
    /// The output's error; `InvalidInput` for bytes that [`Encoding::Text`] cannot write.
    pub fn write(&mut self, record: &Record) -> std::io::Result<()> {
        match &mut self.writing {
            Writing::Csv(writer) => writer.write(record),
            Writing::Json(writer) => writer.write(record),
            Writing::Dump(writer) => writer.write(record),
        }
    }

    /// Writes what is buffered and the end mark, if the format has one, and flushes the output.
    ///
    /// # Errors
    /// The output's error.
    pub fn finish(self) -> std::io::Result<()> {
        match self.writing {
            Writing::Csv(writer) => writer.finish(),
            Writing::Json(writer) => writer.finish(),
            Writing::Dump(writer) => writer.finish(),
        }
    }
}
