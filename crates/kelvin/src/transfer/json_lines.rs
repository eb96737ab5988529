//! JSON lines: one object a line.
//!
//! `{"key": "k", "value": "v"}`, with `key_escape`, `key_base64`, `key_hex` (and `value_…`) instead where the bytes are
//! not UTF-8, `expiry_ms` (milliseconds since 1970) or `ttl_ms` (from now) for records that end. Unknown and repeated
//! fields are errors: a misspelt `ttl_ms` must not become a record that never ends. Empty lines are skipped.

use std::io::{self, BufRead, Read, Write};

use kelvin_base::{Error, Result};
use serde::{Deserialize, Serialize};

use super::input::{Bounded, Budget, failed};
use super::{DecodeOptions, Encoding, Position, Record};

/// The names that are in the format; `None` is left out when written.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_escape: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value_escape: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value_hex: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expiry_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
}

/// The one of the four spellings that is there, decoded.
fn pick(name: &str, spellings: [Option<String>; 4]) -> Result<Vec<u8>, String> {
    let mut found = None;
    for (encoding, text) in Encoding::ALL.into_iter().zip(spellings) {
        let Some(text) = text else { continue };
        if found.is_some() {
            return Err(format!("the {name} is given twice"));
        }
        let bytes = match encoding {
            Encoding::Text => text.into_bytes(),
            other => {
                other.decode(text.as_bytes()).map_err(|why| format!("{name}{}: {why}", other.suffix()))?
            }
        };
        found = Some(bytes);
    }
    found.ok_or_else(|| {
        format!("no {name}: one of {name}, {name}_escape, {name}_base64, {name}_hex is needed")
    })
}

impl Line {
    fn into_record(self, now_ms: u64) -> Result<Record, String> {
        let key = pick("key", [self.key, self.key_escape, self.key_base64, self.key_hex])?;
        let value = pick("value", [self.value, self.value_escape, self.value_base64, self.value_hex])?;
        let expiry_ms = match (self.expiry_ms, self.ttl_ms) {
            (Some(_), Some(_)) => return Err("both expiry_ms and ttl_ms are given".to_string()),
            (expiry_ms, None) => expiry_ms,
            (None, Some(ttl_ms)) => Some(now_ms.saturating_add(ttl_ms)),
        };
        Ok(Record { key, value, expiry_ms })
    }
}

/// Reads lines.
#[derive(Debug)]
pub struct Reader<R> {
    input: io::BufReader<Bounded<R>>,
    budget: Budget,
    now_ms: u64,
    line: Vec<u8>,
    position: Position,
}

impl<R: BufRead> Reader<R> {
    pub fn new(input: R, options: DecodeOptions) -> Self {
        let budget = Budget::new(options.limits.record_bytes_max);
        Self {
            input: io::BufReader::new(Bounded::new(input, budget.clone())),
            budget,
            now_ms: options.now_ms,
            line: Vec::new(),
            position: Position::default(),
        }
    }

    pub fn position(&self) -> Position {
        self.position
    }

    pub fn next(&mut self, record: &mut Record) -> Result<bool> {
        loop {
            self.budget.renew();
            self.line.clear();
            let read = self.input.by_ref().read_until(b'\n', &mut self.line);
            let place = format!("line {}", self.position.line + 1);
            let read = read.map_err(|error| failed(&place, &error))?;
            if read == 0 {
                return Ok(false);
            }
            self.position.line += 1;
            self.position.offset += read as u64;
            if self.line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let line: Line = serde_json::from_slice(&self.line)
                .map_err(|error| Error::invalid(format!("{place}: {error}")))?;
            *record =
                line.into_record(self.now_ms).map_err(|why| Error::invalid(format!("{place}: {why}")))?;
            return Ok(true);
        }
    }
}

/// Writes lines.
#[derive(Debug)]
pub struct Writer<W: Write> {
    output: io::BufWriter<W>,
    encoding: Encoding,
}

impl<W: Write> Writer<W> {
    pub fn new(output: W, encoding: Encoding) -> Self {
        Self { output: io::BufWriter::with_capacity(128 * 1024, output), encoding }
    }

    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        let mut line = Line { expiry_ms: record.expiry_ms, ..Line::default() };
        let (key_as, key) = spell(self.encoding, &record.key);
        let (value_as, value) = spell(self.encoding, &record.value);
        *match key_as {
            Encoding::Text => &mut line.key,
            Encoding::Escape => &mut line.key_escape,
            Encoding::Base64 => &mut line.key_base64,
            Encoding::Hex => &mut line.key_hex,
        } = Some(key);
        *match value_as {
            Encoding::Text => &mut line.value,
            Encoding::Escape => &mut line.value_escape,
            Encoding::Base64 => &mut line.value_base64,
            Encoding::Hex => &mut line.value_hex,
        } = Some(value);
        serde_json::to_writer(&mut self.output, &line)?;
        self.output.write_all(b"\n")
    }

    pub fn finish(mut self) -> io::Result<()> {
        self.output.flush()
    }
}

/// `bytes` in `encoding`, or in base64 where plain text cannot say them: each line names how it is written.
fn spell(encoding: Encoding, bytes: &[u8]) -> (Encoding, String) {
    match encoding.encode(bytes) {
        Some(text) => (encoding, text),
        None => (Encoding::Base64, Encoding::Base64.encode(bytes).unwrap_or_default()),
    }
}
