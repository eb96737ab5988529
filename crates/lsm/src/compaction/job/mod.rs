//! Runs flushes and compactions: reads, merges, writes tables. Publishes nothing: the database installs the result.
//!
//! In:  a plan, or memtables; what the job needs of the world ([`JobContext`]).
//! Out: new tables, their files and directories synced (RELIABILITY M1), and figures.
//!
//! Invariants
//! - J1 What a reader at a live snapshot, or at the newest sequence number, sees is the same before and after ([`rules`]).
//! - J2 On an error or when cancelled, every file made is closed and removed.
//! - J3 A compaction may be cut into parts that run beside each other; the caller works on parts itself and waits
//!   only for parts that already run, so full lanes cannot hold it up.
//!
//! Tests: `rules_tests.rs`, `golden_tests.rs` (testdata/compact), `tests.rs` (a model, faults, parts), `boundary_tests.rs`.

mod below;
#[cfg(test)]
mod boundary_tests;
#[cfg(test)]
mod golden_tests;
mod merge;
mod output;
mod parts;
mod route;
mod rules;
#[cfg(test)]
mod rules_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use kelvin_base::key::user_key;
use kelvin_base::sync::Mutex;
use kelvin_base::{
    Clock, Error, ErrorKind, Executor, HotTracker, InternalIterator, Result, Sequence, Tier, seeded_bug,
};
use kelvin_storage::WriteFile;
use kelvin_table::{Fragments, Properties, TableOptions};

pub use self::output::OutputWriter;
use self::output::Shape;
use super::pick::Plan;
use crate::memory::MemoryBudget;
use crate::options::HotParts;
use crate::promotion::Lifted;
use crate::version::{FIRST_SLOW, LEVELS_FAST, TableFile, TableMeta, Version};

/// The file of a table to be written.
#[derive(Debug)]
pub struct NewTable {
    /// Its number, used by no other table ever.
    pub number: u64,
    /// Where it lies.
    pub path: PathBuf,
    /// The file.
    pub file: Box<dyn WriteFile>,
    /// Bytes its file gathers before it writes them.
    pub buffer_bytes: usize,
}

/// Where jobs put their tables.
pub trait Outputs: Send + Sync {
    /// Makes the file of a new table.
    ///
    /// # Errors
    /// The tier's.
    fn create(&self, tier: Tier) -> Result<NewTable>;
    /// Makes the files made on `tier` survive power loss by name.
    ///
    /// # Errors
    /// The tier's.
    fn sync_dir(&self, tier: Tier) -> Result<()>;
    /// Removes the file of a table that will not be used. What cannot be removed is an orphan for the next opening.
    fn remove(&self, tier: Tier, number: u64);
}

/// Holds writing to a rate.
pub trait Limiter: Send + Sync {
    /// Called after about every 256 KiB written; may wait.
    fn wrote(&self, tier: Tier, bytes: u64);
}

/// How far a job is. Others may read it while the job runs.
#[derive(Debug, Default)]
pub struct Progress {
    /// Entries read.
    pub entries_in: AtomicU64,
    /// Bytes written, roughly.
    pub bytes_out: AtomicU64,
}

/// What a job needs besides its inputs. Clones share everything.
#[derive(Clone)]
pub struct JobContext {
    /// Where tables go.
    pub outputs: Arc<dyn Outputs>,
    /// Runs parts beside each other.
    pub executor: Arc<dyn Executor>,
    /// Tells the time for expiry and for the figures.
    pub clock: Arc<dyn Clock>,
    /// How tables are made.
    pub options: TableOptions,
    /// The live snapshots, and last the sequence number visible when they were listed, ascending. Inputs must hold
    /// nothing newer than that: a snapshot taken while the job runs could otherwise fall between two versions of
    /// which the job drops the older.
    pub snapshots: Vec<Sequence>,
    /// Tables below the output, as runs of disjoint tables in key order ([`deeper_runs`]). Not used by flushes nor by
    /// plans marked bottommost.
    pub deeper: Vec<Vec<Arc<TableFile>>>,
    /// The user keys to merge: from the first on, to before the second; `None` where the inputs end.
    pub range: (Option<Bytes>, Option<Bytes>),
    /// Bytes read at once from each input table, by its tier.
    pub readahead_bytes: [usize; 2],
    /// Where the job's memory is counted; `None` where nobody counts.
    pub memory: Option<MemoryBudget>,
    /// Set to stop the job, which then answers `Busy`.
    pub cancel: Arc<AtomicBool>,
    /// Holds writing to a rate; `None` for no limit.
    pub limiter: Option<Arc<dyn Limiter>>,
    /// How far the job is.
    pub progress: Arc<Progress>,
    /// What a plan with a level to retain to needs.
    pub retention: Option<Arc<Retention>>,
    /// What a merge of runs of the hot level drops.
    pub cooling: Option<Arc<Cooling>>,
}

impl fmt::Debug for JobContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobContext")
            .field("options", &self.options)
            .field("snapshots", &self.snapshots)
            .field("deeper", &self.deeper.len())
            .finish_non_exhaustive()
    }
}

/// What a boundary compaction needs to keep hot records on the fast tier (HotRAP section 3.4).
#[derive(Debug)]
pub struct Retention {
    /// Tells which keys are hot.
    pub tracker: Arc<dyn HotTracker>,
    /// What of it is done.
    pub parts: HotParts,
    /// How tables of the fast level are made.
    pub options: TableOptions,
    /// Their size, bytes.
    pub target_bytes: u64,
    /// Runs of the hot level that stay below the plan's fast input.
    pub guards: Vec<Vec<Arc<TableFile>>>,
    /// Records taken from the promotion cache, all in the range of the plan's fast input, in order: internal keys of kind `Copy`,
    /// and stored values.
    pub promoted: Vec<(Bytes, Bytes)>,
    /// Takes copies of hot records that go on, and hot copies; `None` if they are retained.
    pub lifted: Option<Arc<Lifted>>,
    /// Records written before this one go on and leave a copy: nobody has written them anew for long.
    pub lift_before: Sequence,
}

/// What a merge of runs of the hot level drops besides duplicates: copies above which something newer lies, and, if room is
/// short, those that are not hot.
#[derive(Debug)]
pub struct Cooling {
    /// Tells which keys are hot; `None` if the others may stay.
    pub tracker: Option<Arc<dyn HotTracker>>,
    /// The tables of the fast levels, as runs of disjoint tables in key order.
    pub above: Vec<Vec<Arc<TableFile>>>,
}

/// A table a job made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobTable {
    /// Its number.
    pub number: u64,
    /// Its tier.
    pub tier: Tier,
    /// What it says about itself.
    pub properties: Properties,
}

impl JobTable {
    /// Its facts as the manifest keeps them.
    #[must_use]
    pub fn meta(&self) -> TableMeta {
        let facts = &self.properties;
        TableMeta {
            number: self.number,
            tier: self.tier,
            size_bytes: facts.size_bytes,
            tail_bytes: facts.tail_bytes,
            smallest: facts.smallest.clone(),
            largest: facts.largest.clone(),
            largest_exclusive: facts.largest_exclusive,
            sequence_min: facts.sequence_min,
            sequence_max: facts.sequence_max,
            entries: facts.entries,
            deletions: facts.deletions,
            range_tombstones: facts.range_tombstones,
            copies: facts.copies,
            expiring: facts.expiring,
            expiry_min_ms: facts.expiry_min_ms,
            key_bytes: facts.key_bytes,
            value_bytes: facts.value_bytes,
        }
    }
}

/// Entries dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// A newer version was in the same stripe.
    pub shadowed: u64,
    /// A range tombstone covered them.
    pub covered: u64,
    /// Deletions with nothing left to delete.
    pub deletions: u64,
    /// Expired records.
    pub expired: u64,
    /// Copies nobody needs.
    pub copies: u64,
}

/// What a boundary compaction did with what it could have kept on the fast tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Routed {
    /// Hot records of the fast tier that stayed there, copies included.
    pub retained: u64,
    /// Bytes of these, keys and values.
    pub retained_bytes: u64,
    /// Entries of the fast tier that are not hot and stayed there above what may be a copy of an older version.
    pub guarded: u64,
    /// Bytes of these.
    pub guarded_bytes: u64,
    /// Bytes of those entries of the fast tier, hot or not, of whose keys the hot level holds a copy of something older.
    pub above_bytes: u64,
    /// Hot records that went on, or lie on the slow tier, and left a copy to the promotion cache.
    pub lifted: u64,
    /// Bytes of these.
    pub lifted_bytes: u64,
    /// Records of the promotion cache that were written to the fast tier.
    pub promoted: u64,
    /// Bytes of these.
    pub promoted_bytes: u64,
    /// Bytes of records of the promotion cache, and of copies, that were no longer hot.
    pub not_hot_bytes: u64,
}

/// A job's figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobStats {
    /// Bytes read from tables, by tier.
    pub read_bytes: [u64; 2],
    /// Reads of tables, by tier.
    pub reads: [u64; 2],
    /// Bytes written, by tier.
    pub written_bytes: [u64; 2],
    /// Entries read.
    pub entries_in: u64,
    /// Entries written.
    pub entries_out: u64,
    /// Values that expired and were written as deletions.
    pub expired_to_deletions: u64,
    /// Entries dropped.
    pub dropped: Dropped,
    /// Hot records kept on the fast tier.
    pub routed: Routed,
    /// How long it took.
    pub duration: Duration,
}

impl JobStats {
    /// Adds those of another job, or of a part of one.
    pub fn add(&mut self, other: &Self) {
        for tier in 0..2 {
            self.read_bytes[tier] += other.read_bytes[tier];
            self.reads[tier] += other.reads[tier];
            self.written_bytes[tier] += other.written_bytes[tier];
        }
        self.entries_in += other.entries_in;
        self.entries_out += other.entries_out;
        self.expired_to_deletions += other.expired_to_deletions;
        let (dropped, more) = (&mut self.dropped, &other.dropped);
        dropped.shadowed += more.shadowed;
        dropped.covered += more.covered;
        dropped.deletions += more.deletions;
        dropped.expired += more.expired;
        dropped.copies += more.copies;
        let (routed, more) = (&mut self.routed, &other.routed);
        routed.retained += more.retained;
        routed.retained_bytes += more.retained_bytes;
        routed.guarded += more.guarded;
        routed.guarded_bytes += more.guarded_bytes;
        routed.above_bytes += more.above_bytes;
        routed.lifted += more.lifted;
        routed.lifted_bytes += more.lifted_bytes;
        routed.promoted += more.promoted;
        routed.promoted_bytes += more.promoted_bytes;
        routed.not_hot_bytes += more.not_hot_bytes;
    }
}

/// What a job made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobOutput {
    /// New tables, in key order on each tier; none if nothing was left.
    pub tables: Vec<JobTable>,
    /// Figures.
    pub stats: JobStats,
}

/// The files a job has made so far.
#[derive(Debug, Default)]
pub struct Made(Mutex<Vec<(Tier, u64)>>);

impl Made {
    fn note(&self, tier: Tier, number: u64) {
        self.0.lock().push((tier, number));
    }

    /// Removes them all.
    fn remove(&self, outputs: &dyn Outputs) {
        for (tier, number) in self.0.lock().drain(..) {
            outputs.remove(tier, number);
        }
    }
}

/// The tables of `version` that may hold data older than the output of `plan`, as [`JobContext::deeper`] wants them.
#[must_use]
pub fn deeper_runs(version: &Version, plan: &Plan) -> Vec<Vec<Arc<TableFile>>> {
    let mut runs = Vec::new();
    if plan.output_level == 0 {
        let is_input = |number: u64| plan.tables().any(|(_, input)| input.meta.number == number);
        let others = version.levels.first().map_or(&[][..], |level| &level.tables);
        let others = others.iter().filter(|file| !is_input(file.meta.number));
        runs.extend(others.map(|file| vec![Arc::clone(file)]));
    }
    let deeper = version.levels.iter().skip(plan.output_level + 1);
    runs.extend(deeper.filter(|level| !level.tables.is_empty()).map(|level| level.tables.clone()));
    runs
}

/// The tables of the fast levels, as [`Cooling::above`] wants them.
#[must_use]
pub fn fast_runs(version: &Version) -> Vec<Vec<Arc<TableFile>>> {
    let newest = version.levels[0].tables.iter().map(|file| vec![Arc::clone(file)]);
    let sorted = version.levels[1..LEVELS_FAST].iter().map(|level| level.tables.clone());
    newest.chain(sorted.filter(|tables| !tables.is_empty())).collect()
}

/// The runs of the hot level that stay where they are, as [`Retention::guards`] wants them.
#[must_use]
pub fn guards(version: &Version, plan: &Plan) -> Vec<Vec<Arc<TableFile>>> {
    let leaves = |number: u64| plan.leaving().any(|(_, file)| file.meta.number == number);
    let stays = |level: usize| {
        let tables = version.levels[level].tables.iter();
        tables.filter(|file| !leaves(file.meta.number)).map(Arc::clone).collect::<Vec<_>>()
    };
    let end = if seeded_bug!("last-run-guards-nothing") { FIRST_SLOW - 1 } else { FIRST_SLOW };
    (LEVELS_FAST..end).map(stays).filter(|run| !run.is_empty()).collect()
}

/// Runs a compaction: merges the plan's inputs into tables of its output level.
///
/// # Errors
/// What keeps an input from being read or an output from being written; `Busy` if cancelled. No file is left then.
pub fn run(plan: &Plan, ctx: &JobContext) -> Result<JobOutput> {
    let start = ctx.clock.now();
    let mut output = parts::run(plan, ctx)?;
    output.stats.duration = ctx.clock.now().saturating_sub(start);
    Ok(output)
}

/// Writes memtables as a table of L0 on the fast tier: one table, or none if they are empty.
///
/// `sources` are the memtables' cursors and `tombstones` the range tombstones of all of them.
///
/// # Errors
/// What keeps the output from being written; `Busy` if cancelled. No file is left then.
pub fn flush<S: InternalIterator>(
    sources: Vec<S>,
    tombstones: &[Arc<Fragments>],
    ctx: &JobContext,
) -> Result<JobOutput> {
    let start = ctx.clock.now();
    let made = Made::default();
    let outcome = merge::flush(sources, tombstones, ctx, &made).and_then(|(tables, stats)| {
        sync_dirs(&tables, ctx)?;
        Ok((tables, stats))
    });
    let (tables, mut stats) = outcome.inspect_err(|_| made.remove(&*ctx.outputs))?;
    stats.duration = ctx.clock.now().saturating_sub(start);
    Ok(JobOutput { tables, stats })
}

/// Writes copies, in internal-key order, as a run of tables of about `target_bytes` on the fast tier.
///
/// # Errors
/// What keeps the output from being written. No file is left then.
pub fn write_run(copies: &[(Bytes, Bytes)], target_bytes: u64, ctx: &JobContext) -> Result<JobOutput> {
    write_sorted(Tier::Fast, target_bytes, ctx, |out| {
        copies.iter().try_for_each(|(internal_key, stored)| {
            out.add(user_key(internal_key), true, internal_key, stored)
        })
    })
}

/// Writes what `fill` adds, in internal-key order, as tables of about `target_bytes` on `tier`.
///
/// # Errors
/// What keeps the output from being written, and the error of `fill`. No file is left then.
pub fn write_sorted(
    tier: Tier,
    target_bytes: u64,
    ctx: &JobContext,
    fill: impl FnOnce(&mut OutputWriter<'_>) -> Result<()>,
) -> Result<JobOutput> {
    let start = ctx.clock.now();
    let made = Made::default();
    let none = Fragments::default();
    let write = || {
        let shape = Shape { tier, ..Shape::plain(ctx.options, target_bytes, &none) };
        let mut out = OutputWriter::new(shape, ctx, &made);
        fill(&mut out)?;
        let tables = out.finish()?;
        sync_dirs(&tables, ctx)?;
        Ok(tables)
    };
    let tables: Vec<JobTable> = write().inspect_err(|_: &Error| made.remove(&*ctx.outputs))?;
    let entries_out = tables.iter().map(|table| table.properties.entries).sum();
    let mut stats = JobStats { entries_out, ..JobStats::default() };
    stats.written_bytes[tier.index()] = tables.iter().map(|table| table.properties.size_bytes).sum();
    stats.duration = ctx.clock.now().saturating_sub(start);
    Ok(JobOutput { tables, stats })
}

fn sync_dirs(tables: &[JobTable], ctx: &JobContext) -> Result<()> {
    for tier in Tier::ALL {
        let has = |tier| tables.iter().any(|table| table.tier == tier);
        let is_forgotten =
            tier == Tier::Fast && has(Tier::Slow) && seeded_bug!("only-the-slow-directory-is-synced");
        if has(tier) && !is_forgotten {
            ctx.outputs.sync_dir(tier)?;
        }
    }
    Ok(())
}

fn cancelled() -> Error {
    Error::new(ErrorKind::Busy, "the job was cancelled").advice("it is picked again when it is still due")
}

fn is_set(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Acquire)
}
