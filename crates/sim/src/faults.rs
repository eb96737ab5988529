//! Lets every single I/O of a script fail in turn (RELIABILITY T8).
//!
//! The script runs once to count the I/Os, then once for each index and kind of failure, and goes on after errors.
//! Whatever fails: no panic and no endless wait; a read never answers wrong, or "not found" instead of an error (promise
//! 4); with the device well again the open store reads everything, and takes writes unless it said it is
//! read-only; reopened it holds every acknowledged write, is undamaged, and takes writes.
//! Tests: `tests/faults.rs`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kelvin::{Db, Durability, Env, Error, ErrorKind, HotParts, Hotness, IterOptions, Options};
use kelvin_base::{Clock, Executor, ManualClock};
use kelvin_lsm::compaction::pick::Forced;
use kelvin_storage::fault::{EIO, ENOSPC, Effect, FaultStorage, Op, Rule};
use kelvin_storage::memory::MemoryStorage;

use crate::crash::try_batch;
use crate::executor::SimExecutor;
use crate::oracle::{Oracle, Write};

/// What a script does.
#[derive(Clone, Debug)]
pub enum Act {
    /// Commits a batch to "default".
    Commit(Vec<Write>, Durability),
    /// Flushes.
    Flush,
    /// Compacts everything to the last level.
    Compact,
    /// Makes a checkpoint.
    Checkpoint,
    /// Closes and opens the store.
    Reopen,
    /// Reads everything, by get and by iterators both ways.
    Read,
    /// Runs the queued background work.
    Background,
    /// Begins a compaction that is not due.
    Force(Forced),
}

/// Which device fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The fast tier.
    Fast,
    /// The slow tier.
    Slow,
}

/// How it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// One operation of any kind: an input/output error.
    Once,
    /// Twenty operations in a row: input/output errors.
    Burst,
    /// Five operations in a row: no space.
    NoSpace,
    /// One append: a part is written.
    ShortWrite,
    /// One append: a part reaches the disk.
    TornWrite,
    /// One sync of a file.
    Sync,
    /// One sync of a directory.
    SyncDir,
    /// One read ends early.
    ShortRead,
    /// One read of a table answers a wrong bit.
    FlippedBit,
}

impl Failure {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::Once,
        Self::Burst,
        Self::NoSpace,
        Self::ShortWrite,
        Self::TornWrite,
        Self::Sync,
        Self::SyncDir,
        Self::ShortRead,
        Self::FlippedBit,
    ];

    /// The operations it may hit, and its rule for the `index`-th of them.
    fn rule(self, index: u64) -> Rule {
        let rule = match self {
            Self::Once => Rule::any(Effect::Error(EIO)).times(1),
            Self::Burst => Rule::any(Effect::Error(EIO)).times(20),
            Self::NoSpace => Rule::any(Effect::Error(ENOSPC)).times(5),
            Self::ShortWrite => Rule::new(Op::Append, Effect::ShortWrite).times(1),
            Self::TornWrite => Rule::new(Op::Append, Effect::TornWrite).times(1),
            Self::Sync => Rule::new(Op::Sync, Effect::Error(EIO)).times(1),
            Self::SyncDir => Rule::new(Op::SyncDir, Effect::Error(EIO)).times(1),
            Self::ShortRead => Rule::new(Op::Read, Effect::ShortRead).times(1),
            Self::FlippedBit => Rule::new(Op::Read, Effect::FlipBit).on("*.tbl").times(1),
        };
        rule.after(index)
    }

    /// How many operations of `device` it may have hit so far.
    fn chances(self, device: &FaultStorage) -> u64 {
        match self {
            Self::Once | Self::Burst | Self::NoSpace => device.operations(),
            Self::ShortWrite | Self::TornWrite => device.operations_of(Op::Append),
            Self::Sync => device.operations_of(Op::Sync),
            Self::SyncDir => device.operations_of(Op::SyncDir),
            Self::ShortRead | Self::FlippedBit => device.operations_of(Op::Read),
        }
    }
}

/// A script and where it runs.
#[derive(Clone, Debug)]
pub struct Script {
    /// Its name in messages.
    pub name: &'static str,
    /// It has a slow tier.
    pub tiered: bool,
    /// What is read from the slow tier is promoted every few reads.
    pub promotes: bool,
    /// What it does.
    pub acts: Vec<Act>,
}

struct World {
    fast: Arc<FaultStorage>,
    slow: Arc<FaultStorage>,
    clock: Arc<ManualClock>,
    executor: Arc<SimExecutor>,
    tiered: bool,
    promotes: bool,
}

impl World {
    fn new(script: &Script) -> Self {
        let device = |seed| Arc::new(FaultStorage::new(Arc::new(MemoryStorage::new()), seed));
        Self {
            fast: device(1),
            slow: device(2),
            clock: Arc::new(ManualClock::new(1_000_000)),
            executor: Arc::default(),
            tiered: script.tiered,
            promotes: script.promotes,
        }
    }

    const fn device(&self, victim: Victim) -> &Arc<FaultStorage> {
        match victim {
            Victim::Fast => &self.fast,
            Victim::Slow => &self.slow,
        }
    }

    fn options(&self) -> Options {
        let options = Options::new("/fast").compression(kelvin::CompressionChoice::None).memory(8 << 20);
        let options = if self.tiered { options.slow("/slow").fast_capacity(1 << 20) } else { options };
        let options = options.advanced(|a| {
            a.memtable_bytes = Some(16 << 10);
            a.table_bytes = Some(16 << 10);
            a.fast_block_bytes = Some(512);
            a.slow_block_bytes = Some(512);
            if self.promotes {
                a.hotness = Some(Hotness::Oracle);
                a.hot_parts = HotParts { hotness_check: false, ..HotParts::default() };
                a.promotion_bytes = Some(2 << 10);
            }
        });
        options.env(Env {
            fast: Arc::clone(&self.fast) as _,
            slow: Arc::clone(&self.slow) as _,
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            executor: Arc::clone(&self.executor) as Arc<dyn Executor>,
            seed: 7,
        })
    }
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn wrong(what: impl fmt::Display) -> impl FnOnce(Error) -> String {
    move |error| format!("{what} failed though the devices are well: {error}")
}

struct Session<'a> {
    world: &'a World,
    db: Option<Db>,
    oracle: Oracle,
    /// What a reopening may find instead: commits of unknown outcome since the last acknowledged one.
    doubtful: Vec<Oracle>,
    checkpoints: usize,
    refused: u64,
}

impl<'a> Session<'a> {
    fn new(world: &'a World) -> Self {
        let mut oracle = Oracle::default();
        oracle.create("default");
        Self { world, db: None, oracle, doubtful: Vec::new(), checkpoints: 0, refused: 0 }
    }

    fn open(&mut self) -> Result<Db, Outcome> {
        if let Some(db) = &self.db {
            return Ok(db.clone());
        }
        let db = Db::open(self.world.options()).map_err(Outcome::Refused)?;
        self.db = Some(db.clone());
        let settled = self.settle_doubt(&db);
        if settled.is_err() {
            // What could not be read is found out at the next opening.
            let _told = self.close();
        }
        settled.map(|()| db)
    }

    /// Finds out which of the refused writes a store just opened holds, if any.
    fn settle_doubt(&mut self, db: &Db) -> Result<(), Outcome> {
        let state = scan(db, false).map_err(Outcome::Refused)?;
        let allowed = std::iter::once(&self.oracle).chain(&self.doubtful).find(|one| pairs_of(one) == state);
        let Some(allowed) = allowed.cloned() else {
            let held = state.len();
            return Err(Outcome::Wrong(format!("reopened it holds {held} records, acknowledged are others")));
        };
        (self.oracle, self.doubtful) = (allowed, Vec::new());
        Ok(())
    }

    /// Does `act`; the store's errors are counted, wrong answers are not forgiven.
    fn act(&mut self, act: &Act) -> Result<(), String> {
        let outcome = self.open().and_then(|db| match act {
            Act::Commit(writes, durability) => self.commit(&db, writes, *durability),
            Act::Flush => db.flush().map_err(Outcome::Refused),
            Act::Compact => db.compact_range(None, None).map_err(Outcome::Refused),
            Act::Checkpoint => self.checkpoint(&db),
            Act::Read => self.read(&db),
            Act::Reopen => self.close().map_err(Outcome::Refused),
            Act::Background => {
                self.world.executor.run_all();
                Ok(())
            }
            Act::Force(what) => {
                // Whether there was anything to begin, and room for it, is no matter.
                let _begun = db.force(*what, 0);
                self.world.executor.run_all();
                Ok(())
            }
        });
        match outcome {
            Ok(()) => Ok(()),
            Err(Outcome::Wrong(what)) => Err(format!("{act:?}: {what}")),
            Err(Outcome::Refused(error)) if error.kind() == ErrorKind::InvalidArgument => {
                Err(format!("{act:?}: a device's failure was told as {error}"))
            }
            Err(Outcome::Refused(_)) => {
                self.refused += 1;
                Ok(())
            }
        }
    }

    fn commit(&mut self, db: &Db, writes: &[Write], durability: Durability) -> Result<(), Outcome> {
        let mut next = self.oracle.clone();
        next.commit(writes);
        match try_batch(db, writes, durability) {
            Ok(()) => {
                self.oracle = next;
                // What failed before is now behind the acknowledged one, so it did not happen.
                self.doubtful.clear();
                Ok(())
            }
            Err(error) => {
                self.doubtful.push(next);
                Err(Outcome::Refused(error))
            }
        }
    }

    fn checkpoint(&mut self, db: &Db) -> Result<(), Outcome> {
        self.checkpoints += 1;
        let dir = |tier| PathBuf::from(format!("/copies/{}-{tier}", self.checkpoints));
        let slow = self.world.tiered.then(|| dir("slow"));
        db.checkpoint(Path::new(&dir("fast")), slow.as_deref()).map_err(Outcome::Refused)
    }

    fn read(&self, db: &Db) -> Result<(), Outcome> {
        let expected = pairs_of(&self.oracle);
        for (key, value) in &expected {
            let got = db.get(key).map_err(Outcome::Refused)?;
            if got.as_deref() != Some(value.as_slice()) {
                return Err(Outcome::Wrong(format!("get of {} answers {got:?}", key.escape_ascii())));
            }
        }
        for backward in [false, true] {
            if scan(db, backward).map_err(Outcome::Refused)? != expected {
                return Err(Outcome::Wrong("a scan that met no error misses or adds records".into()));
            }
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), Error> {
        let closed = self.db.take().map_or(Ok(()), Db::close);
        self.world.executor.run_all();
        closed
    }

    /// With every device well again: the open store goes on; reopened it holds what was acknowledged.
    fn verify(&mut self) -> Result<(), String> {
        self.world.fast.clear();
        self.world.slow.clear();
        self.world.executor.settle();
        if self.db.is_some() {
            self.resumes()?;
        }
        // What keeps a read-only store from being closed well is told already.
        let _told = self.close();
        let db = self.open().map_err(|outcome| format!("reopening: {outcome}"))?;
        self.resumes().map_err(|what| format!("reopened: {what}"))?;
        let report = db.check();
        if let Some(file) = report.damaged_files().first() {
            return Err(format!("check finds damage: {:?}", file.damage));
        }
        drop(db);
        self.close().map_err(wrong("closing"))
    }

    /// The open store reads everything, and writes unless it is read-only.
    fn resumes(&mut self) -> Result<(), String> {
        let db = self.open().map_err(|outcome| format!("opening: {outcome}"))?;
        self.read(&db).map_err(|outcome| format!("reading with well devices: {outcome}"))?;
        let write = Write::Put {
            keyspace: "default".into(),
            key: b"resumed".to_vec(),
            value: vec![b'r'; 10],
            expiry_ms: None,
        };
        match self.commit(&db, &[write], Durability::Sync) {
            Ok(()) => {}
            Err(Outcome::Refused(error)) if error.kind() == ErrorKind::ReadOnly => return Ok(()),
            Err(outcome) => return Err(format!("a write with well devices: {outcome}")),
        }
        db.flush().map_err(wrong("flush"))?;
        db.wait_idle().map_err(wrong("wait_idle"))?;
        self.read(&db).map_err(|outcome| format!("reading after a flush with well devices: {outcome}"))
    }
}

/// What an act came to, if not to its end.
enum Outcome {
    Refused(Error),
    Wrong(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => write!(f, "refused with {error}"),
            Self::Wrong(what) => f.write_str(what),
        }
    }
}

fn pairs_of(oracle: &Oracle) -> Pairs {
    let history = oracle.keyspace("default");
    history.map(|history| history.scan(None, None, oracle.moment(), 0)).unwrap_or_default()
}

fn scan(db: &Db, backward: bool) -> Result<Pairs, Error> {
    let mut iter = db.iter(IterOptions::default())?;
    let mut pairs = Vec::new();
    if backward {
        iter.seek_to_last()?
    } else {
        iter.seek_to_first()?
    }
    while iter.valid() {
        pairs.push((iter.key().to_vec(), iter.value().to_vec()));
        if backward { iter.prev()? } else { iter.next()? }
    }
    if backward {
        pairs.reverse();
    }
    Ok(pairs)
}

fn one_run(script: &Script, fault: Option<(Victim, Rule)>) -> Result<(World, u64), String> {
    let world = World::new(script);
    if let Some((victim, rule)) = fault {
        world.device(victim).add(rule);
    }
    let mut session = Session::new(&world);
    for (index, act) in script.acts.iter().enumerate() {
        session.act(act).map_err(|what| format!("act {index}: {what}"))?;
    }
    let refused = session.refused;
    session.verify()?;
    drop(session);
    Ok((world, refused))
}

/// Runs `script` once for every `stride`-th I/O of `victim` that `failure` can hit. How many runs there were.
///
/// # Errors
/// The first run that broke a promise.
pub fn every_io_fails(
    script: &Script,
    victim: Victim,
    failure: Failure,
    stride: u64,
    offset: u64,
) -> Result<u64, String> {
    let (world, refused) = one_run(script, None).map_err(|what| format!("{}: {what}", script.name))?;
    if refused > 0 {
        return Err(format!("{}: {refused} acts fail on well devices", script.name));
    }
    let count = failure.chances(world.device(victim));
    let stride = stride.max(1);
    let mut runs = 0;
    let mut index = offset % stride;
    while index < count {
        let told = |what: String| {
            format!("{}: {failure:?} of I/O {index} of {count} on {victim:?}: {what}", script.name)
        };
        let run = std::panic::catch_unwind(|| one_run(script, Some((victim, failure.rule(index)))));
        match run {
            Ok(outcome) => drop(outcome.map_err(told)?),
            Err(panic) => {
                let what = panic.downcast_ref::<String>().cloned();
                let what = what.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
                return Err(told(format!("a panic: {}", what.unwrap_or_default())));
            }
        }
        runs += 1;
        index += stride;
    }
    Ok(runs)
}

fn put(index: usize) -> Write {
    Write::Put {
        keyspace: "default".into(),
        key: format!("key{:03}", index * 7 % 40).into_bytes(),
        value: format!("value {index:05} ").repeat(if index.is_multiple_of(5) { 60 } else { 6 }).into_bytes(),
        expiry_ms: None,
    }
}

fn puts(from: usize, count: usize, durability: Durability) -> Act {
    Act::Commit((from..from + count).map(put).collect(), durability)
}

/// The scripts.
#[must_use]
pub fn scripts() -> Vec<Script> {
    let delete = Act::Commit(
        vec![Write::DeleteRange {
            keyspace: "default".into(),
            start: b"key010".to_vec(),
            end: b"key014".to_vec(),
        }],
        Durability::Os,
    );
    let write = vec![
        puts(0, 3, Durability::Sync),
        puts(3, 3, Durability::Os),
        Act::Flush,
        puts(6, 3, Durability::Os),
        puts(9, 2, Durability::Os),
        Act::Read,
        Act::Reopen,
        Act::Read,
        puts(11, 2, Durability::Sync),
        Act::Read,
    ];
    let mut compact = vec![puts(0, 30, Durability::Os), Act::Flush, puts(30, 30, Durability::Os), delete];
    compact.extend([Act::Flush, Act::Compact, Act::Read, puts(60, 30, Durability::Os), Act::Background]);
    compact.extend([Act::Compact, Act::Read, Act::Reopen, Act::Read, Act::Compact, Act::Read]);
    let checkpoint = vec![
        puts(0, 20, Durability::Os),
        Act::Compact,
        puts(20, 20, Durability::Os),
        Act::Checkpoint,
        puts(40, 2, Durability::Sync),
        Act::Read,
        Act::Checkpoint,
        Act::Read,
    ];
    let fill: Vec<Act> =
        (0..24).map(|index| puts(index * 12, 12, Durability::Os)).chain([Act::Read]).collect();
    let mut all = Vec::new();
    for tiered in [false, true] {
        for (name, acts) in
            [("write", &write), ("compact", &compact), ("checkpoint", &checkpoint), ("fill", &fill)]
        {
            all.push(Script { name, tiered, promotes: false, acts: acts.clone() });
        }
    }
    all.push(Script { name: "promote", tiered: true, promotes: true, acts: promotions() });
    all
}

/// Records that go to the slow tier, come back as runs and by compactions, and are overwritten and deleted above.
fn promotions() -> Vec<Act> {
    let down = || [Act::Flush, Act::Force(Forced::Down), Act::Force(Forced::Boundary)];
    let delete = |key: &[u8]| Write::Delete { keyspace: "default".into(), key: key.to_vec() };
    let mut acts = vec![puts(0, 40, Durability::Os)];
    acts.extend(down());
    // Read and promoted, then read again from the runs.
    acts.extend([Act::Read, Act::Background, Act::Read, Act::Background]);
    acts.extend([puts(40, 8, Durability::Os), Act::Commit(vec![delete(b"key007")], Durability::Os)]);
    acts.extend(down());
    acts.extend([Act::Read, Act::Background, Act::Force(Forced::Runs), Act::Read, Act::Reopen, Act::Read]);
    acts.extend([Act::Background, Act::Checkpoint, Act::Compact, Act::Read]);
    acts
}
