//! Which reads are accesses, with the exact tracker; and what RALT's files leave to the levels.

use std::sync::Arc;

use kelvin_base::{ManualClock, ManualExecutor};
use kelvin_storage::MemoryStorage;

use super::*;
use crate::db::{Db, IterOptions};
use crate::options::{CompressionChoice, HotParts, Options};

fn options(hotness: Hotness) -> Options {
    let env = Env {
        fast: Arc::new(MemoryStorage::new()),
        slow: Arc::new(MemoryStorage::new()),
        clock: Arc::new(ManualClock::new(1_000_000)),
        executor: Arc::new(ManualExecutor::new()),
        seed: 7,
    };
    let options = Options::new("/fast").slow("/slow").fast_capacity(2 << 20).memory(4 << 20);
    options.compression(CompressionChoice::None).advanced(|a| a.hotness = Some(hotness)).env(env)
}

/// Whether `key` was accessed: the oracle puts keys in order anew once as many accesses were made as keys are hot.
fn was_accessed(db: &Db, key: &[u8]) -> bool {
    for _ in 0..20 {
        db.get(b"filler").unwrap().unwrap();
    }
    db.explain_key("default", key).unwrap().hot.unwrap()
}

fn place(db: &Db, key: &[u8]) -> String {
    db.explain_key("default", key).unwrap().place
}

#[test]
fn a_new_tracker_may_call_as_much_hot_as_there_can_ever_be() {
    let limit = |hotness: Hotness| {
        let stats = Db::open(options(hotness)).unwrap().stats();
        stats.hotness.unwrap().hot_set_limit_bytes
    };
    let most = limit(Hotness::Oracle);
    assert!(most > 0);
    for hotness in [Hotness::Ralt, Hotness::Lru, Hotness::Clock] {
        assert_eq!(limit(hotness), most, "{}", hotness.name());
    }
}

#[test]
fn a_read_that_finds_a_value_is_an_access_wherever_the_value_was() {
    let db = Db::open(options(Hotness::Oracle)).unwrap();
    db.put(b"filler", b"x").unwrap();
    let keys = ["slow", "slow cached", "fast", "many", "at a snapshot", "memory"];
    for key in &keys[..2] {
        db.put(key.as_bytes(), b"value").unwrap();
    }
    // Keys on both sides of them push them off the fast tier.
    let mut number = 0;
    while !keys[..2].iter().all(|key| place(&db, key.as_bytes()).contains("slow tier")) {
        for letter in ["A", "z"] {
            db.put(format!("{letter}{number:05}").as_bytes(), &[b'x'; 400]).unwrap();
        }
        number += 1;
        if number % 500 == 0 {
            db.wait_idle().unwrap();
        }
        assert!(number < 20_000, "{:?}", db.levels());
    }
    db.wait_idle().unwrap();
    for key in &keys[2..5] {
        db.put(key.as_bytes(), b"value").unwrap();
    }
    db.flush().unwrap();
    db.put(keys[5].as_bytes(), b"value").unwrap();
    let places = keys.map(|key| place(&db, key.as_bytes()));
    assert!(places[..2].iter().all(|place| place.contains("slow tier")), "{places:?}");
    assert!(places[2..5].iter().all(|place| place.contains("fast tier")), "{places:?}");
    assert_eq!(places[5], "memtable");
    assert!(db.explain_key("default", b"memory").unwrap().why.starts_with("written lately"));
    for key in keys {
        let key = key.as_bytes();
        assert!(!was_accessed(&db, key), "{}: to explain is no access", key.escape_ascii());
        match key {
            b"many" => drop(db.multi_get(&[b"absent", key])),
            b"at a snapshot" => drop(db.snapshot().get(key).unwrap()),
            _ => drop(db.get(key).unwrap()),
        }
        assert!(was_accessed(&db, key), "{}", key.escape_ascii());
    }
    assert!(!was_accessed(&db, b"absent"));
}

#[test]
fn what_finds_nothing_is_no_access() {
    let db = Db::open(options(Hotness::Oracle)).unwrap();
    for key in ["deleted", "filler"] {
        db.put(key.as_bytes(), b"value").unwrap();
    }
    db.delete(b"deleted").unwrap();
    for key in ["absent", "deleted"] {
        assert_eq!(db.get(key.as_bytes()).unwrap(), None);
    }
    for key in ["absent", "deleted"] {
        assert!(!was_accessed(&db, key.as_bytes()), "{key}");
    }
    assert_eq!(db.stats().hotness.map(|one| one.hot_set_bytes), Some(11));
}

/// Which of the keys `k000` to `k099` scans have accessed.
fn scanned(db: &Db) -> Vec<usize> {
    (0..100).filter(|number| was_accessed(db, format!("k{number:03}").as_bytes())).collect()
}

fn scan(db: &Db, options: IterOptions, from: &str, records: usize) {
    let mut iter = db.iter(options).unwrap();
    iter.seek(from.as_bytes()).unwrap();
    (1..records).for_each(|_| iter.next().unwrap());
}

#[test]
fn a_short_scan_is_an_access_to_records_it_stood_on_and_a_long_one_to_none() {
    let options = options(Hotness::Oracle).advanced(|a| a.hot_parts.scan_accesses = 16);
    let db = Db::open(options).unwrap();
    db.put(b"filler", b"x").unwrap();
    (0..100).for_each(|number| db.put(format!("k{number:03}").as_bytes(), b"value").unwrap());
    let plain = IterOptions::default;
    scan(&db, plain(), "k010", 17);
    scan(&db, IterOptions { expected_records: Some(17), ..plain() }, "k010", 5);
    scan(&db, IterOptions { bypass_cache: true, ..plain() }, "k010", 5);
    assert!(scanned(&db).is_empty(), "one more than a short scan has, or said to be long");
    scan(&db, IterOptions { expected_records: Some(16), ..plain() }, "k010", 16);
    assert_eq!(scanned(&db), (10..26).collect::<Vec<_>>());
    let mut seen: Vec<usize> = (10..26).collect();
    // One iterator put to several places: each is a scan of its own, and the long one among them is none.
    let mut iter = db.iter(plain()).unwrap();
    for (from, records) in [(30, 2), (40, 20), (33, 3)] {
        iter.seek(format!("k{from:03}").as_bytes()).unwrap();
        (1..records).for_each(|_| iter.next().unwrap());
    }
    seen.extend([30, 31]);
    assert_eq!(scanned(&db), seen, "the last one has not ended");
    iter.seek_for_prev(b"k055").unwrap();
    iter.prev().unwrap();
    seen.extend([33, 34, 35]);
    assert_eq!(scanned(&db), seen);
    iter.seek_to_last().unwrap();
    seen.extend([54, 55]);
    assert_eq!(scanned(&db), seen);
    drop(iter);
    seen.push(99);
    assert_eq!(scanned(&db), seen);
    // At a snapshot, up to the end of what there is, and of another keyspace.
    let snapshot = db.snapshot();
    let mut iter = snapshot.iter(IterOptions { upper: Some("k098".into()), ..plain() }).unwrap();
    iter.seek(b"k096").unwrap();
    while iter.valid() {
        iter.next().unwrap();
    }
    drop(iter);
    seen.splice(seen.len() - 1.., [96, 97, 99]);
    assert_eq!(scanned(&db), seen);
    let other = db.keyspace("other").unwrap();
    (0..100).for_each(|number| other.put(format!("k{number:03}").as_bytes(), b"value").unwrap());
    let mut read = 0;
    kelvin_base::OrderedStore::scan(&other, b"k000", 3, &mut |_, _| {
        read += 1;
        true
    })
    .unwrap();
    assert_eq!((read, scanned(&db)), (3, seen));
    let hot = |key: &[u8]| db.explain_key("other", key).unwrap().hot.unwrap();
    assert_eq!([b"k000", b"k002", b"k003", b"k010"].map(|key| hot(key)), [true, true, false, false]);
}

#[test]
fn of_a_short_scan_the_record_that_was_asked_for_is_accessed_and_scans_can_be_left_out() {
    let count = HotParts::default().scan_accesses;
    for (accesses, expected) in [(count, vec![10, 40]), (0, vec![]), (3, vec![10, 11, 12, 40])] {
        let options = options(Hotness::Oracle).advanced(|a| a.hot_parts.scan_accesses = accesses);
        let db = Db::open(options).unwrap();
        db.put(b"filler", b"x").unwrap();
        (0..100).for_each(|number| db.put(format!("k{number:03}").as_bytes(), b"value").unwrap());
        scan(&db, IterOptions::default(), "k010", 16);
        scan(&db, IterOptions::default(), "k030", 17);
        scan(&db, IterOptions::default(), "k040", 1);
        assert_eq!(scanned(&db), expected);
    }
}

#[test]
fn without_hotness_nobody_is_told_and_nothing_is_said() {
    let db = Db::open(options(Hotness::Off)).unwrap();
    db.put(b"k", b"v").unwrap();
    db.get(b"k").unwrap().unwrap();
    assert_eq!(db.explain_key("default", b"k").unwrap().hot, None);
    assert_eq!(db.stats().hotness, None);
}

#[test]
fn a_key_is_hot_in_the_keyspace_where_it_was_read_and_in_no_other() {
    for kind in [Hotness::Oracle, Hotness::Ralt] {
        let db = Db::open(options(kind)).unwrap();
        let names = ["default", "one", "two"];
        let spaces = names.map(|name| db.keyspace(name).unwrap());
        for space in &spaces {
            space.put(b"common", b"value of 18 bytes!").unwrap();
            space.put(b"\xff\xff\0\0\0\x01common", b"value of 18 bytes!").unwrap();
        }
        let hot = |name: &str, key: &[u8]| db.explain_key(name, key).unwrap().hot.unwrap();
        let read = |at: usize, key: &[u8]| {
            for _ in 0..10 {
                assert_eq!(spaces[at].multi_get(&[key]).len(), 1);
                spaces[at].get(key).unwrap().unwrap();
                spaces[at].get_at(key, &db.snapshot()).unwrap().unwrap();
            }
            db.engine.hotness.settle();
        };
        read(1, b"common");
        assert_eq!(names.map(|name| hot(name, b"common")), [false, true, false], "{kind}");
        // A key of the default keyspace that looks like one of another.
        read(0, b"\xff\xff\0\0\0\x01common");
        assert_eq!(names.map(|name| hot(name, b"common")), [false, true, false], "{kind}");
        assert!(hot("default", b"\xff\xff\0\0\0\x01common"));
        assert_eq!(db.stats().hotness.unwrap().hot_set_bytes, 6 + 18 + 12 + 18);
        read(2, b"common");
        // What it was told of a dropped keyspace goes at once, and another of its name begins with nothing.
        db.drop_keyspace("one").unwrap();
        db.engine.hotness.settle();
        assert_eq!(db.stats().hotness.unwrap().hot_set_bytes, 6 + 18 + 12 + 18);
        db.keyspace("one").unwrap().put(b"common", b"value of 18 bytes!").unwrap();
        assert_eq!(names.map(|name| hot(name, b"common")), [false, false, true], "{kind}");
        assert!(hot("default", b"\xff\xff\0\0\0\x01common"));
    }
}

#[test]
fn a_store_goes_on_with_the_hotness_it_was_kept_with_unless_another_is_chosen() {
    let first = options(Hotness::Ralt);
    let with = |kind: Option<Hotness>| Db::open(first.clone().advanced(|a| a.hotness = kind)).unwrap();
    let read = |db: Db| {
        db.put(b"k", b"v").unwrap();
        (0..3).for_each(|_| drop(db.get(b"k").unwrap()));
        db.close().unwrap();
    };
    let state = |db: &Db| {
        let is_hot = db.explain_key("default", b"k").unwrap().hot;
        db.stats().hotness.map(|one| (one.kind, is_hot.unwrap(), one.resets, one.last_error.is_some()))
    };
    let db = with(None);
    assert_eq!(state(&db), Some((Hotness::Ralt, false, 0, false)), "there was none before");
    read(db);
    let mut before = Hotness::Ralt;
    for kind in [Hotness::Lru, Hotness::Clock, Hotness::Ralt] {
        let db = with(Some(kind));
        assert_eq!(state(&db), Some((kind, false, 1, true)), "{before} says nothing to {kind}");
        let told = db.stats().hotness.unwrap().last_error.unwrap();
        assert!(told.contains("begins anew"), "{told}");
        read(db);
        for chosen in [None, Some(kind), None] {
            let db = with(chosen);
            assert_eq!(state(&db), Some((kind, true, 0, false)), "{chosen:?}");
            db.close().unwrap();
        }
        before = kind;
    }
    // What does not lie on disk leaves nothing to go on with.
    for kind in [Hotness::Off, Hotness::Oracle] {
        read(with(Some(kind)));
        let db = with(None);
        assert_eq!(state(&db), Some((Hotness::Ralt, false, 0, false)), "after {kind}");
        read(db);
    }
}

#[test]
fn the_levels_give_way_to_ralt_by_what_it_takes_and_its_next_step() {
    for kind in [Hotness::Ralt, Hotness::Lru, Hotness::Clock] {
        let db = Db::open(options(kind)).unwrap();
        let engine = &db.engine;
        let usable = || engine.pick_config_now().fast_usable_bytes;
        let first = engine.pick_config.fast_usable_bytes - usable();
        // Its state lies there from the start: a block.
        assert_eq!(first, engine.hotness.step_bytes + 4096);
        assert!(first > 0 && first < (2 << 20) / 5, "{first}");
        for number in 0..3000 {
            db.put(format!("key{number:06}").as_bytes(), b"value").unwrap();
        }
        for number in 0..3000 {
            db.get(format!("key{number:06}").as_bytes()).unwrap().unwrap();
            if number % 100 == 0 {
                engine.hotness.settle();
            }
        }
        engine.hotness.settle();
        let stats = db.stats().hotness.unwrap();
        assert_eq!((stats.kind, stats.accesses, stats.lost), (kind, 3000, 0));
        assert!(stats.disk_bytes > 50_000, "{stats:?}");
        let taken = engine.pick_config.fast_usable_bytes - usable() - first;
        assert!(taken >= stats.disk_bytes && taken < stats.disk_bytes + 100_000, "{taken} {stats:?}");
        let memory = db.stats().memory.into_iter().find(|(name, _)| *name == "hotness");
        assert_eq!(memory, Some(("hotness", stats.memory_bytes)));
    }
}
