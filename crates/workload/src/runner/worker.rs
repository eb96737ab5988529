//! One client thread: takes chunks of operations, does them, times them, checks what they return.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kelvin_base::sync::Mutex;
use kelvin_base::{Error, ErrorKind, Result};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Bench;
use super::client::{Client, Operation, Phase};
use crate::generate::permutation::mix64;

/// Operations a thread takes at once.
const CHUNK: u64 = 32;

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

/// A client thread's own state.
pub(super) struct Worker<'a, 'c, 'd> {
    bench: &'a Bench<'a>,
    client: &'c mut Client<'d>,
    phase: Phase,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'a, 'c, 'd> Worker<'a, 'c, 'd> {
    pub(super) fn new(bench: &'a Bench<'a>, client: &'c mut Client<'d>, phase: Phase) -> Self {
        Self { bench, client, phase, key: Vec::new(), value: Vec::new() }
    }

    /// Takes chunks off `chunks` and does them, until nothing of `total` is left.
    pub(super) fn work(mut self, chunks: &AtomicU64, total: u64) -> Result<()> {
        let first_put = self.bench.options().bulk_records();
        loop {
            let chunk = chunks.fetch_add(1, Ordering::Relaxed);
            let (start, end) = (chunk.saturating_mul(CHUNK), (chunk + 1).saturating_mul(CHUNK).min(total));
            // The run's operations are the same with and without a warm-up, and others than its.
            let salt = if self.phase == Phase::WarmUp { u64::MAX } else { 0 };
            let mut rng =
                Xoshiro256PlusPlus::seed_from_u64(mix64(self.bench.options().seed ^ mix64(chunk ^ salt)));
            for number in start..end {
                if self.client.is_stopped() {
                    return Ok(());
                }
                match self.phase {
                    Phase::Load => {
                        self.timed(Operation::Insert, |worker| worker.insert(first_put + number))?;
                    }
                    _ => self.step(&mut rng, number)?,
                }
                self.client.count_done();
            }
            if end >= total || start >= end {
                return Ok(());
            }
        }
    }

    fn timed(&mut self, operation: Operation, action: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let start = self.client.begin();
        action(self)?;
        self.client.record(operation, start)
    }

    /// Operation `number`, drawn from `rng`.
    fn step(&mut self, rng: &mut Xoshiro256PlusPlus, number: u64) -> Result<()> {
        let bench = self.bench;
        let operation = match self.phase {
            Phase::WarmUp => Operation::Read,
            _ => pick(bench.options().workload.mix(), rng.random_range(0..100)),
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
        let limit = match bench.options().workload {
            crate::Workload::YcsbE => rng.random_range(1..=bench.options().scan_length),
            _ => bench.options().scan_length,
        };
        bench.records.key_into(index, &mut self.key);
        if operation != Operation::Update {
            self.client.count_read();
        }
        self.timed(operation, |worker| match operation {
            Operation::Read => worker.read(index),
            Operation::Scan => worker.scan(limit),
            Operation::Update => worker.update(index),
            Operation::Insert | Operation::Modify | Operation::Delete => worker.modify(index),
        })
    }

    fn insert(&mut self, index: u64) -> Result<()> {
        self.bench.records.key_into(index, &mut self.key);
        self.bench.records.value_into(index, 0, &mut self.value);
        self.bench.store().put(&self.key, &self.value)
    }

    fn read(&mut self, index: u64) -> Result<()> {
        let before = self.bench.versions.acknowledged(index);
        let value: Option<Bytes> = self.bench.store().get(&self.key)?;
        let value = value.ok_or_else(|| lost(&self.key))?;
        let (_, version) = self.bench.records.check(&self.key, &value)?;
        self.bench.versions.check(index, version, before)
    }

    fn update(&mut self, index: u64) -> Result<()> {
        let (_held, version) = self.bench.versions.begin(index);
        self.bench.records.value_into(index, version, &mut self.value);
        self.bench.store().put(&self.key, &self.value)?;
        self.bench.versions.acknowledge(index, version);
        Ok(())
    }

    fn modify(&mut self, index: u64) -> Result<()> {
        let bench = self.bench;
        let (_held, version) = bench.versions.begin(index);
        let (key, fresh) = (&self.key, &mut self.value);
        let mut checked = Err(lost(key));
        bench.store().update(key, &mut |old| {
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
        bench.store().scan(start, limit, &mut |key, value| {
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
