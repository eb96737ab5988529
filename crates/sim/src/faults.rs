//! Lets every single I/O of a scenario fail in turn (RELIABILITY T8).
//!
//! The scenario runs once to count the I/Os, then once for each index and kind of failure. Whatever fails: no panic; a
//! read never answers wrong or "not found" instead of an error (promise 4); after the failure has passed
//! and the store was reopened, the state is a prefix of the commit order that holds every acknowledged write.

use std::sync::Arc;

use kelvin::{Db, Durability, Error, ErrorKind, IterOptions, Options, WriteBatch, WriteOptions};
use kelvin_base::{ManualClock, ManualExecutor};
use kelvin_storage::fault::{Failure, FaultStorage};
use kelvin_storage::memory::MemoryStorage;

use crate::oracle::{Oracle, Write};

/// What a scenario does while I/Os fail. Answers errors as they come; the harness decides what they mean.
pub type Script = dyn Fn(&mut Session<'_>) -> Result<(), Error>;

/// A store under failing I/O, and what was promised of it.
pub struct Session<'a> {
    options: &'a dyn Fn(&Devices) -> Options,
    devices: &'a Devices,
    db: Option<Db>,
    oracle: Oracle,
    /// The model after each acknowledged commit and each one of unknown outcome.
    states: Vec<Oracle>,
    acknowledged: usize,
}

/// The devices of one run.
pub struct Devices {
    /// The fast tier.
    pub fast: Arc<FaultStorage>,
    /// The slow tier.
    pub slow: Arc<FaultStorage>,
    /// Time.
    pub clock: Arc<ManualClock>,
    /// Background work, stepped by hand.
    pub executor: Arc<ManualExecutor>,
}

impl Devices {
    /// Fresh memory devices.
    #[must_use]
    pub fn new() -> Self {
        let device = |seed| Arc::new(FaultStorage::new(Arc::new(MemoryStorage::new()), seed));
        Self {
            fast: device(1),
            slow: device(2),
            clock: Arc::new(ManualClock::new(1_000_000)),
            executor: Arc::new(ManualExecutor::new()),
        }
    }

    fn heal(&self) {
        self.fast.heal();
        self.slow.heal();
    }
}

impl Default for Devices {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Session<'a> {
    fn new(options: &'a dyn Fn(&Devices) -> Options, devices: &'a Devices) -> Self {
        let mut oracle = Oracle::default();
        oracle.create("default");
        let states = vec![oracle.clone()];
        Self { options, devices, db: None, oracle, states, acknowledged: 0 }
    }

    /// The open store, opened if it is not.
    ///
    /// # Errors
    /// What keeps it from opening.
    pub fn db(&mut self) -> Result<Db, Error> {
        if self.db.is_none() {
            self.db = Some(Db::open((self.options)(self.devices))?);
        }
        self.db.clone().ok_or_else(|| Error::invalid("the store is closed"))
    }

    /// Commits `writes` and notes whether they were acknowledged.
    ///
    /// # Errors
    /// The store's.
    pub fn commit(&mut self, writes: &[Write], durability: Durability) -> Result<(), Error> {
        let db = self.db()?;
        let mut batch = WriteBatch::new();
        for write in writes {
            match write {
                Write::Put { key, value, .. } => batch.put(db.id(), key, value)?,
                Write::Delete { key, .. } => batch.delete(db.id(), key)?,
                Write::DeleteRange { start, end, .. } => batch.delete_range(db.id(), start, end)?,
            }
        }
        let outcome = db.write(batch, &WriteOptions { durability: Some(durability), ttl: None });
        let mut next = self.oracle.clone();
        next.commit(writes);
        if outcome.is_ok() {
            // A failed commit before this one may have reached the WAL's file, but not the store's order.
            self.states.truncate(self.acknowledged + 1);
            self.oracle = next.clone();
            self.states.push(next);
            self.acknowledged = self.states.len() - 1;
        } else {
            self.states.push(next);
        }
        outcome
    }

    /// Reads everything and compares with what is acknowledged. Errors are allowed, wrong answers are not.
    ///
    /// # Errors
    /// The store's.
    ///
    /// # Panics
    /// If an answer is wrong.
    pub fn read_all(&mut self) -> Result<(), Error> {
        let db = self.db()?;
        let expected = pairs_of(&self.oracle);
        for (key, value) in &expected {
            assert_eq!(db.get(key)?.as_deref(), Some(value.as_slice()), "get of {key:?}");
        }
        assert_eq!(scan(&db)?, expected, "a scan that met no error");
        Ok(())
    }

    /// Runs background work until none waits; its errors are the store's to report.
    pub fn background(&self) {
        self.devices.executor.run_all();
    }

    /// Closes the store.
    ///
    /// # Errors
    /// The store's.
    pub fn close(&mut self) -> Result<(), Error> {
        match self.db.take() {
            Some(db) => db.close(),
            None => Ok(()),
        }
    }

    /// With every device well again: reopens the store and checks what it holds.
    fn verify(&mut self) -> Result<(), String> {
        self.devices.heal();
        drop(self.db.take());
        self.devices.executor.run_all();
        let db = self.db().map_err(|error| format!("reopening with well devices failed: {error}"))?;
        let state = scan(&db).map_err(|error| format!("a scan with well devices failed: {error}"))?;
        let held = self.states[self.acknowledged..].iter().any(|oracle| pairs_of(oracle) == state);
        if !held {
            return Err(format!(
                "after reopening the store holds {state:?}, acknowledged was {:?}",
                pairs_of(&self.oracle)
            ));
        }
        db.put(b"zz-after", b"well again").map_err(|error| format!("a write with well devices failed: {error}"))?;
        self.devices.executor.run_all();
        let damaged = db.check().damaged_files();
        if !damaged.is_empty() {
            return Err(format!("check finds damage: {damaged:?}"));
        }
        self.close().map_err(|error| format!("closing with well devices failed: {error}"))
    }
}

fn pairs_of(oracle: &Oracle) -> Vec<(Vec<u8>, Vec<u8>)> {
    oracle.keyspace("default").map(|history| history.scan(None, None, oracle.moment(), 0)).unwrap_or_default()
}

fn scan(db: &Db) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Error> {
    let mut iter = db.iter(IterOptions::default())?;
    let mut pairs = Vec::new();
    iter.seek_to_first()?;
    while iter.valid() {
        if iter.key() != b"zz-after" {
            pairs.push((iter.key().to_vec(), iter.value().to_vec()));
        }
        iter.next()?;
    }
    Ok(pairs)
}

/// Which device fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The fast tier.
    Fast,
    /// The slow tier.
    Slow,
}

/// Runs `script` once for every `stride`-th I/O of `victim`, which then fails in the manner of `failure`. How many
/// failures were injected.
///
/// # Errors
/// The first run that broke a promise.
pub fn every_io_fails(
    options: &dyn Fn(&Devices) -> Options,
    script: &Script,
    victim: Victim,
    failure: Failure,
    stride: u64,
) -> Result<u64, String> {
    let devices = Devices::new();
    let mut session = Session::new(options, &devices);
    script(&mut session).map_err(|error| format!("the script fails on well devices: {error}"))?;
    session.verify()?;
    let device = |devices: &Devices| match victim {
        Victim::Fast => Arc::clone(&devices.fast),
        Victim::Slow => Arc::clone(&devices.slow),
    };
    let count = device(&devices).operations();
    let mut injected = 0;
    for index in (0..count).step_by(usize::try_from(stride.max(1)).unwrap_or(1)) {
        let devices = Devices::new();
        device(&devices).fail_nth(index, failure);
        let mut session = Session::new(options, &devices);
        let outcome = script(&mut session);
        if let Err(error) = &outcome
            && error.kind() == ErrorKind::InvalidArgument
        {
            return Err(format!("I/O {index} of {victim:?} ({failure:?}): a device's failure was told as {error}"));
        }
        session
            .verify()
            .map_err(|what| format!("I/O {index} of {count} on {victim:?} ({failure:?}), script {outcome:?}: {what}"))?;
        injected += 1;
    }
    Ok(injected)
}
