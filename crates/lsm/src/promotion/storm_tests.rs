//! Access that makes everything hot, or changes what is: the fast tier stays within its capacity, memory within its limit, and
//! what does not fit is not promoted (RELIABILITY H16).

use std::sync::Arc;
use std::time::Duration;

use kelvin_storage::MemoryStorage;
use kelvin_storage::fault::{EIO, Effect, Op, Rule};

use crate::db::Db;
use crate::db::testing::{World, key, value};
use crate::options::{CompressionChoice, HotParts, Hotness, Options};

const CAPACITY: u64 = 1 << 20;
const RECORDS: usize = 12_000;

/// The record that the `step`-th read asks for.
type Access = fn(usize) -> usize;

const ACCESSES: [(&str, Access); 4] = [
    ("uniform", |step| step.wrapping_mul(7_919) % RECORDS),
    ("scanning", |step| step % RECORDS),
    ("shifting", |step| (step / 3_000 * 1_700 + step.wrapping_mul(7_919) % 600) % RECORDS),
    ("all hot", |step| step / 2 % RECORDS),
];

fn options(world: &World, hotness_check: bool, hotness: Hotness) -> Options {
    let options = Options::new("/fast").slow("/slow").fast_capacity(CAPACITY).memory(2 << 20);
    let options = options.compression(CompressionChoice::None).advanced(|advanced| {
        advanced.hotness = Some(hotness);
        advanced.hot_parts = HotParts { hotness_check, ..HotParts::default() };
    });
    options.env(world.env.clone())
}

fn storm(hotness_check: bool, hotness: Hotness, access: Access) -> (u64, u64) {
    let mut world = World::new();
    let fast = MemoryStorage::new();
    world.env.fast = Arc::new(fast.clone());
    let db = Db::open(options(&world, hotness_check, hotness)).unwrap();
    for number in 0..RECORDS {
        db.put(&key(number), &value(number, "one")).unwrap();
    }
    db.wait_idle().unwrap();
    let mut highest = 0;
    for step in 0..16_000 {
        let number = access(step);
        assert_eq!(db.get(&key(number)).unwrap().as_deref(), Some(&value(number, "one")[..]), "{number}");
        if step % 8 == 0 {
            db.put(&key(number), &value(number, "one")).unwrap();
        }
        if step % 40 == 0 {
            world.settle();
            world.clock.advance(Duration::from_millis(100));
            highest = highest.max(fast.used_bytes());
        }
    }
    let stats = db.stats();
    assert!(highest <= CAPACITY && stats.used_bytes_max[0] <= CAPACITY, "{highest} {stats:?}");
    assert!(stats.memory_used_bytes_max <= db.config().memory_bytes, "{stats:?}");
    let audit = db.audit().unwrap();
    assert_eq!(audit.findings, Vec::<String>::new());
    (stats.boundary.flushed_bytes, highest)
}

#[test]
fn with_the_fast_tier_full_nothing_is_promoted_and_the_capacity_holds() {
    let mut world = World::new();
    let fast = MemoryStorage::new();
    world.env.fast = Arc::new(fast.clone());
    let db = Db::open(options(&world, false, Hotness::Oracle)).unwrap();
    (0..RECORDS).for_each(|number| db.put(&key(number), &value(number, "one")).unwrap());
    db.wait_idle().unwrap();
    // The slow tier can be read and takes nothing more: what is written fills the fast one.
    world.slow.add(Rule::new(Op::Create, Effect::Error(EIO)));
    let written = (RECORDS..).find(|&number| db.put(&key(number), &value(number, "one")).is_err()).unwrap();
    assert!(fast.used_bytes() > CAPACITY / 10 * 7, "{} of {CAPACITY}", fast.used_bytes());
    let before = db.stats().boundary.flushed_bytes;
    for number in 0..2_000 {
        assert_eq!(db.get(&key(number)).unwrap().as_deref(), Some(&value(number, "one")[..]), "{number}");
        world.settle();
        world.clock.advance(Duration::from_millis(100));
        assert!(fast.used_bytes() <= CAPACITY, "{} of {CAPACITY}", fast.used_bytes());
    }
    let stats = db.stats();
    assert!(stats.promotion.iter().any(|(name, count)| *name == "refused_full" && *count > 0), "{stats:?}");
    assert_eq!(stats.boundary.flushed_bytes, before, "there is no room for a run");
    assert!(stats.used_bytes_max[0] <= CAPACITY, "{stats:?}");
    assert!(written > RECORDS + 100);
}

#[test]
fn whatever_is_read_the_fast_tier_stays_within_its_capacity() {
    for (name, access) in ACCESSES {
        let (promoted, highest) = storm(false, Hotness::Oracle, access);
        assert!(promoted > CAPACITY / 32, "{name}: {promoted} bytes of runs");
        assert!(highest > CAPACITY / 3, "{name}: the tier is put to use, {highest}");
        storm(true, Hotness::Ralt, access);
    }
}
