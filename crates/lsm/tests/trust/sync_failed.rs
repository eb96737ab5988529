//! Promise 9: after a failed sync of the WAL or the manifest the store turns read-only and says why; reads go on; opening it
//! again finds every acknowledged write.

use kelvin_base::ErrorKind;
use kelvin_lsm::db::{Db, WriteOptions};
use kelvin_lsm::options::Durability;
use kelvin_storage::fault::{EIO, Effect, Op, Rule};

use crate::rig::{Rig, assert_filled, assert_says, fill};

#[test]
fn a_failed_wal_sync_makes_the_store_read_only_and_says_why() {
    let rig = Rig::new();
    let options = rig.tiered().durability(Durability::Sync);
    let db = Db::open(options.clone()).unwrap();
    fill(&db, 'a', 50);
    rig.fast.add(Rule::new(Op::Sync, Effect::Error(EIO)).on("*.wal").times(1));
    let error = db.put(b"unknown", b"v").unwrap_err();
    assert_says(&error, ErrorKind::Io, &[".wal", "sync"]);
    for _ in 0..2 {
        let error = db.put(b"later", b"v").unwrap_err();
        assert_says(&error, ErrorKind::ReadOnly, &["sync", ".wal", "reads go on", "reopen"]);
        assert!(!error.is_retryable(), "{error}");
    }
    assert!(db.keyspace("new").is_err() && db.flush().is_err() && db.sync().is_err());
    assert!(db.stats().background_error.unwrap().contains("sync"), "the stats say it too");
    assert_filled(&db, 'a', 50);
    assert_eq!(db.get(b"unknown").unwrap(), None, "what was not acknowledged is not shown");
    let _closed = db.close();
    let db = Db::open(options).unwrap();
    assert_filled(&db, 'a', 50);
    assert_eq!(db.get(b"later").unwrap(), None);
    fill(&db, 'b', 10);
}

#[test]
fn a_failed_manifest_sync_makes_the_store_read_only_and_says_why() {
    let rig = Rig::new();
    let options = rig.tiered();
    let db = Db::open(options.clone()).unwrap();
    fill(&db, 'a', 50);
    rig.fast.add(Rule::new(Op::Sync, Effect::Error(EIO)).on("*.manifest").times(1));
    let error = db.flush().unwrap_err();
    assert!(error.to_string().contains("manifest"), "{error}");
    let error = db.put(b"later", b"v").unwrap_err();
    assert_says(&error, ErrorKind::ReadOnly, &["manifest", "reads go on"]);
    assert_filled(&db, 'a', 50);
    let _closed = db.close();
    let db = Db::open(options).unwrap();
    assert_filled(&db, 'a', 50);
    fill(&db, 'b', 50);
    db.flush().unwrap();
    assert_filled(&db, 'b', 50);
}

#[test]
fn a_close_says_so_if_it_loses_writes_that_were_acknowledged_in_memory() {
    let rig = Rig::new();
    let db = Db::open(rig.tiered()).unwrap();
    db.put_with(b"in memory", b"v", &WriteOptions { durability: Some(Durability::Memory), ttl: None })
        .unwrap();
    rig.fast.add(Rule::new(Op::Flush, Effect::Error(EIO)).on("*.wal").times(1));
    db.put(b"failed", b"v").unwrap_err();
    rig.fast.add(Rule::new(Op::Sync, Effect::Error(EIO)).on("*.manifest").times(1));
    db.keyspace("new").map(drop).unwrap_err();
    assert_eq!(db.get(b"in memory").unwrap().as_deref(), Some(b"v".as_slice()));
    let error = db.close().unwrap_err();
    assert_says(&error, ErrorKind::ReadOnly, &["manifest"]);
    let db = Db::open(rig.tiered()).unwrap();
    assert_eq!(db.get(b"in memory").unwrap(), None);
}

#[test]
fn a_failed_append_is_no_failed_sync_and_the_next_write_succeeds() {
    let rig = Rig::new();
    let options = rig.tiered();
    let db = Db::open(options.clone()).unwrap();
    fill(&db, 'a', 20);
    for op in [Op::Append, Op::Flush] {
        rig.fast.add(Rule::new(op, Effect::Error(EIO)).on("*.wal").times(1));
        let error = db.put(b"failed", b"v").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        db.put(b"next", b"v").unwrap();
        assert_eq!(db.get(b"failed").unwrap(), None);
        rig.fast.clear();
    }
    db.close().unwrap();
    let db = Db::open(options).unwrap();
    assert_filled(&db, 'a', 20);
    assert!(db.get(b"next").unwrap().is_some());
}

#[test]
fn a_failed_sync_of_a_table_fails_its_job_only_and_is_tried_again_with_a_new_file() {
    let rig = Rig::new();
    let db = Db::open(rig.tiered()).unwrap();
    fill(&db, 'a', 50);
    rig.fast.add(Rule::new(Op::Sync, Effect::Error(EIO)).on("*.tbl").times(1));
    assert_says(&db.flush().unwrap_err(), ErrorKind::Io, &[".tbl"]);
    fill(&db, 'b', 10);
    rig.let_time_pass();
    db.flush().unwrap();
    assert_filled(&db, 'a', 50);
    assert!(db.check().is_well());
    assert_eq!(db.stats().background_error, None);
}
