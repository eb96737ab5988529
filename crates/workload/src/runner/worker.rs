//! One client thread: takes chunks of operations, does them, times them, checks what they return.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use bytes::Bytes;
use kelvin_base::{Error, ErrorKind, Result, process};
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Bench, Latency};
use crate::generate::permutation::mix64;
use crate::samples::Sample;
use crate::subject::Counters;

/// Operations a thread takes at once.
const CHUNK: u64 = 32;
/// Longest time that is told apart, nanoseconds; longer ones count as this.
const LATENCY_NS_MAX: u64 = 600_000_000_000;

/// What a phase does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Stores every record once.
    Load,
    /// Waits for background work.
    Settle,
    /// Reads of the workload's keys, before anything is measured.
    WarmUp,
    /// The workload's mix.
    Run,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Read,
    Update,
    Insert,
    Scan,
    Modify,
}

/// Records inserted beyond the loaded ones.
#[derive(Debug)]
pub(super) struct Inserts {
    next: AtomicU64,
    /// One past the newest record below which all are acknowledged.
    newest: AtomicU64,
    early: Mutex<BTreeSet<u64>>,
}

impl Inserts {
    pub(super) fn new(records: u64) -> Self {
        Self { next: records.into(), newest: records.into(), early: Mutex::default() }
    }

    fn take(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn acknowledge(&self, index: u64) {
        let mut early = self.early.lock();
        early.insert(index);
        let mut newest = self.newest.load(Ordering::Relaxed);
        while early.remove(&newest) {
            newest += 1;
        }
        self.newest.store(newest, Ordering::Release);
    }

    fn newest(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }
}

/// What the threads of a phase share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) total: Option<u64>,
    pub(super) done: AtomicU64,
    pub(super) reads: AtomicU64,
    pub(super) stop: AtomicBool,
    pub(super) failure: Mutex<Option<Error>>,
    chunks: AtomicU64,
    /// The operation after which the final tenth begins.
    mark: u64,
    start: Duration,
    cpu_start: Duration,
    slow_hits_start: Option<u64>,
}

impl Shared {
    pub(super) fn new(bench: &Bench<'_>, total: Option<u64>) -> Self {
        Self {
            slow_hits_start: bench.subject.counters().slow_hits,
            start: bench.clock.now(),
            cpu_start: process::cpu_time(),
            total,
            done: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            failure: Mutex::new(None),
            chunks: AtomicU64::new(0),
            mark: total.map_or(u64::MAX, |total| total - total / 10),
        }
    }

    /// The phase as it is now.
    pub(super) fn sample(&self, bench: &Bench<'_>) -> Sample {
        let ops = self.done.load(Ordering::Relaxed);
        let reads = self.reads.load(Ordering::Relaxed);
        let Counters { slow_hits, hot_set, .. } = bench.subject.counters();
        Sample {
            seconds: bench.clock.now().saturating_sub(self.start).as_secs_f64(),
            ops,
            reads,
            slow_hits: slow_hits.zip(self.slow_hits_start).map(|(now, then)| now.saturating_sub(then)),
            cpu_seconds: process::cpu_time().saturating_sub(self.cpu_start).as_secs_f64(),
            hot_set,
        }
    }
}

/// A client thread's own state.
pub(super) struct Worker<'a> {
    bench: &'a Bench<'a>,
    shared: &'a Shared,
    phase: Phase,
    key: Vec<u8>,
    value: Vec<u8>,
    latency: [Option<Latency>; 5],
}

impl<'a> Worker<'a> {
    pub(super) fn new(bench: &'a Bench<'a>, shared: &'a Shared, phase: Phase) -> Self {
        Self { bench, shared, phase, key: Vec::new(), value: Vec::new(), latency: Default::default() }
    }

    /// Works until nothing is left, the phase is stopped, or something fails. Sends a sample to `mark` when the final
    /// tenth begins.
    pub(super) fn work(mut self, mark: &Sender<Sample>) -> [Option<Latency>; 5] {
        let outcome = match self.phase {
            Phase::Settle => self.bench.subject.settle(),
            Phase::Load | Phase::WarmUp | Phase::Run => self.chunks(mark),
        };
        if let Err(error) = outcome {
            self.shared.stop.store(true, Ordering::Relaxed);
            self.shared.failure.lock().get_or_insert(error);
        }
        self.latency
    }

    fn chunks(&mut self, mark: &Sender<Sample>) -> Result<()> {
        let total = self.shared.total.unwrap_or(u64::MAX);
        loop {
            let chunk = self.shared.chunks.fetch_add(1, Ordering::Relaxed);
            let (start, end) = (chunk.saturating_mul(CHUNK), (chunk + 1).saturating_mul(CHUNK).min(total));
            // The run's operations are the same with and without a warm-up, and others than its.
            let salt = if self.phase == Phase::WarmUp { u64::MAX } else { 0 };
            let mut rng =
                Xoshiro256PlusPlus::seed_from_u64(mix64(self.bench.options.seed ^ mix64(chunk ^ salt)));
            for number in start..end {
                if self.shared.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                match self.phase {
                    Phase::Load => self.timed(Operation::Insert, |worker| worker.insert(number))?,
                    _ => self.step(&mut rng, number)?,
                }
                if self.shared.done.fetch_add(1, Ordering::Relaxed) + 1 == self.shared.mark {
                    // If the watcher is gone, nobody needs the sample.
                    let _told = mark.send(self.shared.sample(self.bench));
                }
            }
            if end >= total || start >= end {
                return Ok(());
            }
        }
    }

    fn timed(&mut self, operation: Operation, action: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let start = self.bench.clock.now();
        action(self)?;
        let spent = self.bench.clock.now().saturating_sub(start);
        let slot = &mut self.latency[operation as usize];
        if slot.is_none() {
            let fresh = Latency::new_with_bounds(1, LATENCY_NS_MAX, 3);
            *slot = Some(fresh.map_err(|e| Error::invalid(format!("histogram: {e}")))?);
        }
        if let Some(latency) = slot {
            latency.saturating_record(u64::try_from(spent.as_nanos()).unwrap_or(LATENCY_NS_MAX).max(1));
        }
        Ok(())
    }

    /// Operation `number`, drawn from `rng`.
    fn step(&mut self, rng: &mut Xoshiro256PlusPlus, number: u64) -> Result<()> {
        let bench = self.bench;
        let operation = match self.phase {
            Phase::WarmUp => Operation::Read,
            _ => pick(bench.options.workload.mix(), rng.random_range(0..100)),
        };
        if operation == Operation::Insert {
            return self.timed(operation, |worker| {
                let index = bench.inserts.take();
                worker.insert(index)?;
                bench.inserts.acknowledge(index);
                Ok(())
            });
        }
        let index = bench.sampler.sample(rng, bench.inserts.newest(), number);
        let limit = match bench.options.workload {
            crate::Workload::YcsbE => rng.random_range(1..=bench.options.scan_length),
            _ => bench.options.scan_length,
        };
        bench.records.key_into(index, &mut self.key);
        if operation != Operation::Update {
            self.shared.reads.fetch_add(1, Ordering::Relaxed);
        }
        self.timed(operation, |worker| match operation {
            Operation::Read => worker.read(index),
            Operation::Scan => worker.scan(limit),
            Operation::Update => worker.update(index),
            Operation::Insert | Operation::Modify => worker.modify(index),
        })
    }

    fn insert(&mut self, index: u64) -> Result<()> {
        self.bench.records.key_into(index, &mut self.key);
        self.bench.records.value_into(index, 0, &mut self.value);
        self.bench.subject.store().put(&self.key, &self.value)
    }

    fn read(&mut self, index: u64) -> Result<()> {
        let before = self.bench.versions.acknowledged(index);
        let value: Option<Bytes> = self.bench.subject.store().get(&self.key)?;
        let value = value.ok_or_else(|| lost(&self.key))?;
        let (_, version) = self.bench.records.check(&self.key, &value)?;
        self.bench.versions.check(index, version, before)
    }

    fn update(&mut self, index: u64) -> Result<()> {
        let (_held, version) = self.bench.versions.begin(index);
        self.bench.records.value_into(index, version, &mut self.value);
        self.bench.subject.store().put(&self.key, &self.value)?;
        self.bench.versions.acknowledge(index, version);
        Ok(())
    }

    fn modify(&mut self, index: u64) -> Result<()> {
        let bench = self.bench;
        let (_held, version) = bench.versions.begin(index);
        let (key, fresh) = (&self.key, &mut self.value);
        let mut checked = Err(lost(key));
        bench.subject.store().update(key, &mut |old| {
            checked = match old {
                Some(old) => bench.records.check(key, old),
                None => Err(lost(key)),
            };
            bench.records.value_into(index, version, fresh);
            Some(fresh.clone())
        })?;
        let (_, found) = checked?;
        bench.versions.acknowledge(index, version);
        bench.versions.check(index, found, u32::try_from(version - 1).unwrap_or(u32::MAX))
    }

    fn scan(&mut self, limit: usize) -> Result<()> {
        let mut previous: Vec<u8> = Vec::new();
        let mut outcome = Ok(());
        let (bench, start) = (self.bench, &self.key);
        let mut count = 0usize;
        bench.subject.store().scan(start, limit, &mut |key, value| {
            let is_first = count == 0;
            let is_ordered = if is_first { key == &start[..] } else { key > &previous[..] };
            outcome = match bench.records.check(key, value) {
                Ok(_) if is_ordered => Ok(()),
                Ok(_) if is_first => Err(lost(start)),
                Ok(_) => Err(Error::new(ErrorKind::Corruption, "a scan returned keys out of order")),
                Err(error) => Err(error),
            };
            previous.clear();
            previous.extend_from_slice(key);
            count += 1;
            outcome.is_ok()
        })?;
        if count == 0 {
            return Err(lost(start));
        }
        outcome
    }
}

fn pick(mix: crate::Mix, mut draw: u32) -> Operation {
    let shares = [
        (mix.read, Operation::Read),
        (mix.update, Operation::Update),
        (mix.insert, Operation::Insert),
        (mix.scan, Operation::Scan),
    ];
    for (share, operation) in shares {
        if draw < share {
            return operation;
        }
        draw -= share;
    }
    Operation::Modify
}

fn lost(key: &[u8]) -> Error {
    Error::new(
        ErrorKind::Corruption,
        format!("the store lost the record of key {}", String::from_utf8_lossy(key)),
    )
}
