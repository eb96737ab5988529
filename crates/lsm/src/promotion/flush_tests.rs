//! Promotion by flush on a store: what is read becomes a run, whatever happens above it, beside it and to the disk.

use std::ops::Range;
use std::sync::Arc;

use kelvin_base::{Tier, hash64};
use kelvin_storage::fault::{EIO, ENOSPC, Effect, FaultStorage, Op, Rule};

use super::Exchange;
use super::testing::{HalfRead, counted, walk};
use crate::compaction::pick::{Forced, pick_forced};
use crate::db::Db;
use crate::db::testing::{Step, World, begin_step, key, lay_floor, push_down, put_on_slow, value};
use crate::options::{HotParts, Hotness, Options};
use crate::space::{Priority, Reservation};
use crate::version::{FIRST_SLOW, LEVELS_FAST};
use crate::write::stall::{Pressure, Reason};

const RECORDS: usize = 3_000;

fn options(world: &World, hotness: Hotness) -> Options {
    let mut options = world.options();
    options.advanced.hotness = Some(hotness);
    options.advanced.table_bytes = Some(32 << 10);
    options
}

/// A store with RALT, and what its fast levels may hold.
fn with_ralt(world: &World) -> (Db, u64) {
    let options = options(world, Hotness::Ralt).memory(8 << 20);
    let fast_bytes = options.derive().unwrap().fast_levels_bytes.unwrap();
    let db = Db::open(options).unwrap();
    lay_floor(&db, FIRST_SLOW);
    (db, fast_bytes)
}

/// Records that fill so much.
fn records_in(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap() / (key(0).len() + value(0, "one").len())
}

/// Reads so many records drawn from `range`.
fn read_drawn(world: &World, db: &Db, range: &Range<usize>, reads: u64) {
    for number in 0..reads {
        let drawn = usize::try_from(hash64(&number.to_le_bytes()) % range.len() as u64).unwrap();
        assert_value(db, range.start + drawn, Some("one"));
        if number % 50 == 0 {
            world.let_time_pass();
        }
    }
}

/// Every record on the slow tier, and whatever is read is hot.
fn open(world: &World) -> Db {
    let db = Db::open(options(world, Hotness::Oracle)).unwrap();
    lay_floor(&db, FIRST_SLOW);
    put_on_slow(&db, 0..RECORDS, "one");
    db
}

/// Every record on the slow tier, read twice, and in a run of the hot level.
fn with_runs(world: &World) -> Db {
    let db = open(world);
    (0..RECORDS).for_each(|number| {
        (0..2).for_each(|_| assert_value(&db, number, Some("one")));
        world.settle();
    });
    db
}

fn assert_value(db: &Db, number: usize, wanted: Option<&str>) {
    let wanted = wanted.map(|round| value(number, round));
    assert_eq!(db.get(&key(number)).unwrap().as_deref(), wanted.as_deref(), "key {number}");
}

/// Reads records from 0 on, twice, until a run of them is on the fast tier; how many were read.
fn read_until_promoted(world: &World, db: &Db) -> usize {
    for number in 0..RECORDS {
        (0..2).for_each(|_| assert_value(db, number, Some("one")));
        if db.stats().promotion.iter().any(|(name, count)| *name == "refused_full" && *count > 0) {
            world.settle();
            assert!(db.stats().boundary.flushed_bytes > 0);
            return number;
        }
    }
    panic!("the cache is never full: {:?}", db.stats());
}

fn copies(db: &Db) -> u64 {
    db.levels().iter().filter(|level| level.name.starts_with("hot")).map(|level| level.copies).sum()
}

#[test]
fn what_is_read_from_the_slow_tier_becomes_a_run_that_answers_without_it() {
    let world = World::new();
    let db = open(&world);
    let count = read_until_promoted(&world, &db);
    // The exact tracker weighs anew now and then: not all that was read is known as hot yet.
    assert!(copies(&db) > count as u64 / 2, "{} of {count}", copies(&db));
    assert!(db.check().is_well());
    db.close().unwrap();
    // No block is in memory any more.
    let db = Db::open(options(&world, Hotness::Oracle)).unwrap();
    world.slow.away(EIO);
    let answered = (0..count).filter(|number| db.get(&key(*number)).is_ok()).count() as u64;
    world.slow.back();
    assert_eq!((answered, db.stats().gets_hot), (copies(&db), copies(&db)));
    (0..RECORDS).step_by(7).for_each(|number| assert_value(&db, number, Some("one")));
}

#[test]
fn runs_have_blocks_of_their_own_size() {
    let world = World::new();
    let mut options = options(&world, Hotness::Oracle);
    options.advanced.fast_block_bytes = Some(8 << 10);
    options.advanced.hot_block_bytes = Some(1 << 10);
    let db = Db::open(options).unwrap();
    lay_floor(&db, FIRST_SLOW);
    put_on_slow(&db, 0..RECORDS, "one");
    read_until_promoted(&world, &db);
    let version = Arc::clone(&db.state.peek().version);
    let blocks = |level: usize| {
        let tables = version.levels[level].tables.iter().map(|file| file.table().unwrap());
        tables
            .map(|table| (table.properties().data_blocks, table.properties().size_bytes))
            .collect::<Vec<_>>()
    };
    let of_runs: Vec<_> = (LEVELS_FAST..FIRST_SLOW).flat_map(blocks).collect();
    assert!(!of_runs.is_empty());
    of_runs
        .iter()
        .for_each(|(count, bytes)| assert!(count * (1 << 10) >= bytes * 3 / 4, "{count} in {bytes}"));
}

#[test]
fn what_is_written_above_a_run_stays_in_force_on_its_way_down_and_below() {
    let world = World::new();
    let db = open(&world);
    let count = read_until_promoted(&world, &db);
    assert!(count > 60);
    db.delete(&key(10)).unwrap();
    db.delete_range(&key(20), &key(30)).unwrap();
    (40..60).for_each(|number| db.put(&key(number), &value(number, "two")).unwrap());
    let old = db.snapshot();
    (50..60).for_each(|number| db.put(&key(number), &value(number, "three")).unwrap());
    let check = |when: &str| {
        for number in 0..count {
            let wanted = match number {
                10 | 20..30 => None,
                40..50 => Some("two"),
                50..60 => Some("three"),
                _ => Some("one"),
            };
            assert_eq!(
                db.get(&key(number)).unwrap(),
                wanted.map(|round| value(number, round).into()),
                "{when}"
            );
        }
        let seen = old.get(&key(55)).unwrap();
        assert_eq!(seen.as_deref(), Some(&value(55, "two")[..]), "{when}");
    };
    check("in the memtable");
    db.flush().unwrap();
    check("in level 0");
    db.compact_range(Some(&key(45)), Some(&key(55))).unwrap();
    check("half of it down");
    db.compact_range(None, None).unwrap();
    check("at the bottom");
    assert!(db.check().is_well());
}

#[test]
fn a_store_opened_without_a_tracker_gives_its_runs_up() {
    let world = World::new();
    let db = open(&world);
    read_until_promoted(&world, &db);
    assert!(copies(&db) > 0);
    db.close().unwrap();
    let db = Db::open(options(&world, Hotness::Off)).unwrap();
    db.wait_idle().unwrap();
    assert_eq!(copies(&db), 0);
    (0..RECORDS).step_by(50).for_each(|number| assert_value(&db, number, Some("one")));
}

#[test]
fn a_promotion_that_fails_or_finds_no_room_keeps_the_records_in_the_cache_and_is_tried_again_later() {
    // What only waits for room is no failure.
    for (errno, expected) in [(EIO, (1, 0)), (ENOSPC, (0, 1))] {
        promotion_that_fails(errno, expected);
    }
}

/// A promotion whose table cannot be made, and how failures and promotions put off are counted then.
fn promotion_that_fails(errno: i32, expected: (u64, u64)) {
    let world = World::new();
    let fast = Arc::new(FaultStorage::new(Arc::clone(&world.env.fast), 1));
    let mut options = options(&world, Hotness::Oracle);
    let mut env = world.env.clone();
    env.fast = fast.clone();
    options = options.env(env);
    let db = Db::open(options).unwrap();
    lay_floor(&db, FIRST_SLOW);
    put_on_slow(&db, 0..RECORDS, "one");
    fast.add(Rule::new(Op::Create, Effect::Error(errno)));
    let mut number = 0;
    let unsuccessful = || (db.stats().background_failures, counted(&db, "postponed"));
    while unsuccessful() == (0, 0) {
        (0..2).for_each(|_| assert_value(&db, number, Some("one")));
        world.settle();
        number += 1;
        assert!(number < RECORDS);
    }
    fast.clear();
    assert_eq!(unsuccessful(), expected);
    assert_eq!((copies(&db), db.stats().boundary.flushed_bytes), (0, 0));
    assert_value(&db, number, Some("one"));
    world.settle();
    assert_eq!(db.stats().boundary.flushed_bytes, 0, "not at once");
    world.slow.away(EIO);
    assert_value(&db, 0, Some("one"));
    world.slow.back();
    world.let_time_pass();
    while copies(&db) == 0 {
        number += 1;
        assert!(number < RECORDS, "{:?}", db.stats());
        (0..2).for_each(|_| assert_value(&db, number, Some("one")));
        world.settle();
    }
    db.put(b"and", b"writes go on").unwrap();
    db.flush().unwrap();
}

#[test]
fn what_is_being_promoted_answers_meanwhile_and_what_is_read_meanwhile_is_kept() {
    let world = World::new();
    let fast = Arc::new(FaultStorage::new(Arc::clone(&world.env.fast), 1));
    let mut env = world.env.clone();
    env.fast = fast.clone();
    let db = Db::open(options(&world, Hotness::Oracle).env(env)).unwrap();
    lay_floor(&db, FIRST_SLOW);
    put_on_slow(&db, 0..RECORDS, "one");
    let mut number = 0;
    while !db.engine.work.lock().promotion.is_running() {
        (0..2).for_each(|_| assert_value(&db, number, Some("one")));
        number += 1;
    }
    let (inserted, count) = (counted(&db, "inserted"), walk(&db));
    assert!(count > 0 && number + 1 < RECORDS);
    fast.add(Rule::new(Op::Create, Effect::Stall).on("*.tbl").times(1));
    std::thread::scope(|threads| {
        threads.spawn(|| world.settle());
        fast.wait_stalled(1);
        assert_eq!((walk(&db), copies(&db)), (count, 0), "all of it answers, and there is no run yet");
        assert_value(&db, RECORDS - 1, Some("one"));
        db.put(&key(0), &value(0, "two")).unwrap();
        assert_value(&db, 0, Some("two"));
        assert_eq!((walk(&db), counted(&db, "inserted")), (count + 1, inserted + 1));
        assert_eq!((counted(&db, "abandoned_compacted"), counted(&db, "abandoned_lock")), (0, 0));
        fast.release();
    });
    assert!(copies(&db) > 0);
    assert_eq!(walk(&db), 1, "only what was read meanwhile");
    assert_value(&db, 0, Some("two"));
    (1..number).for_each(|number| assert_value(&db, number, Some("one")));
}

#[test]
fn no_compaction_of_the_slow_tier_begins_while_a_promotion_is_under_way() {
    let world = World::new();
    let db = open(&world);
    db.put(&key(RECORDS - 1), &value(RECORDS - 1, "two")).unwrap();
    push_down(&world, &db, 0..LEVELS_FAST - 1);
    for number in 0..RECORDS - 1 {
        (0..2).for_each(|_| assert_value(&db, number, Some("one")));
        if db.engine.work.lock().promotion.is_running() {
            break;
        }
    }
    assert!(db.engine.work.lock().promotion.is_running(), "queued, not run");
    assert_eq!(begin_step(&db, LEVELS_FAST - 1, u64::MAX), Step::Busy);
    // What would bring something newer below the run waits until the run is there.
    let late = HalfRead::begin(&db, &key(5));
    db.put(&key(5), &value(5, "two")).unwrap();
    db.compact_range(None, None).unwrap();
    late.finish();
    assert!(db.stats().boundary.flushed_bytes > 0, "the promotion came first");
    assert_value(&db, 5, Some("two"));
    world.settle();
    assert_value(&db, 5, Some("two"));
    assert!(db.state.view().version.levels[..LEVELS_FAST].iter().all(|level| level.tables.is_empty()));
}

#[test]
fn no_copy_gives_way_to_writers_while_what_would_make_room_only_waits_for_a_promotion() {
    let world = World::new();
    let db = open(&world);
    let needs_room = || {
        let work = db.engine.work.lock();
        let (config, versions) = (db.engine.pick_config_now(), db.engine.versions_now());
        db.engine.pick_input(&config, &versions, &work, 0).needs_room
    };
    world.settle();
    db.engine.pressure.replace(Pressure::Stop(Reason::LevelZero));
    assert!(needs_room(), "nothing else makes any");
    for number in 0..RECORDS {
        (0..2).for_each(|_| assert_value(&db, number, Some("one")));
        if db.engine.work.lock().promotion.is_running() {
            break;
        }
    }
    assert!(db.engine.work.lock().promotion.is_running(), "queued, not run");
    db.engine.pressure.replace(Pressure::Stop(Reason::LevelZero));
    assert!(!needs_room());
    world.settle();
    db.engine.pressure.replace(Pressure::Stop(Reason::LevelZero));
    assert!(needs_room());
}

#[test]
fn a_run_that_is_damaged_or_cannot_be_read_costs_speed_and_nothing_else() {
    let world = World::new();
    let db = open(&world);
    let count = read_until_promoted(&world, &db);
    db.close().unwrap();
    for effect in [Effect::FlipBit, Effect::Error(EIO)] {
        // No block is in memory, and nothing but the run is read from the fast tier.
        let fast = Arc::new(FaultStorage::new(Arc::clone(&world.env.fast), 1));
        let mut env = world.env.clone();
        env.fast = fast.clone();
        let db = Db::open(options(&world, Hotness::Oracle).env(env)).unwrap();
        assert!(copies(&db) > 0);
        fast.add(Rule::new(Op::Read, effect));
        (0..count).for_each(|number| assert_value(&db, number, Some("one")));
        assert_eq!(db.stats().gets_hot, 0);
        fast.clear();
        db.close().unwrap();
    }
}

#[test]
fn a_merge_of_runs_that_ends_for_want_of_room_goes_on_where_it_ended() {
    let world = World::new();
    let db = with_runs(&world);
    let keyspace = Arc::clone(&db.state);
    let (engine, before) = (&db.engine, copies(&db));
    let runs = || {
        let version = Arc::clone(&keyspace.peek().version);
        let tables = (LEVELS_FAST..FIRST_SLOW).map(|level| version.levels[level].tables.len());
        tables.filter(|count| *count > 0).collect::<Vec<usize>>()
    };
    let mut merges = 0;
    let tables: usize = runs().iter().sum();
    assert!(tables > 10 && runs().len() > 1, "{:?}", runs());
    while runs().len() > 1 {
        let mut plan = {
            let work = engine.work.lock();
            let (versions, config) = (engine.versions_now(), engine.pick_config_now());
            let input = engine.pick_input(&config, &versions, &work, 0);
            pick_forced(&input, keyspace.id, Forced::Runs, 0).expect("there are two runs")
        };
        let reserve = |bytes| engine.space.reserve(Tier::Fast, bytes, Priority::Essential).unwrap();
        let of_plan = vec![reserve(plan.space_bytes[Tier::Fast.index()])];
        // Nothing is left for a second step but what the first one frees.
        let rest = reserve(engine.space.available(Tier::Fast, Priority::Essential).unwrap());
        let inputs: Vec<_> = plan.tables().map(|(_, file)| Arc::downgrade(file)).collect();
        engine.compact(&mut plan, Exchange::default(), of_plan).unwrap();
        drop(rest);
        let version = Arc::clone(&keyspace.peek().version);
        let held = inputs.iter().filter_map(std::sync::Weak::upgrade);
        let passed = held.filter(|file| version.find(file.meta.number).is_none()).count();
        assert_eq!(passed, 0, "the merge holds files that it is done with: their room is not free");
        world.settle();
        merges += 1;
        assert!(merges <= 2 * tables, "{merges} merges of {tables} tables, now {:?}", runs());
    }
    assert!(merges > 2, "more than one end for want of room: {merges}");
    assert_eq!(copies(&db), before, "nothing is lost and nothing is there twice");
    (0..RECORDS).step_by(7).for_each(|number| assert_value(&db, number, Some("one")));
    assert!(db.check().is_well());
}

/// Merges runs while so much of the fast tier is taken that writers need room with what the merge reads and what it writes there, and
/// need none without what it reads. What is returned holds that room.
fn merge_with_little_room(db: &Db) -> Reservation {
    let engine = &db.engine;
    let mut work = engine.work.lock();
    let (versions, config) = (engine.versions_now(), engine.pick_config_now());
    let input = engine.pick_input(&config, &versions, &work, 0);
    let plan = pick_forced(&input, db.state.id, Forced::Runs, 0).expect("there are two runs");
    let free_bytes = engine.space.available(Tier::Fast, Priority::Essential).unwrap();
    let rest_bytes = free_bytes - engine.comfortable_bytes() - plan.input_bytes / 2;
    engine.begin_compaction(&mut work, plan).unwrap();
    engine.space.reserve(Tier::Fast, rest_bytes, Priority::Essential).unwrap()
}

#[test]
fn what_a_merge_has_read_is_on_its_way_out_when_it_is_asked_whether_copies_must_give_way() {
    let world = World::new();
    let db = with_runs(&world);
    let before = copies(&db);
    let rest = merge_with_little_room(&db);
    world.settle();
    assert_eq!(copies(&db), before, "there was room enough once the files were gone");
    drop(rest);
}

#[test]
fn no_copy_gives_way_for_the_room_that_a_read_still_holds_unless_it_holds_it_for_long() {
    let world = World::new();
    let db = with_runs(&world);
    let before = copies(&db);
    let read = HalfRead::begin(&db, &key(1));
    let rest = merge_with_little_room(&db);
    world.settle();
    assert_eq!(copies(&db), before, "the read will let go of what was merged");
    let wants = || db.engine.space_debt().unwrap().amount;
    assert!(wants() > 0);
    drop(read);
    world.settle();
    assert_eq!((wants(), copies(&db)), (0, before));
    drop(rest);
    let iterator = HalfRead::begin(&db, &key(1));
    let rest = merge_with_little_room(&db);
    world.settle();
    assert_eq!(copies(&db), before);
    world.let_time_pass();
    db.engine.schedule();
    world.settle();
    assert!(copies(&db) < before, "nobody knows when it will");
    drop((rest, iterator));
}

/// Writes until the fast tier has nothing to spare.
fn fill_fast(world: &World, db: &Db) {
    let mut numbers = 0..100_000;
    while db.engine.fast_levels_now().spare() > 0 {
        let number = numbers.next().expect("the fast tier is full some day");
        db.put(format!("other{number:05}").as_bytes(), &value(number, "fill")).unwrap();
        world.settle();
    }
}

#[test]
fn with_room_to_spare_what_is_read_once_is_promoted() {
    let world = World::new();
    let db = Db::open(options(&world, Hotness::Oracle)).unwrap();
    lay_floor(&db, FIRST_SLOW);
    put_on_slow(&db, 0..RECORDS, "one");
    (0..RECORDS).step_by(3).for_each(|number| {
        assert_value(&db, number, Some("one"));
        world.settle();
    });
    assert!(copies(&db) > 500, "{}", copies(&db));
}

#[test]
fn where_all_records_are_read_alike_nothing_gives_way_to_what_is_read() {
    let world = World::new();
    let (db, fast_bytes) = with_ralt(&world);
    let count = records_in(12 * fast_bytes);
    put_on_slow(&db, 0..count, "one");
    fill_fast(&world, &db);
    // The tracker takes the room that it works in, and for that tables go down.
    read_drawn(&world, &db, &(0..count - 1), 15_000);
    fill_fast(&world, &db);
    let slow_written = || db.stats().compaction_written_bytes[Tier::Slow.index()];
    let before = slow_written();
    read_drawn(&world, &db, &(0..count), 40_000);
    let known = db.engine.counters.promotion.known.get();
    assert!(known > 100, "{known} were read again by chance");
    let (moved, promoted) = (slow_written() - before, db.stats().boundary.flushed_bytes);
    assert!(moved < fast_bytes / 2 && promoted < fast_bytes / 8, "{moved} {promoted} of {fast_bytes}");
    read_drawn(&world, &db, &(0..count / 50), 40_000);
    let (more, hits) = (slow_written() - before - moved, db.stats().gets_hot);
    // It is a quarter of what the levels have.
    let takes_its_place = (fast_bytes / 5..fast_bytes).contains(&more) && hits > 30_000;
    assert!(takes_its_place, "{more} of {fast_bytes} moved, {hits} hits");
}

#[test]
fn a_hotspot_that_moves_takes_the_place_of_the_old_one_though_nobody_writes() {
    let world = World::new();
    let (db, fast_bytes) = with_ralt(&world);
    // Two of them are more than may be hot at once.
    let count = records_in(fast_bytes / 2);
    put_on_slow(&db, 0..2 * count, "one");
    let without_slow = || db.stats().gets_hot + db.stats().gets_promotion;
    for (range, times) in [(0..count, 8), (count..2 * count, 20)] {
        read_drawn(&world, &db, &range, times * count as u64);
        let before = without_slow();
        range.clone().for_each(|number| assert_value(&db, number, Some("one")));
        let answered = without_slow() - before;
        assert!(
            answered * 10 > count as u64 * 8,
            "{answered} of {count} in {range:?}: {:?} {:?}",
            db.stats().hotness,
            db.stats().promotion
        );
    }
}

#[test]
fn records_smaller_than_what_the_cache_takes_for_each_are_promoted_too() {
    let world = World::new();
    let db = Db::open(options(&world, Hotness::Oracle)).unwrap();
    lay_floor(&db, FIRST_SLOW);
    (0..RECORDS).for_each(|number| db.put(&key(number), b"small").unwrap());
    db.compact_range(None, None).unwrap();
    for number in 0..RECORDS {
        (0..2).for_each(|_| assert_eq!(db.get(&key(number)).unwrap().as_deref(), Some(&b"small"[..])));
        world.settle();
    }
    assert!(copies(&db) > 500, "{} {:?}", copies(&db), db.stats().promotion);
}

#[test]
fn parts_that_are_left_out_do_nothing() {
    let promoted = |parts: HotParts| {
        let world = World::new();
        let mut options = options(&world, Hotness::Oracle);
        options.advanced.hot_parts = parts;
        let db = Db::open(options).unwrap();
        lay_floor(&db, FIRST_SLOW);
        put_on_slow(&db, 0..RECORDS, "one");
        fill_fast(&world, &db);
        // Once each: the exact tracker does not know them as hot yet.
        (0..RECORDS).step_by(3).for_each(|number| {
            assert_value(&db, number, Some("one"));
            world.settle();
        });
        assert!(db.check().is_well());
        copies(&db)
    };
    let checked = promoted(HotParts::default());
    let unchecked = promoted(HotParts { hotness_check: false, ..HotParts::default() });
    let without_flush = promoted(HotParts { promotion_by_flush: false, ..HotParts::default() });
    assert!(unchecked > checked && unchecked > 50, "{unchecked}, {checked} with the check");
    assert_eq!(without_flush, 0);
}
