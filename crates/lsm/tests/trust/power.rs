//! Power losses at the moments where the crash test once found something missing: each defect by its own name.

use std::path::Path;
use std::sync::Arc;

use kelvin_base::{ManualClock, ManualExecutor};
use kelvin_lsm::db::{Db, WriteOptions};
use kelvin_lsm::options::{CompressionChoice, Durability, Env, Options};
use kelvin_lsm::wal::replay;
use kelvin_storage::crash::{CrashModel, CrashStorage, FileSystem};
use kelvin_storage::fault::{EIO, Effect, Op, Rule};
use kelvin_storage::{FaultStorage, Storage};

fn options(disk: &CrashStorage) -> Options {
    options_on(Arc::new(disk.clone()))
}

fn options_on(disk: Arc<dyn Storage>) -> Options {
    let env = Env {
        fast: Arc::clone(&disk),
        slow: disk,
        clock: Arc::new(ManualClock::new(1_000_000)),
        executor: Arc::new(ManualExecutor::new()),
        seed: 7,
    };
    Options::new("/fast").memory(1 << 20).compression(CompressionChoice::None).env(env)
}

fn sync() -> WriteOptions {
    WriteOptions { durability: Some(Durability::Sync), ttl: None }
}

fn has(db: &Db, keyspace: &str, key: &[u8]) -> bool {
    db.keyspaces().contains(&keyspace.to_string())
        && db.keyspace(keyspace).unwrap().get(key).unwrap().is_some()
}

#[test]
fn what_a_recovery_found_unsynced_survives_with_the_next_sync() {
    let disk = CrashStorage::new();
    let process = Arc::new(FaultStorage::new(Arc::new(disk.clone()), 1));
    let db = Db::open(options_on(process.clone())).unwrap();
    db.put(b"found", b"v").unwrap();
    // The process dies; what it wrote is in the system's memory only.
    process.away(EIO);
    drop(db);
    let db = Db::open(options(&disk)).unwrap();
    assert!(has(&db, "default", b"found"));
    db.put_with(b"built on it", b"v", &sync()).unwrap();
    let after = Db::open(options(&disk.crash_image(1, CrashModel::LOST))).unwrap();
    assert!(has(&after, "default", b"built on it") && has(&after, "default", b"found"));
}

#[test]
fn what_a_sync_found_in_a_spoilt_log_survives() {
    for durability in [Durability::Memory, Durability::Os] {
        let disk = CrashStorage::new();
        let process = Arc::new(FaultStorage::new(Arc::new(disk.clone()), 1));
        let db = Db::open(options_on(process.clone()).durability(durability)).unwrap();
        db.put(b"before", b"v").unwrap();
        process.add(Rule::new(Op::Append, Effect::Error(EIO)).on("*.wal").times(1));
        assert!(db.put_with(b"refused", b"v", &sync()).is_err());
        process.clear();
        db.sync().unwrap();
        let after = Db::open(options(&disk.crash_image(1, CrashModel::LOST))).unwrap();
        assert!(has(&after, "default", b"before") && !has(&after, "default", b"refused"));
        db.put_with(b"behind it", b"v", &sync()).unwrap();
        let after = Db::open(options(&disk.crash_image(2, CrashModel::LOST))).unwrap();
        assert!(["before", "behind it"].iter().all(|key| has(&after, "default", key.as_bytes())));
    }
}

#[test]
fn a_flushed_keyspace_does_not_survive_without_earlier_writes_of_another() {
    let disk = CrashStorage::new();
    let db = Db::open(options(&disk)).unwrap();
    let two = db.keyspace("two").unwrap();
    db.put(b"earlier", b"v").unwrap();
    two.put(b"later", b"v").unwrap();
    two.flush().unwrap();
    let after = Db::open(options(&disk.crash_image(1, CrashModel::LOST))).unwrap();
    assert!(has(&after, "two", b"later"), "a table is synced before its edit");
    assert!(has(&after, "default", b"earlier"), "and so are the logs of what came before");
}

#[test]
fn an_idle_keyspace_holds_no_log_back_and_keeps_its_records() {
    let disk = CrashStorage::new();
    let db = Db::open(options(&disk)).unwrap();
    let idle = db.keyspace("idle").unwrap();
    idle.put(b"once", b"v").unwrap();
    idle.flush().unwrap();
    let mut most = 0;
    for round in 0..20u32 {
        for number in 0..50u32 {
            db.put(format!("{round}-{number}").as_bytes(), &[b'v'; 400]).unwrap();
        }
        db.flush().unwrap();
        let names = disk.list("/fast".as_ref()).unwrap();
        most = most.max(names.iter().filter(|name| name.to_string_lossy().ends_with(".wal")).count());
    }
    assert!(most <= 5, "{most} logs");
    db.sync().unwrap();
    for model in [CrashModel::LOST, CrashModel::KEPT] {
        let after = Db::open(options(&disk.crash_image(1, model))).unwrap();
        assert!(has(&after, "idle", b"once") && has(&after, "default", b"19-49"));
    }
}

#[test]
fn a_close_makes_everything_durable_whatever_its_level() {
    let disk = CrashStorage::new();
    let db = Db::open(options(&disk)).unwrap();
    let memory = WriteOptions { durability: Some(Durability::Memory), ttl: None };
    db.put_with(b"memory", b"v", &memory).unwrap();
    db.put(b"os", b"v").unwrap();
    db.close().unwrap();
    let after = Db::open(options(&disk.crash_image(1, CrashModel::LOST))).unwrap();
    assert!(has(&after, "default", b"memory") && has(&after, "default", b"os"));
}

fn is_log(name: &Path) -> bool {
    name.extension().is_some_and(|extension| extension == "wal")
}

#[test]
fn openings_that_write_nothing_miss_no_log_behind_a_gap() {
    let disk = CrashStorage::new();
    let db = Db::open(options(&disk)).unwrap();
    db.put_with(b"synced", b"v", &sync()).unwrap();
    db.put(b"before", b"v").unwrap();
    // A memtable is full: it goes on in another log.
    let full = db.keyspace("full").unwrap();
    let logs = || disk.list(Path::new("/fast")).unwrap().iter().filter(|name| is_log(name)).count();
    for number in (0..u32::MAX).take_while(|_| logs() == 1) {
        full.put(&number.to_le_bytes(), &[b'v'; 400]).unwrap();
    }
    db.put(b"after", b"v").unwrap();
    let mut gaps = 0;
    for seed in 0..64 {
        let image = disk.crash_image(seed, CrashModel::chosen(FileSystem::Writeback));
        let logs = image.list(Path::new("/fast")).unwrap();
        let mut numbers: Vec<u64> =
            logs.iter().filter_map(|name| name.to_str()?.strip_suffix(".wal")?.parse().ok()).collect();
        numbers.sort_unstable();
        let replayed = replay(&image, Path::new("/fast"), &numbers, Some(0), &mut |_| Ok(())).unwrap();
        gaps += u64::from(!replayed.dropped.is_empty());
        for opening in 0..3 {
            let db = Db::open(options(&image)).unwrap_or_else(|error| panic!("opening {opening}: {error}"));
            assert!(has(&db, "default", b"synced"));
            assert!(has(&db, "default", b"before") || !has(&db, "default", b"after"), "a prefix");
            db.close().unwrap();
        }
    }
    assert!(gaps > 0, "the power loss took the end of one log and left the next");
}

#[test]
fn a_refused_write_is_never_there_without_what_was_acknowledged_after_it() {
    let at = |durability| WriteOptions { durability: Some(durability), ttl: None };
    for later in [Durability::Memory, Durability::Os, Durability::Sync] {
        let disk = CrashStorage::new();
        let process = Arc::new(FaultStorage::new(Arc::new(disk.clone()), 1));
        let db = Db::open(options_on(process.clone())).unwrap();
        let fails_once = |op| Rule::new(op, Effect::Error(EIO)).on("*.wal").times(1);
        db.put(b"earlier", b"v").unwrap();
        process.add(fails_once(Op::Flush));
        assert!(db.put(b"refused first", b"v").is_err());
        // The record is in a new file by now, but the one before it cannot be opened to be synced.
        process.add(fails_once(Op::Create).after(1));
        let refused = db.put_with(b"refused", b"v", &sync()).unwrap_err();
        assert!(refused.to_string().contains("open a log"), "{refused}");
        db.put_with(b"later", b"v", &at(later)).unwrap();
        assert!(!has(&db, "default", b"refused") && has(&db, "default", b"later"));
        let models = [CrashModel::KEPT, CrashModel::LOST, CrashModel::chosen(FileSystem::ReorderAll)];
        for seed in 0..90 {
            let image = disk.crash_image(seed, models[usize::try_from(seed).unwrap() % models.len()]);
            let after = Db::open(options(&image)).unwrap();
            let [refused, later_is] =
                [b"refused".as_slice(), b"later"].map(|key| has(&after, "default", key));
            assert!(later_is || !refused, "{later:?}, seed {seed}");
        }
    }
}
