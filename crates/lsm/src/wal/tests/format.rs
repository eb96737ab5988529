//! The bytes, and round trips at every awkward length.

use super::*;
use crate::wal::format::{BLOCK_BYTES, FRAGMENT_HEADER_BYTES, log_name, parse_log_name};

#[test]
fn the_bytes_never_change() {
    let storage = storage();
    let mut log = writer(&storage, 0x0102);
    let mut one = WriteBatch::new();
    one.put(0, b"k", b"v").unwrap();
    log.append(7, one.bytes()).unwrap();
    log.finish().unwrap();
    let bytes = read_file(&storage, 0x0102);
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let golden = [
        "4b454c5657414c01 0201000000000000 57507a2a8dca3ad7", // magic and version, number, checksum
        "222a9b2949a24657 1200 01 0700000000000000 01000000 0300016b0176", // full: sequence 7, a batch of one put
        "8b09ae129dcb5d7e 0800 05 3500000000000000",                       // sync mark: the first 53 bytes
        "f458a095f7527dc1 0000 06",                                        // end
    ];
    assert_eq!(hex.concat(), golden.concat().replace(' ', ""));
}

#[test]
fn records_of_every_awkward_length_come_back() {
    let storage = storage();
    let mut log = writer(&storage, 1);
    let around = |at: usize| at.saturating_sub(40)..at + 12;
    let lengths: Vec<usize> = (0..4)
        .chain(around(BLOCK_BYTES - FRAGMENT_HEADER_BYTES))
        .chain(around(2 * BLOCK_BYTES - 2 * FRAGMENT_HEADER_BYTES))
        .chain([100_000, 3 << 20])
        .collect();
    let mut expected = Vec::new();
    for (sequence, &length) in (1..).zip(&lengths) {
        let batch = batch(length);
        log.append(sequence, batch.bytes()).unwrap();
        expected.push((sequence, batch.bytes().to_vec()));
        if sequence % 3 == 0 {
            log.sync().unwrap();
        }
    }
    let len = log.len();
    log.finish().unwrap();
    let (records, tail, marked) = read(&storage, 1).unwrap();
    assert_eq!(tail, Tail::Clean);
    assert!(marked);
    assert_eq!(records.len(), expected.len());
    assert!(records == expected, "the same bytes");
    assert!(storage.file_len(&log_path(dir(), 1)).unwrap() > len, "the mark and the end are behind");
}

#[test]
fn a_log_ends_clean_at_every_place_of_a_block() {
    // Fill the block so that 0 to 60 bytes remain: too few for a header, for a mark, for a sequence number.
    for remain in 0..60 {
        let storage = storage();
        let mut log = writer(&storage, 1);
        let overhead = 24 + FRAGMENT_HEADER_BYTES + 8 + batch(30_000).bytes().len() - 30_000;
        log.append(1, batch(BLOCK_BYTES - overhead - remain).bytes()).unwrap();
        assert_eq!(log.len(), (BLOCK_BYTES - remain) as u64);
        log.sync().unwrap();
        append(&mut log, 2..=3);
        log.flush().unwrap();
        drop(log);
        let (records, tail, marked) = read(&storage, 1).unwrap();
        assert_eq!((records.len(), tail, marked), (3, Tail::Clean, true), "{remain} bytes remain");
    }
}

#[test]
fn an_append_out_of_order_or_without_a_batch_is_refused_and_harms_nothing() {
    let storage = storage();
    let mut log = writer(&storage, 1);
    append(&mut log, 5..=6);
    let told = log.append(8, batch(1).bytes()).unwrap_err().to_string();
    assert!(told.contains("expected 7, found 8"), "{told}");
    assert!(log.append(7, b"abc").is_err());
    append(&mut log, 7..=7);
    log.flush().unwrap();
    assert_eq!(sequences(&storage, 1), [5, 6, 7]);
}

#[test]
fn a_writer_that_met_an_error_refuses_everything_after_it() {
    let storage = MemoryStorage::with_capacity(1000);
    storage.create_dir_all(dir()).unwrap();
    let mut log = writer(&storage, 1);
    log.append(1, batch(5000).bytes()).unwrap();
    let error = log.flush().unwrap_err();
    assert_eq!(error.kind(), kelvin_base::ErrorKind::NoSpace);
    for again in [log.append(2, batch(1).bytes()), log.flush(), log.sync()] {
        assert_eq!(again.unwrap_err().to_string(), error.to_string());
    }
}

#[test]
fn what_a_full_disk_did_not_take_is_given_back_whole() {
    for lengths in [vec![5000], vec![10, 40_000, 100_000, 10], vec![1 << 20, 10, 20]] {
        let storage = storage();
        let mut log = writer(&storage, 1);
        append(&mut log, 1..=3);
        log.sync().unwrap();
        for (sequence, &length) in (4..).zip(&lengths) {
            log.append(sequence, batch(length).bytes()).unwrap();
        }
        let written = sequences(&storage, 1);
        storage.set_capacity(0);
        log.flush().unwrap_err();
        let left: Vec<_> = log.unwritten();
        let expected: Vec<_> = (4..)
            .zip(&lengths)
            .filter(|(sequence, _)| !written.contains(sequence))
            .map(|(sequence, &length)| (sequence, batch(length).bytes().to_vec()))
            .collect();
        assert!(!left.is_empty() && left == expected, "{lengths:?}");
    }
}

#[test]
fn only_exact_names_are_logs() {
    assert_eq!(log_name(7), "000007.wal");
    assert_eq!(parse_log_name(Path::new("/x/1234567.wal")), Some(1_234_567));
    for other in ["7.wal", "+00007.wal", "000007.tbl", "000007", "00000x.wal", ".wal"] {
        assert_eq!(parse_log_name(Path::new(other)), None, "{other}");
    }
}
