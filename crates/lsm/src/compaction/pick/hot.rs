//! The runs of the hot level: when they are merged, and when they are given up (DESIGN section 6).
//!
//! Runs of about one size are merged into one, which drops what is no longer hot and what something newer above shadows. Copies
//! can always be given up: they are when nobody tracks heat any more, or when no run is free and none can be merged.
//!
//! Tests: `tests.rs` (testdata/pick/runs.txt).

use std::sync::Arc;

use bytes::Bytes;
use kelvin_base::Tier;

use super::build::{boundaries, hull, with_framing};
use super::{PickInput, Plan, Reason};
use crate::version::{FIRST_SLOW, HOT_RUNS, LEVELS_FAST, TableFile, Version};

/// So many runs of about one size become one.
const FAN_OUT: usize = 4;
/// Runs are of about one size up to this ratio.
const ALIKE: u64 = 3;
/// With no more runs free than this, runs of any size are merged.
const FREE_MIN: usize = 2;

struct Run<'a> {
    level: usize,
    bytes: u64,
    tables: &'a [Arc<TableFile>],
}

/// What to do about the hot level of `version`, if anything.
pub(super) fn tend(
    input: &PickInput<'_>,
    version: &Version,
    accept: &mut dyn FnMut(&Plan) -> bool,
) -> Option<Plan> {
    let (used, runs) = idle_runs(version);
    if input.tracker.is_none() {
        return give_up(version, &runs);
    }
    let is_short = used + FREE_MIN > HOT_RUNS;
    let merge = alike(&runs).or_else(|| is_short.then(|| runs.get(..2)).flatten());
    let plan = merge.and_then(|group| merge_runs(input, version, group)).filter(|plan| accept(plan));
    plan.or_else(|| if used == HOT_RUNS { give_up(version, runs.get(..1)?) } else { None })
}

/// How many runs are in use, and those that nothing works on, the smallest first.
fn idle_runs(version: &Version) -> (usize, Vec<Run<'_>>) {
    let mut runs: Vec<Run<'_>> = (LEVELS_FAST..FIRST_SLOW)
        .map(|level| (level, &version.levels[level]))
        .filter(|(_, run)| !run.tables.is_empty())
        .map(|(level, run)| Run { level, bytes: run.size_bytes(), tables: &run.tables })
        .collect();
    let used = runs.len();
    runs.retain(|run| run.tables.iter().all(|file| !file.is_being_compacted()));
    runs.sort_by_key(|run| (run.bytes, run.level));
    (used, runs)
}

/// A merge of the two smallest runs.
pub(super) fn merge_two(input: &PickInput<'_>, version: &Version) -> Option<Plan> {
    merge_runs(input, version, idle_runs(version).1.get(..2)?)
}

/// The smallest runs of about one size, if there are enough of them.
fn alike<'r, 'a>(runs: &'r [Run<'a>]) -> Option<&'r [Run<'a>]> {
    (0..runs.len()).find_map(|first| {
        let limit = runs[first].bytes.saturating_mul(ALIKE);
        let count = runs[first..].iter().take_while(|run| run.bytes <= limit).count();
        (count >= FAN_OUT).then(|| &runs[first..first + count])
    })
}

fn merge_runs(input: &PickInput<'_>, version: &Version, group: &[Run<'_>]) -> Option<Plan> {
    let is_free = |level: &usize| {
        version.levels[*level].tables.is_empty() && !input.running.outputs(version.keyspace, *level)
    };
    let output_level = (LEVELS_FAST..FIRST_SLOW).find(is_free)?;
    let inputs: Vec<(usize, Vec<Arc<TableFile>>)> =
        group.iter().map(|run| (run.level, run.tables.to_vec())).collect();
    let all: Vec<Arc<TableFile>> = group.iter().flat_map(|run| run.tables).map(Arc::clone).collect();
    let (smallest, largest, _) = hull(&all)?;
    let table_bytes = input.config.table_bytes[Tier::Fast.index()].max(1);
    let mut plan = Plan { inputs, output_level, smallest, largest, ..empty(version) };
    plan.input_bytes = group.iter().map(|run| run.bytes).sum();
    plan.target_file_bytes = table_bytes;
    plan.boundaries = boundaries(&plan, input.config.parts_max, table_bytes);
    plan.space_bytes[Tier::Fast.index()] = with_framing(&plan, plan.input_bytes, table_bytes);
    Some(plan)
}

/// Removes `runs`.
fn give_up(version: &Version, runs: &[Run<'_>]) -> Option<Plan> {
    let tables =
        |run: &Run<'_>| run.tables.iter().map(|file| (run.level, Arc::clone(file))).collect::<Vec<_>>();
    let evicts: Vec<_> = runs.iter().flat_map(tables).collect();
    (!evicts.is_empty()).then(|| Plan { evicts, trivial_move: true, ..empty(version) })
}

fn empty(version: &Version) -> Plan {
    Plan {
        keyspace: version.keyspace,
        reason: Reason::HotRuns,
        inputs: Vec::new(),
        output_level: LEVELS_FAST,
        output_tier: Tier::Fast,
        retain_level: None,
        keeps_hot: false,
        evicts: Vec::new(),
        target_file_bytes: u64::MAX,
        overlap_bytes_max: u64::MAX,
        bottommost: false,
        trivial_move: false,
        grandparents: Vec::new(),
        boundaries: Vec::new(),
        space_bytes: [0; 2],
        input_bytes: 0,
        smallest: Bytes::new(),
        largest: Bytes::new(),
    }
}
