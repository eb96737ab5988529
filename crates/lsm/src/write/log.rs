//! The leader's side of the WAL: the file being written, those closed but not yet known to be durable, and rotation.
//!
//! Invariants
//! - L1 A memtable is sealed only together with the start of a new WAL file, with every earlier write visible, so a
//!   memtable holds exactly the records of whole files and sealed memtables never change.
//! - L2 A `Sync` acknowledgement syncs every older file first, so what survives a power loss is a prefix.
//! - L3 If a write fails while acknowledged `Memory` writes still wait in the buffer, the store stops taking writes:
//!   later ones would otherwise survive a gap.
//! - L4 A keyspace without unflushed writes does not hold a file back: its empty memtable is replaced at
//!   rotation. One that does is flushed when the files exceed their limit (RELIABILITY M15).

use std::sync::Arc;

use kelvin_base::{Error, Result, Sequence, Tier};

use crate::batch::WriteBatch;
use crate::db::engine::Engine;
use crate::memtable::MemTable;
use crate::options::Durability;
use crate::view::{KeyspaceState, View};
use crate::wal::WalWriter;

/// The WAL as the write leader sees it.
pub struct Log {
    writer: WalWriter,
    /// The writer's buffer holds acknowledged records.
    buffered: bool,
    /// The last sequence number given out.
    pub last_sequence: Sequence,
    spoilt: bool,
}

impl Log {
    /// A log that continues behind `last_sequence` in `writer`.
    pub const fn new(writer: WalWriter, last_sequence: Sequence) -> Self {
        Self { writer, buffered: false, last_sequence, spoilt: false }
    }

    /// True if the file must not be appended to any more (W3).
    pub const fn is_spoilt(&self) -> bool {
        self.spoilt
    }

    /// The file being written.
    pub const fn number(&self) -> u64 {
        self.writer.number()
    }

    /// Adds a record to the file's buffer.
    ///
    /// # Errors
    /// The file's; it is spoilt then.
    pub fn append(&mut self, first: Sequence, batch: &WriteBatch, engine: &Engine) -> Result<()> {
        let outcome = self.writer.append(first, batch.bytes());
        self.note(outcome, engine)
    }

    /// Hands everything appended over to `durability`.
    ///
    /// # Errors
    /// The file's: it is spoilt then, and after a failed sync the store takes no more writes.
    pub fn make_durable(&mut self, durability: Durability, engine: &Engine) -> Result<()> {
        match durability {
            Durability::Memory => {
                self.buffered = true;
                Ok(())
            }
            Durability::Os => self.flush(engine),
            Durability::Sync => self.sync(engine),
        }
    }

    /// Hands what is buffered to the operating system.
    ///
    /// # Errors
    /// The file's; it is spoilt then.
    pub fn flush(&mut self, engine: &Engine) -> Result<()> {
        let outcome = self.writer.flush();
        let outcome = self.note(outcome, engine);
        self.buffered &= outcome.is_err();
        outcome
    }

    /// Syncs every file not known to be durable, oldest first.
    ///
    /// # Errors
    /// The sync's; the store takes no more writes then.
    pub fn sync(&mut self, engine: &Engine) -> Result<()> {
        engine.counters.writes.syncs.add(1);
        // What the system does not take (a full disk) is a failed write, told apart from a failed sync.
        self.flush(engine)?;
        let outcome = engine.sync_closed_logs().and_then(|()| self.writer.sync());
        let outcome = self.note(outcome, engine);
        self.buffered &= outcome.is_err();
        if let Err(error) = &outcome {
            engine.health.stop_writes(error);
        }
        outcome
    }

    /// Notes a failure and tells it in the fast tier's terms.
    fn note(&mut self, outcome: Result<()>, engine: &Engine) -> Result<()> {
        outcome.map_err(|error| engine.fast_error(error)).inspect_err(|error| {
            self.spoilt = true;
            if self.buffered {
                engine.health.stop_writes(error);
            }
        })
    }

    /// Hands what is buffered to the operating system, for the last time.
    ///
    /// # Errors
    /// The file's.
    pub fn flush_at_close(&mut self, engine: &Engine) -> Result<()> {
        if self.spoilt {
            return Ok(());
        }
        self.flush(engine)?;
        // A finished log tells damage at its end from its end: nothing acknowledged can vanish unnoticed.
        engine.sync_closed_logs()?;
        self.writer.finish()
    }

    fn start(&mut self, next: WalWriter) -> WalWriter {
        self.spoilt = false;
        self.buffered = false;
        std::mem::replace(&mut self.writer, next)
    }
}

impl Engine {
    /// Starts a new WAL file and seals the memtables of the keyspaces `full`, and of those that hold back more
    /// WAL than allowed.
    ///
    /// # Errors
    /// If the file cannot be made; nothing is changed then.
    pub(crate) fn rotate(&self, log: &mut Log, full: &[u32]) -> Result<()> {
        self.publisher.wait_visible(log.last_sequence);
        if !log.spoilt {
            log.flush(self)?;
        }
        let next = self.wals.create(self.new_file_number()).map_err(|error| self.fast_error(error))?;
        let number = next.number();
        self.wals.begins_behind(number, log.last_sequence);
        self.files.tier(Tier::Fast)?.sync_dir()?;
        self.account_logs();
        self.closed_logs.lock().push(log.start(next));
        let keyspaces = self.keyspaces.load_full();
        let holds_too_much = self.wals.bytes() > self.config.wal_bytes_max;
        let oldest = keyspaces
            .iter()
            .filter(|one| !one.peek().mem.is_empty())
            .min_by_key(|one| one.peek().mem.wal_number())
            .map(|one| one.id);
        for keyspace in keyspaces.iter() {
            let must = full.contains(&keyspace.id) || (holds_too_much && oldest == Some(keyspace.id));
            renew_memtable(keyspace, number, must);
        }
        self.refresh_memory();
        self.refresh_pressure();
        self.schedule();
        Ok(())
    }

    /// An error of the log's files in the fast tier's terms.
    fn fast_error(&self, error: Error) -> Error {
        match self.files.tier(Tier::Fast) {
            Ok(handle) => handle.classify(error),
            Err(_) => error,
        }
    }

    /// Seals the memtable of `keyspace`, if it holds anything.
    ///
    /// # Errors
    /// As [`Self::rotate`].
    pub(crate) fn seal(&self, keyspace: &KeyspaceState) -> Result<()> {
        let mut log = self.log.lock();
        self.publisher.wait_visible(log.last_sequence);
        if keyspace.peek().mem.is_empty() { Ok(()) } else { self.rotate(&mut log, &[keyspace.id]) }
    }

    /// Syncs the WAL files that take no more records, oldest first. Writers of the present file are not held up.
    ///
    /// # Errors
    /// The sync's; the store must take no more writes then.
    pub(crate) fn sync_closed_logs(&self) -> Result<()> {
        let mut closed = self.closed_logs.lock();
        for writer in closed.iter_mut() {
            // After a failed append what was acknowledged before it is in the file, but its writer refuses to sync.
            if writer.has_failed() { self.wals.sync_found(writer.number())? } else { writer.sync()? }
        }
        closed.clear();
        Ok(())
    }

    /// Makes everything written so far survive power loss.
    ///
    /// # Errors
    /// The sync's; the store takes no more writes then.
    pub(crate) fn sync_log(&self) -> Result<()> {
        self.health.check_writable()?;
        self.log.lock().sync(self)
    }
}

/// Replaces an empty memtable, or seals a full one, so that the next writes belong to WAL file `wal_number`.
fn renew_memtable(keyspace: &Arc<KeyspaceState>, wal_number: u64, seal: bool) {
    let empty = keyspace.peek().mem.is_empty();
    if !empty && !seal {
        return;
    }
    keyspace.change_view(|view| {
        let mut imms = view.imms.clone();
        if !empty {
            imms.insert(0, Arc::clone(&view.mem));
        }
        View {
            mem: Arc::new(MemTable::new(wal_number, wal_number)),
            imms,
            version: Arc::clone(&view.version),
        }
    });
}
