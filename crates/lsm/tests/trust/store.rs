//! Snapshots, iterators, transactions, expiry, keyspaces, pressure, memory, closing: each as documented.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kelvin_base::{ErrorKind, OrderedStore, PointStore, ThreadPool};
use kelvin_lsm::db::{Db, DbIterator, IterOptions, WriteOptions};
use kelvin_lsm::options::{Durability, Env, Options};
use kelvin_storage::Storage;
use kelvin_storage::fault::{EIO, Effect, Op, Rule};

use crate::rig::{FAST, Rig, SLOW, assert_filled, assert_says, fill, key, value};

fn pairs(mut iter: DbIterator) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut pairs = Vec::new();
    iter.seek_to_first().unwrap();
    while iter.valid() {
        pairs.push((iter.key().to_vec(), iter.value().to_vec()));
        iter.next().unwrap();
    }
    pairs
}

#[test]
fn multi_get_answers_in_order_with_threads_and_without() {
    let rig = Rig::new();
    let options = rig.filled();
    let pool = Arc::new(ThreadPool::new(1, 1, 4).unwrap());
    for env in [rig.env(), Env { executor: pool, ..rig.env() }] {
        let db = Db::open(Options { env: Some(env), ..options.clone() }).unwrap();
        let mut names = Vec::new();
        for number in 0..100 {
            names.extend([key('f', number), key('q', number), key('a', 199 - number), key('w', number)]);
        }
        let keys: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        for (key, answer) in keys.iter().zip(db.multi_get(&keys)) {
            assert_eq!(answer.unwrap(), db.get(key).unwrap());
        }
        assert!(db.multi_get(&[]).is_empty());
        db.close().unwrap();
    }
}

#[test]
fn a_snapshot_sees_its_moment_across_flush_compaction_and_deletion() {
    let rig = Rig::new();
    let db = Db::open(rig.tiered()).unwrap();
    fill(&db, 'a', 100);
    let snapshot = db.snapshot();
    let before = pairs(snapshot.iter(IterOptions::default()).unwrap());
    db.delete_range(b"a", b"b").unwrap();
    db.put(b"a0005", b"new").unwrap();
    db.put(b"b", b"new").unwrap();
    for _ in 0..2 {
        db.flush().unwrap();
        db.compact_range(None, None).unwrap();
        assert_eq!(pairs(snapshot.iter(IterOptions::default()).unwrap()), before);
        assert_eq!(snapshot.get(b"a0005").unwrap().as_deref(), Some(&*value(b"a0005")));
        assert_eq!(snapshot.get(b"b").unwrap(), None);
        assert_eq!(pairs(db.iter(IterOptions::default()).unwrap()).len(), 2);
        fill(&db, 'c', 0);
    }
    drop(snapshot);
    assert_eq!(db.stats().snapshots, 0);
    db.put(b"b", b"newer").unwrap();
    db.compact_range(None, None).unwrap();
    let entries: u64 = db.levels().iter().map(|level| level.entries).sum();
    assert_eq!(entries, 2, "what no snapshot needs is gone");
}

#[test]
fn an_iterator_outlives_compactions_and_the_drop_of_its_keyspace() {
    let rig = Rig::new();
    let db = Db::open(rig.tiered()).unwrap();
    let keyspace = db.keyspace("other").unwrap();
    for number in 0..200 {
        keyspace.put(&key('a', number), &value(&key('a', number))).unwrap();
    }
    keyspace.flush().unwrap();
    let mut iter = keyspace.iter(IterOptions::default()).unwrap();
    iter.seek_to_first().unwrap();
    keyspace.delete_range(b"a", b"b").unwrap();
    keyspace.compact_range(None, None).unwrap();
    db.drop_keyspace("other").unwrap();
    rig.let_time_pass();
    let mut count = 0;
    while iter.valid() {
        assert_eq!(iter.value(), value(iter.key()));
        count += 1;
        iter.next().unwrap();
    }
    assert_eq!(count, 200);
    drop(iter);
    for outcome in [keyspace.put(b"k", b"v"), keyspace.get(b"k").map(drop), keyspace.flush()] {
        assert_says(&outcome.unwrap_err(), ErrorKind::InvalidArgument, &["\"other\" was dropped"]);
    }
    drop(keyspace);
    rig.let_time_pass();
    assert!(rig.files(FAST, ".tbl").is_empty(), "its files are gone once nobody reads them");
    assert_eq!(db.keyspaces(), ["default"]);
}

#[test]
fn a_transaction_conflicts_with_writes_of_what_it_read_and_nothing_else() {
    let rig = Rig::new();
    let db = Db::open(rig.tiered()).unwrap();
    fill(&db, 'a', 10);
    db.flush().unwrap();
    type Meanwhile = fn(&Db);
    let cases: [(&str, Meanwhile, bool); 6] = [
        ("nothing", |_| {}, true),
        ("a write of another key", |db| db.put(b"a0002", b"x").unwrap(), true),
        ("a write", |db| db.put(b"a0001", b"x").unwrap(), false),
        ("a deletion", |db| db.delete(b"a0001").unwrap(), false),
        ("a range deletion", |db| db.delete_range(b"a0000", b"a0005").unwrap(), false),
        (
            "a write flushed and compacted",
            |db| {
                db.put(b"a0001", b"y").unwrap();
                db.compact_range(None, None).unwrap();
            },
            false,
        ),
    ];
    for (what, meanwhile, commits) in cases {
        let mut transaction = db.transaction();
        let seen = transaction.get(b"a0001").unwrap();
        meanwhile(&db);
        assert_eq!(transaction.get(b"a0001").unwrap(), seen, "{what}: it reads its moment");
        transaction.put(b"mark", what.as_bytes());
        assert_eq!(transaction.get(b"mark").unwrap().as_deref(), Some(what.as_bytes()), "its own write");
        let outcome = transaction.commit();
        assert_eq!(outcome.is_ok(), commits, "{what}: {outcome:?}");
        if let Err(error) = outcome {
            assert_says(&error, ErrorKind::Busy, &["run the transaction again"]);
            assert_ne!(db.get(b"mark").unwrap().as_deref(), Some(what.as_bytes()), "nothing was written");
        }
    }
    // Absence is watched like presence; blind writes conflict with nothing.
    let (mut reader, mut blind) = (db.transaction(), db.transaction());
    assert_eq!(reader.get(b"absent").unwrap(), None);
    blind.put(b"absent", b"1");
    blind.commit().unwrap();
    reader.put(b"x", b"1");
    assert_eq!(reader.commit().unwrap_err().kind(), ErrorKind::Busy);
    assert!(db.compare_and_set(b"absent", Some(b"1"), Some(b"2")).unwrap());
    assert!(!db.compare_and_set(b"absent", Some(b"1"), Some(b"3")).unwrap());
    assert!(db.compare_and_set(b"absent", Some(b"2"), None).unwrap());
    assert_eq!(db.get(b"absent").unwrap(), None);
    assert_eq!(db.stats().conflicts, 5);
}

#[test]
fn an_expired_record_is_hidden_everywhere_and_uncovers_nothing() {
    let rig = Rig::new();
    let options = rig.tiered();
    let db = Db::open(options.clone()).unwrap();
    db.put(b"k", b"old").unwrap();
    db.flush().unwrap();
    let ttl = WriteOptions { ttl: Some(Duration::from_secs(10)), ..WriteOptions::default() };
    db.put_with(b"k", b"new", &ttl).unwrap();
    for _ in 0..2 {
        assert_eq!(db.get(b"k").unwrap().as_deref(), Some(&b"new"[..]));
        db.flush().unwrap();
    }
    rig.clock.advance(Duration::from_secs(11));
    let hidden = |db: &Db| {
        assert_eq!(db.get(b"k").unwrap(), None);
        assert_eq!(db.multi_get(&[b"k"]).remove(0).unwrap(), None);
        assert!(pairs(db.iter(IterOptions::default()).unwrap()).is_empty());
        assert!(!db.compare_and_set(b"k", Some(b"new"), None).unwrap());
    };
    hidden(&db);
    db.compact_range(None, None).unwrap();
    hidden(&db);
    db.close().unwrap();
    let db = Db::open(options).unwrap();
    hidden(&db);
    let entries: u64 = db.levels().iter().map(|level| level.entries).sum();
    assert_eq!(entries, 0, "a compaction to the last level gives its space back");
}

#[test]
fn an_idle_keyspace_does_not_pin_the_log() {
    let rig = Rig::new();
    let db = Db::open(rig.tiered()).unwrap();
    let idle = db.keyspace("idle").unwrap();
    idle.put(b"k", b"v").unwrap();
    let empty = db.keyspace("empty").unwrap();
    for _ in 0..20 {
        fill(&db, 'a', 300);
        rig.executor.run_all();
    }
    let limit = db.config().wal_bytes_max + 2 * db.config().memtable_bytes;
    assert!(db.stats().wal_bytes <= limit, "{} over {limit}", db.stats().wal_bytes);
    assert_eq!(idle.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    assert_eq!(empty.get(b"k").unwrap(), None);
}

#[test]
fn writers_are_delayed_before_they_are_stopped_and_the_stats_say_why() {
    let rig = Rig::new();
    let db = Db::open(rig.single().advanced(|advanced| advanced.memtable_bytes = Some(64 << 10))).unwrap();
    rig.fast.add(Rule::new(Op::Create, Effect::Error(EIO)).on("*.tbl"));
    let mut seen = Vec::new();
    let stopped = (0..20_000).find_map(|number| {
        let key = key('a', number);
        let outcome = db.put(&key, &value(&key));
        let pressure = db.stats().pressure;
        if seen.last() != Some(&pressure) {
            seen.push(pressure);
        }
        outcome.err()
    });
    assert_says(&stopped.unwrap(), ErrorKind::Io, &[".tbl"]);
    let position = |what: &str| seen.iter().position(|seen| seen == what);
    let (delayed, stop) = (position("delayed: memtables"), position("stopped: memtables"));
    assert!(delayed.is_some() && delayed < stop, "{seen:?}");
    let of = |stats: &[(&'static str, u64)]| stats.iter().find(|(name, _)| *name == "memtables").unwrap().1;
    assert!(of(&db.stats().delayed_us) > 0);
    rig.fast.clear();
    rig.let_time_pass();
    db.put(b"after", b"v").unwrap();
    db.wait_idle().unwrap();
    assert_eq!(db.stats().pressure, "none");
}

#[test]
fn unused_stores_cost_little_memory() {
    let options = |number: usize| Options::new(format!("{FAST}{number}")).env(Rig::new().env());
    let stores: Vec<Db> = (0..50).map(|number| Db::open(options(number)).unwrap()).collect();
    for db in &stores {
        let used: u64 = db.stats().memory.iter().map(|(_, bytes)| bytes).sum();
        assert!(used <= 256 << 10, "{:?}", db.stats().memory);
    }
}

#[test]
fn a_closed_store_answers_writes_with_a_clear_error() {
    let rig = Rig::new();
    let options = rig.tiered();
    let db = Db::open(options.clone()).unwrap();
    fill(&db, 'a', 10);
    let (other, snapshot) = (db.clone(), db.snapshot());
    db.close().unwrap();
    for outcome in [
        other.put(b"k", b"v"),
        other.delete(b"k"),
        other.flush(),
        other.sync(),
        other.compact_range(None, None),
        other.keyspace("new").map(drop),
        other.drop_keyspace("default2"),
    ] {
        let error = outcome.unwrap_err();
        assert_says(&error, ErrorKind::ReadOnly, &["the store is closed", "open it again"]);
        assert!(!error.to_string().contains("after this error"), "{error}");
    }
    assert_filled(&other, 'a', 10);
    assert!(snapshot.get(b"a0000").unwrap().is_some());
    drop((other, snapshot));
    assert_filled(&Db::open(options).unwrap(), 'a', 10);
}

#[test]
fn a_store_that_ends_without_close_keeps_what_the_system_was_given() {
    for durability in [Durability::Os, Durability::Sync] {
        let rig = Rig::new();
        let options = rig.tiered().durability(durability);
        let db = Db::open(options).unwrap();
        fill(&db, 'a', 30);
        // The process ends here: what the devices hold now is all there is.
        let after = Rig::new();
        for (path, bytes) in rig.image() {
            after.write(&path, &bytes);
        }
        assert_filled(&Db::open(after.tiered()).unwrap(), 'a', 30);
    }
    let rig = Rig::new();
    let db = Db::open(rig.tiered().durability(Durability::Memory)).unwrap();
    fill(&db, 'a', 30);
    drop(db);
    assert_filled(&Db::open(rig.tiered()).unwrap(), 'a', 30);
}

#[test]
fn keyspaces_that_cannot_be_are_refused_and_nothing_changes() {
    let rig = Rig::new();
    let db = Db::open(rig.tiered()).unwrap();
    fill(&db, 'a', 10);
    let long = "x".repeat(256);
    for (outcome, words) in [
        (db.keyspace("").map(drop), ["1 to 255 bytes", "0 bytes"]),
        (db.keyspace(&long).map(drop), ["1 to 255 bytes", "256 bytes"]),
        (db.drop_keyspace("default"), ["cannot be dropped", "delete_range"]),
        (db.drop_keyspace("absent"), ["there is no keyspace", "absent"]),
    ] {
        assert_says(&outcome.unwrap_err(), ErrorKind::InvalidArgument, &words);
    }
    assert_eq!(db.keyspaces(), ["default"]);
    db.keyspace(&long[1..]).unwrap();
    assert_eq!(db.keyspaces().len(), 2);
    assert_filled(&db, 'a', 10);
}

#[test]
fn a_checkpoint_goes_into_empty_directories_of_each_tier_or_nowhere() {
    let rig = Rig::new();
    let options = rig.filled();
    let db = Db::open(options).unwrap();
    let (new, new_slow) = (Path::new("/new"), Path::new("/new-slow"));
    let error = db.checkpoint(new, None).unwrap_err();
    assert_says(&error, ErrorKind::InvalidArgument, &["needs a directory for its slow part"]);
    rig.write(&new_slow.join("mine"), b"not the store's");
    let error = db.checkpoint(new, Some(new_slow)).unwrap_err();
    assert_says(&error, ErrorKind::InvalidArgument, &["is not empty", "mine", "nothing was changed"]);
    assert_eq!(rig.read(&new_slow.join("mine")), b"not the store's");
    assert!(rig.fast_memory.list(new).unwrap().is_empty());
    for (dir, slow) in [(FAST, "/other"), ("/other", SLOW)] {
        let error = db.checkpoint(Path::new(dir), Some(Path::new(slow))).unwrap_err();
        assert_says(&error, ErrorKind::InvalidArgument, &["is not empty"]);
    }
    assert_filled(&db, 'a', 200);
    drop(db);
    let rig = Rig::new();
    let db = Db::open(rig.single()).unwrap();
    fill(&db, 'a', 10);
    let error = db.checkpoint(new, Some(new_slow)).unwrap_err();
    assert_says(&error, ErrorKind::InvalidArgument, &["no slow tier"]);
    db.checkpoint(new, None).unwrap();
    let copy = Options { dir: new.into(), ..rig.single() };
    assert_filled(&Db::open(copy).unwrap(), 'a', 10);
}

#[test]
fn what_sees_a_store_as_its_points_or_its_order_sees_the_same_store() {
    let rig = Rig::new();
    let db = Db::open(rig.tiered()).unwrap();
    let other = db.keyspace("other").unwrap();
    let stores: [&dyn OrderedStore; 2] = [&db, &other];
    for (number, store) in stores.into_iter().enumerate() {
        for letter in [b"a", b"b", b"c", b"d"] {
            store.put(letter, &[letter, &[b'0' + u8::try_from(number).unwrap()][..]].concat()).unwrap();
        }
        store.delete(b"b").unwrap();
        store.update(b"c", &mut |before| before.map(|before| [before, b"!"].concat())).unwrap();
        store.update(b"d", &mut |_| None).unwrap();
        store.update(b"e", &mut |before| before.is_none().then(|| b"new".to_vec())).unwrap();
    }
    let read = |keyspace: &kelvin_lsm::db::Keyspace| pairs(keyspace.iter(IterOptions::default()).unwrap());
    for (number, keyspace) in [&*db, &other].into_iter().enumerate() {
        let expected = [("a", format!("a{number}")), ("c", format!("c{number}!")), ("e", "new".to_string())];
        let bytes = |(key, value): (&str, String)| (key.as_bytes().to_vec(), value.into_bytes());
        assert_eq!(read(keyspace), expected.map(bytes));
    }
    for store in stores {
        assert!(store.get(b"a").unwrap().is_some() && store.get(b"b").unwrap().is_none());
        let scanned = |start: &[u8], limit: usize, until: &[u8]| {
            let mut keys = Vec::new();
            store
                .scan(start, limit, &mut |key, _| {
                    keys.push(key.to_vec());
                    key != until
                })
                .unwrap();
            keys
        };
        assert_eq!(scanned(b"", 9, b""), [b"a", b"c", b"e"]);
        assert_eq!(scanned(b"b", 1, b""), [b"c"]);
        assert_eq!(scanned(b"", 9, b"c"), [b"a", b"c"]);
        assert!(scanned(b"f", 9, b"").is_empty());
    }
}

#[test]
fn every_figure_has_a_name_of_its_own_and_counts_what_it_says() {
    let rig = Rig::new();
    let options = rig.filled();
    let db = Db::open(options).unwrap();
    let figures = |db: &Db| {
        let rows = db.stats().rows();
        let named: BTreeMap<String, u64> = rows.iter().cloned().collect();
        assert_eq!(named.len(), rows.len(), "a name twice");
        named
    };
    let before = figures(&db);
    fill(&db, 'x', 20);
    assert_filled(&db, 'x', 20);
    assert_filled(&db, 'f', 10);
    assert_filled(&db, 'a', 30);
    assert_eq!(db.get(b"absent").unwrap(), None);
    db.flush().unwrap();
    db.put(b"x", b"y").unwrap();
    let after = figures(&db);
    let since = |name: &str| after[name] - before[name];
    assert_eq!((since("writes"), since("flushes")), (21, 1));
    assert_eq!((since("gets"), since("gets_absent"), since("gets_memtable")), (61, 1, 20));
    assert_eq!(since("gets_slow") + since("gets_fast"), 61, "{after:?}");
    let levels: u64 =
        after.keys().filter(|name| name.starts_with("gets_level.")).map(|name| since(name)).sum();
    assert_eq!(levels + since("gets_promotion"), 40, "{after:?}");
    assert!(since("read_ios.slow") > 0 && since("io.get.read_bytes.slow") > 0, "{after:?}");
    assert!(since("io.flush.written_bytes.fast") > 0 && since("flushed_bytes") > 0);
    assert_eq!(since("io.flush.written_bytes.slow"), 0);
    for (tier, name) in ["fast", "slow"].into_iter().enumerate() {
        assert_eq!(after[&format!("used_bytes.{name}")], db.stats().used_bytes[tier]);
    }
    let tracker = db.stats().hotness.unwrap();
    assert_eq!((after["ralt.memory_bytes"], after["ralt.resets"]), (tracker.memory_bytes, tracker.resets));
    assert!(after["memory_bytes.memtables"] > 0 && after["promotion.inserted"] > 0, "{after:?}");
}
