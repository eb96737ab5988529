//! From chosen tables to a whole plan: what overlaps at the output level, what lies below, what it needs.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use kelvin_base::{KeyRange, Tier, seeded_bug};

use super::{PickInput, Plan, Reason};
use crate::version::{FIRST_SLOW, LEVELS, LEVELS_FAST, TableFile, TableMeta, Version, is_hot_run};

/// A table may overlap this many target tables of the level after; else it is better cut before.
const OVERLAP_TABLES_MAX: u64 = 10;

/// The same where that level lies on a fast tier with a slow one behind it: the compaction that moves the table on will
/// need that much room beside its inputs, and the fast tier's room is what is short.
pub const OVERLAP_TABLES_FAST_MAX: u64 = 4;

/// What a table takes beyond its share of the entries: tail, index and filter of its own, the disk block it ends in.
const TABLE_FRAMING_BYTES: u64 = 8 << 10;

/// Tables of the hot level with their levels.
type Evicted = Vec<(usize, Arc<TableFile>)>;

/// What stays on the fast tier of tables that go to the slow one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeps {
    /// What is hot, and what is newer than a copy in the hot level.
    Hot,
    /// What is newer than a copy in the hot level.
    Newer,
    /// Nothing: the hot level gives up the copies in their range.
    Nothing,
}

/// What was chosen.
pub(super) struct Choice {
    pub reason: Reason,
    pub level: usize,
    /// In the level's order.
    pub tables: Vec<Arc<TableFile>>,
    pub output_level: usize,
    /// What becomes of its fast tables beside what goes down.
    pub keeps: Keeps,
}

/// The tier that tables written to `level` belong to.
pub(super) const fn tier_of(level: usize, two_tiers: bool) -> Tier {
    if two_tiers && level >= FIRST_SLOW { Tier::Slow } else { Tier::Fast }
}

/// The smallest range over all `tables`.
pub(super) fn hull(tables: &[Arc<TableFile>]) -> Option<(Bytes, Bytes, bool)> {
    let smallest = tables.iter().map(|file| &file.meta.smallest).min()?.clone();
    let last = tables.iter().max_by_key(|file| (&file.meta.largest, !file.meta.largest_exclusive))?;
    Some((smallest, last.meta.largest.clone(), last.meta.largest_exclusive))
}

/// Tables of `level` that meet a range whose end may be exclusive.
pub(super) fn meeting<'a>(
    version: &'a Version,
    level: usize,
    range: &(Bytes, Bytes, bool),
) -> Vec<&'a Arc<TableFile>> {
    version.overlapping(level, key_range(range))
}

/// `range`, whose end may be exclusive.
pub(super) fn key_range((smallest, largest, exclusive): &(Bytes, Bytes, bool)) -> KeyRange<'_> {
    let end = if *exclusive { Bound::Excluded(&largest[..]) } else { Bound::Included(&largest[..]) };
    KeyRange { start: smallest, end }
}

/// What a choice that goes from the fast levels to the slow ones keeps and evicts: the level that what is hot stays in, if it
/// may stay, and tables of the hot level that must not stay below what is newer. `None` if somebody else writes where that stays.
fn across_boundary(
    input: &PickInput<'_>,
    version: &Version,
    choice: &Choice,
    range: &(Bytes, Bytes, bool),
) -> Option<(Option<usize>, Evicted)> {
    if choice.level >= LEVELS_FAST || choice.output_level < FIRST_SLOW {
        return Some((None, Vec::new()));
    }
    let is_fast = choice.tables.iter().all(|file| file.meta.tier == Tier::Fast);
    let may_keep = choice.keeps != Keeps::Nothing && choice.level > 0 && is_fast && input.tracker.is_some();
    let retain_level = may_keep.then_some(choice.level).filter(|_| input.config.two_tiers);
    // It is written into the range of the chosen tables, the gaps between them included.
    if retain_level.is_some_and(|level| input.running.writes(version.keyspace, level, &range.0, &range.1)) {
        return None;
    }
    let has_stones = choice.tables.iter().any(|file| file.meta.range_tombstones > 0);
    let must_leave = retain_level.is_none() || has_stones && !seeded_bug!("range-tombstone-passes-copies");
    if !must_leave && input.config.retains {
        return Some((retain_level, Vec::new()));
    }
    let mut evicts = hot_tables(version, range);
    // Where none must leave each copy goes once while the last fast level goes over the keys once.
    evicts.retain(|(_, file)| must_leave || file.meta.smallest >= range.0);
    Some((retain_level, evicts))
}

/// Tables of the hot level that meet `range`, with their levels.
pub fn hot_tables(version: &Version, range: &(Bytes, Bytes, bool)) -> Evicted {
    (LEVELS_FAST..FIRST_SLOW)
        .flat_map(|level| {
            meeting(version, level, range).into_iter().map(move |file| (level, Arc::clone(file)))
        })
        .collect()
}

/// The plan of `choice`; `None` if it meets something that runs.
pub(super) fn build(input: &PickInput<'_>, version: &Version, choice: Choice) -> Option<Plan> {
    let range = hull(&choice.tables)?;
    let (retain_level, evicts) = across_boundary(input, version, &choice, &range)?;
    let keeps_hot = choice.keeps == Keeps::Hot;
    let chosen_bytes: u64 = choice.tables.iter().map(|file| file.meta.size_bytes).sum();
    let mut inputs = vec![(choice.level, choice.tables)];
    if choice.output_level > choice.level {
        let below: Vec<_> =
            meeting(version, choice.output_level, &range).into_iter().map(Arc::clone).collect();
        if !below.is_empty() {
            inputs.push((choice.output_level, below));
        }
    }
    let all: Vec<Arc<TableFile>> =
        inputs.iter().flat_map(|(_, files)| files.iter().map(Arc::clone)).collect();
    let (smallest, largest, _) = hull(&all)?;
    // Level 0 is guarded by its tables alone.
    let first_written =
        if choice.output_level > choice.level { choice.level + 1 } else { choice.level.max(1) };
    let leaving = evicts.iter().map(|(_, file)| file);
    let busy = all.iter().chain(leaving).any(|file| file.meta.number == 0 || file.is_being_compacted())
        || (first_written..=choice.output_level)
            .filter(|level| !is_hot_run(*level))
            .any(|level| input.running.writes(version.keyspace, level, &smallest, &largest));
    if busy {
        return None;
    }
    let full_range = hull(&all)?;
    let bottommost = choice.output_level > 0
        && (choice.output_level + 1..LEVELS).all(|level| meeting(version, level, &full_range).is_empty());
    let grandparents: Vec<Arc<TableFile>> = (choice.output_level + 1..LEVELS)
        .filter(|level| !is_hot_run(*level))
        .map(|level| meeting(version, level, &full_range))
        .find(|files| !files.is_empty() && choice.output_level > 0)
        .unwrap_or_default()
        .into_iter()
        .map(Arc::clone)
        .collect();
    let output_tier = tier_of(choice.output_level, input.config.two_tiers);
    let table_bytes = input.config.table_bytes[output_tier.index()].max(1);
    let mut plan = Plan {
        retain_level,
        keeps_hot,
        evicts,
        target_file_bytes: match choice.output_level {
            // One table, so that fewer count. With one tier several, of as many bytes as count for one: a table that meets all of the
            // level below may find no room to be merged with it, nor to be split, and no tier below takes it.
            0 if input.config.two_tiers => u64::MAX,
            0 => input.config.run_bytes(),
            _ => table_bytes,
        },
        overlap_bytes_max: table_bytes.saturating_mul(overlap_tables_max(input, &grandparents)),
        bottommost,
        grandparents,
        input_bytes: all.iter().map(|file| file.meta.size_bytes).sum(),
        smallest,
        largest,
        inputs,
        ..Plan::new(version.keyspace, choice.reason, choice.output_level, output_tier)
    };
    plan.trivial_move = is_trivial(input, version, &plan, &all, choice.level);
    if !plan.trivial_move {
        plan.boundaries = boundaries(&plan, input.config.parts_max[output_tier.index()], table_bytes);
        plan.space_bytes[output_tier.index()] = with_framing(&plan, plan.input_bytes, table_bytes);
        if plan.retain_level.is_some() {
            // The promotion cache holds no more than a table.
            let hot_bytes = chosen_bytes + input.config.table_bytes[Tier::Fast.index()];
            plan.space_bytes[Tier::Fast.index()] += with_framing(&plan, hot_bytes, table_bytes);
        }
    }
    Some(plan)
}

/// What `bytes` of the inputs of `plan` take when they are written: merging adds at most the framing of tables cut anew, each of
/// which ends in a block of the disk begun.
pub(super) fn with_framing(plan: &Plan, bytes: u64, table_bytes: u64) -> u64 {
    // Above others tables may end half full, where one of those ends.
    let by_size = plan.input_bytes / table_bytes * if plan.grandparents.is_empty() { 1 } else { 2 };
    let cut = by_size + plan.boundaries.len() as u64 + 1;
    bytes + bytes / 32 + (cut + 1) * TABLE_FRAMING_BYTES
}

fn overlap_tables_max(input: &PickInput<'_>, grandparents: &[Arc<TableFile>]) -> u64 {
    let on_fast = grandparents.first().is_some_and(|file| file.meta.tier == Tier::Fast);
    if input.config.two_tiers && on_fast { OVERLAP_TABLES_FAST_MAX } else { OVERLAP_TABLES_MAX }
}

/// True if nothing need be read: each table of the one input level meets nothing where it goes, and little below that.
fn is_trivial(
    input: &PickInput<'_>,
    version: &Version,
    plan: &Plan,
    all: &[Arc<TableFile>],
    level: usize,
) -> bool {
    let is_last = |file: &TableFile| {
        (plan.output_level + 1..LEVELS).all(|deeper| version.overlapping_table(deeper, &file.meta).is_empty())
    };
    let moves = |file: &Arc<TableFile>| {
        let grandparents = plan.grandparents.iter().filter(|below| below.meta.overlaps(&file.meta));
        let grandparent_bytes: u64 = grandparents.map(|below| below.meta.size_bytes).sum();
        let worth_rewriting =
            (file.meta.has_deletions() || mostly_expired(&file.meta, input)) && is_last(file);
        file.meta.tier == plan.output_tier && grandparent_bytes <= plan.overlap_bytes_max && !worth_rewriting
    };
    // Tables of level 0 may overlap each other.
    let is_run = plan.inputs.len() == 1 && (level > 0 || all.len() == 1);
    is_run && plan.output_level > level && all.iter().all(moves)
}

/// True if most of the table's records expire and the first did so a while ago.
pub(super) fn mostly_expired(meta: &TableMeta, input: &PickInput<'_>) -> bool {
    meta.expiring > 0
        && meta.expiring >= meta.entries / 2
        && meta.expiry_min_ms.saturating_add(input.config.expiry_grace_ms) <= input.now_ms
}

/// Keys that cut the plan's input into parts of about equal size.
pub(super) fn boundaries(plan: &Plan, parts_max: usize, table_bytes: u64) -> Vec<Bytes> {
    let parts = (plan.input_bytes / table_bytes).min(parts_max as u64);
    if parts < 2 || plan.output_level == 0 {
        return Vec::new();
    }
    // Tables of a sorted level say where the bytes lie; those of L0 each span much of the range and do not.
    let sorted = plan.inputs.iter().filter(|(level, _)| *level > 0).max_by_key(|(_, files)| files.len());
    let Some((_, files)) = sorted else { return Vec::new() };
    let mut starts: Vec<(&Bytes, u64)> =
        files.iter().map(|file| (&file.meta.smallest, file.meta.size_bytes)).collect();
    starts.sort();
    let total_bytes: u64 = starts.iter().map(|(_, bytes)| bytes).sum();
    let mut cuts: Vec<Bytes> = Vec::new();
    let mut before_bytes = 0;
    for (start, bytes) in starts {
        let due = total_bytes / parts * (cuts.len() as u64 + 1);
        let new = *start > plan.smallest && cuts.last().is_none_or(|last| last < start);
        if before_bytes >= due && new && (cuts.len() as u64) < parts - 1 {
            cuts.push(start.clone());
        }
        before_bytes += bytes;
    }
    cuts
}
