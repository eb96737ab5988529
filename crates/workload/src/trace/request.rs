//! One line of a trace: `timestamp,key,key size,value size,client,operation,ttl`, as Twitter published them.
//!
//! Parsing copies nothing and believes nothing: every field is bounded before it is used. A key may hold commas if its
//! length is the one in the third field. Tests: `tests/lines.rs`.

use std::fmt;
use std::ops::Range;

use kelvin_base::KEY_BYTES_MAX;

/// Longest key, bytes: what the store allows, less room for the prefix of a repeated trace.
pub const TRACE_KEY_BYTES_MAX: usize = KEY_BYTES_MAX - 8;
/// Longest value, bytes: as much as the traced caches held in one item.
pub const TRACE_VALUE_BYTES_MAX: u32 = 8 << 20;

/// What a client asked the cache for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Read.
    Get,
    /// Read, with the number that `cas` compares.
    Gets,
    /// Write.
    Set,
    /// Write if there is no record.
    Add,
    /// Write if there is a record.
    Replace,
    /// Write if nobody else has written since `gets`.
    Cas,
    /// Lengthen at the end.
    Append,
    /// Lengthen at the beginning.
    Prepend,
    /// Remove.
    Delete,
    /// Count up.
    Incr,
    /// Count down.
    Decr,
}

impl Kind {
    /// All of them, in the order of the traces' documentation.
    pub const ALL: [Self; 11] = [
        Self::Get,
        Self::Gets,
        Self::Set,
        Self::Add,
        Self::Replace,
        Self::Cas,
        Self::Append,
        Self::Prepend,
        Self::Delete,
        Self::Incr,
        Self::Decr,
    ];

    /// The name in traces.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Gets => "gets",
            Self::Set => "set",
            Self::Add => "add",
            Self::Replace => "replace",
            Self::Cas => "cas",
            Self::Append => "append",
            Self::Prepend => "prepend",
            Self::Delete => "delete",
            Self::Incr => "incr",
            Self::Decr => "decr",
        }
    }

    /// True for `get` and `gets`.
    #[must_use]
    pub const fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::Gets)
    }
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// When the cache received it, seconds.
    pub timestamp: u64,
    /// The key.
    pub key: &'a [u8],
    /// Bytes of the value: written, or found by a read; 0 if a read found nothing.
    pub value_size: u32,
    /// Who asked.
    pub client: &'a [u8],
    /// What for.
    pub kind: Kind,
    /// How long what is written lives, seconds; 0 is for ever.
    pub ttl: u32,
}

impl Request<'_> {
    /// Appends the line, with its line feed.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let Self { timestamp, key, value_size, client, kind, ttl } = *self;
        out.extend_from_slice(format!("{timestamp},").as_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(format!(",{},{value_size},", key.len()).as_bytes());
        out.extend_from_slice(client);
        out.extend_from_slice(format!(",{},{ttl}\n", kind.name()).as_bytes());
    }
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The field concerned, by its name in the form.
    pub field: &'static str,
    /// What should stand there.
    pub expected: String,
    /// What stands there.
    pub found: String,
}

impl Malformed {
    pub(crate) fn new(field: &'static str, expected: impl fmt::Display, found: impl fmt::Display) -> Self {
        Self { field, expected: expected.to_string(), found: found.to_string() }
    }
}

/// A line taken apart: places in it and numbers.
#[derive(Clone, Debug)]
pub(crate) struct Fields {
    timestamp: u64,
    key: Range<usize>,
    value_size: u32,
    client: Range<usize>,
    kind: Kind,
    ttl: u32,
}

/// The names of the fields.
const NAMES: [&str; 7] = ["timestamp", "key", "key size", "value size", "client", "operation", "ttl"];
/// Bytes of a field that an error shows.
const SHOWN_BYTES_MAX: usize = 40;

impl Fields {
    /// Takes `line` apart, which has no line feed.
    pub(crate) fn parse(line: &[u8]) -> Result<Self, Malformed> {
        let Some([first, a, b, c, d, e]) = places_of_commas(line) else {
            let there = line.iter().filter(|byte| **byte == b',').count() + 1;
            let expected = "7 fields: timestamp,key,key size,value size,client,operation,ttl";
            return Err(Malformed::new(NAMES[there.min(6)], expected, format!("{there} in {}", shown(line))));
        };
        let field = |from: usize, to: usize| &line[from + 1..to];
        let key = first + 1..a;
        let key_size = number("key size", field(a, b), u64::MAX)?;
        if key.is_empty() {
            return Err(Malformed::new("key", "at least one byte", "none"));
        }
        if key.len() > TRACE_KEY_BYTES_MAX {
            let expected = format!("at most {TRACE_KEY_BYTES_MAX} bytes");
            return Err(Malformed::new("key", expected, format!("{} bytes", key.len())));
        }
        if line[key.clone()].contains(&b',') && key_size != key.len() as u64 {
            let expected = "7 fields, or commas in a key as long as the key size says";
            return Err(Malformed::new("key", expected, format!("more, and a key size of {key_size}")));
        }
        let name = field(d, e);
        let kind = Kind::ALL.into_iter().find(|kind| kind.name().as_bytes() == name).ok_or_else(|| {
            let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
            Malformed::new("operation", format!("one of {}", names.join(", ")), shown(name))
        })?;
        let value_size = number("value size", field(b, c), TRACE_VALUE_BYTES_MAX.into())?;
        let ttl = number("ttl", &line[e + 1..], u32::MAX.into())?;
        Ok(Self {
            timestamp: number("timestamp", &line[..first], u64::MAX)?,
            key,
            value_size: u32::try_from(value_size).unwrap_or(u32::MAX),
            client: c + 1..d,
            kind,
            ttl: u32::try_from(ttl).unwrap_or(u32::MAX),
        })
    }

    /// The request that they are of `line`.
    pub(crate) fn of<'a>(&self, line: &'a [u8]) -> Request<'a> {
        Request {
            timestamp: self.timestamp,
            key: &line[self.key.clone()],
            value_size: self.value_size,
            client: &line[self.client.clone()],
            kind: self.kind,
            ttl: self.ttl,
        }
    }
}

/// The first comma and the last five: what lies between the first two of these is the key.
fn places_of_commas(line: &[u8]) -> Option<[usize; 6]> {
    let mut places = [line.iter().position(|byte| *byte == b',')?, 0, 0, 0, 0, 0];
    let mut end = line.len();
    for place in places[1..].iter_mut().rev() {
        end = line[..end].iter().rposition(|byte| *byte == b',')?;
        *place = end;
    }
    (places[0] < places[1]).then_some(places)
}

/// A whole number of at most `max`.
fn number(field: &'static str, text: &[u8], max: u64) -> Result<u64, Malformed> {
    let wrong = || Malformed::new(field, format!("a whole number of at most {max}"), shown(text));
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return Err(wrong());
    }
    let number =
        text.iter().try_fold(0u64, |sum, digit| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
    number.filter(|number| *number <= max).ok_or_else(wrong)
}

/// Text for an error: short, and printable.
pub(crate) fn shown(text: &[u8]) -> String {
    let short = &text[..text.len().min(SHOWN_BYTES_MAX)];
    let dots = if short.len() < text.len() { ".." } else { "" };
    format!("'{}{dots}'", short.escape_ascii())
}
