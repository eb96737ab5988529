//! The store: open, keyspaces, snapshots, and what users call. The work is done elsewhere: `write`, `read`,
//! `flush`, `compaction`, `install`, `recovery`, `checkpoint`.

#[cfg(test)]
mod copies_tests;
pub mod engine;
mod forced;
pub mod iterate;
mod keyspace;
pub mod keyspaces;
mod scanned;
#[cfg(test)]
pub(crate) mod testing;

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kelvin_base::{Change, OrderedStore, PointStore, Result, Sequence};

pub use iterate::{DbIterator, IterOptions};
pub use keyspace::{Keyspace, WriteOptions};

use crate::db::engine::Engine;
use crate::options::{Config, Options};
use crate::snapshot::Pin;
use crate::stats::Stats;

/// The keyspace every store has.
pub const DEFAULT_KEYSPACE: &str = "default";

/// An open store. Cheap to clone; the store is closed when the last clone, keyspace, snapshot and iterator of it are
/// gone, or by [`Db::close`].
///
/// It is also the handle of the keyspace named "default".
#[derive(Clone, Debug)]
pub struct Db {
    default: Keyspace,
}

/// Closes the store when the last handle goes.
pub(crate) struct Closer(Arc<Engine>);

impl Drop for Closer {
    fn drop(&mut self) {
        // Nobody is left to hear of an error; `Db::close` reports it.
        let _unheard = self.0.shut_down();
    }
}

/// A moment of the store that stays readable. Holding one keeps overwritten and deleted records on disk.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) pin: Pin,
    keyspace: Keyspace,
}

impl Snapshot {
    /// The value `key` of the keyspace "default" had at this moment.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.keyspace.get_at(key, self)
    }

    /// An iterator over the keyspace "default" at this moment.
    ///
    /// # Errors
    /// As [`Keyspace::iter`].
    pub fn iter(&self, options: IterOptions) -> Result<DbIterator> {
        self.keyspace.iter_at(self, options)
    }

    /// The sequence number of the last write it sees.
    #[must_use]
    pub fn sequence(&self) -> Sequence {
        self.pin.at()
    }
}

impl Db {
    /// Opens the store that `options` name, making it if there is none.
    ///
    /// # Errors
    /// `InvalidArgument` for options that make no sense, a foreign or missing slow tier, or a newer format; `Busy` if
    /// another process has the store open, or see [`Db::close`]; `Corruption` if what must be read is damaged; else `Io`.
    pub fn open(options: Options) -> Result<Self> {
        let engine = crate::recovery::open(options)?;
        let state = engine.keyspaces.load().default_one();
        let closer = Arc::new(Closer(Arc::clone(&engine)));
        Ok(Self { default: Keyspace { engine, state, closer } })
    }

    fn engine(&self) -> &Arc<Engine> {
        &self.default.engine
    }

    /// Stops background work, hands everything written to the operating system and closes the store. Other
    /// handles of it answer errors to writes from now on. While a slow disk still owes the end of an operation that it did not
    /// end within `slow_deadline`, the store cannot be opened again (`Busy`), by this process or another: the file that is
    /// made or removed so late must not be one of the next opening.
    ///
    /// # Errors
    /// The error that kept buffered writes from being handed over.
    pub fn close(self) -> Result<()> {
        self.engine().shut_down()
    }

    /// The keyspace `name`, made if there is none.
    ///
    /// # Errors
    /// `InvalidArgument` for an empty name or one over 255 bytes; else the manifest's error.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        let state = self.engine().keyspace(name)?;
        Ok(Keyspace { engine: Arc::clone(self.engine()), state, closer: Arc::clone(&self.default.closer) })
    }

    /// Names of the keyspaces, sorted.
    #[must_use]
    pub fn keyspaces(&self) -> Vec<String> {
        self.engine().keyspaces.load().names()
    }

    /// Drops the keyspace `name` and everything in it. Handles to it answer errors from now on.
    ///
    /// # Errors
    /// `InvalidArgument` if there is none, or it is "default"; else the manifest's error.
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        self.engine().drop_keyspace(name)
    }

    /// A snapshot of all keyspaces.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { pin: self.engine().pin(), keyspace: self.default.clone() }
    }

    /// Makes everything written so far survive power loss.
    ///
    /// # Errors
    /// The sync's error; the store is read-only after one.
    pub fn sync(&self) -> Result<()> {
        self.engine().sync_log()
    }

    /// Writes a copy of the store, as of one moment, that can be opened like any other: tables are hard
    /// links where the file system allows it, copies elsewhere. `slow_dir` is needed if the store has a slow
    /// tier. Both directories must be absent or empty. Writes go on meanwhile.
    ///
    /// # Errors
    /// `InvalidArgument` for unusable directories; else what kept a file from being linked or copied. What
    /// was made so far is removed.
    pub fn checkpoint(&self, dir: &Path, slow_dir: Option<&Path>) -> Result<()> {
        crate::checkpoint::checkpoint(self.engine(), dir, slow_dir)
    }

    /// Waits until no flush or compaction is due or running.
    ///
    /// # Errors
    /// The background error that keeps work from being done.
    pub fn wait_idle(&self) -> Result<()> {
        self.engine().wait_idle()
    }

    /// What the store counted since it was opened, and its sizes now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.engine().stats()
    }

    /// Where the data of every keyspace lies.
    #[must_use]
    pub fn levels(&self) -> Vec<crate::report::LevelInfo> {
        crate::report::levels(self.engine())
    }

    /// Where a key lies and what a lookup of it costs now.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn explain_key(&self, keyspace: &str, key: &[u8]) -> Result<crate::report::KeyReport> {
        crate::report::explain_key(&self.keyspace(keyspace)?, key)
    }

    /// Reads and checks every byte of every file of the open store.
    #[must_use]
    pub fn check(&self) -> crate::check::CheckReport {
        crate::check::check_open(self.engine())
    }

    /// Walks over everything in the store and says what is out of order. Reads it all into memory: for simulations.
    ///
    /// # Errors
    /// What keeps a table from being read.
    #[doc(hidden)]
    pub fn audit(&self) -> Result<crate::audit::Audit> {
        crate::audit::audit(self.engine())
    }

    /// Every figure the store runs with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.engine().config
    }
}

impl Deref for Db {
    type Target = Keyspace;

    fn deref(&self) -> &Keyspace {
        &self.default
    }
}

impl PointStore for Db {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.default.get(key)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.default.put(key, value)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.default.delete(key)
    }

    fn update(&self, key: &[u8], change: Change<'_>) -> Result<()> {
        PointStore::update(&self.default, key, change)
    }
}

impl OrderedStore for Db {
    fn scan(&self, start: &[u8], limit: usize, each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        OrderedStore::scan(&self.default, start, limit, each)
    }
}
