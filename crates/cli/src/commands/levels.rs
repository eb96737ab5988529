//! `kelvin levels`: where the data of each keyspace lies.

use comfy_table::Table;
use kelvin::{HotnessStats, LevelInfo};
use serde_json::{Value, json};

use crate::args::inspect::Levels;
use crate::exit::{Exit, Outcome};
use crate::output::{Paint, bytes, grouped, lines, percent, print, print_json, ratio, table};
use crate::store;

/// Prints a table for each keyspace.
///
/// # Errors
/// The store's, or the output's.
pub fn run(args: &Levels) -> Outcome {
    let db = store::open_existing(&args.store)?;
    let (levels, hotness) = (db.levels(), db.stats().hotness);
    db.close()?;
    if args.output.json {
        print_json(&as_json(&levels))?;
        return Ok(Exit::Ok);
    }
    let paint = Paint::for_stdout();
    let mut keyspaces: Vec<&str> = levels.iter().map(|level| level.keyspace.as_str()).collect();
    keyspaces.dedup();
    if keyspaces.is_empty() {
        print("No tables yet: what the store holds is in its log and in memory.")?;
    }
    let many = keyspaces.len() > 1;
    for keyspace in keyspaces {
        if many {
            print(&paint.bold(&format!("keyspace {keyspace:?}")))?;
        }
        let here: Vec<LevelInfo> =
            levels.iter().filter(|level| level.keyspace == keyspace).cloned().collect();
        print(&lines(&table_of(&rows(&here)), paint))?;
    }
    if let Some(hotness) = hotness {
        print(&hot_line(&hotness))?;
    }
    Ok(Exit::Ok)
}

/// What the tracker of hot keys says of all keyspaces together.
fn hot_line(hotness: &HotnessStats) -> String {
    let set = bytes(hotness.hot_set_bytes);
    if hotness.hot_set_limit_bytes == 0 {
        return format!("hot records: {set} (hotness by {})", hotness.kind);
    }
    let limit = bytes(hotness.hot_set_limit_bytes);
    format!("hot records: {set} of at most {limit} (hotness by {})", hotness.kind)
}

/// Column names of [`rows`].
pub const HEADER: [&str; 8] = ["level", "disk", "tables", "bytes", "share", "target", "score", "entries"];

/// The columns of each level.
pub fn rows(levels: &[LevelInfo]) -> Vec<[String; 8]> {
    let all: u64 = levels.iter().map(|level| level.bytes).sum();
    let row = |level: &LevelInfo| {
        let target = (level.target_bytes > 0).then_some(level.target_bytes);
        [
            level.name.clone(),
            level.tier.to_string(),
            grouped(level.tables as u64),
            bytes(level.bytes),
            percent(level.bytes, all),
            target.map_or_else(|| "-".to_string(), bytes),
            target.map_or_else(|| "-".to_string(), |target| format!("{:.2}", ratio(level.bytes, target))),
            grouped(level.entries),
        ]
    };
    levels.iter().map(row).collect()
}

/// The rows as a table.
pub fn table_of(rows: &[[String; 8]]) -> Table {
    let mut table = table(&HEADER, &HEADER[2..]);
    for row in rows {
        table.add_row(row);
    }
    table
}

/// The levels for programs.
pub fn as_json(levels: &[LevelInfo]) -> Value {
    let one = |level: &LevelInfo| {
        json!({
            "keyspace": level.keyspace, "level": level.name, "tier": level.tier.to_string(), "tables": level.tables,
            "bytes": level.bytes, "target_bytes": level.target_bytes, "entries": level.entries,
            "deletions": level.deletions, "range_tombstones": level.range_tombstones, "copies": level.copies,
            "compacting": level.compacting,
        })
    };
    levels.iter().map(one).collect()
}
