//! The log files of a store: which there are, which are needed, which are kept to be overwritten.
//!
//! Invariants
//! - F1 A log is given up only by `release`, whose caller knows that tables hold all its records.
//! - F2 At most `recycle_max` given-up files of about the usual length are kept; the others are removed. Kept files keep their old names, so
//!   after a restart they are logs like any other: below the needed number, or without anything acknowledged.
//! - F3 A discarded file that cannot be removed is kept beyond that, and the next log overwrites it: a disk that takes no log gets no more of them.
//!
//! Tests: `tests/files.rs`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kelvin_base::sync::Mutex;
use kelvin_base::{Error, Result, Sequence, seeded_bug};
use kelvin_storage::{Create, IoMode, Storage, WriteFile};

use super::format::{log_path, parse_log_name};
use super::writer::{WalOptions, WalWriter};
use crate::space::on_disk_bytes;

/// Files up to here are kept whatever the usual length.
const RECYCLED_BYTES_MIN: u64 = 64 << 10;

/// The logs in one directory.
#[derive(Debug)]
pub struct LogFiles {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    preallocate_bytes: u64,
    recycle_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Logs that may hold needed records, with their sizes.
    live: BTreeMap<u64, Live>,
    /// Given-up files kept to be overwritten, with their bytes on disk.
    spare: Vec<(u64, u64)>,
}

#[derive(Debug)]
struct Live {
    /// Bytes on disk when it was opened or made.
    allocated: u64,
    /// Bytes written by its writer.
    written: Arc<AtomicU64>,
    /// The last sequence number before its first record, if known.
    base: Option<Sequence>,
}

impl Live {
    fn bytes(&self) -> u64 {
        self.allocated.max(self.written.load(Ordering::Relaxed))
    }
}

impl LogFiles {
    /// The logs found in `dir`. New ones are made with `preallocate_bytes` of disk space, and at most `recycle_max`
    /// old files are kept to be overwritten.
    ///
    /// # Errors
    /// The storage's.
    pub fn open(
        storage: Arc<dyn Storage>,
        dir: &Path,
        preallocate_bytes: u64,
        recycle_max: usize,
    ) -> Result<Self> {
        let mut state = State::default();
        let names = storage.list(dir).map_err(|error| Error::io("list the logs", dir, error))?;
        for number in names.iter().filter_map(|name| parse_log_name(name)) {
            let path = log_path(dir, number);
            let allocated =
                storage.file_len(&path).map_err(|error| Error::io("measure a log", &path, error))?;
            state.live.insert(number, Live { allocated, written: Arc::default(), base: None });
        }
        Ok(Self { storage, dir: dir.to_path_buf(), preallocate_bytes, recycle_max, state: Mutex::new(state) })
    }

    /// Numbers of the logs that may hold needed records, ascending.
    #[must_use]
    pub fn numbers(&self) -> Vec<u64> {
        self.state.lock().live.keys().copied().collect()
    }

    /// How many logs may hold needed records.
    #[must_use]
    pub fn count(&self) -> usize {
        self.state.lock().live.len()
    }

    /// Makes the log `number`, in a kept file if there is one.
    ///
    /// # Errors
    /// The storage's. A kept file stays kept, under its new name if it is known to have that already.
    pub fn create(&self, number: u64) -> Result<WalWriter> {
        let spare = self.state.lock().spare.pop();
        if let Some((old, bytes)) = spare {
            let outcome = self.create_in(number, Some((old, bytes)));
            let Err(error) = &outcome else { return outcome };
            // After an earlier failure the file may have either name, or none: then it is not kept any more.
            if error.os().is_none_or(|os| os.kind() != std::io::ErrorKind::NotFound) {
                let is_renamed = matches!(self.storage.exists(&log_path(&self.dir, old)), Ok(false));
                self.state.lock().spare.push((if is_renamed { number } else { old }, bytes));
                return outcome;
            }
        }
        self.create_in(number, None).inspect_err(|_| {
            // Made, but perhaps not for good. Without a record it means nothing, should it stay.
            drop(self.storage.remove(&log_path(&self.dir, number)));
        })
    }

    fn create_in(&self, number: u64, spare: Option<(u64, u64)>) -> Result<WalWriter> {
        let recycle = spare.map(|(old, _)| old);
        let options = WalOptions { preallocate_bytes: self.preallocate_bytes, recycle };
        let writer = WalWriter::create(&*self.storage, &self.dir, number, options)?;
        let allocated = self.preallocate_bytes.max(spare.map_or(0, |(_, bytes)| bytes));
        self.state.lock().live.insert(number, Live { allocated, written: writer.size(), base: None });
        Ok(writer)
    }

    /// Notes that the records of log `number` begin behind sequence number `base`; the first note stays.
    pub fn begins_behind(&self, number: u64, base: Sequence) {
        if let Some(live) = self.state.lock().live.get_mut(&number) {
            live.base.get_or_insert(base);
        }
    }

    /// The last sequence number before the first record of the logs from `number` on, if it was noted. Logs found without
    /// a record have none of their own.
    #[must_use]
    pub fn base(&self, number: u64) -> Option<Sequence> {
        self.state.lock().live.range(number..).find_map(|(_, live)| live.base)
    }

    /// A handle of its own on the log `number`, whose sync makes what the log holds survive power loss: for a log found
    /// at an opening, and for one whose writer is of no more use since an append failed.
    ///
    /// # Errors
    /// The storage's.
    pub fn reopen(&self, number: u64) -> Result<Box<dyn WriteFile>> {
        let path = log_path(&self.dir, number);
        let how = Create { reuse: true, ..Create::new(IoMode::Buffered) };
        self.storage.create(&path, how).map_err(|error| Error::io("open a log", &path, error))
    }

    /// Makes what log `number` holds survive power loss.
    ///
    /// # Errors
    /// The storage's.
    pub fn sync_found(&self, number: u64) -> Result<()> {
        let synced = self.reopen(number)?.sync();
        synced.map_err(|error| Error::io("sync a log", &log_path(&self.dir, number), error))
    }

    /// Removes the log `number`, which holds nothing acknowledged. One that cannot be removed is kept for the next log (F3).
    pub fn discard(&self, number: u64) {
        let is_removed = self.storage.remove(&log_path(&self.dir, number)).is_ok();
        if !is_removed && seeded_bug!("logs-that-cannot-be-removed-add-up") {
            return;
        }
        let mut state = self.state.lock();
        let discarded = state.live.remove(&number);
        if let Some(live) = discarded.filter(|_| !is_removed) {
            state.spare.push((number, live.bytes()));
        }
    }

    /// Bytes of disk space that the next log takes beyond [`Self::bytes`].
    #[must_use]
    pub fn next_bytes(&self) -> u64 {
        let kept = self.state.lock().spare.last().map_or(0, |(_, bytes)| on_disk_bytes(*bytes));
        on_disk_bytes(self.preallocate_bytes).saturating_sub(kept)
    }

    /// Removes the logs `numbers`, which a replay passed over behind a gap, for good: P2 hides them no sooner than a later log has a
    /// record, and one without any may say that it was synced.
    ///
    /// # Errors
    /// The storage's.
    pub fn remove_passed_over(&self, numbers: &[u64]) -> Result<()> {
        if numbers.is_empty() || seeded_bug!("logs-behind-a-gap-stay") {
            return Ok(());
        }
        for number in numbers {
            let path = log_path(&self.dir, *number);
            self.storage.remove(&path).map_err(|error| Error::io("remove a log", &path, error))?;
            self.state.lock().live.remove(number);
        }
        self.storage
            .sync_dir(&self.dir)
            .map_err(|error| Error::io("sync the logs' directory", &self.dir, error))
    }

    /// Gives up every log below `needed`: keeps some of their files, removes the others.
    ///
    /// # Errors
    /// The storage's; the file that could not be removed is tried again by the next call.
    pub fn release(&self, needed: u64) -> Result<()> {
        loop {
            let mut state = self.state.lock();
            let Some(entry) = state.live.first_entry().filter(|entry| *entry.key() < needed) else {
                return Ok(());
            };
            let number = *entry.key();
            let bytes = entry.get().bytes();
            // One that a large batch has blown up would keep its space from everything else.
            let is_usual = bytes <= self.preallocate_bytes.saturating_mul(2).max(RECYCLED_BYTES_MIN);
            if state.spare.len() < self.recycle_max && is_usual {
                state.live.remove(&number);
                state.spare.push((number, bytes));
                continue;
            }
            drop(state);
            let path = log_path(&self.dir, number);
            match self.storage.remove(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io("remove a log", &path, error));
                }
                _ => self.state.lock().live.remove(&number),
            };
        }
    }

    /// Bytes of disk space held, in whole blocks: logs, what is allocated ahead, and kept files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let state = self.state.lock();
        let spare = state.spare.iter().map(|(_, bytes)| *bytes);
        spare.chain(state.live.values().map(Live::bytes)).map(on_disk_bytes).sum()
    }
}
