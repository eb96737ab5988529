//! `kelvin bench trace` and `bench make-trace`: production traces, and synthetic ones where none is at hand.
//!
//! What a trace means and how it is replayed is the crate `kelvin-workload`'s; here are options, progress and where
//! results go. Tests: `crates/cli/tests/cli/trace.rs`.

use std::path::Path;

use kelvin::Error;
use kelvin_workload::trace::{
    MalformedLines, PrepareOptions, Prepared, Rules, Synthetic, TraceFigures, TraceFiles, prepare, replay,
    write_synthetic,
};
use kelvin_workload::{BenchOptions, Comparison, Report, System};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::bench::{Bar, DATA_OVER_FAST, Disks, json_of, limits, listener, tell};
use crate::args::trace::{MakeTrace, Trace};
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{grouped, print};

/// The least fast capacity that a store takes, bytes: what a trace of a few lines gets.
const FAST_CAPACITY_MIN: u64 = 1 << 20;

/// Prepares the trace, replays it on each system, prints, and writes what was asked for.
///
/// # Errors
/// `InvalidArgument` for malformed lines and for options that cannot be run; `Corruption` for compressed data that is
/// cut off, and for a wrong answer of a store; the store's; the output's.
pub fn run(args: &Trace) -> Outcome {
    let systems = systems(args)?;
    let malformed = if args.skip_malformed { MalformedLines::Skip } else { MalformedLines::Refuse };
    let listener = listener(&args.results, systems.len())?;
    let files = TraceFiles::new(&args.files, malformed)?;
    let wanted = PrepareOptions {
        data: args.data,
        ops: args.ops,
        rules: Rules { semantics: args.semantics.parse()?, expire: args.expire },
        memory_bytes_max: args.prepare_memory,
    };
    let work = work_dir(args.work.as_deref())?;
    let mut bar = Bar::default();
    let prepared = prepare(&files, &wanted, work.path(), &mut bar)?;
    if args.classify {
        bar.finish();
        return tell(&args.results, &text(&prepared.figures), &prepared.figures.to_json(), &[]);
    }
    let disks = Disks::new(&args.disks, false)?;
    let mut rounds = Vec::new();
    for _ in 0..args.runs.max(1) {
        let one = |system: &System| {
            let options = options(args, *system, systems.len() == 1, &disks, &prepared)?;
            let options = BenchOptions { listener: listener.clone(), ..options };
            replay(&options, &prepared, &mut bar)
        };
        rounds.push(systems.iter().map(one).collect::<kelvin::Result<Vec<Report>>>()?);
    }
    bar.finish();
    let reports: Vec<Report> = rounds.iter().flatten().cloned().collect();
    let mut tables: Vec<String> = reports.iter().map(Report::table).collect();
    let comparisons: Vec<Comparison> = (1..systems.len())
        .map(|other| {
            let pairs =
                rounds.iter().filter_map(|round| Some((round.first()?.clone(), round.get(other)?.clone())));
            Comparison { pairs: pairs.collect() }
        })
        .collect();
    tables.extend(comparisons.iter().map(Comparison::table));
    let json = match comparisons.is_empty() {
        true => json_of(&reports),
        false => compared(&prepared.figures, &systems, &comparisons, &reports),
    };
    tell(&args.results, &tables.join("\n"), &json, &reports)
}

/// Writes a synthetic trace, and says what it is like.
///
/// # Errors
/// `InvalidArgument` for shares that cannot be had; the operating system's.
pub fn make(args: &MakeTrace) -> Outcome {
    let order = Synthetic {
        data: args.data,
        ops: args.ops,
        key_size: args.key_size,
        value_size: args.value_size,
        reads: args.reads / 100.0,
        sunk: args.sunk / 100.0,
        hot: args.hot / 100.0,
        seed: args.seed,
    };
    let classes = write_synthetic(&args.file, &order, args.force)?;
    print(&format!(
        "{}: {} records of {} + {} bytes, then {} operations\n\
         {}: {:.1} % read; of the reads {:.1} % are of sunk records, {:.1} % of hot ones",
        args.file.display(),
        grouped(order.records()),
        args.key_size,
        args.value_size,
        grouped(classes.operations()),
        classes.category().name(),
        classes.read_share() * 100.0,
        classes.sunk_share() * 100.0,
        classes.hot_share() * 100.0,
    ))?;
    Ok(Exit::Ok)
}

fn systems(args: &Trace) -> Result<Vec<System>, Failure> {
    let named = if args.compare.is_empty() { std::slice::from_ref(&args.system) } else { &args.compare };
    let systems = named.iter().map(|name| name.parse()).collect::<kelvin::Result<Vec<System>>>()?;
    let is_twice = systems.iter().enumerate().any(|(index, system)| systems[..index].contains(system));
    if is_twice || args.compare.len() == 1 {
        return Err(Error::invalid("--compare is for different systems, two or more")
            .advice("write --compare kelvin,fat, or --system for one alone")
            .into());
    }
    Ok(systems)
}

/// The directory of the prepared trace; it goes with the value.
fn work_dir(parent: Option<&Path>) -> Result<TempDir, Failure> {
    let parent = parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
    let made = tempfile::Builder::new().prefix("kelvin-trace-").tempdir_in(&parent);
    Ok(made.map_err(|error| {
        Error::io("making a directory for the prepared trace", &parent, error)
            .advice("name one that is there and can be written with --work")
    })?)
}

fn options(
    args: &Trace,
    system: System,
    is_alone: bool,
    disks: &Disks,
    prepared: &Prepared,
) -> kelvin::Result<BenchOptions> {
    let defaults = BenchOptions::new(system, &disks.fast);
    // Of systems compared it is meant for the one that has it.
    let is_meant = system == System::Kelvin || is_alone;
    let data_bytes = prepared.figures.plan.data_bytes;
    Ok(BenchOptions {
        hotness: args.hotness.as_deref().filter(|_| is_meant).map(str::parse).transpose()?,
        seconds: args.seconds,
        threads: args.threads,
        slow: system.is_tiered().then(|| disks.slow.clone()),
        fast_capacity: args
            .disks
            .fast_capacity
            .or(system.is_tiered().then_some((data_bytes / DATA_OVER_FAST).max(FAST_CAPACITY_MIN))),
        memory: args.disks.memory.unwrap_or(defaults.memory),
        limits: limits(&args.disks),
        seed: args.seed,
        ..defaults
    })
}

/// What the trace is like, a line each.
fn text(figures: &TraceFigures) -> String {
    let lines = figures.lines();
    lines.iter().map(|(name, text)| format!("{name:<14} {text}")).collect::<Vec<_>>().join("\n")
}

/// Everything of a comparison: the paper's speedup is that of the final tenth.
fn compared(
    figures: &TraceFigures,
    systems: &[System],
    comparisons: &[Comparison],
    reports: &[Report],
) -> Value {
    let mut speedups = Map::new();
    let mut ratios = Map::new();
    for (system, comparison) in systems[1..].iter().zip(comparisons) {
        let found = comparison.ratios();
        let speedup = found.iter().find(|(name, ..)| *name == "ops_per_s_last10").map(|row| row.3);
        speedups.insert(system.name().to_string(), json!(speedup));
        ratios.insert(system.name().to_string(), comparison.to_json()["median_ratios"].take());
    }
    json!({
        "trace": figures.to_json(),
        "first": systems[0].name(),
        "speedups": speedups,
        "median_ratios": ratios,
        "runs": reports.iter().map(Report::to_json).collect::<Vec<_>>(),
    })
}
