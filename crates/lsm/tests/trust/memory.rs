//! One limit on memory (promise 11), by the store's own accounts; that what is resident follows them is shown by
//! `bench_memory` in the tests of the program, which has a process of its own.

use std::sync::atomic::{AtomicBool, Ordering};

use kelvin_lsm::db::Db;
use kelvin_lsm::options::{CompressionChoice, Env, Options};

const MEMORY: u64 = 4 << 20;
const RECORDS: u64 = 16_000;

fn key(number: u64) -> Vec<u8> {
    format!("key{:08}", number.wrapping_mul(7919) % RECORDS).into_bytes()
}

fn value(number: u64) -> Vec<u8> {
    vec![u8::try_from(number % 251).unwrap(); 1000]
}

/// A store on real files, whose data is four times its memory.
fn options(dir: &std::path::Path) -> Options {
    let options = Options::new(dir.join("fast")).memory(MEMORY).compression(CompressionChoice::None);
    let env = Env::system(&options.derive().unwrap()).unwrap();
    options.env(env)
}

/// What all parts take together at one moment: they are read one after the other, and memory may go from one to the next meanwhile.
fn parts(db: &Db) -> u64 {
    let mut before = db.stats().memory;
    loop {
        let now = db.stats().memory;
        if now == before {
            return now.iter().map(|(_, bytes)| bytes).sum();
        }
        before = now;
    }
}

fn part(db: &Db, name: &str) -> u64 {
    db.stats().memory.iter().find(|(one, _)| *one == name).unwrap().1
}

#[test]
fn the_parts_stay_under_the_limit_together_while_far_more_is_written_and_read() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path());
    // What is left to the process itself is not the parts'.
    let limit = MEMORY - options.derive().unwrap().process_bytes;
    let db = Db::open(options).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut highest = 0;
            while !done.load(Ordering::Acquire) {
                highest = highest.max(parts(&db));
                std::thread::yield_now();
            }
            highest
        });
        for number in 0..RECORDS {
            db.put(&key(number), &value(number)).unwrap();
        }
        for number in 0..RECORDS {
            assert_eq!(db.get(&key(number)).unwrap().unwrap(), value(number));
        }
        // Reads fill the cache while compactions take memory for themselves.
        for number in 0..RECORDS {
            db.put(&key(number), &value(number + 1)).unwrap();
            db.get(&key(number * 31)).unwrap().unwrap();
        }
        done.store(true, Ordering::Release);
        let highest = watcher.join().unwrap();
        assert!(highest <= limit, "{highest} of {limit}");
    });
    db.wait_idle().unwrap();
    let stats = db.stats();
    assert!(stats.memory_used_bytes_max <= limit, "{} of {limit}", stats.memory_used_bytes_max);
    assert!(stats.memory_used_bytes_max > limit / 2, "the limit was put to use");
    for name in ["writers", "readers"] {
        assert_eq!(stats.memory.iter().find(|(one, _)| *one == name).map(|(_, bytes)| *bytes), Some(0));
    }
    db.close().unwrap();
}

#[test]
fn many_keyspaces_share_the_memory_of_one_for_what_they_write() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path());
    let budget = options.derive().unwrap().memtable_budget_bytes;
    let db = Db::open(options).unwrap();
    let keyspaces: Vec<_> = (0..20).map(|number| db.keyspace(&format!("space{number}")).unwrap()).collect();
    let held = || part(&db, "memtables");
    let mut highest = 0;
    for number in 0..RECORDS / 2 {
        keyspaces[usize::try_from(number % 20).unwrap()].put(&key(number), &value(number)).unwrap();
        highest = highest.max(if number % 50 == 0 { held() } else { 0 });
    }
    // The write that fills a memtable is let in whole.
    assert!(highest <= budget + (8 << 10) && highest >= budget / 3, "{highest} of {budget}");
    for number in 0..RECORDS / 2 {
        let keyspace = &keyspaces[usize::try_from(number % 20).unwrap()];
        assert_eq!(keyspace.get(&key(number)).unwrap().unwrap(), value(number));
    }
    db.close().unwrap();
}

#[test]
fn tables_that_do_not_fit_into_memory_together_are_opened_again_when_they_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(dir.path()).memory(1 << 20);
    // Half of each table is filter and index.
    options.advanced.filter_bits_per_key = Some(64);
    options.advanced.table_bytes = Some(64 << 10);
    let env = Env::system(&options.derive().unwrap()).unwrap();
    let options = options.env(env);
    let config = options.derive().unwrap();
    let db = Db::open(options).unwrap();
    let key = |number: u64| format!("a key of some length, as they often are {number:08}").into_bytes();
    let count = 4 * RECORDS;
    for number in 0..count {
        db.put(&key(number), b"small").unwrap();
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let table = 64 << 10;
    for round in 0..3 {
        for number in (0..count).step_by(7) {
            assert_eq!(&db.get(&key(number)).unwrap().unwrap()[..], b"small", "round {round}");
        }
        let others = parts(&db) - part(&db, "pinned") - part(&db, "cache");
        let fixed = config.process_bytes + config.memtable_bytes + config.cache_bytes_min;
        let left = (config.memory_bytes - fixed - others).max(config.pinned_bytes_min);
        let pinned = part(&db, "pinned");
        assert!(pinned <= left, "{pinned} of {left}");
        assert!(pinned + table >= left, "{pinned} of {left}: there was more to hold");
    }
    db.close().unwrap();
}

#[test]
fn a_small_memory_keeps_every_table_open_before_it_caches_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(dir.path()).memory(8 << 20);
    // Large filters for their keys, as those of large data are for this memory; small tables, for a table's writer has all of its.
    options.advanced.filter_bits_per_key = Some(64);
    options.advanced.table_bytes = Some(256 << 10);
    let config = options.derive().unwrap();
    let limit = config.memory_bytes - config.process_bytes;
    let db = Db::open(options).unwrap();
    let count = 10 * RECORDS;
    let key = |number: u64| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes();
    for number in 0..count {
        db.put(&key(number), b"small").unwrap();
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let read_all = || (0..count).for_each(|number| assert!(db.get(&key(number)).unwrap().is_some()));
    read_all();
    let pinned = part(&db, "pinned");
    assert!(pinned > count * 8 && pinned > limit / 4, "{pinned} of {limit}: every filter is in memory");
    let before = db.stats();
    read_all();
    let after = db.stats();
    // Nothing was read but blocks: no table was opened again.
    let reads = after.device_reads[0] - before.device_reads[0];
    assert_eq!(reads, after.cache_misses - before.cache_misses);
    assert!(reads > 0 && after.cache_hits > before.cache_hits);
    assert_eq!(part(&db, "pinned"), pinned);
    assert!(after.memory_used_bytes_max <= limit, "{} of {limit}", after.memory_used_bytes_max);
    db.close().unwrap();
}

#[test]
fn the_parts_stay_under_a_small_limit_with_two_tiers_and_moving_hot_records() {
    for mib in [16, 24] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::new(dir.path().join("fast"))
            .slow(dir.path().join("slow"))
            .fast_capacity(8 << 20)
            .memory(mib << 20)
            .compression(CompressionChoice::None);
        let config = options.derive().unwrap();
        let limit = config.memory_bytes - config.process_bytes;
        let env = Env::system(&config).unwrap();
        let db = Db::open(options.env(env)).unwrap();
        for number in 0..RECORDS {
            db.put(&key(number), &value(number)).unwrap();
        }
        db.flush().unwrap();
        db.wait_idle().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let db = &db;
                scope.spawn(move || {
                    for step in 0..RECORDS {
                        // A tenth is read most; the writer goes through everything.
                        let number = if step % 16 == 0 { step } else { step * 31 % (RECORDS / 10) };
                        assert!(db.get(&key(number)).unwrap().is_some());
                        if thread == 0 {
                            db.put(&key(step), &value(step + 1)).unwrap();
                        }
                        assert!(step % 64 != 0 || parts(db) <= limit, "{:?}", db.stats().memory);
                    }
                });
            }
        });
        db.wait_idle().unwrap();
        let stats = db.stats();
        assert!(
            stats.memory_used_bytes_max <= limit,
            "{mib} MiB: {} of {limit}",
            stats.memory_used_bytes_max
        );
        assert!(stats.boundary.compactions > 0 && part(&db, "hotness") > 0 && part(&db, "pinned") > 0);
        db.close().unwrap();
    }
}

#[test]
fn a_keyspace_more_takes_its_write_buffer_from_the_cache_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(options(dir.path())).unwrap();
    let left = || {
        let parts = db.stats().memory;
        db.config().memory_bytes
            - parts.iter().filter(|(name, _)| *name != "cache").map(|(_, bytes)| bytes).sum::<u64>()
    };
    for number in 0..RECORDS {
        db.put(&key(number), &value(number)).unwrap();
    }
    db.flush().unwrap();
    for number in 0..RECORDS {
        db.get(&key(number)).unwrap();
    }
    let cached = || part(&db, "cache");
    let before = cached();
    let _second = db.keyspace("second").unwrap();
    let config = db.config();
    // Two open memtables may grow to half of the budget together, one to its own size.
    let more = config.memtable_budget_bytes / 2 - config.memtable_bytes;
    assert!(
        before <= left() && cached() + more <= before + (64 << 10),
        "{before} then {}, {more} more",
        cached()
    );
    db.close().unwrap();
}
