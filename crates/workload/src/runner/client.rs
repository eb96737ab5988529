//! What client threads of a phase share, whatever makes their operations: counts, times, the end of the phase.
//!
//! Invariant: an operation is counted once it is done, and whoever does the last one before the final tenth takes a
//! sample, so that the final tenth begins at a known moment. Tests: the runner's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use kelvin_base::sync::Mutex;
use kelvin_base::{Error, Result, Signal, process};

use super::{Latencies, Latency, OPERATIONS, Stage};
use crate::samples::Sample;
use crate::subject::Counters;

/// Longest time that is told apart, nanoseconds; longer ones count as this.
const LATENCY_NS_MAX: u64 = 600_000_000_000;

/// Of so many operations the processor time of one is taken: asking for it takes a good part of a microsecond.
const CPU_EVERY: u32 = 16;

/// What a phase does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Stores records at once, in order of their keys.
    BulkLoad,
    /// Stores every record, or every other, once.
    Load,
    /// Waits for background work.
    Settle,
    /// Reads of the workload's keys, before anything is measured.
    WarmUp,
    /// The workload's mix.
    Run,
}

impl Phase {
    /// The name in progress reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::BulkLoad => "bulk load",
            Self::Load => "load",
            Self::Settle => "settle",
            Self::WarmUp => "warm-up",
            Self::Run => "run",
        }
    }
}

/// A kind of operation that is timed apart: the index into [`super::OPERATIONS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Read,
    Update,
    Insert,
    Scan,
    Modify,
    Delete,
}

/// What the threads of a phase share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) total: Option<u64>,
    pub(super) done: AtomicU64,
    reads: AtomicU64,
    pub(super) stop: AtomicBool,
    pub(super) failure: Mutex<Option<Error>>,
    /// The operation after which the final tenth begins.
    mark: u64,
    start: Duration,
    cpu_start: Duration,
    /// Processor time, nanoseconds, that watching took since then.
    watching_ns: AtomicU64,
    slow_hits_start: Option<u64>,
    /// Clients at work; `ended` tells when one is done.
    pub(super) working: AtomicUsize,
    pub(super) ended: Arc<Signal>,
    /// Samples that clients took.
    pub(super) marked: Mutex<Vec<Sample>>,
}

/// Processor time that the subject has used so far: that of the process but for `watching`.
fn cpu_time(stage: &Stage<'_>, watching: Duration) -> Duration {
    stage.subject.used().map_or_else(|| process::cpu_time().saturating_sub(watching), |used| used.cpu)
}

impl Shared {
    pub(super) fn new(stage: &Stage<'_>, total: Option<u64>, clients: usize) -> Self {
        Self {
            slow_hits_start: stage.subject.counters().slow_hits,
            start: stage.clock.now(),
            cpu_start: cpu_time(stage, Duration::ZERO),
            watching_ns: AtomicU64::new(0),
            total,
            done: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            failure: Mutex::new(None),
            mark: total.map_or(u64::MAX, |total| total - total / 10),
            working: AtomicUsize::new(clients),
            ended: Arc::default(),
            marked: Mutex::default(),
        }
    }

    /// Watching has taken so much processor time: it is not the subject's.
    pub(super) fn watched(&self, time: Duration) {
        self.watching_ns.store(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The phase as it is now.
    pub(super) fn sample(&self, stage: &Stage<'_>) -> Sample {
        let ops = self.done.load(Ordering::Relaxed);
        let reads = self.reads.load(Ordering::Relaxed);
        let Counters { slow_hits, hot_set, traffic, .. } = stage.subject.counters();
        let watching = Duration::from_nanos(self.watching_ns.load(Ordering::Relaxed));
        Sample {
            seconds: stage.clock.now().saturating_sub(self.start).as_secs_f64(),
            ops,
            reads,
            slow_hits: slow_hits.zip(self.slow_hits_start).map(|(now, then)| now.saturating_sub(then)),
            cpu_seconds: cpu_time(stage, watching).saturating_sub(self.cpu_start).as_secs_f64(),
            hot_set,
            traffic,
        }
    }
}

/// When an operation began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    at: Duration,
    /// The processor time of the thread, if that of this operation is to be known.
    cpu: Option<Duration>,
}

/// What client threads measured of their operations.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    pub(super) latency: Latencies,
    /// Those of the final tenth.
    pub(super) latency_last10: Latencies,
    /// Processor time by operation, seconds.
    pub(super) cpu_seconds: [f64; OPERATIONS.len()],
}

fn note(latencies: &mut Latencies, operation: Operation, spent: Duration) -> Result<()> {
    let slot = &mut latencies[operation as usize];
    if slot.is_none() {
        let fresh = Latency::new_with_bounds(1, LATENCY_NS_MAX, 3);
        *slot = Some(fresh.map_err(|e| Error::invalid(format!("histogram: {e}")))?);
    }
    if let Some(latency) = slot {
        latency.saturating_record(u64::try_from(spent.as_nanos()).unwrap_or(LATENCY_NS_MAX).max(1));
    }
    Ok(())
}

fn merge(into: &mut Latencies, times: Latencies) -> Result<()> {
    for (sum, part) in into.iter_mut().zip(times) {
        match (sum.as_mut(), part) {
            (Some(sum), Some(part)) => {
                sum.add(part).map_err(|e| Error::invalid(format!("merging histograms: {e}")))?;
            }
            (None, Some(part)) => *sum = Some(part),
            (_, None) => {}
        }
    }
    Ok(())
}

impl Measured {
    /// Adds what another thread measured.
    pub(super) fn add(&mut self, other: Self) -> Result<()> {
        merge(&mut self.latency, other.latency)?;
        merge(&mut self.latency_last10, other.latency_last10)?;
        for (sum, part) in self.cpu_seconds.iter_mut().zip(other.cpu_seconds) {
            *sum += part;
        }
        Ok(())
    }

    /// The processor time by operation, under the names of reports; nothing where it was not taken.
    pub(super) fn cpu(&self) -> impl Iterator<Item = (String, u64)> {
        let taken = OPERATIONS.iter().zip(self.cpu_seconds).filter(|(_, seconds)| *seconds > 0.0);
        let micros = |seconds: f64| u64::try_from(Duration::from_secs_f64(seconds).as_micros());
        taken.map(move |(name, seconds)| {
            (format!("cpu.client_{name}_us"), micros(seconds).unwrap_or(u64::MAX))
        })
    }
}

/// A client thread's side of a phase.
pub(crate) struct Client<'a> {
    stage: &'a Stage<'a>,
    shared: &'a Shared,
    measured: Measured,
    /// Of the operations whose processor time was taken: how many, and the sum.
    cpu: [(u32, Duration); OPERATIONS.len()],
    begun: u32,
    /// In a simulation the thread's processor time is not that of the machine simulated.
    takes_cpu: bool,
}

impl<'a> Client<'a> {
    pub(super) fn new(stage: &'a Stage<'a>, shared: &'a Shared) -> Self {
        let takes_cpu = stage.subject.used().is_none();
        Self { stage, shared, measured: Measured::default(), cpu: Default::default(), begun: 0, takes_cpu }
    }

    /// Works until nothing is left, the phase is stopped, or something fails.
    pub(super) fn work(mut self, work: &(dyn Fn(&mut Self) -> Result<()> + Sync)) -> Measured {
        /// Also where `work` panics.
        struct Ends<'a>(&'a Shared);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.working.fetch_sub(1, Ordering::Release);
                self.0.ended.raise();
            }
        }
        let _ends = Ends(self.shared);
        if let Err(error) = work(&mut self) {
            self.shared.stop.store(true, Ordering::Relaxed);
            self.shared.failure.lock().get_or_insert(error);
        }
        for ((taken, spent), (seconds, times)) in
            self.cpu.iter().zip(self.measured.cpu_seconds.iter_mut().zip(&self.measured.latency))
        {
            let all = times.as_ref().map_or(0, hdrhistogram::Histogram::len);
            *seconds = spent.as_secs_f64() * all as f64 / f64::from((*taken).max(1));
        }
        self.measured
    }

    /// True if the phase is to end: its time is over, or another client failed.
    pub(crate) fn is_stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    /// An operation begins.
    pub(crate) fn begin(&mut self) -> Begun {
        self.begun = self.begun.wrapping_add(1);
        let is_taken = self.takes_cpu && self.begun.is_multiple_of(CPU_EVERY);
        Begun { at: self.stage.clock.now(), cpu: is_taken.then(process::thread_cpu_time) }
    }

    /// Notes the times of an operation that is done.
    pub(crate) fn record(&mut self, operation: Operation, begun: Begun) -> Result<()> {
        if let Some(before) = begun.cpu {
            let (taken, sum) = &mut self.cpu[operation as usize];
            *taken += 1;
            *sum += process::thread_cpu_time().saturating_sub(before);
        }
        let spent = self.stage.clock.now().saturating_sub(begun.at);
        note(&mut self.measured.latency, operation, spent)?;
        if self.shared.done.load(Ordering::Relaxed) >= self.shared.mark {
            note(&mut self.measured.latency_last10, operation, spent)?;
        }
        Ok(())
    }

    /// Says that an operation about to begin is one of those that hits are counted for.
    pub(crate) fn count_read(&self) {
        self.shared.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Says that one more operation is done.
    pub(crate) fn count_done(&self) {
        if self.shared.done.fetch_add(1, Ordering::Relaxed) + 1 == self.shared.mark {
            self.shared.marked.lock().push(self.shared.sample(self.stage));
        }
    }
}
