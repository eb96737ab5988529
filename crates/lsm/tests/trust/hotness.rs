//! The hot-key tracker is advisory (promise 6) and keeps to the limits of tier and memory (promises 8 and 11): whatever becomes of
//! its files, the store answers the same.

use std::path::{Path, PathBuf};

use kelvin_lsm::db::Db;
use kelvin_lsm::hotness::HotnessStats;
use kelvin_lsm::options::{CompressionChoice, Env, Hotness, Options};
use kelvin_storage::fault::{EIO, Effect, Op, Rule};
use kelvin_storage::{ALIGNMENT, Storage};

use crate::rig::{Rig, assert_filled, fill, key, value, write_until_full};

const RALT: &str = "/fast/ralt";

fn options(rig: &Rig) -> Options {
    rig.tiered().fast_capacity(2 << 20).memory(4 << 20)
}

fn stats(db: &Db) -> HotnessStats {
    db.stats().hotness.expect("a tracker")
}

fn is_hot(db: &Db, key: &[u8]) -> bool {
    db.explain_key("default", key).unwrap().hot.unwrap()
}

/// A store whose keys `a0000` to `a0049` were read often and the others seldom, closed.
fn read_with_skew(rig: &Rig) {
    let db = Db::open(options(rig)).unwrap();
    fill(&db, 'a', 400);
    for round in 0..40 {
        for number in 0..50 {
            db.get(&key('a', number)).unwrap().unwrap();
        }
        db.get(&key('a', 50 + round * 8)).unwrap().unwrap();
        rig.executor.run_all();
    }
    db.close().unwrap();
    assert!(rig.files(RALT, ".ralt").len() + rig.files(RALT, "STATE").len() > 1);
}

#[test]
fn what_is_hot_stays_known_over_a_restart() {
    let rig = Rig::new();
    read_with_skew(&rig);
    let db = Db::open(options(&rig)).unwrap();
    assert!((0..50).all(|number| is_hot(&db, &key('a', number))));
    assert!(!is_hot(&db, b"nobody") && !is_hot(&db, &key('a', 51)));
    assert_eq!(stats(&db).resets, 0);
    // So it does over a power loss that keeps the files.
    drop(db);
    let again = rig.killed();
    let db = Db::open(options(&again)).unwrap();
    assert!((0..50).all(|number| is_hot(&db, &key('a', number))));
}

#[test]
fn the_fast_tier_is_never_above_its_capacity_while_ralt_works_and_the_disk_is_nearly_full() {
    const CAPACITY: u64 = 2 << 20;
    let rig = Rig::new();
    let db = Db::open(options(&rig).slow_capacity(64 << 20)).unwrap();
    let mut highest = 0;
    let mut keys = 0;
    for round in 0..60usize {
        for number in keys..keys + 120 {
            db.put(&key('a', number), &value(&key('a', number))).unwrap();
        }
        keys += 120;
        for step in 0..1500usize {
            // Half to a tenth of the keys, half to all of them.
            let among = if step % 2 == 0 { keys / 10 } else { keys };
            let number = step.wrapping_mul(7919).wrapping_add(round * 31) % among;
            db.get(&key('a', number)).unwrap().unwrap();
            if step % 100 == 0 {
                rig.executor.run_all();
                highest = highest.max(rig.fast_memory.used_bytes());
            }
        }
    }
    let (all, ralt) = (db.stats(), stats(&db));
    assert!(highest <= CAPACITY && all.used_bytes_max[0] <= CAPACITY, "{highest} {}", all.used_bytes_max[0]);
    assert!(all.used_bytes_max[0] > CAPACITY / 10 * 7, "the tier was put to use: {}", all.used_bytes_max[0]);
    assert!(ralt.evictions > 0 && ralt.disk_bytes > 20_000, "{ralt:?}");
    // Now and then it finds no room, and loses what it was about to note.
    assert!(ralt.accesses + ralt.left_out > 85_000, "{ralt:?}");
    assert_filled(&db, 'a', keys);
    // What the books say is what is there.
    rig.executor.run_all();
    let blocks = |path: &PathBuf| rig.read(path).len().div_ceil(ALIGNMENT);
    let on_disk = rig.files(RALT, "").iter().map(blocks).sum::<usize>() * ALIGNMENT;
    assert!(on_disk as u64 >= stats(&db).disk_bytes, "{on_disk}");
    db.close().unwrap();
}

#[test]
fn with_both_tiers_full_ralt_finds_no_room_and_nobody_else_hears_of_it() {
    let rig = Rig::new();
    let db = Db::open(options(&rig).slow_capacity(2 << 20)).unwrap();
    let (_, count) = write_until_full(&rig, &db, 'n');
    for step in 0..20_000usize {
        db.get(&key('n', step.wrapping_mul(7919) % count)).unwrap().unwrap();
        if step % 100 == 0 {
            rig.executor.run_all();
        }
    }
    let all = db.stats();
    assert!(rig.fast_memory.used_bytes() <= 2 << 20 && all.used_bytes_max[0] <= 2 << 20);
    assert_filled(&db, 'n', count);
    db.close().unwrap();
    let db = Db::open(options(&rig).slow_capacity(30 << 20)).unwrap();
    assert_filled(&db, 'n', count);
    fill(&db, 'z', 100);
}

/// What a store answers, with RALT's files changed by `change` while it was closed.
fn answers_the_same(what: &str, change: impl FnOnce(&Rig, Vec<PathBuf>)) {
    let rig = Rig::new();
    read_with_skew(&rig);
    change(&rig, rig.files(RALT, ""));
    let report = crate::rig::check(options(&rig));
    assert!(report.is_well(), "{what}: {:?}", report.damaged_files());
    let db = Db::open(options(&rig)).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_filled(&db, 'a', 400);
    assert!(!is_hot(&db, &key('a', 0)), "{what}: begun anew");
    for _ in 0..30 {
        assert_filled(&db, 'a', 50);
        rig.executor.run_all();
    }
    assert!(db.check().is_well() && db.stats().background_failures == 0, "{what}");
    db.close().unwrap();
    let db = Db::open(options(&rig)).unwrap();
    assert!(is_hot(&db, &key('a', 0)), "{what}: what was learnt since");
}

#[test]
fn whatever_lies_in_its_directory_the_store_opens_and_answers_the_same() {
    answers_the_same("random bytes", |rig, files| {
        for (seed, path) in files.into_iter().enumerate() {
            rig.change(&path, |bytes| {
                let mut state = seed as u64 + 1;
                for byte in bytes {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    *byte = state.to_be_bytes()[0];
                }
            });
        }
    });
    answers_the_same("cut off", |rig, files| {
        files.into_iter().for_each(|path| rig.change(&path, |bytes| bytes.truncate(bytes.len() / 2)));
    });
    answers_the_same("without its state", |rig, _| {
        rig.fast_memory.remove(&Path::new(RALT).join("STATE")).unwrap();
    });
    answers_the_same("another store's", |rig, files| {
        files.iter().for_each(|path| rig.fast_memory.remove(path).unwrap());
        let other = Rig::new();
        // Another seed is another store.
        let env = Env { seed: 99, ..other.env() };
        let db = Db::open(options(&other).env(env)).unwrap();
        fill(&db, 'a', 50);
        (0..30).for_each(|_| assert_filled(&db, 'a', 50));
        db.close().unwrap();
        for path in other.files(RALT, "") {
            rig.write(&path, &other.read(&path));
        }
    });
}

#[test]
fn a_failing_device_costs_what_is_known_and_nothing_else() {
    for op in [Op::Create, Op::Append, Op::Sync, Op::Rename, Op::List, Op::CreateDir, Op::Open, Op::Read] {
        let rig = Rig::new();
        read_with_skew(&rig);
        rig.fast.add(Rule::new(op, Effect::Error(EIO)).on("/fast/ralt*"));
        let db = Db::open(options(&rig)).unwrap_or_else(|error| panic!("{op:?}: {error}"));
        for round in 0..20 {
            fill(&db, 'b', 20 * round);
            assert_filled(&db, 'a', 400);
            rig.executor.run_all();
        }
        db.flush().unwrap();
        let all = db.stats();
        assert_eq!((all.background_failures, all.background_error), (0, None), "{op:?}");
        assert!(rig.fast.injected() > 0, "{op:?}");
        db.close().unwrap();
        rig.fast.clear();
        let db = Db::open(options(&rig)).unwrap();
        assert_filled(&db, 'a', 400);
    }
}

#[test]
fn a_store_without_hotness_makes_no_directory_and_removes_what_a_tracker_left() {
    let rig = Rig::new();
    let off = || options(&rig).advanced(|a| a.hotness = Some(Hotness::Off));
    let db = Db::open(off()).unwrap();
    fill(&db, 'a', 100);
    assert_filled(&db, 'a', 100);
    db.close().unwrap();
    assert!(!rig.fast_memory.exists(Path::new(RALT)).unwrap());

    read_with_skew(&rig);
    let used = rig.files(RALT, "").len();
    assert!(used > 0);
    let db = Db::open(off()).unwrap();
    assert_eq!(rig.files(RALT, ""), Vec::<PathBuf>::new());
    assert_filled(&db, 'a', 400);
    assert_eq!(db.stats().hotness, None);
    db.close().unwrap();
}

#[test]
fn a_checkpoint_has_no_tracker_and_gets_one_when_it_is_opened() {
    let rig = Rig::new();
    read_with_skew(&rig);
    let db = Db::open(options(&rig)).unwrap();
    db.checkpoint(Path::new("/fast2"), Some(Path::new("/slow2"))).unwrap();
    assert!(!rig.fast_memory.exists(Path::new("/fast2/ralt")).unwrap());
    let copy = options(&rig).slow("/slow2");
    let copy = Db::open(Options { dir: "/fast2".into(), ..copy }).unwrap();
    assert_filled(&copy, 'a', 400);
    assert!(!is_hot(&copy, &key('a', 0)));
    copy.close().unwrap();
    assert!(rig.fast_memory.exists(Path::new("/fast2/ralt")).unwrap());
    assert!(is_hot(&db, &key('a', 0)));
}

#[test]
fn the_tracker_stays_within_its_share_of_the_memory() {
    const MEMORY: u64 = 4 << 20;
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new(dir.path().join("fast"))
        .slow(dir.path().join("slow"))
        // Far more than the memory can know of.
        .fast_capacity(1 << 30)
        .memory(MEMORY)
        .compression(CompressionChoice::None);
    let config = options.derive().unwrap();
    let (limit, share) = (MEMORY - config.process_bytes, config.hotness_memory_bytes);
    let db = Db::open(options).unwrap();
    let key = |number: u64| format!("{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes();
    for number in 0..60_000 {
        db.put(&key(number), b"small").unwrap();
    }
    let mut highest = 0;
    for number in 0..300_000u64 {
        db.get(&key(number.wrapping_mul(7919) % 60_000)).unwrap().unwrap();
        if number % 1000 == 0 {
            highest = highest.max(stats(&db).memory_bytes);
        }
    }
    let (all, ralt) = (db.stats(), stats(&db));
    assert!(ralt.evictions > 0, "there was more to know than fits: {ralt:?}");
    assert!(highest <= share && highest > share / 4, "{highest} of {share}");
    assert!(all.memory_used_bytes_max <= limit, "{} of {limit}", all.memory_used_bytes_max);
    db.close().unwrap();
}
