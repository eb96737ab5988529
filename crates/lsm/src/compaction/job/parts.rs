//! Cuts a compaction into parts by key range and runs them beside each other.
//!
//! Invariants
//! - Every part is claimed once; whoever claims it reports it, even by panicking. The caller claims parts until none is
//!   left, then waits for those that run elsewhere: it never waits for a queue.
//! - Helpers hold the job weakly until they start, so a helper queued for long keeps no table alive.
//! - Files are removed only after every claimed part has ended.
//!
//! Tests: `tests.rs`.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use kelvin_base::sync::Mutex;
use kelvin_base::{Error, ErrorKind, Lane, Result, Signal, Tier};
use kelvin_table::{Fragments, ScanOptions};

use super::below::Below;
use super::merge::{self, Merged, Pass, Watch};
use super::output::{OutputWriter, Shape};
use super::route::{Cooler, HotSide, PromotedIter};
use super::rules::{Rules, Terms};
use super::{JobContext, JobOutput, Made, Retention, sync_dirs};
use crate::compaction::pick::Plan;
use crate::iter::{LevelIter, MergingIter, Source};
use crate::memory::MemoryPart;
use crate::tiers::Purpose;

/// A compaction while it runs.
struct Work {
    plan: Plan,
    ctx: JobContext,
    terms: Terms,
    /// Range tombstones to keep.
    kept: Fragments,
    /// User keys between parts, ascending.
    boundaries: Vec<Bytes>,
    next: AtomicUsize,
    /// A part failed: the others need not go on.
    stop: AtomicBool,
    made: Made,
    results: Mutex<Vec<Option<Result<Merged>>>>,
    reported: Signal,
}

/// Runs `plan`. See [`super::run`].
///
/// # Errors
/// As [`super::run`].
pub fn run(plan: &Plan, ctx: &JobContext) -> Result<JobOutput> {
    let work = Arc::new(prepare(plan, ctx)?);
    let parts = work.boundaries.len() + 1;
    for _ in 1..parts.min(ctx.executor.width(Lane::Compaction)) {
        let work: Weak<Work> = Arc::downgrade(&work);
        let purpose = Purpose::current();
        let help = move || {
            let _purpose = purpose.enter();
            if let Some(work) = work.upgrade() {
                work.run_parts();
            }
        };
        ctx.executor.spawn(Lane::Compaction, Box::new(help));
    }
    work.run_parts();
    let results = work.reported.wait_for(&*ctx.executor, || {
        let mut results = work.results.lock();
        results.iter().all(Option::is_some).then(|| std::mem::take(&mut *results))
    });
    join(results.into_iter().flatten().collect(), ctx).inspect_err(|_| work.made.remove(&*ctx.outputs))
}

fn prepare(plan: &Plan, ctx: &JobContext) -> Result<Work> {
    let mut sets = Vec::new();
    for (_, file) in plan.tables().filter(|(_, file)| file.meta.range_tombstones > 0) {
        sets.extend(file.table()?.tombstones().map(Arc::clone));
    }
    let terms = Terms {
        snapshots: ctx.snapshots.clone(),
        now_ms: ctx.clock.unix_millis(),
        drops_copies: plan.output_tier == Tier::Slow && ctx.retention.is_none(),
        routes_copies: ctx.retention.is_some(),
        tombstones: Arc::new(Fragments::merge(sets.iter().map(AsRef::as_ref))),
    };
    let kept = Fragments::build(terms.kept_tombstones(&below(plan, ctx)));
    let mut boundaries = plan.boundaries.clone();
    boundaries.sort_unstable();
    boundaries.dedup();
    let results = Mutex::new((0..=boundaries.len()).map(|_| None).collect());
    Ok(Work {
        plan: plan.clone(),
        ctx: ctx.clone(),
        terms,
        kept,
        boundaries,
        next: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        made: Made::default(),
        results,
        reported: Signal::new(),
    })
}

fn below(plan: &Plan, ctx: &JobContext) -> Below {
    Below::runs(if plan.bottommost { &[] } else { &ctx.deeper })
}

/// The parts' results in order, or the error that matters most.
fn join(results: Vec<Result<Merged>>, ctx: &JobContext) -> Result<JobOutput> {
    // A part stopped because another failed answers `Busy`: the cause is worth more.
    let errors = || results.iter().filter_map(|result| result.as_ref().err());
    if let Some(error) = errors().find(|error| error.kind() != ErrorKind::Busy).or_else(|| errors().next()) {
        return Err(error.clone());
    }
    let mut output = JobOutput::default();
    for (tables, stats) in results.into_iter().flatten() {
        output.tables.extend(tables);
        output.stats.add(&stats);
    }
    sync_dirs(&output.tables, ctx)?;
    Ok(output)
}

/// A claimed part; reports on drop.
struct Claim<'a> {
    work: &'a Work,
    part: usize,
    result: Option<Result<Merged>>,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let lost = || Err(Error::new(ErrorKind::Io, "a part of a compaction panicked"));
        let result = self.result.take().unwrap_or_else(lost);
        if result.is_err() {
            self.work.stop.store(true, Ordering::Release);
        }
        if let Some(slot) = self.work.results.lock().get_mut(self.part) {
            *slot = Some(result);
        }
        self.work.reported.raise();
    }
}

impl Work {
    /// Claims and runs parts until none is left.
    fn run_parts(&self) {
        loop {
            let part = self.next.fetch_add(1, Ordering::AcqRel);
            if part > self.boundaries.len() {
                return;
            }
            let mut claim = Claim { work: self, part, result: None };
            claim.result = Some(self.run_part(part));
        }
    }

    fn run_part(&self, part: usize) -> Result<Merged> {
        let (first, end) = &self.ctx.range;
        let lower = part.checked_sub(1).and_then(|before| self.boundaries.get(before)).or(first.as_ref());
        let upper = self.boundaries.get(part).or(end.as_ref());
        let (sources, fast_sources, ahead) = self.sources(lower, upper);
        // Each source holds what it read ahead, and one of them at a time the bytes it reads.
        let ahead = ahead.iter().sum::<u64>() + ahead.iter().max().copied().unwrap_or(0);
        let _counted = self.ctx.memory.as_ref().map(|memory| memory.charge(MemoryPart::Readers, ahead));
        let mut merge = MergingIter::new(sources);
        let shape = Shape {
            tier: self.plan.output_tier,
            options: self.ctx.options,
            target_bytes: self.plan.target_file_bytes,
            overlap_bytes_max: self.plan.overlap_bytes_max,
            grandparents: &self.plan.grandparents,
            tombstones: &self.kept,
            lower: lower.cloned(),
            upper: upper.cloned(),
        };
        let out = OutputWriter::new(shape, &self.ctx, &self.made);
        let watch = Watch::new(&self.ctx, &self.stop, self.plan.output_tier);
        let mut pass = Pass::new(Rules::new(&self.terms, below(&self.plan, &self.ctx)), out, watch);
        let none = Fragments::default();
        if let Some(retention) = &self.ctx.retention {
            pass.hot = Some(HotSide {
                out: self.hot_output(retention, &none),
                tracker: &*retention.tracker,
                parts: retention.parts,
                promoted_sources: usize::from(!retention.promoted.is_empty()),
                fast_sources,
                guards: Below::runs(&retention.guards),
                lifted: retention.lifted.as_deref(),
                lift_before: retention.lift_before,
            });
        }
        pass.cooler = self.ctx.cooling.as_ref().map(|cooling| Cooler {
            tracker: cooling.tracker.as_deref(),
            above: Below::runs(&cooling.above),
        });
        let (tables, mut stats) = merge::run(&mut merge, lower, upper, pass)?;
        for source in merge.sources() {
            for (tier, io) in source.take_io().into_iter().enumerate() {
                stats.read_bytes[tier] += io.bytes;
                stats.reads[tier] += io.reads;
            }
        }
        Ok((tables, stats))
    }

    /// Writes what stays hot into the level it comes from.
    fn hot_output<'a>(&'a self, retention: &Retention, none: &'a Fragments) -> OutputWriter<'a> {
        let shape = Shape::plain(retention.options, retention.target_bytes, none);
        OutputWriter::new(shape, &self.ctx, &self.made)
    }

    /// The inputs that meet the part: records of the promotion cache first, then each L0 table alone and each deeper level
    /// as one source. How many of the tables' sources may stay where they are: the first ones. What each source reads ahead, bytes.
    fn sources(&self, lower: Option<&Bytes>, upper: Option<&Bytes>) -> (Vec<Source>, usize, Vec<u64>) {
        let scan = ScanOptions { sequential: true, ..ScanOptions::default() };
        let (low, high) = (lower.map(Bytes::as_ref), upper.map(Bytes::as_ref));
        let mut sources = Vec::new();
        let (mut fast_sources, mut ahead) = (0, Vec::new());
        for (level, files) in &self.plan.inputs {
            let tier = files.first().map_or(Tier::Fast, |file| file.meta.tier);
            let scan = ScanOptions { readahead_bytes: self.ctx.readahead_bytes[tier.index()], ..scan };
            let met = files.iter().filter(|file| file.meta.meets(low, high)).map(Arc::clone);
            let before = sources.len();
            if *level == 0 {
                sources.extend(met.map(|file| LevelIter::of_files(vec![file], scan)));
            } else {
                sources.push(LevelIter::of_files(met.collect(), scan));
            }
            ahead.resize(ahead.len() + sources.len() - before, scan.readahead_bytes as u64);
            if self.plan.retain_level == Some(*level) {
                fast_sources = sources.len();
            }
        }
        let tables = sources.into_iter().map(|source| source.bounded(lower.cloned(), upper.cloned()));
        let promoted = self.ctx.retention.iter().filter(|retention| !retention.promoted.is_empty());
        let promoted =
            promoted.map(|retention| Source::Boxed(Box::new(PromotedIter::new(Arc::clone(retention)))));
        (promoted.chain(tables.map(Source::Level)).collect(), fast_sources, ahead)
    }
}
