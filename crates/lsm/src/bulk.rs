//! Bulk load: records that come in order of their keys become tables at once, without a log, a memtable and the merges that would follow.
//!
//! In:  a keyspace that holds nothing; records, each key greater than the one before.
//! Out: tables of the level where cold data ends (the first slow one; with one tier the last), in force by one edit: all of them or none.
//!
//! Invariants
//! - B1 The tables come into force while the keyspace holds nothing and no snapshot lives, with the write leader's lock held: nothing older
//!   lies above them, and nobody who saw the keyspace empty sees it filled at the same moment.
//! - B2 Their entries have the sequence number that was visible when the load began, so what is written to the keyspace from then on is newer. That
//!   leaves all that was committed before it in the prefix that a crash keeps: the logs are synced first (promise 2).
//!
//! Tests: `tests/trust/bulk.rs`.

use std::fmt;

use kelvin_base::key::{EXPIRES, append_internal, trailer};
use kelvin_base::{Error, ErrorKind, Kind, Result, Sequence, Tier, seeded_bug};

use crate::batch::{check_key, check_value};
use crate::compaction::job::{self, JobTable, OutputWriter};
use crate::db::engine::Engine;
use crate::space::{Priority, Reservation};
use crate::tiers::Purpose;
use crate::version::{Edit, FIRST_SLOW, LEVELS_FAST, TableMeta};
use crate::view::KeyspaceState;
use crate::write::room::flush_slack_bytes;

/// Bytes that a table takes for an entry beside its key and value, at most.
const ENTRY_BYTES: u64 = 32;
/// After so many bytes the memory of the open table is counted anew.
const COUNTED_EVERY_BYTES: u64 = 256 << 10;

/// What a bulk load loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BulkLoaded {
    /// Records.
    pub records: u64,
    /// Their keys and values, bytes.
    pub bytes: u64,
    /// Tables written.
    pub tables: u64,
}

/// Takes the records of a bulk load: see [`crate::db::Keyspace::bulk_load`].
pub struct BulkLoad<'a, 'b> {
    out: &'a mut OutputWriter<'b>,
    room: Room<'a>,
    sequence: Sequence,
    loaded: &'a mut BulkLoaded,
    /// Bytes put since the memory of the open table was counted.
    uncounted_bytes: u64,
    last_key: Vec<u8>,
    internal: Vec<u8>,
    stored: Vec<u8>,
}

impl fmt::Debug for BulkLoad<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BulkLoad").field("loaded", &self.loaded).finish_non_exhaustive()
    }
}

/// Room for the tables, set aside one ahead.
#[derive(Debug)]
struct Room<'a> {
    reservation: &'a mut Reservation,
    target_bytes: u64,
    finished: usize,
    finished_bytes: u64,
}

impl Room<'_> {
    /// Sets aside what `out` takes with an entry of `bytes` more.
    fn make(&mut self, out: &OutputWriter<'_>, bytes: u64) -> Result<()> {
        if self.finished != out.finished() {
            (self.finished, self.finished_bytes) = (out.finished(), out.finished_bytes());
        }
        let open_bytes = (out.open_bytes() + bytes + ENTRY_BYTES).max(self.target_bytes);
        let wanted = self.finished_bytes + open_bytes + flush_slack_bytes(open_bytes);
        match wanted.saturating_sub(self.reservation.left_bytes()) {
            0 => Ok(()),
            more => self.reservation.grow(more, Priority::Normal),
        }
    }
}

impl BulkLoad<'_, '_> {
    /// The next record.
    ///
    /// # Errors
    /// `InvalidArgument` for a key that is not greater than the one before, or that no record can have; what keeps a table from being written.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        check_value(value.len())?;
        self.stored.clear();
        self.stored.extend_from_slice(value);
        self.add(key, value.len(), Kind::Value as u8)
    }

    /// The next record, which holds until `expiry_ms` (Unix milliseconds).
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn put_expiring(&mut self, key: &[u8], value: &[u8], expiry_ms: u64) -> Result<()> {
        check_value(value.len())?;
        self.stored.clear();
        self.stored.extend_from_slice(&expiry_ms.to_le_bytes());
        self.stored.extend_from_slice(value);
        self.add(key, value.len(), Kind::Value as u8 | EXPIRES)
    }

    /// Adds what is stored under `key`.
    fn add(&mut self, key: &[u8], value_len: usize, kind: u8) -> Result<()> {
        check_key(key)?;
        if key <= &self.last_key[..] {
            return Err(Error::invalid("a record of a bulk load is not in order")
                .expected(
                    format!("a key greater than {}", self.last_key.escape_ascii()),
                    key.escape_ascii().to_string(),
                )
                .advice(
                    "sort the records by key, each once, or write them as others are; nothing was loaded",
                ));
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.internal.clear();
        append_internal(&mut self.internal, key, trailer(self.sequence, kind));
        let bytes = (self.internal.len() + self.stored.len()) as u64;
        self.room.make(self.out, bytes)?;
        self.out.add(key, true, &self.internal, &self.stored)?;
        self.uncounted_bytes += bytes;
        if self.uncounted_bytes >= COUNTED_EVERY_BYTES {
            self.out.count_memory();
            self.uncounted_bytes = 0;
        }
        self.loaded.records += 1;
        self.loaded.bytes += (key.len() + value_len) as u64;
        Ok(())
    }
}

impl Engine {
    /// Fills `keyspace` with what `fill` puts.
    ///
    /// # Errors
    /// See [`crate::db::Keyspace::bulk_load`].
    pub(crate) fn bulk_load(
        &self,
        keyspace: &KeyspaceState,
        fill: impl FnOnce(&mut BulkLoad<'_, '_>) -> Result<()>,
    ) -> Result<BulkLoaded> {
        let _purpose = Purpose::Flush.enter();
        self.health.check_writable()?;
        // Taken before the keyspace is looked at: whatever is written to it afterwards is newer.
        let sequence = self.visible();
        check_empty(keyspace)?;
        self.settle_manifest()?;
        let (level, tier) = match self.config.is_tiered() {
            true => (FIRST_SLOW, Tier::Slow),
            false => (LEVELS_FAST - 1, Tier::Fast),
        };
        let target_bytes = self.pick_config.table_bytes[tier.index()];
        let context = self.job_context(self.outputs(Purpose::Flush), level, tier);
        let mut reservation = self.space.reserve(tier, 0, Priority::Normal)?;
        let mut loaded = BulkLoaded::default();
        let output = job::write_sorted(tier, target_bytes, &context, |out| {
            let room = Room { reservation: &mut reservation, target_bytes, finished: 0, finished_bytes: 0 };
            fill(&mut BulkLoad {
                out,
                room,
                sequence,
                loaded: &mut loaded,
                uncounted_bytes: 0,
                last_key: Vec::new(),
                internal: Vec::new(),
                stored: Vec::new(),
            })
        })?;
        let metas: Vec<TableMeta> = output.tables.iter().map(JobTable::meta).collect();
        loaded.tables = metas.len() as u64;
        self.account_tables(&mut [reservation], &metas);
        if !metas.is_empty() {
            self.put_in_force(keyspace, level, &metas)?;
        }
        Ok(loaded)
    }

    /// Puts `metas` into `level` of `keyspace`, which must hold nothing still.
    fn put_in_force(&self, keyspace: &KeyspaceState, level: usize, metas: &[TableMeta]) -> Result<()> {
        let mut edit = Edit::default();
        metas.iter().for_each(|meta| edit.add(keyspace.id, level, meta.clone()));
        let mut log = self.log.lock();
        self.publisher.wait_visible(log.last_sequence);
        let mut ready = || {
            if !seeded_bug!("bulk-load-before-its-log") {
                self.sync_held_log(&mut log)?;
            }
            check_empty(keyspace)?;
            let pause = self.snapshots.pause();
            if pause.is_none() && !seeded_bug!("bulk-load-beside-a-snapshot") {
                return Err(Error::new(ErrorKind::Busy, "a bulk load cannot end while snapshots live")
                    .advice(
                        "drop snapshots, iterators and transactions, then load again; nothing was loaded",
                    ));
            }
            Ok(pause)
        };
        let _pause = ready().inspect_err(|_| self.remove_unless_in_doubt(metas))?;
        let installed = self.install_or_remove(keyspace, edit, &[], metas, &[]);
        drop(log);
        self.refresh_pressure();
        self.go_on();
        installed
    }
}

/// Refuses a keyspace that holds something.
fn check_empty(keyspace: &KeyspaceState) -> Result<()> {
    let view = keyspace.peek();
    let is_empty = view.memtables().all(|mem| mem.is_empty())
        && view.version.levels.iter().all(|level| level.tables.is_empty());
    if is_empty || seeded_bug!("bulk-load-into-what-was-written") {
        return Ok(());
    }
    Err(Error::invalid(format!("the keyspace {:?} holds something, deletions perhaps", keyspace.name))
        .advice("load into a keyspace that is new; nothing was loaded"))
}
