//! Bulk loads: all of it or nothing, below what is written later, in no prefix that lacks what was before, and never under somebody's eyes.

use std::sync::Arc;

use kelvin_base::{Error, ErrorKind, ManualClock, ManualExecutor, Result};
use kelvin_lsm::bulk::{BulkLoad, BulkLoaded};
use kelvin_lsm::db::{Db, IterOptions, Keyspace, WriteOptions};
use kelvin_lsm::options::{Durability, Env, Options};
use kelvin_storage::crash::{CrashModel, CrashStorage};
use kelvin_storage::fault::{EIO, ENOSPC, Effect, Op, Rule};

use crate::rig::{FAST, Rig, SLOW, assert_filled, assert_says, check, fill, key, value};

const RECORDS: usize = 2000;
/// Every so many records one expires.
const EXPIRING: usize = 10;
/// Milliseconds after the rig's clock begins.
const EXPIRY_MS: u64 = 1_000_000 + 5_000;

fn put_all(load: &mut BulkLoad<'_, '_>, letter: char) -> Result<()> {
    (0..RECORDS).try_for_each(|number| {
        let key = key(letter, number);
        match number % EXPIRING {
            0 => load.put_expiring(&key, &value(&key), EXPIRY_MS),
            _ => load.put(&key, &value(&key)),
        }
    })
}

fn load(keyspace: &Keyspace) -> Result<BulkLoaded> {
    keyspace.bulk_load(|load| put_all(load, 'b'))
}

fn count(keyspace: &Keyspace) -> usize {
    let mut iter = keyspace.iter(IterOptions::default()).unwrap();
    iter.seek_to_first().unwrap();
    let mut count = 0;
    while iter.valid() {
        assert_eq!(iter.value(), value(iter.key()));
        count += 1;
        iter.next().unwrap();
    }
    count
}

/// Nothing of a load that failed is there, in memory or as a file.
fn assert_nothing(rig: &Rig, db: &Db) {
    assert_eq!((count(db), db.get(&key('b', 1)).unwrap()), (0, None));
    rig.let_time_pass();
    for dir in [FAST, SLOW] {
        assert_eq!(rig.files(dir, ".tbl"), Vec::<std::path::PathBuf>::new());
    }
}

#[test]
fn what_was_loaded_is_there_below_what_is_written_later_and_after_a_restart() {
    for (options, level) in [(Rig::tiered as fn(&Rig) -> Options, "L7"), (Rig::single, "L6")] {
        let rig = Rig::new();
        let db = Db::open(options(&rig)).unwrap();
        let loaded = load(&db).unwrap();
        let bytes = RECORDS as u64 * (key('b', 0).len() + value(b"b").len()) as u64;
        assert_eq!((loaded.records, loaded.bytes), (RECORDS as u64, bytes));
        let filled: Vec<_> = db.levels().into_iter().filter(|level| level.tables > 0).collect();
        assert_eq!(filled.len(), 1);
        assert_eq!((filled[0].name.as_str(), filled[0].tables as u64), (level, loaded.tables));
        assert_filled(&db, 'b', RECORDS);
        assert_eq!(count(&db), RECORDS);
        // Everything that is done to other records.
        db.put(&key('b', 1), b"new").unwrap();
        db.delete(&key('b', 2)).unwrap();
        db.delete_range(&key('b', 3), &key('b', 9)).unwrap();
        let assert_changed = |db: &Db| {
            assert_eq!(db.get(&key('b', 1)).unwrap().as_deref(), Some(&b"new"[..]));
            assert!((2..9).all(|number| db.get(&key('b', number)).unwrap().is_none()));
            assert_eq!(db.get(&key('b', 9)).unwrap().unwrap(), value(&key('b', 9)));
        };
        assert_changed(&db);
        db.flush().unwrap();
        assert_changed(&db);
        assert_eq!(db.audit().unwrap().findings, Vec::<String>::new());
        db.close().unwrap();
        let report = check(options(&rig));
        assert!(report.is_well(), "{report:?}");
        let db = Db::open(options(&rig)).unwrap();
        assert_changed(&db);
        db.compact_range(None, None).unwrap();
        assert_changed(&db);
        assert!(db.get(&key('b', 0)).unwrap().is_some());
        rig.clock.advance(std::time::Duration::from_millis(5_001));
        assert_eq!((db.get(&key('b', 0)).unwrap(), db.get(&key('b', 10)).unwrap()), (None, None));
        db.delete(&key('b', 1)).unwrap();
        assert_eq!(count(&db), RECORDS - RECORDS / EXPIRING - 8);
    }
}

#[test]
fn what_is_out_of_order_or_no_record_is_refused_and_nothing_is_loaded() {
    let rig = Rig::new();
    let db = Db::open(rig.tiered()).unwrap();
    let long = vec![0; kelvin_base::KEY_BYTES_MAX + 1];
    let cases: [(&[u8], &str); 4] =
        [(b"b0999", "not in order"), (b"b1999", "greater than b1999"), (b"", "empty"), (&long, "too long")];
    for (bad, words) in cases {
        let outcome = db.bulk_load(|load| {
            put_all(load, 'b')?;
            load.put(bad, b"v")
        });
        assert_says(&outcome.unwrap_err(), ErrorKind::InvalidArgument, &[words]);
        assert_nothing(&rig, &db);
    }
    let outcome = db.bulk_load(|load| {
        put_all(load, 'b')?;
        Err(Error::new(ErrorKind::Io, "the input ended early"))
    });
    assert_says(&outcome.unwrap_err(), ErrorKind::Io, &["the input ended early"]);
    assert_nothing(&rig, &db);
    assert_eq!(db.bulk_load(|_| Ok(())).unwrap(), BulkLoaded::default());
    assert_nothing(&rig, &db);
    // What it takes in memory is counted, and given back.
    let writers = || db.stats().memory.iter().find(|(part, _)| *part == "writers").unwrap().1;
    let mut most = 0;
    let loaded = db.bulk_load(|load| {
        put_all(load, 'b')?;
        most = writers();
        Ok(())
    });
    assert_eq!((loaded.unwrap().records, count(&db), writers()), (RECORDS as u64, RECORDS, 0));
    assert!(most > 4 << 10, "{most}");
}

#[test]
fn a_keyspace_that_holds_something_or_is_written_to_meanwhile_takes_no_load() {
    let rig = Rig::new();
    let db = Db::open(rig.tiered()).unwrap();
    let other = db.keyspace("other").unwrap();
    fill(&db, 'a', 300);
    assert_says(&load(&db).unwrap_err(), ErrorKind::InvalidArgument, &["holds something"]);
    db.flush().unwrap();
    assert_says(&load(&db).unwrap_err(), ErrorKind::InvalidArgument, &["holds something"]);
    assert_filled(&db, 'a', 300);
    // A write while it is filled, newer than every record of the load.
    let outcome = other.bulk_load(|load| {
        other.put(&key('b', 7), b"mine")?;
        put_all(load, 'b')
    });
    assert_says(&outcome.unwrap_err(), ErrorKind::InvalidArgument, &["holds something"]);
    assert_eq!(other.get(&key('b', 7)).unwrap().as_deref(), Some(&b"mine"[..]));
    assert_eq!(other.get(&key('b', 8)).unwrap(), None);
    // Others are written to at will.
    let third = db.keyspace("third").unwrap();
    third
        .bulk_load(|load| {
            db.put(b"beside it", b"v")?;
            put_all(load, 'b')
        })
        .unwrap();
    assert_eq!(count(&third), RECORDS);
    assert_says(&load(&third).unwrap_err(), ErrorKind::InvalidArgument, &["holds something"]);
    let fourth = db.keyspace("fourth").unwrap();
    let outcome = fourth.bulk_load(|load| {
        put_all(load, 'b')?;
        db.drop_keyspace("fourth")
    });
    assert_says(&outcome.unwrap_err(), ErrorKind::InvalidArgument, &["was dropped"]);
    db.drop_keyspace("other").unwrap();
    assert_says(&load(&other).unwrap_err(), ErrorKind::InvalidArgument, &["was dropped"]);
}

#[test]
fn nobody_sees_a_keyspace_empty_and_filled_at_one_moment() {
    let rig = Rig::new();
    let db = Db::open(rig.tiered()).unwrap();
    db.put(b"before", b"v").unwrap();
    let other = db.keyspace("other").unwrap();
    let snapshot = db.snapshot();
    assert_eq!(other.get_at(&key('b', 1), &snapshot).unwrap(), None);
    assert_says(&load(&other).unwrap_err(), ErrorKind::Busy, &["snapshots"]);
    assert_eq!(other.get_at(&key('b', 1), &snapshot).unwrap(), None);
    drop(snapshot);
    let mut late = None;
    let outcome = other.bulk_load(|load| {
        late = Some(db.snapshot());
        put_all(load, 'b')
    });
    assert_says(&outcome.unwrap_err(), ErrorKind::Busy, &["snapshots"]);
    assert_eq!((other.get_at(&key('b', 1), late.as_ref().unwrap()).unwrap(), count(&other)), (None, 0));
    drop(late);
    load(&other).unwrap();
    assert_eq!(count(&other), RECORDS);
}

#[test]
fn a_power_loss_keeps_all_of_a_load_with_what_was_before_it_or_nothing() {
    let options = |disk: &CrashStorage| {
        let env = Env {
            fast: Arc::new(disk.clone()),
            slow: Arc::new(disk.clone()),
            clock: Arc::new(ManualClock::new(1_000_000)),
            executor: Arc::new(ManualExecutor::new()),
            seed: 7,
        };
        Options::new(FAST).slow(SLOW).fast_capacity(1 << 20).memory(1 << 20).env(env)
    };
    let disk = CrashStorage::new();
    let db = Db::open(options(&disk)).unwrap();
    let other = db.keyspace("other").unwrap();
    let quick = WriteOptions { durability: Some(Durability::Memory), ttl: None };
    db.put_with(b"before", b"v", &quick).unwrap();
    let mut during = Vec::new();
    let loaded = other.bulk_load(|load| {
        put_all(load, 'b')?;
        during.push(disk.crash_image(1, CrashModel::LOST));
        Ok(())
    });
    loaded.unwrap();
    for image in &during {
        let after = Db::open(options(image)).unwrap();
        assert_eq!(count(&after.keyspace("other").unwrap()), 0);
        load(&after.keyspace("other").unwrap()).unwrap();
    }
    let after = Db::open(options(&disk.crash_image(2, CrashModel::LOST))).unwrap();
    assert_eq!(count(&after.keyspace("other").unwrap()), RECORDS);
    assert!(after.get(b"before").unwrap().is_some(), "it was committed before the load");
}

#[test]
fn whatever_fails_first_nothing_is_loaded_and_nothing_is_left() {
    let run = |rig: &Rig| {
        let db = Db::open(rig.tiered()).unwrap();
        db.put(b"before", b"v").unwrap();
        let other = db.keyspace("other").unwrap();
        let begin = [rig.fast.operations(), rig.slow.operations()];
        (load(&other), begin, db, other)
    };
    let rig = Rig::new();
    let (loaded, begin, _db, _other) = run(&rig);
    let operations = [rig.fast.operations() - begin[0], rig.slow.operations() - begin[1]];
    assert!(loaded.is_ok() && operations[0] > 1 && operations[1] > 20, "{operations:?}");
    for (disk, errno) in [(0, EIO), (1, EIO), (1, ENOSPC)] {
        for nth in 0..operations[disk] {
            let rig = Rig::new();
            let faulty = [rig.fast.clone(), rig.slow.clone()][disk].clone();
            faulty.fail_nth(begin[disk] + nth, errno);
            let (loaded, _, db, other) = run(&rig);
            assert!(faulty.injected() > 0, "disk {disk}, operation {nth}");
            let there = count(&other);
            assert_eq!(there, if loaded.is_ok() { RECORDS } else { 0 }, "disk {disk}, operation {nth}");
            faulty.clear();
            rig.let_time_pass();
            drop((db, other));
            let db = Db::open(rig.tiered()).unwrap();
            let other = db.keyspace("other").unwrap();
            let then = count(&other);
            assert!(
                then == there || then == RECORDS,
                "{loaded:?}: {there}, then {then} of disk {disk}, {nth}"
            );
            assert!(db.get(b"before").unwrap().is_some());
            rig.let_time_pass();
            let named: usize = db.levels().iter().map(|level| level.tables).sum();
            let files: usize = [FAST, SLOW].map(|dir| rig.files(dir, ".tbl").len()).iter().sum();
            assert_eq!(files, named, "disk {disk}, operation {nth}");
        }
    }
}

#[test]
fn a_load_that_does_not_fit_says_so_and_gives_its_room_back() {
    let rig = Rig::new();
    let db = Db::open(rig.tiered().slow_capacity(1 << 20)).unwrap();
    let before = db.stats().used_bytes;
    let outcome = db.bulk_load(|load| {
        put_all(load, 'b')?;
        put_all(load, 'c')
    });
    assert_says(&outcome.unwrap_err(), ErrorKind::NoSpace, &["slow tier's capacity of 1 MiB"]);
    assert_nothing(&rig, &db);
    assert_eq!((db.stats().used_bytes, db.stats().reserved_bytes), (before, [0, 0]));
    fill(&db, 'a', 300);
    assert_filled(&db, 'a', 300);
    drop(db);
    let rig = Rig::new();
    let db = Db::open(rig.tiered()).unwrap();
    rig.slow.add(Rule::new(Op::Append, Effect::Error(ENOSPC)).after(3));
    assert_says(&load(&db).unwrap_err(), ErrorKind::NoSpace, &[]);
    rig.slow.clear();
    assert_nothing(&rig, &db);
    load(&db).unwrap();
}
