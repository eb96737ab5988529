//! Optimistic transactions: read at a snapshot, buffer writes, commit if nothing read has changed since.
//!
//! Isolation is serialisable for the keys read by [`Transaction::get`]: the commit is refused with `Busy` if any of them,
//! or a range that covers it, was written after the transaction's snapshot. The check runs in the write
//! leader with every earlier write visible, and looks only at what is newer than the snapshot: memtables, and the
//! tables whose newest entry is newer, so it rarely reads a block. Tests: `db/tests/transactions.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use kelvin_base::sync::Mutex;
use kelvin_base::{Error, ErrorKind, Result, Sequence, seeded_bug};
use kelvin_table::{LookupKey, ReadIo};

use crate::batch::WriteBatch;
use crate::db::Keyspace;
use crate::options::Durability;
use crate::read::{Moment, lookup};
use crate::snapshot::Pin;
use crate::view::View;

/// Reads and buffered writes that become visible together or not at all.
pub struct Transaction {
    keyspace: Keyspace,
    pin: Pin,
    reads: Mutex<BTreeMap<Bytes, ()>>,
    writes: BTreeMap<Bytes, Option<Bytes>>,
}

impl Transaction {
    pub(crate) fn new(keyspace: Keyspace, pin: Pin) -> Self {
        Self { keyspace, pin, reads: Mutex::default(), writes: BTreeMap::new() }
    }

    /// The value of `key` as this transaction sees it: its own write, else the value at its start. The key
    /// is watched: if it is written by others before the commit, the commit is refused.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        if let Some(written) = self.writes.get(key) {
            return Ok(written.clone());
        }
        self.keyspace.check_read(key)?;
        self.reads.lock().insert(Bytes::copy_from_slice(key), ());
        let view = self.keyspace.state.view();
        let engine = &self.keyspace.engine;
        let moment = Moment { at: self.pin.at(), clock: &*engine.env.clock };
        Ok(lookup(&view, &self.keyspace.state.promotion, key, moment)?.into_value())
    }

    /// Buffers a write of `key`.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.writes.insert(Bytes::copy_from_slice(key), Some(Bytes::copy_from_slice(value)));
    }

    /// Buffers a deletion of `key`.
    pub fn delete(&mut self, key: &[u8]) {
        self.writes.insert(Bytes::copy_from_slice(key), None);
    }

    /// Writes everything buffered, atomically, at the store's durability.
    ///
    /// # Errors
    /// `Busy` if a key read was written since the transaction began: nothing is written, begin again. Else as
    /// [`crate::db::Db::write`].
    pub fn commit(self) -> Result<()> {
        let durability = self.keyspace.engine.config.durability;
        self.commit_with(durability)
    }

    /// As [`Self::commit`], at `durability`.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub fn commit_with(self, durability: Durability) -> Result<()> {
        let mut batch = WriteBatch::new();
        let id = self.keyspace.state.id;
        for (key, value) in &self.writes {
            match value {
                Some(value) => batch.put(id, key, value)?,
                None => batch.delete(id, key)?,
            }
        }
        self.keyspace.check_alive()?;
        let reads = self.reads.lock();
        let guard = || {
            let view = self.keyspace.state.view();
            for key in reads.keys() {
                if written_since(&view, key, self.pin.at())? {
                    self.keyspace.engine.counters.writes.conflicts.add(1);
                    return Err(Error::new(
                        ErrorKind::Busy,
                        "a key this transaction read was written meanwhile",
                    )
                    .advice("nothing was written; run the transaction again"));
                }
            }
            Ok(())
        };
        let is_free = reads.is_empty() || seeded_bug!("conflicts-are-passed-over");
        let guard: Option<&dyn Fn() -> Result<()>> = if is_free { None } else { Some(&guard) };
        self.keyspace.engine.commit_guarded(batch, durability, guard).map(|_| ())
    }
}

/// True if an entry or range tombstone newer than `since` concerns `user_key`.
fn written_since(view: &Arc<View>, user_key: &[u8], since: Sequence) -> Result<bool> {
    let now = kelvin_base::SEQUENCE_MAX;
    for mem in view.memtables() {
        if mem.get(user_key, now).is_some_and(|entry| entry.sequence > since)
            || mem.covering(user_key, now) > since
        {
            return Ok(true);
        }
    }
    let key = LookupKey { user_key, hash: kelvin_base::hash64(user_key), at: now };
    for level in &view.version.levels {
        let newer = |file: &&Arc<crate::version::TableFile>| {
            file.meta.sequence_max > since && file.meta.contains(user_key)
        };
        for file in level.tables.iter().filter(newer) {
            let table = file.table()?;
            let covered = table.tombstones().is_some_and(|stones| stones.max_covering(user_key, now) > since);
            let mut io = ReadIo::default();
            let entry = table.get(&key, &mut io).map_err(|error| file.classify(error))?;
            if covered || entry.is_some_and(|entry| entry.sequence > since) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
