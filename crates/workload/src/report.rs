//! The result of one benchmark: figures, JSON, and a table for people.
//!
//! The JSON keys are a contract with the scripts that read them; `keys_are_those_agreed` holds them fixed. A figure
//! that the system cannot tell is `null`.

use std::fmt::Write as _;

use kelvin::{Hotness, Purpose};
use serde_json::{Value, json};

use crate::best::{best_learnt_hit_rate, best_possible_hit_rate};
use crate::generate::keys::KeyDistribution;
use crate::options::{BenchOptions, Workload};
use crate::runner::{Latencies, Latency, OPERATIONS, Peaks, PhaseResult};
use crate::samples::{FINAL_FROM, Reached, Row, Stretch, THROUGHPUT_SECONDS_MIN, from_share, reached, rows};
use crate::stages::{self, StageFigures};
use crate::subject::{ByteCounts, Traffic};
use crate::trace::TraceFigures;

/// The load phase in figures.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadFigures {
    /// Until the last record was acknowledged, seconds.
    pub seconds: f64,
    /// Records a second.
    pub ops_per_s: f64,
    /// Processor time a record until then, microseconds.
    pub cpu_us_per_op: f64,
    /// From then until no flush or compaction was left to do, seconds.
    pub settle_seconds: f64,
    /// Records a second including that: what a load costs in the end, however much a system puts off.
    pub settled_ops_per_s: f64,
    /// Processor time a record including that, microseconds.
    pub settled_cpu_us_per_op: f64,
}

/// Times of one kind of operation, microseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencyFigures {
    /// The kind of operation.
    pub operation: &'static str,
    /// How many were timed.
    pub count: u64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

/// Everything one benchmark yielded.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was run.
    pub options: BenchOptions,
    /// Operations of the run phase.
    pub ops: u64,
    /// Length of the run phase, seconds.
    pub seconds: f64,
    /// The whole run phase.
    pub whole: Stretch,
    /// The final tenth of its operations.
    pub last10: Stretch,
    /// What an oracle would reach in the fast capacity; 1 for systems with one tier; `None` for a trace, whose requests
    /// follow no distribution.
    pub best_possible_hit_rate: Option<f64>,
    /// What one would reach in the final tenth that knows what was read until then, and nothing else; `None` also where that is
    /// not known ([`crate::best::best_learnt_hit_rate`]).
    pub best_learnt_hit_rate: Option<f64>,
    /// Times by operation.
    pub latency: Vec<LatencyFigures>,
    /// The same of the final tenth; empty for a phase that time ended.
    pub latency_last10: Vec<LatencyFigures>,
    /// Bytes moved in the run phase.
    pub bytes: ByteCounts,
    /// What else the system counted in the run phase.
    pub more: Vec<(String, u64)>,
    /// Highest usage over load and run.
    pub peaks: Peaks,
    /// Disk space on the slow tier at the end, bytes.
    pub slow_used_bytes: u64,
    /// The file system of the fast tier gives blocks of removed files back to its disk at once: reads and writes wait for that.
    pub fast_discards: bool,
    /// The load phase, unless a store was reused.
    pub load: Option<LoadFigures>,
    /// The timeline of the run phase.
    pub rows: Vec<Row>,
    /// From when on throughput was at least 90 % of that of the final tenth.
    pub reached: Option<Reached>,
    /// The stages of the dynamic workload, one after the other.
    pub stages: Vec<StageFigures>,
    /// The trace that was replayed, if one was.
    pub trace: Option<TraceFigures>,
}

/// [`best_learnt_hit_rate`] in the middle of the final tenth of `run`, when `kept` records fit: whatever is not an insertion names a
/// record that is there.
fn best_learnt(options: &BenchOptions, run: &PhaseResult, kept: u64) -> Option<f64> {
    if options.workload == Workload::Trace || kept >= options.records {
        return None;
    }
    let named = OPERATIONS.iter().zip(&run.latency).filter(|(operation, _)| **operation != "insert");
    let requests: u64 = named.filter_map(|(_, times)| times.as_ref()).map(|times| times.len()).sum();
    let before = requests as f64 * f64::midpoint(FINAL_FROM, 1.0);
    best_learnt_hit_rate(options.keys, options.records, kept, before)
}

fn latency_figures(latencies: &Latencies) -> Vec<LatencyFigures> {
    let figures = |(operation, times): (&&'static str, &Option<Latency>)| {
        let times = times.as_ref()?;
        let at = |quantile: f64| times.value_at_quantile(quantile) as f64 / 1000.0;
        Some(LatencyFigures {
            operation,
            count: times.len(),
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: times.max() as f64 / 1000.0,
        })
    };
    OPERATIONS.iter().zip(latencies).filter_map(figures).collect()
}

/// Times by operation, for machines.
fn latency_json(figures: &[LatencyFigures]) -> serde_json::Map<String, Value> {
    let times = |one: &LatencyFigures| {
        let figures =
            json!({"p50": one.p50, "p99": one.p99, "p999": one.p999, "max": one.max, "count": one.count});
        (one.operation.to_string(), figures)
    };
    figures.iter().map(times).collect()
}

impl Report {
    /// Draws the figures from what the phases yielded.
    #[must_use]
    pub fn new(
        options: &BenchOptions,
        run: PhaseResult,
        load: Option<LoadFigures>,
        peaks: Peaks,
        slow_used_bytes: u64,
    ) -> Self {
        let record_bytes = (options.key_size + options.value_size) as u64;
        let kept = match options.fast_capacity.filter(|_| options.system.is_tiered()) {
            Some(capacity) => capacity / record_bytes.max(1),
            None => options.records,
        };
        Self {
            options: options.clone(),
            ops: run.ops(),
            seconds: run.seconds(),
            whole: from_share(&run.samples, 0.0),
            last10: from_share(&run.samples, FINAL_FROM),
            best_possible_hit_rate: (options.workload != Workload::Trace)
                .then(|| best_possible_hit_rate(options.keys, options.records, kept)),
            best_learnt_hit_rate: best_learnt(options, &run, kept),
            latency: latency_figures(&run.latency),
            latency_last10: latency_figures(&run.latency_last10),
            bytes: run.bytes,
            rows: rows(&run.samples),
            reached: reached(&run.samples, THROUGHPUT_SECONDS_MIN, |one| Some(one.ops_per_s)),
            stages: match options.keys {
                KeyDistribution::Dynamic => stages::figures(&run.samples, options.run_ops()),
                _ => Vec::new(),
            },
            more: run.more,
            peaks,
            slow_used_bytes,
            fast_discards: false,
            load,
            trace: None,
        }
    }

    /// What the requests go to: a distribution of keys, or the files of a trace.
    #[must_use]
    pub fn keys(&self) -> String {
        self.trace.as_ref().map_or_else(|| self.options.keys.to_string(), |trace| trace.name.clone())
    }

    /// The report for machines.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut root = self.counts_json();
        for part in [self.setup_json(), self.figures_json()] {
            if let Value::Object(part) = part {
                root.extend(part);
            }
        }
        if !self.stages.is_empty() {
            root.insert("stages".to_string(), self.stages.iter().map(StageFigures::to_json).collect());
        }
        if let Some(trace) = &self.trace {
            root.insert("trace".to_string(), trace.to_json());
        }
        Value::Object(root)
    }

    /// What was counted, for machines. A name with a dot belongs into the object before the dot: later counts find their place
    /// without a change here.
    fn counts_json(&self) -> serde_json::Map<String, Value> {
        let bytes = self.bytes.named().into_iter().map(|(name, count)| (name.to_string(), json!(count)));
        let mut root = serde_json::Map::new();
        root.insert("bytes".to_string(), Value::Object(bytes.collect()));
        for (name, count) in &self.more {
            match name.split_once('.') {
                Some((object, inner)) => {
                    if let Value::Object(object) = root.entry(object).or_insert_with(|| json!({})) {
                        match inner {
                            "cpu_us" => object.insert("cpu_s".to_string(), json!(*count as f64 / 1e6)),
                            _ => object.insert(inner.to_string(), json!(count)),
                        };
                    }
                }
                None => drop(root.insert(name.clone(), json!(count))),
            }
        }
        root
    }

    /// What was run, for machines.
    fn setup_json(&self) -> Value {
        let options = &self.options;
        json!({
            "system": options.system.name(),
            "hotness": options.hotness().map(Hotness::name),
            "retention": options.hot_parts.retention,
            "hotness_check": options.hot_parts.hotness_check,
            "promotion_by_compaction": options.hot_parts.promotion_by_compaction,
            "promotion_by_flush": options.hot_parts.promotion_by_flush,
            "scan_accesses": options.hot_parts.scan_accesses,
            "workload": options.workload.name(),
            "keys": self.keys(),
            "records": options.records,
            "key_size": options.key_size,
            "value_size": options.value_size,
            "threads": options.threads,
            "seed": options.seed,
            "memory": options.memory,
            "fast_capacity": options.fast_capacity,
        })
    }

    /// What it came to, for machines.
    fn figures_json(&self) -> Value {
        let series: Vec<Value> = self.rows.iter().map(row_json).collect();
        json!({
            "ops": self.ops,
            "seconds": self.seconds,
            "ops_per_s": self.whole.ops_per_s,
            "ops_per_s_last10": self.last10.ops_per_s,
            "fast_hit_rate": self.whole.hit_rate,
            "fast_hit_rate_last10": self.last10.hit_rate,
            "best_possible_hit_rate": self.best_possible_hit_rate,
            "best_learnt_hit_rate": self.best_learnt_hit_rate,
            "latency_us": latency_json(&self.latency),
            "latency_us_last10": latency_json(&self.latency_last10),
            "cpu_us_per_op": self.whole.cpu_us_per_op,
            "cpu_us_per_op_last10": self.last10.cpu_us_per_op,
            "fast_used_bytes_max": self.peaks.fast_bytes,
            "slow_used_bytes": self.slow_used_bytes,
            "fast_discards": self.fast_discards,
            "slow_used_bytes_max": self.peaks.slow_bytes,
            "rss_peak_bytes": self.peaks.rss_bytes,
            "rss_over_limit_bytes": self.rss_over_limit_bytes(),
            "load": self.load.map(load_json),
            "ops_to_90_percent": self.reached.map(|reached| reached.ops),
            "seconds_to_90_percent": self.reached.map(|reached| reached.seconds),
            "time_series": series,
        })
    }

    /// By how much more than a tenth over `memory` was resident at a time.
    #[must_use]
    pub fn rss_over_limit_bytes(&self) -> u64 {
        let memory = self.options.memory;
        self.peaks.rss_bytes.saturating_sub(memory + memory / 10)
    }

    fn disk_lines(&self) -> Vec<(String, String)> {
        let [fast, slow] = [self.peaks.fast_bytes, self.slow_used_bytes].map(size);
        let mut lines = vec![("disk".into(), format!("fast {fast} at most, slow {slow}"))];
        if self.fast_discards {
            let delays = "on many disks each removed file delays what is read and written meanwhile";
            lines
                .push(("file system".into(), format!("the fast tier's is mounted with `discard`: {delays}")));
        }
        lines
    }

    /// The report for people: one figure a line.
    #[must_use]
    pub fn table(&self) -> String {
        let options = &self.options;
        let mut lines: Vec<(String, String)> = vec![("system".into(), options.system.to_string())];
        match &self.trace {
            None => lines.push((
                "workload".into(),
                format!("{} on {}, {} thread(s)", options.workload, options.keys, options.threads),
            )),
            Some(trace) => lines.extend(trace.lines()),
        }
        lines.push((
            "records".into(),
            format!("{} of {} + {} bytes", options.records, options.key_size, options.value_size),
        ));
        if let Some(load) = self.load {
            let load = format!(
                "{} records/s in {:.1} s, settled after {:.1} s more; {:.1} us of CPU each",
                count(load.ops_per_s),
                load.seconds,
                load.settle_seconds,
                load.settled_cpu_us_per_op
            );
            lines.push(("load".into(), load));
        }
        lines.push(("operations".into(), format!("{} in {:.1} s", self.ops, self.seconds)));
        lines.push(both("operations/s", count(self.whole.ops_per_s), count(self.last10.ops_per_s)));
        lines.push(("90 % of final".into(), reached_text(self.reached)));
        let learnt = match self.best_learnt_hit_rate {
            Some(learnt) => format!(", {} by what was read before", share(Some(learnt))),
            None => String::new(),
        };
        let best = share(self.best_possible_hit_rate);
        let hits = format!("{} (best possible {best}{learnt})", share(self.last10.hit_rate));
        lines.push(both("fast hits", share(self.whole.hit_rate), hits));
        let cpu = |stretch: &Stretch| format!("{:.2} us", stretch.cpu_us_per_op);
        lines.push(both("CPU/operation", cpu(&self.whole), cpu(&self.last10)));
        for one in &self.latency {
            let times = format!(
                "p50 {:.1}  p99 {:.1}  p99.9 {:.1}  max {:.0} us",
                one.p50, one.p99, one.p999, one.max
            );
            lines.push((one.operation.into(), times));
        }
        let moved: Vec<String> = self
            .bytes
            .named()
            .into_iter()
            .filter_map(|(name, bytes)| Some(format!("{} {}", name.replace('_', " "), size(bytes?))))
            .collect();
        lines.push(("bytes".into(), moved.join(", ")));
        lines.extend(self.disk_lines());
        let over = match self.rss_over_limit_bytes() {
            0 => String::new(),
            bytes => format!(", {} more than a tenth over the limit", size(bytes)),
        };
        let resident = size(self.peaks.rss_bytes);
        lines.push((
            "memory".into(),
            format!("{resident} resident at most of {}{over}", size(options.memory)),
        ));
        for stage in &self.stages {
            lines.push((stage.name.into(), stage_text(stage)));
        }
        let mut table = String::new();
        for (name, text) in lines {
            // Writing to a string cannot fail.
            let _written = writeln!(table, "{name:<14} {text}");
        }
        table
    }
}

fn load_json(load: LoadFigures) -> Value {
    json!({
        "seconds": load.seconds,
        "ops_per_s": load.ops_per_s,
        "cpu_us_per_op": load.cpu_us_per_op,
        "settle_seconds": load.settle_seconds,
        "settled_ops_per_s": load.settled_ops_per_s,
        "settled_cpu_us_per_op": load.settled_cpu_us_per_op,
    })
}

fn row_json(row: &Row) -> Value {
    json!({
        "second": row.seconds,
        "ops": row.ops,
        "ops_per_s": row.ops_per_s,
        "fast_hit_rate": row.hit_rate,
        "cpu_us_per_op": row.cpu_us_per_op,
        "hot_set_bytes": row.hot_set.map(|set| set.bytes),
        "hot_set_limit_bytes": row.hot_set.map(|set| set.limit_bytes),
        "bytes_per_s": row.traffic.map(|traffic| traffic_json(&traffic)),
    })
}

/// Bytes by purpose, fast and slow, of the purposes that moved any.
fn traffic_json(traffic: &Traffic) -> Value {
    let both = Purpose::ALL.iter().zip(traffic.0);
    let moved = both.filter(|(_, tiers)| tiers.iter().any(|bytes| *bytes > 0.0));
    moved.map(|(purpose, tiers)| (purpose.name().to_string(), json!(tiers.map(f64::round)))).collect()
}

/// When the throughput had come up to nine tenths of its final height.
fn reached_text(reached: Option<Reached>) -> String {
    reached.map_or_else(
        || "the run is too short to tell".to_string(),
        |one| format!("after {} operations ({:.1} s)", one.ops, one.seconds),
    )
}

fn stage_text(stage: &StageFigures) -> String {
    let back = stage.hits_reached.map_or_else(
        || "unknown".to_string(),
        |one| format!("after {:.1} % of the stage", one.share * 100.0),
    );
    let hot_set = stage.hot_set.map_or_else(String::new, |set| {
        format!("; hot set {} of at most {}", size(set.bytes), size(set.limit_bytes))
    });
    format!(
        "{} operations/s, final tenth {}; fast hits, final tenth {}, 90 % of that {back}{hot_set}",
        count(stage.whole.ops_per_s),
        count(stage.last10.ops_per_s),
        share(stage.last10.hit_rate),
    )
}

fn both(name: &str, whole: String, last: String) -> (String, String) {
    (name.to_string(), format!("{whole}; final tenth {last}"))
}

fn share(rate: Option<f64>) -> String {
    rate.map_or_else(|| "unknown".to_string(), |rate| format!("{:.1} %", rate * 100.0))
}

fn count(number: f64) -> String {
    match number {
        n if n >= 1e6 => format!("{:.2} M", n / 1e6),
        n if n >= 1e4 => format!("{:.1} k", n / 1e3),
        n => format!("{n:.0}"),
    }
}

fn size(bytes: u64) -> String {
    match bytes as f64 {
        n if n >= 1e9 => format!("{:.2} GB", n / 1e9),
        n if n >= 1e6 => format!("{:.1} MB", n / 1e6),
        n => format!("{:.0} kB", n / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::System;

    #[test]
    fn a_disk_that_waits_for_removed_files_is_told_of() {
        let options = BenchOptions::new(System::FastOnly, "x");
        let report = Report::new(&options, PhaseResult::default(), None, Peaks::default(), 0);
        assert!(!report.table().contains("discard"));
        assert!(Report { fast_discards: true, ..report }.table().contains("mounted with `discard`"));
    }

    #[test]
    fn keys_are_those_agreed() {
        let options = BenchOptions::new(System::FastOnly, "x");
        let run = PhaseResult {
            more: vec![
                ("bytes.retained".into(), 5),
                ("ralt.read_bytes".into(), 6),
                ("ralt.cpu_us".into(), 1_500_000),
            ],
            ..PhaseResult::default()
        };
        let json = Report::new(&options, run, None, Peaks::default(), 0).to_json();
        for key in "system workload keys records ops seconds ops_per_s ops_per_s_last10 fast_hit_rate \
             fast_hit_rate_last10 best_possible_hit_rate best_learnt_hit_rate latency_us latency_us_last10 cpu_us_per_op cpu_us_per_op_last10 bytes \
             fast_used_bytes_max slow_used_bytes fast_discards rss_peak_bytes rss_over_limit_bytes ops_to_90_percent seconds_to_90_percent time_series \
             retention hotness_check promotion_by_compaction promotion_by_flush scan_accesses"
            .split_whitespace()
        {
            assert!(json.get(key).is_some(), "{key}");
        }
        for key in "flushed compaction_read compaction_written fast_read fast_written slow_read slow_written"
            .split(' ')
        {
            assert!(json["bytes"].get(key).is_some(), "bytes.{key}");
        }
        assert_eq!((&json["bytes"]["retained"], &json["ralt"]["read_bytes"]), (&json!(5), &json!(6)));
        assert_eq!((&json["ralt"]["cpu_s"], &json["hotness"]), (&json!(1.5), &json!("off")));
    }
}
