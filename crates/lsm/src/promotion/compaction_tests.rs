//! Boundary compactions that keep what is hot, and merges of runs, on a store whose every read from the slow tier is promoted. After
//! each the audit finds nothing, and readers see what they saw.

use std::sync::Arc;
use std::time::Duration;

use kelvin_storage::fault::{EIO, Effect, FaultStorage, Op, Rule};

use super::testing::{counted, walk};
use crate::compaction::pick::Forced;
use crate::db::testing::{World, key, lay_floor, push_down, put_on_slow, value};
use crate::db::{Db, WriteOptions};
use crate::options::{HotParts, Hotness, Options};
use crate::version::{FIRST_SLOW, LEVELS_FAST};

/// Records from here on are read to fill the cache.
const FILLERS: usize = 300;

fn options(world: &World) -> Options {
    world.options().advanced(|advanced| {
        advanced.hotness = Some(Hotness::Oracle);
        advanced.hot_parts = HotParts { hotness_check: false, ..HotParts::default() };
        advanced.promotion_bytes = Some(6 << 10);
    })
}

fn open(world: &World) -> Db {
    let db = Db::open(options(world)).unwrap();
    lay_floor(&db, FIRST_SLOW);
    put_on_slow(&db, 0..1_000, "one");
    db
}

fn place(db: &Db, number: usize) -> String {
    db.explain_key("default", &key(number)).unwrap().place
}

fn assert_value(db: &Db, number: usize, wanted: Option<&str>, when: &str) {
    let wanted = wanted.map(|round| value(number, round));
    assert_eq!(db.get(&key(number)).unwrap().as_deref(), wanted.as_deref(), "key {number}, {when}");
}

/// Makes a run of records with `first` among them: reads these and then others, until the cache is full.
fn promote(world: &World, db: &Db, first: std::ops::Range<usize>, fillers: usize) {
    let before = db.stats().boundary.flushed_bytes;
    first.for_each(|number| drop(db.get(&key(number)).unwrap().unwrap()));
    let mut number = fillers;
    while db.stats().boundary.flushed_bytes == before {
        db.get(&key(number)).unwrap().unwrap();
        world.settle();
        number += 1;
        assert!(number < fillers + 100, "the cache is never full: {:?}", db.stats().promotion);
    }
}

/// Brings what was written to the last fast level, among so much else that it does not go on by itself.
fn bring_down(world: &World, db: &Db) {
    (2_000..2_150).for_each(|number| db.put(&key(number), b"beside").unwrap());
    push_down(world, db, 0..LEVELS_FAST - 1);
}

fn force(world: &World, db: &Db, what: Forced) {
    assert!(db.force(what, 0), "{what:?}: there is something to do");
    world.settle();
    assert_eq!(db.stats().background_failures, 0);
    assert_audit(db);
}

fn assert_audit(db: &Db) {
    let audit = db.audit().unwrap();
    assert!(audit.findings.is_empty() && audit.entries > 0, "{:#?}", audit.findings);
}

#[test]
fn only_what_something_newer_may_meet_is_promoted_by_a_compaction() {
    let world = World::new();
    let db = open(&world);
    [8, 12].iter().for_each(|&number| db.put(&key(number), &value(number, "two")).unwrap());
    push_down(&world, &db, 0..LEVELS_FAST - 1);
    [8, 10, 12, 40].iter().for_each(|&number| drop(db.get(&key(number)).unwrap().unwrap()));
    assert_eq!((place(&db, 10), walk(&db)), ("promotion cache".into(), 2));
    force(&world, &db, Forced::Boundary);
    assert_eq!((place(&db, 10), place(&db, 40)), ("L6 on the fast tier".into(), "promotion cache".into()));
    assert!(db.stats().boundary.promoted_bytes > 0);
    for number in [8, 10, 12, 40] {
        let wanted = if matches!(number, 8 | 12) { "two" } else { "one" };
        assert_value(&db, number, Some(wanted), "after");
    }
}

#[test]
fn a_promotion_by_flush_never_hides_what_lies_in_a_fast_level() {
    for bottom in [0, 1, 3, LEVELS_FAST - 1] {
        let world = World::new();
        let db = open(&world);
        (0..8).for_each(|number| assert_value(&db, number, Some("one"), "before"));
        db.put(&key(2), &value(2, "two")).unwrap();
        db.delete(&key(3)).unwrap();
        db.delete_range(&key(4), &key(6)).unwrap();
        (2_000..2_150).for_each(|number| db.put(&key(number), b"beside").unwrap());
        push_down(&world, &db, 0..bottom);
        promote(&world, &db, 0..2, FILLERS);
        assert_audit(&db);
        for (number, wanted) in
            [Some("one"), Some("one"), Some("two"), None, None, None, Some("one")].into_iter().enumerate()
        {
            assert_value(&db, number, wanted, &format!("with level {bottom} above"));
        }
    }
}

#[test]
fn a_promoted_key_is_answered_by_the_newest_of_several_sealed_memtables() {
    let world = World::new();
    let db = open(&world);
    assert_value(&db, 7, Some("one"), "promoted");
    for round in ["two", "three", "four"] {
        db.put(&key(7), &value(7, round)).unwrap();
        db.engine.seal(&db.state).unwrap();
        assert_value(&db, 7, Some(round), "sealed");
    }
    assert_eq!(db.state.view().imms.len(), 3, "no flush has run");
    assert_audit(&db);
    db.delete(&key(7)).unwrap();
    db.engine.seal(&db.state).unwrap();
    assert_value(&db, 7, None, "sealed");
    world.settle();
    assert_value(&db, 7, None, "flushed");
}

#[test]
fn a_range_deletion_that_crosses_the_boundary_takes_the_copies_it_meets_with_it() {
    let world = World::new();
    let db = open(&world);
    promote(&world, &db, 0..8, FILLERS);
    db.delete_range(&key(2), &key(5)).unwrap();
    bring_down(&world, &db);
    assert_eq!(place(&db, 3), "deleted, in L6 on the fast tier");
    force(&world, &db, Forced::Boundary);
    (2..5).for_each(|number| assert_value(&db, number, None, "deleted"));
    assert_value(&db, 1, Some("one"), "untouched");
    db.compact_range(None, None).unwrap();
    (2..5).for_each(|number| assert_value(&db, number, None, "deleted, at the bottom"));
}

#[test]
fn what_is_newer_than_a_copy_stays_above_it_when_its_table_goes_down() {
    let world = World::new();
    let db = open(&world);
    promote(&world, &db, 0..8, FILLERS);
    let check = |when: &str| {
        (0..4).for_each(|number| assert_value(&db, number, Some("two"), when));
        assert_value(&db, 4, None, when);
        assert_value(&db, 5, Some("one"), when);
    };
    // Enough of it that what stays is not mostly deletions.
    (0..4).for_each(|number| db.put(&key(number), &value(number, "two")).unwrap());
    db.delete(&key(4)).unwrap();
    bring_down(&world, &db);
    check("above the run");
    force(&world, &db, Forced::Boundary);
    assert_eq!(
        (place(&db, 3), place(&db, 4)),
        ("L6 on the fast tier".into(), "deleted, in L6 on the fast tier".into())
    );
    assert!(place(&db, 2_100).contains("slow tier"), "the rest of its table has gone");
    check("its table has gone down");
    assert_eq!(db.audit().unwrap().stale_copies, 5);
    db.compact_range(None, None).unwrap();
    check("at the bottom");
    assert_eq!(db.audit().unwrap().copies, 0);
}

/// Writes a few keys over and over, so that whatever was written before counts as not written anew for long.
fn pass_time(db: &Db) {
    (0..3_000).for_each(|round| db.put(&key(2_200 + round % 5), b"beside").unwrap());
}

/// A store with hot records in its last fast level: 8 and 9 written long ago, 10 lately.
fn with_hot_records_above(world: &World, options: Options) -> Db {
    let db = Db::open(options).unwrap();
    lay_floor(&db, FIRST_SLOW);
    put_on_slow(&db, 0..1_000, "one");
    [8, 9].iter().for_each(|&number| db.put(&key(number), &value(number, "two")).unwrap());
    bring_down(world, &db);
    pass_time(&db);
    db.put(&key(10), &value(10, "two")).unwrap();
    push_down(world, &db, 0..LEVELS_FAST - 1);
    (8..11).for_each(|number| assert_value(&db, number, Some("two"), "before"));
    db
}

#[test]
fn what_is_hot_and_was_not_written_anew_for_long_goes_down_and_leaves_a_copy() {
    let world = World::new();
    let db = with_hot_records_above(&world, options(&world));
    let snapshot = db.snapshot();
    force(&world, &db, Forced::Boundary);
    assert_eq!((place(&db, 8), place(&db, 9)), ("promotion cache".into(), "promotion cache".into()));
    assert_eq!(place(&db, 10), "L6 on the fast tier", "it may soon be written again");
    let boundary = db.stats().boundary;
    assert!(boundary.lifted_bytes > 0 && boundary.retained_bytes > 0, "{boundary:?}");
    (8..11).for_each(|number| assert_value(&db, number, Some("two"), "after"));
    drop(snapshot);
    // A run of the hot level takes the copies; what they duplicate lies below.
    promote(&world, &db, 8..9, FILLERS);
    assert!(place(&db, 8).starts_with("hot"), "{}", place(&db, 8));
    assert_audit(&db);
    db.compact_range(None, None).unwrap();
    assert_eq!(db.audit().unwrap().copies, 0);
    (8..11).for_each(|number| assert_value(&db, number, Some("two"), "at the bottom"));
}

#[test]
fn what_lies_above_an_older_copy_is_not_handed_up() {
    let world = World::new();
    let db = open(&world);
    promote(&world, &db, 0..8, FILLERS);
    (0..4).for_each(|number| db.put(&key(number), &value(number, "two")).unwrap());
    bring_down(&world, &db);
    pass_time(&db);
    (0..4).for_each(|number| assert_value(&db, number, Some("two"), "before"));
    force(&world, &db, Forced::Boundary);
    assert_eq!((place(&db, 3).as_str(), db.stats().boundary.lifted_bytes), ("L6 on the fast tier", 0));
    db.close().unwrap();
    // Nothing is in the cache now that could hide what a run says.
    let db = Db::open(options(&world)).unwrap();
    (0..4).for_each(|number| assert_value(&db, number, Some("two"), "opened again"));
}

#[test]
fn a_compaction_that_fails_hands_nothing_up() {
    let world = World::new();
    let slow = Arc::new(FaultStorage::new(Arc::clone(&world.env.slow), 1));
    let mut env = world.env.clone();
    env.slow = slow.clone();
    let db = with_hot_records_above(&world, options(&world).env(env));
    slow.add(Rule::new(Op::Sync, Effect::Error(EIO)));
    assert!(db.force(Forced::Boundary, 0));
    world.settle();
    assert!(slow.injected() > 0);
    assert_eq!((place(&db, 8).as_str(), walk(&db)), ("L6 on the fast tier", 0), "the cache is empty");
    slow.clear();
    (8..11).for_each(|number| assert_value(&db, number, Some("two"), "after the failure"));
    world.let_time_pass();
    assert_audit(&db);
    assert!(db.force(Forced::Boundary, 0) || place(&db, 8) == "promotion cache", "it is tried again");
    world.settle();
    assert_eq!((place(&db, 8).as_str(), walk(&db)), ("promotion cache", 2));
}

#[test]
fn a_run_that_cannot_be_opened_guards_every_key_of_its_range() {
    let world = World::new();
    let db = open(&world);
    promote(&world, &db, 0..8, FILLERS);
    let runs = db.audit().unwrap().run_files;
    assert_eq!(runs.len(), 1);
    // Enough of it that what stays is not mostly deletions.
    (0..4).for_each(|number| db.put(&key(number), &value(number, "two")).unwrap());
    db.delete(&key(4)).unwrap();
    bring_down(&world, &db);
    db.close().unwrap();
    let fast = Arc::new(FaultStorage::new(Arc::clone(&world.env.fast), 1));
    fast.add(Rule::new(Op::Open, Effect::Error(EIO)).on(runs[0].to_string_lossy()));
    let mut env = world.env.clone();
    env.fast = fast.clone();
    let db = Db::open(options(&world).env(env)).unwrap();
    assert!(db.force(Forced::Boundary, 0));
    world.settle();
    assert!(fast.injected() > 0, "the run was asked");
    fast.clear();
    (0..4).for_each(|number| assert_value(&db, number, Some("two"), "the run can be read again"));
    assert_eq!(place(&db, 3), "L6 on the fast tier");
    assert_value(&db, 4, None, "the run can be read again");
    assert_audit(&db);
}

#[test]
fn a_merge_of_runs_drops_the_copies_of_what_was_written_since() {
    let world = World::new();
    let db = open(&world);
    promote(&world, &db, 0..8, FILLERS);
    promote(&world, &db, 20..28, FILLERS + 100);
    db.put(&key(3), &value(3, "two")).unwrap();
    db.delete(&key(21)).unwrap();
    bring_down(&world, &db);
    let before = db.audit().unwrap();
    assert_eq!((before.run_files.len(), before.stale_copies), (2, 2));
    // All that is hot was read a moment ago; the exact tracker weighs anew once as much was read as is hot.
    (0..3).for_each(|_| (0..8).chain(20..28).for_each(|number| drop(db.get(&key(number)).unwrap())));
    force(&world, &db, Forced::Runs);
    let after = db.audit().unwrap();
    assert_eq!((after.run_files.len(), after.stale_copies), (1, 0));
    assert!(after.copies > 0, "what is hot stays");
    assert_value(&db, 3, Some("two"), "after");
    assert_value(&db, 21, None, "after");
    assert_value(&db, 22, Some("one"), "after");
}

#[test]
fn a_record_that_may_have_expired_below_does_not_come_back_from_a_claim() {
    let world = World::new();
    let db = Db::open(options(&world)).unwrap();
    lay_floor(&db, FIRST_SLOW + 1);
    put_on_slow(&db, 0..50, "one");
    let ttl = WriteOptions { ttl: Some(Duration::from_secs(60)), ..WriteOptions::default() };
    (10..20).for_each(|number| db.put_with(&key(number), &value(number, "two"), &ttl).unwrap());
    push_down(&world, &db, 0..LEVELS_FAST);
    assert_value(&db, 11, Some("two"), "before its time");
    assert_eq!((place(&db, 11), walk(&db)), ("promotion cache".into(), 1));
    world.clock.advance(Duration::from_secs(61));
    push_down(&world, &db, FIRST_SLOW..FIRST_SLOW + 1);
    assert_eq!((counted(&db, "claimed"), walk(&db)), (1, 0));
    assert_value(&db, 11, None, "after its time");
    assert_audit(&db);
}
