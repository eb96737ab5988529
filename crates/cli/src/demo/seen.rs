//! Everything the demo saw, as text and as JSON: what loading cost, the reads without hotness and with it, where the data lies.
//!
//! Tests: `crates/cli/tests/cli/demo.rs`.

use std::time::Duration;

use hdrhistogram::Histogram;
use kelvin::storage::Traffic;
use kelvin::{LevelInfo, Stats};
use serde_json::{Value, json};

use super::phases::{Phase, Sample};
use super::world::{SLOW_BYTES_PER_SECOND, SLOW_READS_PER_SECOND};
use crate::commands::levels;
use crate::output::{Paint, bytes, grouped, lines, percent, rate, ratio, table};

/// What was read, with a tracker of hot records or without.
pub struct Reads {
    /// How many, and how long it took.
    pub phase: Phase,
    /// How long each took, nanoseconds.
    pub latencies: Histogram<u64>,
    /// The store's counts at the end.
    pub stats: Stats,
    /// What went through each disk meanwhile.
    pub traffic: [Traffic; 2],
    /// Reads a second in the last quarter.
    pub pace_at_end: f64,
    /// The part of those that did not touch the slow disk.
    pub hits_at_end: f64,
}

/// Everything the demo saw.
pub struct Seen {
    /// Records that were loaded.
    pub records: u64,
    /// The limit on the fast disk, bytes.
    pub fast_capacity: u64,
    /// The limit on memory, bytes.
    pub memory: u64,
    /// Loading.
    pub load: Phase,
    /// From then until the store was at rest.
    pub settle: Duration,
    /// What went through each disk until then.
    pub loading: [Traffic; 2],
    /// Reads without hotness, and with it.
    pub reads: [Reads; 2],
    /// What was seen over time.
    pub samples: Vec<Sample>,
    /// The levels at the end.
    pub levels: Vec<LevelInfo>,
    /// Bytes on each disk at the end.
    pub used_bytes: [u64; 2],
}

/// What is set up, in a sentence.
pub fn setup(records: u64, fast_capacity: u64, memory: u64) -> String {
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

impl Reads {
    /// The part of all reads that did not touch the slow disk.
    fn hit_rate(&self) -> f64 {
        self.stats.fast_hit_rate().unwrap_or(0.0)
    }

    fn latency_us(&self, quantile: f64) -> u64 {
        self.latencies.value_at_quantile(quantile) / 1_000
    }

    fn as_json(&self) -> Value {
        let stats = &self.stats;
        json!({
            "reads": self.phase.records,
            "read_s": self.phase.took.as_secs_f64(),
            "reads_per_s": rate(self.phase.records, self.phase.took),
            "reads_per_s_at_end": self.pace_at_end,
            "fast_hit_rate": self.hit_rate(),
            "fast_hit_rate_at_end": self.hits_at_end,
            "latency_us": {
                "p50": self.latency_us(0.5), "p99": self.latency_us(0.99), "p999": self.latency_us(0.999),
                "max": self.latencies.max() / 1_000,
            },
            "traffic": traffic_json(self.traffic),
            "promoted_bytes": stats.boundary.flushed_bytes + stats.boundary.promoted_bytes,
        })
    }
}

fn traffic_json(traffic: [Traffic; 2]) -> Value {
    let one = |t: Traffic| json!({"reads": t.reads, "read_bytes": t.read_bytes, "writes": t.writes, "written_bytes": t.written_bytes});
    json!({"fast": one(traffic[0]), "slow": one(traffic[1])})
}

impl Seen {
    /// What was set up, in a sentence.
    pub fn setup(&self) -> String {
        setup(self.records, self.fast_capacity, self.memory)
    }

    /// Bytes written to both disks for each byte of the records.
    fn write_amplification(&self) -> f64 {
        ratio(self.loading[0].written_bytes + self.loading[1].written_bytes, self.load.bytes)
    }

    fn fast_used_bytes_max(&self) -> u64 {
        self.reads.iter().map(|reads| reads.stats.used_bytes_max[0]).max().unwrap_or(0)
    }

    /// The same reads without hotness and with it: name and two figures.
    pub fn compared(&self) -> Vec<[String; 3]> {
        let row = |name: &str, of: &dyn Fn(&Reads) -> String| {
            let [off, on] = &self.reads;
            [name.to_string(), of(off), of(on)]
        };
        let per_second = |number: f64| format!("{number:.0}/s");
        let share = |part: f64| format!("{:.1} %", 100.0 * part);
        let us = |reads: &Reads, quantile| format!("{} µs", grouped(reads.latency_us(quantile)));
        vec![
            row("reads", &|one| per_second(rate(one.phase.records, one.phase.took))),
            row("reads, at the end", &|one| per_second(one.pace_at_end)),
            row("without the slow disk", &|one| share(one.hit_rate())),
            row("without the slow disk, at the end", &|one| share(one.hits_at_end)),
            row("latency, median", &|one| us(one, 0.5)),
            row("latency, 99 %", &|one| us(one, 0.99)),
            row("I/Os of the slow disk a read", &|one| {
                format!("{:.2}", ratio(one.traffic[1].reads, one.phase.records))
            }),
        ]
    }

    /// A row for each level.
    pub fn places(&self) -> Vec<[String; 8]> {
        levels::rows(&self.levels)
    }

    /// What it cost: name and figure.
    pub fn cost(&self) -> Vec<(String, String)> {
        let row = |name: &str, value: String| (name.to_string(), value);
        let promoted = &self.reads[1].stats.boundary;
        vec![
            row("loading", format!("{:.0} records/s", rate(self.load.records, self.load.took))),
            row("until at rest", format!("{:.1} s more", self.settle.as_secs_f64())),
            row("bytes written per byte loaded", format!("{:.1}", self.write_amplification())),
            row("promoted to the fast disk", bytes(promoted.flushed_bytes + promoted.promoted_bytes)),
            row(
                "fast disk used at most",
                format!(
                    "{} of {} ({})",
                    bytes(self.fast_used_bytes_max()),
                    bytes(self.fast_capacity),
                    percent(self.fast_used_bytes_max(), self.fast_capacity)
                ),
            ),
            row("slow disk used", bytes(self.used_bytes[1])),
        ]
    }

    /// For people.
    pub fn text(&self) -> String {
        let paint = Paint::for_stdout();
        let mut compared =
            table(&["The same reads", "hotness off", "hotness on"], &["hotness off", "hotness on"]);
        for row in self.compared() {
            compared.add_row(row);
        }
        let mut cost = table(&["What it cost", ""], &[]);
        for (name, value) in self.cost() {
            cost.add_row([name, value]);
        }
        let places = levels::table_of(&self.places());
        let title = paint.bold("Where the data lies");
        format!(
            "{}\n\n{title}\n{}\n\n{}\n",
            lines(&compared, paint),
            lines(&places, Paint::none()),
            lines(&cost, paint)
        )
    }

    /// For programs.
    pub fn as_json(&self) -> Value {
        let [off, on] = &self.reads;
        json!({
            "records": self.records,
            "load_s": self.load.took.as_secs_f64(),
            "settle_s": self.settle.as_secs_f64(),
            "write_amplification": self.write_amplification(),
            "loading": traffic_json(self.loading),
            "hotness_off": off.as_json(),
            "hotness_on": on.as_json(),
            "fast_capacity_bytes": self.fast_capacity,
            "fast_used_bytes_max": self.fast_used_bytes_max(),
            "slow_used_bytes": self.used_bytes[1],
            "levels": levels::as_json(&self.levels),
        })
    }
}
