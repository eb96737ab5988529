//! Reads the files of a trace one after the other, plain or zstd, a line at a time.
//!
//! Invariant: never more than one line of at most [`LINE_BYTES_MAX`] is held, however long the file and its lines are.
//! A malformed line is an error that names file, line and field, or is left out and counted. What the file is
//! compressed with is read off its first bytes. Tests: `tests/lines.rs`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kelvin_base::{Error, ErrorKind, Result};

use super::request::{Fields, Malformed, Request, TRACE_KEY_BYTES_MAX, shown};

/// Longest line that is held, bytes: a key, and room for the other fields.
const LINE_BYTES_MAX: usize = TRACE_KEY_BYTES_MAX + 256;
/// Bytes read at once.
const BUFFER_BYTES: usize = 256 << 10;
/// The first bytes of zstd data.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
/// Those of a frame that decoders pass over, behind its first byte: programs that compress with several threads begin
/// with one.
const ZSTD_PASSED_OVER: [u8; 3] = [0x2A, 0x4D, 0x18];

/// What is done about lines that are no requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MalformedLines {
    /// The first one is an error.
    #[default]
    Refuse,
    /// They are left out and counted.
    Skip,
}

/// Lines that were left out.
#[derive(Clone, Debug, Default)]
pub struct Skipped {
    /// How many.
    pub count: u64,
    /// What was wrong with the first one.
    pub first: Option<Error>,
}

/// A trace: files that belong together, in their order.
#[derive(Clone, Debug)]
pub struct TraceFiles {
    paths: Vec<PathBuf>,
    malformed: MalformedLines,
    /// All their bytes.
    bytes: u64,
}

impl TraceFiles {
    /// The trace that `paths` hold together.
    ///
    /// # Errors
    /// `InvalidArgument` if there is none, or one is no file that can be read several times; the operating system's.
    pub fn new(paths: &[PathBuf], malformed: MalformedLines) -> Result<Self> {
        if paths.is_empty() {
            return Err(Error::invalid("a trace has at least one file").advice("name the files of the trace"));
        }
        let mut bytes = 0;
        for path in paths {
            let about = std::fs::metadata(path)
                .map_err(|error| Error::io("opening the trace", path, error).advice("check the name"))?;
            if !about.is_file() {
                return Err(Error::invalid("a trace is read several times, so it must be a file")
                    .file(path)
                    .advice("write a pipe to a file first, and name the files of a directory one by one"));
            }
            bytes += about.len();
        }
        Ok(Self { paths: paths.to_vec(), malformed, bytes })
    }

    /// All bytes of the files, as they lie on the disk.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The names of the files without their directories.
    #[must_use]
    pub fn name(&self) -> String {
        let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.paths.iter().map(name).collect::<Vec<_>>().join(" ")
    }

    /// Reads it from its beginning.
    #[must_use]
    pub fn read(&self) -> Reader<'_> {
        Reader {
            files: self,
            next_file: 0,
            current: None,
            line: Vec::new(),
            line_number: 0,
            bytes_read: Arc::default(),
            skipped: Skipped::default(),
        }
    }
}

/// Counts the bytes that come out of a file.
#[derive(Debug)]
struct Counted {
    file: File,
    count: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buf)?;
        self.count.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// A trace being read.
pub struct Reader<'a> {
    files: &'a TraceFiles,
    next_file: usize,
    current: Option<Box<dyn BufRead>>,
    line: Vec<u8>,
    line_number: u64,
    bytes_read: Arc<AtomicU64>,
    skipped: Skipped,
}

/// How a line ended.
enum Ended {
    AtLineFeed,
    AtEndOfFile,
    TooLong,
}

impl Reader<'_> {
    /// The next request; `None` behind the last one.
    ///
    /// # Errors
    /// `InvalidArgument` for a malformed line, unless such lines are left out; `Corruption` for zstd data that is cut
    /// off or damaged; the operating system's.
    pub fn next_request(&mut self) -> Result<Option<Request<'_>>> {
        let fields = loop {
            if !self.next_line()? {
                return Ok(None);
            }
            let is_header = self.line_number == 1 && self.line.starts_with(b"timestamp,");
            if self.line.is_empty() || is_header {
                continue;
            }
            match Fields::parse(&self.line) {
                Ok(fields) => break fields,
                Err(malformed) => self.refuse(&malformed)?,
            }
        };
        Ok(Some(fields.of(&self.line)))
    }

    /// Bytes of the files read so far, as they lie on the disk.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// What was left out so far.
    #[must_use]
    pub const fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    fn path(&self) -> &Path {
        &self.files.paths[self.next_file.saturating_sub(1)]
    }

    fn refuse(&mut self, malformed: &Malformed) -> Result<()> {
        let Malformed { field, expected, found } = malformed;
        let error = Error::invalid(format!("line {} is no request of a trace: {field}", self.line_number))
            .file(self.path())
            .expected(expected, found)
            .advice(
                "correct or remove the line, or give --skip-malformed to leave such lines out and count them",
            );
        if self.files.malformed == MalformedLines::Refuse {
            return Err(error);
        }
        self.skipped.count += 1;
        self.skipped.first.get_or_insert(error);
        Ok(())
    }

    /// Reads the next line into `self.line`, without its end; false behind the last one.
    fn next_line(&mut self) -> Result<bool> {
        loop {
            if self.current.is_none() && !self.next_file()? {
                return Ok(false);
            }
            let Some(input) = self.current.as_mut() else { continue };
            self.line.clear();
            self.line_number += 1;
            let ended = read_line(input, &mut self.line).map_err(|error| self.failed(error))?;
            match ended {
                Ended::AtEndOfFile if self.line.is_empty() => self.current = None,
                Ended::TooLong => {
                    let expected = format!("at most {LINE_BYTES_MAX} bytes");
                    let malformed =
                        Malformed::new("its length", expected, format!("more: {}", shown(&self.line)));
                    self.refuse(&malformed)?;
                }
                Ended::AtLineFeed | Ended::AtEndOfFile => {
                    if self.line.last() == Some(&b'\r') {
                        self.line.pop();
                    }
                    return Ok(true);
                }
            }
        }
    }

    /// Opens the next file; false if there is none.
    fn next_file(&mut self) -> Result<bool> {
        let Some(path) = self.files.paths.get(self.next_file) else { return Ok(false) };
        self.next_file += 1;
        self.line_number = 0;
        #[expect(clippy::disallowed_methods, reason = "the user's file, not the store's")]
        let file = File::open(path).map_err(|error| Error::io("opening the trace", path, error))?;
        let count = Arc::clone(&self.bytes_read);
        let mut plain = BufReader::with_capacity(BUFFER_BYTES, Counted { file, count });
        let first = plain.fill_buf().map_err(|error| Error::io("reading the trace", path, error))?;
        self.current = Some(if is_zstd(first) {
            let decoder = zstd::stream::read::Decoder::with_buffer(plain)
                .map_err(|error| Error::io("beginning to decompress the trace", path, error))?;
            Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder))
        } else {
            Box::new(plain)
        });
        Ok(true)
    }

    /// What `error` of the input means.
    fn failed(&self, error: io::Error) -> Error {
        let path = self.path();
        let damaged = |what: &str| {
            Error::new(
                ErrorKind::Corruption,
                format!("{what}, behind line {}", self.line_number.saturating_sub(1)),
            )
            .file(path)
            .advice("fetch the file again: what is there was cut off or changed on its way")
        };
        match error.kind() {
            io::ErrorKind::UnexpectedEof => damaged("the zstd data of the trace ends in the middle"),
            // The decoder's own complaints carry no number of the operating system.
            _ if error.raw_os_error().is_none() => {
                damaged(&format!("the zstd data of the trace is damaged ({error})"))
            }
            _ => Error::io("reading the trace", path, error),
        }
    }
}

fn is_zstd(first: &[u8]) -> bool {
    first.starts_with(&ZSTD_MAGIC)
        || first
            .split_first()
            .is_some_and(|(byte, rest)| byte >> 4 == 5 && rest.starts_with(&ZSTD_PASSED_OVER))
}

/// Reads up to the next line feed into `line`; of a longer line only the beginning.
fn read_line(input: &mut dyn BufRead, line: &mut Vec<u8>) -> io::Result<Ended> {
    let mut is_too_long = false;
    loop {
        let there = input.fill_buf()?;
        if there.is_empty() {
            return Ok(if is_too_long { Ended::TooLong } else { Ended::AtEndOfFile });
        }
        let end = there.iter().position(|byte| *byte == b'\n');
        let part = &there[..end.unwrap_or(there.len())];
        let room = LINE_BYTES_MAX - line.len().min(LINE_BYTES_MAX);
        is_too_long |= part.len() > room;
        line.extend_from_slice(&part[..part.len().min(room)]);
        let used = part.len() + usize::from(end.is_some());
        input.consume(used);
        if end.is_some() {
            return Ok(if is_too_long { Ended::TooLong } else { Ended::AtLineFeed });
        }
    }
}
