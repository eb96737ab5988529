//! The life cycle of log files.

use std::sync::Arc;

use kelvin_storage::FaultStorage;
use kelvin_storage::fault::{ENOSPC, Effect, Op, Rule};

use crate::space::on_disk_bytes;

use super::*;
use crate::wal::files::LogFiles;

fn names(storage: &MemoryStorage) -> Vec<String> {
    let list = storage.list(dir()).unwrap();
    list.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
}

#[test]
fn released_logs_are_kept_up_to_the_limit_and_overwritten_by_new_ones() {
    let storage = storage();
    let files = LogFiles::open(Arc::new(storage.clone()), dir(), 0, 1).unwrap();
    for number in 1..=3 {
        let mut log = files.create(number).unwrap();
        append(&mut log, number * 10..=number * 10 + 9);
        log.sync().unwrap();
    }
    assert_eq!(files.numbers(), [1, 2, 3]);
    files.release(3).unwrap();
    assert_eq!(files.numbers(), [3]);
    assert_eq!(names(&storage), ["000001.wal", "000003.wal"], "one is kept, one is gone");
    let mut log = files.create(4).unwrap();
    append(&mut log, 40..=41);
    log.flush().unwrap();
    assert_eq!(names(&storage), ["000003.wal", "000004.wal"]);
    assert_eq!(sequences(&storage, 4), [40, 41], "and none of the older log's records");
    assert_eq!(sequences(&storage, 3).len(), 10, "needed logs are left alone");
}

#[test]
fn space_counts_what_is_written_allocated_and_kept() {
    let storage = storage();
    let files = LogFiles::open(Arc::new(storage.clone()), dir(), 10_000, 1).unwrap();
    assert_eq!(files.bytes(), 0);
    let mut log = files.create(1).unwrap();
    assert_eq!(files.bytes(), on_disk_bytes(10_000));
    log.append(1, batch(30_000).bytes()).unwrap();
    let written = on_disk_bytes(log.len());
    assert_eq!(files.bytes(), written);
    files.release(2).unwrap();
    assert_eq!(files.bytes(), written, "a kept file still takes its space");
}

#[test]
fn a_reopened_store_finds_its_logs_and_nothing_else() {
    let storage = storage();
    write_log(&storage, 12, 1..=3, true);
    replace_file(&storage, 3, b"spare");
    storage.create(Path::new("/wal/notes.txt"), Create::new(IoMode::Buffered)).unwrap();
    let files = LogFiles::open(Arc::new(storage.clone()), dir(), 0, 0).unwrap();
    assert_eq!(files.numbers(), [3, 12]);
    files.release(12).unwrap();
    assert_eq!(names(&storage), ["000012.wal", "notes.txt"]);
    files.release(12).unwrap();
}

#[test]
fn a_log_that_cannot_be_made_leaves_no_file_and_a_kept_one_stays_kept() {
    let storage = storage();
    let faults = Arc::new(FaultStorage::new(Arc::new(storage.clone()), 1));
    let files = LogFiles::open(faults.clone(), dir(), 0, 1).unwrap();
    for op in [Op::Create, Op::SyncDir] {
        faults.add(Rule::new(op, Effect::Error(ENOSPC)).times(1));
        assert!(files.create(1).is_err());
        assert_eq!((names(&storage).len(), files.bytes()), (0, 0), "{op:?}");
    }
    let mut log = files.create(2).unwrap();
    append(&mut log, 1..=100);
    log.flush().unwrap();
    files.release(3).unwrap();
    let kept = files.bytes();
    for (number, op) in [(4, Op::Rename), (5, Op::Create), (6, Op::SyncDir)] {
        faults.add(Rule::new(op, Effect::Error(ENOSPC)).times(1));
        assert!(files.create(number).is_err());
        assert_eq!((names(&storage).len(), files.bytes()), (1, kept), "{op:?}");
    }
    let mut log = files.create(7).unwrap();
    append(&mut log, 101..=102);
    log.flush().unwrap();
    assert_eq!(names(&storage), ["000007.wal"]);
    assert_eq!(sequences(&storage, 7), [101, 102]);
}

#[test]
fn the_base_of_a_discarded_log_is_that_of_the_next() {
    let storage = storage();
    let files = LogFiles::open(Arc::new(storage.clone()), dir(), 0, 0).unwrap();
    for (number, base) in [(1, 10), (2, 30), (3, 30)] {
        drop(files.create(number).unwrap());
        files.begins_behind(number, base);
    }
    files.discard(2);
    assert_eq!((files.base(1), files.base(2), files.base(4)), (Some(10), Some(30), None));
    assert_eq!(names(&storage), ["000001.wal", "000003.wal"]);
}
