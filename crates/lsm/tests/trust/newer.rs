//! A file of a newer format is refused by name, whichever kind it is, and nothing is changed.

use std::path::Path;

use kelvin_base::ErrorKind;
use kelvin_base::hash::{hash64_seeded, place_seed};
use kelvin_lsm::db::Db;
use kelvin_lsm::options::Options;

use crate::rig::{FAST, Rig, assert_filled, assert_says, refused};

const NEWER: u32 = 9;

/// Opens with the file at `path` changed, expects a refusal that names it, and opens again with the old bytes.
fn refuses_newer(rig: &Rig, options: Options, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let good = rig.read(path);
    rig.change(path, change);
    let before = rig.fingerprint();
    let error = refused(options.clone());
    assert_says(&error, ErrorKind::InvalidArgument, &["newer", &path.to_string_lossy(), "9"]);
    assert!(error.advised().is_some(), "{error}");
    assert_eq!(rig.fingerprint(), before, "nothing was changed");
    rig.write(path, &good);
    assert_filled(&Db::open(options).unwrap(), 'w', 50);
}

#[test]
fn a_newer_manifest_is_refused() {
    let rig = Rig::new();
    let options = rig.filled();
    let path = rig.files(FAST, ".manifest").pop().unwrap();
    refuses_newer(&rig, options, &path, |bytes| {
        let number: u64 = u64::from_le_bytes(bytes[12..20].try_into().unwrap());
        bytes[8..12].copy_from_slice(&NEWER.to_le_bytes());
        let check = hash64_seeded(place_seed(number, 0), &bytes[..36]);
        bytes[36..44].copy_from_slice(&check.to_le_bytes());
    });
}

#[test]
fn a_newer_log_is_refused() {
    let rig = Rig::new();
    let options = rig.filled();
    let path = rig.files(FAST, ".wal").pop().unwrap();
    refuses_newer(&rig, options, &path, |bytes| bytes[7] = 9);
}

#[test]
fn a_newer_identity_is_refused() {
    let rig = Rig::new();
    let options = rig.filled();
    refuses_newer(&rig, options, Path::new("/slow/IDENTITY"), |bytes| {
        bytes[8..12].copy_from_slice(&NEWER.to_le_bytes());
        let body = bytes.len() - 8;
        let check = hash64_seeded(u64::from_le_bytes(*b"KELVINID"), &bytes[..body]);
        bytes[body..].copy_from_slice(&check.to_le_bytes());
    });
}

#[test]
fn a_newer_table_fails_the_reads_that_need_it_and_no_others() {
    let rig = Rig::new();
    let options = rig.filled();
    let path = rig.slow_table();
    let good = rig.read(&path);
    // The footer ends: checksum, version, magic. A newer format has a checksum of its own.
    rig.change(&path, |bytes| {
        let at = bytes.len() - 12;
        bytes[at - 8..at].fill(9);
        bytes[at..at + 4].copy_from_slice(&NEWER.to_le_bytes());
    });
    let db = Db::open(options.clone()).unwrap();
    let error = db.get(b"a0000").unwrap_err();
    assert_says(&error, ErrorKind::InvalidArgument, &["newer", &path.to_string_lossy(), "nothing is lost"]);
    assert_filled(&db, 'f', 100);
    assert_filled(&db, 'w', 50);
    db.close().unwrap();
    rig.write(&path, &good);
    assert_filled(&Db::open(options).unwrap(), 'a', 200);
}
