//! Promise 7: with the slow tier away, what the fast tier can answer and all writes go on; the rest fails with a
//! retryable `TierUnavailable`; when the tier is back everything works without a restart.

use std::sync::Arc;
use std::time::Duration;

use kelvin_base::{ErrorKind, Tier};
use kelvin_lsm::db::{Db, IterOptions};
use kelvin_lsm::options::Options;
use kelvin_storage::DeadlineStorage;
use kelvin_storage::deadline::Deadline;
use kelvin_storage::fault::{EIO, ENODEV, Effect, Op, Rule};

use crate::rig::{FAST, Rig, SLOW, assert_filled, assert_says, fill, key};

#[test]
fn reads_of_the_fast_tier_and_writes_go_on_and_the_rest_fails_until_it_is_back() {
    for errno in [EIO, ENODEV] {
        let rig = Rig::new();
        let db = Db::open(rig.filled()).unwrap();
        rig.slow.away(errno);
        for _ in 0..3 {
            let error = db.get(b"a0000").unwrap_err();
            assert_says(&error, ErrorKind::TierUnavailable, &["nothing is lost"]);
            assert!(error.is_retryable());
            assert_eq!(error.on(), Some(Tier::Slow), "{error}");
        }
        assert_filled(&db, 'f', 100);
        assert_filled(&db, 'w', 50);
        fill(&db, 'x', 50);
        db.delete(b"a0001").unwrap();
        assert_eq!(db.get(b"a0001").unwrap(), None, "the deletion in the memtable answers");
        db.flush().unwrap();
        assert_filled(&db, 'x', 50);
        let mut answers = db.multi_get(&[b"f0000", b"a0000"]);
        assert_eq!(answers.pop().unwrap().unwrap_err().kind(), ErrorKind::TierUnavailable);
        assert!(answers.pop().unwrap().unwrap().is_some());
        rig.slow.back();
        assert_filled(&db, 'x', 50);
        assert!(db.get(b"a0000").unwrap().is_some());
        assert_eq!(db.get(b"a0001").unwrap(), None);
    }
}

#[test]
fn scans_that_end_on_the_fast_tier_work_and_others_say_why_not() {
    let rig = Rig::new();
    let db = Db::open(rig.filled()).unwrap();
    rig.slow.away(EIO);
    let within = IterOptions { lower: Some("f".into()), upper: Some("g".into()), ..IterOptions::default() };
    let mut iter = db.iter(within).unwrap();
    iter.seek_to_first().unwrap();
    let mut count = 0;
    while iter.valid() {
        count += 1;
        iter.next().unwrap();
    }
    assert_eq!(count, 100);
    let mut iter = db.iter(IterOptions::default()).unwrap();
    let error = iter.seek_to_first().unwrap_err();
    assert_says(&error, ErrorKind::TierUnavailable, &["nothing is lost"]);
    rig.slow.back();
    let mut iter = db.iter(IterOptions::default()).unwrap();
    iter.seek_to_first().unwrap();
    assert_eq!(iter.key(), key('A', 0));
}

#[test]
fn compactions_to_the_slow_tier_back_off_and_end_well_once_it_is_back() {
    let rig = Rig::new();
    let db = Db::open(rig.filled()).unwrap();
    rig.slow.away(EIO);
    for round in 0..30 {
        let letter = char::from(b'k' + round % 3);
        if let Err(error) = db.put(&key(letter, 0), b"v") {
            assert!(error.is_retryable(), "{error}");
            break;
        }
        fill_while_it_goes(&db, letter);
        rig.executor.run_all();
    }
    let failures = db.stats().background_failures;
    assert!(failures > 0, "a compaction to the slow tier was tried");
    rig.executor.run_all();
    assert_eq!(db.stats().background_failures, failures, "no retry before its time");
    assert!(db.stats().background_error.is_some());
    rig.slow.back();
    for _ in 0..10 {
        rig.let_time_pass();
    }
    db.wait_idle().unwrap();
    assert_eq!(db.stats().background_error, None);
    fill(&db, 'v', 100);
    assert_filled(&db, 'v', 100);
    assert_filled(&db, 'a', 200);
    assert!(db.check().is_well());
}

fn fill_while_it_goes(db: &Db, letter: char) {
    for number in 0..100 {
        let key = key(letter, number);
        match db.put(&key, &crate::rig::value(&key)) {
            Ok(()) => {}
            Err(error) => {
                assert!(error.is_retryable(), "{error}");
                return;
            }
        }
    }
}

#[test]
fn writers_who_wait_for_a_flush_do_not_hear_of_the_slow_tier() {
    let rig = Rig::new();
    let options = rig.filled();
    let db = Db::open(options.fast_capacity(8 << 20)).unwrap();
    rig.slow.away(EIO);
    // A failing compaction to the slow tier, asked for by hand.
    assert!(db.compact_range(None, None).is_err());
    assert!(db.stats().background_error.is_some());
    // Far more than all memtables hold: writers wait for flushes, which need the fast tier only.
    for _ in 0..3 {
        fill(&db, 'y', 1000);
    }
    assert_filled(&db, 'y', 1000);
}

/// Options of a filled store whose slow tier must answer within the time that is told beside.
fn filled_behind_a_deadline(rig: &Rig) -> (Options, Duration) {
    let options = rig.filled();
    let limit = Duration::from_secs(10);
    let deadline = Deadline { limit, probe_interval: Duration::from_secs(1), workers_max: 8, idle_max: 4 };
    let mut env = rig.env();
    env.slow = Arc::new(DeadlineStorage::new(rig.slow.clone(), deadline, rig.clock.clone()));
    (Options { env: Some(env), ..options }, limit)
}

/// It, opened.
fn behind_a_deadline(rig: &Rig) -> (Db, Duration) {
    let (options, limit) = filled_behind_a_deadline(rig);
    (Db::open(options).unwrap(), limit)
}

/// Has the disk make the first table of a compaction only when it is let go: until then it has been given up.
fn hang_a_creation(rig: &Rig, db: &Db, limit: Duration) {
    rig.slow.add(Rule::new(Op::Create, Effect::Stall));
    let error = std::thread::scope(|scope| {
        let caller = scope.spawn(|| db.compact_range(None, None).unwrap_err());
        rig.slow.wait_stalled(1);
        rig.clock.advance(limit);
        caller.join().unwrap()
    });
    assert_eq!(error.kind(), ErrorKind::TierUnavailable, "{error}");
    rig.slow.clear();
}

#[test]
fn a_hanging_slow_tier_fails_its_readers_in_time_and_comes_back() {
    let rig = Rig::new();
    let (db, limit) = behind_a_deadline(&rig);
    assert!(db.get(b"a0000").unwrap().is_some());
    rig.slow.add(Rule::any(Effect::Stall));
    // Time is the test's: it passes once the reader waits for the device, and no machine is too slow for it.
    let error = std::thread::scope(|scope| {
        let reader = scope.spawn(|| db.get(b"a0100").unwrap_err());
        rig.slow.wait_stalled(1);
        rig.clock.advance(limit);
        reader.join().unwrap()
    });
    assert_says(&error, ErrorKind::TierUnavailable, &["nothing is lost"]);
    assert!(error.is_retryable());
    let before = rig.slow.operations();
    assert!(db.get(b"a0101").is_err());
    assert_eq!(rig.slow.operations(), before, "further readers are told at once");
    assert_filled(&db, 'f', 100);
    fill(&db, 'x', 20);
    rig.slow.clear();
    rig.slow.release();
    rig.clock.advance(Duration::from_secs(2));
    assert_filled(&db, 'a', 200);
    assert_filled(&db, 'x', 20);
    db.close().unwrap();
}

#[test]
fn opening_with_the_slow_tier_away_says_so_changes_nothing_and_works_later() {
    let rig = Rig::new();
    let options = rig.filled();
    let before = rig.fingerprint();
    rig.slow.away(EIO);
    let error = crate::rig::refused(options.clone());
    assert_says(&error, ErrorKind::TierUnavailable, &["nothing is lost"]);
    rig.slow.back();
    assert_eq!(rig.fingerprint(), before);
    assert_filled(&Db::open(options).unwrap(), 'a', 200);
}

#[test]
fn closing_with_the_slow_tier_away_works_and_loses_nothing() {
    let rig = Rig::new();
    let options = rig.filled();
    let db = Db::open(options.clone()).unwrap();
    rig.slow.add(Rule::new(Op::Append, Effect::Error(EIO)));
    rig.slow.away(EIO);
    fill(&db, 'x', 50);
    db.close().unwrap();
    rig.slow.back();
    rig.slow.clear();
    let db = Db::open(options).unwrap();
    assert_filled(&db, 'x', 50);
    assert_filled(&db, 'a', 200);
}

#[test]
fn files_that_could_not_be_removed_while_the_slow_tier_was_away_go_once_it_is_back() {
    let rig = Rig::new();
    let db = Db::open(rig.filled()).unwrap();
    let tables = |db: &Db| db.levels().iter().map(|level| level.tables).sum::<usize>();
    let files = || rig.files(SLOW, ".tbl").len() + rig.files(FAST, ".tbl").len();
    rig.executor.run_all();
    assert_eq!(files(), tables(&db));
    // What is compacted goes; the disk is away once that is only a matter of removing its files.
    rig.slow.add(Rule::new(Op::Remove, Effect::Error(EIO)));
    db.compact_range(None, None).unwrap();
    rig.executor.run_all();
    let used = db.stats().used_bytes[1];
    assert!(files() > tables(&db), "{} files of {} tables", files(), tables(&db));
    for _ in 0..10 {
        rig.let_time_pass();
    }
    rig.slow.clear();
    for _ in 0..10 {
        rig.let_time_pass();
    }
    assert_eq!(files(), tables(&db));
    assert!(db.stats().used_bytes[1] < used, "their room is free again");
    db.close().unwrap();
}

#[test]
fn a_file_that_a_hanging_disk_makes_after_all_does_not_stay() {
    let rig = Rig::new();
    let (db, limit) = behind_a_deadline(&rig);
    let files = || rig.files(SLOW, ".tbl");
    let before = files();
    hang_a_creation(&rig, &db, limit);
    let time_passes = || {
        for _ in 0..10 {
            rig.clock.advance(Duration::from_secs(2));
            rig.executor.fire_delayed();
            rig.executor.run_all();
        }
    };
    // Others are answered meanwhile: there is nothing to remove yet.
    time_passes();
    rig.slow.release();
    while files() == before {
        std::thread::yield_now();
    }
    time_passes();
    db.wait_idle().unwrap();
    let tables = db.levels().iter().map(|level| level.tables).sum::<usize>();
    assert_eq!(files().len() + rig.files(FAST, ".tbl").len(), tables);
    assert_filled(&db, 'a', 200);
}

#[test]
fn a_store_that_was_closed_while_its_disk_hung_opens_once_the_disk_has_ended_what_it_owed() {
    let rig = Rig::new();
    let (options, limit) = filled_behind_a_deadline(&rig);
    let db = Db::open(options).unwrap();
    hang_a_creation(&rig, &db, limit);
    db.close().unwrap();
    // Another storage, as in another process: what is guarded are the files.
    let again = || rig.tiered();
    assert_says(&crate::rig::refused(again()), ErrorKind::Busy, &[SLOW, "wait until the disk has ended"]);
    rig.slow.release();
    let db = loop {
        match Db::open(again()) {
            Ok(db) => break db,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
        }
        std::thread::yield_now();
    };
    db.wait_idle().unwrap();
    let tables = db.levels().iter().map(|level| level.tables).sum::<usize>();
    assert_eq!(rig.files(SLOW, ".tbl").len() + rig.files(FAST, ".tbl").len(), tables);
    assert_filled(&db, 'a', 200);
}

#[test]
fn nothing_is_removed_once_the_store_is_closed() {
    let rig = Rig::new();
    let db = Db::open(rig.filled()).unwrap();
    // Keeps the store's files in memory, not the store open.
    let iter = db.iter(IterOptions::default()).unwrap();
    rig.slow.add(Rule::new(Op::Remove, Effect::Error(EIO)));
    db.compact_range(None, None).unwrap();
    rig.executor.run_all();
    db.close().unwrap();
    rig.slow.clear();
    let files = rig.files(SLOW, ".tbl");
    for _ in 0..10 {
        rig.let_time_pass();
    }
    assert_eq!(rig.files(SLOW, ".tbl"), files, "the directory may be another process's by now");
    drop(iter);
}
