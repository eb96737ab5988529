//! `kelvin bench`: one system under one workload, or two in turn. `bench paper` is [`super::paper`], `bench trace`
//! [`super::trace`], `bench device` [`super::device`].
//!
//! What is measured and how is the crate `kelvin-workload`'s; here are options, progress and where results go.

use std::io::Write;
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use kelvin::events::Listener;
use kelvin::{Error, HotParts};
use kelvin_workload::{
    BenchOptions, DeviceLimits, Progress, ProgressUpdate, Report, System, compare, html, run as measure,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::args::bench::{Bench, DiskArgs, ResultArgs, WorkArgs};
use crate::args::paper::BenchCommand;
use crate::events;
use crate::exit::{Exit, Failure, Outcome};
use crate::files::{Output, is_dash};
use crate::output::print;
use crate::progress;

/// The data is this many times the fast capacity, where none is given (DESIGN section 12).
pub(super) const DATA_OVER_FAST: u64 = 11;

/// Measures, prints, and writes what was asked for.
///
/// # Errors
/// `InvalidArgument` for options that cannot be run; the store's; the output's.
pub fn run(args: &Bench) -> Outcome {
    match &args.command {
        None => {}
        Some(BenchCommand::Paper(paper)) => return super::paper::run(paper),
        Some(BenchCommand::Trace(trace)) => return super::trace::run(trace),
        Some(BenchCommand::MakeTrace(order)) => return super::trace::make(order),
        Some(BenchCommand::Device(device)) => return super::device::run(device),
    }
    let system: System = args.work.system.parse()?;
    let other = args.vs.as_deref().map(str::parse::<System>).transpose()?;
    let listener = listener(&args.results, 1 + usize::from(other.is_some()))?;
    let disks = Disks::new(&args.disks, args.reuse)?;
    let mut bar = Bar::default();
    let mut one = |system: System| {
        measure(&BenchOptions { listener: listener.clone(), ..options(args, system, &disks)? }, &mut bar)
    };
    let (reports, table, json) = match other {
        Some(other) => {
            let comparison = compare(system, other, args.runs, &mut one)?;
            let reports = comparison.pairs.iter().flat_map(|(a, b)| [a.clone(), b.clone()]).collect();
            (reports, comparison.table(), comparison.to_json())
        }
        None => {
            let reports: Vec<Report> =
                (0..args.runs.max(1)).map(|_| one(system)).collect::<kelvin::Result<_>>()?;
            let tables: Vec<String> = reports.iter().map(Report::table).collect();
            (reports.clone(), tables.join("\n"), json_of(&reports))
        }
    };
    bar.finish();
    tell(&args.results, &table, &json, &reports)
}

/// Who is told of the events of the store, if `--events` is given.
pub(super) fn listener(to: &ResultArgs, systems: usize) -> Result<Option<Listener>, Failure> {
    if to.events.is_some() && systems > 1 {
        return Err(Error::invalid("--events is for one system: nothing says which one an event is of")
            .advice("measure each alone, with --reuse if the stores are to be loaded once")
            .into());
    }
    Ok(to.events.as_deref().map(events::listener).transpose()?.map(Listener))
}

/// Prints the table, or the JSON in its place, and writes the files asked for.
pub(super) fn tell(to: &ResultArgs, table: &str, json: &Value, reports: &[Report]) -> Outcome {
    if !to.json.as_deref().is_some_and(is_dash) {
        print(table.trim_end())?;
    }
    if let Some(path) = &to.json {
        write(path, &format!("{json:#}\n"))?;
    }
    if let Some(path) = &to.html {
        write(path, &html(reports)?)?;
    }
    Ok(Exit::Ok)
}

/// One report as it is; several as a list.
pub(super) fn json_of(reports: &[Report]) -> Value {
    match reports {
        [one] => one.to_json(),
        many => many.iter().map(Report::to_json).collect(),
    }
}

/// Results replace those of an earlier run.
pub(super) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let mut output = Output::create(Some(path), true)?;
    output.write_all(text.as_bytes())?;
    output.complete()
}

/// Where the stores are: what was given, or a temporary directory that goes with this value.
pub(super) struct Disks {
    pub(super) fast: PathBuf,
    pub(super) slow: PathBuf,
    _temporary: Option<TempDir>,
}

impl Disks {
    pub(super) fn new(args: &DiskArgs, reuse: bool) -> Result<Self, Failure> {
        if let (Some(fast), Some(slow)) = (&args.fast, &args.slow) {
            return Ok(Self { fast: fast.clone(), slow: slow.clone(), _temporary: None });
        }
        if reuse && args.fast.is_none() {
            return Err(Error::invalid("--reuse needs the directory of an earlier run")
                .advice("give --fast, and --slow for systems with two tiers")
                .into());
        }
        let parent = std::env::temp_dir();
        let dir = tempfile::Builder::new()
            .prefix("kelvin-bench-")
            .tempdir()
            .map_err(|error| Error::io("making a temporary directory", &parent, error))?;
        let fast = args.fast.clone().unwrap_or_else(|| dir.path().join("fast"));
        let slow = args.slow.clone().unwrap_or_else(|| dir.path().join("slow"));
        Ok(Self { fast, slow, _temporary: Some(dir) })
    }
}

fn options(args: &Bench, system: System, disks: &Disks) -> kelvin::Result<BenchOptions> {
    // Of two systems compared it is meant for the one that has it.
    let is_meant = system == System::Kelvin || args.vs.is_none();
    Ok(BenchOptions {
        slow: system.is_tiered().then(|| disks.slow.clone()),
        limits: limits(&args.disks),
        reuse: args.reuse,
        ..options_of(&args.work, system, is_meant, &disks.fast, args.disks.fast_capacity, args.disks.memory)?
    })
}

/// What is run on `system`, and in how much space and memory; `is_meant` says if it is that system's hotness that was asked for.
pub(super) fn options_of(
    work: &WorkArgs,
    system: System,
    is_meant: bool,
    fast: &Path,
    fast_capacity: Option<u64>,
    memory: Option<u64>,
) -> kelvin::Result<BenchOptions> {
    let defaults = BenchOptions::new(system, fast);
    let data_bytes = work.records.saturating_mul((work.key_size + work.value_size) as u64);
    let hotness = work.hotness.as_deref().filter(|_| is_meant).map(str::parse).transpose()?;
    let mut hot_parts = HotParts::default();
    if is_meant {
        hot_parts = work.ablations.parts();
        hot_parts.scan_accesses = work.scan_accesses;
    }
    Ok(BenchOptions {
        hotness,
        hot_parts,
        workload: work.workload.parse()?,
        keys: work.keys.parse()?,
        records: work.records,
        key_size: work.key_size,
        value_size: work.value_size,
        ops: work.ops,
        seconds: work.seconds,
        threads: work.threads,
        fast_capacity: fast_capacity.or(system.is_tiered().then_some(data_bytes / DATA_OVER_FAST)),
        memory: memory.unwrap_or(defaults.memory),
        scan_length: work.scan_length,
        warm_up: work.warm_up,
        bulk_load: work.bulk_load,
        seed: work.seed,
        ..defaults
    })
}

/// How fast the disks are.
pub(super) const fn limits(disks: &DiskArgs) -> DeviceLimits {
    DeviceLimits {
        slow_read_iops: disks.slow_read_iops,
        slow_write_iops: disks.slow_write_iops,
        slow_bandwidth: disks.slow_bandwidth,
        slow_latency: disks.slow_latency,
        fast_read_iops: disks.fast_read_iops,
        fast_bandwidth: disks.fast_bandwidth,
    }
}

/// A progress bar for each phase.
#[derive(Default)]
pub(super) struct Bar {
    phase: &'static str,
    bar: Option<ProgressBar>,
}

impl Bar {
    pub(super) fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// Seconds as the bar counts them.
fn millis(seconds: f64) -> u64 {
    u64::try_from(std::time::Duration::from_secs_f64(seconds.clamp(0.0, 1e9)).as_millis()).unwrap_or(u64::MAX)
}

impl Progress for Bar {
    fn update(&mut self, update: &ProgressUpdate) {
        if self.phase != update.phase {
            self.finish();
            self.phase = update.phase;
        }
        let bar = self.bar.get_or_insert_with(|| match (update.total, update.seconds_total) {
            (Some(total), _) if update.is_reading() => progress::bar(Some(total), "bytes", false),
            (Some(total), _) => progress::bar(Some(total), "operations", false),
            (None, Some(seconds)) => progress::bar(Some(millis(seconds)), "ms", false),
            (None, None) => progress::bar(None, "operations", false),
        });
        let by_time = update.total.is_none() && update.seconds_total.is_some();
        bar.set_position(if by_time { millis(update.seconds) } else { update.done });
        if update.is_reading() {
            return bar.set_message(update.phase);
        }
        let hits = update.hit_rate.map(|rate| format!(", {:.0} % fast", 100.0 * rate)).unwrap_or_default();
        bar.set_message(format!("{}: {:.0} operations/s{hits}", update.phase, update.ops_per_s));
    }
}
