//! What follows the end of background work (`schedule`): a keyspace dropped under it, a wait for room that nobody else
//! will end, and failures of work that nobody wants any more.

use std::sync::mpsc::channel;
use std::time::Duration;

use kelvin_base::ErrorKind;
use kelvin_lsm::db::{Db, IterOptions, Keyspace};
use kelvin_storage::fault::{EIO, Effect, Op, Rule};

use crate::rig::{FAST, Rig, assert_filled, assert_says, fill, key, value};

/// Longer than any of these waits takes; one that has no end fails by it.
const ENDLESS: Duration = Duration::from_secs(60);

/// What `wait` answers, on a thread of its own so that a wait without end fails.
#[expect(clippy::disallowed_methods, reason = "nobody joins the thread of a wait without end")]
fn in_time<T: Send + 'static>(name: &str, wait: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, ended) = channel();
    std::thread::spawn(move || {
        let _heard = sender.send(wait());
    });
    ended.recv_timeout(ENDLESS).unwrap_or_else(|why| panic!("{name} does not end: {why}"))
}

/// Small memtables, and two keyspaces to fill them in: the store, and the keyspace "gone" with 50 records.
fn with_another_keyspace(rig: &Rig) -> (Db, Keyspace) {
    let options = rig.single().advanced(|advanced| advanced.memtable_bytes = Some(64 << 10));
    let db = Db::open(options).unwrap();
    let gone = db.keyspace("gone").unwrap();
    for number in 0..50 {
        gone.put(&key('g', number), &value(&key('g', number))).unwrap();
    }
    (db, gone)
}

/// Has every job run up to the operation `held` and drops the keyspace "gone" there.
fn drop_at(rig: &Rig, db: &Db, held: Op) {
    rig.fast.add(Rule::new(held, Effect::Stall).on("*.tbl").times(1));
    std::thread::scope(|scope| {
        let jobs = scope.spawn(|| rig.executor.run_all());
        rig.fast.wait_stalled(1);
        db.drop_keyspace("gone").unwrap();
        rig.fast.release();
        jobs.join().unwrap();
    });
}

/// Nothing is told of the keyspace: writers who come to wait for flushes go on, and no file of it is left.
fn assert_forgiven(rig: &Rig, db: &Db) {
    assert_eq!(db.stats().background_error, None);
    // More than the memtables hold, with no job run but by the writer who waits.
    fill(db, 'w', 2000);
    db.flush().unwrap();
    db.wait_idle().unwrap();
    rig.let_time_pass();
    let stats = db.stats();
    assert_eq!((stats.background_error, stats.background_failures), (None, 0));
    assert_filled(db, 'w', 2000);
    let named: usize = db.levels().iter().map(|level| level.tables).sum();
    assert_eq!(rig.files(FAST, ".tbl").len(), named, "a table of the dropped keyspace is left");
}

#[test]
fn a_flush_of_a_keyspace_dropped_meanwhile_is_no_failure() {
    for held in [Op::Create, Op::Append, Op::Sync] {
        let rig = Rig::new();
        let (db, gone) = with_another_keyspace(&rig);
        // It is begun by the first to run a job: nobody waits for it.
        while rig.executor.queued() == 0 {
            gone.put(b"more", &value(b"more")).unwrap();
        }
        drop_at(&rig, &db, held);
        assert_forgiven(&rig, &db);
        assert_says(&gone.flush().unwrap_err(), ErrorKind::InvalidArgument, &["\"gone\" was dropped"]);
    }
}

#[test]
fn a_flush_that_fails_once_its_keyspace_is_dropped_is_no_failure_either() {
    let rig = Rig::new();
    let (db, gone) = with_another_keyspace(&rig);
    while rig.executor.queued() == 0 {
        gone.put(b"more", &value(b"more")).unwrap();
    }
    rig.fast.add(Rule::new(Op::Sync, Effect::Error(EIO)).on("*.tbl").times(1));
    drop_at(&rig, &db, Op::Create);
    assert_eq!(rig.fast.injected(), 2, "it was held, then it failed");
    assert_forgiven(&rig, &db);
}

#[test]
fn a_compaction_of_a_keyspace_dropped_meanwhile_is_no_failure() {
    let rig = Rig::new();
    let (db, gone) = with_another_keyspace(&rig);
    gone.flush().unwrap();
    // Overlapping tables until a compaction is due; the flushes wait for nobody else's work.
    while db.stats().compactions == 0 && rig.executor.queued() == 0 {
        gone.put(&key('g', 7), b"again").unwrap();
        gone.flush().unwrap();
    }
    assert_eq!(db.stats().compactions, 0, "it is queued and has not run");
    drop_at(&rig, &db, Op::Create);
    assert_forgiven(&rig, &db);
}

#[test]
fn a_failed_flush_is_forgotten_when_its_keyspace_is_dropped_and_not_before() {
    let rig = Rig::new();
    let (db, gone) = with_another_keyspace(&rig);
    rig.fast.add(Rule::new(Op::Sync, Effect::Error(EIO)).on("*.tbl"));
    assert_says(&gone.flush().unwrap_err(), ErrorKind::Io, &[".tbl"]);
    rig.let_time_pass();
    let told = db.stats().background_error.unwrap();
    assert!(told.contains(".tbl"), "it failed again and is still wanted: {told}");
    db.drop_keyspace("gone").unwrap();
    assert_eq!(db.stats().background_error, None, "at once: no writer hears of it until the next try");
    db.wait_idle().unwrap();
    rig.fast.clear();
    fill(&db, 'w', 2000);
    assert_filled(&db, 'w', 2000);
}

#[test]
fn a_failed_compaction_that_was_asked_for_is_forgotten_once_nothing_is_due() {
    let rig = Rig::new();
    let db = Db::open(rig.single()).unwrap();
    for op in [Op::Create, Op::Append, Op::Sync] {
        // Two tables over the same keys, too few for anything to be due.
        fill(&db, 'a', 100);
        db.flush().unwrap();
        db.delete(&key('a', 99)).unwrap();
        db.flush().unwrap();
        db.wait_idle().unwrap();
        rig.fast.add(Rule::new(op, Effect::Error(EIO)).on("*.tbl").times(1));
        assert_says(&db.compact_range(None, None).unwrap_err(), ErrorKind::Io, &[".tbl"]);
        assert!(db.stats().background_error.is_some());
        rig.let_time_pass();
        assert_eq!(db.stats().background_error, None, "{op:?}");
        db.wait_idle().unwrap();
        assert_filled(&db, 'a', 99);
        db.compact_range(None, None).unwrap();
        assert_filled(&db, 'a', 99);
    }
}

/// A flush that finds no room waits for the removal of files, which raises no retry of its own: who waits for the flush
/// has it tried again, and no timer fires here.
#[test]
fn a_flush_that_waited_for_room_is_tried_again_by_who_waits_for_it() {
    type Wait = fn(&Db) -> kelvin_base::Result<()>;
    let waits: [(&str, Wait); 3] =
        [("flush", |db| db.flush()), ("wait_idle", |db| db.wait_idle()), ("put", |db| db.put(b"last", b"v"))];
    for (name, wait) in waits {
        let rig = Rig::new();
        let db =
            Db::open(rig.single().advanced(|advanced| advanced.memtable_bytes = Some(64 << 10))).unwrap();
        for _ in 0..2 {
            fill(&db, 'a', 300);
            db.flush().unwrap();
        }
        let iter = db.iter(IterOptions::default()).unwrap();
        db.compact_range(None, None).unwrap();
        rig.executor.run_all();
        let mut count = 0;
        while db.stats().pressure != "stopped: memtables" {
            db.put(&key('b', count), &value(&key('b', count))).unwrap();
            count += 1;
        }
        rig.fast_memory.set_capacity(rig.fast_memory.used_bytes());
        // The tables that the compaction merged go with their last reader, and room with them: behind the flush.
        drop(iter);
        assert_eq!(rig.executor.queued(), 3, "a flush and two removals");
        let (outcome, db) = in_time(name, move || (wait(&db), db));
        outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
        let stats = db.stats();
        assert_eq!((stats.background_error, stats.background_failures), (None, 0), "{name}");
        assert_eq!(
            rig.executor.fire_delayed(),
            1,
            "{name}: the flush was refused once, and no timer ended its wait"
        );
        assert_filled(&db, 'a', 300);
        assert_filled(&db, 'b', count);
    }
}
