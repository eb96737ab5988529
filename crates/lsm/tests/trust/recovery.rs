//! Openings cut short: whatever a recovery had done when it ended, the next one finds every acknowledged write.

use kelvin_lsm::db::Db;
use kelvin_storage::fault::EIO;

use crate::rig::{Rig, assert_filled, fill};

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
    // Begins a log that no edit names.
    db.checkpoint("/copy-fast".as_ref(), Some("/copy-slow".as_ref())).unwrap();
    db.keyspace("two").unwrap().put(b"new", b"v").unwrap();
    rig.killed()
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
