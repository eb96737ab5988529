//! Compaction of a key range on request, one plan at a time, level by level from the top.

use std::sync::Arc;

use kelvin_base::{KeyRange, Tier};

use super::build::{Choice, Keeps, build, hull, mostly_expired};
use super::choose::{allowed, fits, lies_below, make_room, output_of_level_zero, with_older};
use super::{PickInput, Plan, Reason, shares, targets};
use crate::version::{TableFile, Version, is_hot_run, next_level};

/// What to do next for a range.
#[derive(Clone, Debug)]
pub enum RangePick {
    /// Run this, then ask again for the same level.
    Plan(Box<Plan>),
    /// Something that runs, that waits after a failure, or a lack of room is in the way: ask again later.
    Busy,
    /// Nothing left to do at this level: ask for the next one.
    Done,
}

/// The next step of compacting `[lower, upper)` of `keyspace`; `None` is unbounded. The caller goes through the levels
/// from 0 to `LEVELS - 1`. `created_before` is the next file number at the moment it came to `level`: tables from there on
/// are results of this level's own steps and are not rewritten again in place, which bounds the work.
#[must_use]
pub fn pick_range(
    input: &PickInput<'_>,
    keyspace: u32,
    level: usize,
    range: (Option<&[u8]>, Option<&[u8]>),
    created_before: u64,
) -> RangePick {
    let Some(index) = input.versions.iter().position(|version| version.keyspace == keyspace) else {
        return RangePick::Done;
    };
    let version = &input.versions[index];
    let tables = version.overlapping(level, KeyRange::half_open(range.0, range.1));
    if tables.is_empty() || is_hot_run(level) {
        return RangePick::Done;
    }
    let choice = if level == 0 {
        if input.running.reads_l0(keyspace) {
            return RangePick::Busy;
        }
        let share_bytes = shares(input.versions, input.config)[index];
        let targets = targets(version, share_bytes, input.config);
        let wanted: Vec<u64> = tables.iter().map(|file| file.meta.number).collect();
        let chosen = with_older(&version.levels[0].tables, |file| wanted.contains(&file.meta.number));
        let output_level = output_of_level_zero(version, &targets);
        Some(Choice { reason: Reason::Manual, level, tables: chosen, output_level, keeps: Keeps::Nothing })
    } else {
        step(input, version, level, &tables, created_before)
    };
    let Some(choice) = choice else { return RangePick::Done };
    match build(input, version, choice) {
        Some(plan) if fits(input, &plan) && allowed(input, &plan) => RangePick::Plan(Box::new(plan)),
        Some(plan) if input.config.two_tiers && !plan.touches(Tier::Slow) => {
            make_room(input).map_or(RangePick::Busy, |plan| RangePick::Plan(Box::new(plan)))
        }
        _ => RangePick::Busy,
    }
}

/// The first tables of a sorted level that have something below, as many as a plan takes; else one worth rewriting.
fn step(
    input: &PickInput<'_>,
    version: &Version,
    level: usize,
    tables: &[&Arc<TableFile>],
    created_before: u64,
) -> Option<Choice> {
    let mut run: Vec<Arc<TableFile>> = Vec::new();
    let mut bytes = 0;
    for file in tables {
        let range = hull(&[Arc::clone(file)])?;
        if lies_below(version, level, &range) {
            bytes += file.meta.size_bytes;
            if !run.is_empty() && bytes > input.config.plan_bytes_max {
                break;
            }
            run.push(Arc::clone(file));
        } else if !run.is_empty() {
            break;
        }
    }
    if !run.is_empty() {
        return Some(Choice {
            reason: Reason::Manual,
            level,
            tables: run,
            output_level: next_level(level),
            keeps: Keeps::Nothing,
        });
    }
    let worth = |file: &TableFile| {
        file.meta.number < created_before
            && file.meta.sequence_max <= input.oldest_snapshot
            && (file.meta.has_deletions() || mostly_expired(&file.meta, input))
    };
    let file = tables.iter().find(|file| worth(file))?;
    Some(Choice {
        reason: Reason::Manual,
        level,
        tables: vec![Arc::clone(file)],
        output_level: level,
        keeps: Keeps::Nothing,
    })
}
