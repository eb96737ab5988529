//! Tests of the write-ahead log: bytes, damage, replay over several logs, file life cycle.

mod damage;
mod files;
mod format;
mod replay;

use std::path::Path;

use kelvin_base::{Error, Result, Sequence};
use kelvin_storage::memory::MemoryStorage;
use kelvin_storage::{AlignedBuf, Create, IoMode, Storage};

use super::format::log_path;
use super::reader::{Tail, WalReader};
use super::writer::{WalOptions, WalWriter};
use crate::batch::WriteBatch;

const DIR: &str = "/wal";

fn storage() -> MemoryStorage {
    let storage = MemoryStorage::new();
    storage.create_dir_all(Path::new(DIR)).unwrap();
    storage
}

fn dir() -> &'static Path {
    Path::new(DIR)
}

/// A batch of one put, `bytes` long in all but a few bytes.
fn batch(bytes: usize) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(0, b"k", &vec![0x5a; bytes]).unwrap();
    batch
}

fn writer(storage: &MemoryStorage, number: u64) -> WalWriter {
    WalWriter::create(storage, dir(), number, WalOptions::default()).unwrap()
}

/// Appends one small record for each sequence number.
fn append(writer: &mut WalWriter, sequences: std::ops::RangeInclusive<u64>) {
    for sequence in sequences {
        writer.append(sequence, batch(20).bytes()).unwrap();
    }
}

/// Writes a log of small records, synced or only flushed.
fn write_log(storage: &MemoryStorage, number: u64, sequences: std::ops::RangeInclusive<u64>, sync: bool) {
    let mut writer = writer(storage, number);
    append(&mut writer, sequences);
    if sync { writer.sync().unwrap() } else { writer.flush().unwrap() }
}

fn read_file(storage: &MemoryStorage, number: u64) -> Vec<u8> {
    let path = log_path(dir(), number);
    let len = usize::try_from(storage.file_len(&path).unwrap()).unwrap();
    let mut buf = AlignedBuf::new();
    let file = storage.open(&path, IoMode::Buffered).unwrap();
    let range = file.read_at(0, len, &mut buf).unwrap();
    buf.as_slice()[range].to_vec()
}

fn replace_file(storage: &MemoryStorage, number: u64, bytes: &[u8]) {
    let path = log_path(dir(), number);
    if storage.exists(&path).unwrap() {
        storage.remove(&path).unwrap();
    }
    let mut file = storage.create(&path, Create::new(IoMode::Buffered)).unwrap();
    file.append(bytes).unwrap();
    file.sync().unwrap();
}

type Log = (Vec<(Sequence, Vec<u8>)>, Tail, bool);

/// The records of a log, its tail, and whether a mark was met.
fn read(storage: &MemoryStorage, number: u64) -> Result<Log> {
    let mut reader = WalReader::open(storage, dir(), number)?;
    let mut records = Vec::new();
    while let Some(record) = reader.next_record()? {
        records.push((record.first_sequence, record.batch.to_vec()));
    }
    let tail = reader.tail().ok_or_else(|| Error::invalid("a reader at its end knows its tail"))?;
    Ok((records, tail, reader.marked()))
}

fn sequences(storage: &MemoryStorage, number: u64) -> Vec<Sequence> {
    read(storage, number).unwrap().0.iter().map(|(sequence, _)| *sequence).collect()
}
