//! Cuts, flips, holes, zeros and recycled bytes: never a wrong record, and lost synced records are always reported.

use kelvin_base::ErrorKind;

use super::*;
use crate::wal::format::{BLOCK_BYTES, FILE_HEADER_BYTES};

/// Six records, synced behind the third; the length up to which that sync vouches.
fn sample() -> (MemoryStorage, Vec<u8>, usize) {
    let storage = storage();
    let mut log = writer(&storage, 9);
    append(&mut log, 1..=3);
    log.sync().unwrap();
    let synced = usize::try_from(log.synced_len()).unwrap();
    append(&mut log, 4..=6);
    log.flush().unwrap();
    let bytes = read_file(&storage, 9);
    (storage, bytes, synced)
}

#[test]
fn every_cut_leaves_a_prefix_and_is_no_corruption() {
    let (storage, bytes, _) = sample();
    let whole = read(&storage, 9).unwrap().0;
    let mut lengths = Vec::new();
    for cut in 0..bytes.len() {
        replace_file(&storage, 9, &bytes[..cut]);
        let (records, tail, _) = read(&storage, 9).unwrap();
        assert!(whole.starts_with(&records));
        if let Tail::Torn { offset, records_behind } = tail {
            assert!(offset <= cut as u64 && !records_behind);
        }
        lengths.push(records.len());
    }
    assert!(lengths.is_sorted(), "a longer cut never holds less");
    assert_eq!(lengths.last(), Some(&5));
}

#[test]
fn every_flip_in_synced_bytes_is_corruption_and_elsewhere_leaves_a_prefix() {
    let (storage, bytes, synced) = sample();
    let whole = read(&storage, 9).unwrap().0;
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            replace_file(&storage, 9, &flipped);
            match read(&storage, 9) {
                Ok((records, tail, _)) => {
                    assert!(at >= synced, "byte {at} was synced");
                    assert!(whole.starts_with(&records) && records.len() >= 3 && records.len() < whole.len());
                    assert_ne!(tail, Tail::Clean, "byte {at}");
                }
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    assert!(at < synced, "byte {at}: {error}");
                    assert_eq!(error.path(), Some(log_path(dir(), 9).as_path()));
                    assert!(error.at().unwrap() <= at as u64, "it names a place at or before the flip");
                }
                Err(error) => {
                    assert_eq!(
                        (error.kind(), at),
                        (ErrorKind::InvalidArgument, 7),
                        "only the version byte: {error}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_last_synced_records_are_vouched_for_by_the_mark_alone() {
    let storage = storage();
    let mut log = writer(&storage, 9);
    append(&mut log, 1..=3);
    log.sync().unwrap();
    let bytes = read_file(&storage, 9);
    let synced = usize::try_from(log.synced_len()).unwrap();
    drop(log);
    let whole = read(&storage, 9).unwrap();
    assert_eq!((whole.0.len(), whole.1, whole.2), (3, Tail::Clean, true));
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        replace_file(&storage, 9, &flipped);
        match read(&storage, 9) {
            Ok((records, tail, marked)) => {
                assert!(at >= synced, "byte {at} was synced");
                assert_eq!((&records, marked), (&whole.0, false), "with a damaged mark no record is lost");
                assert_eq!(tail, Tail::Torn { offset: synced as u64, records_behind: false });
            }
            Err(error) if at == 7 => assert_eq!(error.kind(), ErrorKind::InvalidArgument),
            Err(error) => {
                assert!(at < synced, "byte {at}: {error}");
                assert_eq!(error.kind(), ErrorKind::Corruption);
            }
        }
    }
    // A power loss before the mark is on disk leaves nothing to tell damage from an interrupted write by.
    let mut unmarked = bytes[..synced].to_vec();
    unmarked[synced - 5] ^= 0x10;
    replace_file(&storage, 9, &unmarked);
    let (records, tail, _) = read(&storage, 9).unwrap();
    assert_eq!(records, whole.0[..2]);
    assert!(matches!(tail, Tail::Torn { records_behind: false, .. }));
}

#[test]
fn a_mark_that_cannot_be_written_fails_the_next_write_and_not_the_sync() {
    let storage = storage();
    let mut log = writer(&storage, 9);
    append(&mut log, 1..=3);
    log.flush().unwrap();
    storage.set_capacity(0);
    log.sync().unwrap();
    assert!(log.has_failed() && log.unwritten().is_empty());
    assert_eq!(log.append(4, batch(1).bytes()).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(sequences(&storage, 9), [1, 2, 3]);
}

#[test]
fn a_hole_nobody_vouches_for_ends_the_log_and_says_that_records_lie_behind() {
    let (storage, mut bytes, synced) = sample();
    // The fourth record begins behind the mark; lose its bytes as an unsynced page may be lost.
    bytes[synced + 19 + 15] ^= 0xff;
    replace_file(&storage, 9, &bytes);
    let (records, tail, _) = read(&storage, 9).unwrap();
    assert_eq!(records.len(), 3);
    assert_eq!(tail, Tail::Torn { offset: (synced + 19) as u64, records_behind: true });
}

#[test]
fn whole_lost_blocks_are_judged_by_the_marks_behind_them() {
    for sync in [false, true] {
        let storage = storage();
        let mut log = writer(&storage, 9);
        for sequence in 1..=20 {
            log.append(sequence, batch(10_000).bytes()).unwrap();
        }
        if sync {
            log.sync().unwrap()
        } else {
            log.flush().unwrap()
        }
        append(&mut log, 21..=21);
        log.flush().unwrap();
        let mut bytes = read_file(&storage, 9);
        bytes[BLOCK_BYTES..2 * BLOCK_BYTES].fill(0);
        replace_file(&storage, 9, &bytes);
        match read(&storage, 9) {
            Err(error) => {
                assert!(sync);
                assert_eq!((error.kind(), error.at()), (ErrorKind::Corruption, Some(BLOCK_BYTES as u64)));
            }
            Ok((records, tail, _)) => {
                assert!(!sync);
                assert_eq!(records.len(), 3);
                assert!(matches!(tail, Tail::Torn { records_behind: true, .. }));
            }
        }
    }
}

#[test]
fn zeros_behind_the_records_are_a_clean_end() {
    let (storage, bytes, _) = sample();
    for zeros in [1, 11, 4096, 3 * BLOCK_BYTES] {
        let longer = [bytes.as_slice(), &vec![0; zeros]].concat();
        replace_file(&storage, 9, &longer);
        let (records, tail, _) = read(&storage, 9).unwrap();
        assert_eq!((records.len(), tail), (6, Tail::Clean));
    }
    for empty in [0, 1, FILE_HEADER_BYTES, BLOCK_BYTES] {
        replace_file(&storage, 9, &vec![0; empty]);
        assert_eq!(read(&storage, 9).unwrap(), (Vec::new(), Tail::Clean, false));
    }
}

#[test]
fn bytes_of_an_older_log_in_a_recycled_file_are_never_accepted() {
    let storage = storage();
    // The same records at the same offsets, and synced: only the log's number tells them apart.
    let mut old = writer(&storage, 3);
    append(&mut old, 1..=2000);
    old.sync().unwrap();
    append(&mut old, 2001..=2002);
    old.sync().unwrap();
    drop(old);
    let options = WalOptions { recycle: Some(3), preallocate_bytes: 0 };
    let mut log = WalWriter::create(&storage, dir(), 8, options).unwrap();
    assert!(!storage.exists(&log_path(dir(), 3)).unwrap(), "the file has the new name only");
    assert_eq!(read(&storage, 8).unwrap().0, [], "nothing of the new log is written yet");
    for round in 0..10 {
        append(&mut log, round * 100 + 1..=round * 100 + 100);
        log.flush().unwrap();
        let (records, tail, _) = read(&storage, 8).unwrap();
        assert_eq!(records.len() as u64, round * 100 + 100);
        assert_eq!(tail, Tail::Torn { offset: log.len(), records_behind: false });
    }
    log.finish().unwrap();
    let (records, tail, _) = read(&storage, 8).unwrap();
    assert_eq!((records.len(), tail), (1000, Tail::Clean), "a finished log says where it ends");
}

#[test]
fn a_block_at_another_place_of_the_same_log_is_not_accepted() {
    let storage = storage();
    let mut log = writer(&storage, 9);
    for sequence in 1..=12 {
        log.append(sequence, batch(BLOCK_BYTES - 11 - 8 - 4 - 8).bytes()).unwrap();
    }
    log.sync().unwrap();
    append(&mut log, 13..=13);
    log.flush().unwrap();
    let mut bytes = read_file(&storage, 9);
    bytes.copy_within(2 * BLOCK_BYTES..3 * BLOCK_BYTES, 4 * BLOCK_BYTES);
    replace_file(&storage, 9, &bytes);
    assert_eq!(read(&storage, 9).unwrap_err().kind(), ErrorKind::Corruption);
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let (storage, mut bytes, _) = sample();
    bytes[7] = 2;
    replace_file(&storage, 9, &bytes);
    let told = read(&storage, 9).unwrap_err().to_string();
    assert!(told.contains("a newer version of Kelvin wrote this log (/wal/000009.wal)"), "{told}");
    assert!(told.contains("expected format 1 to 1, found format 2"), "{told}");
}

#[test]
fn random_bytes_never_panic_and_give_no_record() {
    let storage = storage();
    let mut seed = 0x1234_5678_9abc_def0_u64;
    for _ in 0..30 {
        let bytes: Vec<u8> = (0..BLOCK_BYTES + 500)
            .map(|_| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                // Small numbers are frequent, so that lengths and kinds look real.
                if seed & 1 == 0 { seed.to_le_bytes()[3] % 8 } else { seed.to_le_bytes()[4] }
            })
            .collect();
        replace_file(&storage, 9, &bytes);
        assert_eq!(read(&storage, 9).unwrap().0, []);
    }
}
