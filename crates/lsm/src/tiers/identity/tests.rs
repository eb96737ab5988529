//! Tests of the identity file: its bytes, every refusal by name, and the raising of the epoch under power loss.

use std::path::Path;
use std::sync::Arc;

use kelvin_base::{ManualClock, Tier};
use kelvin_storage::crash::{CrashModel, FileSystem};
use kelvin_storage::{CrashStorage, MemoryStorage, Storage};

use super::*;

const FAST_DIR: &str = "/fast";

fn tier_of(tier: Tier, dir: &str, storage: Arc<dyn Storage>) -> TierHandle {
    TierHandle::new(tier, dir, storage, Arc::new(ManualClock::new(0)))
}

fn slow() -> TierHandle {
    let tier = tier_of(Tier::Slow, "/slow", Arc::new(MemoryStorage::new()));
    tier.create_dir_all().unwrap();
    tier
}

fn store(seed: u64) -> StoreId {
    StoreId::generate(seed, 1_000, Path::new(FAST_DIR))
}

fn at_epoch(epoch: u64) -> StoreId {
    StoreId { epoch, ..store(1) }
}

fn refusal(slow: &TierHandle, expected: StoreId) -> (ErrorKind, String) {
    let before = slow.list().ok();
    let error = check(slow, Path::new(FAST_DIR), expected).expect_err("must be refused");
    assert_eq!(slow.list().ok(), before, "a refusal changes nothing");
    let text = error.to_string();
    assert!(text.contains("/slow"), "names the directory: {text}");
    assert!(text.contains("; "), "says what to do: {text}");
    (error.kind(), text)
}

#[test]
fn the_bytes_are_those_of_the_document() {
    let id = StoreId { uuid: *b"0123456789abcdef", epoch: 0x0102 };
    let bytes = encode(&Identity { id, phase: Phase::Raising });
    assert_eq!(bytes.len(), FILE_BYTES);
    assert_eq!(&bytes[..8], b"KELVINID");
    assert_eq!(&bytes[8..16], [1, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(&bytes[16..32], b"0123456789abcdef");
    assert_eq!(&bytes[32..48], [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let seed = u64::from_le_bytes(*b"KELVINID");
    assert_eq!(&bytes[48..], hash64_seeded(seed, &bytes[..48]).to_le_bytes());
    assert_eq!(decode(Path::new("x"), &bytes).unwrap(), Identity { id, phase: Phase::Raising });
}

#[test]
fn every_flipped_bit_and_every_truncation_is_corruption() {
    let bytes = encode(&Identity { id: store(1), phase: Phase::Settled });
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(decode(Path::new("x"), &flipped).unwrap_err().kind(), ErrorKind::Corruption, "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert_eq!(decode(Path::new("x"), &bytes[..len]).unwrap_err().kind(), ErrorKind::Corruption, "{len}");
    }
    for longer in [FILE_BYTES + 1, FILE_BYTES_MAX, FILE_BYTES_MAX + 1] {
        let mut long = bytes.clone();
        long.resize(longer, 0);
        assert_eq!(decode(Path::new("x"), &long).unwrap_err().kind(), ErrorKind::Corruption, "{longer}");
    }
}

/// Valid checksums over `change`d bytes.
fn resealed(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = encode(&Identity { id: store(1), phase: Phase::Settled });
    bytes.truncate(FILE_BYTES - CHECKSUM_BYTES);
    change(&mut bytes);
    let checksum = hash64_seeded(CHECKSUM_SEED, &bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

#[test]
fn a_newer_format_is_refused_by_name_and_wrong_fields_are_corruption() {
    let newer = resealed(|bytes| {
        bytes[8] = 2;
        bytes.extend_from_slice(b"what later versions add");
    });
    let error = decode(Path::new("/slow/IDENTITY"), &newer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("newer Kelvin"), "{error}");
    for (at, value) in [(0, b'X'), (12, 2), (32, 0), (40, 1)] {
        let wrong = resealed(|bytes| bytes[at] = value);
        assert_eq!(decode(Path::new("x"), &wrong).unwrap_err().kind(), ErrorKind::Corruption, "byte {at}");
    }
}

#[test]
fn a_missing_or_empty_directory_is_a_disk_that_is_not_mounted() {
    let absent = tier_of(Tier::Slow, "/slow", Arc::new(MemoryStorage::new()));
    let (kind, text) = refusal(&absent, store(1));
    assert_eq!(kind, ErrorKind::TierUnavailable);
    assert!(text.contains("does not exist") && text.contains("nothing is lost"), "{text}");
    let (kind, text) = refusal(&slow(), store(1));
    assert_eq!(kind, ErrorKind::TierUnavailable);
    assert!(text.contains("is empty") && text.contains("mount the slow disk"), "{text}");
}

#[test]
fn a_directory_of_something_else_is_refused() {
    let slow = slow();
    slow.replace_small("holiday.jpg", b"x").unwrap();
    let (kind, text) = refusal(&slow, store(1));
    assert_eq!(kind, ErrorKind::InvalidArgument);
    assert!(text.contains("no store's"), "{text}");
}

#[test]
fn another_stores_directory_is_refused_with_both_names() {
    let slow = slow();
    settle(&slow, store(2)).unwrap();
    let (kind, text) = refusal(&slow, store(1));
    assert_eq!(kind, ErrorKind::InvalidArgument);
    assert!(text.contains("another store") && text.contains(&store(1).to_string()), "{text}");
    assert!(text.contains(&store(2).to_string()), "{text}");
}

#[test]
fn an_older_copy_on_either_side_is_told_apart() {
    let slow = slow();
    settle(&slow, at_epoch(5)).unwrap();
    assert!(check(&slow, Path::new(FAST_DIR), at_epoch(5)).is_ok());
    let (kind, text) = refusal(&slow, at_epoch(6));
    assert_eq!(kind, ErrorKind::InvalidArgument);
    assert!(text.contains("slow directory is an older copy"), "{text}");
    let (kind, text) = refusal(&slow, at_epoch(4));
    assert_eq!(kind, ErrorKind::InvalidArgument);
    assert!(text.contains("newer than the fast directory") && text.contains(FAST_DIR), "{text}");
}

#[test]
fn one_epoch_ahead_is_accepted_only_while_raising() {
    let slow = slow();
    raise(&slow, at_epoch(5)).unwrap();
    assert!(check(&slow, Path::new(FAST_DIR), at_epoch(4)).is_ok());
    assert!(check(&slow, Path::new(FAST_DIR), at_epoch(5)).is_ok());
    refusal(&slow, at_epoch(3));
    refusal(&slow, at_epoch(6));
}

#[test]
fn a_damaged_identity_file_is_corruption_and_loses_no_record() {
    let slow = slow();
    slow.replace_small(FILE_NAME, &[0; FILE_BYTES]).unwrap();
    let (kind, text) = refusal(&slow, store(1));
    assert_eq!(kind, ErrorKind::Corruption);
    assert!(text.contains("holds no records"), "{text}");
}

#[test]
fn a_new_store_claims_an_empty_directory_and_takes_over_an_unfinished_claim() {
    let slow = tier_of(Tier::Slow, "/mnt/slow", Arc::new(MemoryStorage::new()));
    claim(&slow, store(1)).unwrap();
    claim(&slow, store(2)).unwrap();
    assert_eq!(read(&slow).unwrap(), Identity { id: store(2), phase: Phase::Raising });
    settle(&slow, store(2)).unwrap();
    let error = claim(&slow, store(3)).unwrap_err();
    assert!(error.to_string().contains(&format!("already belongs to store {}", store(2))), "{error}");
}

#[test]
fn a_new_store_leaves_foreign_files_and_damaged_claims_alone() {
    let slow = slow();
    slow.replace_small("holiday.jpg", b"x").unwrap();
    let error = claim(&slow, store(1)).unwrap_err();
    assert!(error.to_string().contains("it holds holiday.jpg"), "{error}");
    assert!(!slow.exists(FILE_NAME).unwrap());
}

#[test]
fn different_seeds_times_and_directories_make_different_stores() {
    let ids = [
        store(1),
        store(2),
        StoreId::generate(1, 1_001, Path::new(FAST_DIR)),
        StoreId::generate(1, 1_000, Path::new("/other")),
    ];
    for (index, id) in ids.iter().enumerate() {
        assert!(ids[..index].iter().all(|other| other.uuid != id.uuid));
    }
    assert_eq!(store(1), store(1));
}

/// The manifest's part in the protocol: a file that holds the epoch.
fn manifest_epoch(fast: &TierHandle) -> Option<u64> {
    let bytes = fast.exists("EPOCH").unwrap().then(|| fast.read_small("EPOCH", 8).unwrap())?;
    coding::get_u64(&mut bytes.as_slice())
}

/// What an open for writing does to both sides, from whatever a crash left.
fn open(storage: &CrashStorage) -> StoreId {
    let fast = tier_of(Tier::Fast, FAST_DIR, Arc::new(storage.clone()));
    let slow = tier_of(Tier::Slow, "/slow", Arc::new(storage.clone()));
    let id = match manifest_epoch(&fast) {
        None => {
            fast.create_dir_all().unwrap();
            claim(&slow, store(1)).unwrap();
            store(1)
        }
        Some(epoch) => {
            check(&slow, Path::new(FAST_DIR), at_epoch(epoch)).unwrap();
            raise(&slow, at_epoch(epoch).raised()).unwrap();
            at_epoch(epoch).raised()
        }
    };
    fast.replace_small("EPOCH", &id.epoch.to_le_bytes()).unwrap();
    settle(&slow, id).unwrap();
    id
}

#[test]
fn every_power_loss_during_creation_and_opening_leaves_a_store_that_opens() {
    let storage = CrashStorage::new();
    for epoch in 1..=3 {
        assert_eq!(open(&storage).epoch, epoch);
    }
    let log = storage.log();
    let file_systems = [FileSystem::Ordered, FileSystem::Writeback, FileSystem::ReorderAll];
    assert!(log.points() > 20, "there is something to interrupt");
    for point in 0..=log.points() {
        for seed in 0..8 {
            for file_system in file_systems {
                let after = log.image(point, seed, CrashModel::chosen(file_system));
                let first = open(&after);
                assert_eq!(open(&after).epoch, first.epoch + 1, "point {point}, seed {seed}");
            }
        }
    }
}
