//! Promise 8 in the log: a disk too full for a record, or for a new file, refuses the write and nothing else. What was
//! acknowledged before, at `Memory` too, stays in the order of commits whatever the failed write left behind.

use kelvin_base::ErrorKind;
use kelvin_lsm::db::{Db, WriteOptions};
use kelvin_lsm::options::{Durability, Options};
use kelvin_storage::fault::{EIO, ENOSPC, Effect, Op, Rule};

use crate::rig::{FAST, Rig, assert_filled, assert_says, check, fill, key, value, write_until_full};

/// What a full disk may answer when the log is written, and when a new file of it is made.
fn refusals() -> Vec<Rule> {
    let refused = |op| Rule::new(op, Effect::Error(ENOSPC)).on("*.wal");
    vec![
        refused(Op::Append),
        refused(Op::Flush),
        Rule::new(Op::Append, Effect::ShortWrite).on("*.wal"),
        refused(Op::Create),
    ]
}

fn options(rig: &Rig, durability: Durability) -> Options {
    rig.tiered().durability(durability)
}

/// Puts `letter`'s keys until one is refused; how many were acknowledged.
fn fill_until_refused(rig: &Rig, db: &Db, letter: char) -> usize {
    for number in 0..9000 {
        let key = key(letter, number);
        if let Err(error) = db.put(&key, &value(&key)) {
            assert_says(&error, ErrorKind::NoSpace, &["free space"]);
            assert!(error.is_retryable(), "{error}");
            return number;
        }
        rig.executor.run_all();
    }
    panic!("nothing was refused");
}

#[test]
fn what_was_acknowledged_at_any_level_survives_refused_writes_and_room_resumes_them() {
    for durability in [Durability::Memory, Durability::Os, Durability::Sync] {
        for rule in refusals() {
            let rig = Rig::new();
            let db = Db::open(options(&rig, durability)).unwrap();
            fill(&db, 'a', 30);
            rig.fast.add(rule);
            let count = fill_until_refused(&rig, &db, 'n');
            let logs = rig.files(FAST, ".wal").len();
            for _ in 0..20 {
                assert!(db.put(b"again", &value(b"again")).is_err(), "it fails again and does not hang");
            }
            assert!(rig.files(FAST, ".wal").len() <= logs + 1, "refused writes leave no files");
            assert_filled(&db, 'a', 30);
            assert_filled(&db, 'n', count);
            rig.fast.clear();
            fill(&db, 'r', 30);
            db.sync().unwrap();
            let after = rig.killed();
            let killed = Db::open(options(&after, durability)).unwrap();
            for db in [&db, &killed] {
                assert_filled(db, 'a', 30);
                assert_filled(db, 'n', count);
                assert_filled(db, 'r', 30);
                assert_eq!(db.get(b"again").unwrap(), None);
            }
            db.close().unwrap();
            assert!(check(options(&rig, durability)).is_well());
            assert_filled(&Db::open(options(&rig, durability)).unwrap(), 'n', count);
        }
    }
}

#[test]
fn a_later_write_never_survives_a_kill_without_an_earlier_one() {
    // Whichever of the writes after the refusal meets a kill: a prefix is left.
    for kill_after in 0..6 {
        let rig = Rig::new();
        let db = Db::open(options(&rig, Durability::Memory)).unwrap();
        fill(&db, 'm', 10);
        rig.fast.add(Rule::new(Op::Append, Effect::ShortWrite).on("*.wal").times(1));
        assert!(db.sync().is_err());
        for number in 0..kill_after {
            let os = WriteOptions { durability: Some(Durability::Os), ..WriteOptions::default() };
            db.put_with(&key('o', number), b"v", &os).unwrap();
        }
        let after = rig.killed();
        let killed = Db::open(options(&after, Durability::Memory)).unwrap();
        if kill_after > 0 {
            assert_filled(&killed, 'm', 10);
        }
        for number in 0..kill_after {
            assert!(killed.get(&key('o', number)).unwrap().is_some(), "{number} of {kill_after}");
        }
    }
}

#[test]
fn records_of_every_size_that_the_full_disk_did_not_take_begin_the_next_log() {
    let mib = 1 << 20;
    for sizes in [
        vec![10; 100],
        vec![100 << 10; 15],
        vec![mib - 100, 10, mib - 20, 10],
        vec![mib, 10, 3 * mib, 10, 10],
        vec![600 << 10, 600 << 10, 10],
    ] {
        let rig = Rig::new();
        let options =
            |rig: &Rig| Options::new(FAST).memory(64 << 20).env(rig.env()).durability(Durability::Memory);
        let db = Db::open(options(&rig)).unwrap();
        let value = |number: usize| vec![u8::try_from(number % 251).unwrap(); sizes[number]];
        for number in 0..sizes.len() {
            db.put(&key('s', number), &value(number)).unwrap();
        }
        rig.fast.add(Rule::new(Op::Flush, Effect::Error(ENOSPC)).on("*.wal").times(1));
        assert!(db.sync().is_err());
        db.sync().unwrap();
        let after = rig.killed();
        let killed = Db::open(options(&after)).unwrap();
        for number in 0..sizes.len() {
            assert_eq!(
                killed.get(&key('s', number)).unwrap(),
                Some(value(number).into()),
                "{number} of {sizes:?}"
            );
        }
    }
}

#[test]
fn closing_hands_over_what_a_refused_write_left_in_memory() {
    let rig = Rig::new();
    let db = Db::open(options(&rig, Durability::Memory)).unwrap();
    fill(&db, 'm', 10);
    rig.fast.add(Rule::new(Op::Flush, Effect::Error(ENOSPC)).on("*.wal").times(1));
    assert!(db.sync().is_err());
    db.close().unwrap();
    assert_filled(&Db::open(options(&rig, Durability::Memory)).unwrap(), 'm', 10);
}

#[test]
fn a_full_disk_under_memory_durability_refuses_writes_and_resumes_them() {
    let rig = Rig::new();
    let db = Db::open(rig.single().durability(Durability::Memory)).unwrap();
    rig.fast_memory.set_capacity(rig.fast_memory.used_bytes() + (64 << 10));
    let count = fill_until_refused(&rig, &db, 'n');
    assert_filled(&db, 'n', count);
    rig.fast_memory.set_capacity(u64::MAX);
    for _ in 0..3 {
        rig.let_time_pass();
    }
    fill(&db, 'r', 100);
    assert_filled(&db, 'n', count);
    db.close().unwrap();
    let db = Db::open(rig.single()).unwrap();
    assert_filled(&db, 'n', count);
    assert_filled(&db, 'r', 100);
}

/// Both capacities were kept, and the logs take no more than they may, but for the one that is being written.
fn assert_logs_are_bounded(rig: &Rig, db: &Db) {
    let stats = db.stats();
    assert!(stats.used_bytes_max[0] <= 1 << 20, "{} bytes of the fast tier", stats.used_bytes_max[0]);
    let logs = rig.files(FAST, ".wal");
    let (most, each) = (db.config().wal_bytes_max, db.config().memtable_bytes);
    assert!(
        (logs.len() as u64) * each <= most + 2 * each,
        "{} logs of {each} bytes, {most} allowed",
        logs.len()
    );
}

#[test]
fn a_disk_that_neither_takes_logs_nor_removes_them_does_not_fill_up_with_them() {
    for durability in [Durability::Memory, Durability::Os] {
        let rig = Rig::new();
        let db = Db::open(options(&rig, durability)).unwrap();
        fill(&db, 'a', 10);
        for op in [Op::Append, Op::Remove] {
            rig.fast.add(Rule::new(op, Effect::Error(EIO)).on("*.wal"));
        }
        for _ in 0..100 {
            if durability == Durability::Os {
                assert!(db.put(b"again", b"v").is_err());
            }
            // What the files lack is only in memory.
            assert_eq!(db.sync().is_err(), durability == Durability::Memory);
        }
        assert_logs_are_bounded(&rig, &db);
        rig.fast.clear();
        fill(&db, 'r', 30);
        db.sync().unwrap();
        assert_logs_are_bounded(&rig, &db);
        let after = rig.killed();
        for db in [db, Db::open(options(&after, durability)).unwrap()] {
            assert_filled(&db, 'a', 10);
            assert_filled(&db, 'r', 30);
            assert_eq!(db.get(b"again").unwrap(), None);
        }
    }
}

#[test]
fn files_that_failed_writes_have_ended_are_given_up_before_they_fill_the_fast_tier() {
    let rig = Rig::new();
    let db = Db::open(options(&rig, Durability::Os)).unwrap();
    for number in 0..300 {
        rig.fast.add(Rule::new(Op::Append, Effect::Error(EIO)).on("*.wal").times(1));
        assert!(db.put(b"again", b"v").is_err());
        db.put(&key('n', number), &value(&key('n', number))).unwrap();
        rig.executor.run_all();
        assert_logs_are_bounded(&rig, &db);
    }
    assert_filled(&db, 'n', 300);
    let after = rig.killed();
    assert_filled(&Db::open(options(&after, Durability::Os)).unwrap(), 'n', 300);
}

#[test]
fn a_sync_of_a_spoilt_log_needs_no_room_of_a_full_fast_tier() {
    let rig = Rig::new();
    let db = Db::open(options(&rig, Durability::Memory)).unwrap();
    rig.slow.away(EIO);
    let (_, count) = write_until_full(&rig, &db, 'n');
    let logs = rig.files(FAST, ".wal");
    for _ in 0..100 {
        // The file is begun and synced, and then spoilt by the mark that says so.
        rig.fast.add(Rule::new(Op::Append, Effect::Error(EIO)).on("*.wal").after(1).times(1));
        db.sync().unwrap();
        rig.fast.clear();
    }
    assert_eq!(rig.files(FAST, ".wal"), logs);
    let most = db.stats().used_bytes_max[0];
    assert!(most <= 1 << 20, "{most} bytes of the fast tier");
    rig.slow.back();
    for _ in 0..5 {
        rig.let_time_pass();
    }
    fill(&db, 'r', 30);
    db.sync().unwrap();
    assert_filled(&db, 'n', count);
    assert_logs_are_bounded(&rig, &db);
}
