//! RALT, the Recent Access Lookup Table of HotRAP (paper §3.2 and §3.7): a small LSM-tree on the fast disk that logs accesses and
//! knows which keys are hot.
//!
//! Usable by itself: whoever serves keys tells it each access, and asks which keys deserve the faster place.
//!
//! ```
//! use std::sync::Arc;
//! use kelvin_base::{HotTracker, KeyRange, Lane, ThreadPool};
//! use kelvin_ralt::{Env, Options, Ralt};
//! use kelvin_storage::memory::MemoryStorage;
//! use kelvin_storage::IoMode;
//!
//! let env = Env {
//!     storage: Arc::new(MemoryStorage::new()),
//!     dir: "/ralt".into(),
//!     io: IoMode::Buffered,
//!     executor: Arc::new(ThreadPool::new(1, 1, 1)?),
//!     lane: Lane::Tracking,
//!     memory: None,
//!     evicted: None,
//! };
//! let ralt = Ralt::open(env, Options::of_fast(100 << 20, *b"whose keys these"));
//! ralt.access(b"user:4711", 200);
//! ralt.settle();
//! assert!(ralt.is_hot(b"user:4711") && !ralt.is_hot(b"user:4712"));
//! assert_eq!(ralt.hot_size(KeyRange::ALL), 209);
//! let mut keys = ralt.hot_keys(KeyRange::ALL);
//! assert_eq!(keys.next(), Some(&b"user:4711"[..]));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # How to use it
//!
//! - [`Ralt::open`] takes a directory of its own and never fails; [`Options::of_fast`] has the paper's figures for a disk of some size,
//!   [`Options::within_memory`] keeps them within a memory.
//! - Tell it every access ([`HotTracker::access`], which waits for nobody) with the key and the length of the value.
//! - Ask [`HotTracker::is_hot`] of one key (filters in memory; rarely a cold key passes), [`HotTracker::hot_keys`] and
//!   [`HotTracker::hot_size`] of a range, [`HotTracker::heat`] why.
//! - What is hot comes to the size of the hot set limit at most, which follows the workload: [`Ralt::stats`] tells both.
//! - [`Ralt::close`] writes down what was noted. Files of another [`Options::owner`], or damaged ones, are begun anew, and
//!   [`Stats::last_error`] says so.
//!
//! `examples/hot_keys.rs` is a program that does all of it. [`Oracle`] is an exact tracker in memory for tests and upper bounds.
//!
//! # How it works
//!
//! Reading order: `record` and `score` (what is kept of a key), `repeats`, `buffer` and `flush` (how it gets there), `run`, `merge` and
//! `version` (where it lies), `compact`, `threshold`, `limits`, `evict` and `forget` (what leaves), `state` (restart).
//!
//! Nothing here fails towards its user: see [`kelvin_base::HotTracker`]. What goes wrong is counted, and told in [`Stats`].

mod buffer;
mod compact;
mod core;
mod evict;
mod flush;
mod forget;
pub mod fuzz;
pub mod limits;
mod merge;
mod options;
mod oracle;
mod record;
mod repeats;
mod run;
mod score;
mod state;
mod stats;
#[cfg(test)]
mod tests;
mod threshold;
mod version;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use kelvin_base::sync::Mutex;
use kelvin_base::{Error, ErrorKind, Heat, HotKeys, HotTracker, KeyRange, Result, process};

use crate::buffer::AccessBuffer;
use crate::core::Core;
use crate::forget::Forgotten;
use crate::merge::Merged;
use crate::repeats::Repeats;
use crate::run::Shelf;
use crate::state::{Doubt, Restored};
use crate::stats::Counters;
use crate::version::Version;

pub use crate::options::{Env, EvictionListener, MemoryListener, Options};
pub use crate::oracle::Oracle;
pub use crate::score::Scoring;
pub use crate::stats::{LimitsAt, Stats};

/// The tracker. Clones are the same one.
#[derive(Clone)]
pub struct Ralt(Arc<Core>);

impl Ralt {
    /// Opens what an earlier one left in `env.dir`, or begins anew: whatever is in doubt there is thrown away.
    #[must_use]
    pub fn open(env: Env, options: Options) -> Self {
        let shelf = Shelf {
            storage: Arc::clone(&env.storage),
            dir: env.dir.clone(),
            io: env.io,
            filter_bits_per_key: options.filter_bits_per_key,
            io_bytes: options.io_bytes,
        };
        let counters = Counters::default();
        if let Err(source) = env.storage.create_dir_all(&env.dir) {
            counters.note_error(&Error::io("making the hot-key tracker's directory", &env.dir, source));
        }
        let Restored { work, version, scoring, doubt } = state::restore(&options, &shelf);
        if let Some(doubt) = doubt.as_ref().filter(|doubt| **doubt != Doubt::Empty) {
            counters.note_reset(doubt);
        }
        let options = Options { scoring, ..options };
        let core = Core {
            repeats: Repeats::new(options.marks_bytes(), options.bounds.hot_bytes_max),
            buffer: AccessBuffer::new(options.buffer_bytes),
            version: ArcSwap::from_pointee(version),
            work: Mutex::new(work),
            counters,
            is_scheduled: AtomicBool::new(false),
            is_doubtful: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            forgotten: Mutex::default(),
            options,
            env,
            shelf,
        };
        core.tell_memory(&core.version.load());
        // Before anything is known the choice of a scoring is to be remembered.
        if doubt.is_some()
            && let Err(error) = core.save_state(&core.work.lock(), &core.version.load())
        {
            core.counters.note_error(&error);
        }
        let core = Arc::new(core);
        if core.is_over_limit() {
            core.schedule();
        }
        Self(core)
    }

    /// Sorts every access noted so far, and does all that is due then, on this thread.
    pub fn settle(&self) {
        self.0.run(true);
    }

    /// Sorts what was noted into runs, and takes no more work on: an eviction under way ends at its next step, one that is due
    /// is left to the next opening. Accesses noted later are kept in memory only, and no file is written any more.
    pub fn close(&self) {
        self.0.is_closing.store(true, Ordering::Relaxed);
        let mut work = self.0.work.lock();
        if let Err(error) = self.0.tidy(&mut work, &self.0.buffer.take_all()) {
            self.0.counters.note_error(&error);
        }
    }

    /// The scoring that it goes by: the one asked for, or the one its files were kept with.
    #[must_use]
    pub fn scoring(&self) -> Scoring {
        self.0.options.scoring
    }

    /// What it has done, and how large it is.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let core = &self.0;
        let version = core.version.load();
        let (sizes, limits) = (version.sizes(), version.limits);
        Stats {
            left_out: core.repeats.left_out(),
            lost: core.buffer.lost(),
            records: sizes.records,
            physical_bytes: sizes.physical_bytes,
            physical_limit_bytes: limits.physical_bytes,
            hot_set_bytes: sizes.hot_bytes,
            hot_set_limit_bytes: limits.hot_bytes,
            disk_bytes: version.disk_bytes(),
            memory_bytes: self.memory_bytes(),
            runs: version.levels.iter().map(Vec::len).collect(),
            hot_score: version.hot_score,
            ..core.counters.stats()
        }
    }

    /// Memory that it takes, or may take at any moment, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.0.memory_bytes(&self.0.version.load())
    }
}

impl Core {
    /// Queues a job, unless one is queued.
    fn schedule(self: &Arc<Self>) {
        if self.is_closing.load(Ordering::Relaxed) || self.is_scheduled.swap(true, Ordering::AcqRel) {
            return;
        }
        let core = Arc::clone(self);
        self.env.executor.spawn(
            self.env.lane,
            Box::new(move || {
                core.is_scheduled.store(false, Ordering::Release);
                core.run(false);
            }),
        );
    }

    /// Does what is due. What fails costs what RALT knows, and nothing else.
    fn run(self: &Arc<Self>, all: bool) {
        let mut work = self.work.lock();
        if self.is_closing.load(Ordering::Relaxed) {
            return;
        }
        work.counted_to = Some(process::thread_cpu_time());
        if self.is_doubtful.swap(false, Ordering::Relaxed) {
            self.reset(&mut work);
        }
        if let Err(error) = self.maintain(&mut work, all) {
            self.counters.note_error(&error);
            // Who is told may make room.
            self.tell_memory(&self.version.load());
            // Damage does not go away; a device that is full or slow for a while may recover.
            if error.kind() == ErrorKind::Corruption {
                self.reset(&mut work);
            }
        }
        self.count_time(&mut work);
        work.counted_to = None;
        drop(work);
        if self.buffer.wants_sorting() {
            self.schedule();
        }
    }

    /// Sorts what was noted into runs.
    fn catch_up(self: &Arc<Self>) {
        let mut work = self.work.lock();
        if self.is_closing.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = self.tidy(&mut work, &self.buffer.take_all()) {
            self.doubt(&error);
        }
    }

    /// A reader found damage.
    fn doubt(self: &Arc<Self>, error: &Error) {
        self.counters.note_error(error);
        if error.kind() == ErrorKind::Corruption {
            self.is_doubtful.store(true, Ordering::Relaxed);
            self.schedule();
        }
    }
}

impl HotTracker for Ralt {
    fn access(&self, key: &[u8], value_len: usize) {
        let value_len = u32::try_from(value_len).unwrap_or(u32::MAX);
        let is_news = self.0.repeats.is_news(key, key.len() as u64 + u64::from(value_len));
        if is_news && self.0.buffer.push(key, value_len) {
            self.0.schedule();
        }
    }

    fn is_hot(&self, key: &[u8]) -> bool {
        self.0.version.load().is_hot(key)
    }

    fn hot_size(&self, range: KeyRange<'_>) -> u64 {
        self.0.version.load().hot_size(range)
    }

    fn hot_keys(&self, range: KeyRange<'_>) -> Box<dyn HotKeys + '_> {
        let version = self.0.version.load_full();
        let merged = Merged::new(version.meeting(range), range, self.0.options.scoring, true);
        let merged = merged.inspect_err(|error| self.0.doubt(error)).ok();
        Box::new(Scan { core: Arc::clone(&self.0), version, merged, key: Vec::new() })
    }

    fn heat(&self, key: &[u8]) -> Option<Heat> {
        let core = &self.0;
        let version = core.version.load_full();
        let range = KeyRange::closed(key, key);
        let found = Merged::new(version.meeting(range), range, core.options.scoring, false)
            .and_then(|mut merged| merged.next().map(|next| next.map(|(_, record)| record)));
        let record = found.inspect_err(|error| core.doubt(error)).ok()?;
        // As of the slice in which the runs last changed: the lock of who works would tell exactly, and is not waited for.
        let accessed_bytes = u64::from(version.now.slice).saturating_mul(core.options.slice_bytes);
        let epoch = core.options.bounds.epoch(accessed_bytes, version.now);
        Some(Heat {
            score: record.map(|record| core.score(version.now, key, &record)),
            hot_score: version.hot_score,
            is_stable: record.is_some_and(|record| record.is_stable(epoch)),
        })
    }

    fn forget(&self, range: KeyRange<'_>) {
        self.0.repeats.forget();
        self.0.forgotten.lock().push(Forgotten::new(range));
        self.0.schedule();
    }

    fn catch_up(&self) {
        self.0.catch_up();
    }

    fn turn(&self) -> u64 {
        u64::from(self.0.version.load().now.turns)
    }
}

impl fmt::Debug for Ralt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ralt").field("dir", &self.0.env.dir).finish_non_exhaustive()
    }
}

/// Hot keys of a range, from the runs.
struct Scan {
    core: Arc<Core>,
    version: Arc<Version>,
    /// None once something could not be read: what comes behind counts as cold.
    merged: Option<Merged>,
    key: Vec<u8>,
}

impl Scan {
    fn find(&mut self) -> Result<bool> {
        let Some(merged) = &mut self.merged else { return Ok(false) };
        while let Some((key, record)) = merged.next()? {
            if self.core.is_hot(&self.version, self.version.now, key, &record) {
                self.key.clear();
                self.key.extend_from_slice(key);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl HotKeys for Scan {
    fn next(&mut self) -> Option<&[u8]> {
        match self.find() {
            Ok(true) => Some(&self.key),
            Ok(false) => None,
            Err(error) => {
                self.core.doubt(&error);
                self.merged = None;
                None
            }
        }
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        if let Some(merged) = &mut self.merged {
            self.core.counters.read_bytes.fetch_add(merged.take_read_bytes(), Ordering::Relaxed);
        }
    }
}
