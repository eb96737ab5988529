//! Targets of the hot-key tracker's files: state, records and annotations by themselves, and a whole directory that a tracker opens
//! and works on.
//!
//! Tests: `tests/corpus.rs`.

use std::sync::Arc;

use kelvin_base::coding::{get_bytes, put_bytes};
use kelvin_base::key::{Kind, append_internal, trailer, user_key};
use kelvin_base::{Executor, HotTracker, KeyRange, Lane, ManualExecutor};
use kelvin_ralt::{Env, Ralt, fuzz};
use kelvin_storage::memory::MemoryStorage;
use kelvin_storage::{Create, IoMode, Storage};
use kelvin_table::{TableOptions, TableWriter};

use crate::stream::{DIR, get_file, join, put_file, storage};

/// Runs of a fuzzed directory.
const RUNS_MAX: u64 = 4;
/// Records of a fuzzed run.
const RECORDS_MAX: usize = 64;
/// Accesses that are made to what was opened: enough for a flush.
const ACCESSES: usize = 600;

/// A state file with these bytes, one with them behind a good head and before a good checksum, a record, an annotation.
pub(crate) fn parts(data: &[u8]) -> bool {
    let taken = [
        fuzz::state(data),
        fuzz::state(&fuzz::signed_state(data)),
        fuzz::record(data),
        fuzz::annotation(data),
    ];
    taken.contains(&true)
}

/// Jobs wait in `executor`: those that are left hold the tracker.
fn open(storage: &MemoryStorage, executor: &Arc<ManualExecutor>) -> Ralt {
    let executor: Arc<dyn Executor> = Arc::<ManualExecutor>::clone(executor);
    let env = Env {
        storage: Arc::new(storage.clone()),
        dir: DIR.into(),
        io: IoMode::Buffered,
        executor,
        lane: Lane::Tracking,
        memory: None,
        evicted: None,
    };
    Ralt::open(env, fuzz::options())
}

/// A table under good checksums: an annotation, then keys and stored values in turn.
fn put_run(storage: &MemoryStorage, number: u64, mut data: &[u8]) -> Option<()> {
    let input = &mut data;
    let annotation = get_bytes(input)?.to_vec();
    let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    while let (Some(key), Some(stored)) = (get_bytes(input), get_bytes(input)) {
        if entries.len() < RECORDS_MAX && !key.is_empty() {
            let mut internal = Vec::new();
            append_internal(&mut internal, key, trailer(0, Kind::Value as u8));
            entries.push((internal, stored.to_vec()));
        }
    }
    entries.sort_by(|a, b| user_key(&a.0).cmp(user_key(&b.0)));
    entries.dedup_by(|a, b| user_key(&a.0) == user_key(&b.0));
    let path = std::path::Path::new(DIR).join(format!("{number:06}.ralt"));
    let file = storage.create(&path, Create::new(IoMode::Buffered)).ok()?;
    let mut writer = TableWriter::new(file, &path, number, TableOptions::default());
    for (key, stored) in &entries {
        writer.add(key, stored).ok()?;
    }
    writer.annotate(annotation);
    writer.finish().ok().map(drop)
}

/// The body of a state file and up to four runs. Opened, asked, worked on, closed, opened again; true if it was gone on with.
pub(crate) fn directory(mut data: &[u8]) -> bool {
    let storage = storage();
    let input = &mut data;
    put_file(&storage, "STATE", &fuzz::signed_state(get_bytes(input).unwrap_or_default()));
    for number in 1..=RUNS_MAX {
        if let Some(run) = get_bytes(input) {
            // What is no run is a file with those bytes.
            if put_run(&storage, number, run).is_none() {
                put_file(&storage, &format!("{:06}.ralt", number + RUNS_MAX), run);
            }
        }
    }
    let executor = Arc::new(ManualExecutor::new());
    let ralt = open(&storage, &executor);
    let is_taken = ralt.stats().resets == 0;
    for round in 0..2 {
        let mut hot = ralt.hot_keys(KeyRange::ALL);
        let mut known = Vec::new();
        while let Some(key) = hot.next() {
            known.push(key.to_vec());
        }
        drop(hot);
        assert!(known.is_sorted(), "hot keys come in order");
        for key in known.iter().map(Vec::as_slice).chain([&b"a"[..], b"user1", b"zzz"]) {
            let _either = (ralt.is_hot(key), ralt.heat(key), ralt.hot_size(KeyRange::closed(b"b", key)));
        }
        for number in 0..ACCESSES {
            ralt.access(format!("user{:03}", number % 200).as_bytes(), 1000 * (round + 1));
        }
        ralt.settle();
        // A state that is believed may say that nothing is hot.
        assert!(is_taken || ralt.is_hot(b"user001"), "what was accessed just now is hot");
        let _any = ralt.stats();
    }
    ralt.forget(KeyRange::closed(b"user0", b"user2"));
    ralt.settle();
    ralt.close();
    drop(ralt);
    let again = open(&storage, &executor);
    assert!(is_taken || again.stats().resets == 0, "what it wrote itself is sound");
    executor.discard();
    is_taken
}

/// Valid directories and parts.
pub(crate) fn seeds() -> Vec<(&'static str, String, Vec<u8>)> {
    let (storage, executor) = (storage(), Arc::new(ManualExecutor::new()));
    let ralt = open(&storage, &executor);
    for number in 0..40 {
        ralt.access(format!("user{:03}", number % 30).as_bytes(), 100);
    }
    ralt.settle();
    ralt.close();
    executor.discard();
    let state = get_file(&storage, "STATE");
    let run = get_file(&storage, "000001.ralt");
    let body = state[8 + 4 + 16..state.len() - 8].to_vec();
    let mut seeds = vec![
        ("ralt_parts", "state".to_string(), state),
        ("ralt_parts", "state-body".to_string(), body),
        ("ralt_parts", "record".to_string(), record()),
        ("ralt_parts", "annotation".to_string(), vec![0; 6]),
    ];
    // A state without runs, and beside it a run that nobody names.
    let empty = self::storage();
    open(&empty, &executor).close();
    executor.discard();
    let state = get_file(&empty, "STATE");
    let body = &state[8 + 4 + 16..state.len() - 8];
    let mut entries = Vec::new();
    put_bytes(&mut entries, &[0; 6]);
    for number in 0..5 {
        put_bytes(&mut entries, format!("user{number}").as_bytes());
        put_bytes(&mut entries, &record());
    }
    seeds.push(("ralt", "empty".to_string(), join(&[body])));
    seeds.push(("ralt", "stray".to_string(), join(&[body, &entries, &run])));
    seeds.push(("ralt", "named".to_string(), named()));
    seeds
}

/// A record of one access to a value of 100 bytes in slice and round 0: counter 2.6, score 1.
fn record() -> Vec<u8> {
    [&[100, 0, 0, 26], &1.0_f64.to_bits().to_be_bytes()[..6]].concat()
}

/// A state that names a run as [`put_run`] lays it out.
fn named() -> Vec<u8> {
    let mut run = Vec::new();
    // Two records of 105 bytes, hot both, in one block.
    put_bytes(&mut run, &[2, 210, 1, 66, 2, 210, 1, 1, 0]);
    for key in [b"user1", b"user2"] {
        put_bytes(&mut run, key);
        put_bytes(&mut run, &record());
    }
    let laid_out = storage();
    put_run(&laid_out, 1, &run).expect("a run of two records");
    let file_bytes = get_file(&laid_out, "000001.ralt").len() as u64;
    let mut body = vec![1];
    body.extend_from_slice(&0.999_f64.to_bits().to_le_bytes());
    body.extend_from_slice(&0.0_f64.to_bits().to_le_bytes());
    for number in [210_u64, 0, 2, 0, 0, 500_000, 150_000, 1] {
        kelvin_base::coding::put_varint(&mut body, number);
    }
    for runs in [1, 0, 0, 0, 0, 0, 0] {
        kelvin_base::coding::put_varint(&mut body, runs);
        if runs > 0 {
            kelvin_base::coding::put_varint(&mut body, 1);
            kelvin_base::coding::put_varint(&mut body, file_bytes);
            put_bytes(&mut body, &[]);
        }
    }
    join(&[&body, &run])
}
