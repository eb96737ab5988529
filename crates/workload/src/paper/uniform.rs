//! Kelvin beside itself without hotness on uniform keys (HotRAP Figures 6 and 7): what hotness costs where nothing is hot.
//!
//! Both run in turn, in pairs whose order changes, because a hundredth is to be seen. Tests stand below, and in `tests.rs`.

use kelvin_base::Result;

use super::cells::{NONE, bytes, figure, micros, percent, rate, ratio_of};
use super::plan::{Choice, RunSpec};
use super::scale::{OPERATIONS, Scale};
use super::throughput::written;
use super::{Paper, Plots, Table};
use crate::generate::keys::KeyDistribution;
use crate::options::{System, Workload};
use crate::plot::BarPlot;

/// Pairs of runs.
const PAIRS: usize = 3;
/// The workloads.
const WORKLOADS: [Workload; 2] = [Workload::Ro, Workload::Rw];

fn run_name(workload: Workload, system: System, pair: usize) -> String {
    format!("uniform-{}-{system}-{pair}", workload.name().to_lowercase())
}

/// Pairs of Kelvin with hotness and without, the one that begins changing.
pub(super) fn runs(choice: &Choice) -> Vec<RunSpec> {
    let scale: Scale = choice.scale;
    // Nearly every read waits for the slow disk: an eighth of the operations reads a quarter of the records.
    let ops = (scale.of(OPERATIONS) / 8).max(1);
    let run = |workload: Workload, system: System, pair: usize| {
        let run = RunSpec::new(scale, &run_name(workload, system, pair), system, workload, ops);
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

/// The middle of some figures, if there are any.
fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}

/// Each pair, and the medians.
pub(super) fn table(paper: &Paper) -> Table {
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
                [System::Kelvin, System::Fat].map(|one| paper.report(&run_name(workload, one, pair)));
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

/// Bars of each pair.
pub(super) fn plots(paper: &Paper) -> Result<Plots> {
    let pairs = || WORKLOADS.iter().flat_map(|&workload| (1..=PAIRS).map(move |pair| (workload, pair)));
    let series = [System::Kelvin, System::Fat].map(|system| {
        let height =
            |(workload, pair)| figure(paper.report(&run_name(workload, system, pair))?, "/ops_per_s");
        (system.name().to_string(), pairs().map(height).collect())
    });
    let plot = BarPlot {
        y: "operations a second, whole run".into(),
        groups: pairs().map(|(workload, pair)| format!("{workload} {pair}")).collect(),
        series: series.into(),
    };
    let caption = "Throughput with hotness and without: nothing is hot, so nothing should differ.";
    Ok(vec![(caption.into(), plot.draw()?)])
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::paper::tests::choice;

    #[test]
    fn pairs_of_uniform_runs_change_who_begins() {
        let names: Vec<String> = runs(&choice("1/1000")).into_iter().map(|run| run.name).collect();
        assert_eq!(
            names[..6].join(" "),
            "uniform-ro-kelvin-1 uniform-ro-fat-1 uniform-ro-fat-2 uniform-ro-kelvin-2 uniform-ro-kelvin-3 uniform-ro-fat-3"
        );
        assert_eq!(names.len(), 12);
    }

    #[test]
    fn the_ratio_of_pairs_is_their_median() {
        let mut runs_made: Vec<(RunSpec, Value)> = Vec::new();
        for (number, run) in runs(&choice("1/1000")).into_iter().enumerate() {
            let rate = if run.options.system == System::Kelvin { 990 + number } else { 1000 };
            runs_made
                .push((run, json!({"ops_per_s": rate, "bytes": {"fast_written": 0, "slow_written": 0}})));
        }
        let paper = Paper::of(choice("1/1000"), runs_made);
        let table = table(&paper);
        assert_eq!(table.rows[3][..4].join(" | "), "RO, median | - | - | 99.3 %");
        assert_eq!(table.rows[3][6], "-", "of nothing written there is no ratio");
    }
}
