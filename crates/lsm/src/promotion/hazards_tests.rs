//! The hazards of promotion (DESIGN section 13, RELIABILITY H1 to H13), each on a store with data on the slow tier.

use std::sync::Arc;
use std::time::Duration;

use kelvin_base::{Kind, ThreadPool};
use kelvin_storage::fault::{EIO, Effect, Op, Rule};

use super::testing::{HalfRead, counted, walk};
use crate::db::testing::{
    Step, World, begin_step, key, lay_floor, open, push_down, put_on_slow, value, write_table,
};
use crate::db::{Db, IterOptions, Keyspace, WriteOptions};
use crate::memory::MemoryPart;
use crate::options::{CompressionChoice, Hotness, Options};
use crate::version::{FIRST_SLOW, LEVELS_FAST};

const DEEPER: usize = FIRST_SLOW + 1;

fn assert_reads(keyspace: &Keyspace, number: usize, wanted: Option<&str>, when: &str) {
    let wanted = wanted.map(|round| value(number, round));
    assert_eq!(keyspace.get(&key(number)).unwrap().as_deref(), wanted.as_deref(), "{when}");
    let many = keyspace.multi_get(&[&key(number)]).pop().unwrap();
    assert_eq!(many.unwrap().as_deref(), wanted.as_deref(), "{when}, one of many");
    let within = IterOptions {
        lower: Some(key(number).into()),
        upper: Some(key(number + 1).into()),
        ..IterOptions::default()
    };
    let mut iter = keyspace.iter(within).unwrap();
    iter.seek_to_first().unwrap();
    let scanned = iter.valid().then(|| iter.value().to_vec());
    assert_eq!(scanned, wanted, "{when}, by a scan");
}

fn place(db: &Db, number: usize) -> String {
    db.explain_key("default", &key(number)).unwrap().place
}

/// A store whose data lies at `DEEPER`, with nothing in the first slow level.
fn open_deep(world: &World) -> Db {
    let db = Db::open(world.options()).unwrap();
    lay_floor(&db, DEEPER);
    put_on_slow(&db, 0..50, "one");
    assert!(db.state.view().version.levels[FIRST_SLOW].tables.is_empty());
    db
}

#[test]
fn a_record_read_from_the_slow_tier_is_answered_from_memory_next() {
    let world = World::new();
    let db = open(&world);
    put_on_slow(&db, 0..50, "one");
    assert_eq!(place(&db, 7), "L7 on the slow tier");
    assert_eq!(counted(&db, "inserted"), 0, "explaining a key leaves no trace");
    assert_reads(&db, 7, Some("one"), "first");
    let before = db.stats();
    assert_eq!(place(&db, 7), "promotion cache");
    assert_eq!(db.get(&key(7)).unwrap().as_deref(), Some(&value(7, "one")[..]));
    let after = db.stats();
    assert_eq!(after.gets_promotion, before.gets_promotion + 1);
    assert_eq!((after.gets, after.gets_slow), (before.gets + 1, before.gets_slow));
    assert_eq!(after.gets_level, before.gets_level);
    assert_eq!((counted(&db, "inserted"), counted(&db, "records"), walk(&db)), (1, 1, 1));
    let transaction = db.transaction();
    assert_eq!(transaction.get(&key(7)).unwrap().as_deref(), Some(&value(7, "one")[..]));
}

#[test]
fn only_values_of_slow_levels_are_inserted() {
    let world = World::new();
    let db = open(&world);
    put_on_slow(&db, 0..10, "one");
    db.delete(&key(3)).unwrap();
    // A snapshot keeps the deletion, and what it deletes, on the slow tier.
    let snapshot = db.snapshot();
    db.compact_range(None, None).unwrap();
    db.put(&key(4), &value(4, "two")).unwrap();
    db.flush().unwrap();
    db.put(&key(5), &value(5, "two")).unwrap();
    for (number, wanted) in [(3, None), (4, Some("two")), (5, Some("two")), (999, None)] {
        assert_reads(&db, number, wanted, "not inserted");
    }
    assert_eq!((counted(&db, "inserted"), walk(&db)), (0, 0));
    drop(snapshot);
}

#[test]
fn a_promoted_key_that_is_deleted_stays_deleted_wherever_the_deletion_is() {
    for by_range in [false, true] {
        let world = World::new();
        let db = open(&world);
        put_on_slow(&db, 0..50, "one");
        assert_reads(&db, 10, Some("one"), "before");
        let late = HalfRead::begin(&db, &key(11));
        if by_range {
            // No entry of the key itself comes down: the range of the tombstone is all there is.
            db.delete_range(&key(5), &key(15)).unwrap();
        } else {
            [10, 11].iter().for_each(|&number| db.delete(&key(number)).unwrap());
        }
        // A table of little but deletions would go down at once.
        (100..180).for_each(|number| db.put(&key(number), b"beside").unwrap());
        assert_reads(&db, 10, None, "in the memtable");
        db.flush().unwrap();
        assert_reads(&db, 10, None, "in level 0");
        push_down(&world, &db, 0..LEVELS_FAST - 1);
        assert_eq!(counted(&db, "claimed"), 0);
        assert_eq!(place(&db, 10), "deleted, in L6 on the fast tier");
        assert_reads(&db, 10, None, "in the last fast level");
        db.compact_range(None, None).unwrap();
        assert_eq!(counted(&db, "claimed"), 1);
        assert!(place(&db, 10).starts_with("nowhere"), "{}", place(&db, 10));
        assert_reads(&db, 10, None, "gone with the deletion");
        late.finish();
        assert_reads(&db, 11, None, "read before, inserted after");
        assert_eq!((counted(&db, "abandoned_compacted"), walk(&db)), (1, 0));
    }
}

#[test]
fn a_newer_version_that_comes_down_takes_the_record_out() {
    let world = World::new();
    let db = open(&world);
    put_on_slow(&db, 0..50, "one");
    assert_reads(&db, 10, Some("one"), "before");
    db.put(&key(10), &value(10, "two")).unwrap();
    assert_reads(&db, 10, Some("two"), "in the memtable");
    db.compact_range(None, None).unwrap();
    assert_eq!((counted(&db, "claimed"), counted(&db, "records")), (1, 0));
    assert_reads(&db, 10, Some("two"), "on the slow tier");
    assert_reads(&db, 10, Some("two"), "promoted");
    assert_eq!(walk(&db), 1);
}

#[test]
fn a_read_that_pauses_while_a_newer_version_reaches_an_empty_slow_level_inserts_nothing() {
    let world = World::new();
    let db = open_deep(&world);
    let late = HalfRead::begin(&db, &key(10));
    let tables_before = db.state.view().version.levels[DEEPER].tables.clone();
    db.put(&key(10), &value(10, "two")).unwrap();
    push_down(&world, &db, 0..LEVELS_FAST);
    let version = Arc::clone(&db.state.view().version);
    assert!(Arc::ptr_eq(&version.levels[DEEPER].tables[0], &tables_before[0]), "as it was read");
    assert!(version.candidate(FIRST_SLOW, &key(10)).is_some());
    late.finish();
    assert_eq!((counted(&db, "inserted"), counted(&db, "abandoned_compacted")), (0, 1));
    assert_reads(&db, 10, Some("two"), "after");
}

#[test]
fn a_read_that_pauses_until_a_newer_version_is_about_to_come_down_inserts_nothing() {
    let world = World::new();
    let db = open_deep(&world);
    let late = HalfRead::begin(&db, &key(10));
    db.put(&key(10), &value(10, "two")).unwrap();
    push_down(&world, &db, 0..LEVELS_FAST - 1);
    assert_eq!(begin_step(&db, LEVELS_FAST - 1, u64::MAX), Step::Begun, "queued, not run");
    late.finish();
    assert_eq!((counted(&db, "inserted"), counted(&db, "abandoned_compacted")), (0, 1));
    world.settle();
    assert_eq!(place(&db, 10), "L7 on the slow tier");
    assert_reads(&db, 10, Some("two"), "after");
    assert_eq!((counted(&db, "inserted"), walk(&db)), (1, 1), "the claim has ended");
}

#[test]
fn a_read_inserts_beside_a_compaction_that_brings_nothing_of_its_key_down() {
    let world = World::new();
    let db = open_deep(&world);
    let late = [9, 10].map(|number| HalfRead::begin(&db, &key(number)));
    [9, 12].iter().for_each(|&number| db.put(&key(number), &value(number, "two")).unwrap());
    push_down(&world, &db, 0..LEVELS_FAST - 1);
    assert_reads(&db, 9, Some("two"), "from the last fast level");
    assert_eq!(begin_step(&db, LEVELS_FAST - 1, u64::MAX), Step::Begun, "queued, not run");
    late.iter().for_each(HalfRead::finish);
    assert_reads(&db, 11, Some("one"), "meanwhile");
    assert_eq!((counted(&db, "inserted"), counted(&db, "abandoned_compacted"), walk(&db)), (2, 1, 2));
    world.settle();
    assert_eq!((place(&db, 9), place(&db, 10)), ("L7 on the slow tier".into(), "promotion cache".into()));
    for (number, round) in [(9, "two"), (10, "one"), (11, "one"), (12, "two")] {
        assert_reads(&db, number, Some(round), "after");
    }
    assert_eq!(walk(&db), 4);
}

#[test]
fn a_read_inserts_nothing_where_a_range_tombstone_comes_down() {
    let world = World::new();
    let db = open_deep(&world);
    let late = HalfRead::begin(&db, &key(10));
    [8, 12].iter().for_each(|&number| db.put(&key(number), &value(number, "two")).unwrap());
    db.delete_range(&key(9), &key(11)).unwrap();
    // A table of little but deletions would go down at once.
    (100..180).for_each(|number| db.put(&key(number), b"beside").unwrap());
    push_down(&world, &db, 0..LEVELS_FAST - 1);
    assert_reads(&db, 8, Some("two"), "from the last fast level");
    assert_eq!(begin_step(&db, LEVELS_FAST - 1, u64::MAX), Step::Begun, "queued, not run");
    late.finish();
    assert_eq!((counted(&db, "inserted"), counted(&db, "abandoned_compacted")), (0, 1));
    world.settle();
    assert_reads(&db, 10, None, "after");
    assert_eq!(walk(&db), 0);
}

#[test]
fn what_a_failed_compaction_took_and_a_read_found_again_is_there_once() {
    let world = World::new();
    let db = open_deep(&world);
    assert_reads(&db, 10, Some("one"), "before");
    [9, 12].iter().for_each(|&number| db.put(&key(number), &value(number, "two")).unwrap());
    push_down(&world, &db, 0..LEVELS_FAST - 1);
    assert_reads(&db, 9, Some("two"), "from the last fast level");
    let room = db.engine.files.memory.used(MemoryPart::Promotion);
    assert_eq!(begin_step(&db, LEVELS_FAST - 1, u64::MAX), Step::Begun, "queued, not run");
    assert_eq!((counted(&db, "claimed"), counted(&db, "records")), (1, 0));
    assert_reads(&db, 10, Some("one"), "meanwhile");
    assert_eq!((counted(&db, "inserted"), walk(&db)), (2, 1));
    world.slow.away(EIO);
    world.settle();
    world.slow.back();
    assert!(db.stats().background_failures > 0);
    assert_eq!((place(&db, 10), walk(&db)), ("promotion cache".into(), 1));
    assert_eq!(db.engine.files.memory.used(MemoryPart::Promotion), room);
    world.let_time_pass();
    db.compact_range(None, None).unwrap();
    assert_reads(&db, 9, Some("two"), "after it went well");
    assert_reads(&db, 10, Some("one"), "after it went well");
}

#[test]
fn a_read_inserts_nothing_while_the_compaction_writes() {
    let mut world = World::new();
    world.env.executor = Arc::new(ThreadPool::new(1, 1, 1).unwrap());
    let db = open_deep(&world);
    let late = HalfRead::begin(&db, &key(10));
    db.put(&key(10), &value(10, "two")).unwrap();
    world.slow.add(Rule::new(Op::SyncDir, Effect::Stall).times(1));
    std::thread::scope(|scope| {
        scope.spawn(|| db.compact_range(None, None).unwrap());
        world.slow.wait_stalled(1);
        late.finish();
        world.slow.release();
    });
    assert_eq!((counted(&db, "inserted"), counted(&db, "abandoned_compacted")), (0, 1));
    assert_reads(&db, 10, Some("two"), "after");
}

#[test]
fn a_read_that_pauses_while_newer_versions_stay_above_may_insert_and_they_come_down_well() {
    let world = World::new();
    let db = open_deep(&world);
    let late = [10, 20, 30].map(|number| HalfRead::begin(&db, &key(number)));
    db.put(&key(10), &value(10, "two")).unwrap();
    db.flush().unwrap();
    db.delete_range(&key(20), &key(25)).unwrap();
    late.iter().for_each(HalfRead::finish);
    assert_eq!((counted(&db, "inserted"), walk(&db)), (3, 3));
    for bottom in [0, 1, LEVELS_FAST - 1, LEVELS_FAST, DEEPER] {
        push_down(&world, &db, 0..bottom);
        assert_reads(&db, 10, Some("two"), "overwritten above");
        assert_reads(&db, 20, None, "deleted above");
        assert_reads(&db, 30, Some("one"), "untouched");
        walk(&db);
    }
}

#[test]
fn a_compaction_within_the_slow_tier_leaves_what_it_moved_in_and_what_was_read_before_out() {
    let world = World::new();
    let db = open_deep(&world);
    (10..20).for_each(|number| db.put(&key(number), &value(number, "two")).unwrap());
    push_down(&world, &db, 0..LEVELS_FAST);
    assert_reads(&db, 11, Some("two"), "before");
    let late = [12, 13].map(|number| HalfRead::begin(&db, &key(number)));
    assert_eq!(begin_step(&db, FIRST_SLOW, u64::MAX), Step::Begun, "queued, not run");
    assert_eq!((place(&db, 11), walk(&db)), ("promotion cache".into(), 1), "it stays meanwhile");
    late[0].finish();
    assert_reads(&db, 14, Some("two"), "meanwhile");
    assert_eq!((counted(&db, "inserted"), walk(&db)), (3, 3), "nothing newer comes down");
    world.settle();
    assert_eq!(place(&db, 15), "L8 on the slow tier");
    assert_eq!([11, 12, 14].map(|number| place(&db, number)), ["promotion cache"; 3]);
    late[1].finish();
    assert_eq!((counted(&db, "abandoned_compacted"), counted(&db, "claimed"), walk(&db)), (1, 0, 3));
    (10..20).for_each(|number| assert_reads(&db, number, Some("two"), "after"));
    assert_eq!(walk(&db), 10);
}

#[test]
fn records_and_copies_in_the_hot_level_say_the_same_and_leave_together() {
    let world = World::new();
    let db = open(&world);
    put_on_slow(&db, 0..50, "one");
    assert_reads(&db, 10, Some("one"), "promoted into memory");
    write_table(&db, (10..20).map(key), Kind::Copy, LEVELS_FAST, &[]);
    assert_eq!((place(&db, 10), place(&db, 11)), ("promotion cache".into(), "hot 0 on the fast tier".into()));
    (10..20).for_each(|number| assert_reads(&db, number, Some("one"), "promoted into the hot level"));
    assert_eq!((counted(&db, "inserted"), walk(&db)), (1, 1), "what the fast tier answers is not inserted");
    db.put(&key(10), &value(10, "two")).unwrap();
    db.delete_range(&key(12), &key(14)).unwrap();
    for bottom in [0, 1, LEVELS_FAST - 1, LEVELS_FAST] {
        push_down(&world, &db, 0..bottom);
        assert_reads(&db, 10, Some("two"), "overwritten");
        assert_reads(&db, 11, Some("one"), "untouched");
        assert_reads(&db, 12, None, "deleted");
        walk(&db);
    }
    assert_eq!(place(&db, 12), "nowhere: no table or memtable has an entry of it");
}

#[test]
fn snapshots_are_answered_by_records_of_their_time_and_insert_none() {
    let world = World::new();
    let db = open(&world);
    put_on_slow(&db, 0..50, "one");
    let old = db.snapshot();
    put_on_slow(&db, 0..50, "two");
    let new = db.snapshot();
    for number in 0..10 {
        assert_eq!(old.get(&key(number)).unwrap().as_deref(), Some(&value(number, "one")[..]));
        assert_eq!(new.get(&key(number)).unwrap().as_deref(), Some(&value(number, "two")[..]));
    }
    assert_eq!((counted(&db, "inserted"), counted(&db, "abandoned_compacted")), (0, 0));
    (0..10).for_each(|number| assert_reads(&db, number, Some("two"), "the latest"));
    assert_eq!(walk(&db), 10);
    let before = db.stats().gets_promotion;
    for number in 0..10 {
        assert_eq!(old.get(&key(number)).unwrap().as_deref(), Some(&value(number, "one")[..]), "passed by");
        assert_eq!(new.get(&key(number)).unwrap().as_deref(), Some(&value(number, "two")[..]));
    }
    assert_eq!(db.stats().gets_promotion, before + 10);
}

#[test]
fn a_read_of_many_keys_at_a_moment_before_its_view_does_not_insert_what_is_hidden_below() {
    let world = World::new();
    let db = open(&world);
    put_on_slow(&db, 0..50, "one");
    let pin = db.engine.pin();
    put_on_slow(&db, 10..11, "two");
    let late = HalfRead::at(&db, db.state.view(), pin.at(), &key(10));
    assert_eq!(late.found.as_ref().and_then(|found| found.value.as_deref()), Some(&value(10, "one")[..]));
    late.finish();
    assert_eq!((counted(&db, "inserted"), counted(&db, "abandoned_compacted")), (0, 1));
    assert_reads(&db, 10, Some("two"), "the latest");
}

#[test]
fn a_promoted_record_expires_in_its_time_and_uncovers_nothing() {
    let world = World::new();
    let db = open_deep(&world);
    let ttl = WriteOptions { ttl: Some(Duration::from_secs(60)), ..WriteOptions::default() };
    for number in [10, 11] {
        db.put_with(&key(number), &value(number, "two"), &ttl).unwrap();
    }
    push_down(&world, &db, 0..LEVELS_FAST);
    assert_reads(&db, 10, Some("two"), "before its time");
    assert_eq!(place(&db, 10), "promotion cache");
    assert_eq!(db.explain_key("default", &key(10)).unwrap().expiry_ms, Some(1_060_000));
    assert_eq!(walk(&db), 1);
    world.clock.advance(Duration::from_secs(61));
    assert_eq!(place(&db, 10), "expired, in promotion cache");
    assert_reads(&db, 10, None, "an older version lies below");
    assert_reads(&db, 11, None, "expired before it was read");
    assert_eq!(walk(&db), 1, "what has expired is not inserted");
    db.compact_range(None, None).unwrap();
    assert_reads(&db, 10, None, "dropped below");
    assert_eq!(walk(&db), 0);
}

#[test]
fn a_compaction_that_fails_leaves_its_range_open_and_puts_back_what_it_took() {
    let world = World::new();
    let db = open(&world);
    put_on_slow(&db, 0..50, "one");
    assert_reads(&db, 10, Some("one"), "before");
    db.put(&key(20), &value(20, "two")).unwrap();
    push_down(&world, &db, 0..LEVELS_FAST - 1);
    world.slow.away(EIO);
    assert!(db.compact_range(None, None).is_err());
    world.slow.back();
    let inserted = counted(&db, "inserted");
    assert_eq!(place(&db, 10), "promotion cache");
    assert_reads(&db, 10, Some("one"), "after the failure");
    assert_reads(&db, 11, Some("one"), "after the failure");
    assert_reads(&db, 20, Some("two"), "after the failure");
    assert_eq!((counted(&db, "inserted"), walk(&db)), (inserted + 1, 2));
    world.let_time_pass();
    db.compact_range(None, None).unwrap();
    assert_reads(&db, 20, Some("two"), "after it went well");
    assert!(db.check().is_well());
}

#[test]
fn a_lookup_that_fails_inserts_nothing() {
    let world = World::new();
    let db = open_deep(&world);
    db.close().unwrap();
    let db = Db::open(world.options()).unwrap();
    world.slow.away(EIO);
    assert!(db.get(&key(10)).is_err());
    world.slow.back();
    assert_eq!((counted(&db, "inserted"), walk(&db)), (0, 0));
    assert_reads(&db, 10, Some("one"), "after");
}

#[test]
fn an_iterator_across_promotions_and_compactions_sees_every_key_once() {
    let world = World::new();
    let db = open_deep(&world);
    let mut iter = db.iter(IterOptions::default()).unwrap();
    iter.seek(b"key").unwrap();
    for number in 0..50 {
        assert_eq!((iter.key(), iter.value()), (&key(number)[..], &value(number, "one")[..]));
        assert_eq!(db.get(&key(49 - number)).unwrap().is_some(), number < 40, "half of them are ahead");
        if number == 39 {
            assert!(walk(&db) > 0);
            db.delete_range(&key(0), &key(20)).unwrap();
            push_down(&world, &db, 0..LEVELS_FAST);
        }
        iter.next().unwrap();
    }
    assert_eq!(iter.key(), b"z");
}

#[test]
fn a_dropped_keyspace_keeps_no_record_and_takes_none() {
    let world = World::new();
    let db = open(&world);
    let other = db.keyspace("other").unwrap();
    lay_floor(&other, FIRST_SLOW);
    put_on_slow(&other, 0..50, "one");
    assert_reads(&other, 10, Some("one"), "before");
    let late = HalfRead::begin(&other, &key(11));
    let room = Arc::clone(db.engine.promotion_room.as_ref().unwrap());
    assert!(room.used_bytes() > 0);
    db.drop_keyspace("other").unwrap();
    late.finish();
    assert_eq!((room.used_bytes(), other.state.promotion.records()), (0, 0));
    let again = db.keyspace("other").unwrap();
    assert_eq!(again.get(&key(10)).unwrap(), None);
}

#[test]
fn its_memory_is_bounded_and_counted_and_comes_back() {
    let world = World::new();
    let db = open(&world);
    put_on_slow(&db, 0..500, "one");
    (0..500).for_each(|number| assert_reads(&db, number, Some("one"), "more than there is room for"));
    let limit_bytes = db.config().promotion_bytes_max;
    let used = |db: &Db| db.engine.files.memory.used(MemoryPart::Promotion);
    assert!(used(&db) <= limit_bytes && used(&db) > limit_bytes / 2, "{} of {limit_bytes}", used(&db));
    assert!(counted(&db, "refused_full") > 0 && walk(&db) > 0);
    assert!(db.engine.files.memory.total() <= db.config().memory_bytes);
    db.put(&key(0), b"brings a range down").unwrap();
    db.put(&key(499), b"brings a range down").unwrap();
    db.compact_range(None, None).unwrap();
    assert_eq!((used(&db), walk(&db)), (0, 0));
    assert_reads(&db, 7, Some("one"), "after");
    assert_eq!(walk(&db), 1);
}

#[test]
fn without_a_second_tier_or_without_a_tracker_nothing_is_promoted() {
    let world = World::new();
    let one_tier = Options::new("/fast").memory(1 << 20).compression(CompressionChoice::None);
    let no_tracker = world.options_in("/fast-2", "/slow-2");
    let no_tracker = no_tracker.advanced(|advanced| advanced.hotness = Some(Hotness::Off));
    for options in [one_tier.env(world.env.clone()), no_tracker] {
        let is_tiered = options.derive().unwrap().is_tiered();
        let db = Db::open(options).unwrap();
        if is_tiered {
            lay_floor(&db, FIRST_SLOW);
        }
        put_on_slow(&db, 0..50, "one");
        assert_reads(&db, 10, Some("one"), "from a table");
        assert_reads(&db, 10, Some("one"), "from a table again");
        assert_eq!(is_tiered, place(&db, 10) == "L7 on the slow tier");
        assert!(!db.state.promotion.is_on() && db.config().promotion_bytes_max == 0);
        assert_eq!((db.stats().gets_promotion, counted(&db, "refused_full")), (0, 0));
    }
}
