//! What client threads of a phase share, whatever makes their operations: counts, times, the end of the phase.
//!
//! Invariant: an operation is counted once it is done, and whoever does the last one before the final tenth takes a
//! sample, so that the final tenth begins at a known moment. Tests: the runner's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use kelvin_base::sync::Mutex;
use kelvin_base::{Error, Result, Signal, process};

use super::{Latencies, Latency, Stage};
use crate::samples::Sample;
use crate::subject::Counters;

/// Longest time that is told apart, nanoseconds; longer ones count as this.
const LATENCY_NS_MAX: u64 = 600_000_000_000;

/// What a phase does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Stores every record once.
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
        let Counters { slow_hits, hot_set, .. } = stage.subject.counters();
        let watching = Duration::from_nanos(self.watching_ns.load(Ordering::Relaxed));
        Sample {
            seconds: stage.clock.now().saturating_sub(self.start).as_secs_f64(),
            ops,
            reads,
            slow_hits: slow_hits.zip(self.slow_hits_start).map(|(now, then)| now.saturating_sub(then)),
            cpu_seconds: cpu_time(stage, watching).saturating_sub(self.cpu_start).as_secs_f64(),
            hot_set,
        }
    }
}

/// A client thread's side of a phase.
pub(crate) struct Client<'a> {
    stage: &'a Stage<'a>,
    shared: &'a Shared,
    latency: Latencies,
}

impl<'a> Client<'a> {
    pub(super) fn new(stage: &'a Stage<'a>, shared: &'a Shared) -> Self {
        Self { stage, shared, latency: Latencies::default() }
    }

    /// Works until nothing is left, the phase is stopped, or something fails.
    pub(super) fn work(mut self, work: &(dyn Fn(&mut Self) -> Result<()> + Sync)) -> Latencies {
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
        self.latency
    }

    /// True if the phase is to end: its time is over, or another client failed.
    pub(crate) fn is_stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    /// The time at which an operation begins.
    pub(crate) fn begin(&self) -> Duration {
        self.stage.clock.now()
    }

    /// Notes the time of an operation that began at `start`.
    pub(crate) fn record(&mut self, operation: Operation, start: Duration) -> Result<()> {
        let spent = self.stage.clock.now().saturating_sub(start);
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
