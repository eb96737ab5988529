//! What every storage must do, run against each of them.

#![expect(clippy::unwrap_used, reason = "test code: a failed step ends the test")]

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kelvin_base::ManualClock;
use kelvin_storage::deadline::Deadline;
use kelvin_storage::throttle::Limits;
use kelvin_storage::{
    AlignedBuf, CrashStorage, Create, DeadlineStorage, FaultStorage, IoMode, MemoryStorage, OsStorage,
    Storage, ThrottledStorage,
};

/// Runs `check` on every storage and both modes, each in an empty directory.
fn on_each(check: fn(&dyn Storage, &Path, IoMode)) {
    let memory = || Arc::new(MemoryStorage::new());
    let clock = || Arc::new(ManualClock::new(0));
    let limits = Limits { read_iops: Some(10), write_bandwidth: Some(1000), ..Limits::default() };
    for mode in [IoMode::Direct, IoMode::Buffered] {
        let storages: [Box<dyn Storage>; 6] = [
            Box::new(OsStorage::new()),
            Box::new(MemoryStorage::new()),
            Box::new(ThrottledStorage::new(memory(), limits, clock())),
            Box::new(FaultStorage::new(memory(), 1)),
            Box::new(CrashStorage::new()),
            Box::new(DeadlineStorage::new(memory(), Deadline::new(Duration::from_secs(600)), clock())),
        ];
        for storage in storages {
            let temporary = tempfile::tempdir().unwrap();
            let root = temporary.path().join("store/tier");
            storage.create_dir_all(&root).unwrap();
            check(&*storage, &root, mode);
        }
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from((i * 31 + i / 251) % 256).unwrap()).collect()
}

fn write(storage: &dyn Storage, path: &Path, mode: IoMode, bytes: &[u8]) -> io::Result<()> {
    let mut file = storage.create(path, Create::new(mode))?;
    file.append(bytes)?;
    file.sync()
}

fn read(storage: &dyn Storage, path: &Path, mode: IoMode, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut buf = AlignedBuf::new();
    let range = storage.open(path, mode)?.read_at(offset, len, &mut buf)?;
    Ok(buf.as_slice()[range].to_vec())
}

fn kind<T: std::fmt::Debug>(outcome: io::Result<T>) -> ErrorKind {
    outcome.unwrap_err().kind()
}

#[test]
fn what_was_appended_reads_back_at_any_offset() {
    on_each(|storage, root, mode| {
        let (path, bytes) = (root.join("a"), pattern(300_001));
        let mut file = storage.create(&path, Create::new(mode)).unwrap();
        for piece in bytes.chunks(7777) {
            file.append(piece).unwrap();
        }
        assert_eq!(file.len(), 300_001);
        file.sync().unwrap();
        let reader = storage.open(&path, mode).unwrap();
        assert_eq!((reader.len().unwrap(), storage.file_len(&path).unwrap()), (300_001, 300_001));
        let mut buf = AlignedBuf::new();
        for (offset, len) in
            [(0, 300_001), (0, 0), (1, 1), (4095, 2), (4096, 4096), (300_000, 1), (123_457, 99_999)]
        {
            let range = reader.read_at(u64::try_from(offset).unwrap(), len, &mut buf).unwrap();
            assert_eq!(&buf.as_slice()[range], &bytes[offset..offset + len], "{storage:?} {offset} {len}");
        }
    });
}

#[test]
fn a_read_past_the_end_is_an_unexpected_end() {
    on_each(|storage, root, mode| {
        let path = root.join("a");
        write(storage, &path, mode, &pattern(5000)).unwrap();
        for (offset, len) in [(0, 5001), (4999, 2), (5000, 1), (8192, 1), (1 << 40, 10), (1, 1 << 40)] {
            assert_eq!(
                kind(read(storage, &path, mode, offset, len)),
                ErrorKind::UnexpectedEof,
                "{offset} {len}"
            );
        }
    });
}

#[test]
fn flushed_bytes_are_seen_by_a_reader_opened_before() {
    on_each(|storage, root, mode| {
        let path = root.join("a");
        let mut file = storage.create(&path, Create::new(mode)).unwrap();
        let reader = storage.open(&path, mode).unwrap();
        assert!(reader.is_empty().unwrap() && file.is_empty());
        let mut buf = AlignedBuf::new();
        for round in 1..=5_u8 {
            file.append(&[round; 1000]).unwrap();
            file.flush().unwrap();
            assert_eq!(reader.len().unwrap(), u64::from(round) * 1000);
            let range = reader.read_at(u64::from(round) * 1000 - 1000, 1000, &mut buf).unwrap();
            assert!(buf.as_slice()[range].iter().all(|&byte| byte == round));
        }
    });
}

#[test]
fn creating_refuses_an_existing_file_unless_it_is_reused() {
    on_each(|storage, root, mode| {
        let path = root.join("a");
        write(storage, &path, mode, &[1; 10_000]).unwrap();
        assert_eq!(kind(storage.create(&path, Create::new(mode))), ErrorKind::AlreadyExists);
        let how = Create { reuse: true, preallocate_bytes: 20_000, ..Create::new(mode) };
        let mut file = storage.create(&path, how).unwrap();
        assert_eq!(file.len(), 0);
        file.append(&[2; 100]).unwrap();
        file.sync().unwrap();
        drop(file);
        let bytes = read(storage, &path, mode, 0, 10_000).unwrap();
        assert!(bytes[..100].iter().all(|&byte| byte == 2) && bytes[4096..].iter().all(|&byte| byte == 1));
        assert_eq!(storage.file_len(&path).unwrap(), 10_000);
        write(storage, &root.join("new"), mode, b"").unwrap();
        drop(storage.create(&root.join("absent"), how).unwrap());
        assert_eq!(storage.file_len(&root.join("absent")).unwrap(), 0);
    });
}

#[test]
fn names_are_listed_renamed_linked_and_removed() {
    on_each(|storage, root, mode| {
        for (name, bytes) in [("b", "bb"), ("a", "a"), ("c", "ccc")] {
            write(storage, &root.join(name), mode, bytes.as_bytes()).unwrap();
        }
        storage.create_dir_all(&root.join("d/e")).unwrap();
        storage.create_dir_all(&root.join("d/e")).unwrap();
        write(storage, &root.join("d/inner"), mode, b"").unwrap();
        let names = || -> Vec<String> {
            storage.list(root).unwrap().iter().map(|name| name.display().to_string()).collect()
        };
        assert_eq!(names(), ["a", "b", "c", "d"]);
        storage.rename(&root.join("c"), &root.join("a")).unwrap();
        assert_eq!(read(storage, &root.join("a"), mode, 0, 3).unwrap(), b"ccc");
        storage.hard_link(&root.join("a"), &root.join("z")).unwrap();
        assert_eq!(kind(storage.hard_link(&root.join("a"), &root.join("b"))), ErrorKind::AlreadyExists);
        storage.remove(&root.join("a")).unwrap();
        assert_eq!(names(), ["b", "d", "z"]);
        assert_eq!(read(storage, &root.join("z"), mode, 0, 3).unwrap(), b"ccc");
        assert!(storage.exists(&root.join("d")).unwrap() && !storage.exists(&root.join("a")).unwrap());
        storage.sync_dir(root).unwrap();
        assert!(storage.free_space(root).unwrap() > 0);
    });
}

#[test]
fn absent_files_and_directories_are_not_found() {
    on_each(|storage, root, mode| {
        let absent = root.join("absent");
        assert_eq!(kind(storage.open(&absent, mode)), ErrorKind::NotFound);
        assert_eq!(kind(storage.file_len(&absent)), ErrorKind::NotFound);
        assert_eq!(kind(storage.remove(&absent)), ErrorKind::NotFound);
        assert_eq!(kind(storage.rename(&absent, &root.join("x"))), ErrorKind::NotFound);
        assert_eq!(kind(storage.hard_link(&absent, &root.join("x"))), ErrorKind::NotFound);
        assert_eq!(kind(storage.list(&absent)), ErrorKind::NotFound);
        assert_eq!(kind(storage.sync_dir(&absent)), ErrorKind::NotFound);
        assert_eq!(kind(storage.create(&absent.join("x"), Create::new(mode))), ErrorKind::NotFound);
    });
}

#[test]
fn a_removed_file_stays_readable_through_an_open_handle() {
    on_each(|storage, root, mode| {
        let path = root.join("a");
        write(storage, &path, mode, b"abc").unwrap();
        let reader = storage.open(&path, mode).unwrap();
        storage.remove(&path).unwrap();
        write(storage, &path, mode, b"xyz").unwrap();
        let mut buf = AlignedBuf::new();
        let range = reader.read_at(0, 3, &mut buf).unwrap();
        assert_eq!(&buf.as_slice()[range], b"abc");
    });
}

#[test]
fn a_lock_is_held_by_one_until_it_is_dropped() {
    on_each(|storage, root, _mode| {
        let path = root.join("LOCK");
        let lock = storage.lock(&path).unwrap();
        assert_eq!(kind(storage.lock(&path)), ErrorKind::WouldBlock);
        drop(lock);
        drop(storage.lock(&path).unwrap());
    });
}
