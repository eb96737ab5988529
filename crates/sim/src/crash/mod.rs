//! Cuts the power at every persistence point of a scenario and opens what is left.
//!
//! A scenario runs once on one [`CrashStorage`] that holds both tiers, so one log remembers every state-changing
//! operation in order. For every point, several images of what a power loss may leave are opened ([`image`]):
//! - opening succeeds and everything is readable (promise 5);
//! - the records are those of one moment of the commit order, no older than the last write acknowledged at `Sync`,
//!   or at `Os` where everything handed to the operating system was kept (promises 1, 2);
//! - keyspaces are those of one moment of their own order (they are the manifest's, not the log's);
//! - an acknowledged checkpoint opens and holds the moment it was made at;
//! - the store takes writes again, and after another opening no orphan is left;
//! - the same holds if the power fails again during that recovery.
//!
//! [`scenarios`] lists what is run. Tests: `tests/crash.rs`.

pub mod image;
pub mod scenarios;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kelvin::{Db, Durability, Env, Options, WriteBatch, WriteOptions};
use kelvin_base::{Clock, Executor, ManualClock};
use kelvin_lsm::compaction::pick::Forced;
use kelvin_storage::crash::{CrashLog, CrashModel, CrashStorage, FileSystem};

use crate::checks::said_by;
use crate::executor::SimExecutor;
use crate::oracle::{Oracle, Write};

/// A step of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Commits a batch at a durability; keyspaces it names are made first if need be.
    Commit(Vec<Write>, Durability),
    /// Loads puts of different keys, in any order, into a new keyspace at once.
    BulkLoad(Vec<Write>),
    /// Makes everything committed survive power loss.
    Sync,
    /// Flushes the keyspace "default".
    Flush,
    /// Compacts everything to the last level (the slow tier, if there is one).
    CompactAll,
    /// Reads records of the keyspace "default" so often: the hot-key tracker writes them down, those of the slow tier are promoted.
    Read(usize),
    /// Begins a compaction of the keyspace "default" that is not due.
    Force(Forced),
    /// Runs so many queued background jobs, the last queued first.
    Background(usize),
    /// Makes a keyspace.
    CreateKeyspace(String),
    /// Drops a keyspace, if it is there.
    DropKeyspace(String),
    /// Makes a checkpoint.
    Checkpoint,
    /// Closes and opens the store.
    Reopen,
    /// Lets time pass, milliseconds.
    Advance(u64),
}

/// Where one tier's store lies, and how it is set up.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Its name in messages.
    pub name: &'static str,
    /// It has a slow tier.
    pub tiered: bool,
    /// Changes of the options.
    pub change: fn(Options) -> Options,
}

const FAST: &str = "/fast";
const SLOW: &str = "/slow";
const START_MS: u64 = 1_000_000;

impl Setup {
    fn options(&self, dirs: &Dirs, world: &World) -> Options {
        let options = Options::new(&dirs.fast).compression(kelvin::CompressionChoice::None).memory(8 << 20);
        let options = match &dirs.slow {
            Some(slow) => options.slow(slow).fast_capacity(1 << 20),
            None => options,
        };
        let options = options.advanced(|a| {
            a.memtable_bytes = Some(16 << 10);
            a.table_bytes = Some(16 << 10);
            a.fast_block_bytes = Some(512);
            a.slow_block_bytes = Some(512);
        });
        (self.change)(options).env(world.env())
    }

    fn dirs(&self) -> Dirs {
        Dirs { fast: FAST.into(), slow: self.tiered.then(|| SLOW.into()) }
    }

    fn checkpoint_dirs(&self, number: usize) -> Dirs {
        let dir = |tier| PathBuf::from(format!("/copies/{number}-{tier}"));
        Dirs { fast: dir("fast"), slow: self.tiered.then(|| dir("slow")) }
    }
}

/// The directories of a store.
#[derive(Clone, Debug)]
struct Dirs {
    fast: PathBuf,
    slow: Option<PathBuf>,
}

/// What a store runs in: one disk for both tiers, time, and background work.
struct World {
    disk: Arc<CrashStorage>,
    clock: Arc<ManualClock>,
    executor: Arc<SimExecutor>,
}

impl World {
    fn new(disk: CrashStorage, clock: Arc<ManualClock>) -> Self {
        Self { disk: Arc::new(disk), clock, executor: Arc::default() }
    }

    fn env(&self) -> Env {
        Env {
            fast: Arc::clone(&self.disk) as _,
            slow: Arc::clone(&self.disk) as _,
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            executor: Arc::clone(&self.executor) as Arc<dyn Executor>,
            seed: 7,
        }
    }
}

/// What had been promised when the log had a length.
#[derive(Clone, Copy, Debug)]
struct Promise {
    /// Persistence points before the acknowledgement.
    point: usize,
    /// What is promised.
    what: Promised,
}

#[derive(Clone, Copy, Debug)]
enum Promised {
    /// The commit of this moment, at this level.
    Moment(u64, Durability),
    /// This many changes of keyspaces.
    Generation(usize),
    /// This checkpoint, of this generation and moment.
    Checkpoint(usize, usize, u64),
}

/// What was opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Scenarios run.
    pub scenarios: u64,
    /// Persistence points met.
    pub points: u64,
    /// Images opened, those of a second power loss during recovery included.
    pub images: u64,
    /// Of these, of a second power loss.
    pub in_recovery: u64,
    /// Bytes that scenarios promoted by flush, promoted by compaction, and retained.
    pub moved_bytes: [u64; 3],
}

impl Tally {
    /// Adds `other`.
    pub fn add(&mut self, other: Self) {
        self.scenarios += other.scenarios;
        self.points += other.points;
        self.images += other.images;
        self.in_recovery += other.in_recovery;
        self.moved_bytes.iter_mut().zip(other.moved_bytes).for_each(|(sum, bytes)| *sum += bytes);
    }
}

/// Which points and images of a scenario are opened.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// Decides everything random.
    pub seed: u64,
    /// One of so many points.
    pub stride: usize,
    /// Images of each point.
    pub images: u64,
    /// In one of so many images the power fails again during recovery; 0 for never.
    pub again_every: u64,
}

/// Where the power fails in a scenario, and what that leaves.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// After which point; of those there are, modulo.
    pub point: usize,
    /// Which kind of image: all kept, all lost, or chosen.
    pub image: u64,
    /// Chooses what is kept.
    pub seed: u64,
    /// The power fails again during recovery.
    pub again: bool,
}

/// Images that a full run opens, about: with it a budget is turned into a stride.
const FULL_IMAGES: u64 = 730_000;

/// A sampling that opens about `budget` images of all sequences and long scenarios; all without one.
#[must_use]
pub fn sampling(seed: u64, budget: Option<u64>) -> Sampling {
    let stride = budget.map_or(1, |budget| FULL_IMAGES.div_ceil(budget.max(1)));
    Sampling { seed, stride: usize::try_from(stride).unwrap_or(1), images: 5, again_every: 7 }
}

/// Steps to run on a setup.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name in messages.
    pub name: String,
    /// Where.
    pub setup: Setup,
    /// What.
    pub steps: Vec<Step>,
    /// Points before this step are left to another scenario that begins alike.
    pub from_step: usize,
}

/// A run and what it promised.
struct Recorded {
    log: CrashLog,
    /// First point to look at.
    from: usize,
    /// The model as each generation of keyspaces ended; the last is the present one.
    generations: Vec<Oracle>,
    promises: Vec<Promise>,
    clock: Arc<ManualClock>,
    moved_bytes: [u64; 3],
}

fn failed(what: &str) -> impl Fn(kelvin::Error) -> String + '_ {
    move |error| format!("{what} failed: {error}")
}

/// The images of a point: everything kept, nothing kept, then chosen ones on every file system.
fn model_of(index: u64) -> CrashModel {
    let systems = [FileSystem::ReorderAll, FileSystem::Ordered, FileSystem::Writeback];
    match index {
        0 => CrashModel::KEPT,
        1 => CrashModel::LOST,
        _ => CrashModel::chosen(systems[usize::try_from(index % 3).unwrap_or(0)]),
    }
}

/// A write in few words.
fn told(write: &Write) -> String {
    match write {
        Write::Put { keyspace, key, value, expiry_ms } => {
            let head = &value[..value.len().min(10)];
            let (key, head) = (key.escape_ascii(), head.escape_ascii());
            format!("{keyspace}: {key}={head} ({} bytes, expiry {expiry_ms:?})", value.len())
        }
        Write::Delete { keyspace, key } => format!("{keyspace}: delete {}", key.escape_ascii()),
        Write::DeleteRange { keyspace, start, end } => {
            format!("{keyspace}: delete {}..{}", start.escape_ascii(), end.escape_ascii())
        }
    }
}

impl Scenario {
    /// The steps in few words.
    fn told(&self) -> String {
        let step = |step: &Step| match step {
            Step::Commit(writes, durability) => {
                format!("\n  {durability:?} {}", writes.iter().map(told).collect::<Vec<_>>().join("; "))
            }
            other => format!("\n  {other:?}"),
        };
        self.steps.iter().map(step).collect()
    }

    fn record(&self) -> Result<Recorded, String> {
        self.record_steps().map_err(|what| format!("{}: {what}\nsteps: {}", self.name, self.told()))
    }

    fn record_steps(&self) -> Result<Recorded, String> {
        let world = World::new(CrashStorage::new(), Arc::new(ManualClock::new(START_MS)));
        let mut recording = Recording::new(self.setup, &world)?;
        let mut from = if self.from_step == 0 { 0 } else { usize::MAX };
        for (index, step) in self.steps.iter().enumerate() {
            if index == self.from_step && index > 0 {
                from = world.disk.points();
            }
            recording.apply(step).map_err(|what| format!("step {index}, {step:?}: {what}"))?;
        }
        recording.close()?;
        let Recording { mut generations, oracle, promises, moved_bytes, .. } = recording;
        generations.push(oracle);
        Ok(Recorded { log: world.disk.log(), from, generations, promises, clock: world.clock, moved_bytes })
    }

    /// As [`Self::run`], with a panic told like a broken promise.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_caught(&self, sampling: Sampling) -> Result<Tally, String> {
        std::panic::catch_unwind(|| self.run(sampling)).unwrap_or_else(|panic| {
            Err(format!("{}: a panic: {}\nsteps: {}", self.name, said_by(&*panic), self.told()))
        })
    }

    /// Runs the scenario, then opens images as `sampling` says.
    ///
    /// # Errors
    /// The first image that breaks a promise, with all that is needed to make it again.
    pub fn run(&self, sampling: Sampling) -> Result<Tally, String> {
        let recorded = self.record()?;
        let points = recorded.log.points();
        let from = recorded.from.min(points);
        let moved_bytes = recorded.moved_bytes;
        let points_met = (points + 1 - from) as u64;
        let mut tally = Tally { scenarios: 1, points: points_met, moved_bytes, ..Tally::default() };
        let stride = sampling.stride.max(1);
        let own = kelvin_base::hash::hash64_seeded(sampling.seed, self.name.as_bytes());
        let offset = usize::try_from(own % stride as u64).unwrap_or(0);
        for point in (from + offset..=points).step_by(stride) {
            for index in 0..sampling.images {
                let seed = sampling.seed.wrapping_mul(0x9e37_79b9).wrapping_add(point as u64 * 31 + index);
                let again = sampling.again_every > 0 && seed.is_multiple_of(sampling.again_every);
                tally.add(self.check(&recorded, Cut { point, image: index, seed, again })?);
            }
        }
        Ok(tally)
    }

    /// Runs the scenario and opens what `cut` leaves.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_cut(&self, cut: Cut) -> Result<Tally, String> {
        let recorded = self.record()?;
        let point = cut.point % (recorded.log.points() + 1);
        self.check(&recorded, Cut { point, ..cut })
    }

    fn check(&self, recorded: &Recorded, cut: Cut) -> Result<Tally, String> {
        let checked = image::check(self.setup, recorded, cut);
        let in_recovery = checked.map_err(|what| {
            let (Cut { point, seed, .. }, points) = (cut, recorded.log.points());
            format!(
                "{}: power lost after point {point} of {points}, {:?}, image seed {seed}: {what}\nsteps: {}",
                self.name,
                model_of(cut.image),
                self.told()
            )
        })?;
        Ok(Tally { images: 1 + in_recovery, in_recovery, ..Tally::default() })
    }
}

/// A scenario being run.
struct Recording<'a> {
    setup: Setup,
    world: &'a World,
    db: Option<Db>,
    oracle: Oracle,
    generations: Vec<Oracle>,
    promises: Vec<Promise>,
    checkpoints: usize,
    moved_bytes: [u64; 3],
    /// The last moment that wrote "default": a flush makes it durable.
    default_moment: u64,
}

impl<'a> Recording<'a> {
    fn new(setup: Setup, world: &'a World) -> Result<Self, String> {
        let mut oracle = Oracle::default();
        oracle.create("default");
        let db = Db::open(setup.options(&setup.dirs(), world)).map_err(failed("open"))?;
        let (generations, promises) = (Vec::new(), Vec::new());
        let mut recording = Self {
            setup,
            world,
            db: Some(db),
            oracle,
            generations,
            promises,
            checkpoints: 0,
            moved_bytes: [0; 3],
            default_moment: 0,
        };
        recording.promise(Promised::Generation(0));
        Ok(recording)
    }

    fn promise(&mut self, what: Promised) {
        self.promises.push(Promise { point: self.world.disk.points(), what });
    }

    fn db(&self) -> Result<&Db, String> {
        self.db.as_ref().ok_or_else(|| "the store is closed".to_string())
    }

    fn apply(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Commit(writes, durability) => self.commit(writes, *durability),
            Step::BulkLoad(writes) => self.bulk_load(writes),
            Step::Sync => {
                self.db()?.sync().map_err(failed("sync"))?;
                self.promise(Promised::Moment(self.oracle.moment(), Durability::Sync));
                Ok(())
            }
            Step::Flush => {
                self.db()?.flush().map_err(failed("flush"))?;
                self.promise(Promised::Moment(self.default_moment, Durability::Sync));
                Ok(())
            }
            Step::CompactAll => self.db()?.compact_range(None, None).map_err(failed("compact_range")),
            Step::Read(times) => self.read(*times),
            Step::Force(what) => {
                // Whether there was anything to begin is no matter.
                let _begun = self.db()?.force(*what, 0);
                Ok(())
            }
            Step::Background(jobs) => {
                (0..*jobs).for_each(|_| {
                    let last = self.world.executor.jobs().queued().saturating_sub(1);
                    self.world.executor.jobs().run_nth(last);
                });
                Ok(())
            }
            Step::CreateKeyspace(name) => self.create(name),
            Step::DropKeyspace(name) => self.drop_keyspace(name),
            Step::Checkpoint => self.checkpoint(),
            Step::Reopen => {
                self.close()?;
                let options = self.setup.options(&self.setup.dirs(), self.world);
                self.db = Some(Db::open(options).map_err(failed("reopen"))?);
                Ok(())
            }
            Step::Advance(ms) => {
                self.world.clock.advance(Duration::from_millis(*ms));
                Ok(())
            }
        }
    }

    fn commit(&mut self, writes: &[Write], durability: Durability) -> Result<(), String> {
        for write in writes {
            self.create(keyspace_of(write))?;
        }
        write_batch(self.db()?, writes, durability)?;
        self.oracle.commit(writes);
        if writes.iter().any(|write| keyspace_of(write) == "default") {
            self.default_moment = self.oracle.moment();
        }
        self.promise(Promised::Moment(self.oracle.moment(), durability));
        Ok(())
    }

    fn bulk_load(&mut self, writes: &[Write]) -> Result<(), String> {
        let Some(keyspace) = writes.first().map(keyspace_of) else { return Ok(()) };
        self.create(keyspace)?;
        try_bulk_load(self.db()?, writes).map_err(failed("bulk_load"))?;
        self.oracle.commit(writes);
        self.promise(Promised::Moment(self.oracle.moment(), Durability::Sync));
        Ok(())
    }

    fn read(&self, times: usize) -> Result<(), String> {
        let db = self.db()?;
        for _ in 0..times {
            for index in 0..4 {
                db.get(format!("key{index}").as_bytes()).map_err(failed("get"))?;
            }
            for index in (0..40).step_by(3) {
                db.get(format!("bulk{index:03}").as_bytes()).map_err(failed("get"))?;
            }
        }
        Ok(())
    }

    fn create(&mut self, name: &str) -> Result<(), String> {
        if self.oracle.keyspace(name).is_some() {
            return Ok(());
        }
        self.db()?.keyspace(name).map_err(failed("keyspace"))?;
        self.generations.push(self.oracle.clone());
        self.oracle.create(name);
        self.promise(Promised::Generation(self.generations.len()));
        Ok(())
    }

    fn drop_keyspace(&mut self, name: &str) -> Result<(), String> {
        if self.oracle.keyspace(name).is_none() {
            return Ok(());
        }
        self.db()?.drop_keyspace(name).map_err(failed("drop_keyspace"))?;
        self.generations.push(self.oracle.clone());
        self.oracle.drop_keyspace(name);
        self.promise(Promised::Generation(self.generations.len()));
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), String> {
        let dirs = self.setup.checkpoint_dirs(self.checkpoints);
        self.db()?.checkpoint(&dirs.fast, dirs.slow.as_deref()).map_err(failed("checkpoint"))?;
        self.promise(Promised::Checkpoint(self.checkpoints, self.generations.len(), self.oracle.moment()));
        self.checkpoints += 1;
        Ok(())
    }

    /// Closes the store, which hands everything to the operating system.
    fn close(&mut self) -> Result<(), String> {
        if let Some(db) = self.db.take() {
            let moved = db.stats().boundary;
            let moved = [moved.flushed_bytes, moved.promoted_bytes, moved.retained_bytes];
            self.moved_bytes.iter_mut().zip(moved).for_each(|(sum, bytes)| *sum += bytes);
            db.close().map_err(failed("close"))?;
            self.promise(Promised::Moment(self.oracle.moment(), Durability::Os));
        }
        self.world.executor.run_all();
        Ok(())
    }
}

/// The keyspace a write names.
pub(crate) fn keyspace_of(write: &Write) -> &str {
    let (Write::Put { keyspace, .. } | Write::Delete { keyspace, .. } | Write::DeleteRange { keyspace, .. }) =
        write;
    keyspace
}

/// Commits `writes` as one batch.
pub(crate) fn write_batch(db: &Db, writes: &[Write], durability: Durability) -> Result<(), String> {
    try_batch(db, writes, durability).map_err(failed("write"))
}

/// Commits `writes` as one batch; the store's error as it is.
pub(crate) fn try_batch(db: &Db, writes: &[Write], durability: Durability) -> kelvin::Result<()> {
    let mut batch = WriteBatch::new();
    for write in writes {
        let id = db.keyspace(keyspace_of(write))?.id();
        match write {
            Write::Put { key, value, expiry_ms: None, .. } => batch.put(id, key, value),
            Write::Put { key, value, expiry_ms: Some(expiry_ms), .. } => {
                batch.put_expiring(id, key, value, *expiry_ms)
            }
            Write::Delete { key, .. } => batch.delete(id, key),
            Write::DeleteRange { start, end, .. } => batch.delete_range(id, start, end),
        }?;
    }
    db.write(batch, &WriteOptions { durability: Some(durability), ttl: None })
}

/// Loads `writes`, puts of different keys of one keyspace, at once; the store's error as it is.
pub(crate) fn try_bulk_load(db: &Db, writes: &[Write]) -> kelvin::Result<()> {
    let Some(keyspace) = writes.first().map(keyspace_of) else { return Ok(()) };
    let mut puts: Vec<_> = writes
        .iter()
        .filter_map(|write| match write {
            Write::Put { key, value, expiry_ms, .. } => Some((key, value, *expiry_ms)),
            Write::Delete { .. } | Write::DeleteRange { .. } => None,
        })
        .collect();
    puts.sort_unstable();
    let load = |load: &mut kelvin::BulkLoad<'_, '_>| {
        puts.iter().try_for_each(|(key, value, expiry_ms)| match expiry_ms {
            None => load.put(key, value),
            Some(expiry_ms) => load.put_expiring(key, value, *expiry_ms),
        })
    };
    db.keyspace(keyspace)?.bulk_load(load).map(drop)
}

/// The path of a directory, for errors and lists.
fn show(dir: &Path) -> String {
    dir.display().to_string()
}
