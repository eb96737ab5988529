//! Reads one log, record by record, and says how it ends.
//!
//! Invariants
//! - R1 A record is answered only if all its fragments carry checksums of this log and their place, in order.
//! - R2 Reading stops at the first bytes that are no fragment; what lies behind is only searched for evidence.
//! - R3 `Corruption` if a sync mark behind such bytes vouches for them: acknowledged records are lost. Otherwise
//!   the tail is torn: an interrupted write, unsynced blocks that the disk wrote in another order, or a recycled
//!   file's older bytes.
//! - R4 Memory is bounded by the largest record and one window, whatever the bytes say. Errors are sticky.
//!
//! Tests: `tests/`.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kelvin_base::coding::get_u64;
use kelvin_base::{Error, Result, SEQUENCE_MAX, Sequence, seeded_bug};
use kelvin_storage::{AlignedBuf, IoMode, ReadFile, Storage};

use super::format::{
    BLOCK_BYTES, FILE_HEADER_BYTES, FragmentKind, Header, Parsed, RECORD_BYTES_MAX, SEQUENCE_BYTES, VERSION,
    log_path, parse, parse_header, synced_offset,
};
use crate::batch::BatchOps;

/// Bytes read from the file at once.
const WINDOW_BYTES: usize = 8 * BLOCK_BYTES;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// A record of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalRecord<'a> {
    /// Where in the log it begins, bytes.
    pub offset: u64,
    /// Sequence number of the batch's first operation.
    pub first_sequence: Sequence,
    /// Operations of the batch: sequence numbers it takes.
    pub operations: u32,
    /// The encoded batch: decode it with [`BatchOps`].
    pub batch: &'a [u8],
}

/// How a log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// The log was finished, or nothing or only zeros follow the last record.
    Clean,
    /// Bytes follow that are no record of this log and that no sync mark vouches for.
    Torn {
        /// Where the incomplete record or the unknown bytes begin.
        offset: u64,
        /// Intact but never synced records of this log lie behind: the disk wrote blocks in another order.
        records_behind: bool,
    },
}

/// A log being read.
#[derive(Debug)]
pub struct WalReader {
    blocks: Blocks,
    number: u64,
    /// Where the next fragment is expected.
    at: u64,
    assembly: Assembly,
    /// Offset, first sequence number and operations of the record moved to.
    found: Option<(u64, Sequence, u32)>,
    marked: bool,
    tail: Option<Tail>,
    failed: Option<Error>,
}

impl WalReader {
    /// Opens the log `number` in `dir`.
    ///
    /// # Errors
    /// The storage's; `InvalidArgument` if a newer version of Kelvin wrote it; `Corruption` as R3 says.
    pub fn open(storage: &dyn Storage, dir: &Path, number: u64) -> Result<Self> {
        let reader = Self::open_remains(storage, dir, number)?;
        match &reader.failed {
            Some(error) => Err(error.clone()),
            None => Ok(reader),
        }
    }

    /// As [`Self::open`], for who reads on behind damage ([`Self::pass_damage`]): a file that begins wrong fails at the first record.
    ///
    /// # Errors
    /// The storage's.
    pub fn open_remains(storage: &dyn Storage, dir: &Path, number: u64) -> Result<Self> {
        let path = log_path(dir, number);
        let file =
            storage.open(&path, IoMode::Buffered).map_err(|error| Error::io("open a log", &path, error))?;
        let len = file.len().map_err(|error| Error::io("measure a log", &path, error))?;
        let blocks = Blocks { file, path, len, buf: AlignedBuf::new(), window: (0, 0..0) };
        let mut reader = Self {
            blocks,
            number,
            at: 0,
            assembly: Assembly::default(),
            found: None,
            marked: false,
            tail: None,
            failed: None,
        };
        reader.failed = reader.read_header().err();
        Ok(reader)
    }

    fn read_header(&mut self) -> Result<()> {
        self.at = 0;
        match parse_header(self.number, self.blocks.block(0)?) {
            Header::Good => self.at = FILE_HEADER_BYTES as u64,
            Header::Newer(version) => {
                return Err(Error::invalid("a newer version of Kelvin wrote this log")
                    .file(&self.blocks.path)
                    .expected(format!("format 1 to {VERSION}"), format!("format {version}"))
                    .advice("open the store with that version"));
            }
            Header::Bad => self.tail = Some(self.judge(0)?),
        }
        Ok(())
    }

    /// The next record; `None` at the log's end, of which [`Self::tail`] then tells.
    ///
    /// # Errors
    /// `Corruption` as R3 says, or the storage's. Every further call repeats it.
    pub fn next_record(&mut self) -> Result<Option<WalRecord<'_>>> {
        Ok(if self.advance_to_next()? { self.record() } else { None })
    }

    /// Moves to the next record; false at the log's end.
    ///
    /// # Errors
    /// As [`Self::next_record`].
    pub(super) fn advance_to_next(&mut self) -> Result<bool> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        match self.advance() {
            Ok(found) => {
                self.found = found;
                Ok(found.is_some())
            }
            Err(error) => {
                self.failed = Some(error.clone());
                Err(error)
            }
        }
    }

    /// The record moved to.
    pub(super) fn record(&self) -> Option<WalRecord<'_>> {
        let (offset, first_sequence, operations) = self.found?;
        let batch = self.assembly.record.get(SEQUENCE_BYTES..).unwrap_or_default();
        Some(WalRecord { offset, first_sequence, operations, batch })
    }

    /// After a failure: passes over what cannot be read, up to the next record or mark that can be, and goes on from there. Answers
    /// the bytes passed over; `None` without a failure.
    pub fn pass_damage(&mut self) -> Option<Range<u64>> {
        let failed = self.failed.take()?;
        let met = failed.at().unwrap_or(self.at);
        let begun = self.assembly.begin.take();
        // A fragment that does not continue the record begun before it may begin one itself.
        let from = if begun.is_some() { met.min(self.at) } else { self.at };
        self.at = self.next_beginning(from);
        Some(begun.unwrap_or(met).min(from)..self.at)
    }

    /// Where the next fragment begins, from `at` on, that can be understood without the one before it; the end of the file if none does.
    fn next_beginning(&mut self, mut at: u64) -> u64 {
        while at < self.blocks.len {
            let within = within(at);
            let block_at = at - within as u64;
            at = block_at + BLOCK;
            let Ok(block) = self.blocks.block(block_at) else { continue };
            let begins = |at: &usize| match parse(self.number, block, block_at, *at) {
                Parsed::Fragment { kind, .. } => !matches!(kind, FragmentKind::Middle | FragmentKind::Last),
                Parsed::BlockEnd | Parsed::Bad => false,
            };
            if let Some(found) = (within..block.len()).find(begins) {
                return block_at + found as u64;
            }
        }
        self.blocks.len
    }

    /// How the log ends, once [`Self::next_record`] answered `None`.
    #[must_use]
    pub const fn tail(&self) -> Option<Tail> {
        self.tail
    }

    /// True if a sync mark was met so far: this log up to the mark, and every older log, was synced.
    #[must_use]
    pub const fn marked(&self) -> bool {
        self.marked
    }

    /// The log's number.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// The log's file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.blocks.path
    }

    /// Bytes read as fragments of this log so far.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.at
    }

    /// Moves to the next whole record: its offset, first sequence number and operations.
    fn advance(&mut self) -> Result<Option<(u64, Sequence, u32)>> {
        while self.tail.is_none() {
            let within = within(self.at);
            let block_at = self.at - within as u64;
            let block = self.blocks.block(block_at)?;
            if block.len() <= within {
                self.tail = Some(self.torn_or(self.at, false, Tail::Clean));
                break;
            }
            match parse(self.number, block, block_at, within) {
                Parsed::BlockEnd => self.at = block_at + BLOCK,
                Parsed::Bad => self.tail = Some(self.judge(self.at)?),
                Parsed::Fragment { kind, payload, end } => {
                    let step = self.assembly.take(kind, self.at, payload);
                    let start = std::mem::replace(&mut self.at, block_at + end as u64);
                    match step {
                        Step::More => {}
                        Step::Marked => self.marked = true,
                        Step::Ended => self.tail = Some(self.torn_or(start, false, Tail::Clean)),
                        Step::Whole(begin) => return self.decode(begin).map(Some),
                        Step::Refused(what) => return Err(Error::corruption(self.path(), start, what)),
                    }
                }
            }
        }
        Ok(None)
    }

    /// The facts of the record put together, which began at `begin`.
    fn decode(&self, begin: u64) -> Result<(u64, Sequence, u32)> {
        let corrupt =
            |what: &str| Error::corruption(self.path(), begin, format!("malformed log record: {what}"));
        let mut record = self.assembly.record.as_slice();
        let first = get_u64(&mut record).ok_or_else(|| corrupt("it ends inside its sequence number"))?;
        let ops = BatchOps::new(record).map_err(|error| corrupt(&error.to_string()))?;
        let operations = ops.operations();
        if first.checked_add(u64::from(operations)).is_none_or(|end| end > SEQUENCE_MAX) {
            return Err(corrupt("its sequence numbers are beyond the largest"));
        }
        Ok((begin, first, operations))
    }

    /// What bytes at `bad` that are no fragment mean, by what lies behind them (R3).
    fn judge(&mut self, bad: u64) -> Result<Tail> {
        let mut evidence = Evidence { synced: 0, records: false, zeros: true };
        let mut within = within(bad);
        let mut block_at = bad - within as u64;
        let mut first = true;
        while block_at < self.blocks.len {
            evidence.search(self.number, self.blocks.block(block_at)?, block_at, within, first);
            (block_at, within, first) = (block_at + BLOCK, 0, false);
        }
        if evidence.synced > bad && !seeded_bug!("damaged-log-ends-torn") {
            return Err(Error::corruption(
                self.path(),
                bad,
                "damaged bytes in a log, with synced records behind them",
            )
            .expected(format!("intact records up to byte {}", evidence.synced), "bytes that are no record")
            .advice("acknowledged writes are lost; restore the file, or run `kelvin check`"));
        }
        let otherwise = Tail::Torn { offset: bad, records_behind: evidence.records };
        Ok(self.torn_or(bad, evidence.records, if evidence.zeros { Tail::Clean } else { otherwise }))
    }

    /// The tail at `at`: torn where the record being put together began, or `otherwise` if there is none.
    fn torn_or(&self, at: u64, records_behind: bool, otherwise: Tail) -> Tail {
        match self.assembly.begin {
            Some(begin) => Tail::Torn { offset: begin.min(at), records_behind },
            None => otherwise,
        }
    }
}

/// The whole records in `bytes`, which lie at `offset` in the log `number`, up to the first that is not whole; each with
/// its first sequence number.
pub(super) fn records_in(number: u64, offset: u64, bytes: &[u8]) -> Vec<(Sequence, Vec<u8>)> {
    let mut at = within(offset);
    // As the file's blocks lie.
    let blocks = [&vec![0; at], bytes].concat();
    let mut assembly = Assembly::default();
    let mut records = Vec::new();
    if offset == 0 {
        at = FILE_HEADER_BYTES;
    }
    for (block, block_at) in
        blocks.chunks(BLOCK_BYTES).zip((offset - within(offset) as u64..).step_by(BLOCK_BYTES))
    {
        while let Parsed::Fragment { kind, payload, end } = parse(number, block, block_at, at) {
            match assembly.take(kind, block_at + at as u64, payload) {
                Step::Whole(_) => {
                    let mut record = assembly.record.as_slice();
                    let Some(first) = get_u64(&mut record) else { return records };
                    records.push((first, record.to_vec()));
                }
                Step::More | Step::Marked => {}
                Step::Ended | Step::Refused(_) => return records,
            }
            at = end;
        }
        at = 0;
    }
    records
}

fn within(offset: u64) -> usize {
    usize::try_from(offset % BLOCK).unwrap_or(0)
}

/// What a fragment led to.
enum Step {
    More,
    /// A record that began there is whole.
    Whole(u64),
    Marked,
    Ended,
    Refused(&'static str),
}

/// The record being put together.
#[derive(Debug, Default)]
struct Assembly {
    record: Vec<u8>,
    begin: Option<u64>,
}

impl Assembly {
    /// Takes the fragment at `start`.
    fn take(&mut self, kind: FragmentKind, start: u64, payload: &[u8]) -> Step {
        let begin = match kind {
            FragmentKind::Pad => return Step::More,
            FragmentKind::Full | FragmentKind::First => {
                self.record.clear();
                self.begin.replace(start).map_or(Ok(start), |_| Err("a log record begins inside another"))
            }
            FragmentKind::Middle | FragmentKind::Last => {
                self.begin.ok_or("a log record without its beginning")
            }
            FragmentKind::Synced | FragmentKind::End if self.begin.is_some() => {
                Err("a log mark inside a record")
            }
            FragmentKind::Synced => return Step::Marked,
            FragmentKind::End => return Step::Ended,
        };
        let begin = match begin {
            Ok(begin) => begin,
            Err(what) => return Step::Refused(what),
        };
        if self.record.len() + payload.len() > RECORD_BYTES_MAX {
            return Step::Refused("a log record is larger than any that is written");
        }
        self.record.extend_from_slice(payload);
        if matches!(kind, FragmentKind::Full | FragmentKind::Last) {
            self.begin = None;
            return Step::Whole(begin);
        }
        Step::More
    }
}

/// What lies behind bad bytes.
struct Evidence {
    /// The largest offset a sync mark vouches for.
    synced: u64,
    records: bool,
    /// Every byte is zero.
    zeros: bool,
}

impl Evidence {
    /// Searches `block` from `at`. Byte by byte where fragments of this log are known to be, that is in the `first`
    /// block and behind a fragment found at a block's start; a recycled file's older blocks cost one look each.
    fn search(&mut self, number: u64, block: &[u8], block_at: u64, mut at: usize, first: bool) {
        self.zeros &= block.get(at..).unwrap_or_default().iter().all(|&byte| byte == 0);
        let mut thorough = first;
        while at < block.len() {
            match parse(number, block, block_at, at) {
                Parsed::Fragment { kind, payload, end } => {
                    thorough = true;
                    at = end;
                    match kind {
                        FragmentKind::Synced => {
                            self.synced = self.synced.max(synced_offset(payload).unwrap_or(0))
                        }
                        FragmentKind::End | FragmentKind::Pad => {}
                        _ => self.records = true,
                    }
                }
                _ if thorough => at += 1,
                _ => break,
            }
        }
    }
}

/// The file, read through one window.
#[derive(Debug)]
struct Blocks {
    file: Arc<dyn ReadFile>,
    path: PathBuf,
    len: u64,
    buf: AlignedBuf,
    /// Offset of the window in the file, and where it lies in `buf`.
    window: (u64, Range<usize>),
}

impl Blocks {
    /// The block at `block_at`: shorter than a block at the end of the file, empty behind it.
    fn block(&mut self, block_at: u64) -> Result<&[u8]> {
        let len = usize::try_from(self.len.saturating_sub(block_at).min(BLOCK)).unwrap_or(0);
        if len == 0 {
            return Ok(&[]);
        }
        let (start, held) = &self.window;
        let inside = block_at.checked_sub(*start).and_then(|skip| usize::try_from(skip).ok());
        let skip = match inside.filter(|skip| skip + len <= held.len()) {
            Some(skip) => skip,
            None => {
                let left = self.len.saturating_sub(block_at).min(WINDOW_BYTES as u64);
                let wanted = usize::try_from(left).unwrap_or(WINDOW_BYTES);
                let mut read = |wanted| self.file.read_at(block_at, wanted, &mut self.buf);
                // A block of those ahead may be the one that cannot be read.
                let held = read(wanted).or_else(|error| if wanted > len { read(len) } else { Err(error) });
                let held =
                    held.map_err(|error| Error::io("read a log", &self.path, error).offset(block_at))?;
                self.window = (block_at, held);
                0
            }
        };
        let begin = self.window.1.start + skip;
        Ok(self.buf.as_slice().get(begin..begin + len).unwrap_or_default())
    }
}
