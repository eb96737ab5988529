//! The prepared form of a trace: what to do to the store, key by key, and what each read must find.
//!
//! A file is a row of segments: `bytes: u32, count: u32`, then the steps. Each step is `tag: u8, key size: u32, key`, then
//! one or two contents of `version: u64, size: u32`, little-endian. A run's steps are dealt to [`PARTITIONS`] segments by
//! their key, [`LAP`] at a time, so segment `n` holds steps of the keys of partition `n % PARTITIONS`. These files live
//! as long as one command; nothing reads them later. Tests: `tests/replay.rs`.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use kelvin_base::hash::hash64;
use kelvin_base::{Error, Result};

/// Parts of the keys whose steps may be done beside each other.
pub const PARTITIONS: usize = 32;
/// Steps that are dealt at once: so far can steps of different keys be apart from their order in the trace.
pub const LAP: usize = 512;
/// Bytes read and written at once.
const BUFFER_BYTES: usize = 256 << 10;
/// More than any segment has, bytes: a longer one is damage.
const SEGMENT_BYTES_MAX: u32 = 1 << 30;

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Which write it is of; 0 is the load.
    pub version: u64,
    /// Its bytes.
    pub size: u32,
}

/// What to do to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read it, and find this or nothing.
    Read(Option<Content>),
    /// Write it; there is no record.
    Insert(Content),
    /// Write it over the record that is there.
    Update(Content),
    /// Find this or nothing, and write.
    Modify(Option<Content>, Content),
    /// Remove it.
    Delete,
}

impl Step {
    const fn tag(self) -> u8 {
        match self {
            Self::Read(None) => 0,
            Self::Read(Some(_)) => 1,
            Self::Insert(_) => 2,
            Self::Update(_) => 3,
            Self::Modify(None, _) => 4,
            Self::Modify(Some(_), _) => 5,
            Self::Delete => 6,
        }
    }

    /// The contents behind the key, in their order.
    const fn contents(self) -> [Option<Content>; 2] {
        match self {
            Self::Read(content) => [content, None],
            Self::Insert(content) | Self::Update(content) => [Some(content), None],
            Self::Modify(old, new) => [old, Some(new)],
            Self::Delete => [None, None],
        }
    }

    fn encode(self, key: &[u8], out: &mut Vec<u8>) {
        out.push(self.tag());
        out.extend_from_slice(&u32::try_from(key.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(key);
        for Content { version, size } in self.contents().into_iter().flatten() {
            out.extend_from_slice(&version.to_le_bytes());
            out.extend_from_slice(&size.to_le_bytes());
        }
    }
}

/// Takes steps off the front of a segment.
#[derive(Debug)]
pub struct Steps<'a> {
    rest: &'a [u8],
}

impl<'a> Steps<'a> {
    /// The steps of `segment`.
    #[must_use]
    pub const fn of(segment: &'a [u8]) -> Self {
        Self { rest: segment }
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(front)
    }

    fn content(&mut self) -> Option<Content> {
        let version = u64::from_le_bytes(self.take(8)?.try_into().ok()?);
        Some(Content { version, size: u32::from_le_bytes(self.take(4)?.try_into().ok()?) })
    }

    fn one(&mut self) -> Option<(&'a [u8], Step)> {
        let tag = self.take(1)?[0];
        let key_size = u32::from_le_bytes(self.take(4)?.try_into().ok()?);
        let key = self.take(usize::try_from(key_size).ok()?)?;
        let step = match tag {
            0 => Step::Read(None),
            1 => Step::Read(Some(self.content()?)),
            2 => Step::Insert(self.content()?),
            3 => Step::Update(self.content()?),
            4 => Step::Modify(None, self.content()?),
            5 => Step::Modify(Some(self.content()?), self.content()?),
            6 => Step::Delete,
            _ => return None,
        };
        Some((key, step))
    }
}

impl<'a> Iterator for Steps<'a> {
    type Item = Result<(&'a [u8], Step)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let damaged = || Error::invalid("the prepared trace is damaged").advice("prepare it again");
        Some(self.one().ok_or_else(damaged))
    }
}

/// Writes prepared steps.
#[derive(Debug)]
pub struct StepWriter {
    path: PathBuf,
    file: BufWriter<File>,
    segments: Vec<(u32, Vec<u8>)>,
    in_lap: usize,
    count: u64,
}

impl StepWriter {
    /// A file whose steps need no order: those of a load.
    ///
    /// # Errors
    /// The operating system's.
    pub fn unordered(path: &Path) -> Result<Self> {
        Self::new(path, 1)
    }

    /// A file whose steps of one key are done in their order.
    ///
    /// # Errors
    /// The operating system's.
    pub fn ordered(path: &Path) -> Result<Self> {
        Self::new(path, PARTITIONS)
    }

    fn new(path: &Path, partitions: usize) -> Result<Self> {
        #[expect(clippy::disallowed_methods, reason = "a file of the benchmark, not the store's")]
        let file = File::create(path).map_err(|error| Error::io("making the prepared trace", path, error))?;
        Ok(Self {
            path: path.to_path_buf(),
            file: BufWriter::with_capacity(BUFFER_BYTES, file),
            segments: vec![(0, Vec::new()); partitions],
            in_lap: 0,
            count: 0,
        })
    }

    /// Adds a step.
    ///
    /// # Errors
    /// The operating system's.
    pub fn push(&mut self, key: &[u8], step: Step) -> Result<()> {
        let partition = usize::try_from(hash64(key) % self.segments.len() as u64).unwrap_or(0);
        let (count, bytes) = &mut self.segments[partition];
        *count += 1;
        step.encode(key, bytes);
        self.count += 1;
        self.in_lap += 1;
        // The load's one segment is as long as one of a lap's.
        if self.in_lap >= LAP / PARTITIONS * self.segments.len() { self.deal() } else { Ok(()) }
    }

    fn deal(&mut self) -> Result<()> {
        for (count, bytes) in &mut self.segments {
            let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            [&len.to_le_bytes()[..], &count.to_le_bytes()[..], bytes]
                .into_iter()
                .try_for_each(|part| self.file.write_all(part))
                .map_err(|error| Error::io("writing the prepared trace", &self.path, error))?;
            *count = 0;
            bytes.clear();
        }
        self.in_lap = 0;
        Ok(())
    }

    /// Writes what is left; how many steps there are.
    ///
    /// # Errors
    /// The operating system's.
    pub fn finish(mut self) -> Result<u64> {
        if self.in_lap > 0 {
            self.deal()?;
        }
        self.file.flush().map_err(|error| Error::io("writing the prepared trace", &self.path, error))?;
        Ok(self.count)
    }
}

/// Reads prepared steps, a segment at a time.
#[derive(Debug)]
pub struct StepReader {
    path: PathBuf,
    file: BufReader<File>,
    next: u64,
}

impl StepReader {
    /// Opens what a [`StepWriter`] finished.
    ///
    /// # Errors
    /// The operating system's.
    pub fn open(path: &Path) -> Result<Self> {
        #[expect(clippy::disallowed_methods, reason = "a file of the benchmark, not the store's")]
        let file = File::open(path).map_err(|error| Error::io("opening the prepared trace", path, error))?;
        let file = BufReader::with_capacity(BUFFER_BYTES, file);
        Ok(Self { path: path.to_path_buf(), file, next: 0 })
    }

    /// Puts the next segment into `segment`; its number from 0, `None` behind the last one.
    ///
    /// # Errors
    /// The operating system's; `InvalidArgument` for a file that is damaged.
    pub fn next_segment(&mut self, segment: &mut Vec<u8>) -> Result<Option<u64>> {
        segment.clear();
        let failed = |error| Error::io("reading the prepared trace", &self.path, error);
        let mut head = [0; 8];
        if std::io::BufRead::fill_buf(&mut self.file).map_err(failed)?.is_empty() {
            return Ok(None);
        }
        self.file.read_exact(&mut head).map_err(failed)?;
        let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        if len > SEGMENT_BYTES_MAX {
            return Err(Error::invalid("the prepared trace is damaged")
                .file(&self.path)
                .advice("prepare it again"));
        }
        segment.resize(usize::try_from(len).unwrap_or(0), 0);
        self.file.read_exact(segment).map_err(failed)?;
        self.next += 1;
        Ok(Some(self.next - 1))
    }
}
