//! The runs of the hot level: when they are merged, and when they are given up (DESIGN section 6).
//!
//! Runs of about one size are merged into one, which drops what something newer above shadows; when the fast tier is full and much of the
//! hot level is cold, each run is written anew without that, which needs room for few tables. Merges go by steps and need room for one of
//! them, or the hot level could fill no more than half of the fast tier. Copies can always be given up: they are when nobody tracks heat any more,
//! or when no run is free and none can be merged.
//!
//! Tests: `tests.rs` (testdata/pick/runs.txt).

use std::sync::Arc;

use bytes::Bytes;
use kelvin_base::{HotTracker, KeyRange, Tier, seeded_bug};

use super::build::{hull, with_framing};
use super::{PickInput, Plan, Reason};
use crate::hotness::of_keyspace::OfKeyspace;
use crate::version::{CooledAt, FIRST_SLOW, HOT_RUNS, LEVELS_FAST, TableFile, Version};

/// So many runs of about one size become one.
const FAN_OUT: usize = 4;
/// Runs are of about one size up to this ratio.
const ALIKE: u64 = 3;
/// With no more runs free than this, runs of any size are merged.
const FREE_MIN: usize = 2;

/// A merge of runs goes by steps that read about so many tables.
const STEP_TABLES: u64 = 4;
/// So does a run that is written anew: the fast tier is full then.
const COOL_TABLES: u64 = 2;
/// Where room is wanted at once, no more tables are given up at a time.
const GIVEN_UP_TABLES: usize = 4;
/// Copies that are not hot any more are looked for when they may be one byte in so many of the hot level.
const COLD: u64 = 16;

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
    let (runs, used) = free_runs(version);
    if input.tracker.is_none() {
        return give_up(version, &runs);
    }
    if input.config.hot_level_is_full && !input.config.checks_hotness {
        let written = |run: &&Run<'_>| run.tables.iter().map(|file| file.meta.number).max();
        return give_up(version, std::slice::from_ref(runs.iter().min_by_key(written)?));
    }
    // Each run of a merge has a table there twice for a while: where there is no room for that, fewer of them are merged.
    let alike = alike(&runs).unwrap_or_default();
    let some = alike.get(..FAN_OUT).filter(|some| some.len() < alike.len());
    let two = runs.get(..2).filter(|_| has_few_runs_free(version));
    let groups = [Some(alike), some, two].into_iter().flatten();
    let mut plans = groups.filter_map(|group| merge_runs(input, version, group, STEP_TABLES));
    let plan = plans.find(|plan| accept(plan));
    plan.or_else(|| {
        let is_stuck = used == HOT_RUNS && input.running.is_empty();
        is_stuck.then(|| give_up(version, runs.get(..1)?)).flatten()
    })
}

/// Writes a run of the hot level anew without what is cold, when the fast tier or the hot level is full and, as far as the tracker can tell, much of
/// it is: that frees room without a write to the slow tier. So does much that something newer in the fast levels has
/// made stale. The largest first, each table once for each time that keys may have ceased to be hot, or that stale ones were found; what was not
/// reached the last time, for want of room, is the first.
pub(super) fn cool(
    input: &PickInput<'_>,
    version: &Version,
    accept: &mut dyn FnMut(&Plan) -> bool,
) -> Option<Plan> {
    let tracker = OfKeyspace::new(input.tracker?, version.keyspace);
    let now = CooledAt::new(tracker.turn(), input.config.clean_turn);
    let bytes = version.hot_level_bytes();
    let cold_bytes = bytes.saturating_sub(tracker.hot_size(KeyRange::ALL));
    let is_cold = cold_bytes > bytes / COLD;
    let (runs, _) = free_runs(version);
    let lags = |file: &Arc<TableFile>| {
        let last = file.cooled_at();
        is_cold && last.turn != now.turn || last.clean_turn < now.clean_turn
    };
    runs.iter().rev().find_map(|run| {
        let oldest =
            run.tables.iter().filter(|file| lags(file)).map(|file| now.since(file.cooled_at())).max()?;
        let is_first = |file: &Arc<TableFile>| lags(file) && now.since(file.cooled_at()) == oldest;
        let tables = &run.tables[run.tables.iter().position(is_first)?..];
        let tables = &tables[..tables.iter().take_while(|file| lags(file)).count()];
        let part = Run { level: run.level, bytes: bytes_of(tables), tables };
        let plan = merge_runs(input, version, std::slice::from_ref(&part), COOL_TABLES)?;
        Some(Plan { keeps_hot: true, ..plan }).filter(|plan| accept(plan))
    })
}

fn bytes_of(tables: &[Arc<TableFile>]) -> u64 {
    tables.iter().map(|file| file.meta.size_bytes).sum()
}

/// True if what promotions write may soon find no place.
pub(super) fn has_few_runs_free(version: &Version) -> bool {
    let hot_level = &version.levels[LEVELS_FAST..FIRST_SLOW];
    hot_level.iter().filter(|run| run.tables.is_empty()).count() < FREE_MIN
}

/// The runs of which no table is being compacted, the smallest first, and how many there are with the others.
fn free_runs(version: &Version) -> (Vec<Run<'_>>, usize) {
    let mut runs: Vec<Run<'_>> = (LEVELS_FAST..FIRST_SLOW)
        .map(|level| (level, &version.levels[level]))
        .filter(|(_, run)| !run.tables.is_empty())
        .map(|(level, run)| Run { level, bytes: run.size_bytes(), tables: &run.tables })
        .collect();
    let used = runs.len();
    runs.retain(|run| run.tables.iter().all(|file| !file.is_being_compacted()));
    runs.sort_by_key(|run| (run.bytes, run.level));
    (runs, used)
}

/// A merge of the two smallest runs.
pub(super) fn merge_two(input: &PickInput<'_>, version: &Version) -> Option<Plan> {
    merge_runs(input, version, free_runs(version).0.get(..2)?, STEP_TABLES)
}

/// The smallest runs of about one size, if there are enough of them.
fn alike<'r, 'a>(runs: &'r [Run<'a>]) -> Option<&'r [Run<'a>]> {
    (0..runs.len()).find_map(|first| {
        let limit = runs[first].bytes.saturating_mul(ALIKE);
        let count = runs[first..].iter().take_while(|run| run.bytes <= limit).count();
        (count >= FAN_OUT).then(|| &runs[first..first + count])
    })
}

/// Merges `group` into the largest of it, a range of its tables after the other, about `step_tables` tables each. It begins where
/// a merge that ended early left off: else one that never finds room for many steps would go over the first ones for ever.
fn merge_runs(input: &PickInput<'_>, version: &Version, group: &[Run<'_>], step_tables: u64) -> Option<Plan> {
    let (base, others) = group.split_last()?;
    let begins = others.iter().filter_map(|run| run.tables.first()).map(|file| file.first_unmerged());
    let passed = begins
        .min()
        .map_or(0, |begin| base.tables.partition_point(|file| file.meta.smallest <= begin).saturating_sub(1));
    let left = base.tables.get(passed..)?;
    let base = Run { bytes: bytes_of(left), tables: left, ..*base };
    let group: Vec<&Run<'_>> = others.iter().chain([&base]).collect();
    let all: Vec<Arc<TableFile>> = group.iter().flat_map(|run| run.tables).map(Arc::clone).collect();
    let (mut smallest, largest, _) = hull(&all)?;
    if passed > 0 {
        smallest.clone_from(&left.first()?.meta.smallest);
    }
    let table_bytes = input.config.table_bytes[Tier::Fast.index()].max(1);
    let input_bytes: u64 = group.iter().map(|run| run.bytes).sum();
    let boundaries = steps(&group, &base, step_tables.saturating_mul(table_bytes));
    let step_bytes = largest_step(&group, &smallest, &boundaries);
    let mut plan = Plan {
        inputs: group.iter().map(|run| (run.level, run.tables.to_vec())).collect(),
        target_file_bytes: table_bytes,
        boundaries,
        input_bytes,
        smallest,
        largest,
        ..Plan::new(version.keyspace, Reason::HotRuns, base.level, Tier::Fast)
    };
    // A table is removed once the steps have passed its end: of each run one is there twice at most.
    let largest_of = |run: &Run<'_>| run.tables.iter().map(|file| file.meta.size_bytes).max();
    let twice_bytes: u64 = others.iter().filter_map(largest_of).sum();
    plan.step_bytes = with_framing(&plan, step_bytes, table_bytes);
    plan.space_bytes[Tier::Fast.index()] = plan.step_bytes + twice_bytes.min(input_bytes - base.bytes);
    Some(plan)
}

/// Keys at which a step of a merge of `runs` into `base`, one of them, begins: behind tables of about `bytes`, and within no table of `base`, since what a
/// step writes stands among those. Where `base` has no tables the others' say how long a step is: it need not reach as far as they do.
fn steps(runs: &[&Run<'_>], base: &Run<'_>, bytes: u64) -> Vec<Bytes> {
    let is_within = |key: &Bytes| {
        let at = base.tables.partition_point(|file| file.meta.largest < *key);
        base.tables.get(at).is_some_and(|file| file.meta.smallest < *key)
            && !seeded_bug!("merge-step-cuts-a-table")
    };
    let mut tables: Vec<&Arc<TableFile>> = runs.iter().flat_map(|run| run.tables).collect();
    tables.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
    let (mut begins, mut since_bytes) = (Vec::new(), 0);
    for file in tables {
        let key = &file.meta.smallest;
        if since_bytes >= bytes && !is_within(key) && begins.last() != Some(key) {
            begins.push(key.clone());
            since_bytes = 0;
        }
        since_bytes += file.meta.size_bytes;
    }
    begins
}

/// The most that the tables have which one of the steps meets, bytes: it can write no more.
fn largest_step(runs: &[&Run<'_>], smallest: &Bytes, begins: &[Bytes]) -> u64 {
    let met = |from: &Bytes, to: Option<&Bytes>| -> u64 {
        let of_run = |run: &&Run<'_>| {
            let is_before = |file: &Arc<TableFile>| {
                file.meta.largest < *from
                    || seeded_bug!("merge-step-forgets-what-began-before") && file.meta.smallest < *from
            };
            let first = run.tables.partition_point(is_before);
            let met =
                run.tables[first..].iter().take_while(|file| to.is_none_or(|to| file.meta.smallest < *to));
            met.map(|file| file.meta.size_bytes).sum::<u64>()
        };
        runs.iter().map(of_run).sum()
    };
    let froms = std::iter::once(smallest).chain(begins);
    let tos = begins.iter().map(Some).chain([None]);
    froms.zip(tos).map(|(from, to)| met(from, to)).max().unwrap_or(0)
}

/// Removes the smallest run, or where that is a large one, a few tables of it, those that were rid of what is cold the longest ago: the room is
/// there at once, and nothing is written. (The smallest may be all that there is.)
pub(super) fn give_up_least(version: &Version) -> Option<Plan> {
    let (runs, _) = free_runs(version);
    let least = runs.first()?;
    let oldest = |tables: &&[Arc<TableFile>]| tables.iter().map(|file| file.cooled_at()).min();
    let tables = least.tables.chunks(GIVEN_UP_TABLES).min_by_key(oldest)?;
    give_up(version, &[Run { level: least.level, bytes: bytes_of(tables), tables }])
}

/// Removes `runs`.
fn give_up(version: &Version, runs: &[Run<'_>]) -> Option<Plan> {
    let tables =
        |run: &Run<'_>| run.tables.iter().map(|file| (run.level, Arc::clone(file))).collect::<Vec<_>>();
    let evicts: Vec<_> = runs.iter().flat_map(tables).collect();
    (!evicts.is_empty()).then(|| {
        let nothing = Plan::new(version.keyspace, Reason::HotRuns, LEVELS_FAST, Tier::Fast);
        Plan { evicts, trivial_move: true, ..nothing }
    })
}

#[cfg(test)]
mod tests {
    use kelvin_base::hash64;

    use super::*;
    use crate::version::TableOpener;
    use crate::version::tests::{NoTables, meta};

    fn table(first: u64, last: u64, bytes: u64) -> Arc<TableFile> {
        let opener: Arc<dyn TableOpener> = Arc::new(NoTables::default());
        let mut facts = meta(1, &format!("{first:06}"), &format!("{last:06}"));
        facts.size_bytes = bytes;
        Arc::new(TableFile::new(facts, opener))
    }

    fn run(tables: &[Arc<TableFile>]) -> Run<'_> {
        Run { level: LEVELS_FAST, bytes: bytes_of(tables), tables }
    }

    /// What the steps of a merge of `runs`, of which the last is the largest, read at most, after a look at where they begin.
    fn checked_steps(runs: &[Vec<Arc<TableFile>>]) -> u64 {
        let runs: Vec<Run<'_>> = runs.iter().map(|tables| run(tables)).collect();
        let all: Vec<&Run<'_>> = runs.iter().collect();
        let base = all.last().unwrap();
        let begins = steps(&all, base, 4000);
        let smallest = all.iter().map(|run| &run.tables[0].meta.smallest).min().unwrap();
        let most = largest_step(&all, smallest, &begins);
        let mut from = Some(smallest);
        for to in begins.iter().map(Some).chain([None]) {
            let met =
                |file: &&Arc<TableFile>| file.meta.meets(from.map(Bytes::as_ref), to.map(Bytes::as_ref));
            let read: u64 =
                all.iter().flat_map(|run| run.tables).filter(met).map(|file| file.meta.size_bytes).sum();
            assert!(read > 0 && read <= most, "{read} of {most}");
            if let Some(to) = to {
                assert!(from < Some(to), "in order");
                let is_cut = |file: &Arc<TableFile>| file.meta.smallest < *to && *to <= file.meta.largest;
                assert!(!base.tables.iter().any(is_cut), "a table of the run stays whole");
            }
            from = to;
        }
        most
    }

    #[test]
    fn no_step_of_a_merge_reads_more_than_is_set_aside_for_one() {
        for seed in 0..300_u64 {
            let draw = |run: u64, table: u64, what: u64| {
                hash64(&(seed << 24 | run << 16 | table << 8 | what).to_le_bytes())
            };
            let mut runs: Vec<Vec<Arc<TableFile>>> = (0..1 + seed % 5)
                .map(|run| {
                    let mut at = draw(run, 0, 0) % 3000;
                    let tables = (0..1 + draw(run, 0, 1) % 30).map(|number| {
                        let first = at + draw(run, number, 2) % 200;
                        let last = first + draw(run, number, 3) % 200;
                        at = last + 1;
                        table(first, last, 1 + draw(run, number, 4) % 1500)
                    });
                    tables.collect()
                })
                .collect();
            runs.sort_by_key(|tables| bytes_of(tables));
            checked_steps(&runs);
        }
    }

    #[test]
    fn where_the_largest_run_has_no_tables_steps_are_short_too() {
        let run = |tables: std::ops::Range<u64>| -> Vec<_> {
            tables.map(|number| table(number * 10, number * 10 + 9, 1000)).collect()
        };
        // The larger one was given up up to its middle, or behind it.
        for base in [run(20..41), run(0..21)] {
            let most = checked_steps(&[run(10..30), base]);
            assert!(most <= 6000, "{most} of 41,000");
        }
        assert!(checked_steps(&[run(0..20), run(20..41)]) <= 5000, "nothing lies twice");
    }
}
