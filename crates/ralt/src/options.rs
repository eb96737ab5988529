//! How RALT is set up.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use kelvin_base::events::TrackerSizes;
use kelvin_base::{Executor, Lane};
use kelvin_storage::{ALIGNMENT, IoMode, Storage};

use crate::compact::STEP_RUNS;
use crate::limits::{Bounds, Limits};
use crate::score::Scoring;

/// The paper's α.
const ALPHA: f64 = 0.999;
/// γ: the fast disk's size over the bytes accessed in a slice. The paper names 10, its code a slice for each thousandth of the hot set's limit: with ten, what was hot is
/// hotter for long than what is, since half of a score is left after 69 times the size of the fast disk was accessed; with this, after 1.4 times.
const SLICES_IN_FAST: u64 = 500;
/// Filter bits a hot key (the paper's are 20).
const FILTER_BITS_PER_KEY: u32 = 16;
/// The buffer over the marks of keys that were noted of late.
const REPEATS_IN_BUFFER: usize = 2;
/// What is read of a run at once, and gathered before it is written, bytes.
const IO_BYTES: usize = 64 << 10;
/// It is no less than that, a block.
const IO_BYTES_MIN: usize = 8 << 10;

/// Less than some blocks is not worth a file.
const RUN_BYTES_MIN: u64 = 16 << 10;

/// Is told what memory RALT takes.
pub type MemoryListener = Arc<dyn Fn(u64) + Send + Sync>;
/// Is told of an eviction: how large everything was and might be before, and after.
pub type EvictionListener = Arc<dyn Fn(TrackerSizes, TrackerSizes) + Send + Sync>;

/// Where RALT lies and who works for it.
#[derive(Clone)]
pub struct Env {
    /// The fast disk.
    pub storage: Arc<dyn Storage>,
    /// Its directory there: nothing else may lie in it.
    pub dir: PathBuf,
    /// How its bytes travel.
    pub io: IoMode,
    /// Runs its background work.
    pub executor: Arc<dyn Executor>,
    /// Where that waits.
    pub lane: Lane,
    /// Told at each change of the runs, and when a job failed, what memory RALT takes from then on, bytes: [`crate::Stats::memory_bytes`].
    pub memory: Option<MemoryListener>,
    /// Told of each eviction by the thread that made it; it must not wait.
    pub evicted: Option<EvictionListener>,
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env").field("dir", &self.dir).field("lane", &self.lane).finish_non_exhaustive()
    }
}

/// Figures of a RALT. [`Options::of_fast`] has the paper's.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Whose accesses these are: files of another owner are thrown away.
    pub owner: [u8; 16],
    /// The fast disk's size, bytes.
    pub fast_bytes: u64,
    /// How hot a key is.
    pub scoring: Scoring,
    /// Go on with the scoring that the files there were kept with, if they are sound, and not with [`Self::scoring`]. Without it
    /// files of another scoring are thrown away: their scores say nothing.
    pub keeps_scoring: bool,
    /// γ: a time slice passes each time so many bytes have been accessed.
    pub slice_bytes: u64,
    /// Bounds of the hot set.
    pub bounds: Bounds,
    /// The limits that a new RALT begins with.
    pub first: Limits,
    /// Physical size that all records may have in the end, whatever the workload, bytes. The paper names no bound.
    pub physical_bytes_max: u64,
    /// Let the limits follow the workload (Algorithm 1). Without it they stay at the first ones, and an eviction takes the
    /// coldest records whether they are stable or not.
    pub has_auto_tuning: bool,
    /// β: the part of a limit that an eviction frees, percent.
    pub evict_percent: u64,
    /// Memory for the marks of keys whose accesses need not be noted, bytes. None are made where the score alone says what is hot: with
    /// another scoring than exponential smoothing, or without auto-tuning.
    pub repeats_bytes: usize,
    /// Memory for accesses that are not sorted yet, bytes.
    pub buffer_bytes: usize,
    /// Memory for filters, indexes and prefix sums of all runs, bytes: an eviction follows when they take more.
    pub pinned_bytes_max: u64,
    /// What is read of a run at once by merges, and gathered before it is written, bytes.
    pub io_bytes: usize,
    /// A run's file is cut at this size, bytes.
    pub run_bytes: u64,
    /// T: size of each level over the one above.
    pub level_ratio: u64,
    /// Runs of level 0 that are merged down.
    pub level0_runs: usize,
    /// And so many while level 1 is larger and there is room: each is asked whether a key is hot.
    pub level0_runs_max: usize,
    /// Filter bits a hot key.
    pub filter_bits_per_key: u32,
    /// What sampling follows from.
    pub seed: u64,
}

/// What is read at once of each run of many that are merged, where of others it is `io_bytes`: little comes from each.
#[must_use]
pub fn io_bytes_of_many(io_bytes: usize) -> usize {
    (io_bytes / 4 / ALIGNMENT * ALIGNMENT).max(IO_BYTES_MIN)
}

impl Options {
    /// The paper's figures for a fast disk of `fast_bytes`.
    #[must_use]
    pub fn of_fast(fast_bytes: u64, owner: [u8; 16]) -> Self {
        // Accesses of a thousandth of the disk, or so, at a record's physical size.
        let buffer = usize::try_from(fast_bytes / 330).unwrap_or(usize::MAX).clamp(16 << 10, 16 << 20);
        Self {
            owner,
            fast_bytes,
            scoring: Scoring::Exponential { alpha: ALPHA },
            keeps_scoring: false,
            slice_bytes: (fast_bytes / SLICES_IN_FAST).max(1),
            bounds: Bounds::of_fast(fast_bytes),
            first: Limits::first(fast_bytes),
            physical_bytes_max: fast_bytes / 40 * 7,
            has_auto_tuning: true,
            evict_percent: 10,
            repeats_bytes: buffer / REPEATS_IN_BUFFER,
            buffer_bytes: buffer,
            pinned_bytes_max: u64::MAX,
            io_bytes: IO_BYTES,
            run_bytes: (fast_bytes / 400).clamp(RUN_BYTES_MIN, 16 << 20),
            level_ratio: 10,
            level0_runs: 6,
            level0_runs_max: 18,
            filter_bits_per_key: FILTER_BITS_PER_KEY,
            seed: 1,
        }
    }

    /// The same with a hot set of at most `hot_bytes`, whatever the workload.
    #[must_use]
    pub fn with_fixed_hot_set(self, hot_bytes: u64) -> Self {
        Self { first: Limits { hot_bytes, ..self.first }, has_auto_tuning: false, ..self }
    }

    /// The same within `memory_bytes`: a quarter for accesses that are not sorted yet or are being sorted and for marks, for merges what they take, for what
    /// the runs pin the rest, but three sixteenths at least.
    #[must_use]
    pub fn within_memory(self, memory_bytes: u64) -> Self {
        let part = |by: u64| usize::try_from(memory_bytes / by).unwrap_or(usize::MAX);
        let run_bytes = self.run_bytes.min(memory_bytes / 4 * 3).max(RUN_BYTES_MIN);
        let io_bytes = part(96).clamp(IO_BYTES_MIN, IO_BYTES) / ALIGNMENT * ALIGNMENT;
        // Beside the runs of level 0 a merge reads two others and writes one, with its index and filter; as many may come meanwhile.
        let beside = 3 * io_bytes as u64 + run_bytes / 8;
        let of_run = 2 * io_bytes_of_many(io_bytes) as u64;
        let runs = usize::try_from((memory_bytes / 2).saturating_sub(beside) / of_run).unwrap_or(usize::MAX);
        let level0_runs_max = self.level0_runs_max.min(runs.max(self.level0_runs));
        let merges = beside + of_run * level0_runs_max as u64;
        // A tenth for what comes between a look at it and an eviction.
        let left = (memory_bytes / 8 * 5).saturating_sub(merges);
        let buffer_bytes = self.buffer_bytes.min(part(10));
        Self {
            repeats_bytes: self.repeats_bytes.min(buffer_bytes / REPEATS_IN_BUFFER),
            buffer_bytes,
            pinned_bytes_max: self.pinned_bytes_max.min(left.max(memory_bytes / 16 * 3)),
            level0_runs_max,
            run_bytes,
            io_bytes,
            ..self
        }
    }

    /// The same in files of at most `disk_bytes` together, as far as the room that evictions work in leaves something of that: what
    /// gives way is the physical size.
    #[must_use]
    pub fn within_disk(self, disk_bytes: u64) -> Self {
        let beside = self.disk_bytes_max().saturating_sub(self.physical_bytes_max);
        let left = disk_bytes.saturating_sub(beside).max(RUN_BYTES_MIN);
        let physical_bytes = self.first.physical_bytes.min(left);
        let first = Limits { physical_bytes, ..self.first };
        Self { first, physical_bytes_max: self.physical_bytes_max.min(left), ..self }
    }

    /// What level 0 has when it is merged down, bytes, mostly: its files are smaller than the buffer that they come from, unless keys are short.
    #[must_use]
    pub const fn level0_bytes(&self) -> u64 {
        (self.buffer_bytes as u64).saturating_mul(self.level0_runs as u64)
    }

    /// Bytes of new files that a step of a merge takes, about: some runs of the level that it goes into, and of level 0 its part.
    #[must_use]
    pub const fn written_in_step(&self) -> u64 {
        self.run_bytes.saturating_mul(STEP_RUNS as u64).saturating_add(self.level0_bytes() / 2)
    }

    /// The same with what is flushed meanwhile.
    #[must_use]
    pub const fn step_bytes(&self) -> u64 {
        self.written_in_step().saturating_add(self.buffer_bytes as u64)
    }

    /// What the marks take as it is set up.
    pub(crate) const fn marks_bytes(&self) -> usize {
        if self.has_auto_tuning && matches!(self.scoring, Scoring::Exponential { .. }) {
            self.repeats_bytes
        } else {
            0
        }
    }

    /// What its files take when an eviction follows, bytes in whole blocks of a disk: its records at their limit, keys that lie in
    /// several runs, blocks that are begun.
    #[must_use]
    pub const fn evict_at_bytes(&self) -> u64 {
        let begun = self.run_bytes.saturating_mul(STEP_RUNS as u64);
        self.physical_bytes_max.saturating_add(begun).saturating_add(self.level0_bytes())
    }

    /// Bytes, in whole blocks of a disk, that all its files may take: an eviction follows before; until it is done there are the new runs
    /// of its step beside the old ones, or those of a compaction, which takes a run and what lies under it, and what is flushed meanwhile.
    #[must_use]
    pub fn disk_bytes_max(&self) -> u64 {
        let of_run = self.run_bytes.saturating_mul(self.level_ratio.saturating_add(1));
        self.evict_at_bytes()
            .saturating_add(self.step_bytes().max(of_run))
            .saturating_add(2 * self.buffer_bytes as u64)
    }
}
