//! Compactions that are not due, for simulations and tests: what might be picked at some time, picked now.
//!
//! Each is a plan as `choose.rs` makes it, so it claims, fits and runs like any other. Tests: `promotion/compaction_tests.rs`, and
//! the model test, which begins them at random.

use std::sync::Arc;

use super::build::{Choice, Keeps, build};
use super::choose::{allowed, fits, with_older};
use super::hot::merge_two;
use super::{PickInput, Plan, Reason};
use crate::version::{FIRST_SLOW, LEVELS_FAST, Version};

const LAST_FAST: usize = LEVELS_FAST - 1;

/// What to pick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forced {
    /// What lies lowest above the last fast level goes there: of level 0 everything, of another level one table.
    Down,
    /// A table of the last fast level goes to the slow tier, and what is hot of it stays.
    Boundary,
    /// The same, and what stays is only what is newer than a copy in the hot level.
    Newer,
    /// The same, and nothing stays: the hot level gives up the copies in its range.
    Whole,
    /// A table of the first slow level goes to the one below.
    Deeper,
    /// Two runs of the hot level become one.
    Runs,
}

/// A plan for `keyspace`, if there is something to do that fits and meets nothing that runs; `nth` chooses among tables.
#[must_use]
pub fn pick_forced(input: &PickInput<'_>, keyspace: u32, what: Forced, nth: usize) -> Option<Plan> {
    let version = input.versions.iter().find(|version| version.keyspace == keyspace)?;
    let plan = match what {
        Forced::Down => down(input, version, nth),
        Forced::Boundary => step(input, version, (LAST_FAST, FIRST_SLOW), Keeps::Hot, nth),
        Forced::Newer => step(input, version, (LAST_FAST, FIRST_SLOW), Keeps::Newer, nth),
        Forced::Whole => step(input, version, (LAST_FAST, FIRST_SLOW), Keeps::Nothing, nth),
        Forced::Deeper => step(input, version, (FIRST_SLOW, FIRST_SLOW + 1), Keeps::Nothing, nth),
        Forced::Runs => merge_two(input, version),
    };
    plan.filter(|plan| fits(input, plan) && allowed(input, plan))
}

fn down(input: &PickInput<'_>, version: &Version, nth: usize) -> Option<Plan> {
    // What lies lowest may go straight to the last fast level: the levels between are empty.
    let level = (0..LAST_FAST).rfind(|level| !version.levels[*level].tables.is_empty())?;
    if level > 0 {
        return step(input, version, (level, LAST_FAST), Keeps::Nothing, nth);
    }
    if input.running.reads_l0(version.keyspace) {
        return None;
    }
    let tables = with_older(&version.levels[0].tables, |_| true);
    let reason = Reason::Manual;
    build(input, version, Choice { reason, level, tables, output_level: LAST_FAST, keeps: Keeps::Nothing })
}

fn step(
    input: &PickInput<'_>,
    version: &Version,
    (level, output_level): (usize, usize),
    keeps: Keeps,
    nth: usize,
) -> Option<Plan> {
    let tables = &version.levels[level].tables;
    let tables = vec![Arc::clone(tables.get(nth % tables.len().max(1))?)];
    build(input, version, Choice { reason: Reason::Manual, level, tables, output_level, keeps })
}
