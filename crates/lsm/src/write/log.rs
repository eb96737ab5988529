//! The leader's side of the WAL: the file being written, those closed but not yet known to be durable, and rotation.
//!
//! Invariants
//! - L1 A memtable is sealed only together with the start of a new WAL file, with every earlier write visible, so a
//!   memtable holds exactly the records of whole files and sealed memtables never change.
//! - L2 A `Sync` acknowledgement syncs every older file first, so what survives a power loss is a prefix.
//! - L3 A write that fails spoils its file. Acknowledged `Memory` writes that the file may lack begin the next one, which
//!   wins from there on: later writes never survive a gap. A file that holds nothing else is removed. What is acknowledged
//!   first after it is synced whatever its level: a crash that lost it would find the refused write at the end of the spoilt file.
//! - L4 A keyspace without unflushed writes does not hold a file back: its empty memtable is replaced at
//!   rotation. One that does is flushed when the files exceed their limit (RELIABILITY M15).
//! - L5 A file is begun where the fast tier has room for it. Failed writes end files without filling a memtable: when the files exceed their
//!   limit one is sealed all the same, and writers hear of the room that the files take. A sync begins one only for what the files lack.

use std::sync::Arc;

use kelvin_base::{Error, ErrorKind, Result, Sequence, Tier, seeded_bug};

use crate::batch::WriteBatch;
use crate::db::engine::Engine;
use crate::memtable::MemTable;
use crate::options::Durability;
use crate::view::{KeyspaceState, View};
use crate::wal::WalWriter;

/// The WAL as the write leader sees it.
pub struct Log {
    writer: WalWriter,
    /// The last sequence number given out.
    pub last_sequence: Sequence,
    spoilt: bool,
    /// A write was refused that files may hold, and none was synced since.
    follows_refused: bool,
}

impl Log {
    /// A log that continues behind `last_sequence` in `writer`.
    pub const fn new(writer: WalWriter, last_sequence: Sequence) -> Self {
        Self { writer, last_sequence, spoilt: false, follows_refused: false }
    }

    /// True if the file must not be appended to any more (W3).
    pub const fn is_spoilt(&self) -> bool {
        self.spoilt || self.writer.has_failed()
    }

    /// The file being written.
    pub const fn number(&self) -> u64 {
        self.writer.number()
    }

    /// True if the file is longer than what was allocated, and counted, when it was begun.
    pub const fn is_overlong(&self, allocated: u64) -> bool {
        self.writer.len() > allocated
    }

    /// Adds a record to the file's buffer.
    ///
    /// # Errors
    /// The file's; it is spoilt then.
    pub fn append(&mut self, first: Sequence, batch: &WriteBatch, engine: &Engine) -> Result<()> {
        let outcome = self.writer.append(first, batch.bytes());
        self.note(outcome, engine)
    }

    /// Hands everything appended, a write at its end, over to `durability`.
    ///
    /// # Errors
    /// The file's: it is spoilt then, and after a failed sync the store takes no more writes.
    pub fn make_durable(&mut self, durability: Durability, engine: &Engine) -> Result<()> {
        if self.follows_refused && !seeded_bug!("refused-write-outlives-what-follows") {
            self.sync(engine)?;
            self.follows_refused = false;
            return Ok(());
        }
        match durability {
            Durability::Memory => Ok(()),
            Durability::Os if seeded_bug!("acknowledged-before-it-is-written") => Ok(()),
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
        self.note(outcome, engine)
    }

    /// Syncs every file not known to be durable, oldest first.
    ///
    /// # Errors
    /// The file's; it is spoilt then, and after a failed sync the store takes no more writes.
    pub fn sync(&mut self, engine: &Engine) -> Result<()> {
        engine.counters.writes.syncs.add(1);
        // What the system does not take (a full disk) is a failed write, told apart from a failed sync.
        self.flush(engine)?;
        let closed = engine.sync_closed_logs();
        self.note(closed, engine)?;
        let outcome = self.writer.sync();
        self.note(outcome, engine).inspect_err(|error| engine.health.stop_writes(error))
    }

    /// Notes a failure and tells it in the fast tier's terms.
    fn note(&mut self, outcome: Result<()>, engine: &Engine) -> Result<()> {
        self.spoilt |= outcome.is_err();
        outcome.map_err(|error| engine.fast_error(error))
    }

    /// Acknowledged records that the file may lack, each with its first sequence number.
    fn unwritten(&self) -> Vec<(Sequence, Vec<u8>)> {
        let mut records = self.writer.unwritten();
        records.retain(|(first, _)| *first <= self.last_sequence);
        records
    }

    /// Hands what is buffered to the operating system, for the last time.
    ///
    /// # Errors
    /// The file's.
    pub fn flush_at_close(&mut self, engine: &Engine) -> Result<()> {
        if self.is_spoilt() {
            if self.unwritten().is_empty() {
                return Ok(());
            }
            // What is acknowledged in memory alone is lost with a store that may not write any more: it is not closed well.
            if let Some(fatal) = engine.health.fatal() {
                return if seeded_bug!("a-close-that-loses-writes-ends-well") { Ok(()) } else { Err(fatal) };
            }
            engine.start_anew(self)?;
        }
        if engine.health.fatal().is_some() {
            // A finished log would vouch for what a failed sync left unknown.
            return self.flush(engine);
        }
        self.sync(engine)?;
        // A finished log tells its end from a cut: nothing acknowledged can vanish unnoticed. Where even the end finds no room, everything acknowledged is in the log all the same.
        match self.writer.finish() {
            Err(error) if error.kind() == ErrorKind::NoSpace => Ok(()),
            finished => self.note(finished, engine),
        }
    }

    fn start(&mut self, next: WalWriter) -> WalWriter {
        self.follows_refused |= self.is_spoilt();
        self.spoilt = false;
        let mut closed = std::mem::replace(&mut self.writer, next);
        closed.rest();
        closed
    }
}

impl Engine {
    /// Starts a new WAL file and seals the memtables of the keyspaces `full`, and of those that hold back more
    /// WAL than allowed.
    ///
    /// # Errors
    /// If the file cannot be made, or what is buffered not written; nothing is sealed then.
    pub(crate) fn rotate(&self, log: &mut Log, full: &[u32]) -> Result<()> {
        self.publisher.wait_visible(log.last_sequence);
        if log.is_spoilt() {
            self.start_anew(log)?;
        }
        log.flush(self)?;
        let next = self.next_log(log.last_sequence)?;
        let number = next.number();
        self.closed_logs.lock().push(log.start(next));
        let keyspaces = self.keyspaces.load_full();
        let holds_too_much = self.logs_hold_too_much();
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

    /// Goes on in a new WAL file after a failed write. It begins with what the failed one may lack of what was
    /// acknowledged; memtables stay, since they hold records of both.
    ///
    /// # Errors
    /// If the file cannot be made; everything stays as it is then, to be tried again.
    pub(crate) fn start_anew(&self, log: &mut Log) -> Result<()> {
        let records = log.unwritten();
        let base = records.first().map_or(log.last_sequence, |(first, _)| first - 1);
        let mut next = self.next_log(base)?;
        for (first, batch) in &records {
            if let Err(error) = next.append(*first, batch) {
                self.wals.discard(next.number());
                self.account_logs();
                return Err(self.fast_error(error));
            }
        }
        let failed = log.start(next);
        if failed.has_begun() {
            self.closed_logs.lock().push(failed);
        } else {
            self.wals.discard(failed.number());
        }
        self.account_logs();
        self.refresh_pressure();
        Ok(())
    }

    /// True if the files take more than they may together.
    fn logs_hold_too_much(&self) -> bool {
        self.wals.bytes() > self.config.wal_bytes_max
    }

    /// True if files that failed writes have ended take more than all files may, and sealing a memtable would let some of them go.
    pub(crate) fn has_too_many_logs(&self) -> bool {
        self.logs_hold_too_much()
            && self.keyspaces.load().iter().any(|one| !one.peek().mem.is_empty())
            && !seeded_bug!("logs-of-failed-writes-add-up")
    }

    /// A new WAL file for the records behind sequence number `base`, where the tier has room for it.
    fn next_log(&self, base: Sequence) -> Result<WalWriter> {
        if !seeded_bug!("log-is-begun-without-room") {
            self.space.fits_beside_files(Tier::Fast, self.wals.next_bytes())?;
        }
        let next = self.wals.create(self.new_file_number()).map_err(|error| self.fast_error(error))?;
        self.wals.begins_behind(next.number(), base);
        self.account_logs();
        Ok(next)
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
    /// The files'; after a failed sync the store takes no more writes.
    pub(crate) fn sync_closed_logs(&self) -> Result<()> {
        let mut closed = self.closed_logs.lock();
        closed.iter_mut().try_for_each(|writer| self.sync_file_of(writer))?;
        closed.clear();
        Ok(())
    }

    /// Syncs the file of `writer`, also of one that has failed.
    ///
    /// # Errors
    /// The file's; after a failed sync the store takes no more writes.
    fn sync_file_of(&self, writer: &mut WalWriter) -> Result<()> {
        let synced = if writer.has_failed() {
            // What was acknowledged before the failure is in the file, but its writer refuses to sync.
            let path = writer.path();
            let mut file = self.wals.reopen(writer.number())?;
            file.sync().map_err(|error| Error::io("sync a log", path, error))
        } else {
            writer.sync()
        };
        synced.inspect_err(|error| self.health.stop_writes(error))
    }

    /// Makes everything written so far survive power loss.
    ///
    /// # Errors
    /// The sync's; the store takes no more writes then.
    pub(crate) fn sync_log(&self) -> Result<()> {
        self.sync_held_log(&mut self.log.lock())
    }

    /// The same for who leads writes.
    ///
    /// # Errors
    /// As [`Self::sync_log`].
    pub(crate) fn sync_held_log(&self, log: &mut Log) -> Result<()> {
        self.health.check_writable()?;
        if log.is_spoilt() && log.unwritten().is_empty() && !seeded_bug!("each-sync-begins-a-log") {
            // All that was acknowledged is in the files: a new one would take room for nothing.
            self.sync_closed_logs()?;
            return self.sync_file_of(&mut log.writer);
        }
        if log.is_spoilt() {
            self.start_anew(log)?;
        }
        log.sync(self)
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
            let place = if seeded_bug!("sealed-memtable-behind-older-ones") { imms.len() } else { 0 };
            imms.insert(place, Arc::clone(&view.mem));
        }
        View {
            mem: Arc::new(MemTable::new(wal_number, wal_number)),
            imms,
            version: Arc::clone(&view.version),
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::Db;
    use crate::db::testing::World;

    #[test]
    fn no_log_is_begun_where_the_fast_tier_has_no_room_for_it() {
        let world = World::new();
        let db = Db::open(world.options()).unwrap();
        db.put(b"key", b"value").unwrap();
        let space = &db.engine.space;
        let free = space.capacity(Tier::Fast).unwrap() - space.used(Tier::Fast);
        space.file_added(Tier::Fast, "others", free - 4096);
        let error = db.flush().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        let stats = space.stats(Tier::Fast);
        assert!(Some(stats.used_max_bytes) <= stats.capacity_bytes, "{stats:?}");
        space.file_removed(Tier::Fast, "others");
        db.flush().unwrap();
        assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    }
}
