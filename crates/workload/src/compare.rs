//! Two systems in turn, A B A B .., on the same workload: medians of the paired ratios.
//!
//! Pairs are what a noisy machine allows: both halves of a pair ran within a minute of each other. Tests stand below.

use std::fmt::Write as _;

use kelvin_base::Result;
use serde_json::{Value, json};

use crate::options::System;
use crate::report::Report;

/// Paired runs of two systems.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The pairs, in the order they ran: the first system's report, the second's.
    pub pairs: Vec<(Report, Report)>,
}

/// Runs `first` and `second` in turn, `runs` times each (at least once), through `run`.
///
/// # Errors
/// The first error that `run` reports.
pub fn compare(
    first: System,
    second: System,
    runs: usize,
    run: &mut dyn FnMut(System) -> Result<Report>,
) -> Result<Comparison> {
    let mut pairs = Vec::new();
    for _ in 0..runs.max(1) {
        pairs.push((run(first)?, run(second)?));
    }
    Ok(Comparison { pairs })
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    match numbers.len() {
        0 => 0.0,
        n if n % 2 == 1 => numbers[middle],
        _ => f64::midpoint(numbers[middle - 1], numbers[middle]),
    }
}

type Figure = fn(&Report) -> Option<f64>;

/// What is compared: name, figure, and whether more is better.
const FIGURES: [(&str, Figure, bool); 10] = [
    ("ops_per_s", |report| Some(report.whole.ops_per_s), true),
    ("ops_per_s_last10", |report| Some(report.last10.ops_per_s), true),
    ("fast_hit_percent_last10", |report| Some(report.last10.hit_rate? * 100.0), true),
    ("read_p99_us", |report| Some(report.latency.iter().find(|one| one.operation == "read")?.p99), false),
    ("cpu_us_per_op", |report| Some(report.whole.cpu_us_per_op), false),
    ("load_ops_per_s", |report| Some(report.load?.ops_per_s), true),
    ("load_settled_per_s", |report| Some(report.load?.settled_ops_per_s), true),
    ("load_cpu_us_per_op", |report| Some(report.load?.settled_cpu_us_per_op), false),
    ("fast_used_max", |report| Some(report.peaks.fast_bytes as f64), false),
    ("rss_max", |report| Some(report.peaks.rss_bytes as f64), false),
];

impl Comparison {
    /// The median over the pairs of first / second for each figure: name, first's median, second's, ratio, and
    /// whether more is better.
    #[must_use]
    pub fn ratios(&self) -> Vec<(&'static str, f64, f64, f64, bool)> {
        let row = |&(name, figure, more_is_better): &(&'static str, Figure, bool)| {
            let pairs: Option<Vec<(f64, f64)>> =
                self.pairs.iter().map(|(a, b)| figure(a).zip(figure(b))).collect();
            let pairs = pairs.filter(|pairs| pairs.iter().all(|&(_, second)| second > 0.0))?;
            let first = median(pairs.iter().map(|pair| pair.0).collect());
            let second = median(pairs.iter().map(|pair| pair.1).collect());
            let ratio = median(pairs.iter().map(|pair| pair.0 / pair.1).collect());
            Some((name, first, second, ratio, more_is_better))
        };
        FIGURES.iter().filter_map(row).collect()
    }

    /// The comparison for people.
    #[must_use]
    pub fn table(&self) -> String {
        let Some((first, second)) = self.pairs.first() else { return String::new() };
        let (first, second) = (first.options.system.name(), second.options.system.name());
        let mut table =
            format!("{:<24} {first:>14} {second:>14}  ratio (median of {})\n", "", self.pairs.len());
        for (name, a, b, ratio, more_is_better) in self.ratios() {
            let is_better = if more_is_better { ratio >= 1.0 } else { ratio <= 1.0 };
            let verdict = if is_better { "" } else { "  behind" };
            // Writing to a string cannot fail.
            let _written = writeln!(table, "{name:<24} {a:>14.1} {b:>14.1}  {ratio:.2}{verdict}");
        }
        table
    }

    /// The comparison for machines, with all reports.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let ratios: serde_json::Map<String, Value> = self
            .ratios()
            .into_iter()
            .map(|(name, a, b, ratio, _)| {
                (name.to_string(), json!({"first": a, "second": b, "ratio": ratio}))
            })
            .collect();
        let runs: Vec<Value> = self.pairs.iter().flat_map(|(a, b)| [a.to_json(), b.to_json()]).collect();
        json!({"median_ratios": ratios, "runs": runs})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::BenchOptions;
    use crate::runner::{Peaks, PhaseResult};

    #[test]
    fn ratios_are_medians_of_pairs_and_runs_alternate() {
        let mut order = Vec::new();
        let mut speeds = [20.0, 10.0, 90.0, 30.0, 10.0, 10.0].into_iter();
        let mut run = |system: System| {
            order.push(system.name());
            let options = BenchOptions::new(system, "x");
            let mut report = Report::new(&options, PhaseResult::default(), None, Peaks::default(), 0);
            report.whole.ops_per_s = speeds.next().unwrap_or(1.0);
            Ok(report)
        };
        let comparison = compare(System::FastOnly, System::RocksdbFast, 3, &mut run).unwrap();
        assert_eq!(order, ["fast-only", "rocksdb-fast"].repeat(3));
        // Ratios 2, 3 and 1: their median, and not the ratio of the medians 20 and 10.
        let ratios = comparison.ratios();
        assert_eq!((ratios[0].0, ratios[0].1, ratios[0].2), ("ops_per_s", 20.0, 10.0));
        assert!((ratios[0].3 - 2.0).abs() < 1e-9);
        assert!(comparison.table().contains("rocksdb-fast"));
        assert_eq!(comparison.to_json()["runs"].as_array().map(Vec::len), Some(6));
    }
}
