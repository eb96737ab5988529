//! Runs the client threads of a phase and watches them: a sample each 100 ms, one more when the final tenth begins.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kelvin_base::{Error, ErrorKind, Result, process, sync};

use super::client::{Client, Measured, Phase, Shared};
use super::{PhaseResult, Stage};
use crate::dirs;
use crate::samples::{HotSet, Sample, from_share, put_in_order};

/// How often a phase is sampled.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// The slow directory is measured with one sample in so many: of its thousands of files each is asked for its size, by the process whose
/// time is measured.
const SLOW_EVERY: usize = 10;

/// Highest usage seen, sampled each 100 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peaks {
    /// Resident memory of the process, bytes.
    pub rss_bytes: u64,
    /// Disk space of the store's fast directory, bytes.
    pub fast_bytes: u64,
    /// Disk space of the store's slow directory, bytes.
    pub slow_bytes: u64,
}

impl Peaks {
    /// Takes the higher of each figure.
    pub fn include(&mut self, other: &Self) {
        self.rss_bytes = self.rss_bytes.max(other.rss_bytes);
        self.fast_bytes = self.fast_bytes.max(other.fast_bytes);
        self.slow_bytes = self.slow_bytes.max(other.slow_bytes);
    }
}

/// How far a phase is.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProgressUpdate {
    /// `load`, `settle`, `warm-up` or `run`; `scan`, `follow` or `prepare` while a trace is read.
    pub phase: &'static str,
    /// Operations done.
    pub done: u64,
    /// Operations to do, if that is what ends the phase.
    pub total: Option<u64>,
    /// Seconds since the phase began.
    pub seconds: f64,
    /// Seconds the phase takes, if that is what ends it.
    pub seconds_total: Option<f64>,
    /// Operations a second over the last second or so.
    pub ops_per_s: f64,
    /// Hit rate over the last second or so.
    pub hit_rate: Option<f64>,
    /// The hot set now.
    pub hot_set: Option<HotSet>,
    /// Disk space in use now, bytes.
    pub fast_used_bytes: u64,
    /// Disk space in use now, bytes.
    pub slow_used_bytes: u64,
}

impl ProgressUpdate {
    /// True while a trace is read: what is done and to do are bytes then.
    #[must_use]
    pub fn is_reading(&self) -> bool {
        matches!(self.phase, "scan" | "follow" | "prepare")
    }
}

/// Told each 100 ms how far a benchmark is.
pub trait Progress {
    /// The state now.
    fn update(&mut self, update: &ProgressUpdate);
}

/// Tells nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn update(&mut self, _update: &ProgressUpdate) {}
}

struct Watch<'a> {
    stage: &'a Stage<'a>,
    shared: &'a Shared,
    phase: Phase,
    seconds_total: Option<f64>,
    dirs: [Option<PathBuf>; 2],
    /// Processor time of this thread when it began to watch.
    cpu_start: Duration,
    samples: Vec<Sample>,
    peaks: Peaks,
    /// How often progress was told.
    told: usize,
    /// What the slow directory occupied when it was last measured.
    slow_bytes: u64,
}

impl Watch<'_> {
    fn sample(&mut self) {
        self.shared.watched(process::thread_cpu_time().saturating_sub(self.cpu_start));
        self.samples.push(self.shared.sample(self.stage));
    }

    /// What is used at this moment.
    fn used(&mut self, is_last: bool) -> Peaks {
        if let Some(used) = self.stage.subject.used() {
            return Peaks {
                rss_bytes: used.memory_bytes,
                fast_bytes: used.fast_bytes,
                slow_bytes: used.slow_bytes,
            };
        }
        let measured = |dir: &Option<PathBuf>| dir.as_deref().map_or(0, dirs::used_bytes);
        if is_last || self.told.is_multiple_of(SLOW_EVERY) {
            self.slow_bytes = measured(&self.dirs[1]);
        }
        self.told += 1;
        Peaks {
            rss_bytes: process::resident_bytes(),
            fast_bytes: measured(&self.dirs[0]),
            slow_bytes: self.slow_bytes,
        }
    }

    fn tell(&mut self, progress: &mut dyn Progress, is_last: bool) {
        let used = self.used(is_last);
        self.peaks.include(&used);
        let recent = &self.samples[self.samples.len().saturating_sub(11)..];
        let (first, last) = match (recent.first(), recent.last()) {
            (Some(first), Some(last)) => (*first, *last),
            _ => return,
        };
        let figures =
            from_share(recent, if last.ops == 0 { 0.0 } else { first.ops as f64 / last.ops as f64 });
        progress.update(&ProgressUpdate {
            phase: self.phase.name(),
            done: last.ops,
            total: self.shared.total,
            seconds: last.seconds,
            seconds_total: self.seconds_total,
            ops_per_s: figures.ops_per_s,
            hit_rate: figures.hit_rate,
            hot_set: last.hot_set,
            fast_used_bytes: used.fast_bytes,
            slow_used_bytes: used.slow_bytes,
        });
    }

    /// Samples until every client is done.
    fn watch(&mut self, progress: &mut dyn Progress) {
        self.sample();
        let clock = self.stage.clock;
        let are_done = || (self.shared.working.load(Ordering::Acquire) == 0).then_some(());
        while self.shared.ended.wait_until(clock, clock.now() + SAMPLE_EVERY, are_done).is_none() {
            self.sample();
            self.tell(progress, false);
            let elapsed = self.samples.last().map_or(0.0, |last| last.seconds);
            if self.seconds_total.is_some_and(|total| elapsed >= total) {
                self.shared.stop.store(true, Ordering::Relaxed);
            }
        }
        self.sample();
        self.samples.append(&mut self.shared.marked.lock());
        // The sample of the final tenth was taken by a client and may have come late.
        put_in_order(&mut self.samples);
        self.tell(progress, true);
    }
}

/// What ends a phase, and how many work on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// Operations to do, if that is what ends it.
    pub(crate) total: Option<u64>,
    /// Seconds it takes, if that is what ends it.
    pub(crate) seconds: Option<f64>,
    /// Client threads.
    pub(crate) threads: usize,
}

impl Stage<'_> {
    /// Runs one phase to its end; every client thread does `work`.
    pub(crate) fn phase(
        &self,
        phase: Phase,
        extent: Extent,
        work: &(dyn Fn(&mut Client<'_>) -> Result<()> + Sync),
        progress: &mut dyn Progress,
    ) -> Result<PhaseResult> {
        let before = self.subject.counters();
        let shared = Shared::new(self, extent.total, extent.threads);
        let mut watch = Watch {
            stage: self,
            shared: &shared,
            phase,
            seconds_total: extent.seconds,
            dirs: [Some(self.options.fast_dir()), self.options.slow_dir()],
            cpu_start: process::thread_cpu_time(),
            samples: Vec::new(),
            peaks: Peaks::default(),
            told: 0,
            slow_bytes: 0,
        };
        let mut measured = Measured::default();
        let times = sync::scope(|scope| {
            let start = |_| {
                let client = Client::new(self, &shared);
                scope.spawn(move || client.work(work))
            };
            let clients: Vec<_> = (0..extent.threads).map(start).collect();
            watch.watch(progress);
            clients.into_iter().map(sync::ScopedJoinHandle::join).collect::<Vec<_>>()
        });
        for one in times {
            measured.add(one.map_err(|_| Error::new(ErrorKind::Io, "a client thread panicked"))?)?;
        }
        if let Some(error) = shared.failure.lock().take() {
            return Err(error);
        }
        let after = self.subject.counters();
        let earlier =
            |name: &str| before.more.iter().find(|(one, _)| one == name).map_or(0, |(_, count)| *count);
        Ok(PhaseResult {
            samples: watch.samples,
            peaks: watch.peaks,
            bytes: after.bytes.since(&before.bytes),
            more: after
                .more
                .iter()
                .map(|(name, now)| (name.clone(), now.saturating_sub(earlier(name))))
                .chain(after.sizes.iter().cloned())
                .chain(
                    self.subject
                        .levels()
                        .into_iter()
                        .map(|(level, bytes)| (format!("levels.{level}"), bytes)),
                )
                .chain(measured.cpu())
                .collect(),
            latency: measured.latency,
            latency_last10: measured.latency_last10,
        })
    }
}
