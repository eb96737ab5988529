//! Writes one log.
//!
//! Invariants
//! - W1 Records are appended to a buffer; `flush` hands it to the file in one write, `sync` syncs the file. A record
//!   survives the process after `flush`, a power loss after `sync`.
//! - W2 A sync is followed at once by a sync mark, the proof by which a reader tells damage of synced bytes from a torn
//!   tail. The mark itself is handed to the operating system and synced with whatever is synced next.
//! - W3 After an error the writer refuses everything with that error: how much reached the file is unknown, and a
//!   failed sync must not be repeated (RELIABILITY M5). Go on in a new log.
//! - W4 What the operating system has not taken stays in the buffer, which begins with a whole record: after an
//!   error [`WalWriter::unwritten`] gives it back, for the new log.
//!
//! Tests: `tests/`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kelvin_base::coding::get_u32;
use kelvin_base::{Error, Result, Sequence};
use kelvin_storage::{Create, IoMode, Storage, WriteFile};

use super::format::{
    BLOCK_BYTES, FILE_HEADER_BYTES, FRAGMENT_HEADER_BYTES, FragmentKind, RECORD_BYTES_MAX, SEQUENCE_BYTES,
    file_header, log_path, put_fragment,
};
use super::reader::records_in;

/// The buffer is handed to the file when it is this full, so that large or never flushed writes stay bounded.
const BUFFER_BYTES_MAX: usize = 256 * 1024;

/// How a log's file is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct WalOptions {
    /// Disk space to allocate at once, bytes.
    pub preallocate_bytes: u64,
    /// An obsolete log whose file is overwritten instead of making a new one.
    pub recycle: Option<u64>,
}

/// A log being written.
#[derive(Debug)]
pub struct WalWriter {
    file: Box<dyn WriteFile>,
    path: PathBuf,
    number: u64,
    /// What the operating system has not taken for sure.
    buffer: Vec<u8>,
    /// The file holds something of this log.
    begun: bool,
    /// Where the next fragment goes: bytes in the file and in the buffer.
    offset: u64,
    /// Everything before it is synced.
    synced: u64,
    /// Something of the log, its header at least, is not synced.
    unsynced: bool,
    /// The sequence number the next record must begin with.
    next_sequence: Option<Sequence>,
    failed: Option<Error>,
    /// Told of `offset`, for whoever counts the log's space.
    size: Arc<AtomicU64>,
}

impl WalWriter {
    /// Makes the log `number` in `dir`. Its name survives power loss when this returns; its header is buffered.
    ///
    /// # Errors
    /// The storage's.
    pub fn create(storage: &dyn Storage, dir: &Path, number: u64, options: WalOptions) -> Result<Self> {
        let path = log_path(dir, number);
        if let Some(old) = options.recycle {
            let old = log_path(dir, old);
            storage.rename(&old, &path).map_err(|error| Error::io("recycle a log", &old, error))?;
        }
        let how = Create {
            mode: IoMode::Buffered,
            preallocate_bytes: options.preallocate_bytes,
            buffer_bytes: 64 * 1024,
            reuse: options.recycle.is_some(),
        };
        let file = storage.create(&path, how).map_err(|error| Error::io("create a log", &path, error))?;
        storage.sync_dir(dir).map_err(|error| Error::io("sync the log's directory", dir, error))?;
        let buffer = file_header(number).to_vec();
        let offset = FILE_HEADER_BYTES as u64;
        Ok(Self {
            file,
            path,
            number,
            buffer,
            begun: false,
            offset,
            synced: 0,
            unsynced: true,
            next_sequence: None,
            failed: None,
            size: Arc::new(AtomicU64::new(offset)),
        })
    }

    /// Appends a record: `batch` is the encoding of a [`crate::batch::WriteBatch`] whose first operation has
    /// `first_sequence`. It is buffered until the next flush or sync.
    ///
    /// # Errors
    /// `InvalidArgument` if the batch is too large or no batch, or does not begin right behind the one before;
    /// nothing is done then. The file's error if the buffer had to be handed over.
    pub fn append(&mut self, first_sequence: Sequence, batch: &[u8]) -> Result<()> {
        self.check()?;
        let count = get_u32(&mut &*batch).ok_or_else(|| Error::invalid("a log record without a batch"))?;
        if batch.len() > RECORD_BYTES_MAX - SEQUENCE_BYTES {
            return Err(Error::invalid("the batch is too large for the log")
                .expected(format!("at most {} bytes", RECORD_BYTES_MAX - SEQUENCE_BYTES), batch.len()));
        }
        if let Some(next) = self.next_sequence.filter(|&next| next != first_sequence) {
            return Err(Error::invalid("log records must have contiguous sequence numbers")
                .expected(next, first_sequence));
        }
        if self.buffer.len() + batch.len() >= BUFFER_BYTES_MAX {
            // Should it go out in parts, what is before it must be out by then (W4).
            self.write_out()?;
        }
        let start = self.offset;
        self.unsynced = true;
        self.put_record(&first_sequence.to_le_bytes(), batch)?;
        self.next_sequence = Some(first_sequence + u64::from(count));
        self.size.store(self.offset, Ordering::Relaxed);
        let in_parts = self.offset - self.buffer.len() as u64 > start;
        if in_parts || self.buffer.len() >= BUFFER_BYTES_MAX { self.write_out() } else { Ok(()) }
    }

    /// Hands everything appended to the operating system.
    ///
    /// # Errors
    /// The file's; the writer is of no more use then (W3).
    pub fn flush(&mut self) -> Result<()> {
        self.check()?;
        self.write_out()
    }

    /// Makes everything appended survive power loss, and says so in a mark. Older logs must be synced before: the mark
    /// vouches for them too.
    ///
    /// # Errors
    /// The file's; the writer is of no more use then (W3). Once the records are synced there is none: a mark that cannot
    /// be written leaves a writer that [`Self::has_failed`].
    pub fn sync(&mut self) -> Result<()> {
        self.check()?;
        if !self.unsynced {
            return Ok(());
        }
        self.sync_file()?;
        let synced = self.synced.to_le_bytes();
        self.put_whole(FragmentKind::Synced, &synced);
        self.size.store(self.offset, Ordering::Relaxed);
        let _met_by_the_next_write = self.write_out();
        Ok(())
    }

    fn sync_file(&mut self) -> Result<()> {
        self.write_out()?;
        let outcome = self.file.sync();
        self.note("sync a log", outcome)?;
        self.synced = self.offset;
        self.unsynced = false;
        Ok(())
    }

    /// Syncs, and ends the log so that a cut end is told from its end. For a clean close.
    ///
    /// # Errors
    /// As [`Self::sync`].
    pub fn finish(&mut self) -> Result<()> {
        self.sync()?;
        self.check()?;
        self.put_whole(FragmentKind::End, &[]);
        self.sync_file()
    }

    /// Gives back the buffer's memory; for a log to which nothing more is appended but its end.
    pub fn rest(&mut self) {
        self.buffer.shrink_to_fit();
    }

    /// The log's number.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// True once an error has made the writer useless (W3).
    #[must_use]
    pub const fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// The whole records that the operating system has not taken for sure, each with its first sequence number: after
    /// an error they belong into the next log, which then wins from the first of them on.
    #[must_use]
    pub fn unwritten(&self) -> Vec<(Sequence, Vec<u8>)> {
        records_in(self.number, self.offset - self.buffer.len() as u64, &self.buffer)
    }

    /// False if nothing of this log can be in the file, except by a write that failed.
    #[must_use]
    pub const fn has_begun(&self) -> bool {
        self.begun
    }

    /// The log's file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the log, buffered ones included.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.offset
    }

    /// True if nothing was appended.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.offset == FILE_HEADER_BYTES as u64
    }

    /// Bytes of the log that survive power loss: up to the last mark, which does not count.
    #[must_use]
    pub const fn synced_len(&self) -> u64 {
        self.synced
    }

    /// [`Self::len`], for others to watch.
    pub(super) fn size(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.size)
    }

    fn check(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn note(&mut self, what: &str, outcome: std::io::Result<()>) -> Result<()> {
        outcome.map_err(|error| {
            let error = Error::io(what, &self.path, error);
            self.failed = Some(error.clone());
            error
        })
    }

    fn write_out(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let outcome = self.file.append(&self.buffer).and_then(|()| self.file.flush());
        self.note("write a log", outcome)?;
        self.begun = true;
        self.buffer.clear();
        self.buffer.shrink_to(2 * BUFFER_BYTES_MAX);
        Ok(())
    }

    /// Room for payload in the present block; starts the next block if not even a header fits.
    fn room(&mut self) -> usize {
        let room = |offset: u64| {
            let within = usize::try_from(offset % BLOCK_BYTES as u64).unwrap_or(0);
            BLOCK_BYTES - within
        };
        let left = room(self.offset);
        if left < FRAGMENT_HEADER_BYTES {
            self.buffer.resize(self.buffer.len() + left, 0);
            self.offset += left as u64;
        }
        room(self.offset) - FRAGMENT_HEADER_BYTES
    }

    fn put(&mut self, kind: FragmentKind, payload: [&[u8]; 2]) {
        put_fragment(&mut self.buffer, self.number, self.offset, kind, payload);
        self.offset += (FRAGMENT_HEADER_BYTES + payload[0].len() + payload[1].len()) as u64;
    }

    /// Puts a short fragment that is not cut: into the next block if it does not fit.
    fn put_whole(&mut self, kind: FragmentKind, payload: &[u8]) {
        let room = self.room();
        if room < payload.len() {
            self.put(FragmentKind::Pad, [&[0; BLOCK_BYTES][..room], &[]]);
        }
        self.room();
        self.put(kind, [payload, &[]]);
    }

    /// Puts `head` and `body` as one record, cut where blocks end.
    fn put_record(&mut self, mut head: &[u8], mut body: &[u8]) -> Result<()> {
        let mut begun = false;
        loop {
            let room = self.room();
            let (head_now, head_rest) = head.split_at(head.len().min(room));
            let (body_now, body_rest) = body.split_at(body.len().min(room - head_now.len()));
            let ends = head_rest.is_empty() && body_rest.is_empty();
            let kind = match (begun, ends) {
                (false, true) => FragmentKind::Full,
                (false, false) => FragmentKind::First,
                (true, false) => FragmentKind::Middle,
                (true, true) => FragmentKind::Last,
            };
            self.put(kind, [head_now, body_now]);
            if ends {
                return Ok(());
            }
            (begun, head, body) = (true, head_rest, body_rest);
            if self.buffer.len() >= BUFFER_BYTES_MAX {
                self.write_out()?;
            }
        }
    }
}
