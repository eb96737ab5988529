//! One keyspace (column family): an ordered map of its own that shares WAL, tiers and memory with the others.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kelvin_base::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use kelvin_base::{Change, Error, ErrorKind, OrderedStore, PointStore, Result, seeded_bug};

use crate::after_read::{LatestRead, after_read};
use crate::batch::WriteBatch;
use crate::bulk::{BulkLoad, BulkLoaded};
use crate::db::engine::Engine;
use crate::db::iterate::{DbIterator, IterOptions};
use crate::db::{Closer, Snapshot};
use crate::options::Durability;
use crate::read::{Lookup, Moment, lookup};
use crate::transaction::Transaction;
use crate::view::KeyspaceState;

/// How a write is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteOptions {
    /// The level of durability; the store's if `None`.
    pub durability: Option<Durability>,
    /// The record is hidden this long after the write, and its space given back later; never if `None`.
    /// Applies to single puts.
    pub ttl: Option<Duration>,
}

/// What a change decides from the present value: `None` leaves the key, else its next value, if any.
type Decide<'a> = &'a mut dyn FnMut(Option<&[u8]>) -> Option<Option<Vec<u8>>>;

/// A keyspace of an open store. Cheap to clone; keeps the store open.
#[derive(Clone)]
pub struct Keyspace {
    pub(crate) engine: Arc<Engine>,
    pub(crate) state: Arc<KeyspaceState>,
    pub(crate) closer: Arc<Closer>,
}

impl Keyspace {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Its number, as [`WriteBatch`] names it.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.state.id
    }

    /// Refuses handles to dropped keyspaces.
    pub(crate) fn check_alive(&self) -> Result<()> {
        if self.state.is_dropped() {
            return Err(Error::invalid(format!("the keyspace {:?} was dropped", self.state.name)));
        }
        Ok(())
    }

    /// The value of `key`, or `None` if it has none.
    ///
    /// # Errors
    /// If a place that could hold the key cannot be read; `InvalidArgument` if the key is longer than
    /// [`KEY_BYTES_MAX`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.lookup(key)?.into_value())
    }

    /// As [`Self::get`], at `snapshot`.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn get_at(&self, key: &[u8], snapshot: &Snapshot) -> Result<Option<Bytes>> {
        self.check_read(key)?;
        let view = self.state.view();
        let moment = Moment { at: snapshot.pin.at(), clock: &*self.engine.env.clock };
        let answer = lookup(&view, &self.state.promotion, key, moment)?;
        after_read(&self.engine, &self.state, key, &answer);
        if seeded_bug!("snapshot-read-fills-the-cache") {
            let read = LatestRead { keyspace: &self.state, view: &view, at: u64::MAX, key };
            read.promote(&self.engine, answer.found.as_ref());
        }
        Ok(answer.into_value())
    }

    /// The newest entry of `key` and what it took to find it.
    pub(crate) fn lookup(&self, key: &[u8]) -> Result<Lookup> {
        self.check_read(key)?;
        // The view before the sequence number: the view then holds every version that a reader at that number
        // needs, since only versions shadowed by published ones are ever dropped.
        let view = self.state.peek();
        let moment = Moment { at: self.engine.publisher.visible(), clock: &*self.engine.env.clock };
        let answer = lookup(&view, &self.state.promotion, key, moment)?;
        after_read(&self.engine, &self.state, key, &answer);
        let read = LatestRead { keyspace: &self.state, view: &view, at: moment.at, key };
        read.promote(&self.engine, answer.found.as_ref());
        Ok(answer)
    }

    pub(crate) fn check_read(&self, key: &[u8]) -> Result<()> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(Error::invalid("a key has a length no record can have")
                .expected(format!("1 to {KEY_BYTES_MAX} bytes"), format!("{} bytes", key.len())));
        }
        self.check_alive()
    }

    /// Sets the value of `key`, at the store's durability.
    ///
    /// # Errors
    /// `InvalidArgument` for keys and values outside 1 to [`KEY_BYTES_MAX`] and up to [`VALUE_BYTES_MAX`] bytes;
    /// else as [`Self::write`].
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_with(key, value, &WriteOptions::default())
    }

    /// Sets the value of `key` as `options` say.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn put_with(&self, key: &[u8], value: &[u8], options: &WriteOptions) -> Result<()> {
        let mut batch = WriteBatch::new();
        match options.ttl {
            None => batch.put(self.state.id, key, value)?,
            Some(ttl) => {
                let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
                let expiry_ms = self.engine.env.clock.unix_millis().saturating_add(ttl_ms);
                batch.put_expiring(self.state.id, key, value, expiry_ms)?;
            }
        }
        self.write(batch, options)
    }

    /// Removes `key`, which need not exist.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.delete(self.state.id, key)?;
        self.write(batch, &WriteOptions::default())
    }

    /// Removes every key from `start` up to, not including, `end`, in one write of constant cost.
    ///
    /// # Errors
    /// `InvalidArgument` if `start > end`; else as [`Self::put`].
    pub fn delete_range(&self, start: &[u8], end: &[u8]) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.delete_range(self.state.id, start, end)?;
        self.write(batch, &WriteOptions::default())
    }

    /// Writes `batch`, all of it or nothing. It may name several keyspaces by their [`Self::id`].
    ///
    /// # Errors
    /// `ReadOnly` after a failed sync; `NoSpace` with a full tier (writing resumes by itself once space is freed);
    /// `InvalidArgument` if the batch names a keyspace the store does not have.
    pub fn write(&self, batch: WriteBatch, options: &WriteOptions) -> Result<()> {
        self.check_alive()?;
        let keyspaces = self.engine.keyspaces.load();
        if let Some(id) = batch.keyspaces().find(|&id| keyspaces.by_id(id).is_none()) {
            return Err(Error::invalid("a batch names a keyspace that is not there")
                .expected("an id of Keyspace::id", id));
        }
        drop(keyspaces);
        let durability = options.durability.unwrap_or(self.engine.config.durability);
        self.engine.commit(batch, durability).map(|_| ())
    }

    /// The values of `keys`, in their order, as of one moment. Reads of tables run in parallel.
    #[must_use]
    pub fn multi_get(&self, keys: &[&[u8]]) -> Vec<Result<Option<Bytes>>> {
        crate::multi_get::multi_get(self, keys)
    }

    /// An iterator over the keyspace as of now.
    ///
    /// # Errors
    /// If a table that holds range tombstones cannot be read.
    pub fn iter(&self, options: IterOptions) -> Result<DbIterator> {
        let pin = self.engine.pin();
        DbIterator::new(self.clone(), pin, options)
    }

    /// As [`Self::iter`], at `snapshot`.
    ///
    /// # Errors
    /// As [`Self::iter`].
    pub fn iter_at(&self, snapshot: &Snapshot, options: IterOptions) -> Result<DbIterator> {
        DbIterator::new(self.clone(), snapshot.pin.clone(), options)
    }

    /// Begins an optimistic transaction on this keyspace.
    #[must_use]
    pub fn transaction(&self) -> Transaction {
        Transaction::new(self.clone(), self.engine.pin())
    }

    /// Sets `key` to `new` (`None` removes it) if its value is `expected` (`None`: if it has none). True if it was.
    ///
    /// # Errors
    /// As [`Self::get`] and [`Self::write`].
    pub fn compare_and_set(&self, key: &[u8], expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<bool> {
        let mut was_expected = false;
        self.change(key, &mut |present| {
            was_expected = present == expected;
            was_expected.then(|| new.map(<[u8]>::to_vec))
        })?;
        Ok(was_expected)
    }

    /// Replaces the value of `key` by what `change` makes of it, atomically; `None` leaves it. `change` may be
    /// called several times.
    pub(crate) fn change(&self, key: &[u8], change: Decide<'_>) -> Result<()> {
        loop {
            let mut transaction = self.transaction();
            let present = transaction.get(key)?;
            match change(present.as_deref()) {
                None => return Ok(()),
                Some(None) => transaction.delete(key),
                Some(Some(value)) => transaction.put(key, &value),
            }
            match transaction.commit() {
                Err(error) if error.kind() == ErrorKind::Busy => {}
                outcome => return outcome,
            }
        }
    }

    /// Fills this keyspace, which must hold nothing, with records in order of their keys: `fill` puts them, and they are written once, as tables, where cold records
    /// lie. All of them are there once this returns, and survive power loss; none if it fails.
    ///
    /// Nothing of it goes through the log and the fast tier: over two tiers loading takes a third of the time that batches in the same order take, with one tier no less. Other
    /// keyspaces can be used meanwhile, and this one read; a write to it makes the load fail.
    ///
    /// ```
    /// # fn main() -> kelvin_base::Result<()> {
    /// # let temporary = tempfile::tempdir().expect("a temporary directory");
    /// # let dir = temporary.path().join("store");
    /// let db = kelvin_lsm::db::Db::open(kelvin_lsm::options::Options::new(dir))?;
    /// let loaded = db.bulk_load(|load| (0..1000u32).try_for_each(|number| load.put(&number.to_be_bytes(), b"value")))?;
    /// assert_eq!((loaded.records, db.get(&7u32.to_be_bytes())?.is_some()), (1000, true));
    /// # db.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if the keyspace holds anything, now or at the end, and for a key out of order; `Busy` if a snapshot, an iterator or a transaction lives at
    /// the end; `NoSpace` without room for the tables; the error of `fill`. Nothing was loaded then; where it is the manifest that could not be written, the next
    /// opening finds all of it or nothing.
    pub fn bulk_load(&self, fill: impl FnOnce(&mut BulkLoad<'_, '_>) -> Result<()>) -> Result<BulkLoaded> {
        self.check_alive()?;
        self.engine.bulk_load(&self.state, fill)
    }

    /// Writes what the memtables hold into tables and waits for it.
    ///
    /// # Errors
    /// The error that keeps it from being written.
    pub fn flush(&self) -> Result<()> {
        self.check_alive()?;
        self.engine.flush_keyspace(&self.state)
    }

    /// Compacts every table that holds keys from `lower` up to, not including, `upper` into the last level.
    ///
    /// # Errors
    /// The error that keeps a compaction from being done.
    pub fn compact_range(&self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Result<()> {
        self.check_alive()?;
        self.engine.flush_keyspace(&self.state)?;
        self.engine.compact_range(&self.state, lower, upper)
    }
}

impl PointStore for Keyspace {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        Self::get(self, key)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Self::put(self, key, value)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        Self::delete(self, key)
    }

    fn update(&self, key: &[u8], change: Change<'_>) -> Result<()> {
        self.change(key, &mut |present| Some(change(present)))
    }
}

impl OrderedStore for Keyspace {
    fn scan(&self, start: &[u8], limit: usize, each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let expected_records = (limit < usize::MAX).then_some(limit as u64);
        let mut iter = self.iter(IterOptions { expected_records, ..IterOptions::default() })?;
        iter.seek(start)?;
        for left in (0..limit).rev() {
            if !iter.valid() || !each(iter.key(), iter.value()) {
                break;
            }
            // The record behind the last one asked for may cost a read of its own.
            if left > 0 {
                iter.next()?;
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyspace").field("name", &self.state.name).field("id", &self.state.id).finish()
    }
}

const _: () = assert!(VALUE_BYTES_MAX < u32::MAX as usize, "a value's length fits a u32 on disk");
