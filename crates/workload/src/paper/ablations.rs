//! What parts of the system are worth (HotRAP Tables 3 to 5), and what its ways to tell hot keys (§4.7).
//!
//! Each is two or more runs of Kelvin on one workload. Tests: `tests.rs`.

use kelvin::{HotParts, Hotness};
use kelvin_base::Result;
use serde_json::Value;

use super::cells::{NONE, bytes, figure, percent, rate, ratio, sum};
use super::page::line;
use super::plan::{Choice, Contender, RunSpec, Variant};
use super::scale::OPERATIONS;
use super::{Item, Paper, Plots, Table};
use crate::generate::keys::KeyDistribution;
use crate::options::{System, Workload};
use crate::plot::{BarPlot, LinePlot};

/// The fast disk's part that the hot set may have in the comparison of scorers: 5.5 of 10 GB (paper §4.7).
const SCORERS_LIMIT: f64 = 0.55;

fn kelvin(parts: HotParts, hotness: Option<Hotness>) -> Contender {
    Contender { system: System::Kelvin, variant: Variant { parts, hotness } }
}

/// The runs of `item`, one of this module's.
pub(super) fn runs(item: Item, choice: &Choice) -> Vec<RunSpec> {
    let (scale, all) = (choice.scale, HotParts::default());
    let rw = |less: HotParts| {
        let run = |parts| kelvin(parts, None).run(scale, "rw-hotspot5", Workload::Rw, scale.operations());
        vec![run(all), run(less)]
    };
    match item {
        Item::Table3 => rw(HotParts { retention: false, ..all }),
        Item::Table5 => rw(HotParts { promotion_by_compaction: false, ..all }),
        Item::Table4 => {
            // A read waits for the slow disk more than nine times of ten: a quarter of the operations, or it takes
            // longer than all else together.
            let ops = scale.operations() / 4;
            let uniform = |parts: HotParts| {
                let run = kelvin(parts, None).run(scale, "ro-uniform", Workload::Ro, ops);
                run.with(|options| options.keys = KeyDistribution::Uniform)
            };
            vec![uniform(all), uniform(HotParts { hotness_check: false, ..all })]
        }
        _ => {
            let scorer = |hotness: Hotness| {
                let one = kelvin(all, Some(hotness));
                let run = one.run(scale, "wh-hotspot5-limit55", Workload::Wh, scale.operations());
                run.with(|options| {
                    options.hot_set_bytes = options.fast_capacity.map(|bytes| part(bytes, SCORERS_LIMIT));
                })
            };
            [Hotness::Ralt, Hotness::Clock, Hotness::Lru, Hotness::Oracle].map(scorer).into()
        }
    }
}

fn part(bytes: u64, of: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size, saturates")]
    let part = (bytes as f64 * of).round() as u64;
    part
}

/// The table of `item`, one of this module's.
pub(super) fn table(item: Item, paper: &Paper) -> Table {
    match item {
        Item::Table3 => costs(paper, &TABLE_3),
        Item::Table4 => costs(paper, &TABLE_4),
        Item::Table5 => costs(paper, &TABLE_5),
        _ => scorers(paper),
    }
}

/// A column of tables 3 to 5: its name, where it stands in a report, and whether it is bytes.
struct Column {
    name: &'static str,
    of: fn(&Value) -> Option<f64>,
    is_bytes: bool,
}

const PROMOTED: Column = Column {
    name: "promoted",
    of: |report| sum(report, &["/bytes/promoted_flush", "/bytes/promoted_compaction"]),
    is_bytes: true,
};
const BY_COMPACTION: Column = Column {
    name: "by compaction",
    of: |report| figure(report, "/bytes/promoted_compaction"),
    is_bytes: true,
};
const BY_FLUSH: Column =
    Column { name: "by flush", of: |report| figure(report, "/bytes/promoted_flush"), is_bytes: true };
const RETAINED: Column =
    Column { name: "retained", of: |report| figure(report, "/bytes/retained"), is_bytes: true };
const COMPACTION: Column = Column {
    name: "compaction",
    of: |report| sum(report, &["/bytes/compaction_read", "/bytes/compaction_written"]),
    is_bytes: true,
};
const HIT_RATE: Column =
    Column { name: "hit rate", of: |report| figure(report, "/fast_hit_rate_last10"), is_bytes: false };

/// A table of two versions: the whole system, and one with a part left out.
struct Costs {
    title: &'static str,
    caption: &'static str,
    columns: &'static [Column],
    /// Name in the paper, run, and the paper's figures: GB, and parts of 1.
    versions: [(&'static str, &'static str, &'static [f64]); 2],
}

impl Costs {
    /// The versions and their runs.
    fn named(&self) -> [(&'static str, &'static str); 2] {
        self.versions.map(|(name, run, _)| (name, run))
    }
}

const TABLE_3: Costs = Costs {
    title: "Table 3: retention (RW hotspot-5 %, 1 KiB)",
    caption: "Without retention hot records leave with their tables and are promoted again and again: more promoted, \
              fewer hits. Compaction counts bytes read and written; the paper's bytes are for as many operations.",
    columns: &[PROMOTED, RETAINED, COMPACTION, HIT_RATE],
    versions: [
        ("HotRAP", "rw-hotspot5-kelvin", &[5.9, 41.3, 2530.6, 0.945]),
        ("no-retain", "rw-hotspot5-kelvin-no-retention", &[35.2, 0.0, 3156.5, 0.720]),
    ],
};
const TABLE_4: Costs = Costs {
    title: "Table 4: the hotness check (RO uniform, 1 KiB)",
    caption: "Without the check everything read from the slow disk is promoted, and compactions carry it about. \
              Compaction counts bytes read and written; the paper's bytes are for as many operations.",
    columns: &[PROMOTED, RETAINED, COMPACTION],
    versions: [
        ("HotRAP", "ro-uniform-kelvin", &[1.0, 0.0, 24.7]),
        ("no-hotness-check", "ro-uniform-kelvin-no-hotness-check", &[206.4, 8.0, 7093.7]),
    ],
};
const TABLE_5: Costs = Costs {
    title: "Table 5: promotion by compaction (RW hotspot-5 %, 1 KiB)",
    caption: "Without it hot records that a compaction passes are promoted by a flush instead, and written once more. \
              Compaction counts bytes read and written; the paper's bytes are for as many operations.",
    columns: &[BY_COMPACTION, BY_FLUSH, COMPACTION],
    versions: [
        ("HotRAP", "rw-hotspot5-kelvin", &[0.9, 5.0, 2530.6]),
        ("no-by-compaction", "rw-hotspot5-kelvin-no-promotion-by-compaction", &[0.0, 5.8, 2683.5]),
    ],
};

fn costs(paper: &Paper, costs: &Costs) -> Table {
    let own = costs.columns.iter().map(|column| column.name.to_string());
    let theirs = costs.columns.iter().map(|column| format!("paper: {}", column.name));
    let mut table = Table::new(costs.title, costs.caption, &["version"]);
    table.header.extend(own.chain(theirs));
    let ours = |run: &str, column: &Column| (column.of)(paper.report(run)?);
    let shown = |column: &Column, value: Option<f64>| {
        if column.is_bytes { bytes(value) } else { percent(value) }
    };
    for (name, run, printed) in costs.versions {
        // The paper's bytes are of 2.2 × 10^8 operations.
        let part = paper.report(run).and_then(|report| figure(report, "/ops")).map(|ops| ops / OPERATIONS);
        let own = costs.columns.iter().map(|column| shown(column, ours(run, column)));
        let theirs = costs.columns.iter().zip(printed).map(|(column, &figure)| {
            let scaled = part.map(|part| figure * 1e9 * part);
            if column.is_bytes { bytes(scaled) } else { percent(Some(figure)) }
        });
        table.row(std::iter::once(name.to_string()).chain(own).chain(theirs));
    }
    let [(_, whole, whole_printed), (_, less, less_printed)] = costs.versions;
    let own = costs.columns.iter().map(|column| ratio(ours(less, column), ours(whole, column)));
    let printed = less_printed.iter().zip(whole_printed);
    let theirs = printed.map(|(&less, &whole)| ratio(Some(less), Some(whole)));
    table.row(std::iter::once("second over first".to_string()).chain(own).chain(theirs));
    table
}

/// A scorer: its name, its run, and the hit rate that the paper prints.
const SCORERS: [(&str, &str, Option<f64>); 4] = [
    ("exponential smoothing", "wh-hotspot5-limit55-kelvin-ralt", Some(0.93)),
    ("CLOCK", "wh-hotspot5-limit55-kelvin-clock", Some(0.90)),
    ("LRU", "wh-hotspot5-limit55-kelvin-lru", Some(0.85)),
    ("exact counts (oracle)", "wh-hotspot5-limit55-kelvin-oracle", None),
];

fn scorers(paper: &Paper) -> Table {
    let mut table = Table::new(
        "Section 4.7: how hot keys are told (WH hotspot-5 %, 1 KiB)",
        "The hot set's limit is fixed at 55 % of the fast disk, a little more than the hotspot. Hits of the final tenth; \
         the exact counts show what a tracker could reach at best.",
        &["scorer", "hit rate", "paper: hit rate", "operations/s, final tenth", "hot set", "tracker's CPU"],
    );
    for (name, run, printed) in SCORERS {
        let report = paper.report(run);
        let of = |pointer: &str| figure(report?, pointer);
        let cpu = of("/ralt/cpu_s").filter(|_| run != SCORERS[3].1);
        table.row([
            name.to_string(),
            percent(of("/fast_hit_rate_last10")),
            percent(printed),
            rate(of("/ops_per_s_last10")),
            bytes(of("/ralt/hot_set_bytes")),
            cpu.map_or_else(|| NONE.into(), |seconds| format!("{seconds:.1} s")),
        ]);
    }
    table
}

/// The plots of `item`, one of this module's.
pub(super) fn plots(item: Item, paper: &Paper) -> Result<Plots> {
    match item {
        Item::Table3 => {
            let caption = "Hit rate over the operations done: with retention it stays up, without it hot records keep leaving.";
            Ok(vec![(caption.into(), hits(paper, &TABLE_3.named())?), moved(paper, &TABLE_3.named())?])
        }
        Item::Table4 => Ok(vec![moved(paper, &TABLE_4.named())?]),
        Item::Table5 => Ok(vec![moved(paper, &TABLE_5.named())?]),
        _ => {
            let runs = SCORERS.map(|(name, run, _)| (name, run));
            let caption =
                "Hit rate over the operations done: the higher, the better the scorer tells hot keys.";
            Ok(vec![(caption.into(), hits(paper, &runs)?)])
        }
    }
}

/// Hit rate of several runs over their operations, so that fast and slow ones can be compared.
fn hits(paper: &Paper, runs: &[(&str, &str)]) -> Result<String> {
    let axes = ("ops", "fast_hit_rate", 100.0);
    let lines = runs.iter().enumerate().filter_map(|(index, run)| line(paper, index, *run, axes)).collect();
    let y = "per cent of the reads, fast";
    LinePlot { x: "operations".into(), y: y.into(), top: Some(100.0), lines, ..LinePlot::default() }.draw()
}

/// Bytes that two runs moved, by what for.
fn moved(paper: &Paper, runs: &[(&str, &str)]) -> Result<(String, String)> {
    let kinds = [
        ("promoted by flush", "/bytes/promoted_flush"),
        ("promoted by compaction", "/bytes/promoted_compaction"),
        ("retained", "/bytes/retained"),
        ("compaction read", "/bytes/compaction_read"),
        ("compaction written", "/bytes/compaction_written"),
    ];
    let series = runs.iter().map(|(name, run)| {
        let height = |pointer: &str| figure(paper.report(run)?, pointer).map(|bytes| bytes / 1e6);
        (name.to_string(), kinds.iter().map(|(_, pointer)| height(pointer)).collect())
    });
    let plot = BarPlot {
        y: "MB in the run phase".into(),
        groups: kinds.iter().map(|(name, _)| name.to_string()).collect(),
        series: series.collect(),
    };
    Ok(("What was moved: less is better, of as many operations.".into(), plot.draw()?))
}
