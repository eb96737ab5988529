//! The demo's phases: loading, and the same reads without a tracker of hot records and with one. Each is sampled as it runs,
//! and told line by line.
//!
//! Every value read is compared with the one that was written; a difference ends the demo with an error. Tests below.

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

/// Lines that are printed of a reading phase, at most one a second.
const LINES: u32 = 8;
/// Characters of the bar that shows a hit rate.
const BAR: usize = 25;

/// What the demo is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Writing records.
    Load,
    /// Reading, without a tracker of hot records.
    Off,
    /// Reading, with one.
    On,
}

/// What was seen in one interval.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Seconds since the demo began.
    pub at_s: f64,
    /// Seconds since the step began.
    pub step_s: f64,
    /// What went on.
    pub step: Step,
    /// How long the interval was, seconds.
    pub took_s: f64,
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
    step: Step,
    begun: Duration,
    last_at: Duration,
    last_count: u64,
    last_gets: [u64; 2],
    samples: &'a mut Vec<Sample>,
}

impl<'a> Sampler<'a> {
    fn new(world: &'a World, step: Step, samples: &'a mut Vec<Sample>) -> Self {
        let stats = world.db.stats();
        let last_gets = [stats.gets, stats.gets_fast];
        let begun = world.clock.now();
        Self { world, step, begun, last_at: begun, last_count: 0, last_gets, samples }
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
            step_s: now.saturating_sub(self.begun).as_secs_f64(),
            step: self.step,
            took_s: since.as_secs_f64(),
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
    let mut sampler = Sampler::new(world, Step::Load, samples);
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

/// How to read.
pub struct Reading<'a> {
    /// With a tracker of hot records, or without: [`Step::On`] or [`Step::Off`].
    pub step: Step,
    /// What the order of the reads follows from.
    pub seed: u64,
    /// How long.
    pub time: Duration,
    /// Ends it early.
    pub stop: &'a AtomicBool,
    /// Shows how far it is.
    pub bar: &'a ProgressBar,
    /// Told a line at a time.
    pub tell: &'a dyn Fn(&str),
}

/// Reads records with skew; the latencies in nanoseconds beside the phase.
///
/// # Errors
/// The store's; `Corruption` if a value is not the one written.
pub fn read(
    world: &World,
    records: Records,
    reading: &Reading<'_>,
    samples: &mut Vec<Sample>,
) -> Result<(Phase, Histogram<u64>)> {
    let Reading { step, seed, time, stop, bar, .. } = *reading;
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
    let mut sampler = Sampler::new(world, step, samples);
    let (mut early, mut told) = (None, sampler.samples.len());
    while early.is_none() && !stop.load(Ordering::Relaxed) {
        let gone = world.clock.now().saturating_sub(begun);
        if gone >= time {
            break;
        }
        bar.set_position(u64::try_from(gone.as_millis()).unwrap_or(u64::MAX));
        sampler.look(readers.done.load(Ordering::Relaxed));
        let fresh = &sampler.samples[told..];
        if fresh.iter().map(|sample| sample.took_s).sum::<f64>() >= line_seconds(time) {
            bar.suspend(|| (reading.tell)(&line(fresh)));
            told = sampler.samples.len();
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

/// Seconds that a printed line stands for.
fn line_seconds(time: Duration) -> f64 {
    // A sample comes a moment late: a line is not to wait for one more.
    (time / LINES).as_secs_f64().max(1.0) - SAMPLE.as_secs_f64() / 2.0
}

/// Reads a second over several samples, and the part of them that did not touch the slow disk.
pub fn mean(samples: &[Sample]) -> (f64, f64) {
    let seconds: f64 = samples.iter().map(|sample| sample.took_s).sum();
    let reads: f64 = samples.iter().map(|sample| sample.per_second * sample.took_s).sum();
    let hits: f64 =
        samples.iter().map(|sample| sample.fast_hit_rate * sample.per_second * sample.took_s).sum();
    (reads / seconds.max(f64::MIN_POSITIVE), hits / reads.max(f64::MIN_POSITIVE))
}

/// The samples as a line: when, a bar of the hit rate, the hit rate, and the pace.
fn line(samples: &[Sample]) -> String {
    let (per_second, hits) = mean(samples);
    let at = samples.last().map_or(0.0, |last| last.step_s);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and BAR")]
    let filled = (hits.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    let bar = format!("{}{}", "█".repeat(filled), "░".repeat(BAR - filled));
    format!("  {at:>4.0} s  {bar}  {:>5.1} % without the slow disk  {per_second:>7.0} reads/s", 100.0 * hits)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(took_s: f64, per_second: f64, fast_hit_rate: f64) -> Sample {
        Sample { at_s: 9.0, step_s: 4.0, step: Step::On, took_s, per_second, fast_hit_rate, fast_used: 0 }
    }

    #[test]
    fn a_line_tells_the_mean_of_its_samples_by_their_reads() {
        let samples = [sample(1.0, 100.0, 0.0), sample(0.5, 600.0, 0.8)];
        let (per_second, hits) = mean(&samples);
        assert!((per_second - 400.0 / 1.5).abs() < 1e-9 && (hits - 0.6).abs() < 1e-9);
        let bar = format!("{}{}", "█".repeat(15), "░".repeat(10));
        assert_eq!(
            line(&samples),
            format!("     4 s  {bar}   60.0 % without the slow disk      267 reads/s")
        );
        assert_eq!(mean(&[]), (0.0, 0.0));
        assert!(line(&[]).contains("0.0 %"));
    }

    #[test]
    fn lines_come_at_most_once_a_second_and_eight_times() {
        assert!((line_seconds(Duration::from_secs(16)) - 1.875).abs() < 1e-9);
        assert!((line_seconds(Duration::from_secs(1)) - 0.875).abs() < 1e-9);
    }
}
