//! Reads the logs of a store in order: every record once, no gap passed over in silence.
//!
//! Rules
//! - P1 Records are contiguous over all logs: each begins right behind the one before.
//! - P2 A later log wins from its first sequence number on: what an older log holds from there was never
//!   acknowledged (a failed write gives its sequence numbers back and spoils its file, so the next record begins a
//!   new log), or lies behind a gap that an earlier recovery stopped at.
//! - P3 A torn tail is fine if the next record continues. If it leaves a gap: `Corruption` when a sync mark in a later
//!   log vouches for the older one; otherwise nothing behind the gap was synced, and replay stops there
//!   (DESIGN promise 2). The caller removes the logs passed over before it begins another.
//!
//! [`replay`] refuses a store with damage in its logs; [`replay_remains`] passes over it, and tells of what it has passed over.
//!
//! Tests: `tests/replay.rs`, `salvage/tests`.

use std::ops::Range;
use std::path::Path;

use kelvin_base::{Error, Result, Sequence};
use kelvin_storage::Storage;

use super::format::log_path;
use super::reader::{Tail, WalReader, WalRecord};

/// A record met in a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayRecord<'a> {
    /// The log's number.
    pub log: u64,
    /// Where in the log it begins, bytes.
    pub offset: u64,
    /// Sequence number of the batch's first operation.
    pub first_sequence: Sequence,
    /// Operations of the batch.
    pub operations: u32,
    /// The encoded batch.
    pub batch: &'a [u8],
}

/// What a replay met.
#[derive(Clone, Debug, Default)]
pub struct Replayed {
    /// Records visited.
    pub records: u64,
    /// Sequence number of the last operation visited, or the base without any.
    pub last_sequence: Option<Sequence>,
    /// Bytes of logs read.
    pub bytes: u64,
    /// Where the replay stopped, if the last log read does not end clean: the log's number and its tail.
    pub torn: Option<(u64, Tail)>,
    /// Logs behind a gap that nothing vouches for: their records were never synced and are dropped.
    pub dropped: Vec<u64>,
    /// What was passed over; empty but for [`replay_remains`].
    pub gaps: Vec<Gap>,
}

/// Records that are lost.
#[derive(Clone, Debug)]
pub struct Gap {
    /// The log that they were missed in.
    pub log: u64,
    /// What could not be read of it; empty if nothing of them is there.
    pub bytes: Range<u64>,
    /// Why.
    pub error: Error,
    /// The last sequence number before them; `None` if it is not known.
    pub last: Option<Sequence>,
    /// The first sequence number that was read behind them: theirs are below; `None` if nothing was.
    pub next: Option<Sequence>,
}

impl Gap {
    /// True if no sequence number is missing: what could not be read were no records.
    #[must_use]
    pub fn holds_none(&self) -> bool {
        self.last.is_some_and(|last| self.next == Some(last + 1))
    }
}

/// What is done about damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Refuse,
    PassOver,
}

/// Visits every record of the logs `numbers` (ascending) in `dir`. The first must begin right behind sequence number
/// `base`, if that is given.
///
/// # Errors
/// `Corruption` as the rules and [`WalReader`] say, the storage's, or the visitor's.
pub fn replay(
    storage: &dyn Storage,
    dir: &Path,
    numbers: &[u64],
    base: Option<Sequence>,
    visit: &mut dyn FnMut(ReplayRecord<'_>) -> Result<()>,
) -> Result<Replayed> {
    Replay { storage, dir, numbers, damage: Damage::Refuse }.run(base, visit)
}

/// As [`replay`], with every record that can be read. Logs that [`replay`] takes are read as it reads them.
///
/// # Errors
/// The visitor's, and the storage's where a log cannot be opened.
pub fn replay_remains(
    storage: &dyn Storage,
    dir: &Path,
    numbers: &[u64],
    base: Option<Sequence>,
    visit: &mut dyn FnMut(ReplayRecord<'_>) -> Result<()>,
) -> Result<Replayed> {
    Replay { storage, dir, numbers, damage: Damage::PassOver }.run(base, visit)
}

/// The logs of a store, and how they are read.
struct Replay<'a> {
    storage: &'a dyn Storage,
    dir: &'a Path,
    numbers: &'a [u64],
    damage: Damage,
}

impl Replay<'_> {
    fn run(
        &self,
        base: Option<Sequence>,
        visit: &mut dyn FnMut(ReplayRecord<'_>) -> Result<()>,
    ) -> Result<Replayed> {
        let limits = self.limits()?;
        let mut replayed = Replayed { last_sequence: base, ..Replayed::default() };
        for (index, (&number, &limit)) in self.numbers.iter().zip(&limits).enumerate() {
            let mut reader = self.open(number)?;
            while let Some(record) = self.next(&mut reader, replayed.last_sequence, &mut replayed.gaps)? {
                let (first, operations) = (record.first_sequence, record.operations);
                if first >= limit {
                    continue;
                }
                let end = first + u64::from(operations);
                let expected = replayed.last_sequence.map_or(first, |last| last + 1);
                // What was passed over explains why records are missing.
                let is_awaited = replayed.gaps.last().is_none_or(|gap| gap.next.is_some());
                let misfit = if end > limit {
                    Some(overlap(&log_path(self.dir, number), record.offset, limit))
                } else if first > expected && is_awaited && !self.vouched(index)? {
                    replayed.dropped = self.numbers[index..].to_vec();
                    return Ok(replayed);
                } else if first < expected || (first > expected && is_awaited) {
                    Some(gap(&replayed, self.dir, number, record.offset).expected(expected, first))
                } else {
                    None
                };
                if let Some(error) = misfit {
                    self.refuse(&error)?;
                    let at = record.offset;
                    let last = replayed.last_sequence;
                    replayed.gaps.push(Gap { log: number, bytes: at..at, error, last, next: None });
                    if first < expected || end > limit {
                        continue;
                    }
                }
                replayed.gaps.iter_mut().for_each(|gap| gap.next = gap.next.or(Some(first)));
                visit(ReplayRecord {
                    log: number,
                    offset: record.offset,
                    first_sequence: first,
                    operations,
                    batch: record.batch,
                })?;
                replayed.records += 1;
                replayed.last_sequence = end.checked_sub(1);
            }
            replayed.bytes += reader.offset();
            replayed.torn = reader.tail().filter(|&tail| tail != Tail::Clean).map(|tail| (number, tail));
        }
        Ok(replayed)
    }

    fn open(&self, number: u64) -> Result<WalReader> {
        match self.damage {
            Damage::Refuse => WalReader::open(self.storage, self.dir, number),
            Damage::PassOver => WalReader::open_remains(self.storage, self.dir, number),
        }
    }

    fn refuse(&self, error: &Error) -> Result<()> {
        if self.damage == Damage::Refuse { Err(error.clone()) } else { Ok(()) }
    }

    /// The next record, `last` being the last sequence number so far; what is passed over before it goes to `gaps`.
    fn next<'r>(
        &self,
        reader: &'r mut WalReader,
        last: Option<Sequence>,
        gaps: &mut Vec<Gap>,
    ) -> Result<Option<WalRecord<'r>>> {
        loop {
            match reader.advance_to_next() {
                Ok(false) => return Ok(None),
                Ok(true) => return Ok(reader.record()),
                Err(error) => {
                    self.refuse(&error)?;
                    let Some(bytes) = reader.pass_damage() else { return Err(error) };
                    gaps.push(Gap { log: reader.number(), bytes, error, last, next: None });
                }
            }
        }
    }

    /// For each log: the first sequence number of the logs behind it (P2), or the largest number there is.
    fn limits(&self) -> Result<Vec<Sequence>> {
        let mut limits = vec![Sequence::MAX; self.numbers.len()];
        let mut limit = Sequence::MAX;
        for (slot, &number) in limits.iter_mut().zip(self.numbers).rev() {
            *slot = limit;
            let mut reader = self.open(number)?;
            if let Some(record) = self.next(&mut reader, None, &mut Vec::new())? {
                limit = limit.min(record.first_sequence);
            }
        }
        Ok(limits)
    }

    /// True if one of the logs from the `index`-th on holds a sync mark.
    fn vouched(&self, index: usize) -> Result<bool> {
        for &number in &self.numbers[index..] {
            let mut reader = self.open(number)?;
            let mut gaps = Vec::new();
            while self.next(&mut reader, None, &mut gaps)?.is_some() {}
            // An opening refuses what was passed over.
            if reader.marked() || !gaps.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A gap before the record at `at` of log `number`: the damage is where the log before stopped.
fn gap(replayed: &Replayed, dir: &Path, number: u64, at: u64) -> Error {
    let what = "records are missing from the log, though later ones are there";
    match replayed.torn {
        Some((torn, Tail::Torn { offset, .. })) => Error::corruption(&log_path(dir, torn), offset, what),
        _ => Error::corruption(&log_path(dir, number), at, what),
    }
    .advice("acknowledged writes are lost; restore the file, or run `kelvin check`")
}

fn overlap(path: &Path, at: u64, limit: Sequence) -> Error {
    Error::corruption(
        path,
        at,
        format!("a record reaches over sequence number {limit}, where a later log begins"),
    )
}
