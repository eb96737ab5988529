//! Loads the store under test, drives it, and watches it meanwhile.
//!
//! Operations come in chunks; the operations of a chunk follow from the seed and the chunk's number alone, so the list
//! is the same for any number of threads. Every value read is checked against what was written ([`Versions`]); the
//! first failure stops the phase and is the result. Time, processor time, memory, disk usage and hits are sampled each
//! 100 ms ([`watch`]). Tests: `tests.rs`.

mod client;
mod watch;
mod worker;

#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicU64;

use hdrhistogram::Histogram;
use kelvin_base::{Clock, Error, OrderedStore, Result};

use crate::dirs;
use crate::generate::keys::KeySampler;
use crate::generate::records::Records;
use crate::options::{BenchOptions, Workload};
use crate::report::{LoadFigures, Report};
use crate::samples;
use crate::subject::{ByteCounts, Subject};
use crate::versions::Versions;

pub(crate) use client::{Client, Operation, Phase};
pub(crate) use watch::Extent;
pub use watch::{NoProgress, Peaks, Progress, ProgressUpdate};
use worker::{Inserts, Worker};

/// The kinds of operation that are timed apart.
pub const OPERATIONS: [&str; 6] = ["read", "update", "insert", "scan", "modify", "delete"];
/// Times of one kind of operation, nanoseconds.
pub type Latency = Histogram<u32>;
/// Times by operation, in the order of [`OPERATIONS`].
pub type Latencies = [Option<Latency>; OPERATIONS.len()];

/// What a phase yielded.
#[derive(Clone, Debug, Default)]
pub struct PhaseResult {
    /// Samples from first to last.
    pub samples: Vec<samples::Sample>,
    /// Times by operation, in the order of [`OPERATIONS`].
    pub latency: Latencies,
    /// The same of the final tenth of the operations.
    pub latency_last10: Latencies,
    /// Highest memory and disk usage.
    pub peaks: Peaks,
    /// Bytes moved during the phase.
    pub bytes: ByteCounts,
    /// What else the system counted during the phase.
    pub more: Vec<(String, u64)>,
}

impl PhaseResult {
    /// Length of the phase, seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.samples.last().map_or(0.0, |last| last.seconds)
    }

    /// Operations done.
    #[must_use]
    pub fn ops(&self) -> u64 {
        self.samples.last().map_or(0, |last| last.ops)
    }
}

/// What the phases of every benchmark share, whatever makes its operations.
#[derive(Clone, Copy)]
pub(crate) struct Stage<'a> {
    pub(crate) options: &'a BenchOptions,
    pub(crate) subject: &'a dyn Subject,
    pub(crate) clock: &'a dyn Clock,
}

/// Everything the phases of a benchmark with generated operations share.
struct Bench<'a> {
    stage: Stage<'a>,
    records: Records,
    sampler: KeySampler,
    inserts: Inserts,
    versions: Versions,
}

impl Bench<'_> {
    const fn options(&self) -> &BenchOptions {
        self.stage.options
    }

    fn store(&self) -> &dyn OrderedStore {
        self.stage.subject.store()
    }

    /// Runs one phase to its end.
    fn phase(&self, phase: Phase, progress: &mut dyn Progress) -> Result<PhaseResult> {
        let options = self.options();
        let (total, seconds) = match phase {
            Phase::Load => (Some(options.records - options.bulk_records()), None),
            Phase::BulkLoad => return self.bulk_load(options.bulk_records(), progress),
            Phase::Settle => return self.stage.settle(progress),
            Phase::WarmUp => (Some(options.warm_up), None),
            Phase::Run if options.seconds.is_some() => (options.ops, options.seconds),
            Phase::Run => (Some(options.run_ops()), None),
        };
        let chunks = AtomicU64::new(0);
        let work = |client: &mut Client<'_>| {
            Worker::new(self, client, phase).work(&chunks, total.unwrap_or(u64::MAX))
        };
        self.stage.phase(phase, Extent { total, seconds, threads: options.threads }, &work, progress)
    }

    /// Loads `records` records at once.
    fn bulk_load(&self, records: u64, progress: &mut dyn Progress) -> Result<PhaseResult> {
        let work = |client: &mut Client<'_>| {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            self.stage.subject.bulk_load(&mut |put| {
                for index in self.records.in_key_order(records).take_while(|_| !client.is_stopped()) {
                    self.records.key_into(index, &mut key);
                    self.records.value_into(index, 0, &mut value);
                    put(&key, &value)?;
                    client.count_done();
                }
                Ok(())
            })
        };
        let extent = Extent { total: Some(records), seconds: None, threads: 1 };
        self.stage.phase(Phase::BulkLoad, extent, &work, progress)
    }
}

impl Stage<'_> {
    /// Waits until the store has no background work left.
    pub(crate) fn settle(&self, progress: &mut dyn Progress) -> Result<PhaseResult> {
        let extent = Extent { total: None, seconds: None, threads: 1 };
        self.phase(Phase::Settle, extent, &|_| self.subject.settle(), progress)
    }
}

/// Opens the system that `options` names and measures it.
///
/// # Errors
/// `InvalidArgument` for options that cannot be run; whatever the store reports; `Corruption` for a wrong value.
pub fn run(options: &BenchOptions, progress: &mut dyn Progress) -> Result<Report> {
    options.check()?;
    if options.reuse {
        for dir in [Some(options.fast_dir()), options.slow_dir()].iter().flatten() {
            if !dirs::is_marked(dir) {
                return Err(Error::invalid("there is no benchmark's store to reuse")
                    .file(dir)
                    .advice("run once without --reuse"));
            }
        }
    } else {
        make_dirs(options)?;
    }
    let subject = crate::systems::open(options)?;
    let report = run_on(options, &*subject, &kelvin_base::SystemClock::new(), progress)?;
    Ok(Report { fast_discards: kelvin_storage::os::discards(&options.fast_dir()), ..report })
}

/// Makes the directories of the store anew.
pub(crate) fn make_dirs(options: &BenchOptions) -> Result<()> {
    let dirs = [Some(options.fast_dir()), options.slow_dir()];
    dirs.iter().flatten().try_for_each(|dir| dirs::make_fresh(dir))
}

/// Measures a store that is already open: empty, or with `options.reuse` loaded by an earlier run.
///
/// # Errors
/// As [`run`].
pub fn run_on(
    options: &BenchOptions,
    subject: &dyn Subject,
    clock: &dyn Clock,
    progress: &mut dyn Progress,
) -> Result<Report> {
    let mix = options.workload.mix();
    let is_updating = mix.update + mix.modify > 0;
    let records = Records::new(options.key_size, options.value_size, options.seed)?;
    let bench = Bench {
        stage: Stage { options, subject, clock },
        records: if options.sparse_values { records.sparse() } else { records },
        sampler: KeySampler::new(options.keys, options.records, options.run_ops(), options.seed)?,
        inserts: Inserts::new(options.records),
        versions: Versions::new(if is_updating && !options.reuse { options.records } else { 0 }),
    };
    let loaded = if options.reuse { None } else { Some(load(&bench, progress)?) };
    let (load, loaded) = loaded.map_or((None, None), |(figures, phase)| (Some(figures), Some(phase)));
    let mut peaks = Peaks::default();
    let run = match (options.workload, &loaded) {
        (Workload::Load, Some(loaded)) => loaded.clone(),
        (Workload::Load, None) => {
            return Err(Error::invalid("--reuse leaves nothing to do for the workload 'load'")
                .advice("leave --reuse out"));
        }
        _ => {
            if options.warm_up > 0 {
                peaks.include(&bench.phase(Phase::WarmUp, progress)?.peaks);
            }
            bench.phase(Phase::Run, progress)?
        }
    };
    peaks.include(&run.peaks);
    if let Some(loaded) = &loaded {
        peaks.include(&loaded.peaks);
    }
    let slow_used = match subject.used() {
        Some(used) => used.slow_bytes,
        None => options.slow_dir().map_or(0, |dir| dirs::used_bytes(&dir)),
    };
    Ok(Report::new(options, run, load, peaks, slow_used))
}

/// Loads all records and lets the store settle; how long that took, and the last phase of it that stored any.
fn load(bench: &Bench<'_>, progress: &mut dyn Progress) -> Result<(LoadFigures, PhaseResult)> {
    let (records, at_once) = (bench.options().records, bench.options().bulk_records());
    let mut phases = Vec::new();
    if at_once > 0 {
        phases.push(bench.phase(Phase::BulkLoad, progress)?);
    }
    if at_once < records {
        phases.push(bench.phase(Phase::Load, progress)?);
    }
    let settled = bench.phase(Phase::Settle, progress)?;
    let figures = load_figures(&phases, &settled, records);
    let mut last = phases.pop().unwrap_or_default();
    phases.iter().chain([&settled]).for_each(|phase| last.peaks.include(&phase.peaks));
    Ok((figures, last))
}

/// What loading `records` records by `phases` and letting the store settle took.
pub(crate) fn load_figures(phases: &[PhaseResult], settled: &PhaseResult, records: u64) -> LoadFigures {
    let cpu_seconds = |phase: &PhaseResult| phase.samples.last().map_or(0.0, |last| last.cpu_seconds);
    let seconds: f64 = phases.iter().map(PhaseResult::seconds).sum();
    let loading_cpu: f64 = phases.iter().map(cpu_seconds).sum();
    let ops = phases.iter().map(PhaseResult::ops).sum::<u64>().max(1) as f64;
    let cpu_us_per_op = loading_cpu * 1e6 / ops;
    let records = records.max(1) as f64;
    LoadFigures {
        seconds,
        ops_per_s: ops / seconds.max(1e-9),
        cpu_us_per_op,
        settle_seconds: settled.seconds(),
        settled_ops_per_s: records / (seconds + settled.seconds()).max(1e-9),
        settled_cpu_us_per_op: cpu_us_per_op + cpu_seconds(settled) * 1e6 / records,
    }
}
