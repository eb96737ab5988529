//! A hard disk as the slow disk (HotRAP §4.8, Figure 16): RO on a hotspot of 1 %.
//!
//! The disk is emulated whatever disk is named: 400 reads a second and 260 MB/s, at every scale (Table 6). Without hotness the
//! throughput is the same from the first second, so few operations show it, as in the paper. Tests: `tests.rs`.

use kelvin_base::Result;

use super::cells::{NONE, figure, percent, rate, ratio};
use super::page::points;
use super::plan::{Choice, Contender, RunSpec};
use super::{Paper, Plots, Table};
use crate::generate::keys::KeyDistribution;
use crate::options::{DeviceLimits, System, Workload};
use crate::plot::{Line, LinePlot};

const BASE: &str = "hdd-ro-hotspot1";
/// The paper's hard disk.
const HDD: DeviceLimits = DeviceLimits {
    slow_read_iops: Some(400),
    slow_bandwidth: Some(260_000_000),
    slow_write_iops: None,
    slow_latency: None,
    fast_read_iops: None,
    fast_bandwidth: None,
};
/// The paper's operations over those of RocksDB-fat: 2.2 × 10^8 and 10^6.
const FAT_PART: u64 = 220;
/// With fewer there is no throughput to speak of.
const FAT_OPS_MIN: u64 = 2_000;
/// The paper's speedup.
const PRINTED: f64 = 110.0;
/// The systems whose disk can be emulated.
const SYSTEMS: [System; 2] = [System::Kelvin, System::Fat];

/// The runs.
pub(super) fn runs(choice: &Choice) -> Vec<RunSpec> {
    let all = choice.scale.operations();
    let run = |one: &Contender| {
        let ops = if one.system.learns() { all } else { (all / FAT_PART).max(FAT_OPS_MIN.min(all)) };
        let run = one.run(choice.scale, BASE, Workload::Ro, ops).with(|options| {
            options.keys = KeyDistribution::Hotspot { percent: 1.0 };
            options.limits = HDD;
        });
        RunSpec { has_own_disk: true, ..run }
    };
    choice.of(&SYSTEMS).map(run).collect()
}

/// The table.
pub(super) fn table(paper: &Paper) -> Table {
    let mut table = Table::new(
        "Figure 16: a hard disk as the slow disk (RO hotspot-1 %, 1 KiB)",
        "A disk of 400 reads a second and 260 MB/s, emulated. The paper's kelvin is HotRAP, its fat RocksDB-fat, on eight cores; on fewer the \
         processor ends the rise before the disk does.",
        &[
            "system",
            "operations",
            "operations/s",
            "final tenth",
            "over fat",
            "paper: over fat",
            "hit rate, final tenth",
            "best",
        ],
    );
    let final_of = |one: &Contender| figure(paper.report(&one.run_name(BASE))?, "/ops_per_s_last10");
    let fat = final_of(&Contender::whole(System::Fat));
    for one in paper.choice.of(&SYSTEMS) {
        let report = paper.report(&one.run_name(BASE));
        let of = |pointer: &str| figure(report?, pointer);
        table.row([
            one.label(),
            rate(of("/ops")),
            rate(of("/ops_per_s")),
            rate(final_of(one)),
            ratio(final_of(one), fat),
            if one.system == System::Kelvin { format!("{PRINTED:.0}x") } else { NONE.into() },
            percent(of("/fast_hit_rate_last10")),
            percent(of("/best_possible_hit_rate")),
        ]);
    }
    table
}

/// Throughput over the operations done.
pub(super) fn plots(paper: &Paper) -> Result<Plots> {
    let line = |(index, one): (usize, &Contender)| {
        let report = paper.report(&one.run_name(BASE))?;
        let points = points(report, "ops", "ops_per_s", 1.0);
        if one.system == System::Kelvin {
            return Some(Line::new(one.label(), index, points));
        }
        // The same throughout: as far as kelvin's line goes.
        let (level, end) = (figure(report, "/ops_per_s")?, paper.choice.scale.operations() as f64);
        Some(Line::new(one.label(), index, vec![(0.0, level), (end, level)]).dashed())
    };
    let lines = paper.choice.of(&SYSTEMS).enumerate().filter_map(line).collect();
    let (x, y) = ("operations".into(), "operations a second".into());
    let plot = LinePlot { x, y, lines, ..LinePlot::default() };
    let caption = "Throughput over a hard disk: kelvin rises as the hot records come to the fast disk, fat stays at what the disk does.";
    Ok(vec![(caption.into(), plot.draw()?)])
}
