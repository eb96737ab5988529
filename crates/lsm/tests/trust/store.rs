//! Snapshots, iterators, transactions, expiry, keyspaces, pressure, memory, closing: each as documented.

use std::sync::Arc;
use std::time::Duration;

use kelvin_base::{ErrorKind, ThreadPool};
use kelvin_lsm::db::{Db, DbIterator, IterOptions, WriteOptions};
use kelvin_lsm::options::{Durability, Env, Options};
use kelvin_storage::fault::{EIO, Effect, Op, Rule};

use crate::rig::{FAST, Rig, assert_filled, assert_says, fill, key, value};

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
