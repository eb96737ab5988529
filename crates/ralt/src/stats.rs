//! What RALT counts of itself.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use kelvin_base::Error;
use kelvin_base::sync::Mutex;

use crate::limits::Limits;
use crate::run::Sizes;
use crate::state::Doubt;

/// Evictions whose limits are remembered.
const HISTORY: usize = 256;

/// The limits after an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsAt {
    /// Bytes that had been accessed.
    pub accessed_bytes: u64,
    /// The limits from then on.
    pub limits: Limits,
    /// HotRAP size of what was hot then.
    pub hot_bytes: u64,
}

/// What RALT has done and how large it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Accesses that reached a run.
    pub accesses: u64,
    /// Accesses that were not noted, since their keys had been noted twice shortly before.
    pub left_out: u64,
    /// Accesses that were let go because everybody was busy.
    pub lost: u64,
    /// Times that the buffer was sorted into level 0.
    pub flushes: u64,
    /// Merges of a level into the next.
    pub compactions: u64,
    /// Evictions.
    pub evictions: u64,
    /// Times that everything was thrown away as doubtful, at the opening too.
    pub resets: u64,
    /// Bytes read from its files.
    pub read_bytes: u64,
    /// Bytes written to its files.
    pub written_bytes: u64,
    /// Processor time of its background work, microseconds.
    pub cpu_us: u64,
    /// Records in all runs; of a key in several, each.
    pub records: u64,
    /// Their physical size, bytes.
    pub physical_bytes: u64,
    /// The limit of that.
    pub physical_limit_bytes: u64,
    /// HotRAP size of the hot ones, bytes.
    pub hot_set_bytes: u64,
    /// The limit of that.
    pub hot_set_limit_bytes: u64,
    /// Length of its files, bytes.
    pub disk_bytes: u64,
    /// Memory: indexes, filters, prefix sums, buffer.
    pub memory_bytes: u64,
    /// Runs by level.
    pub runs: Vec<usize>,
    /// The score that makes a key hot.
    pub hot_score: f64,
    /// The limits after each of the last evictions.
    pub history: Vec<LimitsAt>,
    /// What failed last, if anything did.
    pub last_error: Option<String>,
}

/// Counters behind [`Stats`].
#[derive(Debug, Default)]
pub struct Counters {
    pub accesses: AtomicU64,
    pub flushes: AtomicU64,
    pub compactions: AtomicU64,
    pub evictions: AtomicU64,
    pub resets: AtomicU64,
    pub read_bytes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub cpu_us: AtomicU64,
    history: Mutex<VecDeque<LimitsAt>>,
    last_error: Mutex<Option<String>>,
}

impl Counters {
    /// Remembers what failed.
    pub fn note_error(&self, error: &Error) {
        *self.last_error.lock() = Some(error.to_string());
    }

    /// Remembers why it begins anew.
    pub fn note_reset(&self, doubt: &Doubt) {
        self.resets.fetch_add(1, Ordering::Relaxed);
        *self.last_error.lock() = Some(doubt.to_string());
    }

    /// Remembers the limits after an eviction.
    pub fn note_limits(&self, accessed_bytes: u64, limits: &Limits, sizes: &Sizes) {
        let mut history = self.history.lock();
        if history.len() == HISTORY {
            history.pop_front();
        }
        history.push_back(LimitsAt { accessed_bytes, limits: *limits, hot_bytes: sizes.hot_bytes });
    }

    /// What was counted.
    pub fn stats(&self) -> Stats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            accesses: get(&self.accesses),
            flushes: get(&self.flushes),
            compactions: get(&self.compactions),
            evictions: get(&self.evictions),
            resets: get(&self.resets),
            read_bytes: get(&self.read_bytes),
            written_bytes: get(&self.written_bytes),
            cpu_us: get(&self.cpu_us),
            history: self.history.lock().iter().copied().collect(),
            last_error: self.last_error.lock().clone(),
            ..Stats::default()
        }
    }
}
