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
//! Tests: `tests/replay.rs`.

use std::path::Path;

use kelvin_base::{Error, Result, Sequence};
use kelvin_storage::Storage;

use super::format::log_path;
use super::reader::{Tail, WalReader};

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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    let limits = limits(storage, dir, numbers)?;
    let mut replayed = Replayed { last_sequence: base, ..Replayed::default() };
    for (index, (&number, &limit)) in numbers.iter().zip(&limits).enumerate() {
        let mut reader = WalReader::open(storage, dir, number)?;
        while let Some(record) = reader.next_record()? {
            let (first, operations) = (record.first_sequence, record.operations);
            if first >= limit {
                continue;
            }
            if first + u64::from(operations) > limit {
                return Err(overlap(&log_path(dir, number), record.offset, limit));
            }
            if let Some(expected) = replayed.last_sequence.map(|last| last + 1).filter(|&next| next != first)
            {
                let at = record.offset;
                if first > expected && !vouched(storage, dir, &numbers[index..])? {
                    replayed.dropped = numbers[index..].to_vec();
                    return Ok(replayed);
                }
                return Err(gap(&replayed, dir, number, at).expected(expected, first));
            }
            visit(ReplayRecord {
                log: number,
                offset: record.offset,
                first_sequence: first,
                operations,
                batch: record.batch,
            })?;
            replayed.records += 1;
            replayed.last_sequence = (first + u64::from(operations)).checked_sub(1);
        }
        replayed.bytes += reader.offset();
        replayed.torn = reader.tail().filter(|&tail| tail != Tail::Clean).map(|tail| (number, tail));
    }
    Ok(replayed)
}

/// For each log: the first sequence number of the logs behind it (P2), or the largest number there is.
fn limits(storage: &dyn Storage, dir: &Path, numbers: &[u64]) -> Result<Vec<Sequence>> {
    let mut limits = vec![Sequence::MAX; numbers.len()];
    let mut limit = Sequence::MAX;
    for (slot, &number) in limits.iter_mut().zip(numbers).rev() {
        *slot = limit;
        let mut reader = WalReader::open(storage, dir, number)?;
        if let Some(record) = reader.next_record()? {
            limit = limit.min(record.first_sequence);
        }
    }
    Ok(limits)
}

/// True if one of the logs holds a sync mark.
fn vouched(storage: &dyn Storage, dir: &Path, numbers: &[u64]) -> Result<bool> {
    for &number in numbers {
        let mut reader = WalReader::open(storage, dir, number)?;
        while reader.next_record()?.is_some() {}
        if reader.marked() {
            return Ok(true);
        }
    }
    Ok(false)
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
