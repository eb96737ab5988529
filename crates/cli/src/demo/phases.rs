//! The demo's two phases, loading and reading, each sampled as it runs.
//!
//! Every value read is compared with the one that was written; a difference ends the demo with an error.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use kelvin::{Clock, Db, Error, ErrorKind, Executor, Lane, Result, ThreadPool, WriteBatch, WriteOptions};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::records::Records;
use super::world::World;
use crate::output::{rate, ratio};

/// Records written at once.
const BATCH: u64 = 16;
/// Readers at once.
const READERS: usize = 4;
/// Time between two samples.
const SAMPLE: Duration = Duration::from_millis(250);
/// The longest latency told apart, nanoseconds: a minute.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// What was seen in one interval.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Seconds since the demo began.
    pub at_s: f64,
    /// True while loading, false while reading.
    pub loading: bool,
    /// Records written or read a second.
    pub per_second: f64,
    /// The part of the reads answered without the slow disk.
    pub fast_hit_rate: f64,
    /// Bytes on the fast disk.
    pub fast_used: u64,
}

/// What a phase came to.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Records written or read.
    pub records: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// How long it took.
    pub took: Duration,
}

/// Counts and samples as a phase runs.
struct Sampler<'a> {
    world: &'a World,
    loading: bool,
    last_at: Duration,
    last_count: u64,
    last_gets: [u64; 2],
    samples: &'a mut Vec<Sample>,
}

impl<'a> Sampler<'a> {
    fn new(world: &'a World, loading: bool, samples: &'a mut Vec<Sample>) -> Self {
        let stats = world.db.stats();
        let last_gets = [stats.gets, stats.gets_fast];
        Self { world, loading, last_at: world.clock.now(), last_count: 0, last_gets, samples }
    }

    /// Takes a sample if one is due.
    fn look(&mut self, count: u64) {
        let now = self.world.clock.now();
        let since = now.saturating_sub(self.last_at);
        if since < SAMPLE {
            return;
        }
        let stats = self.world.db.stats();
        let gets = [stats.gets, stats.gets_fast];
        self.samples.push(Sample {
            at_s: now.as_secs_f64(),
            loading: self.loading,
            per_second: rate(count - self.last_count, since),
            fast_hit_rate: ratio(gets[1] - self.last_gets[1], gets[0] - self.last_gets[0]),
            fast_used: stats.used_bytes[0],
        });
        (self.last_at, self.last_count, self.last_gets) = (now, count, gets);
    }
}

/// Writes every record, until `stop` is set.
///
/// # Errors
/// The store's.
pub fn load(
    world: &World,
    records: Records,
    stop: &AtomicBool,
    bar: &ProgressBar,
    samples: &mut Vec<Sample>,
) -> Result<Phase> {
    let begun = world.clock.now();
    let mut sampler = Sampler::new(world, true, samples);
    let mut phase = Phase { records: 0, bytes: 0, took: Duration::ZERO };
    let id = world.db.id();
    while phase.records < records.count && !stop.load(Ordering::Relaxed) {
        let mut batch = WriteBatch::new();
        let end = (phase.records + BATCH).min(records.count);
        for number in phase.records..end {
            let (key, value) = (records.key(number), records.value(number));
            batch.put(id, key.as_bytes(), value.as_bytes())?;
            phase.bytes += key.len() as u64 + value.len() as u64;
        }
        world.db.write(batch, &WriteOptions::default())?;
        phase.records = end;
        bar.set_position(end);
        sampler.look(end);
    }
    phase.took = world.clock.now().saturating_sub(begun);
    Ok(phase)
}

/// What the readers share.
struct Readers {
    db: Db,
    records: Records,
    clock: Arc<dyn Clock>,
    done: AtomicU64,
    bytes: AtomicU64,
    stop: AtomicBool,
}

/// Reads records with skew for `time`, or until `stop` is set; the latencies in nanoseconds beside the phase.
///
/// # Errors
/// The store's; `Corruption` if a value is not the one written.
pub fn read(
    world: &World,
    records: Records,
    seed: u64,
    time: Duration,
    stop: &AtomicBool,
    bar: &ProgressBar,
    samples: &mut Vec<Sample>,
) -> Result<(Phase, Histogram<u64>)> {
    let readers = Arc::new(Readers {
        db: world.db.clone(),
        records,
        clock: Arc::clone(&world.clock),
        done: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    });
    let pool = ThreadPool::new(1, 1, READERS)
        .map_err(|error| Error::new(ErrorKind::Io, format!("starting readers: {error}")))?;
    let (sender, receiver) = std::sync::mpsc::channel();
    for reader in 0..READERS as u64 {
        let (shared, sender) = (Arc::clone(&readers), sender.clone());
        let job = move || {
            // The receiver is there until every reader has answered.
            let _sent = sender.send(read_until_stopped(&shared, seed.wrapping_add(reader)));
        };
        pool.spawn(Lane::Read, Box::new(job));
    }
    drop(sender);
    let begun = world.clock.now();
    let mut sampler = Sampler::new(world, false, samples);
    let mut early = None;
    while early.is_none() && !stop.load(Ordering::Relaxed) {
        let gone = world.clock.now().saturating_sub(begun);
        if gone >= time {
            break;
        }
        bar.set_position(u64::try_from(gone.as_millis()).unwrap_or(u64::MAX));
        sampler.look(readers.done.load(Ordering::Relaxed));
        if let Some(last) = sampler.samples.last().filter(|sample| !sample.loading) {
            let hits = 100.0 * last.fast_hit_rate;
            bar.set_message(format!("{:.0} reads/s, {hits:.0} % without the slow disk", last.per_second));
        }
        // A reader answers early only with an error, and goes without an answer only in a panic.
        match receiver.recv_timeout(SAMPLE.min(time - gone)) {
            Ok(answer) => early = Some(answer),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    readers.stop.store(true, Ordering::Relaxed);
    let mut latencies = new_histogram()?;
    for answer in early.into_iter().chain(receiver) {
        let added = latencies.add(answer?);
        added.map_err(|error| Error::new(ErrorKind::Io, format!("adding latencies: {error}")))?;
    }
    let took = world.clock.now().saturating_sub(begun);
    let (records, bytes) = (readers.done.load(Ordering::Relaxed), readers.bytes.load(Ordering::Relaxed));
    Ok((Phase { records, bytes, took }, latencies))
}

fn new_histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
        .map_err(|error| Error::new(ErrorKind::Io, format!("making a histogram: {error}")))
}

fn read_until_stopped(shared: &Readers, seed: u64) -> Result<Histogram<u64>> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut latencies = new_histogram()?;
    while !shared.stop.load(Ordering::Relaxed) {
        let number = shared.records.pick(&mut random);
        let key = shared.records.key(number);
        let begun = shared.clock.now();
        let found = shared.db.get(key.as_bytes())?;
        let took = shared.clock.now().saturating_sub(begun);
        latencies.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        let expected = shared.records.value(number);
        if found.as_deref() != Some(expected.as_bytes()) {
            return Err(Error::new(ErrorKind::Corruption, format!("{key} is not what was written"))
                .expected(
                    format!("{} bytes", expected.len()),
                    format!("{:?} bytes", found.map(|v| v.len())),
                ));
        }
        shared.done.fetch_add(1, Ordering::Relaxed);
        shared.bytes.fetch_add((key.len() + expected.len()) as u64, Ordering::Relaxed);
    }
    Ok(latencies)
}
