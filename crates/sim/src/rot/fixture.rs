//! Small stores whose files are harmed: what lies on their device, and what they must answer.
//!
//! Each is made by the shipped code, step by step, the same each time for the same edition, which says what its values are filled with. What files
//! held after earlier steps is kept, so that they can be put back. Tests: `tests/rot.rs`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kelvin::{
    CompressionChoice, Db, Durability, Env, HotParts, Hotness, Options, Snapshot, WriteBatch, WriteOptions,
};
use kelvin_base::{Clock, ManualClock, ManualExecutor, Sequence, Tier};
use kelvin_lsm::compaction::pick::Forced;
use kelvin_storage::{MemoryStorage, Storage};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::files::{Bytes, list_all, read};
use crate::oracle::{Oracle, Write};

/// Where stores begin, Unix milliseconds.
const START_MS: u64 = 1_000_000;
/// Keys of the keyspace "default".
const KEYS: usize = 64;

/// The directories of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dirs {
    pub(super) fast: PathBuf,
    pub(super) slow: Option<PathBuf>,
}

/// How a store is made and opened.
#[derive(Clone, Copy)]
pub(super) struct Setup {
    pub(super) name: &'static str,
    edition: u64,
    tiered: bool,
    compression: CompressionChoice,
    /// It ends as a process that is killed, not closed.
    is_killed: bool,
    /// Its checkpoint is harmed, not itself.
    is_checkpoint: bool,
    /// Nothing lies in its logs only.
    is_flushed: bool,
}

/// All of them.
pub(super) const SETUPS: [Setup; 6] = [
    Setup {
        name: "one tier, flushed, killed",
        edition: 0,
        tiered: false,
        compression: CompressionChoice::Lz4,
        is_killed: true,
        is_checkpoint: false,
        is_flushed: true,
    },
    Setup {
        name: "one tier",
        edition: 0,
        tiered: false,
        compression: CompressionChoice::None,
        is_killed: false,
        is_checkpoint: false,
        is_flushed: false,
    },
    Setup {
        name: "one tier, LZ4, killed",
        edition: 0,
        tiered: false,
        compression: CompressionChoice::Lz4,
        is_killed: true,
        is_checkpoint: false,
        is_flushed: false,
    },
    Setup {
        name: "two tiers, copies",
        edition: 0,
        tiered: true,
        compression: CompressionChoice::None,
        is_killed: false,
        is_checkpoint: false,
        is_flushed: false,
    },
    Setup {
        name: "two tiers, Zstd, killed",
        edition: 0,
        tiered: true,
        compression: CompressionChoice::Zstd,
        is_killed: true,
        is_checkpoint: false,
        is_flushed: false,
    },
    Setup {
        name: "a checkpoint of two tiers",
        edition: 0,
        tiered: true,
        compression: CompressionChoice::None,
        is_killed: false,
        is_checkpoint: true,
        is_flushed: false,
    },
];

/// A store, closed or killed, and its history.
pub(super) struct Fixture {
    pub(super) setup: Setup,
    /// What it lies on.
    pub(super) device: MemoryStorage,
    pub(super) dirs: Dirs,
    pub(super) oracle: Oracle,
    /// The last sequence number of each moment, by moment; none of moment 0.
    pub(super) sequences: Vec<Sequence>,
    /// What its files held after earlier steps, where that was something else.
    pub(super) older: BTreeMap<PathBuf, Vec<Bytes>>,
    pub(super) now_ms: u64,
}

impl Setup {
    fn dirs(&self, prefix: &str) -> Dirs {
        let dir = |tier: &str| PathBuf::from(format!("{prefix}/{tier}"));
        Dirs { fast: dir("fast"), slow: self.tiered.then(|| dir("slow")) }
    }

    /// Options of the store in `dirs` of `device`.
    pub(super) fn options(&self, dirs: &Dirs, device: &MemoryStorage, world: &World) -> Options {
        let options = Options::new(&dirs.fast).compression(self.compression).memory(8 << 20);
        let options = match &dirs.slow {
            Some(slow) => options.slow(slow).fast_capacity(1 << 20),
            None => options,
        };
        let options = options.advanced(|a| {
            a.memtable_bytes = Some(16 << 10);
            a.table_bytes = Some(16 << 10);
            a.fast_block_bytes = Some(512);
            a.slow_block_bytes = Some(512);
            if self.tiered {
                a.hotness = Some(Hotness::Ralt);
                a.hot_parts = HotParts { hotness_check: false, retention: false, ..HotParts::default() };
                a.promotion_bytes = Some(2 << 10);
            }
        });
        options.env(world.env(device, self.edition))
    }
}

/// Time and background work of one opening.
pub(super) struct World {
    pub(super) clock: Arc<ManualClock>,
    pub(super) executor: Arc<ManualExecutor>,
}

impl World {
    pub(super) fn at(now_ms: u64) -> Self {
        Self { clock: Arc::new(ManualClock::new(now_ms)), executor: Arc::new(ManualExecutor::new()) }
    }

    fn env(&self, device: &MemoryStorage, seed: u64) -> Env {
        let device: Arc<dyn Storage> = Arc::new(device.clone());
        Env {
            fast: Arc::clone(&device),
            slow: device,
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            executor: Arc::clone(&self.executor) as _,
            seed,
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Jobs still queued hold the store, which holds their queue.
        self.executor.discard();
    }
}

/// A store being made.
struct Maker {
    setup: Setup,
    device: MemoryStorage,
    dirs: Dirs,
    world: World,
    db: Option<Db>,
    /// Merges keep the versions that these see, until the store is closed.
    snapshots: Vec<Snapshot>,
    oracle: Oracle,
    sequences: Vec<Sequence>,
    /// Every file of every step.
    seen: BTreeMap<PathBuf, Vec<Bytes>>,
}

type Made<T> = Result<T, String>;

fn failed(what: &str) -> impl Fn(kelvin::Error) -> String + '_ {
    move |error| format!("making a store, {what}: {error}")
}

fn key(number: usize) -> Vec<u8> {
    format!("k{number:03}").into_bytes()
}

impl Setup {
    pub(super) const fn of_edition(self, edition: u64) -> Self {
        Self { edition, ..self }
    }

    /// A value as long as every other, so that blocks are as long as each other.
    fn value(&self, number: usize, round: &str) -> Vec<u8> {
        let mut value = format!("{round:<8}{number:03}{:.>25}", "").into_bytes();
        if self.edition > 0 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(self.edition << 16 | number as u64);
            random.fill(&mut value[11..]);
        }
        value
    }

    fn put(&self, number: usize, round: &str) -> Write {
        let value = self.value(number, round);
        Write::Put { keyspace: "default".into(), key: key(number), value, expiry_ms: None }
    }
}

/// Makes the store of `setup`.
pub(super) fn make(setup: Setup) -> Made<Fixture> {
    let mut maker = Maker::new(setup)?;
    maker.fill_below()?;
    maker.overwrite()?;
    maker.promote()?;
    maker.reopen()?;
    if setup.is_flushed {
        maker.flush_large()?;
    } else {
        maker.log_only()?;
    }
    maker.end()
}

impl Maker {
    fn new(setup: Setup) -> Made<Self> {
        let (device, world, dirs) = (MemoryStorage::new(), World::at(START_MS), setup.dirs(""));
        let db = Db::open(setup.options(&dirs, &device, &world)).map_err(failed("opening it"))?;
        let mut oracle = Oracle::default();
        for name in ["default", "two"] {
            db.keyspace(name).map_err(failed("its keyspaces"))?;
            oracle.create(name);
        }
        let (db, snapshots, sequences, seen) = (Some(db), Vec::new(), vec![0], BTreeMap::new());
        Ok(Self { setup, device, dirs, world, db, snapshots, oracle, sequences, seen })
    }

    fn db(&self) -> Made<&Db> {
        self.db.as_ref().ok_or_else(|| "the store is closed".to_string())
    }

    fn commit(&mut self, writes: &[Write], durability: Durability) -> Made<()> {
        let db = self.db()?;
        let mut batch = WriteBatch::new();
        let id = |name: &str| db.keyspace(name).map(|one| one.id());
        for write in writes {
            let added = match write {
                Write::Put { keyspace, key, value, expiry_ms: None } => {
                    id(keyspace).and_then(|id| batch.put(id, key, value))
                }
                Write::Put { keyspace, key, value, expiry_ms: Some(expiry_ms) } => {
                    id(keyspace).and_then(|id| batch.put_expiring(id, key, value, *expiry_ms))
                }
                Write::Delete { keyspace, key } => id(keyspace).and_then(|id| batch.delete(id, key)),
                Write::DeleteRange { keyspace, start, end } => {
                    id(keyspace).and_then(|id| batch.delete_range(id, start, end))
                }
            };
            added.map_err(failed("a batch"))?;
        }
        let options = WriteOptions { durability: Some(durability), ttl: None };
        db.write(batch, &options).map_err(failed("a write"))?;
        self.oracle.commit(writes);
        let last = self.sequences.last().copied().unwrap_or(0);
        self.sequences.push(last + writes.len() as u64);
        Ok(())
    }

    fn flush(&mut self) -> Made<()> {
        self.db()?.flush().map_err(failed("a flush"))?;
        self.db()?.keyspace("two").and_then(|two| two.flush()).map_err(failed("a flush"))?;
        self.world.executor.run_all();
        self.remember()
    }

    /// Keeps what every file holds now.
    fn remember(&mut self) -> Made<()> {
        for path in list_all(&self.device, Path::new("/"))? {
            let bytes = read(&self.device, &path)?;
            let seen = self.seen.entry(path).or_default();
            if !seen.contains(&bytes) {
                seen.push(bytes);
            }
        }
        Ok(())
    }

    /// Everything in the lowest level, another keyspace too, and tables above with older versions that snapshots need.
    fn fill_below(&mut self) -> Made<()> {
        for from in (0..KEYS).step_by(8) {
            let writes: Vec<Write> = (from..from + 8).map(|number| self.setup.put(number, "first")).collect();
            self.commit(&writes, Durability::Os)?;
        }
        let two: Vec<Write> = (0..10_u8)
            .map(|number| Write::Put {
                keyspace: "two".into(),
                key: vec![b't', number],
                value: vec![b'2'; 20],
                expiry_ms: None,
            })
            .collect();
        self.commit(&two, Durability::Sync)?;
        self.db()?.compact_range(None, None).map_err(failed("a compaction"))?;
        if self.setup.tiered {
            self.push_down()?;
        }
        self.remember()?;
        self.snapshots.push(self.db()?.snapshot());
        for round in ["second", "third"] {
            let writes: Vec<Write> = (10..20).map(|number| self.setup.put(number, round)).collect();
            self.commit(&writes, Durability::Os)?;
            self.snapshots.push(self.db()?.snapshot());
            self.flush()?;
        }
        Ok(())
    }

    /// Everything of the keyspace "default" to the slow tier.
    fn push_down(&mut self) -> Made<()> {
        for what in [Forced::Down, Forced::Boundary] {
            while self.db()?.force(what, 0) {
                self.world.executor.run_all();
            }
        }
        if self.db()?.stats().used_bytes[Tier::Slow.index()] < 4096 {
            return Err("making a store: nothing lies on the slow tier".to_string());
        }
        Ok(())
    }

    /// Newer versions, deletions, range tombstones and records that expire, in tables of upper levels.
    fn overwrite(&mut self) -> Made<()> {
        let (setup, default) = (self.setup, || "default".to_string());
        let expiring = |number: usize, ms: u64| Write::Put {
            keyspace: default(),
            key: format!("x{number}").into_bytes(),
            value: setup.value(number, "expires"),
            expiry_ms: Some(START_MS + ms),
        };
        let mut writes: Vec<Write> = (30..44).map(|number| setup.put(number, "fourth")).collect();
        writes.extend((0..6).map(|number| expiring(number, 100)));
        writes.extend((6..12).map(|number| expiring(number, 1 << 40)));
        self.commit(&writes, Durability::Os)?;
        self.flush()?;
        while self.db()?.force(Forced::Down, 0) {
            self.world.executor.run_all();
        }
        let levels = self.db()?.levels();
        let entries: u64 = levels.iter().filter(|one| one.keyspace == "default").map(|one| one.entries).sum();
        // Three versions of ten keys, two of fourteen, one of each other key.
        if entries != KEYS as u64 + 20 + 14 + 12 {
            return Err(format!("making a store: {entries} entries, so not the older versions"));
        }
        let delete = |number: usize| Write::Delete { keyspace: default(), key: key(number) };
        let range = |start: usize, end: usize| Write::DeleteRange {
            keyspace: default(),
            start: key(start),
            end: key(end),
        };
        self.commit(&[delete(5), delete(12), delete(33), range(36, 39), range(50, 54)], Durability::Sync)?;
        self.commit(&[setup.put(51, "again"), setup.put(5, "again")], Durability::Os)?;
        self.flush()?;
        self.commit(
            &(0..64).step_by(9).map(|number| setup.put(number, "fifth")).collect::<Vec<_>>(),
            Durability::Os,
        )?;
        self.flush()
    }

    /// Copies of what lies on the slow tier, and what the tracker writes down.
    fn promote(&mut self) -> Made<()> {
        if !self.setup.tiered {
            return Ok(());
        }
        for _ in 0..2 {
            for number in 0..KEYS {
                self.db()?.get(&key(number)).map_err(failed("a read"))?;
                self.world.executor.run_all();
            }
        }
        self.remember()
    }

    fn close(&mut self) -> Made<()> {
        self.snapshots.clear();
        if let Some(db) = self.db.take() {
            db.close().map_err(failed("closing it"))?;
        }
        self.world.executor.run_all();
        self.remember()
    }

    fn reopen(&mut self) -> Made<()> {
        self.close()?;
        self.world.clock.advance(Duration::from_millis(50));
        let opened = Db::open(self.setup.options(&self.dirs, &self.device, &self.world));
        self.db = Some(opened.map_err(failed("opening it again"))?);
        // An edit of this opening, and a log of it that no table holds.
        let setup = self.setup;
        self.commit(&[setup.put(60, "sixth"), setup.put(22, "sixth")], Durability::Os)?;
        self.flush()
    }

    /// Records that are in logs only, of several levels of durability, with a sync now and then; the last ones are synced.
    fn log_only(&mut self) -> Made<()> {
        let setup = self.setup;
        for number in 0..12 {
            let durability = if number % 4 == 3 { Durability::Sync } else { Durability::Os };
            self.commit(&[setup.put(20 + number, "logged"), setup.put(63 - number, "logged")], durability)?;
            // The other keyspace holds back the logs that a flush of this one ends.
            if self.setup.is_killed && number % 4 == 1 {
                let two = format!("two{number}").into_bytes();
                let write =
                    Write::Put { keyspace: "two".into(), key: two, value: vec![b'2'; 20], expiry_ms: None };
                self.commit(&[write], Durability::Os)?;
                self.db()?.flush().map_err(failed("a flush"))?;
            }
            if number == 6 {
                let writes = [Write::DeleteRange { keyspace: "default".into(), start: key(1), end: key(4) }];
                self.commit(&writes, Durability::Os)?;
            }
        }
        self.remember()
    }

    /// A batch that blows up its log, which is removed once tables hold it.
    fn flush_large(&mut self) -> Made<()> {
        let large = Write::Put {
            keyspace: "default".into(),
            key: key(23),
            value: vec![b'l'; 30 << 10],
            expiry_ms: None,
        };
        // Only the last one of a key gets into the table.
        let [first, second] = [23, 61].map(|number| self.setup.put(number, "seventh"));
        let writes = [large.clone(), large.clone(), large, first, second];
        self.commit(&writes, Durability::Sync)?;
        // What follows a flush is left undone: it is the last edit.
        self.db()?.flush().map_err(failed("a flush"))?;
        self.remember()
    }

    fn end(mut self) -> Made<Fixture> {
        let (fast, slow) = (PathBuf::from("/copy/fast"), PathBuf::from("/copy/slow"));
        if self.setup.is_checkpoint {
            let slow = self.setup.tiered.then_some(slow.as_path());
            self.db()?.checkpoint(&fast, slow).map_err(failed("a checkpoint"))?;
            self.dirs = self.setup.dirs("/copy");
        }
        let killed = self.device.fork();
        self.close()?;
        self.world.clock.advance(Duration::from_millis(100));
        let device = if self.setup.is_killed { killed } else { self.device.fork() };
        let mut older = BTreeMap::new();
        for (path, versions) in self.seen {
            if device.exists(&path).is_ok_and(|is_there| is_there) {
                let now = read(&device, &path)?;
                let others: Vec<Bytes> = versions.into_iter().filter(|bytes| *bytes != now).collect();
                older.insert(path, others);
            }
        }
        let now_ms = self.world.clock.unix_millis();
        let (setup, dirs, oracle, sequences) = (self.setup, self.dirs, self.oracle, self.sequences);
        Ok(Fixture { setup, device, dirs, oracle, sequences, older, now_ms })
    }
}

impl Fixture {
    /// The last moment.
    pub(super) const fn last(&self) -> u64 {
        self.oracle.moment()
    }

    /// The last moment whose writes have sequence numbers up to `sequence`.
    pub(super) fn moment_of(&self, sequence: Sequence) -> u64 {
        (self.sequences.partition_point(|last| *last <= sequence) as u64).saturating_sub(1)
    }
}

/// When a record expires that is there at the end.
pub(super) fn expiry_of(key: &[u8]) -> Option<u64> {
    key.starts_with(b"x").then_some(START_MS + (1 << 40))
}
