//! Runs one seeded operation list on a store and on the oracle, and compares every answer.
//!
//! What a run needs of its store is in [`Setting`]; the operation list depends on the seed alone, so every
//! configuration must give the same history. A mismatch names seed, step, operation and both answers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kelvin::{Db, DbIterator, ErrorKind, IterOptions, Keyspace, Options, Snapshot, WriteBatch, WriteOptions};
use kelvin_base::{Clock, ManualClock, ManualExecutor};

use kelvin_lsm::stats::BoundaryStats;

use crate::checks::{Check, Heard, audit, said, same, tables_are_named};
use crate::ops::{Generator, KEYSPACES, Move, Op, OpWrite};
use crate::oracle::{Oracle, Write};

/// How a run's store is made.
pub struct Setting<'a> {
    /// Options to open the store with; called at each reopening.
    pub options: &'a dyn Fn() -> Options,
    /// Options to open a checkpoint in this directory with, and its slow part's directory if it has one.
    pub checkpoint: &'a dyn Fn(&Path) -> (Options, Option<PathBuf>),
    /// The store's clock.
    pub clock: Arc<ManualClock>,
    /// Steps background work by hand, if it has no threads.
    pub executor: Option<Arc<ManualExecutor>>,
    /// Harms what is advisory in the closed store, as the number says: the tracker's files, or one of the hot level's tables,
    /// which are named. Answers what it did.
    pub harm: &'a dyn Fn(u64, &[PathBuf]) -> Check<String>,
    /// The tables on the store's devices.
    pub tables: &'a dyn Fn() -> Check<BTreeSet<PathBuf>>,
    /// Name in messages.
    pub name: &'a str,
}

/// A difference between store and model.
#[derive(Debug)]
pub struct Mismatch(pub String);

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A store's iterator beside the pairs the model says it must yield.
struct Cursor {
    iter: DbIterator,
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
    at: Option<usize>,
}

impl Cursor {
    fn step(&mut self, step: &Move, heard: &Heard) -> Check {
        let moved = match step {
            Move::First => {
                self.at = (!self.pairs.is_empty()).then_some(0);
                self.iter.seek_to_first()
            }
            Move::Last => {
                self.at = self.pairs.len().checked_sub(1);
                self.iter.seek_to_last()
            }
            Move::Seek(key) => {
                self.at = self.pairs.iter().position(|(have, _)| have >= key);
                self.iter.seek(key)
            }
            Move::SeekForPrev(key) => {
                self.at = self.pairs.iter().rposition(|(have, _)| have <= key);
                self.iter.seek_for_prev(key)
            }
            Move::Next | Move::Prev if self.at.is_none() => return Ok(()),
            Move::Next => {
                self.at = self.at.map(|at| at + 1).filter(|at| *at < self.pairs.len());
                self.iter.next()
            }
            Move::Prev => {
                self.at = self.at.and_then(|at| at.checked_sub(1));
                self.iter.prev()
            }
        };
        said("an iterator's move", moved)?;
        let store = self.iter.valid().then(|| (self.iter.key().to_vec(), self.iter.value().to_vec()));
        heard.hear(store.as_ref().map(|(key, _)| key.as_slice()));
        heard.hear(store.as_ref().map(|(_, value)| value.as_slice()));
        let model = self.at.map(|at| self.pairs[at].clone());
        same(&format!("an iterator after {step:?}"), &store, &model)
    }
}

/// A run in progress.
pub struct Run<'a> {
    setting: Setting<'a>,
    db: Option<Db>,
    oracle: Oracle,
    snapshots: Vec<(Snapshot, u64)>,
    cursors: Vec<Cursor>,
    /// How many checkpoints were made: each needs a directory of its own.
    checkpoints: u64,
    moved: Moved,
    heard: Heard,
}

/// What came of an operation list: digests of what the store answered, and of what it held in the end. Every configuration
/// gives the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// Of every answer, in order.
    pub answers: u64,
    /// Of every record of every keyspace at the end.
    pub content: u64,
}

/// What a run did.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// What moved between the tiers.
    pub moved: Moved,
    /// What the store answered.
    pub history: History,
}

/// Bytes that a run promoted by flush, promoted by compaction, retained and handed up, and tables of copies that it gave up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes written as runs of the hot level.
    pub flushed_bytes: u64,
    /// Bytes that boundary compactions promoted.
    pub promoted_bytes: u64,
    /// Bytes that boundary compactions retained.
    pub retained_bytes: u64,
    /// Bytes of hot records that went on and left a copy to the promotion cache.
    pub lifted_bytes: u64,
    /// Tables of copies that were found missing or damaged.
    pub damaged_tables: u64,
}

impl std::fmt::Display for Moved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { flushed_bytes, promoted_bytes, retained_bytes, lifted_bytes, damaged_tables } = self;
        write!(
            f,
            "bytes promoted by flush {flushed_bytes}, by compaction {promoted_bytes}, retained {retained_bytes}, handed up {lifted_bytes}"
        )?;
        if *damaged_tables > 0 { write!(f, "; tables of copies given up {damaged_tables}") } else { Ok(()) }
    }
}

impl Moved {
    /// What a store has counted.
    #[must_use]
    pub const fn of(boundary: &BoundaryStats) -> Self {
        Self {
            flushed_bytes: boundary.flushed_bytes,
            promoted_bytes: boundary.promoted_bytes,
            retained_bytes: boundary.retained_bytes,
            lifted_bytes: boundary.lifted_bytes,
            damaged_tables: boundary.damaged_tables,
        }
    }

    /// Adds `other`.
    pub const fn add(&mut self, other: Self) {
        self.flushed_bytes += other.flushed_bytes;
        self.promoted_bytes += other.promoted_bytes;
        self.retained_bytes += other.retained_bytes;
        self.lifted_bytes += other.lifted_bytes;
        self.damaged_tables += other.damaged_tables;
    }
}

impl<'a> Run<'a> {
    /// Opens the store of `setting`.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn new(setting: Setting<'a>) -> Result<Self, Mismatch> {
        let mut oracle = Oracle::default();
        let db = Db::open((setting.options)()).map_err(|error| Mismatch(format!("open failed: {error}")))?;
        for name in KEYSPACES {
            db.keyspace(name).map_err(|error| Mismatch(format!("{name}: {error}")))?;
            oracle.create(name);
        }
        let moved = Moved::default();
        Ok(Self {
            setting,
            db: Some(db),
            oracle,
            snapshots: Vec::new(),
            cursors: Vec::new(),
            checkpoints: 0,
            moved,
            heard: Heard::default(),
        })
    }

    /// Runs the operations of `generator` until it is exhausted, at most `count`, then compares everything. `origin`
    /// names the list in messages.
    ///
    /// # Errors
    /// The first difference.
    pub fn run_all(mut self, mut generator: Generator, origin: &str, count: u64) -> Result<Ran, Mismatch> {
        for step in 0..count {
            if generator.is_exhausted() {
                break;
            }
            let op = generator.next_op();
            self.apply(&op).map_err(|what| {
                Mismatch(format!("[{}] {origin}, step {step}, {op:?}: {what}", self.setting.name))
            })?;
        }
        let answers = self.heard.take();
        let ended = self.compare_all(self.oracle.moment()).and_then(|()| self.audit());
        ended.map_err(|what| Mismatch(format!("[{}] {origin}, at the end: {what}", self.setting.name)))?;
        self.count();
        Ok(Ran { moved: self.moved, history: History { answers, content: self.heard.take() } })
    }

    /// Adds what the open store has moved so far.
    fn count(&mut self) {
        if let Some(db) = &self.db {
            self.moved.add(Moved::of(&db.stats().boundary));
        }
    }

    fn db(&self) -> Check<&Db> {
        self.db.as_ref().ok_or_else(|| "the store is closed".to_string())
    }

    fn keyspace(&self, index: usize) -> Check<Keyspace> {
        said("keyspace", self.db()?.keyspace(KEYSPACES[index]))
    }

    fn now_ms(&self) -> u64 {
        self.setting.clock.unix_millis()
    }

    fn model_get(&self, keyspace: usize, key: &[u8], moment: u64) -> Option<Vec<u8>> {
        self.oracle.keyspace(KEYSPACES[keyspace])?.get(key, moment, self.now_ms()).map(<[u8]>::to_vec)
    }

    fn apply(&mut self, op: &Op) -> Check {
        match op {
            Op::Write(writes) => self.write(writes),
            Op::Get { keyspace, key, snapshot } => self.get(*keyspace, key, *snapshot),
            Op::MultiGet { keyspace, keys } => self.multi_get(*keyspace, keys),
            Op::Iterate { keyspace, lower, upper, snapshot, moves, keep } => {
                let mut cursor = self.cursor(*keyspace, lower.as_deref(), upper.as_deref(), *snapshot)?;
                moves.iter().try_for_each(|step| cursor.step(step, &self.heard))?;
                if *keep && self.cursors.len() < 8 {
                    self.cursors.push(cursor);
                }
                Ok(())
            }
            Op::Resume { which, moves } => {
                let count = self.cursors.len().max(1);
                match self.cursors.get_mut(which % count) {
                    Some(cursor) => moves.iter().try_for_each(|step| cursor.step(step, &self.heard)),
                    None => Ok(()),
                }
            }
            Op::TakeSnapshot => {
                if self.snapshots.len() < 12 {
                    self.snapshots.push((self.db()?.snapshot(), self.oracle.moment()));
                }
                Ok(())
            }
            Op::DropSnapshot(which) => {
                if !self.snapshots.is_empty() {
                    self.snapshots.swap_remove(which % self.snapshots.len());
                }
                Ok(())
            }
            Op::Transaction { keyspace, reads, disturb, writes } => {
                self.transaction(*keyspace, reads, disturb.as_deref(), writes)
            }
            Op::CompareAndSet { keyspace, key, wrong, new } => {
                self.compare_and_set(*keyspace, key, *wrong, new.as_deref())
            }
            Op::Flush(keyspace) => said("flush", self.keyspace(*keyspace)?.flush()),
            Op::Compact { keyspace, lower, upper } => said(
                "compact_range",
                self.keyspace(*keyspace)?.compact_range(lower.as_deref(), upper.as_deref()),
            ),
            Op::Background(steps) => {
                if let Some(executor) = &self.setting.executor {
                    (0..*steps).for_each(|choice| {
                        executor.run_nth(choice);
                    });
                }
                Ok(())
            }
            Op::Advance(ms) => {
                self.setting.clock.advance(Duration::from_millis(*ms));
                Ok(())
            }
            Op::Force { keyspace, what, nth } => {
                // Whether there was anything to begin is no matter.
                let _begun = self.keyspace(*keyspace)?.force(*what, *nth);
                Ok(())
            }
            Op::Reopen(harm) => self.reopen(*harm),
            Op::Checkpoint => self.checkpoint(),
            Op::Recreate(keyspace) => self.recreate(*keyspace),
            Op::CompareAll => self.compare_all(self.oracle.moment()),
            Op::Audit => self.audit(),
        }
    }

    fn write(&mut self, writes: &[OpWrite]) -> Check {
        let now_ms = self.now_ms();
        let mut batch = WriteBatch::new();
        let mut model = Vec::new();
        for write in writes {
            let (OpWrite::Put { keyspace, .. }
            | OpWrite::Delete { keyspace, .. }
            | OpWrite::DeleteRange { keyspace, .. }) = write;
            let id = self.keyspace(*keyspace)?.id();
            let name = KEYSPACES[*keyspace].to_string();
            let added = match write {
                OpWrite::Put { key, value, ttl_ms, .. } => {
                    let expiry_ms = ttl_ms.map(|ttl| now_ms + ttl);
                    let (key, value) = (key.clone(), value.clone());
                    let added = match expiry_ms {
                        None => batch.put(id, &key, &value),
                        Some(expiry_ms) => batch.put_expiring(id, &key, &value, expiry_ms),
                    };
                    model.push(Write::Put { keyspace: name, key, value, expiry_ms });
                    added
                }
                OpWrite::Delete { key, .. } => {
                    model.push(Write::Delete { keyspace: name, key: key.clone() });
                    batch.delete(id, key)
                }
                OpWrite::DeleteRange { start, end, .. } => {
                    let (start, end) = (start.clone(), end.clone());
                    let added = batch.delete_range(id, &start, &end);
                    model.push(Write::DeleteRange { keyspace: name, start, end });
                    added
                }
            };
            said("adding to a batch", added)?;
        }
        said("write", self.db()?.write(batch, &WriteOptions::default()))?;
        self.oracle.commit(&model);
        Ok(())
    }

    fn pick_snapshot(&self, which: Option<usize>) -> Option<&(Snapshot, u64)> {
        let which = which?;
        self.snapshots.get(which % self.snapshots.len().max(1))
    }

    fn get(&self, keyspace: usize, key: &[u8], snapshot: Option<usize>) -> Check {
        let space = self.keyspace(keyspace)?;
        let (store, moment) = match self.pick_snapshot(snapshot) {
            Some((snapshot, moment)) => (space.get_at(key, snapshot), *moment),
            None => (space.get(key), self.oracle.moment()),
        };
        let store = said("get", store)?.map(|value| value.to_vec());
        self.heard.hear(store.as_deref());
        same("get", &store, &self.model_get(keyspace, key, moment))
    }

    fn multi_get(&self, keyspace: usize, keys: &[Vec<u8>]) -> Check {
        let refs: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let answers = self.keyspace(keyspace)?.multi_get(&refs);
        same("answers of multi_get", &answers.len(), &keys.len())?;
        for (key, answer) in keys.iter().zip(answers) {
            let store = said("multi_get", answer)?.map(|value| value.to_vec());
            self.heard.hear(store.as_deref());
            same("multi_get", &store, &self.model_get(keyspace, key, self.oracle.moment()))?;
        }
        Ok(())
    }

    fn cursor(
        &self,
        keyspace: usize,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
        snapshot: Option<usize>,
    ) -> Check<Cursor> {
        let space = self.keyspace(keyspace)?;
        let options = IterOptions {
            lower: lower.map(bytes::Bytes::copy_from_slice),
            upper: upper.map(bytes::Bytes::copy_from_slice),
            ..IterOptions::default()
        };
        let (iter, moment) = match self.pick_snapshot(snapshot) {
            Some((snapshot, moment)) => (space.iter_at(snapshot, options), *moment),
            None => (space.iter(options), self.oracle.moment()),
        };
        let pairs = match self.oracle.keyspace(KEYSPACES[keyspace]) {
            Some(history) => history.scan(lower, upper, moment, self.now_ms()),
            None => Vec::new(),
        };
        Ok(Cursor { iter: said("iter", iter)?, pairs, at: None })
    }

    fn transaction(
        &mut self,
        keyspace: usize,
        reads: &[Vec<u8>],
        disturb: Option<&[u8]>,
        writes: &[(Vec<u8>, Option<Vec<u8>>)],
    ) -> Check {
        let space = self.keyspace(keyspace)?;
        let mut transaction = space.transaction();
        for key in reads {
            let store = said("a transaction's get", transaction.get(key))?.map(|value| value.to_vec());
            self.heard.hear(store.as_deref());
            same("a transaction's get", &store, &self.model_get(keyspace, key, self.oracle.moment()))?;
        }
        if let Some(key) = disturb {
            let put =
                OpWrite::Put { keyspace, key: key.to_vec(), value: b"disturbed".to_vec(), ttl_ms: None };
            self.write(&[put])?;
        }
        let name = KEYSPACES[keyspace].to_string();
        let mut model = Vec::new();
        for (key, value) in writes {
            match value {
                Some(value) => transaction.put(key, value),
                None => transaction.delete(key),
            }
            model.push(match value {
                Some(value) => Write::Put {
                    keyspace: name.clone(),
                    key: key.clone(),
                    value: value.clone(),
                    expiry_ms: None,
                },
                None => Write::Delete { keyspace: name.clone(), key: key.clone() },
            });
        }
        let conflict = disturb.is_some_and(|key| reads.iter().any(|read| read == key));
        let outcome = transaction.commit();
        self.heard.hear(outcome.is_ok().then_some(b"committed"));
        match outcome {
            Ok(()) if !conflict => {
                self.oracle.commit(&model);
                Ok(())
            }
            Err(error) if conflict && error.kind() == ErrorKind::Busy => Ok(()),
            other => Err(format!("a transaction's commit answered {other:?}, conflict expected: {conflict}")),
        }
    }

    fn compare_and_set(&mut self, keyspace: usize, key: &[u8], wrong: bool, new: Option<&[u8]>) -> Check {
        let present = self.model_get(keyspace, key, self.oracle.moment());
        let expected = if wrong { Some(b"something else".to_vec()) } else { present };
        let swapped =
            said("compare_and_set", self.keyspace(keyspace)?.compare_and_set(key, expected.as_deref(), new))?;
        self.heard.hear(swapped.then_some(b"swapped"));
        same("compare_and_set", &swapped, &!wrong)?;
        if swapped {
            let name = KEYSPACES[keyspace].to_string();
            self.oracle.commit(&[match new {
                Some(new) => {
                    Write::Put { keyspace: name, key: key.to_vec(), value: new.to_vec(), expiry_ms: None }
                }
                None => Write::Delete { keyspace: name, key: key.to_vec() },
            }]);
        }
        Ok(())
    }

    fn reopen(&mut self, harm: Option<u64>) -> Check {
        self.snapshots.clear();
        self.cursors.clear();
        self.count();
        let mut copies = Vec::new();
        if let Some(db) = self.db.take() {
            if harm.is_some() {
                copies = said("audit before the close", db.audit())?.run_files;
            }
            said("close", db.close())?;
        }
        let Some(harm) = harm else {
            self.db = Some(said("reopen", Db::open((self.setting.options)()))?);
            return self.compare_all(self.oracle.moment());
        };
        let did = (self.setting.harm)(harm, &copies)?;
        let told = |what| format!("{did}: {what}");
        self.db = Some(said("reopen", Db::open((self.setting.options)())).map_err(told)?);
        self.compare_all(self.oracle.moment()).map_err(told)?;
        self.audit().map_err(told)?;
        self.files_are_those_of_the_manifest().map_err(told)
    }

    fn audit(&self) -> Check {
        audit(self.db()?)
    }

    /// The tables on the devices are those that the manifest names, once nothing is under way.
    fn files_are_those_of_the_manifest(&self) -> Check {
        let Some(executor) = &self.setting.executor else { return Ok(()) };
        executor.run_all();
        tables_are_named(self.db()?, &(self.setting.tables)()?)
    }

    fn checkpoint(&mut self) -> Check {
        self.checkpoints += 1;
        let dir = PathBuf::from(format!("/checkpoint-{}", self.checkpoints));
        let (options, slow_dir) = (self.setting.checkpoint)(&dir);
        said("checkpoint", self.db()?.checkpoint(&options.dir.clone(), slow_dir.as_deref()))?;
        let copy = said("opening the checkpoint", Db::open(options))?;
        for name in self.oracle.names() {
            let space = said("a keyspace of the checkpoint", copy.keyspace(&name))?;
            self.compare_keyspace(&space, &name, self.oracle.moment(), None)?;
        }
        said("closing the checkpoint", copy.close())
    }

    fn recreate(&mut self, keyspace: usize) -> Check {
        // Snapshots and iterators of a dropped keyspace stay readable in the store, not in the model.
        self.snapshots.clear();
        self.cursors.clear();
        let name = KEYSPACES[keyspace];
        said("drop_keyspace", self.db()?.drop_keyspace(name))?;
        self.oracle.drop_keyspace(name);
        said("keyspace", self.db()?.keyspace(name))?;
        self.oracle.create(name);
        Ok(())
    }

    fn compare_all(&self, moment: u64) -> Check {
        same("names of the keyspaces", &self.db()?.keyspaces(), &self.oracle.names())?;
        for name in self.db()?.keyspaces() {
            self.heard.hear(Some(name.as_bytes()));
            let space = said("keyspace", self.db()?.keyspace(&name))?;
            self.compare_keyspace(&space, &name, moment, None)?;
            for (snapshot, moment) in self.snapshots.iter().take(2) {
                self.compare_keyspace(&space, &name, *moment, Some(snapshot))?;
            }
        }
        Ok(())
    }

    fn compare_keyspace(
        &self,
        space: &Keyspace,
        name: &str,
        moment: u64,
        snapshot: Option<&Snapshot>,
    ) -> Check {
        let pairs = self
            .oracle
            .keyspace(name)
            .map(|history| history.scan(None, None, moment, self.now_ms()))
            .unwrap_or_default();
        let options = IterOptions::default();
        let iter = match snapshot {
            Some(snapshot) => space.iter_at(snapshot, options),
            None => space.iter(options),
        };
        let mut cursor = Cursor { iter: said("iter", iter)?, pairs, at: None };
        cursor.step(&Move::First, &self.heard)?;
        while cursor.at.is_some() {
            cursor.step(&Move::Next, &self.heard)?;
        }
        cursor.step(&Move::Last, &self.heard)?;
        while cursor.at.is_some() {
            cursor.step(&Move::Prev, &self.heard)?;
        }
        Ok(())
    }
}
