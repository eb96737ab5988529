//! What tests of a store over two tiers share: disks in memory, steps by hand, data put where a test wants it.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use kelvin_base::key::{Kind, append_internal, trailer};
use kelvin_base::{ManualClock, ManualExecutor, Tier};
use kelvin_storage::{FaultStorage, MemoryStorage};
use kelvin_table::{TableOptions, TableWriter};

use super::{Db, Keyspace, Options};
use crate::compaction::job::JobTable;
use crate::compaction::pick::{RangePick, pick_range};
use crate::options::{CompressionChoice, Env};
use crate::promotion::PromotionCache;
use crate::read::{Moment, Source, lookup};
use crate::tiers::Purpose;
use crate::version::{Edit, FIRST_SLOW, TableFile};

/// Two disks in memory, a clock and an executor stepped by hand.
pub(crate) struct World {
    pub slow: Arc<FaultStorage>,
    pub clock: Arc<ManualClock>,
    pub executor: Arc<ManualExecutor>,
    pub env: Env,
}

impl World {
    pub(crate) fn new() -> Self {
        let slow = Arc::new(FaultStorage::new(Arc::new(MemoryStorage::new()), 1));
        let clock = Arc::new(ManualClock::new(1_000_000));
        let executor = Arc::new(ManualExecutor::new());
        let env = Env {
            fast: Arc::new(MemoryStorage::new()),
            slow: slow.clone(),
            clock: clock.clone(),
            executor: executor.clone(),
            seed: 7,
        };
        Self { slow, clock, executor, env }
    }

    pub(crate) fn options_in(&self, fast: &str, slow: &str) -> Options {
        let options = Options::new(fast).slow(slow).fast_capacity(2 << 20).memory(1 << 20);
        options.compression(CompressionChoice::None).env(self.env.clone())
    }

    pub(crate) fn options(&self) -> Options {
        self.options_in("/fast", "/slow")
    }

    /// Runs background work until none is queued.
    pub(crate) fn settle(&self) {
        self.executor.run_all();
    }

    /// Lets the delays after failures pass.
    pub(crate) fn let_time_pass(&self) {
        self.clock.advance(Duration::from_secs(60));
        self.executor.fire_delayed();
        self.settle();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Jobs still queued hold the store, which holds their queue.
        self.executor.discard();
    }
}

pub(crate) fn key(number: usize) -> Vec<u8> {
    format!("key{number:04}").into_bytes()
}

pub(crate) fn value(number: usize, round: &str) -> Vec<u8> {
    format!("{round}{number:04}").into_bytes().repeat(20)
}

/// Puts `key(number)` for each number and moves everything to the slow tier, as deep as something lies.
pub(crate) fn put_on_slow(keyspace: &Keyspace, numbers: Range<usize>, round: &str) {
    for number in numbers {
        keyspace.put(&key(number), &value(number, round)).unwrap();
    }
    keyspace.compact_range(None, None).unwrap();
}

/// Writes the newest versions of `keys` as entries of `kind` into a table, and puts it in force in `level` by an edit
/// that also removes the tables `instead_of` from level 0.
pub(crate) fn write_table(
    keyspace: &Keyspace,
    keys: impl Iterator<Item = Vec<u8>>,
    kind: Kind,
    level: usize,
    instead_of: &[Arc<TableFile>],
) {
    let engine = &keyspace.engine;
    let tier = if level < FIRST_SLOW { Tier::Fast } else { Tier::Slow };
    let number = engine.new_file_number();
    let (path, file) = engine.files.create(tier, number, Purpose::Flush).unwrap();
    let mut writer = TableWriter::new(file, &path, number, TableOptions::default());
    let moment = Moment { at: engine.visible(), clock: &*engine.env.clock };
    for key in keys {
        let found = lookup(&keyspace.state.view(), &PromotionCache::OFF, &key, moment);
        let found = found.unwrap().found.unwrap();
        let on_slow = matches!(found.source, Source::Level(_, Tier::Slow));
        assert_eq!(on_slow, kind == Kind::Copy, "{found:?}");
        let mut internal = Vec::new();
        append_internal(&mut internal, &key, trailer(found.sequence, kind as u8));
        writer.add(&internal, &found.value.unwrap()).unwrap();
    }
    let table = JobTable { number, tier, properties: writer.finish().unwrap() };
    engine.files.tier(tier).unwrap().sync_dir().unwrap();
    engine.space.file_added(tier, &crate::files::table_name(number), table.properties.size_bytes);
    let mut edit = Edit::default();
    edit.add(keyspace.state.id, level, table.meta());
    for file in instead_of {
        edit.remove(keyspace.state.id, 0, file.meta.number);
    }
    engine.install(&keyspace.state, edit, &[], instead_of).unwrap();
}

/// Puts a table into `level`, below all keys, so that compactions by hand go down to it.
pub(crate) fn lay_floor(keyspace: &Keyspace, level: usize) {
    let ends = [b"a".to_vec(), b"z".to_vec()];
    ends.iter().for_each(|end| keyspace.put(end, b"").unwrap());
    keyspace.flush().unwrap();
    let flushed = keyspace.state.view().version.levels[0].tables.clone();
    write_table(keyspace, ends.into_iter(), Kind::Value, level, &flushed);
}

/// A store whose compactions by hand end in the first slow level.
pub(crate) fn open(world: &World) -> Db {
    let db = Db::open(world.options()).unwrap();
    lay_floor(&db, FIRST_SLOW);
    db
}

/// What became of a step of a compaction by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is queued.
    Begun,
    /// Something is in its way.
    Busy,
    /// There is nothing to do.
    Done,
}

/// Queues one compaction by hand of `level`. Tables from `created_before` on are results.
pub(crate) fn begin_step(keyspace: &Keyspace, level: usize, created_before: u64) -> Step {
    let engine = &keyspace.engine;
    let mut work = engine.work.lock();
    let versions = engine.versions_now();
    let config = engine.pick_config_now();
    let input = engine.pick_input(&config, &versions, &work, 0);
    match pick_range(&input, keyspace.state.id, level, (None, None), created_before) {
        RangePick::Plan(plan) => {
            let begun = engine.begin_compaction(&mut work, *plan);
            if begun.is_ok() { Step::Begun } else { Step::Busy }
        }
        RangePick::Busy => Step::Busy,
        RangePick::Done => Step::Done,
    }
}

/// Flushes, then compacts every table of `levels`, each into the next level, and nothing of other levels.
pub(crate) fn push_down(world: &World, keyspace: &Keyspace, levels: Range<usize>) {
    keyspace.flush().unwrap();
    world.settle();
    for level in levels {
        let created_before = keyspace.engine.file_numbers.peek();
        let mut step = Step::Begun;
        while step != Step::Done {
            step = begin_step(keyspace, level, created_before);
            assert_ne!(step, Step::Busy, "nothing runs and there is room");
            world.settle();
        }
    }
}
