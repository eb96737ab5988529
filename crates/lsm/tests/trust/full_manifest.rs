//! Promise 8 where it meets promise 9: a disk too full for the manifest is no failed sync. Nothing becomes read-only, a
//! process killed meanwhile leaves a store that opens with everything, and room resumes the work.

use kelvin_base::ErrorKind;
use kelvin_lsm::db::Db;
use kelvin_lsm::options::Options;
use kelvin_storage::fault::{ENOSPC, Effect, Op, Rule};

use crate::rig::{Rig, assert_filled, assert_says, check, fill, key, value};

/// Operations by which a full disk refuses an edit and the manifest that would take over. A flush that fails leaves the
/// whole edit in the file: a crash may find it done.
const REFUSALS: [&[(Op, &str)]; 4] = [
    &[(Op::Append, "*.manifest")],
    &[(Op::Flush, "*.manifest")],
    &[(Op::Append, "*.manifest"), (Op::Create, "*.manifest")],
    &[(Op::Flush, "*.manifest"), (Op::Rename, "CURRENT.new")],
];

fn refuse(rig: &Rig, operations: &[(Op, &str)]) {
    for (op, name) in operations {
        rig.fast.add(Rule::new(*op, Effect::Error(ENOSPC)).on(*name));
    }
}

/// Tables on both disks: as many as versions name, once nothing is in doubt.
fn tables(rig: &Rig) -> usize {
    rig.files(crate::rig::FAST, ".tbl").len() + rig.files(crate::rig::SLOW, ".tbl").len()
}

fn assert_no_table_too_many(rig: &Rig, db: &Db) {
    let named: usize = db.levels().iter().map(|level| level.tables).sum();
    assert_eq!(tables(rig), named);
}

/// Opens what a kill now leaves, with the options of the same name there.
fn open_killed(rig: &Rig, options: impl Fn(&Rig) -> Options) -> (Rig, Db) {
    let after = rig.killed();
    let db = Db::open(options(&after)).unwrap();
    (after, db)
}

#[test]
fn a_flush_whose_edit_finds_the_disk_full_fails_and_room_resumes_it() {
    for operations in REFUSALS {
        let rig = Rig::new();
        let db = Db::open(rig.tiered()).unwrap();
        fill(&db, 'a', 50);
        refuse(&rig, operations);
        for _ in 0..3 {
            let error = db.flush().unwrap_err();
            assert_says(&error, ErrorKind::NoSpace, &["free space"]);
            assert!(error.is_retryable(), "{error}");
        }
        assert!(tables(&rig) <= 1, "jobs that cannot end well make no more files");
        assert_filled(&db, 'a', 50);
        fill(&db, 'b', 20);
        assert_filled(&db, 'b', 20);
        let (after, killed) = open_killed(&rig, Rig::tiered);
        assert_filled(&killed, 'a', 50);
        assert_filled(&killed, 'b', 20);
        killed.flush().unwrap();
        assert_no_table_too_many(&after, &killed);
        rig.fast.clear();
        db.flush().unwrap();
        assert_eq!(db.stats().background_error, None);
        assert_no_table_too_many(&rig, &db);
        assert_filled(&db, 'a', 50);
        db.close().unwrap();
        assert!(check(rig.tiered()).is_well());
        assert_filled(&Db::open(rig.tiered()).unwrap(), 'b', 20);
    }
}

#[test]
fn writers_who_wait_for_such_a_flush_are_told_and_resume_by_themselves() {
    let rig = Rig::new();
    let db = Db::open(rig.tiered()).unwrap();
    refuse(&rig, REFUSALS[0]);
    let mut count = 0;
    let error = loop {
        let key = key('n', count);
        match db.put(&key, &value(&key)) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
        rig.executor.run_all();
        assert!(count < 9000, "nothing was ever full");
    };
    assert_says(&error, ErrorKind::NoSpace, &["free space"]);
    assert!(db.put(b"again", b"x").is_err(), "it fails again and does not hang");
    assert_filled(&db, 'n', count);
    rig.fast.clear();
    for _ in 0..3 {
        rig.let_time_pass();
    }
    fill(&db, 'r', 100);
    assert_filled(&db, 'n', count);
    assert_filled(&db, 'r', 100);
}

#[test]
fn a_compaction_whose_edit_finds_the_disk_full_leaves_its_inputs_and_is_done_later() {
    for operations in REFUSALS {
        let rig = Rig::new();
        let db = Db::open(rig.filled()).unwrap();
        fill(&db, 'x', 50);
        db.flush().unwrap();
        refuse(&rig, operations);
        for _ in 0..2 {
            assert_says(&db.compact_range(None, None).unwrap_err(), ErrorKind::NoSpace, &["free space"]);
        }
        let (after, killed) = open_killed(&rig, Rig::tiered);
        for db in [&db, &killed] {
            assert_filled(db, 'a', 200);
            assert_filled(db, 'x', 50);
        }
        killed.compact_range(None, None).unwrap();
        assert_filled(&killed, 'a', 200);
        after.let_time_pass();
        assert_no_table_too_many(&after, &killed);
        rig.fast.clear();
        rig.let_time_pass();
        db.compact_range(None, None).unwrap();
        rig.let_time_pass();
        assert_filled(&db, 'a', 200);
        assert_filled(&db, 'x', 50);
        assert_no_table_too_many(&rig, &db);
        assert!(db.check().is_well());
    }
}

#[test]
fn keyspaces_are_neither_made_nor_dropped_by_an_edit_that_finds_the_disk_full() {
    for operations in REFUSALS {
        let rig = Rig::new();
        let db = Db::open(rig.tiered()).unwrap();
        let kept = db.keyspace("kept").unwrap();
        kept.put(b"before", b"v").unwrap();
        refuse(&rig, operations);
        assert_says(&db.drop_keyspace("kept").unwrap_err(), ErrorKind::NoSpace, &["free space"]);
        assert_says(&db.keyspace("new").unwrap_err(), ErrorKind::NoSpace, &["free space"]);
        // What is acknowledged after the failed drop must not vanish with it.
        kept.put(b"after", b"v").unwrap();
        let (_after, killed) = open_killed(&rig, Rig::tiered);
        let found = killed.keyspace("kept").unwrap();
        assert!(found.get(b"before").unwrap().is_some() && found.get(b"after").unwrap().is_some());
        rig.fast.clear();
        db.keyspace("new").unwrap().put(b"k", b"v").unwrap();
        db.drop_keyspace("kept").unwrap();
        db.close().unwrap();
        let db = Db::open(rig.tiered()).unwrap();
        assert_eq!(db.keyspace("new").unwrap().get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
        assert_eq!(db.keyspace("kept").unwrap().get(b"after").unwrap(), None);
    }
}

#[test]
fn tables_of_an_edit_that_failed_do_not_stay_in_a_store_at_rest() {
    for operations in REFUSALS {
        let rig = Rig::new();
        let db = Db::open(rig.filled()).unwrap();
        db.compact_range(None, None).unwrap();
        // Of one table the edit would only say that it lies lower.
        for _ in 0..2 {
            fill(&db, 'a', 5);
            db.flush().unwrap();
        }
        rig.let_time_pass();
        let named = tables(&rig);
        // A compaction asked for by hand: once it has failed nothing is due.
        refuse(&rig, operations);
        db.compact_range(None, None).unwrap_err();
        rig.let_time_pass();
        assert!(tables(&rig) > named, "what is in doubt stays while the disk is full");
        rig.fast.clear();
        for _ in 0..3 {
            rig.let_time_pass();
        }
        db.wait_idle().unwrap();
        assert_no_table_too_many(&rig, &db);
        assert_filled(&db, 'a', 200);
        // Nor is anything written once a store is closed.
        refuse(&rig, operations);
        db.compact_range(None, None).unwrap_err();
        db.close().unwrap();
        rig.fast.clear();
        let manifests = || rig.files(crate::rig::FAST, ".manifest");
        let left = manifests();
        rig.let_time_pass();
        assert_eq!(manifests(), left, "the directory may be another process's by now");
    }
}
