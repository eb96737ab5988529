//! What RALT's readers and its background work share, and how runs are written and installed.
//!
//! One job at a time works ([`Core::work`] holds the lock); readers only load the version. Every change of the runs is an
//! install: a new version is published, and the runs that are in it no more are retired. The state file follows behind: it
//! is advisory, like all of RALT.
//!
//! Files: `flush.rs` accesses to level 0, `compact.rs` levels, `evict.rs` limits, `state.rs` restart.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use kelvin_base::sync::Mutex;
use kelvin_base::{KeyRange, Result, hash64, process};

use crate::buffer::AccessBuffer;
use crate::forget::Forgotten;
use crate::merge::Merged;
use crate::options::{Env, Options, io_bytes_of_many};
use crate::record::Record;
use crate::repeats::Repeats;
use crate::run::{Run, RunWriter, Shelf};
use crate::score::Now;
use crate::stats::Counters;
use crate::version::{LEVELS, Placed, Version};

/// Less than scores differ by that differ for a reason.
const TIE_SCORE: f64 = 1e-6;

/// What one job works on.
#[derive(Debug)]
pub struct Work {
    /// Bytes accessed, keys and values together: the clock of slices and of counters.
    pub accessed_bytes: u64,
    /// Those that it had not seen when it was opened.
    pub seen_bytes: u64,
    /// Those at the last eviction since it was opened.
    pub evicted_at_bytes: u64,
    /// Clocks.
    pub now: Now,
    /// Number of the next file.
    pub next_number: u64,
    /// For each level the last key that a compaction took from it: the next one goes on behind.
    pub compacted_to: [Vec<u8>; LEVELS],
    /// Processor time of the job's thread up to which it was counted.
    pub counted_to: Option<Duration>,
}

/// Readers' and workers' common ground.
#[derive(Debug)]
pub struct Core {
    pub options: Options,
    pub env: Env,
    pub shelf: Shelf,
    pub repeats: Repeats,
    pub buffer: AccessBuffer,
    pub version: ArcSwap<Version>,
    pub work: Mutex<Work>,
    pub counters: Counters,
    /// A job is queued and has not begun.
    pub is_scheduled: AtomicBool,
    /// A reader found damage: everything is to be thrown away by the next job.
    pub is_doubtful: AtomicBool,
    pub is_closing: AtomicBool,
    /// Keys that are to be forgotten by the next job.
    pub forgotten: Mutex<Vec<Forgotten>>,
}

/// What becomes of a merged record: dropped, or kept and hot or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Drop,
    Keep { is_hot: bool },
}

/// The place of a key among those that are alike, from 0 to 1.
fn order(key: &[u8]) -> f64 {
    (hash64(key) >> 40) as f64 / f64::from(1 << 24)
}

/// When a record was last accessed, in slices, those of one in an order.
pub fn recency(key: &[u8], record: &Record) -> f64 {
    f64::from(record.stamp.tick) + order(key)
}

/// New runs, and the first key that they do not reach.
type SomeRuns = (Vec<Arc<Run>>, Option<Vec<u8>>);

impl Core {
    /// How often all counters have been lowered by one.
    pub fn epoch(&self, work: &Work) -> u32 {
        self.options.bounds.epoch(work.accessed_bytes, work.now)
    }

    /// Whether a record is hot for `version`.
    pub fn is_hot(&self, version: &Version, now: Now, key: &[u8], record: &Record) -> bool {
        // With auto-tuning whatever is kept is.
        version.hot_score == f64::MIN || self.score(now, key, record) >= version.hot_score
    }

    /// How hot a record is now. Where many were accessed alike, in the same slices, their keys put them in an order: an eviction
    /// must be able to take some and leave the others.
    pub fn score(&self, now: Now, key: &[u8], record: &Record) -> f64 {
        self.options.scoring.score(record.stamp, now) + TIE_SCORE * order(key)
    }

    /// Writes the merged records of `range` in `runs` (newest first) into new runs. `knows` says which keys are known below them.
    pub fn rewrite(
        &self,
        work: &mut Work,
        knows: &dyn Fn(&[u8]) -> bool,
        runs: Vec<Placed>,
        range: KeyRange<'_>,
        fate: impl Fn(&[u8], &Record) -> Fate,
    ) -> Result<Vec<Arc<Run>>> {
        self.rewrite_some(work, knows, runs, range, u64::MAX, fate).map(|(runs, _)| runs)
    }

    /// The same for about `bytes_max` at most; the first key that is left over, too.
    pub fn rewrite_some(
        &self,
        work: &mut Work,
        knows: &dyn Fn(&[u8]) -> bool,
        runs: Vec<Placed>,
        range: KeyRange<'_>,
        bytes_max: u64,
        fate: impl Fn(&[u8], &Record) -> Fate,
    ) -> Result<SomeRuns> {
        let mut outputs = Outputs::new(self, knows);
        let mut merged = Merged::new(runs, range, self.options.scoring, true)?;
        let mut left_over = None;
        while let Some((key, record)) = merged.next()? {
            if outputs.bytes() >= bytes_max {
                left_over = Some(key.to_vec());
                break;
            }
            if let Fate::Keep { is_hot } = fate(key, &record) {
                outputs.add(work, key, &record, is_hot)?;
            }
        }
        self.counters.read_bytes.fetch_add(merged.take_read_bytes(), Ordering::Relaxed);
        Ok((outputs.finish()?, left_over))
    }

    /// Memory that `version` pins, and that the buffer, sorting it and a merge of all its runs may take at any moment, bytes.
    pub fn memory_bytes(&self, version: &Version) -> u64 {
        let io = self.options.io_bytes as u64;
        let of_many = io_bytes_of_many(self.options.io_bytes) as u64;
        let of_runs =
            |level: &Vec<Placed>, io| level.iter().map(|placed| placed.run.file_bytes().min(io)).sum::<u64>();
        // Of a sorted level one run at a time, and two where an eviction has cut it.
        let [newest, sorted @ ..] = &version.levels;
        let of_sorted = sorted.iter().map(|level| of_runs(level, io).min(2 * io)).sum::<u64>();
        let merge = of_runs(newest, of_many) + of_sorted;
        let writer = io + self.options.run_bytes.min(version.disk_bytes()) / 8;
        (version.memory_bytes() + self.buffer.memory_bytes_max() + self.repeats.memory_bytes()) as u64
            + merge
            + writer
    }

    /// Tells whoever wants to know what memory RALT takes with `version`.
    pub fn tell_memory(&self, version: &Version) {
        if let Some(told) = &self.env.memory {
            told(self.memory_bytes(version));
        }
    }

    /// Counts the processor time of a job since this was last done.
    pub fn count_time(&self, work: &mut Work) {
        if let Some(before) = work.counted_to {
            let now = process::thread_cpu_time();
            let spent_us = u64::try_from(now.saturating_sub(before).as_micros()).unwrap_or(0);
            self.counters.cpu_us.fetch_add(spent_us, Ordering::Relaxed);
            work.counted_to = Some(now);
        }
    }

    /// Publishes `next`, retires the runs that are gone, and writes the state file.
    pub fn install(&self, work: &Work, next: Version) {
        self.tell_memory(&next);
        let before = self.version.swap(Arc::new(next));
        let after = self.version.load();
        let kept: BTreeSet<u64> = after.placed().map(|placed| placed.run.number()).collect();
        before
            .placed()
            .filter(|placed| !kept.contains(&placed.run.number()))
            .for_each(|one| one.run.retire());
        drop(before);
        if let Err(error) = self.save_state(work, &after) {
            self.counters.note_error(&error);
        }
    }

    /// Forgets everything. What is in the version is retired; nothing is hot any more.
    pub fn reset(&self, work: &mut Work) {
        self.counters.resets.fetch_add(1, Ordering::Relaxed);
        self.repeats.forget();
        work.compacted_to = Default::default();
        let limits = self.options.first;
        self.install(work, Version { now: work.now, limits, ..Version::default() });
    }
}

/// New runs, cut at their size. Those that are not taken are removed.
pub struct Outputs<'a> {
    core: &'a Core,
    /// Which keys are known below.
    knows: &'a dyn Fn(&[u8]) -> bool,
    open: Option<RunWriter>,
    done: Vec<Arc<Run>>,
    /// Bytes of those.
    done_bytes: u64,
}

impl<'a> Outputs<'a> {
    /// None yet. `knows` says which keys are known below them.
    pub const fn new(core: &'a Core, knows: &'a dyn Fn(&[u8]) -> bool) -> Self {
        Self { core, knows, open: None, done: Vec::new(), done_bytes: 0 }
    }

    /// Adds a record, behind the last one.
    pub fn add(&mut self, work: &mut Work, key: &[u8], record: &Record, is_hot: bool) -> Result<()> {
        let mut writer = match self.open.take() {
            Some(writer) => writer,
            None => {
                work.next_number += 1;
                RunWriter::new(&self.core.shelf, work.next_number)?
            }
        };
        if let Err(error) = writer.add(key, record, is_hot, (self.knows)(key)) {
            writer.discard();
            return Err(error);
        }
        if writer.estimated_size_bytes() >= self.core.options.run_bytes {
            self.close(writer)?;
        } else {
            self.open = Some(writer);
        }
        Ok(())
    }

    /// Bytes of them so far, roughly.
    fn bytes(&self) -> u64 {
        self.done_bytes + self.open.as_ref().map_or(0, RunWriter::estimated_size_bytes)
    }

    fn close(&mut self, writer: RunWriter) -> Result<()> {
        let run = writer.finish()?;
        self.core.counters.written_bytes.fetch_add(run.file_bytes(), Ordering::Relaxed);
        self.done_bytes += run.file_bytes();
        self.done.push(run);
        Ok(())
    }

    /// The finished runs.
    pub fn finish(mut self) -> Result<Vec<Arc<Run>>> {
        if let Some(writer) = self.open.take() {
            self.close(writer)?;
        }
        Ok(std::mem::take(&mut self.done))
    }
}

impl Drop for Outputs<'_> {
    fn drop(&mut self) {
        if let Some(writer) = self.open.take() {
            writer.discard();
        }
        self.done.iter().for_each(|run| run.retire());
    }
}
