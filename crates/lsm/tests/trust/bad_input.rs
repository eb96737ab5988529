//! Wrong directories, two openers, read-only disks, absurd options, keys and values out of bounds: each refused by a
//! clear error, with nothing changed.

use kelvin_base::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use kelvin_base::{ErrorKind, Tier};
use kelvin_lsm::batch::WriteBatch;
use kelvin_lsm::db::{Db, WriteOptions};
use kelvin_lsm::options::Options;
use kelvin_storage::fault::{Effect, Op, Rule};
use kelvin_storage::{OsStorage, Storage};

use crate::rig::{FAST, Rig, SLOW, assert_filled, assert_says, check, fill, refused};

const EROFS: i32 = 30;

#[test]
fn a_new_store_is_not_made_among_foreign_files() {
    let rig = Rig::new();
    rig.write("/fast/holiday.jpg".as_ref(), b"not ours");
    let before = rig.fingerprint();
    let error = refused(rig.tiered());
    assert_says(
        &error,
        ErrorKind::InvalidArgument,
        &["holiday.jpg", FAST, "empty directory", "nothing was changed"],
    );
    assert_eq!(rig.fingerprint(), before);
}

#[test]
fn a_new_store_is_not_given_a_slow_directory_with_foreign_files() {
    let rig = Rig::new();
    rig.write("/slow/holiday.jpg".as_ref(), b"not ours");
    let error = refused(rig.tiered());
    assert_says(
        &error,
        ErrorKind::InvalidArgument,
        &["holiday.jpg", SLOW, "empty directory", "nothing was changed"],
    );
    assert_eq!(error.on(), Some(Tier::Slow));
    assert_eq!(rig.files(SLOW, "").len(), 1, "nothing was added");
}

#[test]
fn a_slow_directory_given_as_the_fast_one_is_told_for_what_it_is() {
    let rig = Rig::new();
    rig.filled();
    let before = rig.fingerprint();
    let mut env = rig.env();
    env.fast = rig.slow.clone();
    let error = refused(Options::new(SLOW).env(env));
    assert_says(&error, ErrorKind::InvalidArgument, &["slow tier", SLOW, "nothing was changed"]);
    assert_eq!(rig.fingerprint(), before);
}

#[test]
fn a_store_with_records_on_a_slow_tier_does_not_open_without_it() {
    let rig = Rig::new();
    let options = rig.filled();
    let before = rig.fingerprint();
    let error = refused(rig.single());
    assert_says(&error, ErrorKind::InvalidArgument, &["slow tier", "nothing is lost"]);
    assert_eq!(rig.fingerprint(), before);
    let db = Db::open(options).unwrap();
    assert_filled(&db, 'a', 200);
}

#[test]
fn a_directory_without_its_current_file_is_not_taken_for_an_empty_one() {
    let rig = Rig::new();
    let options = rig.filled();
    let current = rig.read("/fast/CURRENT".as_ref());
    rig.fast_memory.remove("/fast/CURRENT".as_ref()).unwrap();
    let before = rig.fingerprint();
    assert_says(&refused(options.clone()), ErrorKind::Corruption, &["CURRENT", FAST, "nothing was changed"]);
    assert_eq!(rig.fingerprint(), before);
    rig.write("/fast/CURRENT".as_ref(), &current);
    assert_filled(&Db::open(options).unwrap(), 'w', 50);
}

#[test]
fn a_store_is_open_once() {
    let rig = Rig::new();
    let db = Db::open(rig.tiered()).unwrap();
    fill(&db, 'a', 1);
    assert_says(&refused(rig.tiered()), ErrorKind::Busy, &[FAST, "close it there first"]);
    assert_filled(&db, 'a', 1);
    db.close().unwrap();
    assert_filled(&Db::open(rig.tiered()).unwrap(), 'a', 1);
}

#[test]
fn a_slow_directory_serves_one_store_at_a_time() {
    let rig = Rig::new();
    let first = Db::open(rig.tiered()).unwrap();
    fill(&first, 'a', 1);
    let other = || Options::new("/other").slow(SLOW).fast_capacity(1 << 20).memory(1 << 20).env(rig.env());
    assert_says(&refused(other()), ErrorKind::Busy, &[SLOW, "close it there first"]);
    first.close().unwrap();
    let error = refused(other());
    assert_says(
        &error,
        ErrorKind::InvalidArgument,
        &["already belongs to store", SLOW, "nothing was changed"],
    );
    assert_filled(&Db::open(rig.tiered()).unwrap(), 'a', 1);
}

#[test]
fn a_copy_of_the_fast_directory_finds_the_slow_one_in_use() {
    let rig = Rig::new();
    let options = rig.filled();
    for (path, bytes) in rig.image() {
        if let Ok(name) = path.strip_prefix(FAST) {
            rig.write(&std::path::Path::new("/fast-copy").join(name), &bytes);
        }
    }
    let db = Db::open(options.clone()).unwrap();
    let copy = Options { dir: "/fast-copy".into(), ..options };
    let mut copy_env = rig.env();
    copy_env.fast = std::sync::Arc::new(rig.slow_memory.clone());
    let copy = copy.env(copy_env);
    assert_says(&refused(copy.clone()), ErrorKind::Busy, &[SLOW]);
    db.close().unwrap();
    assert_says(&refused(copy), ErrorKind::InvalidArgument, &["older copy"]);
}

#[test]
fn two_openers_of_a_real_directory_exclude_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let options = || Options::new(dir.path().join("store")).memory(8 << 20);
    let db = Db::open(options()).unwrap();
    db.put(b"k", b"v").unwrap();
    assert_says(&refused(options()), ErrorKind::Busy, &["close it there first"]);
    // The lock another process would meet.
    assert!(OsStorage::new().lock(&dir.path().join("store/LOCK")).is_err());
    db.close().unwrap();
    assert_eq!(Db::open(options()).unwrap().get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
}

#[test]
fn a_path_that_is_a_file_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = refused(Options::new(file.path()).memory(8 << 20));
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(error.path().is_some(), "{error}");
}

#[test]
fn a_read_only_file_system_is_named_at_open_and_nothing_is_changed() {
    for tier in Tier::ALL {
        let rig = Rig::new();
        let options = rig.filled();
        let before = rig.fingerprint();
        let device = if tier == Tier::Fast { &rig.fast } else { &rig.slow };
        for op in [Op::Create, Op::Append, Op::Sync, Op::CreateDir, Op::Rename, Op::Remove, Op::Lock] {
            device.add(Rule::new(op, Effect::Error(EROFS)));
        }
        let error = refused(options.clone());
        assert_says(&error, ErrorKind::ReadOnly, &["takes no writes", "mount it for writing"]);
        assert_eq!(error.on(), Some(tier), "{error}");
        assert_eq!(rig.fingerprint(), before);
        device.clear();
        assert_filled(&Db::open(options).unwrap(), 'w', 50);
    }
}

#[test]
fn a_missing_empty_foreign_or_older_slow_directory_is_refused_by_name() {
    let rig = Rig::new();
    let options = rig.filled();
    let identity = rig.read("/slow/IDENTITY".as_ref());
    let tables: Vec<_> = rig.files(SLOW, ".tbl").iter().map(|path| (path.clone(), rig.read(path))).collect();
    // Opening raises the epoch: the identity kept above is an older copy's from now on.
    Db::open(options.clone()).unwrap().close().unwrap();
    let current = rig.read("/slow/IDENTITY".as_ref());
    rig.write("/slow/IDENTITY".as_ref(), &identity);
    assert_says(&refused(options.clone()), ErrorKind::InvalidArgument, &["older copy", SLOW, "restore"]);

    for path in rig.files(SLOW, "") {
        rig.slow_memory.remove(&path).unwrap();
    }
    let error = refused(options.clone());
    assert_says(
        &error,
        ErrorKind::TierUnavailable,
        &["slow directory is empty", SLOW, "nothing is lost", "mount"],
    );
    assert!(rig.files(SLOW, "").is_empty(), "nothing is left on the mount point");

    let elsewhere = Options { slow_dir: Some("/elsewhere".into()), ..options.clone() };
    assert_says(&refused(elsewhere), ErrorKind::TierUnavailable, &["does not exist", "/elsewhere", "mount"]);
    assert!(!rig.slow_memory.exists("/elsewhere".as_ref()).unwrap(), "nothing is made");

    for (path, bytes) in &tables {
        rig.write(path, bytes);
    }
    assert_says(&refused(options.clone()), ErrorKind::InvalidArgument, &["no IDENTITY", SLOW, "restore"]);
    rig.write("/slow/IDENTITY".as_ref(), &current);
    assert_filled(&Db::open(options).unwrap(), 'a', 200);
}

#[test]
fn options_that_make_no_sense_name_the_option_and_what_is_allowed() {
    let rig = Rig::new();
    type Change = fn(Options) -> Options;
    let cases: [(&str, Change); 8] = [
        ("memory", |o| o.memory(0)),
        ("memory", |o| o.memory(u64::MAX)),
        ("fast_capacity", |o| o.fast_capacity(0)),
        ("fast_capacity", |o| o.fast_capacity(u64::MAX)),
        ("slow_dir", |o| o.slow("/fast/inside").fast_capacity(1 << 20)),
        ("slow_capacity", |o| o.slow_capacity(1 << 30)),
        ("level_ratio", |o| o.advanced(|a| a.level_ratio = 0)),
        ("fast_capacity", |o| o.slow(SLOW)),
    ];
    for (name, change) in cases {
        let error = refused(change(rig.single()));
        assert_says(&error, ErrorKind::InvalidArgument, &[name]);
        assert!(error.to_string().contains("allowed is") && error.advised().is_some(), "{error}");
    }
    assert!(!rig.fast_memory.exists(FAST.as_ref()).unwrap(), "nothing was made");
}

#[test]
fn keys_of_no_byte_and_of_more_than_64_kib_are_refused_everywhere() {
    let rig = Rig::new();
    let db = Db::open(rig.single()).unwrap();
    let long = vec![b'k'; KEY_BYTES_MAX + 1];
    for bad in [&b""[..], &long] {
        let mut transaction = db.transaction();
        let outcomes = [
            db.put(bad, b"v"),
            db.delete(bad),
            db.get(bad).map(drop),
            db.snapshot().get(bad).map(drop),
            db.multi_get(&[bad]).remove(0).map(drop),
            db.compare_and_set(bad, None, Some(b"v")).map(drop),
            transaction.get(bad).map(drop),
            db.explain_key("default", bad).map(drop),
        ];
        for (index, outcome) in outcomes.into_iter().enumerate() {
            let error = outcome.expect_err(&format!("call {index} with {} bytes", bad.len()));
            assert_says(&error, ErrorKind::InvalidArgument, &["65536", &format!("{} bytes", bad.len())]);
        }
        transaction.put(bad, b"v");
        assert_eq!(transaction.commit().unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    assert_eq!(KEY_BYTES_MAX, 64 << 10);
    let longest = vec![b'k'; KEY_BYTES_MAX];
    db.put(&longest, b"v").unwrap();
    db.flush().unwrap();
    assert_eq!(db.get(&longest).unwrap().as_deref(), Some(&b"v"[..]));
    assert_eq!(db.stats().writes, 1, "what was refused was not counted");
}

#[test]
fn a_value_of_a_gibibyte_is_refused_without_being_copied() {
    let rig = Rig::new();
    let db = Db::open(rig.single()).unwrap();
    // Never touched, so the operating system gives it no memory.
    let value = vec![0; 1 << 30];
    let error = db.put(b"k", &value).unwrap_err();
    assert_says(
        &error,
        ErrorKind::InvalidArgument,
        &[&VALUE_BYTES_MAX.to_string(), &value.len().to_string()],
    );
    assert_eq!(db.get(b"k").unwrap(), None);
    db.put(b"k", b"small").unwrap();
}

#[test]
fn a_batch_that_names_no_keyspace_of_the_store_is_refused_whole() {
    let rig = Rig::new();
    let db = Db::open(rig.single()).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(db.id(), b"a", b"1").unwrap();
    batch.put(77, b"b", b"2").unwrap();
    let error = db.write(batch, &WriteOptions::default()).unwrap_err();
    assert_says(&error, ErrorKind::InvalidArgument, &["keyspace", "77"]);
    assert_eq!(db.get(b"a").unwrap(), None, "all or nothing");
}

#[test]
fn a_range_whose_start_lies_behind_its_end_is_refused_and_an_empty_one_does_nothing() {
    let rig = Rig::new();
    let db = Db::open(rig.single()).unwrap();
    fill(&db, 'a', 3);
    let error = db.delete_range(b"b", b"a").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    db.delete_range(b"a", b"a").unwrap();
    assert_filled(&db, 'a', 3);
}

#[test]
fn checking_a_directory_without_a_store_says_so() {
    let rig = Rig::new();
    rig.write("/fast/holiday.jpg".as_ref(), b"not ours");
    let error = kelvin_lsm::check::check(rig.single(), &mut |_, _| {}).unwrap_err();
    assert_says(&error, ErrorKind::InvalidArgument, &["no store", FAST]);
    let sound = Rig::new();
    assert!(check(sound.filled()).is_well());
}
