//! `kelvin demo`: two tiers at work, from an empty directory to a report.
//!
//! A store in a temporary directory, its slow tier on an emulated disk; real records are loaded and read with skew, and
//! what happened is printed and drawn. Everything is removed at the end, after Ctrl-C too. Tests:
//! `crates/cli/tests/demo.rs` runs it small.

mod phases;
mod plot;
mod records;
mod report;
mod world;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use kelvin::storage::Traffic;
use kelvin::{Error, ErrorKind, LevelInfo, Stats};
use serde_json::{Value, json};

use self::phases::{Phase, Sample};
use self::records::Records;
use self::world::{SLOW_BYTES_PER_SECOND, SLOW_READS_PER_SECOND, World};
use crate::args::bench::Demo;
use crate::commands::levels;
use crate::exit::{Exit, Failure, Outcome};
use crate::files::Output;
use crate::output::{Paint, bytes, grouped, lines, percent, print, print_json, rate, ratio, table};
use crate::progress;

/// Records at most: above, `kelvin bench` is the tool.
const RECORDS_MAX: u64 = 50_000_000;

/// Exit code after a second Ctrl-C, as shells have it.
const INTERRUPTED: i32 = 130;

/// Everything the demo saw.
pub struct Seen {
    records: u64,
    fast_capacity: u64,
    memory: u64,
    load: Phase,
    read: Phase,
    settle: Duration,
    latencies: Histogram<u64>,
    samples: Vec<Sample>,
    levels: Vec<LevelInfo>,
    stats: Stats,
    /// What went through each disk while loading and until the store was at rest, and while reading.
    loading: [Traffic; 2],
    reading: [Traffic; 2],
}

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
    let world = World::new(data_bytes)?;
    let seen = show(args, &world, records, &stop)?;
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

/// Loads, waits and reads.
fn show(args: &Demo, world: &World, records: Records, stop: &AtomicBool) -> Result<Seen, Failure> {
    let paint = Paint::for_stderr();
    tell(args, &setup(records.count, world.fast_capacity, world.memory));
    let mut samples = Vec::new();

    tell(args, &paint.bold("Loading"));
    let bar = progress::bar(Some(records.count), "records", args.output.json);
    let load = phases::load(world, records, stop, &bar, &mut samples)?;
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

    tell(args, &paint.bold("Reading: 95 % of the reads want 5 % of the records"));
    let time = if load.records == 0 { Duration::ZERO } else { Duration::from_secs(args.seconds) };
    let total = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let bar = progress::bar(Some(total), "ms", args.output.json);
    let (read, latencies) = phases::read(world, records, args.seed, time, stop, &bar, &mut samples)?;
    bar.finish_and_clear();
    tell(args, &format!("  {} reads in {:.1} s\n", grouped(read.records), read.took.as_secs_f64()));
    let reading = world.traffic();
    Ok(Seen {
        records: records.count,
        fast_capacity: world.fast_capacity,
        memory: world.memory,
        load,
        read,
        settle,
        latencies,
        samples,
        levels: world.db.levels(),
        stats: world.db.stats(),
        reading: [minus(reading[0], loading[0]), minus(reading[1], loading[1])],
        loading,
    })
}

fn minus(later: Traffic, earlier: Traffic) -> Traffic {
    Traffic {
        reads: later.reads - earlier.reads,
        read_bytes: later.read_bytes - earlier.read_bytes,
        writes: later.writes - earlier.writes,
        written_bytes: later.written_bytes - earlier.written_bytes,
    }
}

fn setup(records: u64, fast_capacity: u64, memory: u64) -> String {
    format!(
        "{} records of 1 KiB over two disks: at most {} on the fast one, the rest on an emulated slow one \
         ({} reads a second, {} MB/s). Memory: {}.",
        grouped(records),
        bytes(fast_capacity),
        grouped(SLOW_READS_PER_SECOND),
        SLOW_BYTES_PER_SECOND / 1_000_000,
        bytes(memory)
    )
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

impl Seen {
    /// What was set up, in a sentence.
    fn setup(&self) -> String {
        setup(self.records, self.fast_capacity, self.memory)
    }

    /// Bytes written to both disks for each byte of the records.
    fn write_amplification(&self) -> f64 {
        ratio(self.loading[0].written_bytes + self.loading[1].written_bytes, self.load.bytes)
    }

    /// The part of the reads answered without the slow disk.
    fn fast_hit_rate(&self) -> f64 {
        self.stats.fast_hit_rate().unwrap_or(0.0)
    }

    fn latency_us(&self, quantile: f64) -> u64 {
        self.latencies.value_at_quantile(quantile) / 1_000
    }

    /// A row for each level.
    fn places(&self) -> Vec<[String; 8]> {
        levels::rows(&self.levels)
    }

    /// What it cost: name and figure.
    fn cost(&self) -> Vec<(String, String)> {
        let per_read = |count| format!("{:.2}", ratio(count, self.read.records));
        let [fast, slow] = self.reading;
        let row = |name: &str, value: String| (name.to_string(), value);
        vec![
            row("loading", format!("{:.0} records/s", rate(self.load.records, self.load.took))),
            row("until at rest", format!("{:.1} s more", self.settle.as_secs_f64())),
            row("bytes written per byte loaded", format!("{:.1}", self.write_amplification())),
            row("reading", format!("{:.0} records/s", rate(self.read.records, self.read.took))),
            row("reads without the slow disk", format!("{:.1} %", 100.0 * self.fast_hit_rate())),
            row(
                "latency of a read",
                format!(
                    "median {} µs, 99 % {} µs, 99.9 % {} µs",
                    grouped(self.latency_us(0.5)),
                    grouped(self.latency_us(0.99)),
                    grouped(self.latency_us(0.999))
                ),
            ),
            row("I/Os of a read", format!("{} fast, {} slow", per_read(fast.reads), per_read(slow.reads))),
            row(
                "bytes read, fast and slow",
                format!("{} and {}", bytes(fast.read_bytes), bytes(slow.read_bytes)),
            ),
            row(
                "fast disk used at most",
                format!(
                    "{} of {} ({})",
                    bytes(self.stats.used_bytes_max[0]),
                    bytes(self.fast_capacity),
                    percent(self.stats.used_bytes_max[0], self.fast_capacity)
                ),
            ),
            row("slow disk used", bytes(self.stats.used_bytes[1])),
        ]
    }

    fn text(&self) -> String {
        let paint = Paint::for_stdout();
        let mut cost = table(&["What it cost", ""], &[]);
        for (name, value) in self.cost() {
            cost.add_row([name, value]);
        }
        let places = levels::table_of(&self.places());
        let title = paint.bold("Where the data lies");
        format!("{title}\n{}\n\n{}\n", lines(&places, Paint::none()), lines(&cost, paint))
    }

    fn as_json(&self) -> Value {
        let traffic = |traffic: [Traffic; 2]| {
            let one = |t: Traffic| json!({"reads": t.reads, "read_bytes": t.read_bytes, "writes": t.writes, "written_bytes": t.written_bytes});
            json!({"fast": one(traffic[0]), "slow": one(traffic[1])})
        };
        json!({
            "records": self.records,
            "load_s": self.load.took.as_secs_f64(),
            "settle_s": self.settle.as_secs_f64(),
            "reads": self.read.records,
            "read_s": self.read.took.as_secs_f64(),
            "reads_per_s": rate(self.read.records, self.read.took),
            "fast_hit_rate": self.fast_hit_rate(),
            "write_amplification": self.write_amplification(),
            "latency_us": {
                "p50": self.latency_us(0.5), "p99": self.latency_us(0.99), "p999": self.latency_us(0.999),
                "max": self.latencies.max() / 1_000,
            },
            "loading": traffic(self.loading),
            "reading": traffic(self.reading),
            "fast_capacity_bytes": self.fast_capacity,
            "fast_used_bytes_max": self.stats.used_bytes_max[0],
            "slow_used_bytes": self.stats.used_bytes[1],
            "levels": levels::as_json(&self.levels),
        })
    }
}
