//! Cuts the power at every persistence point of a scenario and opens what is left.
//!
//! A scenario runs once on a [`CrashStorage`] whose log remembers every state-changing operation of both tiers. For every
//! point of that log, several images of what a power loss may leave are opened, and each must be a prefix of
//! the commit order that holds every write acknowledged at `Sync` before the point (promises 1 and 2); an image
//! that keeps everything (the process dies, the machine lives) must hold every write acknowledged at `Os` too.
//! Opening must succeed, everything must be readable (promise 5), and the store must take writes again.

use std::path::Path;
use std::sync::Arc;

use kelvin::{Db, Durability, IterOptions, Options, WriteBatch, WriteOptions};
use kelvin_base::{ManualClock, ManualExecutor};
use kelvin_storage::crash::{CrashLog, CrashStorage, Model};

use crate::oracle::{Oracle, Write};

/// A step of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Commits a batch at a durability.
    Commit(Vec<Write>, Durability),
    /// Flushes the default keyspace.
    Flush,
    /// Compacts everything to the last level (the slow tier, if there is one).
    CompactAll,
    /// Lets background work run until none is due.
    Background,
    /// Makes a keyspace.
    CreateKeyspace(String),
    /// Drops a keyspace.
    DropKeyspace(String),
    /// Makes a checkpoint and opens it.
    Checkpoint,
    /// Closes and opens the store.
    Reopen,
    /// Lets time pass, milliseconds.
    Advance(u64),
}

/// What had been promised when the log had a length.
#[derive(Clone, Debug)]
struct Promise {
    /// Persistence points before the acknowledgement.
    point: usize,
    /// Moment of the model.
    moment: u64,
    /// Level.
    durability: Durability,
}

/// How many images were opened, and what was wrong with the first bad one.
#[derive(Debug, Default)]
pub struct Tally {
    /// Images opened.
    pub images: u64,
    /// Persistence points met.
    pub points: u64,
}

/// A scenario's run on a crash-simulating device.
pub struct Scenario<'a> {
    /// Its name in messages.
    pub name: String,
    /// Its steps.
    pub steps: Vec<Step>,
    /// Options for a store on these devices. Called for the run and for every image.
    pub options: &'a dyn Fn(Arc<CrashStorage>, Arc<ManualClock>, Arc<ManualExecutor>) -> Options,
}

struct Recorded {
    log: CrashLog,
    oracles: Vec<Oracle>,
    promises: Vec<Promise>,
    clock: Arc<ManualClock>,
}

fn failed(what: &str) -> impl Fn(kelvin::Error) -> String + '_ {
    move |error| format!("{what} failed: {error}")
}

impl Scenario<'_> {
    fn open(
        &self,
        device: &Arc<CrashStorage>,
        clock: &Arc<ManualClock>,
        executor: &Arc<ManualExecutor>,
    ) -> kelvin::Result<Db> {
        Db::open((self.options)(Arc::clone(device), Arc::clone(clock), Arc::clone(executor)))
    }

    fn record(&self) -> Result<Recorded, String> {
        let device = Arc::new(CrashStorage::new());
        let clock = Arc::new(ManualClock::new(1_000_000));
        let executor = Arc::new(ManualExecutor::new());
        let mut oracle = Oracle::default();
        oracle.create("default");
        let mut oracles = vec![oracle.clone()];
        let mut promises = Vec::new();
        let mut db = self.open(&device, &clock, &executor).map_err(failed("open"))?;
        promises.push(Promise { point: device.log().points(), moment: 0, durability: Durability::Sync });
        for step in &self.steps {
            let before = oracle.moment();
            db = self.apply(step, db, &device, &clock, &executor, &mut oracle)?;
            while oracles.len() as u64 <= oracle.moment() {
                oracles.push(oracle.clone());
            }
            if oracle.moment() > before {
                let durability = match step {
                    Step::Commit(_, durability) => *durability,
                    _ => Durability::Sync,
                };
                promises.push(Promise { point: device.log().points(), moment: oracle.moment(), durability });
            }
        }
        executor.run_all();
        db.close().map_err(failed("close"))?;
        Ok(Recorded { log: device.log(), oracles, promises, clock })
    }

    fn apply(
        &self,
        step: &Step,
        db: Db,
        device: &Arc<CrashStorage>,
        clock: &Arc<ManualClock>,
        executor: &Arc<ManualExecutor>,
        oracle: &mut Oracle,
    ) -> Result<Db, String> {
        match step {
            Step::Commit(writes, durability) => {
                commit(&db, writes, *durability)?;
                oracle.commit(writes);
            }
            Step::Flush => db.flush().map_err(failed("flush"))?,
            Step::CompactAll => db.compact_range(None, None).map_err(failed("compact_range"))?,
            Step::Background => executor.run_all(),
            Step::CreateKeyspace(name) => {
                db.keyspace(name).map_err(failed("keyspace"))?;
                oracle.create(name);
                oracle.commit(&[]);
            }
            Step::DropKeyspace(name) => {
                db.drop_keyspace(name).map_err(failed("drop_keyspace"))?;
                oracle.drop_keyspace(name);
                oracle.commit(&[]);
            }
            Step::Checkpoint => {
                let (fast, slow) = (Path::new("/checkpoint/fast"), Path::new("/checkpoint/slow"));
                let slow = db.config().slow_dir.is_some().then_some(slow);
                db.checkpoint(fast, slow).map_err(failed("checkpoint"))?;
            }
            Step::Reopen => {
                db.close().map_err(failed("close"))?;
                executor.run_all();
                return self.open(device, clock, executor).map_err(failed("reopen"));
            }
            Step::Advance(ms) => clock.advance(std::time::Duration::from_millis(*ms)),
        }
        Ok(db)
    }

    /// Runs the scenario, then opens `images` states of every `stride`-th persistence point.
    ///
    /// # Errors
    /// The first image that breaks a promise, with all that is needed to make it again.
    pub fn run(&self, images: u64, stride: usize, seed: u64) -> Result<Tally, String> {
        let recorded = self.record().map_err(|what| format!("{}: {what}", self.name))?;
        let mut tally = Tally { images: 0, points: recorded.log.points() as u64 };
        let offset = usize::try_from(seed).unwrap_or(0) % stride.max(1);
        for point in (offset..=recorded.log.points()).step_by(stride.max(1)) {
            for index in 0..images {
                let image_seed = seed.wrapping_mul(0x9e37_79b9).wrapping_add(index);
                // The first image keeps everything, the second nothing unsynced, the rest are random.
                let model = match index {
                    0 => Model::KeepAll,
                    1 => Model::DropUnsynced,
                    _ => Model::ALL_RANDOM[usize::try_from(index).unwrap_or(0) % Model::ALL_RANDOM.len()],
                };
                let image = Arc::new(recorded.log.image(point, image_seed, model));
                self.check(&recorded, point, model, &image).map_err(|what| {
                    format!(
                        "{}: power lost after point {point} of {}, {model:?}, image seed {image_seed}: {what}\nsteps: {:?}",
                        self.name,
                        recorded.log.points(),
                        self.steps
                    )
                })?;
                tally.images += 1;
            }
        }
        Ok(tally)
    }

    fn check(
        &self,
        recorded: &Recorded,
        point: usize,
        model: Model,
        image: &Arc<CrashStorage>,
    ) -> Result<(), String> {
        let executor = Arc::new(ManualExecutor::new());
        let db = self.open(image, &recorded.clock, &executor).map_err(failed("opening the image"))?;
        let held = |promise: &&Promise| {
            promise.point <= point
                && (promise.durability == Durability::Sync
                    || (model == Model::KeepAll && promise.durability == Durability::Os))
        };
        let at_least = recorded.promises.iter().filter(held).map(|promise| promise.moment).max().unwrap_or(0);
        let state = read_all(&db)?;
        let now_ms = kelvin_base::Clock::unix_millis(&*recorded.clock);
        let prefix = recorded.oracles.iter().rev().find(|oracle| state_of(oracle, now_ms) == state);
        match prefix {
            None => return Err(format!("the state is no prefix of the commit order: {state:?}")),
            Some(oracle) if oracle.moment() < at_least => {
                return Err(format!(
                    "the state is that of moment {}, moment {at_least} was acknowledged",
                    oracle.moment()
                ));
            }
            Some(_) => {}
        }
        db.put(b"after", b"the crash").map_err(failed("a write after recovery"))?;
        executor.run_all();
        let after = db.get(b"after").map_err(failed("a read after recovery"))?;
        if after.as_deref() != Some(b"the crash".as_slice()) {
            return Err(format!("a write after recovery reads back as {after:?}"));
        }
        db.close().map_err(failed("closing the image"))
    }
}

fn commit(db: &Db, writes: &[Write], durability: Durability) -> Result<(), String> {
    let mut batch = WriteBatch::new();
    for write in writes {
        let (Write::Put { keyspace, .. } | Write::Delete { keyspace, .. } | Write::DeleteRange { keyspace, .. }) =
            write;
        let id = db.keyspace(keyspace).map_err(failed("keyspace"))?.id();
        match write {
            Write::Put { key, value, expiry_ms: None, .. } => batch.put(id, key, value),
            Write::Put { key, value, expiry_ms: Some(expiry_ms), .. } => {
                batch.put_expiring(id, key, value, *expiry_ms)
            }
            Write::Delete { key, .. } => batch.delete(id, key),
            Write::DeleteRange { start, end, .. } => batch.delete_range(id, start, end),
        }
        .map_err(failed("adding to a batch"))?;
    }
    db.write(batch, &WriteOptions { durability: Some(durability), ttl: None }).map_err(failed("write"))
}

/// Keyspace, then its pairs.
type State = Vec<(String, Vec<(Vec<u8>, Vec<u8>)>)>;

fn state_of(oracle: &Oracle, now_ms: u64) -> State {
    let pairs = |name: &String| {
        oracle.keyspace(name).map(|history| history.scan(None, None, oracle.moment(), now_ms)).unwrap_or_default()
    };
    oracle.names().into_iter().map(|name| (name.clone(), pairs(&name))).collect()
}

fn read_all(db: &Db) -> Result<State, String> {
    let mut state = Vec::new();
    for name in db.keyspaces() {
        let space = db.keyspace(&name).map_err(failed("keyspace"))?;
        let mut iter = space.iter(IterOptions::default()).map_err(failed("iter"))?;
        let mut pairs = Vec::new();
        iter.seek_to_first().map_err(failed("seek_to_first"))?;
        while iter.valid() {
            pairs.push((iter.key().to_vec(), iter.value().to_vec()));
            iter.next().map_err(failed("next"))?;
        }
        for (key, value) in &pairs {
            let got = space.get(key).map_err(failed("get"))?;
            if got.as_deref() != Some(value.as_slice()) {
                return Err(format!("get and scan disagree on {key:?}"));
            }
        }
        state.push((name, pairs));
    }
    Ok(state)
}
