//! Kelvin beside itself without hotness, and all on the fast disk (HotRAP Figures 6 and 7): what it gains where some records
//! are hot, and what it costs where none is.
//!
//! `uniform` runs both systems in turn, in pairs whose order changes, because a hundredth is to be seen. `speedup` asks what is
//! possible at all: a read of a cold record waits for the slow disk, so with the hit rate `h` nobody makes more than
//! its reads a second over `1 − h`. Tests: below, and `tests.rs`.

use serde_json::Value;

use super::item::RunSpec;
use super::scale::{KEY_SIZE, OPERATIONS, Scale, VALUE_SIZE};
use super::tables::{NONE, bytes, figure, percent, rate, ratio};
use super::{Paper, Table};
use crate::generate::keys::KeyDistribution;
use crate::options::{BenchOptions, System, Workload};

/// Pairs of runs of `uniform`.
const PAIRS: usize = 3;
/// The workloads of both items.
const WORKLOADS: [Workload; 2] = [Workload::Ro, Workload::Rw];
/// The values of `speedup`: records of 1 KiB and of 200 B.
const VALUE_SIZES: [usize; 2] = [VALUE_SIZE, 200 - KEY_SIZE];
/// The systems of `speedup`.
const SYSTEMS: [System; 3] = [System::Kelvin, System::Fat, System::FastOnly];
/// The paper's speedup over the second best, of [`WORKLOADS`].
const PRINTED: [f64; 2] = [5.6, 3.7];

fn uniform_name(workload: Workload, system: System, pair: usize) -> String {
    format!("uniform-{}-{system}-{pair}", workload.name().to_lowercase())
}

/// The runs of `uniform`: pairs of Kelvin with hotness and without, the one that begins changing.
pub(super) fn uniform_runs(scale: Scale) -> Vec<RunSpec> {
    // Nearly every read waits for the slow disk: an eighth of the operations reads a quarter of the records.
    let ops = (scale.of(OPERATIONS) / 8).max(1);
    let run = |workload: Workload, system: System, pair: usize| {
        let run = RunSpec::new(scale, &uniform_name(workload, system, pair), system, workload, ops);
        run.with(|options| options.keys = KeyDistribution::Uniform)
    };
    let pair = |workload: Workload, pair: usize| {
        let both = [System::Kelvin, System::Fat].map(|system| run(workload, system, pair));
        let [with, without] = both;
        if pair.is_multiple_of(2) { [without, with] } else { [with, without] }
    };
    WORKLOADS
        .iter()
        .flat_map(|&workload| (1..=PAIRS).flat_map(move |number| pair(workload, number)))
        .collect()
}

/// All that a run wrote to both disks, bytes.
fn written(report: &Value) -> Option<f64> {
    Some(figure(report, "/bytes/fast_written")? + figure(report, "/bytes/slow_written")?)
}

/// The middle of some figures, if there are any.
fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}

/// The table of `uniform`: each pair, and the medians.
pub(super) fn uniform(paper: &Paper) -> Table {
    let mut table = Table::new(
        "Figures 6 and 7: what hotness costs where nothing is hot (uniform, 1 KiB)",
        "Kelvin with hotness, over Kelvin without (fat), in pairs. With nothing to promote the throughput and what is written to \
         both disks should be within 1 %. The paper says 1.6 % of throughput; where nothing is inserted, what is written is the tracker's.",
        &[
            "pair",
            "with, operations/s",
            "without",
            "ratio",
            "with, written",
            "without",
            "ratio",
            "with, CPU us/op",
            "without",
            "promoted",
        ],
    );
    for workload in WORKLOADS {
        let (mut rates, mut bytes_written) = (Vec::new(), Vec::new());
        for pair in 1..=PAIRS {
            let reports =
                [System::Kelvin, System::Fat].map(|one| paper.report(&uniform_name(workload, one, pair)));
            let of = |pointer: &str| reports.map(|report| figure(report?, pointer));
            let [with, without] = of("/ops_per_s");
            let [written_with, written_without] = reports.map(|report| written(report?));
            let [cpu_with, cpu_without] = of("/cpu_us_per_op").map(micros);
            rates.extend(with.zip(without).map(|(with, without)| with / without));
            bytes_written.extend(written_with.zip(written_without).map(|(with, without)| with / without));
            let [flushed, _] = of("/bytes/promoted_flush");
            let [passed, _] = of("/bytes/promoted_compaction");
            table.row([
                format!("{workload} {pair}"),
                rate(with),
                rate(without),
                percent(ratio_of(with, without)),
                bytes(written_with),
                bytes(written_without),
                percent(ratio_of(written_with, written_without)),
                cpu_with,
                cpu_without,
                bytes(flushed.zip(passed).map(|(flushed, passed)| flushed + passed)),
            ]);
        }
        let mut cells = vec![NONE.to_string(); table.header.len()];
        cells[0] = format!("{workload}, median");
        cells[3] = percent(median(rates));
        cells[6] = percent(median(bytes_written).filter(|ratio| ratio.is_finite()));
        table.row(cells);
    }
    table
}

fn ratio_of(above: Option<f64>, below: Option<f64>) -> Option<f64> {
    above.zip(below).filter(|(_, below)| *below > 0.0).map(|(above, below)| above / below)
}

fn micros(number: Option<f64>) -> String {
    number.map_or_else(|| NONE.into(), |us| format!("{us:.0}"))
}

/// A row of `speedup`: a workload on records of a size.
fn rows() -> impl Iterator<Item = (usize, usize)> {
    (0..VALUE_SIZES.len()).flat_map(|size| (0..WORKLOADS.len()).map(move |workload| (size, workload)))
}

fn speedup_name((size, workload): (usize, usize), system: System) -> String {
    let bytes = VALUE_SIZES[size] + KEY_SIZE;
    format!("speedup-{bytes}b-{}-hotspot5-{system}", WORKLOADS[workload].name().to_lowercase())
}

/// The runs of `speedup`.
pub(super) fn speedup_runs(scale: Scale) -> Vec<RunSpec> {
    let run = |row: (usize, usize), system: System| {
        let (value_size, workload) = (VALUE_SIZES[row.0], WORKLOADS[row.1]);
        // As many bytes of smaller records, and as much more to do (paper §4.2).
        let times = (KEY_SIZE + VALUE_SIZE) as u64 / (KEY_SIZE + value_size) as u64;
        // What the others do, they do from the first second: as many operations show it, whatever their size.
        let part = match system {
            System::Fat => 5 * times,
            System::FastOnly => times,
            _ => 1,
        };
        let ops = (scale.of(OPERATIONS) * times / part).max(1);
        RunSpec::new(scale, &speedup_name(row, system), system, workload, ops).with(|options| {
            options.records *= times;
            options.value_size = value_size;
        })
    };
    rows().flat_map(|row| SYSTEMS.map(|system| run(row, system))).collect()
}

/// Operations a second beyond which the slow disk cannot serve the reads that miss at best; `None` for a disk without a limit.
fn physical_limit(options: &BenchOptions, best_hit_rate: f64) -> Option<f64> {
    let mix = options.workload.mix();
    let reads = f64::from(mix.read + mix.scan + mix.modify) / 100.0;
    let misses = reads * (1.0 - best_hit_rate);
    options.limits.slow_read_iops.filter(|_| misses > 0.0).map(|iops| iops as f64 / misses)
}

/// The table of `speedup`.
pub(super) fn speedup(paper: &Paper) -> Table {
    let mut table = Table::new(
        "Figures 6 and 7: Kelvin between its bounds (hotspot-5 %)",
        "Operations a second of the final tenth. 'Slow disk' is what it allows with the best possible hit rate: its reads a second over the \
         part of the operations that must miss. 'Of what is possible' is over the lower of that and of fast-only. The paper's factors \
         are over the second best of its systems.",
        &[
            "workload, record",
            "kelvin",
            "fat",
            "fast-only",
            "slow disk",
            "over fat",
            "paper: over second best",
            "of what is possible",
            "hit rate",
            "best",
        ],
    );
    for row in rows() {
        let run = |system: System| {
            let name = speedup_name(row, system);
            paper.runs.iter().find(|(run, _)| run.name == name)
        };
        let of = |system: System, pointer: &str| figure(&run(system)?.1, pointer);
        let [kelvin, fat, fast_only] = SYSTEMS.map(|system| of(system, "/ops_per_s_last10"));
        let best = of(System::Kelvin, "/best_possible_hit_rate");
        let limit =
            run(System::Kelvin).zip(best).and_then(|((run, _), best)| physical_limit(&run.options, best));
        let possible = fast_only.map(|fast| limit.map_or(fast, |limit| limit.min(fast)));
        table.row([
            format!("{}, {} B", WORKLOADS[row.1], VALUE_SIZES[row.0] + KEY_SIZE),
            rate(kelvin),
            rate(fat),
            rate(fast_only),
            rate(limit),
            ratio(kelvin, fat),
            format!("{:.1}x", PRINTED[row.1]),
            percent(ratio_of(kelvin, possible)),
            percent(of(System::Kelvin, "/fast_hit_rate_last10")),
            percent(best),
        ]);
    }
    table
}

/// What a plot of bars shows: the names of its groups, and each system's heights.
pub(super) type Bars = (Vec<String>, Vec<(String, Vec<Option<f64>>)>);

/// The plot of `speedup`.
pub(super) fn speedup_bars(paper: &Paper) -> Bars {
    let names = rows().map(|row| format!("{}, {} B", WORKLOADS[row.1], VALUE_SIZES[row.0] + KEY_SIZE));
    let series = SYSTEMS.map(|system| {
        let height = |row| figure(paper.report(&speedup_name(row, system))?, "/ops_per_s_last10");
        (system.name().to_string(), rows().map(height).collect())
    });
    (names.collect(), series.into())
}

/// The plot of `uniform`.
pub(super) fn uniform_bars(paper: &Paper) -> Bars {
    let pairs = || WORKLOADS.iter().flat_map(|&workload| (1..=PAIRS).map(move |pair| (workload, pair)));
    let series = [System::Kelvin, System::Fat].map(|system| {
        let height =
            |(workload, pair)| figure(paper.report(&uniform_name(workload, system, pair))?, "/ops_per_s");
        (system.name().to_string(), pairs().map(height).collect())
    });
    (pairs().map(|(workload, pair)| format!("{workload} {pair}")).collect(), series.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::paper::Item;

    fn scale() -> Scale {
        "1/1000".parse().unwrap()
    }

    #[test]
    fn pairs_of_uniform_runs_change_who_begins() {
        let names: Vec<String> = uniform_runs(scale()).into_iter().map(|run| run.name).collect();
        assert_eq!(
            names[..6].join(" "),
            "uniform-ro-kelvin-1 uniform-ro-fat-1 uniform-ro-fat-2 uniform-ro-kelvin-2 uniform-ro-kelvin-3 uniform-ro-fat-3"
        );
        assert_eq!(names.len(), 12);
    }

    #[test]
    fn small_records_are_as_many_bytes_and_more_operations() {
        let runs = speedup_runs(scale());
        let of = |name: &str| &runs.iter().find(|run| run.name == name).unwrap().options;
        let (large, small) = (of("speedup-1024b-ro-hotspot5-kelvin"), of("speedup-200b-ro-hotspot5-kelvin"));
        assert_eq!((large.records, small.records), (110_000, 550_000));
        assert_eq!((large.ops, small.ops), (Some(220_000), Some(1_100_000)));
        assert_eq!(of("speedup-200b-rw-hotspot5-fat").ops, of("speedup-1024b-rw-hotspot5-fat").ops);
    }

    #[test]
    fn what_is_possible_is_the_lower_of_the_slow_disk_and_of_fast_only() {
        let mut runs: Vec<(RunSpec, Value)> = Vec::new();
        for mut run in speedup_runs(scale()) {
            run.options.limits.slow_read_iops = Some(1000);
            let (rate, hits) = match run.options.system {
                System::Kelvin => (16_000, 0.95),
                System::Fat => (1_000, 0.09),
                _ => (30_000, 1.0),
            };
            runs.push((run, json!({"ops_per_s_last10": rate, "fast_hit_rate_last10": hits, "best_possible_hit_rate": 0.95})));
        }
        let paper = Paper { items: vec![Item::Speedup], scale: scale(), runs, devices: Vec::new() };
        let table = speedup(&paper);
        // 1000 over 5 % is 20 k; of RW three of four are reads.
        let expected =
            "RO, 1024 B | 16.0 k | 1000 | 30.0 k | 20.0 k | 16.00x | 5.6x | 80.0 % | 95.0 % | 95.0 %";
        assert_eq!(table.rows[0].join(" | "), expected);
        assert_eq!((table.rows[1][4].as_str(), table.rows[1][7].as_str()), ("26.7 k", "60.0 %"));
    }

    #[test]
    fn the_ratio_of_pairs_is_their_median() {
        let mut runs: Vec<(RunSpec, Value)> = Vec::new();
        for (number, run) in uniform_runs(scale()).into_iter().enumerate() {
            let rate = if run.options.system == System::Kelvin { 990 + number } else { 1000 };
            runs.push((run, json!({"ops_per_s": rate, "bytes": {"fast_written": 0, "slow_written": 0}})));
        }
        let paper = Paper { items: vec![Item::Uniform], scale: scale(), runs, devices: Vec::new() };
        let table = uniform(&paper);
        assert_eq!(table.rows[3][..4].join(" | "), "RO, median | - | - | 99.3 %");
        assert_eq!(table.rows[3][6], "-", "of nothing written there is no ratio");
    }
}
