//! The runner on a map in memory, and on one that answers wrongly once: every wrong answer must fail the run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use kelvin_base::{OrderedStore, PointStore, SystemClock, process};

use super::*;
use crate::options::System;
use crate::subject::{Counters, MemorySubject};

fn options(workload: &str, keys: &str) -> BenchOptions {
    let mut options = BenchOptions::new(System::FastOnly, "/nonexistent-bench");
    options.workload = workload.parse().unwrap();
    options.keys = keys.parse().unwrap();
    options.records = 500;
    options.value_size = 100;
    options.ops = Some(3000);
    options.threads = 3;
    options
}

/// A map that spoils the answer of one get, counted from 1: the previous value of the key, another key's, or a flip.
struct Spoiled {
    inner: MemorySubject,
    gets: AtomicU64,
    wrong_at: u64,
    how: fn(&MemorySubject, &[u8], Bytes) -> Option<Bytes>,
    slow_hits: AtomicU64,
}

impl Spoiled {
    fn new(wrong_at: u64, how: fn(&MemorySubject, &[u8], Bytes) -> Option<Bytes>) -> Self {
        let inner = MemorySubject::new();
        Self { inner, gets: AtomicU64::new(0), wrong_at, how, slow_hits: AtomicU64::new(0) }
    }
}

impl PointStore for Spoiled {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let number = self.gets.fetch_add(1, Ordering::Relaxed) + 1;
        if number.is_multiple_of(4) {
            self.slow_hits.fetch_add(1, Ordering::Relaxed);
        }
        let value = self.inner.get(key)?;
        Ok(if number == self.wrong_at {
            value.and_then(|value| (self.how)(&self.inner, key, value))
        } else {
            value
        })
    }
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.inner.put(key, value)
    }
    fn delete(&self, key: &[u8]) -> Result<()> {
        self.inner.delete(key)
    }
    fn update(&self, key: &[u8], change: &mut dyn FnMut(Option<&[u8]>) -> Option<Vec<u8>>) -> Result<()> {
        self.inner.update(key, change)
    }
}

impl OrderedStore for Spoiled {
    fn scan(&self, start: &[u8], limit: usize, each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.inner.scan(start, limit, each)
    }
}

impl Subject for Spoiled {
    fn store(&self) -> &dyn OrderedStore {
        self
    }
    fn counters(&self) -> Counters {
        Counters { slow_hits: Some(self.slow_hits.load(Ordering::Relaxed)), ..Counters::default() }
    }
    fn settle(&self) -> Result<()> {
        Ok(())
    }
}

fn measure(options: &BenchOptions, subject: &dyn Subject) -> Result<Report> {
    run_on(options, subject, &SystemClock::new(), &mut NoProgress)
}

#[test]
fn the_final_tenth_is_timed_apart_and_processor_time_is_told_by_operation() {
    let report =
        run_on(&options("RW", "uniform"), &MemorySubject::new(), &SystemClock::new(), &mut NoProgress);
    let json = report.unwrap().to_json();
    let count = |times: &str| {
        let of = |operation: &str| json[times][operation]["count"].as_u64().unwrap();
        of("read") + of("insert")
    };
    // Clients that are in an operation when the final tenth begins may count it there.
    assert_eq!(count("latency_us"), 3000);
    assert!((300..=303).contains(&count("latency_us_last10")), "{}", json["latency_us_last10"]);
    let cpu = |operation: &str| json["cpu"][format!("client_{operation}_us")].as_u64();
    assert!(cpu("read") > Some(0) && cpu("insert") > Some(0), "{}", json["cpu"]);
    assert_eq!(cpu("scan"), None);
}

#[test]
fn every_workload_runs_all_its_operations_on_every_distribution() {
    for workload in Workload::ALL {
        for keys in ["uniform", "hotspot:5", "zipf:0.99", "ycsb-zipf:0.99", "latest"] {
            let report = measure(&options(workload.name(), keys), &MemorySubject::new()).unwrap();
            let expected = if workload == Workload::Load { 500 } else { 3000 };
            assert_eq!(report.ops, expected, "{workload} {keys}");
            assert_eq!(report.latency.iter().map(|one| one.count).sum::<u64>(), expected);
            assert!(report.load.is_some() && report.whole.ops_per_s > 0.0 && report.last10.ops_per_s > 0.0);
            assert!(!report.table().is_empty());
        }
    }
}

#[test]
fn the_hit_rate_counts_reads_that_did_not_touch_the_slow_tier() {
    let subject = Spoiled::new(0, |_, _, value| Some(value));
    let report = measure(&options("UH", "uniform"), &subject).unwrap();
    assert!((report.whole.hit_rate.unwrap() - 0.75).abs() < 0.01, "{:?}", report.whole);
    assert!(report.latency.iter().map(|one| one.operation).eq(["read", "update"]));
}

#[test]
fn a_wrong_value_fails_the_run() {
    let flip: fn(&MemorySubject, &[u8], Bytes) -> Option<Bytes> = |_, _, value| {
        let mut value = value.to_vec();
        value[70] ^= 4;
        Some(value.into())
    };
    for (how, words) in [
        (flip, "wrong value"),
        (|_, _, value: Bytes| Some(value.slice(1..)), "wrong value"),
        (|_, _, _| None, "lost the record"),
    ] {
        let error = measure(&options("RO", "uniform"), &Spoiled::new(777, how)).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn a_stale_value_fails_the_run() {
    // One record, updated all the time: version 0 is stale by the thousandth get.
    let mut options = options("UH", "uniform");
    options.records = 1;
    let stale = |_: &MemorySubject, _: &[u8], _: Bytes| {
        let mut value = Vec::new();
        Records::new(24, 100, 1).ok()?.value_into(0, 0, &mut value);
        Some(value.into())
    };
    let error = measure(&options, &Spoiled::new(1000, stale)).unwrap_err();
    assert!(error.to_string().contains("stale version of record 0"), "{error}");
}

#[test]
fn the_same_seed_makes_the_same_operations_for_any_number_of_threads() {
    let mut counts = Vec::new();
    for threads in [1, 4] {
        let mut options = options("A", "zipf:0.99");
        options.threads = threads;
        let subject = MemorySubject::new();
        measure(&options, &subject).unwrap();
        // How often each record was updated is its version: the order of updates may differ, their number not.
        let mut versions = Vec::new();
        subject
            .scan(b"", usize::MAX, &mut |_, value| {
                versions.push(value[..16].to_vec());
                true
            })
            .unwrap();
        counts.push(versions);
    }
    assert_eq!(counts[0], counts[1]);
}

#[test]
fn a_store_that_fails_stops_the_run_with_its_error() {
    struct Failing(MemorySubject);
    impl Subject for Failing {
        fn store(&self) -> &dyn OrderedStore {
            self.0.store()
        }
        fn counters(&self) -> Counters {
            Counters::default()
        }
        fn settle(&self) -> Result<()> {
            Err(Error::new(kelvin_base::ErrorKind::NoSpace, "background work failed"))
        }
    }
    let error = measure(&options("RO", "uniform"), &Failing(MemorySubject::new())).unwrap_err();
    assert!(error.to_string().contains("background work failed"), "{error}");
}

#[test]
fn a_warm_up_reads_and_is_not_counted() {
    let subject = Spoiled::new(0, |_, _, value| Some(value));
    let mut options = options("WH", "uniform");
    options.warm_up = 700;
    let report = run_on(&options, &subject, &SystemClock::new(), &mut NoProgress).unwrap();
    let count = |operation: &str| report.latency.iter().find(|one| one.operation == operation).unwrap().count;
    let (reads, inserts) = (count("read"), count("insert"));
    assert_eq!(report.ops, 3000);
    assert!((1300..1700).contains(&reads), "{reads}");
    assert_eq!(subject.gets.load(Ordering::Relaxed), reads + 700);
    let mut records = 0;
    subject
        .scan(b"", usize::MAX, &mut |_, _| {
            records += 1;
            true
        })
        .unwrap();
    assert_eq!(records, 500 + inserts, "a warm-up inserts nothing");
}

#[test]
fn what_watching_takes_is_not_the_subjects() {
    let (options, subject, clock) = (options("RO", "uniform"), MemorySubject::new(), SystemClock::new());
    let stage = Stage { options: &options, subject: &subject, clock: &clock };
    let shared = client::Shared::new(&stage, None, 1);
    let begun = process::cpu_time();
    while process::cpu_time() == begun {}
    let all = shared.sample(&stage).cpu_seconds;
    assert!(all > 0.0);
    // More than all threads together have taken.
    shared.watched(process::cpu_time() + Duration::from_secs(3600));
    assert!(shared.sample(&stage).cpu_seconds.abs() < f64::EPSILON, "after {all}");
}
