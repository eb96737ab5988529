//! Scores, and the choice of tables within a level.
//!
//! Order: the fast tier over its share first, then levels by how far they are over their targets, then tables worth
//! cleaning. The first plan that meets nothing running and fits in the free space is taken; if none within the fast
//! tier fits, or writers wait for room, a boundary compaction makes some.

use std::sync::Arc;

use kelvin_base::{HotTracker, KeyRange, Tier};

use super::build::{Choice, Keeps, build, hull, key_range, meeting, mostly_expired, tier_of, with_framing};
use super::hot::{cool, give_up_least, has_few_runs_free, tend};
use super::{PickInput, Plan, Reason, Targets, shares, targets};
use crate::hotness::of_keyspace::OfKeyspace;
use crate::version::{FIRST_SLOW, LEVELS, LEVELS_FAST, TableFile, Version, is_hot_run, next_level};

/// Scores are in thousandths; from this on a compaction is due.
const DUE: u64 = 1000;
/// Added to the score of a compaction that the fast tier's capacity asks for.
const URGENT: u64 = 1_000_000_000;
/// A table of which less than one part in this many is not hot is not worth a merge that keeps the rest.
pub const RETAIN_BENEFIT: u64 = 16;
const LAST_FAST: usize = LEVELS_FAST - 1;
/// A table of L0 that fits nowhere is cut into so many.
const SPLIT_PARTS: u64 = 8;
/// None is cut into smaller ones than this, bytes: a block of the disk.
const SPLIT_BYTES_MIN: u64 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    LevelZero,
    Level(usize, Reason),
    HotRuns,
    Cool,
    Clean,
}

struct Candidate<'a> {
    score: u64,
    version: &'a Arc<Version>,
    targets: Targets,
    what: What,
}

pub(super) fn choose(input: &PickInput<'_>) -> Option<Plan> {
    let mut candidates = candidates(input);
    candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.score));
    let mut short_of_room = false;
    for candidate in &candidates {
        let mut accept = |plan: &Plan| {
            let fits = fits(input, plan);
            short_of_room |= !fits && !plan.touches(Tier::Slow);
            fits && allowed(input, plan)
        };
        let plan = match candidate.what {
            What::LevelZero => level_zero(input, candidate, &mut accept),
            What::Level(level, reason) => {
                let levels = (level, next_level(level));
                let plan = one_level(input, candidate.version, levels, reason, &mut accept);
                plan.map(|plan| with_following(input, candidate, plan, &mut accept))
            }
            What::HotRuns => tend(input, candidate.version, &mut accept),
            What::Cool => cool(input, candidate.version, &mut accept),
            What::Clean => clean(input, candidate.version, &mut accept),
        };
        if plan.is_some() {
            return plan;
        }
    }
    let is_short = short_of_room && input.running.writing_slow() == 0;
    // What is about to go makes room without anything being moved.
    if (is_short || input.wants_room) && !input.frees_soon && input.config.two_tiers {
        return make_room(input);
    }
    None
}

/// True if the free space holds what `plan` may write.
pub(super) fn fits(input: &PickInput<'_>, plan: &Plan) -> bool {
    // Beside other work even what makes room leaves that of flushes alone: writers would wait for the one or the other.
    let makes_room = plan.output_tier == Tier::Slow && plan.touches(Tier::Fast);
    let kept_bytes = if makes_room && input.running.is_empty() { 0 } else { input.kept_bytes };
    let free_bytes = [input.free_bytes[0].saturating_sub(kept_bytes), input.free_bytes[1]];
    plan.space_bytes.iter().zip(free_bytes).all(|(need, free)| *need <= free)
}

/// True unless plans of this kind wait after a failure.
pub(super) fn allowed(input: &PickInput<'_>, plan: &Plan) -> bool {
    !is_held(input, plan.touches(Tier::Slow))
}

fn is_held(input: &PickInput<'_>, touches_slow: bool) -> bool {
    input.held[usize::from(input.config.two_tiers && touches_slow)]
}

fn candidates<'a>(input: &PickInput<'a>) -> Vec<Candidate<'a>> {
    let mut all = Vec::new();
    for (version, share_bytes) in input.versions.iter().zip(shares(input.versions, input.config)) {
        let targets = targets(version, share_bytes, input.config);
        let mut add = |score, what| all.push(Candidate { score, version, targets: targets.clone(), what });
        let trigger = input.config.l0_trigger_files.max(1) as u64;
        let waiting =
            input.config.l0_runs(version.levels[0].tables.iter().filter(|file| !file.is_being_compacted()));
        if waiting >= trigger {
            add(DUE * waiting / trigger, What::LevelZero);
        }
        for level in (1..LEVELS - 1).filter(|level| !is_hot_run(*level)) {
            let governed_by_share = input.config.two_tiers && level == LAST_FAST;
            let target_bytes = targets.bytes[level];
            let over_bytes = over_target(input, version, level, target_bytes);
            if !governed_by_share && over_bytes > 0 {
                add(
                    score(target_bytes.saturating_add(over_bytes), target_bytes),
                    What::Level(level, Reason::Size),
                );
            }
        }
        if input.config.two_tiers {
            let leaving = input.running.leaving_down_to(version.keyspace, LAST_FAST);
            let bytes = version.tier_bytes(Tier::Fast).saturating_sub(leaving);
            if bytes > share_bytes {
                let from = (0..LEVELS_FAST).rfind(|level| !version.levels[*level].tables.is_empty());
                let what = match from {
                    Some(level) if level > 0 => What::Level(level, Reason::FastFull),
                    _ => What::LevelZero,
                };
                add(URGENT.saturating_add(score(bytes, share_bytes)), what);
            }
            // Ahead of that.
            if bytes > share_bytes || input.config.hot_level_is_full {
                add(u64::MAX, What::Cool);
            }
        }
        // Without a free run no promotion is written: a merge of small ones is soon done.
        add(if has_few_runs_free(version) { u64::MAX } else { 0 }, What::HotRuns);
        add(0, What::Clean);
    }
    all
}

fn score(bytes: u64, target_bytes: u64) -> u64 {
    let ratio = u128::from(bytes) * u128::from(DUE) / u128::from(target_bytes.max(1));
    u64::try_from(ratio).unwrap_or(u64::MAX).clamp(DUE, URGENT - 1)
}

/// The level L0 goes to: the first that has a table, or the base level.
pub(super) fn output_of_level_zero(version: &Version, targets: &Targets) -> usize {
    let has_tables = |level: &usize| !is_hot_run(*level) && !version.levels[*level].tables.is_empty();
    let first = (1..LEVELS).find(has_tables).unwrap_or(LEVELS);
    targets.base.min(first)
}

/// Of the L0 `tables` (newest first), those from `chosen` on and every older one that overlaps any of them.
pub(super) fn with_older(
    tables: &[Arc<TableFile>],
    chosen: impl Fn(&TableFile) -> bool,
) -> Vec<Arc<TableFile>> {
    let mut taken: Vec<bool> = tables.iter().map(|file| chosen(file)).collect();
    // Newest to oldest: a table taken takes all older ones that overlap what is taken.
    for index in 0..tables.len() {
        let newer: Vec<_> = (0..index).filter(|at| taken[*at]).map(|at| Arc::clone(&tables[at])).collect();
        let Some((smallest, largest, exclusive)) = hull(&newer) else { continue };
        let meta = &tables[index].meta;
        let begins_inside = if exclusive { meta.smallest < largest } else { meta.smallest <= largest };
        taken[index] |= meta.reaches(&smallest) && begins_inside;
    }
    tables.iter().zip(taken).filter(|(_, taken)| *taken).map(|(file, _)| Arc::clone(file)).collect()
}

fn level_zero(
    input: &PickInput<'_>,
    candidate: &Candidate<'_>,
    accept: &mut dyn FnMut(&Plan) -> bool,
) -> Option<Plan> {
    let version = candidate.version;
    if input.running.reads_l0(version.keyspace) {
        return within_level_zero(input, version, accept);
    }
    let tables = &version.levels[0].tables;
    let output_level = output_of_level_zero(version, &candidate.targets);
    // All at once, since each merge rewrites much of the base level; fewer only if there is no room for all.
    let mut count = tables.len();
    while count > 0 {
        let oldest: Vec<u64> = tables.iter().rev().take(count).map(|file| file.meta.number).collect();
        let chosen = connected_with_oldest(&with_older(tables, |file| oldest.contains(&file.meta.number)));
        let choice = Choice {
            reason: Reason::LevelZero,
            level: 0,
            tables: chosen,
            output_level,
            keeps: Keeps::Nothing,
        };
        if let Some(plan) = build(input, version, choice).filter(|plan| accept(plan)) {
            return Some(plan);
        }
        count /= 2;
    }
    within_level_zero(input, version, accept).or_else(|| split_level_zero(input, version, accept))
}

/// Of L0 `tables` (newest first) closed under "older and overlapping": the part that hangs together with the oldest one. The
/// rest overlaps nothing of it and needs no merge with it.
fn connected_with_oldest(tables: &[Arc<TableFile>]) -> Vec<Arc<TableFile>> {
    let Some(oldest) = tables.last() else { return Vec::new() };
    let mut taken = vec![Arc::clone(oldest)];
    loop {
        let Some((smallest, largest, _)) = hull(&taken) else { return taken };
        let next: Vec<_> = tables
            .iter()
            .filter(|file| file.meta.reaches(&smallest) && file.meta.smallest <= largest)
            .map(Arc::clone)
            .collect();
        if next.len() == taken.len() {
            return next;
        }
        taken = next;
    }
}

fn within_level_zero(
    input: &PickInput<'_>,
    version: &Version,
    accept: &mut dyn FnMut(&Plan) -> bool,
) -> Option<Plan> {
    if input.running.merges_l0(version.keyspace) {
        return None;
    }
    let mut bytes = 0;
    let newest: Vec<Arc<TableFile>> = version.levels[0]
        .tables
        .iter()
        .take_while(|file| {
            bytes += file.meta.size_bytes;
            // What was merged is not merged again with one tier, where it is cut.
            let is_merged = !input.config.two_tiers && file.meta.size_bytes >= input.config.run_bytes();
            !file.is_being_compacted() && !is_merged && bytes <= input.config.plan_bytes_max
        })
        .map(Arc::clone)
        .collect();
    if newest.len() < input.config.l0_trigger_files.max(2) {
        return None;
    }
    let choice = Choice {
        reason: Reason::WithinLevelZero,
        level: 0,
        tables: newest,
        output_level: 0,
        keeps: Keeps::Nothing,
    };
    build(input, version, choice).filter(|plan| accept(plan))
}

/// Where no merge of L0 into the level below fits, though nothing else runs, and no tier below can take anything: the oldest table
/// cut into narrow ones, each of which meets a part of that level only. What that sets free makes room for the next.
fn split_level_zero(
    input: &PickInput<'_>,
    version: &Version,
    accept: &mut dyn FnMut(&Plan) -> bool,
) -> Option<Plan> {
    let is_last_resort = !input.config.two_tiers && input.running.is_empty() && input.kept_bytes == 0;
    let oldest = version.levels[0].tables.last().filter(|_| is_last_resort)?;
    let choice = Choice {
        reason: Reason::WithinLevelZero,
        level: 0,
        tables: vec![Arc::clone(oldest)],
        output_level: 0,
        keeps: Keeps::Nothing,
    };
    let mut plan = build(input, version, choice)?;
    plan.target_file_bytes = plan.input_bytes / SPLIT_PARTS;
    plan.space_bytes[Tier::Fast.index()] =
        with_framing(&plan, plan.input_bytes, plan.target_file_bytes.max(1));
    Some(plan).filter(|plan| plan.target_file_bytes >= SPLIT_BYTES_MIN && accept(plan))
}

/// Tables that could go down together, and what of them may stay.
struct Ranked {
    /// The least goes first, then the oldest.
    cost: u64,
    tables: Vec<Arc<TableFile>>,
    keeps: Keeps,
}

/// The order in which tables of `level` go to `output_level`: least overlap for what they take away, deletions count
/// double. Across the boundary of the tiers a table takes away what is not hot of it, and small ones that follow each other go
/// together; one that is hot all over goes only when no other can, the oldest first (HotRAP section 3.4).
fn ranked(input: &PickInput<'_>, version: &Version, (level, output_level): (usize, usize)) -> Vec<Ranked> {
    let two_tiers = input.config.two_tiers;
    let is_boundary =
        tier_of(level, two_tiers) == Tier::Fast && tier_of(output_level, two_tiers) == Tier::Slow;
    let tracker = input.tracker.filter(|_| is_boundary && level > 0);
    let tracker = tracker.map(|tracker| OfKeyspace::new(tracker, version.keyspace));
    let files = &version.levels[level].tables;
    // What the tracker calls hot lies in the hot level first of all, except where this level has something newer.
    let of_hot = tracker.map_or((0, 1), |tracker| {
        let all_bytes = tracker.hot_size(KeyRange::ALL);
        let stale_bytes = version.levels[level].size_bytes() / 1000 * input.config.above_permille;
        let copies_bytes = version.hot_level_bytes().saturating_sub(stale_bytes);
        (all_bytes.saturating_sub(copies_bytes), all_bytes.max(1))
    });
    let free = (0..files.len()).filter(|at| !files[*at].is_being_compacted());
    let rank = |at: usize| {
        let tables =
            if tracker.is_some() { neighbours(input, &files[at..]) } else { vec![Arc::clone(&files[at])] };
        let range = hull(&tables).unwrap_or_default();
        let below = meeting(version, output_level, &range);
        let overlap_bytes: u64 = below.iter().map(|file| file.meta.size_bytes).sum();
        let size_bytes: u64 = tables.iter().map(|file| file.meta.size_bytes).sum();
        let hot_bytes = tracker.map_or(0, |tracker| tracker.hot_size(key_range(&range)));
        let hot_bytes = scaled(hot_bytes, of_hot).min(size_bytes);
        let benefit_bytes = size_bytes - hot_bytes;
        let keeps = match tables.iter().map(|file| file.times_kept()).max() {
            _ if tracker.is_none() => Keeps::Nothing,
            Some(0) if benefit_bytes >= size_bytes / RETAIN_BENEFIT => Keeps::Hot,
            Some(0 | 1) => Keeps::Newer,
            _ => Keeps::Nothing,
        };
        if tracker.is_some() && keeps != Keeps::Hot {
            return Ranked { cost: u64::MAX, tables, keeps };
        }
        let cost = u128::from(overlap_bytes) + u128::from(hot_bytes);
        let cost = u64::try_from(cost * 1024 / u128::from(benefit_bytes.max(1))).unwrap_or(u64::MAX - 1);
        let is_dense = tables.iter().any(|file| is_dense(file));
        Ranked { cost: if is_dense { cost / 2 } else { cost }, tables, keeps }
    };
    let mut order: Vec<Ranked> = free.map(rank).collect();
    order.sort_by_key(|one| (one.cost, one.tables.iter().map(|file| file.meta.number).min()));
    order
}

fn scaled(bytes: u64, (part, whole): (u64, u64)) -> u64 {
    u64::try_from(u128::from(bytes) * u128::from(part) / u128::from(whole)).unwrap_or(u64::MAX)
}

/// The first of `files` and those after it that are no more than a table together: what boundary compactions left of
/// several tables becomes one again.
fn neighbours(input: &PickInput<'_>, files: &[Arc<TableFile>]) -> Vec<Arc<TableFile>> {
    let mut bytes = 0;
    let fits = |file: &&Arc<TableFile>| {
        bytes += file.meta.size_bytes;
        !file.is_being_compacted() && bytes <= input.config.table_bytes[Tier::Fast.index()]
    };
    let count = files.iter().take_while(fits).count().max(1);
    files.iter().take(count).map(Arc::clone).collect()
}

/// A compaction of the best table of `level` into `output_level`, levels between being empty. What is hot leaves the fast tier
/// only when nobody can write any more, and where copies are in its range not before these were given up.
fn one_level(
    input: &PickInput<'_>,
    version: &Version,
    (level, output_level): (usize, usize),
    reason: Reason,
    accept: &mut dyn FnMut(&Plan) -> bool,
) -> Option<Plan> {
    // Else every table of a level of thousands would be ranked and planned, and none allowed, each time that any work ends.
    if is_held(input, output_level >= FIRST_SLOW) {
        return None;
    }
    let order = ranked(input, version, (level, output_level));
    let may_leave = input.tracker.is_none() || reason != Reason::FastFull || input.needs_room;
    let mut first = |keeps_of: &dyn Fn(&Ranked) -> Option<Keeps>| {
        let mut too_large = None;
        for one in &order {
            let Some(keeps) = keeps_of(one) else { continue };
            let choice = Choice { reason, level, tables: one.tables.clone(), output_level, keeps };
            let Some(plan) = build(input, version, choice).filter(|plan| accept(plan)) else { continue };
            if plan.input_bytes <= input.config.plan_bytes_max {
                return Some(plan);
            }
            too_large.get_or_insert(plan);
        }
        too_large
    };
    let plan = first(&|one| (may_leave || one.keeps == Keeps::Hot).then_some(one.keeps));
    let may_evict = may_leave && input.running.writing_slow() == 0 && version.hot_level_bytes() == 0;
    plan.or_else(|| first(&|one| (may_evict && one.keeps != Keeps::Nothing).then_some(Keeps::Nothing)))
}

/// `plan`; if it moves a table, with those that follow it and can move, too, as far as the level is over its target: each edit of
/// the manifest is synced, and a level that owes hundreds of small tables would owe as many syncs.
fn with_following(
    input: &PickInput<'_>,
    candidate: &Candidate<'_>,
    plan: Plan,
    accept: &mut dyn FnMut(&Plan) -> bool,
) -> Plan {
    let Some((level, first)) = plan.tables().next().filter(|_| plan.trivial_move) else { return plan };
    let version = candidate.version;
    let over_bytes = over_target(input, version, level, candidate.targets.bytes[level]);
    let files = &version.levels[level].tables;
    let Some(at) = files.iter().position(|file| file.meta.number == first.meta.number) else { return plan };
    let mut bytes = 0;
    let is_due = |file: &&Arc<TableFile>| {
        let is_due = bytes < over_bytes && !file.is_being_compacted();
        bytes += file.meta.size_bytes;
        is_due
    };
    let mut run: Vec<_> = files[at..].iter().take_while(is_due).map(Arc::clone).collect();
    while run.len() > 1 {
        let (reason, output_level, keeps) = (plan.reason, plan.output_level, Keeps::Nothing);
        let choice = Choice { reason, level, tables: run.clone(), output_level, keeps };
        let moved = build(input, version, choice).filter(|plan| plan.trivial_move && accept(plan));
        if let Some(moved) = moved {
            return moved;
        }
        run.truncate(run.len() / 2);
    }
    plan
}

/// Bytes of `level` beyond `target_bytes`, what is on its way down not counted.
fn over_target(input: &PickInput<'_>, version: &Version, level: usize, target_bytes: u64) -> u64 {
    let leaving = input.running.leaving_bytes(version.keyspace, level);
    version.levels[level].size_bytes().saturating_sub(leaving).saturating_sub(target_bytes)
}

fn is_dense(file: &TableFile) -> bool {
    let meta = &file.meta;
    (meta.deletions > 0 && meta.deletions >= meta.entries / 2)
        || (meta.range_tombstones > 0 && meta.range_tombstones.saturating_mul(64) >= meta.entries)
}

/// Tables that lie on the wrong tier, that are mostly deletions, or whose records mostly expired.
fn clean(input: &PickInput<'_>, version: &Version, accept: &mut dyn FnMut(&Plan) -> bool) -> Option<Plan> {
    for (level, file) in version
        .tables()
        .filter(|(level, file)| *level > 0 && !is_hot_run(*level) && !file.is_being_compacted())
    {
        let is_misplaced = file.meta.tier != tier_of(level, input.config.two_tiers);
        let (is_dense, is_expired) = (is_dense(file), mostly_expired(&file.meta, input));
        // Nearly every table is none of them, and all are looked at each time that work ends.
        if !is_misplaced && !is_dense && !is_expired {
            continue;
        }
        let lies_below =
            (level + 1..LEVELS).any(|deeper| !version.overlapping_table(deeper, &file.meta).is_empty());
        // Rewriting in place helps only if nothing must be kept for a snapshot.
        let can_rewrite = !lies_below && file.meta.sequence_max <= input.oldest_snapshot;
        let (reason, output_level) = if is_misplaced {
            (Reason::Misplaced, level)
        } else if is_dense && (lies_below || can_rewrite) {
            (Reason::Deletions, if lies_below { next_level(level) } else { level })
        } else if is_expired && can_rewrite {
            (Reason::Expired, level)
        } else {
            continue;
        };
        let choice =
            Choice { reason, level, tables: vec![Arc::clone(file)], output_level, keeps: Keeps::Nothing };
        if let Some(plan) = build(input, version, choice).filter(|plan| accept(plan)) {
            return Some(plan);
        }
    }
    None
}

/// Moves something of the keyspace that holds most on the fast tier straight to the slow one, from the deepest fast
/// level that has a table: that writes nothing to the fast tier, so as long as the slow one has room, it always fits. Where nothing
/// may go down and room is needed all the same, copies are given up.
pub(super) fn make_room(input: &PickInput<'_>) -> Option<Plan> {
    let mut order: Vec<&Arc<Version>> = input.versions.iter().collect();
    order.sort_by_key(|version| (std::cmp::Reverse(version.tier_bytes(Tier::Fast)), version.keyspace));
    let mut accept = |plan: &Plan| fits(input, plan) && allowed(input, plan);
    let gives_up = input.needs_room && input.running.is_empty();
    order.into_iter().find_map(|version| {
        let down = match (0..LEVELS_FAST).rfind(|level| !version.levels[*level].tables.is_empty()) {
            Some(0) => oldest_of_level_zero(input, version).filter(|plan| accept(plan)),
            Some(from) => one_level(input, version, (from, FIRST_SLOW), Reason::FastFull, &mut accept),
            None => None,
        };
        // Nothing is written for it but the manifest: where that fails, it is not tried again and again at once either.
        down.or_else(|| gives_up.then(|| give_up_least(version)).flatten().filter(|plan| accept(plan)))
    })
}

/// The oldest table of level 0 straight to the slow tier, levels between being empty.
fn oldest_of_level_zero(input: &PickInput<'_>, version: &Version) -> Option<Plan> {
    // While others are on their way down, a newer one must not overtake them.
    if input.running.reads_l0(version.keyspace) {
        return None;
    }
    let tables = version.levels[0].tables.last().map(Arc::clone).into_iter().collect();
    let (level, output_level, keeps) = (0, FIRST_SLOW, Keeps::Nothing);
    build(input, version, Choice { reason: Reason::FastFull, level, tables, output_level, keeps })
}

/// True if something of `range` lies below `level`.
pub(super) fn lies_below(
    version: &Version,
    level: usize,
    range: &(bytes::Bytes, bytes::Bytes, bool),
) -> bool {
    (level + 1..LEVELS).any(|deeper| !meeting(version, deeper, range).is_empty())
}
