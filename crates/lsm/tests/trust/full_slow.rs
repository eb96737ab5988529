//! Promise 8 with two tiers: one is full, by its capacity or by its disk, while writing goes on. Writers are told
//! `NoSpace` and do not hang, reads go on, and freed room, however it is freed, resumes writing without a restart.

use kelvin_base::ErrorKind;
use kelvin_lsm::db::Db;
use kelvin_lsm::options::Options;
use kelvin_storage::fault::{ENOSPC, Effect, Op, Rule};

use crate::rig::{Rig, assert_filled, assert_says, fill, key, value, write_until_full};

const SLOW_CAPACITY: u64 = 2 << 20;

/// The tier that is full, the store, and the operations that find it so.
type Case = (&'static str, fn(&Rig) -> Options, &'static [Op]);

/// Lets retries happen until a thousand writes succeed.
fn writing_resumes(rig: &Rig, db: &Db) {
    let mut number = 0;
    let mut last = None;
    for _ in 0..200 {
        rig.let_time_pass();
        while number < 1000 {
            let key = key('r', number);
            match db.put(&key, &value(&key)) {
                Ok(()) => number += 1,
                Err(error) => {
                    last = Some(error);
                    break;
                }
            }
        }
    }
    assert_eq!(number, 1000, "writing did not resume: {last:?} {:?}", db.levels());
    assert_filled(db, 'r', 1000);
}

fn assert_full(rig: &Rig, db: &Db, letter: char) -> usize {
    let (error, count) = write_until_full(rig, db, letter);
    assert_says(&error, ErrorKind::NoSpace, &[]);
    assert!(error.is_retryable() && error.advised().is_some(), "{error}");
    for _ in 0..5 {
        rig.let_time_pass();
    }
    let again = db.put(&value(b"again"), &value(b"again").repeat(100));
    assert!(again.is_err(), "it fails again and does not hang");
    assert_filled(db, letter, count);
    count
}

fn within_capacities(rig: &Rig, slow: u64) {
    assert!(rig.slow_memory.used_bytes() <= slow, "{}", rig.slow_memory.used_bytes());
    assert!(rig.fast_memory.used_bytes() <= 1 << 20, "{}", rig.fast_memory.used_bytes());
}

#[test]
fn a_full_slow_capacity_is_left_by_dropping_a_keyspace() {
    let rig = Rig::new();
    let db = Db::open(rig.tiered().slow_capacity(SLOW_CAPACITY)).unwrap();
    let big = db.keyspace("big").unwrap();
    for number in 0.. {
        let key = key('b', number);
        if big.put(&key, &value(&key)).is_err() {
            break;
        }
        rig.executor.run_all();
    }
    db.drop_keyspace("big").unwrap();
    writing_resumes(&rig, &db);
    within_capacities(&rig, SLOW_CAPACITY);
}

#[test]
fn a_full_slow_disk_fills_the_fast_tier_and_room_resumes_writing() {
    let rig = Rig::new();
    let db = Db::open(rig.tiered()).unwrap();
    fill(&db, 'a', 200);
    rig.slow_memory.set_capacity(rig.slow_memory.used_bytes() + (100 << 10));
    let count = assert_full(&rig, &db, 'n');
    assert_filled(&db, 'a', 200);
    within_capacities(&rig, u64::MAX);
    rig.slow_memory.set_capacity(u64::MAX);
    writing_resumes(&rig, &db);
    assert_filled(&db, 'n', count);
    assert!(db.check().is_well());
}

#[test]
fn a_device_that_answers_no_space_is_a_full_one_on_either_tier() {
    let all: [Case; 6] = [
        ("slow", Rig::tiered, &[Op::Append]),
        ("slow", Rig::tiered, &[Op::Create]),
        ("slow", Rig::tiered, &[Op::Append, Op::Create, Op::Flush, Op::Link, Op::Rename]),
        ("fast", Rig::tiered, &[Op::Append]),
        ("fast", Rig::tiered, &[Op::Append, Op::Create, Op::Flush, Op::Link, Op::Rename]),
        ("fast", Rig::single, &[Op::Append, Op::Create, Op::Flush, Op::Link, Op::Rename]),
    ];
    for (tier, options, operations) in all {
        let rig = Rig::new();
        let db = Db::open(options(&rig)).unwrap();
        fill(&db, 'a', 200);
        let device = if tier == "slow" { &rig.slow } else { &rig.fast };
        for op in operations {
            device.add(Rule::new(*op, Effect::Error(ENOSPC)));
        }
        let count = assert_full(&rig, &db, 'n');
        assert_filled(&db, 'a', 200);
        device.clear();
        writing_resumes(&rig, &db);
        assert_filled(&db, 'n', count);
        assert!(db.check().is_well());
        db.close().unwrap();
        assert_filled(&Db::open(options(&rig)).unwrap(), 'n', count);
    }
}
