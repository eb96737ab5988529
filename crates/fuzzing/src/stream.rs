//! Inputs that are several parts one behind the other, and files in memory made of them.
//!
//! Tests: every target that uses them, through `tests/corpus.rs`.

use std::path::Path;

use kelvin_base::coding::put_bytes;
use kelvin_storage::memory::MemoryStorage;
use kelvin_storage::{AlignedBuf, Create, IoMode, Storage};

/// The directory of fuzzed files.
pub(crate) const DIR: &str = "/fuzzed";

/// A file system in memory with an empty [`DIR`].
pub(crate) fn storage() -> MemoryStorage {
    let storage = MemoryStorage::new();
    storage.create_dir_all(Path::new(DIR)).expect("memory takes a directory");
    storage
}

/// Puts `bytes` into the file `name` of [`DIR`].
pub(crate) fn put_file(storage: &MemoryStorage, name: &str, bytes: &[u8]) {
    let path = Path::new(DIR).join(name);
    let mut file = storage.create(&path, Create::new(IoMode::Buffered)).expect("memory takes a file");
    file.append(bytes).and_then(|()| file.sync()).expect("memory takes bytes");
}

/// The bytes of the file `name` of [`DIR`].
pub(crate) fn get_file(storage: &MemoryStorage, name: &str) -> Vec<u8> {
    let path = Path::new(DIR).join(name);
    let file = storage.open(&path, IoMode::Buffered).expect("the file was written before");
    let len = usize::try_from(file.len().expect("memory knows a length")).expect("it fits in memory");
    let mut buf = AlignedBuf::new();
    let range = file.read_at(0, len, &mut buf).expect("memory is read");
    buf.as_slice()[range].to_vec()
}

/// Joins parts, each behind its length.
pub(crate) fn join(parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    parts.iter().for_each(|part| put_bytes(&mut out, part));
    out
}
