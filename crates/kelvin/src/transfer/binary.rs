//! Kelvin's dump format: frames of records under checksums, and an end mark that counts them.
//!
//! Invariants
//! - The checksum of a frame covers its header and is seeded with its number, so a frame that is damaged,
//!   repeated, left out or out of place is refused.
//! - A dump without its end mark is refused: a cut one is never taken for a shorter one.
//!
//! Format: docs/formats/dump.md. Tests: `tests.rs`, every truncation and every flipped byte.

use std::io::{self, BufRead, Read, Write};

use kelvin_base::coding::{get_u32, get_u64};
use kelvin_base::hash::hash64_seeded;
use kelvin_base::{Error, ErrorKind, KEY_BYTES_MAX, Result, VALUE_BYTES_MAX};

use super::{Limits, Position, Record};

/// The first bytes of a dump.
pub const MAGIC: [u8; 8] = *b"KELVDUMP";
/// The version this code writes, and the newest it reads.
const VERSION: u32 = 1;
/// Payload bytes after which a frame is written.
const FRAME_BYTES: usize = 64 * 1024;
/// payload length u32, records u32, checksum u64.
const FRAME_HEADER_BYTES: usize = 16;
/// Flags byte, key length u32, value length u32.
const RECORD_HEADER_BYTES: usize = 9;
/// Flag: an expiry of 8 bytes follows the record's header.
const EXPIRES: u8 = 1;
/// The longest payload: a full frame and one record more.
const PAYLOAD_BYTES_MAX: usize = FRAME_BYTES + RECORD_HEADER_BYTES + 8 + KEY_BYTES_MAX + VALUE_BYTES_MAX;

fn checksum(frame: u64, records: u32, payload: &[u8]) -> u64 {
    // The record count enters through the seed; the payload's length is part of what XXH3 hashes.
    hash64_seeded(frame.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(records), payload)
}

/// Reads frames.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    limits: Limits,
    payload: Vec<u8>,
    at: usize,
    left: u32,
    frames: u64,
    records: u64,
    offset: u64,
    frame_offset: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Start,
    Frames,
    End,
}

impl<R: BufRead> Reader<R> {
    pub fn new(input: R, limits: Limits) -> Self {
        Self {
            input,
            limits,
            payload: Vec::new(),
            at: 0,
            left: 0,
            frames: 0,
            records: 0,
            offset: 0,
            frame_offset: 0,
            state: State::Start,
        }
    }

    pub fn position(&self) -> Position {
        Position { line: 0, offset: self.frame_offset }
    }

    pub fn next(&mut self, record: &mut Record) -> Result<bool> {
        if self.state == State::Start {
            self.read_start()?;
        }
        while self.left == 0 {
            if self.state == State::End {
                return Ok(false);
            }
            self.read_frame()?;
        }
        self.left -= 1;
        if !self.take(record) {
            return Err(self.damaged("a record does not fit its frame"));
        }
        self.records += 1;
        if self.left == 0 && self.at != self.payload.len() {
            return Err(self.damaged("bytes remain in a frame after its last record"));
        }
        Ok(true)
    }

    fn damaged(&self, what: &str) -> Error {
        Error::new(ErrorKind::Corruption, format!("{what} (frame {})", self.frames)).offset(self.frame_offset)
    }

    /// Fills `buf`, or says that the dump ends before.
    fn read_exact(&mut self, buf: &mut [u8], part: &str) -> Result<()> {
        self.input.read_exact(buf).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.cut(part),
            _ => Error::new(ErrorKind::Io, format!("reading {part}: {error}")).offset(self.offset),
        })?;
        self.offset += buf.len() as u64;
        Ok(())
    }

    fn cut(&self, part: &str) -> Error {
        Error::new(ErrorKind::Corruption, format!("the dump ends inside {part}"))
            .offset(self.offset)
            .advice("the dump is cut: make it again, or load what comes before with --partial")
    }

    fn read_start(&mut self) -> Result<()> {
        let mut start = [0; 12];
        self.read_exact(&mut start, "its header")?;
        let (magic, version) = start.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(Error::new(ErrorKind::Corruption, "this is no Kelvin dump")
                .offset(0)
                .expected("the bytes KELVDUMP", format!("{:?}", String::from_utf8_lossy(magic)))
                .advice("name the format with --format csv, jsonl or dump"));
        }
        let version = get_u32(&mut &*version).unwrap_or(0);
        if version == 0 || version > VERSION {
            return Err(Error::invalid("the dump has a format this version does not know")
                .offset(8)
                .expected(format!("at most {VERSION}"), version)
                .advice("load it with the version of Kelvin that wrote it, or a newer one"));
        }
        self.state = State::Frames;
        Ok(())
    }

    fn read_frame(&mut self) -> Result<()> {
        self.frame_offset = self.offset;
        let mut header = [0; FRAME_HEADER_BYTES];
        self.read_exact(&mut header, "a frame's header or before its end mark")?;
        let fields = &mut &header[..];
        let (len, records, sum) = (get_u32(fields), get_u32(fields), get_u64(fields));
        let (Some(len), Some(records), Some(sum)) = (len, records, sum) else {
            return Err(self.damaged("a frame's header cannot be read"));
        };
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > PAYLOAD_BYTES_MAX
            || len as u64 > self.limits.record_bytes_max.saturating_add(FRAME_BYTES as u64)
        {
            return Err(self.damaged("a frame is longer than any can be"));
        }
        self.payload.clear();
        self.at = 0;
        // The buffer grows with what arrives, not with what the header claims.
        let read = self.input.by_ref().take(len as u64).read_to_end(&mut self.payload);
        let read = read.map_err(|error| {
            Error::new(ErrorKind::Io, format!("reading a frame: {error}")).offset(self.offset)
        })?;
        self.offset += read as u64;
        if read < len {
            return Err(self.cut("a frame"));
        }
        let found = checksum(self.frames, records, &self.payload);
        if found != sum {
            return Err(self
                .damaged("a frame's checksum does not match")
                .expected(format!("{sum:#018x}"), format!("{found:#018x}")));
        }
        self.frames += 1;
        if records == 0 { self.read_end() } else { self.accept(records) }
    }

    fn accept(&mut self, records: u32) -> Result<()> {
        if u64::from(records) * RECORD_HEADER_BYTES as u64 > self.payload.len() as u64 {
            return Err(self.damaged("a frame claims more records than it can hold"));
        }
        self.left = records;
        Ok(())
    }

    fn read_end(&mut self) -> Result<()> {
        let total = <[u8; 8]>::try_from(self.payload.as_slice()).map(u64::from_le_bytes);
        if total.ok() != Some(self.records) {
            return Err(self.damaged("the end mark does not count the records before it"));
        }
        let mut more = [0; 1];
        match self.input.read(&mut more) {
            Ok(0) => {}
            Ok(_) => {
                self.frame_offset = self.offset;
                return Err(self.damaged("bytes follow the end mark"));
            }
            Err(error) => {
                return Err(Error::new(ErrorKind::Io, format!("reading: {error}")).offset(self.offset));
            }
        }
        self.state = State::End;
        Ok(())
    }

    fn take(&mut self, record: &mut Record) -> bool {
        let Some(mut rest) = self.payload.get(self.at..) else { return false };
        let before = rest.len();
        let taken = (|| {
            let (&flags, tail) = rest.split_first()?;
            rest = tail;
            if flags & !EXPIRES != 0 {
                return None;
            }
            let key_len = usize::try_from(get_u32(&mut rest)?).ok()?;
            let value_len = usize::try_from(get_u32(&mut rest)?).ok()?;
            let expiry_ms = if flags & EXPIRES == 0 { None } else { Some(get_u64(&mut rest)?) };
            let (key, tail) = rest.split_at_checked(key_len)?;
            let (value, tail) = tail.split_at_checked(value_len)?;
            rest = tail;
            Some((key, value, expiry_ms))
        })();
        let Some((key, value, expiry_ms)) = taken else { return false };
        record.key.clear();
        record.key.extend_from_slice(key);
        record.value.clear();
        record.value.extend_from_slice(value);
        record.expiry_ms = expiry_ms;
        self.at += before - rest.len();
        true
    }
}

/// Writes frames.
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
    payload: Vec<u8>,
    held: u32,
    frames: u64,
    records: u64,
    started: bool,
}

impl<W: Write> Writer<W> {
    pub fn new(output: W) -> Self {
        Self { output, payload: Vec::new(), held: 0, frames: 0, records: 0, started: false }
    }

    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        let too_long = |_| io::Error::new(io::ErrorKind::InvalidInput, "a key or value longer than 4 GiB");
        let key_len = u32::try_from(record.key.len()).map_err(too_long)?;
        let value_len = u32::try_from(record.value.len()).map_err(too_long)?;
        self.payload.push(if record.expiry_ms.is_some() { EXPIRES } else { 0 });
        self.payload.extend_from_slice(&key_len.to_le_bytes());
        self.payload.extend_from_slice(&value_len.to_le_bytes());
        if let Some(expiry_ms) = record.expiry_ms {
            self.payload.extend_from_slice(&expiry_ms.to_le_bytes());
        }
        self.payload.extend_from_slice(&record.key);
        self.payload.extend_from_slice(&record.value);
        self.held += 1;
        self.records += 1;
        if self.payload.len() >= FRAME_BYTES {
            self.write_frame()?;
        }
        Ok(())
    }

    fn write_frame(&mut self) -> io::Result<()> {
        if !self.started {
            self.started = true;
            self.output.write_all(&MAGIC)?;
            self.output.write_all(&VERSION.to_le_bytes())?;
        }
        let len = u32::try_from(self.payload.len())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a frame longer than 4 GiB"))?;
        self.output.write_all(&len.to_le_bytes())?;
        self.output.write_all(&self.held.to_le_bytes())?;
        self.output.write_all(&checksum(self.frames, self.held, &self.payload).to_le_bytes())?;
        self.output.write_all(&self.payload)?;
        self.frames += 1;
        self.held = 0;
        self.payload.clear();
        Ok(())
    }

    pub fn finish(mut self) -> io::Result<()> {
        if self.held > 0 {
            self.write_frame()?;
        }
        // The end mark: a frame of no records whose payload counts them all.
        self.payload.extend_from_slice(&self.records.to_le_bytes());
        self.write_frame()?;
        self.output.flush()
    }
}
