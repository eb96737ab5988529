//! Truncated, bit-flipped and missing files of each kind: the opening or the read that needs the bytes says which
//! file, `check` says what is lost, everything else is served, and a missing record is never "not found".

use std::path::PathBuf;

use kelvin_base::{Error, ErrorKind};
use kelvin_lsm::check::{CheckReport, FileKind};
use kelvin_lsm::db::{Db, IterOptions};
use kelvin_lsm::options::{Durability, Options};
use kelvin_storage::Storage;
use kelvin_storage::fault::{Effect, Op, Rule};

use crate::rig::{FAST, Rig, assert_filled, assert_says, check, fill, key, refused, value};

type Damage = fn(&mut Vec<u8>);

const TRUNCATED: Damage = |bytes| bytes.truncate(bytes.len() / 2);
const EMPTIED: Damage = |bytes| bytes.clear();
const FLIPPED: Damage = |bytes| {
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
};
/// In the first edit of a manifest: a mark between two edits says nothing.
const FLIPPED_EARLY: Damage = |bytes| {
    let early = (bytes.len() / 2).min(70);
    bytes[early] ^= 0x10;
};
/// In a record of the keys that are read.
const FLIPPED_THERE: Damage = |bytes| {
    let there = bytes.windows(10).position(|bytes| bytes == b"a0000a0000").unwrap();
    bytes[there + 5] ^= 0x10;
};

/// The one damaged file of a report, which must say what is lost.
fn damaged(report: &CheckReport, kind: FileKind) -> (PathBuf, Vec<String>) {
    let damaged = report.damaged_files();
    assert_eq!(damaged.len(), 1, "{damaged:?}");
    assert_eq!(damaged[0].kind, kind);
    for error in &damaged[0].damage {
        assert_eq!(error.path(), Some(&*damaged[0].path), "{error}");
    }
    (damaged[0].path.clone(), damaged[0].lost.clone())
}

/// Reads every `a` key: each is right or an error that names `path`; some must be errors.
fn reads_are_right_or_errors(db: &Db, path: &std::path::Path) {
    let mut errors: Vec<Error> = Vec::new();
    for number in 0..200 {
        let key = key('a', number);
        match db.get(&key) {
            Ok(found) => assert_eq!(found.as_deref(), Some(&*value(&key)), "an answer is right or none"),
            Err(error) => errors.push(error),
        }
    }
    assert!(!errors.is_empty());
    for error in errors {
        assert_says(&error, ErrorKind::Corruption, &[&path.to_string_lossy()]);
    }
    let mut iter = db.iter(IterOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let mut outcome = iter.seek_to_first();
    while outcome.is_ok() && iter.valid() {
        outcome = iter.next();
    }
    assert_eq!(
        outcome.unwrap_err().kind(),
        ErrorKind::Corruption,
        "a scan over the damage does not end well"
    );
}

#[test]
fn a_damaged_table_fails_the_reads_that_need_it_and_check_says_which_keys() {
    for damage in [TRUNCATED, FLIPPED_THERE, EMPTIED] {
        let rig = Rig::new();
        let options = rig.filled();
        let path = rig.slow_table();
        rig.change(&path, damage);
        let (named, lost) = damaged(&check(options.clone()), FileKind::Table);
        assert_eq!(named, path);
        assert!(
            lost.iter().all(
                |lost| lost.contains("default") && lost.contains("from \"") || lost.contains("behind \"")
            ),
            "{lost:?}"
        );
        assert!(!lost.is_empty());
        let db = Db::open(options).unwrap();
        reads_are_right_or_errors(&db, &path);
        assert_filled(&db, 'f', 100);
        assert_filled(&db, 'w', 50);
        db.put(b"a0000", b"written over the damage").unwrap();
        assert_eq!(db.get(b"a0000").unwrap().as_deref(), Some(&b"written over the damage"[..]));
        assert_eq!(damaged(&db.check(), FileKind::Table).0, path, "an open store finds it too");
    }
}

#[test]
fn a_missing_table_is_an_error_that_says_what_it_held_and_putting_it_back_heals_it() {
    let rig = Rig::new();
    let options = rig.filled();
    let path = rig.slow_table();
    let bytes = rig.read(&path);
    rig.slow_memory.remove(&path).unwrap();
    let (named, lost) = damaged(&check(options.clone()), FileKind::Table);
    assert_eq!((named, lost.len()), (path.clone(), 1));
    let db = Db::open(options).unwrap();
    let error = db.get(b"a0000").unwrap_err();
    assert_says(&error, ErrorKind::Corruption, &[&path.to_string_lossy(), "entries from", "put back"]);
    assert_filled(&db, 'f', 100);
    rig.write(&path, &bytes);
    assert_filled(&db, 'a', 200);
}

#[test]
fn compactions_leave_a_damaged_table_alone_and_others_go_on() {
    let rig = Rig::new();
    let options = rig.filled();
    let path = rig.slow_table();
    rig.change(&path, FLIPPED);
    let db = Db::open(options).unwrap();
    let error = db.compact_range(None, None).unwrap_err();
    assert_says(&error, ErrorKind::Corruption, &[&path.to_string_lossy()]);
    let error = db.compact_range(None, None).unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::Corruption,
        "asked again it neither hangs nor says that all is done: {error}"
    );
    fill(&db, 'z', 5);
    assert_filled(&db, 'z', 5);
    assert_filled(&db, 'f', 100);
}

#[test]
fn a_flip_on_the_way_from_the_device_is_healed_by_reading_again() {
    let rig = Rig::new();
    let options = rig.filled();
    for nth in 0..4 {
        let db = Db::open(options.clone()).unwrap();
        rig.slow.add(Rule::new(Op::Read, Effect::FlipBit).on("*.tbl").after(nth).times(1));
        assert_filled(&db, 'a', 200);
        rig.slow.clear();
        db.close().unwrap();
    }
}

#[test]
fn a_read_error_is_never_not_found() {
    let rig = Rig::new();
    let options = rig.filled();
    let db = Db::open(options).unwrap();
    for device in [&rig.fast, &rig.slow] {
        device.add(Rule::new(Op::Read, Effect::Error(5)).on("*.tbl"));
    }
    for absent in [&b"a0000x"[..], b"f0000x", b"a0000", b"f0000"] {
        // A filter in memory may prove absence; what it cannot prove is an error.
        assert_ne!(db.get(absent).ok().flatten(), Some(value(absent).into()));
    }
    assert!(db.get(b"a0000").is_err());
    assert!(db.get(b"f0000").is_err());
    assert!(db.multi_get(&[b"a0000", b"f0000", b"w0000"])[..2].iter().all(Result::is_err));
    assert_eq!(db.get(b"w0000").unwrap().as_deref(), Some(&*value(b"w0000")));
    for device in [&rig.fast, &rig.slow] {
        device.clear();
    }
    assert_filled(&db, 'a', 200);
}

#[test]
fn damage_in_the_manifest_or_in_current_refuses_to_open_and_names_the_file() {
    for damage in [FLIPPED_EARLY, EMPTIED] {
        for ending in [".manifest", "CURRENT"] {
            let rig = Rig::new();
            let options = rig.filled();
            let path = rig.files(FAST, ending).pop().unwrap();
            let good = rig.read(&path);
            rig.change(&path, damage);
            let before = rig.fingerprint();
            let error = refused(options.clone());
            assert_says(&error, ErrorKind::Corruption, &[&path.to_string_lossy()]);
            assert_eq!(rig.fingerprint(), before, "nothing was changed");
            let report = check(options.clone());
            let manifest =
                report.damaged_files().into_iter().find(|file| file.kind == FileKind::Manifest).unwrap();
            assert_eq!((&manifest.path, manifest.lost.len()), (&path, 1));
            rig.write(&path, &good);
            assert_filled(&Db::open(options).unwrap(), 'w', 50);
        }
    }
}

#[test]
fn a_missing_manifest_is_named() {
    let rig = Rig::new();
    let options = rig.filled();
    let path = rig.files(FAST, ".manifest").pop().unwrap();
    let good = rig.read(&path);
    rig.fast_memory.remove(&path).unwrap();
    let error = refused(options.clone());
    assert_says(&error, error.kind(), &[&path.to_string_lossy()]);
    rig.write(&path, &good);
    assert_filled(&Db::open(options).unwrap(), 'w', 50);
}

#[test]
fn a_damaged_identity_is_named_and_loses_no_record() {
    for damage in [TRUNCATED, FLIPPED, EMPTIED] {
        let rig = Rig::new();
        let options = rig.filled();
        let path: PathBuf = "/slow/IDENTITY".into();
        let good = rig.read(&path);
        rig.change(&path, damage);
        let error = refused(options.clone());
        assert_says(&error, ErrorKind::Corruption, &["IDENTITY", "restore", "none is lost"]);
        let (named, _) = damaged(&check(options.clone()), FileKind::Identity);
        assert_eq!(named, path);
        rig.write(&path, &good);
        assert_filled(&Db::open(options).unwrap(), 'a', 200);
    }
}

#[test]
fn a_flip_in_a_log_is_corruption_that_names_file_and_offset_and_says_what_is_lost() {
    let rig = Rig::new();
    let options = rig.filled();
    let path = rig.files(FAST, ".wal").into_iter().find(|path| holds(&rig, path, b"w0020w0020")).unwrap();
    let good = rig.read(&path);
    let middle = good.windows(10).position(|bytes| bytes == b"w0020w0020").unwrap();
    rig.change(&path, |bytes| bytes[middle] ^= 0x10);
    let before = rig.fingerprint();
    let error = refused(options.clone());
    assert_says(&error, ErrorKind::Corruption, &[&path.to_string_lossy(), "at byte"]);
    assert!(error.advised().is_some(), "{error}");
    assert_eq!(rig.fingerprint(), before, "nothing was changed");
    let (named, lost) = damaged(&check(options.clone()), FileKind::Wal);
    assert_eq!(named, path);
    assert!(lost[0].contains("acknowledged writes"), "{lost:?}");
    rig.write(&path, &good);
    assert_filled(&Db::open(options).unwrap(), 'w', 50);
}

#[test]
fn a_flip_in_the_last_synced_record_of_a_killed_store_is_corruption_and_not_silence() {
    for count in [1, 20] {
        let rig = Rig::new();
        let db = Db::open(rig.single().durability(Durability::Sync)).unwrap();
        fill(&db, 'w', count);
        let last = key('w', count - 1);
        let killed = rig.killed();
        let path = rig.files(FAST, ".wal").into_iter().find(|path| holds(&rig, path, &last)).unwrap();
        let good = killed.read(&path);
        let key_at = good.windows(last.len()).rposition(|bytes| bytes == last).unwrap();
        let mark = good.len() - 19;
        for at in key_at - 20..good.len() {
            killed.change(&path, |bytes| bytes[at] ^= 0x10);
            match Db::open(killed.single()) {
                Err(error) => {
                    assert!(at < mark, "byte {at}: {error}");
                    assert_says(&error, ErrorKind::Corruption, &[&path.to_string_lossy(), "acknowledged"]);
                    killed.write(&path, &good);
                }
                Ok(opened) => {
                    assert!(at >= mark, "byte {at} of {mark} and the record is gone without a word");
                    assert_filled(&opened, 'w', count);
                    break;
                }
            }
        }
        drop(db);
    }
}

fn holds(rig: &Rig, path: &std::path::Path, part: &[u8]) -> bool {
    rig.read(path).windows(part.len()).any(|bytes| bytes == part)
}

/// Bytes of a log up to the last that is not zero.
fn used(rig: &Rig, path: &std::path::Path) -> usize {
    let bytes = rig.read(path);
    bytes.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1)
}

#[test]
fn a_log_cut_off_at_its_end_loses_only_what_was_cut_off() {
    let rig = Rig::new();
    let options = rig.single();
    let db = Db::open(options.clone()).unwrap();
    fill(&db, 'w', 50);
    // No close: a finished log says that nothing follows, so a cut is damage there.
    rig.executor.discard();
    let path = rig.files(FAST, ".wal").pop().unwrap();
    let half = used(&rig, &path) / 2;
    let copy = rig.killed();
    copy.change(&path, |bytes| bytes.truncate(half));
    let reopened = Db::open(copy.single()).unwrap();
    let kept = (0..50).take_while(|&number| reopened.get(&key('w', number)).unwrap().is_some()).count();
    assert!(kept > 0 && kept < 50, "{kept}");
    assert_filled(&reopened, 'w', kept);
    for number in kept..50 {
        assert_eq!(reopened.get(&key('w', number)).unwrap(), None, "a prefix");
    }
    drop(db);
}

#[test]
fn a_missing_log_is_an_error_and_putting_it_back_heals_it() {
    let rig = Rig::new();
    let options = rig.filled();
    let logs: Vec<_> = rig.files(FAST, ".wal").iter().map(|path| (path.clone(), rig.read(path))).collect();
    for (path, _) in &logs {
        rig.fast_memory.remove(path).unwrap();
    }
    let before = rig.fingerprint();
    let error = refused(options.clone());
    assert_says(&error, ErrorKind::Corruption, &[".wal", "missing", "lost"]);
    assert!(!check(options.clone()).is_well());
    assert_eq!(rig.fingerprint(), before, "nothing was changed");
    for (path, bytes) in &logs {
        rig.write(path, bytes);
    }
    assert_filled(&Db::open(options).unwrap(), 'w', 50);
}

#[test]
fn check_misses_the_oldest_log_that_is_needed_though_later_ones_are_there() {
    let rig = Rig::new();
    let options = rig.single();
    let db = Db::open(options.clone()).unwrap();
    // The other keyspace holds back the logs that flushes of this one end.
    db.keyspace("two").unwrap().put(b"k", b"v").unwrap();
    for letter in ['a', 'b'] {
        fill(&db, letter, 10);
        db.flush().unwrap();
    }
    fill(&db, 'w', 10);
    rig.executor.discard();
    let killed = rig.killed();
    drop(db);
    let logs = killed.files(FAST, ".wal");
    assert!(logs.len() > 2 && check(killed.single()).is_well(), "{logs:?}");
    killed.fast_memory.remove(&logs[0]).unwrap();
    assert_says(&refused(killed.single()), ErrorKind::Corruption, &[".wal", "missing"]);
    let (_, lost) = damaged(&check(killed.single()), FileKind::Wal);
    assert!(lost[0].contains("acknowledged writes"), "{lost:?}");
}

#[test]
fn a_flip_in_the_edit_of_the_last_flush_is_damage_and_no_flush_that_did_not_happen() {
    let rig = Rig::new();
    let db = Db::open(rig.single()).unwrap();
    fill(&db, 'a', 20);
    // With so large a batch its log is not kept to be used again.
    db.put(b"large", &vec![b'l'; 100_000]).unwrap();
    db.flush().unwrap();
    let killed = rig.killed();
    rig.executor.discard();
    drop(db);
    let path = killed.files(FAST, ".manifest").pop().unwrap();
    let good = killed.read(&path);
    let table = good.windows(5).rposition(|bytes| bytes == b"large").unwrap();
    for at in [table - 10, table, good.len() - 20] {
        killed.change(&path, |bytes| bytes[at] ^= 0x10);
        let before = killed.fingerprint();
        assert_says(&refused(killed.single()), ErrorKind::Corruption, &[&path.to_string_lossy(), "at byte"]);
        assert_eq!(killed.fingerprint(), before, "no table was removed as one that nothing names");
        killed.write(&path, &good);
    }
    let opened = Db::open(killed.single()).unwrap();
    assert_filled(&opened, 'a', 20);
}

#[test]
fn the_first_log_of_a_store_is_missed_too() {
    let rig = Rig::new();
    let options: Options = rig.single();
    let db = Db::open(options.clone()).unwrap();
    fill(&db, 'w', 10);
    db.close().unwrap();
    for path in rig.files(FAST, ".wal") {
        rig.fast_memory.remove(&path).unwrap();
    }
    assert_says(&refused(options), ErrorKind::Corruption, &[".wal", "missing"]);
}
