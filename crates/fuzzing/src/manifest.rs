//! Targets of the manifest, its edits, and the file that names it.
//!
//! What is accepted is written anew and must say the same. Tests: `tests/corpus.rs`.

use std::path::Path;

use kelvin_base::coding::get_bytes;
use kelvin_base::{ErrorKind, Result};
use kelvin_lsm::version::{
    CURRENT, Edit, Recorded, current_line, manifest_name, read_recorded, sign_manifest, write_recorded,
};
use kelvin_storage::Storage;
use kelvin_storage::memory::MemoryStorage;

use crate::stream::{DIR, put_file, storage};

/// The number that fuzzed manifests go by.
pub(crate) const NUMBER: u64 = 3;
/// The store they belong to.
pub(crate) const UUID: [u8; 16] = *b"a store's number";

/// One edit with these bytes, applied to an empty store.
pub(crate) fn edit(data: &[u8]) -> bool {
    let Ok(edit) = Edit::decode(data) else { return false };
    let mut bytes = Vec::new();
    edit.encode(&mut bytes);
    assert_eq!(Edit::decode(&bytes).expect("what was encoded decodes"), edit);
    drop(edit.keyspaces());
    let mut recorded = Recorded::default();
    if recorded.apply(&edit).is_err() {
        return false;
    }
    let mut again = Recorded::default();
    again.apply(&recorded.snapshot()).expect("a snapshot applies to an empty store");
    assert_eq!(again, recorded);
    true
}

/// A manifest with these bytes.
pub(crate) fn plain(data: &[u8]) -> bool {
    let storage = storage();
    put_manifest(&storage, data);
    read(&storage)
}

/// A manifest of edits, each behind its length, under good checksums.
pub(crate) fn signed(data: &[u8]) -> bool {
    let storage = storage();
    put_manifest(&storage, &sign(data));
    read(&storage)
}

/// These bytes as the file that names the manifest.
pub(crate) fn current(data: &[u8]) -> bool {
    let storage = storage();
    put_file(&storage, &manifest_name(NUMBER), &sign(&crate::seeds::edits()));
    put_file(&storage, CURRENT, data);
    read(&storage)
}

/// The manifest that [`signed`] reads.
pub(crate) fn sign(mut input: &[u8]) -> Vec<u8> {
    let mut edits = Vec::new();
    while let Some(edit) = get_bytes(&mut input) {
        edits.push(edit);
    }
    sign_manifest(NUMBER, UUID, &edits).expect("an input is smaller than 4 GiB")
}

/// Puts the manifest and the file that names it into `storage`.
pub(crate) fn put_manifest(storage: &MemoryStorage, bytes: &[u8]) {
    put_file(storage, &manifest_name(NUMBER), bytes);
    put_file(storage, CURRENT, current_line(NUMBER).as_bytes());
}

fn read(storage: &MemoryStorage) -> bool {
    let Some(recorded) = checked(read_recorded(storage, Path::new(DIR))) else { return false };
    let copy = Path::new("/copy");
    storage.create_dir_all(copy).expect("memory takes a directory");
    write_recorded(storage, copy, &recorded).expect("memory takes a manifest");
    let again = read_recorded(storage, copy).expect("a new manifest is read").expect("it is there");
    assert_eq!((&again.keyspaces, again.store), (&recorded.keyspaces, recorded.store));
    assert_eq!((again.last_sequence, again.next_keyspace), (recorded.last_sequence, recorded.next_keyspace));
    true
}

/// What was recorded; an error is one of those that wrong bytes may give.
fn checked(outcome: Result<Option<Recorded>>) -> Option<Recorded> {
    outcome.unwrap_or_else(|error| {
        assert!(
            matches!(error.kind(), ErrorKind::Corruption | ErrorKind::InvalidArgument | ErrorKind::Io),
            "{error}"
        );
        None
    })
}
