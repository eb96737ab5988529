//! Openings cut short: whatever a recovery had done when it ended, the next one finds every acknowledged write.

use kelvin_lsm::db::Db;
use kelvin_storage::fault::EIO;

use crate::rig::{FAST, Rig, assert_filled, fill, key};

/// A killed store with an idle keyspace, a dropped one, and writes in the newest log only.
fn killed() -> Rig {
    let rig = Rig::new();
    let db = Db::open(rig.tiered()).unwrap();
    fill(&db, 'a', 4);
    db.flush().unwrap();
    fill(&db, 'b', 4);
    db.keyspace("two").unwrap().put(b"old", b"v").unwrap();
    db.flush().unwrap();
    db.keyspace("two").unwrap().put(b"older", b"v").unwrap();
    db.drop_keyspace("two").unwrap();
    // Begins a log that no edit names, since there is something to seal.
    db.put(b"sealed", b"v").unwrap();
    db.checkpoint("/copy-fast".as_ref(), Some("/copy-slow".as_ref())).unwrap();
    db.keyspace("two").unwrap().put(b"new", b"v").unwrap();
    rig.killed()
}

#[test]
fn checkpoints_of_an_idle_store_take_no_space_of_it() {
    let rig = Rig::new();
    let db = Db::open(rig.tiered()).unwrap();
    db.put(b"key", b"value").unwrap();
    let mut used = Vec::new();
    // Nobody flushes meanwhile: what the first one has sealed holds back every log behind it.
    for number in 0..40 {
        let dir = |tier: &str| format!("/copy-{tier}-{number}");
        db.checkpoint(dir("fast").as_ref(), Some(dir("slow").as_ref())).unwrap();
        used.push(db.stats().used_bytes);
    }
    assert_eq!(used.first(), used.last());
    db.put(b"another", b"value").unwrap();
    assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn an_opening_that_ends_at_any_operation_loses_no_write_of_any_keyspace() {
    let mut last = 0;
    for nth in 0.. {
        let rig = killed();
        rig.fast.fail_from(nth, EIO);
        let opened = Db::open(rig.tiered());
        let whole = rig.fast.injected() == 0;
        let after = rig.killed();
        drop(opened);
        let db = Db::open(after.tiered()).unwrap_or_else(|error| panic!("operation {nth}: {error}"));
        assert_filled(&db, 'a', 4);
        assert_filled(&db, 'b', 4);
        let two = db.keyspace("two").unwrap();
        assert_eq!(two.get(b"new").unwrap().as_deref(), Some(&b"v"[..]), "operation {nth}");
        assert_eq!(two.get(b"old").unwrap(), None);
        last = nth;
        if whole {
            break;
        }
    }
    assert!(last > 20, "the opening does more than {last} operations");
}

#[test]
fn a_store_that_is_only_ever_open_for_a_moment_gets_its_logs_flushed() {
    let rig = Rig::new();
    for number in 0..60 {
        let db = Db::open(rig.tiered()).unwrap();
        db.put(&key('k', number), b"v").unwrap();
        // The flush of what the opening has found is queued; the close is the first to let it run.
        db.close().unwrap();
        let logs = rig.files(FAST, ".wal").len();
        assert!(logs <= 12, "{logs} logs after opening {number}");
    }
    let db = Db::open(rig.tiered()).unwrap();
    for number in 0..60 {
        assert_eq!(db.get(&key('k', number)).unwrap().as_deref(), Some(&b"v"[..]));
    }
}
