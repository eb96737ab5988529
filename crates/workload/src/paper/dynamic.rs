//! The dynamic workload (HotRAP §4.6, Figure 15): seven stages, and how soon the hot set follows. Tests: `tests.rs`.

use kelvin_base::Result;

use super::cells::{NONE, bytes, percent, rate};
use super::page::line;
use super::plan::{Choice, Contender, RunSpec};
use super::{Paper, Plots, Table};
use crate::generate::keys::KeyDistribution;
use crate::generate::stages::{self, STAGES};
use crate::options::{System, Workload};
use crate::plot::{Line, LinePlot};

/// The name of the one run.
const RUN: &str = "ro-dynamic-kelvin";

/// The run.
pub(super) fn runs(choice: &Choice) -> Vec<RunSpec> {
    let ops = stages::operations(choice.scale.operations());
    let run = Contender::whole(System::Kelvin).run(choice.scale, "ro-dynamic", Workload::Ro, ops);
    vec![run.with(|options| options.keys = KeyDistribution::Dynamic)]
}

/// The table: a stage each row.
pub(super) fn table(paper: &Paper) -> Table {
    let mut table = Table::new(
        "Figure 15: a hotspot that appears, grows, moves and shrinks (RO, 1 KiB)",
        "The limit of the hot set follows the hotspot, and the hit rate comes back: the column 'hits back' says after \
         what part of the stage it was at 90 % of what it is in the stage's final tenth. The paper shows curves, no figures.",
        &[
            "stage",
            "operations",
            "operations/s",
            "final tenth",
            "hit rate, final tenth",
            "hits back",
            "hot set",
            "its limit",
        ],
    );
    let stages = paper.report(RUN).and_then(|report| report["stages"].as_array());
    for (index, stage) in STAGES.iter().enumerate() {
        let report = stages.and_then(|stages| stages.get(index));
        let of = |name: &str| report.and_then(|report| report[name].as_f64());
        table.row([
            stage.name.to_string(),
            rate(of("ops")),
            rate(of("ops_per_s")),
            rate(of("ops_per_s_last10")),
            percent(of("fast_hit_rate_last10")),
            of("hit_rate_90_percent_after")
                .map_or_else(|| NONE.into(), |part| format!("after {:.1} %", part * 100.0)),
            bytes(of("hot_set_bytes")),
            bytes(of("hot_set_limit_bytes")),
        ]);
    }
    table
}

/// Hit rate, throughput and hot set over the operations.
pub(super) fn plots(paper: &Paper) -> Result<Plots> {
    let run = ("kelvin", RUN);
    let Some(report) = paper.report(run.1) else { return Ok(Vec::new()) };
    let stages = report["stages"].as_array().map_or(&[][..], Vec::as_slice);
    let marks: Vec<(f64, String)> = stages
        .iter()
        .zip(STAGES)
        .filter_map(|(report, stage)| Some((report["from_op"].as_f64()?, stage.name.to_string())))
        .collect();
    let over_operations = |y: &str, top: Option<f64>, lines: Vec<Option<Line>>| {
        let lines = lines.into_iter().flatten().collect();
        LinePlot {
            x: "operations".into(),
            y: y.into(),
            top,
            lines,
            marks: marks.clone(),
            ..LinePlot::default()
        }
        .draw()
    };
    let throughput = line(paper, 1, ("operations/s", run.1), ("ops", "ops_per_s", 1.0));
    let hit_rate = line(paper, 0, ("hit rate", run.1), ("ops", "fast_hit_rate", 100.0));
    let size = line(paper, 2, ("hot set", run.1), ("ops", "hot_set_bytes", 1e-6));
    let limit = line(paper, 0, ("limit", run.1), ("ops", "hot_set_limit_bytes", 1e-6)).map(Line::dashed);
    Ok(vec![
        (
            "Reads answered without the slow disk: a drop where the hotspot grows or moves, and back within the stage."
                .into(),
            over_operations("per cent of the reads, fast", Some(100.0), vec![hit_rate])?,
        ),
        ("Throughput follows the hit rate.".into(), over_operations("operations a second", None, vec![throughput])?),
        (
            "The hot set and its limit: the limit falls when nothing is hot, and follows the hotspot's size.".into(),
            over_operations("MB of keys and values", None, vec![size, limit])?,
        ),
    ])
}
