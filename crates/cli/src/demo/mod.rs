//! `kelvin demo`: two tiers at work, from an empty directory to a report.
//!
//! A store in a temporary directory, its slow tier on an emulated disk; real records are loaded and read with skew, first
//! without a tracker of hot records and then with one, and what happened is printed and drawn. Everything is removed at the
//! end, after Ctrl-C too. Tests: `crates/cli/tests/cli/demo.rs` runs it small.

mod phases;
mod records;
mod report;
mod seen;
mod world;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kelvin::storage::Traffic;
use kelvin::{Error, ErrorKind};

use self::phases::{Reading, Sample, Step};
use self::records::Records;
use self::seen::{Reads, Seen, setup};
use self::world::World;
use crate::args::bench::Demo;
use crate::exit::{Exit, Failure, Outcome};
use crate::files::Output;
use crate::output::{Paint, grouped, print, print_json};
use crate::progress;

/// Records at most: above, `kelvin bench` is the tool.
const RECORDS_MAX: u64 = 50_000_000;

/// Exit code after a second Ctrl-C, as shells have it.
const INTERRUPTED: i32 = 130;

/// Runs the demo.
///
/// # Errors
/// The store's, or the output's.
pub fn run(args: &Demo) -> Outcome {
    if args.records == 0 || args.records > RECORDS_MAX {
        return Err(Error::invalid("the demo cannot run with this many records")
            .expected(format!("1 to {RECORDS_MAX}"), args.records)
            .into());
    }
    let stop = stop_on_ctrl_c()?;
    let records = Records::new(args.seed, args.records);
    let data_bytes = args.records * (records.key(0).len() + records.value(0).len()) as u64;
    let (seen, world) = show(args, World::new(data_bytes)?, records, &stop)?;
    let report = write_report(args, &seen)?;
    if args.output.json {
        let mut summary = seen.as_json();
        summary["report"] = report.display().to_string().into();
        print_json(&summary)?;
    } else {
        print(&seen.text())?;
        print(&format!("Report with plots: {}", report.display()))?;
    }
    let (fast, slow) = (world.fast_dir.display().to_string(), world.slow_dir.display().to_string());
    let (capacity, dir) = (world.fast_capacity, world.dir().display().to_string());
    let kept = world.close(args.keep)?;
    if !args.output.json {
        print(&match kept {
            None => format!("Removed the store in {dir}."),
            Some(_) => format!(
                "The store is kept. Look around with:\n  kelvin levels --fast {fast} --slow {slow} --fast-capacity {capacity}"
            ),
        })?;
    }
    Ok(Exit::Ok)
}

/// A flag that Ctrl-C sets, so that the demo ends early and still cleans up.
fn stop_on_ctrl_c() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&stop);
    let on_signal = move || {
        // Somebody who asks twice does not want to wait for the end of a step.
        if theirs.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED);
        }
    };
    ctrlc::set_handler(on_signal)
        .map_err(|error| Error::new(ErrorKind::Io, format!("listening for Ctrl-C: {error}")))?;
    Ok(stop)
}

/// Says what is going on, on stderr, so that stdout has results only.
fn tell(args: &Demo, text: &str) {
    if !args.output.json {
        // Nobody is left to tell if stderr is closed.
        let _unheard = writeln!(std::io::stderr(), "{text}");
    }
}

/// Loads, waits and reads, twice.
fn show(args: &Demo, world: World, records: Records, stop: &AtomicBool) -> Result<(Seen, World), Failure> {
    let paint = Paint::for_stderr();
    tell(args, &setup(records.count, world.fast_capacity, world.memory));
    let mut samples = Vec::new();

    tell(args, &paint.bold("Loading"));
    let bar = progress::bar(Some(records.count), "records", args.output.json);
    let load = phases::load(&world, records, stop, &bar, &mut samples)?;
    bar.finish_and_clear();
    tell(args, &format!("  {} records in {:.1} s", grouped(load.records), load.took.as_secs_f64()));
    // Readers compare what they find with what must be there, so they know how far loading came.
    let records = Records::new(args.seed, load.records.max(1));

    tell(args, &paint.bold("Waiting until everything lies in its place"));
    let begun = world.clock.now();
    world.db.flush()?;
    world.db.wait_idle()?;
    let settle = world.clock.now().saturating_sub(begun);
    let loading = world.traffic();

    tell(args, &paint.bold("Reading without hotness: 95 % of the reads want 5 % of the records"));
    let mut read = |world: &World, step: Step| -> Result<Reads, Failure> {
        let whole = if load.records == 0 { Duration::ZERO } else { Duration::from_secs(args.seconds) };
        // Without hotness nothing changes over time: half of it shows that.
        let time = if step == Step::Off { whole / 2 } else { whole };
        read_once(args, world, records, step, time, stop, &mut samples)
    };
    let off = read(&world, Step::Off)?;
    tell(args, &paint.bold("The same reads with hotness, as it is by default"));
    let world = world.reopened_with_hotness()?;
    let on = read(&world, Step::On)?;
    tell(args, "");
    let seen = Seen {
        records: records.count,
        fast_capacity: world.fast_capacity,
        memory: world.memory,
        load,
        settle,
        loading,
        reads: [off, on],
        samples,
        levels: world.db.levels(),
        used_bytes: world.db.stats().used_bytes,
    };
    Ok((seen, world))
}

/// Reads for `time` and says what was seen.
fn read_once(
    args: &Demo,
    world: &World,
    records: Records,
    step: Step,
    time: Duration,
    stop: &AtomicBool,
    samples: &mut Vec<Sample>,
) -> Result<Reads, Failure> {
    let total = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let bar = progress::bar(Some(total), "ms", args.output.json);
    let before = world.traffic();
    let reading = Reading { step, seed: args.seed, time, stop, bar: &bar, tell: &|line| tell(args, line) };
    let (phase, latencies) = phases::read(world, records, &reading, samples)?;
    bar.finish_and_clear();
    tell(args, &format!("  {} reads in {:.1} s", grouped(phase.records), phase.took.as_secs_f64()));
    let after = world.traffic();
    let stats = world.db.stats();
    let traffic = [minus(after[0], before[0]), minus(after[1], before[1])];
    let mine: Vec<Sample> = samples.iter().filter(|sample| sample.step == step).copied().collect();
    let (pace_at_end, hits_at_end) = phases::mean(&mine[mine.len() - mine.len().div_ceil(4)..]);
    Ok(Reads { phase, latencies, stats, traffic, pace_at_end, hits_at_end })
}

fn minus(later: Traffic, earlier: Traffic) -> Traffic {
    Traffic {
        reads: later.reads - earlier.reads,
        read_bytes: later.read_bytes - earlier.read_bytes,
        writes: later.writes - earlier.writes,
        written_bytes: later.written_bytes - earlier.written_bytes,
    }
}

fn write_report(args: &Demo, seen: &Seen) -> Result<PathBuf, Failure> {
    let html = report::html(seen)?;
    if let Some(path) = &args.report {
        let mut output = Output::create(Some(path), true)?;
        output.write_all(html.as_bytes())?;
        output.complete()?;
        return Ok(path.clone());
    }
    let parent = std::env::temp_dir();
    let refuse = |error| Error::io("writing the report", &parent, error);
    let mut file =
        tempfile::Builder::new().prefix("kelvin-demo-").suffix(".html").tempfile().map_err(refuse)?;
    file.write_all(html.as_bytes()).map_err(refuse)?;
    let (_file, path) = file.keep().map_err(|error| refuse(error.error))?;
    Ok(path)
}
