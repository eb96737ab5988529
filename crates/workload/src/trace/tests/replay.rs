//! Replays: a store ends up with what the naive way leaves, whatever the threads; a store that answers wrongly is found.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kelvin_base::hash::hash64;
use kelvin_base::{ErrorKind, OrderedStore, PointStore, Result, SystemClock};
use parking_lot::Mutex;

use super::naive::{Naive, naive};
use super::prepare::options;
use super::*;
use crate::options::{BenchOptions, DeviceLimits, System};
use crate::runner::NoProgress;
use crate::subject::{Counters, MemorySubject, Subject};
use crate::trace::replay::{options_for, replay_on};
use crate::trace::steps::{Content, PARTITIONS};
use crate::trace::turns::Turns;
use crate::trace::values::Values;
use crate::trace::{Prepared, Rules, Semantics, Synthetic, prepare, replay, write_synthetic};

fn bench(threads: usize) -> BenchOptions {
    BenchOptions { threads, ..BenchOptions::new(System::FastOnly, "/nonexistent-bench") }
}

/// The records of a store, by key.
fn records(store: &dyn OrderedStore) -> BTreeMap<Vec<u8>, Bytes> {
    let mut records = BTreeMap::new();
    let mut each = |key: &[u8], value: &[u8]| {
        records.insert(key.to_vec(), Bytes::copy_from_slice(value));
        true
    };
    store.scan(b"", usize::MAX, &mut each).unwrap();
    records
}

fn assert_left(store: &dyn OrderedStore, naive: &Naive, seed: u64) {
    let (values, mut value) = (Values::new(seed), Vec::new());
    let mut expected = BTreeMap::new();
    for (key, content) in &naive.left {
        values.fill(hash64(key), *content, &mut value);
        expected.insert(key.clone(), Bytes::copy_from_slice(&value));
    }
    let found = records(store);
    assert!(found == expected, "{} records, {} expected, or other values", found.len(), expected.len());
}

#[test]
fn a_replay_leaves_what_the_naive_way_leaves_for_any_number_of_threads() {
    for (seed, semantics) in [(1, Semantics::Inserts), (2, Semantics::Memcached), (3, Semantics::Memcached)] {
        let lines = random_lines(seed, 4_000, 90);
        let rules = Rules { semantics, expire: seed == 3 };
        let dir = tempfile::tempdir().unwrap();
        let wanted = options(Some(40_000), Some(6_000), rules);
        let trace = prepare(&trace(dir.path(), &lines), &wanted, dir.path(), &mut NoProgress).unwrap();
        let naive = naive(&lines, wanted.data, wanted.ops, rules);
        assert!(naive.copies > 1 && naive.steps.len() == 6_000);
        for threads in [1, 4] {
            let subject = MemorySubject::new();
            let clock = SystemClock::new();
            let report = replay_on(&bench(threads), &trace, &subject, &clock, &mut NoProgress).unwrap();
            assert_left(&subject, &naive, 1);
            assert_eq!(report.ops, 6_000);
            let count = |name: &str| {
                let times = report.latency.iter().find(|one| one.operation == name);
                times.map_or(0, |one| one.count)
            };
            let classes = naive.classes;
            assert_eq!(count("delete"), classes.deletes);
            // A write that finds that it may not is a read of the store.
            assert_eq!(
                count("read") + count("update") + count("insert") + count("modify"),
                6_000 - classes.deletes
            );
            assert!(count("read") >= classes.reads);
        }
    }
}

/// A map that answers one request, counted from 1, as `how` says.
struct Wrong {
    inner: MemorySubject,
    requests: AtomicU64,
    at: u64,
    how: How,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    ForgetPut,
    ForgetDelete,
    Lose,
    Flip,
    Invent,
}

impl Wrong {
    fn is_now(&self, how: How) -> bool {
        self.how == how && self.requests.fetch_add(1, Ordering::Relaxed) + 1 == self.at
    }
}

impl PointStore for Wrong {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let value = self.inner.get(key)?;
        Ok(match value {
            Some(_) if self.is_now(How::Lose) => None,
            Some(value) if self.is_now(How::Flip) => {
                let mut bytes = value.to_vec();
                bytes.push(1);
                Some(bytes.into())
            }
            None if self.is_now(How::Invent) => Some(Bytes::new()),
            value => value,
        })
    }
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        // Only an overwriting put: the record is then stale and not missing.
        let is_forgotten = self.inner.get(key)?.is_some() && self.is_now(How::ForgetPut);
        if is_forgotten { Ok(()) } else { self.inner.put(key, value) }
    }
    fn delete(&self, key: &[u8]) -> Result<()> {
        let is_forgotten = self.inner.get(key)?.is_some() && self.is_now(How::ForgetDelete);
        if is_forgotten { Ok(()) } else { self.inner.delete(key) }
    }
    fn update(&self, key: &[u8], change: &mut dyn FnMut(Option<&[u8]>) -> Option<Vec<u8>>) -> Result<()> {
        self.inner.update(key, change)
    }
}

impl OrderedStore for Wrong {
    fn scan(&self, start: &[u8], limit: usize, each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.inner.scan(start, limit, each)
    }
}

impl Subject for Wrong {
    fn store(&self) -> &dyn OrderedStore {
        self
    }
    fn counters(&self) -> Counters {
        Counters::default()
    }
    fn settle(&self) -> Result<()> {
        Ok(())
    }
}

fn prepared(lines: &[Line], dir: &Path) -> Prepared {
    prepare(&trace(dir, lines), &options(None, Some(1_500), Rules::default()), dir, &mut NoProgress).unwrap()
}

#[test]
fn a_store_that_answers_wrongly_once_fails_the_replay() {
    // Each key is read after whatever is done to it, so nothing wrong can stay unseen.
    let mut lines = Vec::new();
    for line in random_lines(5, 1_500, 40) {
        let read = Line { kind: Kind::Get, value_size: 50, ..line.clone() };
        let written = Line { value_size: line.value_size.max(40), ..line };
        lines.extend([written, read]);
    }
    let dir = tempfile::tempdir().unwrap();
    let trace = prepared(&lines, dir.path());
    for (how, words) in [
        (How::ForgetPut, "wrong value"),
        (How::ForgetDelete, "a record that is not there"),
        (How::Lose, "lost a record"),
        (How::Flip, "wrong value"),
        (How::Invent, "a record that is not there"),
    ] {
        for threads in [1, 3] {
            let subject = Wrong { inner: MemorySubject::new(), requests: AtomicU64::new(0), at: 20, how };
            let error = replay_on(&bench(threads), &trace, &subject, &SystemClock::new(), &mut NoProgress)
                .expect_err(&format!("{how:?} was not seen"));
            assert!(
                error.kind() == ErrorKind::Corruption && error.what().contains(words),
                "{how:?}: {error}"
            );
        }
    }
}

#[test]
fn a_real_store_over_two_tiers_ends_with_what_the_naive_way_leaves() {
    let lines = random_lines(8, 6_000, 3_000);
    let dir = tempfile::tempdir().unwrap();
    let rules = Rules { semantics: Semantics::Memcached, expire: false };
    let wanted = options(Some(3_000_000), Some(5_000), rules);
    let trace = prepare(&trace(dir.path(), &lines), &wanted, dir.path(), &mut NoProgress).unwrap();
    let naive = naive_without_classes(&lines, &wanted);
    for system in [System::Kelvin, System::Fat] {
        let options = BenchOptions {
            threads: 3,
            slow: Some(dir.path().join("slow")),
            fast_capacity: Some(1 << 20),
            memory: 8 << 20,
            limits: DeviceLimits { slow_read_iops: Some(20_000), ..DeviceLimits::default() },
            ..BenchOptions::new(system, dir.path().join("fast"))
        };
        let options = options_for(&options, &trace);
        [Some(options.fast_dir()), options.slow_dir()]
            .iter()
            .flatten()
            .for_each(|dir| crate::dirs::make_fresh(dir).unwrap());
        let subject = crate::systems::open(&options).unwrap();
        let report = replay_on(&options, &trace, &*subject, &SystemClock::new(), &mut NoProgress).unwrap();
        assert!(report.slow_used_bytes > 1 << 20, "{system}: the slow tier is used");
        assert!(report.whole.hit_rate.is_some_and(|rate| rate < 1.0), "{system}: and read");
        assert_left(subject.store(), &naive, options.seed);
    }
}

/// What is left at the end; the naive classes would take their time.
fn naive_without_classes(lines: &[Line], wanted: &crate::trace::PrepareOptions) -> Naive {
    naive(lines, wanted.data, wanted.ops, wanted.rules)
}

#[test]
fn a_report_tells_of_the_trace_for_people_and_for_machines() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("made.csv.zst");
    let order = Synthetic { data: 600_000, ops: Some(3_000), value_size: 160, ..Synthetic::default() };
    write_synthetic(&path, &order, false).unwrap();
    let files = TraceFiles::new(&[path], MalformedLines::Refuse).unwrap();
    let wanted = options(None, Some(3_000), Rules::default());
    let trace = prepare(&files, &wanted, dir.path(), &mut NoProgress).unwrap();
    let bench = BenchOptions { threads: 2, ..BenchOptions::new(System::FastOnly, dir.path().join("fast")) };
    let report = replay(&bench, &trace, &mut NoProgress).unwrap();
    let json = report.to_json();
    for key in "category read_share sunk_share hot_share sunk_and_hot_share reads empty_reads reads_of_sunk \
         reads_of_hot writes deletes name semantics expire requests run_from_request keys copies data_bytes \
         load_records load_bytes run_ops malformed_lines_left_out"
        .split_whitespace()
    {
        assert!(json["trace"].get(key).is_some(), "{key}: {json:#}");
    }
    assert_eq!((&json["workload"], &json["keys"]), (&"trace".into(), &"made.csv.zst".into()));
    assert_eq!((&json["ops"], &json["best_possible_hit_rate"]), (&3_000.into(), &serde_json::Value::Null));
    assert_eq!(json["records"], json["trace"]["load_records"]);
    let table = report.table();
    for words in ["made.csv.zst", "read-heavy", "of sunk records", "operations/s", "best possible unknown"] {
        assert!(table.contains(words), "{words}: {table}");
    }
    let again = BenchOptions { reuse: true, ..bench };
    assert!(replay(&again, &trace, &mut NoProgress).unwrap_err().to_string().contains("leave --reuse out"));
}

#[test]
fn segments_of_a_partition_follow_each_other_and_nobody_waits_for_one_who_gave_up() {
    let (turns, next, log) = (Turns::new(), AtomicU64::new(0), Mutex::new(Vec::new()));
    let segments = PARTITIONS as u64 * 20;
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                loop {
                    let segment = next.fetch_add(1, Ordering::Relaxed);
                    if segment >= segments {
                        return;
                    }
                    let turn = turns.begin(segment).unwrap();
                    log.lock().push((segment, true));
                    std::thread::yield_now();
                    log.lock().push((segment, false));
                    turn.end();
                }
            });
        }
    });
    let log = log.into_inner();
    assert_eq!(log.len() as u64, 2 * segments);
    for partition in 0..PARTITIONS as u64 {
        let own: Vec<(u64, bool)> =
            log.iter().copied().filter(|(segment, _)| segment % PARTITIONS as u64 == partition).collect();
        let in_order: Vec<(u64, bool)> = (0..20)
            .flat_map(|lap| [true, false].map(|begins| (lap * PARTITIONS as u64 + partition, begins)))
            .collect();
        assert_eq!(own, in_order, "partition {partition}");
    }
    // Segment n of a partition is held; whoever waits behind it goes home when its holder gives up.
    let turns = Turns::new();
    let held = turns.begin(3).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| turns.begin(3 + PARTITIONS as u64).is_none());
        drop(held);
        assert!(waiting.join().unwrap());
    });
    assert!(turns.begin(4).is_none());
}

#[test]
fn a_content_of_no_bytes_is_a_value_and_no_absence() {
    let lines: Vec<Line> = [Kind::Set, Kind::Get]
        .into_iter()
        .map(|kind| Line { timestamp: 0, key: b"empty".to_vec(), value_size: 0, kind, ttl: 0 })
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let trace = prepared(&lines, dir.path());
    let subject = MemorySubject::new();
    replay_on(&bench(1), &trace, &subject, &SystemClock::new(), &mut NoProgress).unwrap();
    assert_eq!(records(&subject), BTreeMap::from([(b"empty".to_vec(), Bytes::new())]));
    assert!(Values::new(1).is_value(9, Content { version: 3, size: 0 }, b""));
}
