//! Which compaction comes next. Pure: no I/O, no locks, no clock; the same input gives the same plan.
//!
//! Levels 0 to 6 belong to the fast tier, 7 to 11 to the slow one (or all to the only tier there is). L0 is compacted
//! into the base level, the first level worth having for the capacity at hand; levels between are empty. The last
//! fast level takes whatever the upper ones leave of the fast tier's share, so that the fast tier is filled, and the
//! boundary compaction runs when the share is passed (the paper's RocksDB-fat).
//!
//! Invariants
//! - P1 Inputs of a level are a run without gaps, and no table overlapping them that should go along stays behind: for L0 the older
//!   tables, for the output level every table that meets the inputs' range.
//! - P2 No plan overlaps a running compaction: neither its tables nor, at a level both write, its range.
//! - P3 Every plan moves data down, merges L0 tables, or rewrites a table that then no longer asks for it: picking ends.
//! - P4 `bottommost` only if nothing older can lie below or beside the inputs' range.
//!
//! Tests: `tests.rs` (golden texts in testdata/pick, and random trees compacted until nothing is due).

mod build;
mod choose;
mod forced;
mod hot;
mod layout;
mod manual;
mod running;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use kelvin_base::{HotTracker, Sequence, Tier};

pub use build::OVERLAP_TABLES_FAST_MAX;
pub use choose::RETAIN_BENEFIT;
pub use forced::{Forced, pick_forced};
pub use layout::{Targets, shares, targets};
pub use manual::{RangePick, pick_range};
pub use running::Running;

use crate::version::{TableFile, Version};

/// The figures picking works with. All sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PickConfig {
    /// There is a slow tier.
    pub two_tiers: bool,
    /// What tables on the fast tier may fill when nothing runs: capacity less reserve, log, flush and compaction headroom.
    /// Not used with one tier.
    pub fast_usable_bytes: u64,
    /// Bytes of a memtable.
    pub memtable_bytes: u64,
    /// L0 tables from which on a compaction is due.
    pub l0_trigger_files: usize,
    /// Size ratio of neighbouring levels, at least 2.
    pub ratio: u64,
    /// Part of a last fast level's bytes that a boundary compaction moves on, in thousandths: the first slow level is that much
    /// smaller (HotRAP section 3.6). 1000 while nothing is retained.
    pub cold_permille: u64,
    /// What is hot stays on the fast tier when its table leaves, and so do the copies in its range. Without it (an ablation) all of the table goes, and
    /// so do the tables of the hot level that begin in its range.
    pub retains: bool,
    /// A promotion waits for room in the hot level, whatever else the fast tier has: what is cold there is to go.
    pub hot_level_is_full: bool,
    /// Nobody asks what is hot (an ablation): there what was promoted first goes.
    pub checks_hotness: bool,
    /// Part of a last fast level's bytes that lies above copies of something older in the hot level, in thousandths.
    pub above_permille: u64,
    /// How often the hot level was to be rid of what something newer above makes stale.
    pub clean_turn: u32,
    /// Size of a table by output tier.
    pub table_bytes: [u64; 2],
    /// A plan takes no more input tables once it has this many bytes, if it can.
    pub plan_bytes_max: u64,
    /// Parts one compaction may be cut into, by output tier.
    pub parts_max: [usize; 2],
    /// How long expired records may stay in a table that holds mostly expiring ones, milliseconds.
    pub expiry_grace_ms: u64,
}

/// Everything a decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct PickInput<'a> {
    /// The versions of all keyspaces.
    pub versions: &'a [Arc<Version>],
    /// The figures.
    pub config: &'a PickConfig,
    /// What runs.
    pub running: &'a Running,
    /// Unix milliseconds.
    pub now_ms: u64,
    /// No snapshot is older.
    pub oldest_snapshot: Sequence,
    /// Bytes that may still be written, by tier.
    pub free_bytes: [u64; 2],
    /// The part of that on the fast tier that is kept for flushes: only what makes room there may use it.
    pub kept_bytes: u64,
    /// Files are about to go from the disks, whose bytes are not free yet.
    pub frees_soon: bool,
    /// Writers wait for room on the fast tier, or soon will.
    pub wants_room: bool,
    /// They do not only want it: nobody writes before there is some.
    pub needs_room: bool,
    /// Tells which keys are hot; `None` if nobody tracks that, and nothing is retained.
    pub tracker: Option<&'a dyn HotTracker>,
    /// Kinds of plans that wait after a failure: `[0]` those within the fast tier, `[1]` those that touch the slow one.
    pub held: [bool; 2],
}

/// Why a compaction runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// L0 has too many tables.
    LevelZero,
    /// Many L0 tables wait while the base level is busy: they are merged among themselves.
    WithinLevelZero,
    /// A level is over its target.
    Size,
    /// The fast tier is over the keyspace's share, or a compaction waits for room there.
    FastFull,
    /// A table holds mostly deletions.
    Deletions,
    /// A table holds mostly records that expired.
    Expired,
    /// Runs of the hot level are many, or nobody wants them.
    HotRuns,
    /// A table lies on the other tier than its level.
    Misplaced,
    /// Somebody asked.
    Manual,
}

impl Reason {
    /// The name in stats, events and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LevelZero => "level_zero",
            Self::WithinLevelZero => "within_level_zero",
            Self::Size => "size",
            Self::FastFull => "fast_full",
            Self::Deletions => "deletions",
            Self::Expired => "expired",
            Self::HotRuns => "hot_runs",
            Self::Misplaced => "misplaced",
            Self::Manual => "manual",
        }
    }
}

/// A compaction to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The claim by which it runs ([`Running::begin`]).
    pub claim: u64,
    /// The keyspace.
    pub keyspace: u32,
    /// Why.
    pub reason: Reason,
    /// Tables to read, by level from the top; within a level in its order (L0 newest first).
    pub inputs: Vec<(usize, Vec<Arc<TableFile>>)>,
    /// Where the result goes.
    pub output_level: usize,
    /// On which tier.
    pub output_tier: Tier,
    /// The fast level that takes the place of its input there with what is hot: a boundary compaction that retains and
    /// promotes (HotRAP section 3.4). `None` if everything goes to the output level.
    pub retain_level: Option<usize>,
    /// What is hot stays there; else only what must stay above the hot level. Of a merge of runs of the hot level: nothing else stays.
    pub keeps_hot: bool,
    /// Tables of the hot level that leave with it: copies that something newer in the inputs may concern.
    pub evicts: Vec<(usize, Arc<TableFile>)>,
    /// Size of an output table, bytes.
    pub target_file_bytes: u64,
    /// Bytes of grandparents that an output should not pass: what moving it on will cost.
    pub overlap_bytes_max: u64,
    /// Nothing older lies below: deletions that no snapshot needs can go for good.
    pub bottommost: bool,
    /// The input's only table moves as it is: an edit suffices.
    pub trivial_move: bool,
    /// Tables of the next level that holds any in the range: outputs should not overlap too many of them.
    pub grandparents: Vec<Arc<TableFile>>,
    /// User keys between which parts of about equal size lie; empty if one part is best.
    pub boundaries: Vec<Bytes>,
    /// Not 0: parts are steps that follow each other, each installed by itself in place of what it has read, and write about so many
    /// bytes each.
    pub step_bytes: u64,
    /// Bytes to reserve before it starts, by tier: an upper bound of what it writes.
    pub space_bytes: [u64; 2],
    /// Bytes it reads.
    pub input_bytes: u64,
    /// Smallest user key of the inputs.
    pub smallest: Bytes,
    /// Largest user key of the inputs, or the end of a range tombstone.
    pub largest: Bytes,
}

impl Plan {
    /// A plan that does nothing yet.
    #[must_use]
    pub(crate) fn new(keyspace: u32, reason: Reason, output_level: usize, output_tier: Tier) -> Self {
        Self {
            claim: 0,
            keyspace,
            reason,
            inputs: Vec::new(),
            output_level,
            output_tier,
            retain_level: None,
            keeps_hot: false,
            evicts: Vec::new(),
            target_file_bytes: u64::MAX,
            overlap_bytes_max: u64::MAX,
            bottommost: false,
            trivial_move: false,
            grandparents: Vec::new(),
            boundaries: Vec::new(),
            step_bytes: 0,
            space_bytes: [0; 2],
            input_bytes: 0,
            smallest: Bytes::new(),
            largest: Bytes::new(),
        }
    }

    /// The input tables with their levels.
    pub fn tables(&self) -> impl Iterator<Item = (usize, &Arc<TableFile>)> {
        self.inputs.iter().flat_map(|(level, files)| files.iter().map(move |file| (*level, file)))
    }

    /// The tables of the hot level that leave with it.
    pub fn leaving(&self) -> impl Iterator<Item = (usize, &Arc<TableFile>)> {
        self.evicts.iter().map(|(level, file)| (*level, file))
    }

    /// True if it reads or writes this tier.
    #[must_use]
    pub fn touches(&self, tier: Tier) -> bool {
        self.output_tier == tier || self.tables().any(|(_, file)| file.meta.tier == tier)
    }
}

/// What compactions owe, for write back-pressure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Debt {
    /// L0 tables of the keyspace that has most; one as large as several pairs of memtables counts as several.
    pub l0_runs: u64,
    /// Bytes over the levels' targets, and of L0 tables over the trigger.
    pub pending_bytes: u64,
    /// Bytes on the fast tier over what it may hold when nothing runs.
    pub fast_over_bytes: u64,
}

impl PickConfig {
    /// What some tables of L0 count for: one each, and one as large as several pairs of memtables as several. What stops
    /// writers and what makes a compaction due must be counted alike, or writers could wait for nothing.
    fn l0_runs<'a>(&self, tables: impl IntoIterator<Item = &'a Arc<TableFile>>) -> u64 {
        let (mut count, mut bytes) = (0, 0);
        for file in tables {
            count += 1;
            bytes += file.meta.size_bytes;
        }
        count.max(bytes / self.run_bytes())
    }

    /// Bytes of L0 tables that count for a run.
    fn run_bytes(&self) -> u64 {
        self.memtable_bytes.saturating_mul(2).max(1)
    }
}

/// What compactions owe over all keyspaces.
#[must_use]
pub fn debt(versions: &[Arc<Version>], config: &PickConfig) -> Debt {
    let mut debt = Debt::default();
    let shares = shares(versions, config);
    let mut fast_bytes = 0;
    for (version, share_bytes) in versions.iter().zip(shares) {
        let targets = targets(version, share_bytes, config);
        let l0 = &version.levels[0];
        debt.l0_runs = debt.l0_runs.max(config.l0_runs(&l0.tables));
        if l0.tables.len() > config.l0_trigger_files {
            debt.pending_bytes += l0.size_bytes();
        }
        for (level, target_bytes) in targets.bytes.iter().enumerate().skip(1) {
            debt.pending_bytes += version.levels[level].size_bytes().saturating_sub(*target_bytes);
        }
        fast_bytes += version.tier_bytes(Tier::Fast);
    }
    if config.two_tiers {
        debt.fast_over_bytes = fast_bytes.saturating_sub(config.fast_usable_bytes);
    }
    debt
}

/// The next compaction, if one is due and can run.
#[must_use]
pub fn pick(input: &PickInput<'_>) -> Option<Plan> {
    choose::choose(input)
}
