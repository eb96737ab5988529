//! The paper's tables with our figures and the paper's beside them, from the reports of the runs.
//!
//! The paper's bytes are scaled to as many operations as were run; rates are as they were printed. A run that is
//! missing leaves dashes. Tests: `tests.rs`.

use serde_json::Value;

use super::item::Item;
use super::reference::{ROWS, ReferenceRow};
use super::scale::OPERATIONS;
use super::{Paper, Table, pairs};
use crate::generate::stages::STAGES;
use crate::options::System;

/// A cell of which nothing is known.
pub(super) const NONE: &str = "-";

/// A figure of a report, by its JSON pointer.
#[must_use]
pub fn figure(report: &Value, pointer: &str) -> Option<f64> {
    report.pointer(pointer).and_then(Value::as_f64)
}

/// The sum of figures, if all are there.
fn sum(report: &Value, pointers: &[&str]) -> Option<f64> {
    pointers.iter().map(|pointer| figure(report, pointer)).sum()
}

pub(super) fn bytes(number: Option<f64>) -> String {
    let Some(number) = number else { return NONE.into() };
    match number.abs() {
        large if large >= 1e11 => format!("{:.0} GB", number / 1e9),
        large if large >= 1e9 => format!("{:.2} GB", number / 1e9),
        large if large >= 1e8 => format!("{:.0} MB", number / 1e6),
        large if large >= 1e6 => format!("{:.1} MB", number / 1e6),
        _ => format!("{:.2} MB", number / 1e6),
    }
}

pub(super) fn percent(part: Option<f64>) -> String {
    part.map_or_else(|| NONE.into(), |part| format!("{:.1} %", part * 100.0))
}

pub(super) fn ratio(above: Option<f64>, below: Option<f64>) -> String {
    let ratio = above.zip(below).filter(|(_, below)| *below > 0.0).map(|(above, below)| above / below);
    ratio.map_or_else(|| NONE.into(), |ratio| format!("{ratio:.2}x"))
}

pub(super) fn rate(number: Option<f64>) -> String {
    number.map_or_else(
        || NONE.into(),
        |number| if number >= 1e4 { format!("{:.1} k", number / 1e3) } else { format!("{number:.0}") },
    )
}

/// The table of `item`.
#[must_use]
pub fn table(paper: &Paper, item: Item) -> Table {
    match item {
        Item::Table3 => costs(paper, &TABLE_3),
        Item::Table4 => costs(paper, &TABLE_4),
        Item::Table5 => costs(paper, &TABLE_5),
        Item::Scorers => scorers(paper),
        Item::Dynamic => dynamic(paper),
        Item::Uniform => pairs::uniform(paper),
        Item::Speedup => pairs::speedup(paper),
        Item::Reference => reference(paper),
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

const TABLE_3: Costs = Costs {
    title: "Table 3: retention (RW hotspot-5 %, 1 KiB)",
    caption: "Without retention hot records leave with their tables and are promoted again and again: more promoted, \
              fewer hits. Compaction counts bytes read and written; the paper's bytes are for as many operations.",
    columns: &[PROMOTED, RETAINED, COMPACTION, HIT_RATE],
    versions: [
        ("HotRAP", "rw-hotspot5-kelvin", &[5.9, 41.3, 2530.6, 0.945]),
        ("no-retain", "rw-hotspot5-no-retention", &[35.2, 0.0, 3156.5, 0.720]),
    ],
};
const TABLE_4: Costs = Costs {
    title: "Table 4: the hotness check (RO uniform, 1 KiB)",
    caption: "Without the check everything read from the slow disk is promoted, and compactions carry it about. \
              Compaction counts bytes read and written; the paper's bytes are for as many operations.",
    columns: &[PROMOTED, RETAINED, COMPACTION],
    versions: [
        ("HotRAP", "ro-uniform-kelvin", &[1.0, 0.0, 24.7]),
        ("no-hotness-check", "ro-uniform-no-hotness-check", &[206.4, 8.0, 7093.7]),
    ],
};
const TABLE_5: Costs = Costs {
    title: "Table 5: promotion by compaction (RW hotspot-5 %, 1 KiB)",
    caption: "Without it hot records that a compaction passes are promoted by a flush instead, and written once more. \
              Compaction counts bytes read and written; the paper's bytes are for as many operations.",
    columns: &[BY_COMPACTION, BY_FLUSH, COMPACTION],
    versions: [
        ("HotRAP", "rw-hotspot5-kelvin", &[0.9, 5.0, 2530.6]),
        ("no-by-compaction", "rw-hotspot5-no-promotion-by-compaction", &[0.0, 5.8, 2683.5]),
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
pub const SCORERS: [(&str, &str, Option<f64>); 4] = [
    ("exponential smoothing", "wh-hotspot5-limit55-ralt", Some(0.93)),
    ("CLOCK", "wh-hotspot5-limit55-clock", Some(0.90)),
    ("LRU", "wh-hotspot5-limit55-lru", Some(0.85)),
    ("exact counts (oracle)", "wh-hotspot5-limit55-oracle", None),
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

fn dynamic(paper: &Paper) -> Table {
    let mut table = Table::new(
        "Section 4.6, Figure 15: a hotspot that appears, grows, moves and shrinks (RO, 1 KiB)",
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
    let stages = paper.report("ro-dynamic-kelvin").and_then(|report| report["stages"].as_array());
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

fn reached(ops: Option<f64>, seconds: Option<f64>) -> String {
    ops.zip(seconds)
        .map_or_else(|| NONE.into(), |(ops, seconds)| format!("{} ({seconds:.1} s)", rate(Some(ops))))
}

/// Who stands in the rows of `row`, and the names of the runs: the systems, and Kelvin with parts left out where that was run.
fn reference_runs(paper: &Paper, row: &ReferenceRow) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> =
        ReferenceRow::SYSTEMS.map(|system| (system.to_string(), row.run_name(system))).into();
    let variant = format!("{}-", row.run_name(System::Kelvin));
    let of_kelvin = |(run, _): &(super::RunSpec, Value)| {
        let suffix = run.name.strip_prefix(&variant)?;
        Some((format!("{} {suffix}", System::Kelvin), run.name.clone()))
    };
    drop(all.splice(1..1, paper.runs.iter().filter_map(of_kelvin)));
    all
}

fn reference(paper: &Paper) -> Table {
    let mut table = Table::new(
        "Reference: Kelvin between its bounds, and beside HotRAP's own code (1 KiB)",
        "'HotRAP' is the authors' code at 1/100 on two cores over a disk throttled by the kernel: its rates belong to that \
         scale and disk; the bytes it wrote are scaled. 'fat' has no tracker, 'fast-only' has everything on the fast disk. \
         'best' is what an oracle would have of the fast disk.",
        &[
            "workload, system",
            "operations/s",
            "final tenth",
            "hit rate, final tenth",
            "best",
            "CPU us/op, final tenth",
            "compaction written",
            "to 90 % of final",
        ],
    );
    for row in &ROWS {
        for (name, run) in reference_runs(paper, row) {
            let report = paper.report(&run);
            let of = |pointer: &str| figure(report?, pointer);
            let (is_kelvin, is_fast) =
                (name.starts_with(System::Kelvin.name()), name == System::FastOnly.name());
            let cpu = of("/cpu_us_per_op_last10");
            table.row([
                format!("{}, {name}", row.name),
                rate(of("/ops_per_s")),
                rate(of("/ops_per_s_last10")),
                percent(of("/fast_hit_rate_last10").filter(|_| !is_fast)),
                percent(of("/best_possible_hit_rate").filter(|_| is_kelvin)),
                cpu.map_or_else(|| NONE.into(), |us| format!("{us:.0}")),
                bytes(of("/bytes/compaction_written")),
                reached(of("/ops_to_90_percent"), of("/seconds_to_90_percent")),
            ]);
        }
        let part = paper.scale.part() * 100.0;
        table.row([
            format!("{}, HotRAP", row.name),
            rate(Some(row.ops_per_s)),
            rate(Some(row.ops_per_s_last10)),
            percent(Some(row.hit_percent_last10 / 100.0)),
            NONE.into(),
            format!("{:.0}", row.cpu_us_last10),
            bytes(Some(row.compaction_written_gb * 1e9 * part)),
            reached(row.reached.map(|one| one.0), row.reached.map(|one| one.1)),
        ]);
        if let Some(rate_of_all) = row.all_fast_ops_per_s {
            let mut cells = vec![NONE.to_string(); table.header.len()];
            cells[0] = format!("{}, RocksDB all fast", row.name);
            cells[2] = rate(Some(rate_of_all));
            table.row(cells);
        }
    }
    table
}
