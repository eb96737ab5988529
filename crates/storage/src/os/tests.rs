//! Tests of the operating system's files; those all storages share are in `tests/conformance.rs`.

use super::*;

fn contents(storage: &OsStorage, path: &Path, mode: IoMode) -> Vec<u8> {
    let len = usize::try_from(storage.file_len(path).unwrap()).unwrap();
    let mut buf = AlignedBuf::new();
    let range = storage.open(path, mode).unwrap().read_at(0, len, &mut buf).unwrap();
    buf.as_slice()[range].to_vec()
}

#[test]
fn appends_between_flushes_of_odd_lengths_keep_length_and_bytes_exact() {
    let dir = tempfile::tempdir().unwrap();
    let storage = OsStorage::new();
    for mode in [IoMode::Direct, IoMode::Buffered] {
        let path = dir.path().join(format!("{mode:?}"));
        let mut file = storage.create(&path, Create::new(mode)).unwrap();
        let mut expected = Vec::new();
        for (index, count) in [1, 4095, 1, 4096, 70_000, 3, 2_500_000, 0, 8191].into_iter().enumerate() {
            let bytes: Vec<u8> = (0..count).map(|i| u8::try_from((i * 7 + index) % 251).unwrap()).collect();
            file.append(&bytes).unwrap();
            expected.extend_from_slice(&bytes);
            if index % 2 == 0 {
                file.flush().unwrap()
            } else {
                file.sync().unwrap()
            }
            assert_eq!(storage.file_len(&path).unwrap(), file.len());
        }
        assert_eq!(contents(&storage, &path, IoMode::Direct), expected);
        assert_eq!(contents(&storage, &path, IoMode::Buffered), expected);
    }
}

#[test]
fn a_file_system_without_direct_io_is_used_buffered_and_remembered() {
    let storage = OsStorage::new();
    storage.direct_refused.store(true, Ordering::Relaxed);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let mut file = storage.create(&path, Create::new(IoMode::Direct)).unwrap();
    file.append(b"abc").unwrap();
    file.flush().unwrap();
    assert!(storage.direct_refused());
    assert_eq!(contents(&storage, &path, IoMode::Direct), b"abc");
}

#[test]
fn a_transfer_refused_for_its_alignment_is_repeated_through_the_page_cache() {
    let storage = OsStorage::new();
    let dir = tempfile::tempdir().unwrap();
    let handle =
        storage.open_handle(&dir.path().join("a"), OFlags::RDWR | OFlags::CREATE, IoMode::Direct).unwrap();
    handle.direct.store(true, Ordering::Relaxed);
    let mut calls = 0;
    let answer = handle.transfer(|handle| {
        calls += 1;
        if handle.is_direct() { Err(Errno::INVAL.into()) } else { Ok(5) }
    });
    assert_eq!((answer.unwrap(), calls, storage.direct_refused()), (5, 2, true));
}

#[test]
fn preallocated_space_is_not_part_of_the_length() {
    let dir = tempfile::tempdir().unwrap();
    let storage = OsStorage::new();
    let path = dir.path().join("a");
    let how = Create { preallocate_bytes: 1 << 20, ..Create::new(IoMode::Direct) };
    let mut file = storage.create(&path, how).unwrap();
    assert_eq!(storage.file_len(&path).unwrap(), 0);
    file.append(b"abc").unwrap();
    file.sync().unwrap();
    drop(file);
    assert_eq!(contents(&storage, &path, IoMode::Direct), b"abc");
}

#[test]
fn a_recycled_file_keeps_its_length_and_its_old_bytes_behind_the_new_sector() {
    let dir = tempfile::tempdir().unwrap();
    let storage = OsStorage::new();
    for mode in [IoMode::Direct, IoMode::Buffered] {
        let path = dir.path().join(format!("{mode:?}"));
        let mut file = storage.create(&path, Create::new(mode)).unwrap();
        file.append(&[1; 10_000]).unwrap();
        file.sync().unwrap();
        drop(file);
        let mut file = storage.create(&path, Create { reuse: true, ..Create::new(mode) }).unwrap();
        file.append(&[2; 5000]).unwrap();
        file.flush().unwrap();
        let bytes = contents(&storage, &path, mode);
        assert_eq!(bytes.len(), 10_000);
        assert!(bytes[..5000].iter().all(|&byte| byte == 2));
        assert!(bytes[5000..8192].iter().all(|&byte| byte < 2));
        assert!(bytes[8192..].iter().all(|&byte| byte == 1));
    }
}

#[test]
fn a_read_of_an_absurd_length_fails_without_allocating() {
    let dir = tempfile::tempdir().unwrap();
    let storage = OsStorage::new();
    let path = dir.path().join("a");
    storage.create(&path, Create::new(IoMode::Buffered)).unwrap();
    let file = storage.open(&path, IoMode::Direct).unwrap();
    let mut buf = AlignedBuf::new();
    for len in [usize::MAX, 1 << 40] {
        let error = file.read_at(1, len, &mut buf).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
    assert_eq!(buf.capacity(), 0);
}

#[test]
fn free_space_is_reported() {
    assert!(OsStorage::new().free_space(Path::new("")).unwrap() > 0);
}
