//! Eviction: the coldest records leave, and the limits follow the workload (paper §3.2 and §3.7).
//!
//! One scan of all runs, merged, finds out how much is stable and draws the samples for the two score thresholds. A second one
//! merges everything into the deepest level and drops what is below the physical one; what lies between the two stays and is not
//! hot. What the runs may pin of the memory limits the physical size too. With auto-tuning unstable records go first, the oldest of them: those accessed last fill
//! half of what stable ones leave, or a key accessed shortly before would be forgotten until it is accessed twice more. And there is one threshold, below
//! which stable records leave: with two a new key would have to reach the scores of those before it is hot.
//!
//! The second scan goes step by step through the keys: some runs of the deepest level and what overlaps them, an install, and
//! on. So it needs room for one step's runs only, what it has merged is in force at once, and accesses that come meanwhile are
//! flushed between the steps. Tests: `tests.rs`, `tests/shape.rs`.

use std::sync::atomic::Ordering;

use kelvin_base::{KeyRange, Result};

use crate::compact::Step;
use crate::core::{Core, Fate, Work, recency};
use crate::limits::Limits;
use crate::merge::Merged;
use crate::record::{Record, physical_size};
use crate::run::Sizes;
use crate::score::Now;
use crate::threshold::Sampler;
use crate::version::Version;

/// Of what stable records leave free of the hot set one part in so many is kept filled with unstable ones.
const KEPT_UNSTABLE: u64 = 2;

/// What an eviction decided.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Verdict {
    /// Records below this score leave.
    keep_score: f64,
    /// Records below this one are not hot.
    hot_score: f64,
    /// Unstable records last accessed before leave.
    keep_recency: f64,
    limits: Limits,
    /// Halves by which all counters are lowered, since there is little room for unstable records.
    lowered_halves: u32,
}

impl Core {
    /// True if the hot set or RALT itself is larger than it may be.
    pub fn is_over_limit(&self) -> bool {
        let version = self.version.load();
        let (sizes, limits) = (version.sizes(), version.limits);
        sizes.hot_bytes > limits.hot_bytes
            || sizes.physical_bytes > limits.physical_bytes
            // The files of keys that lie in many runs.
            || version.disk_bytes() > self.options.evict_at_bytes()
            || self.pins_too_much()
    }

    /// True if its runs pin more memory than they may.
    pub fn pins_too_much(&self) -> bool {
        self.version.load().memory_bytes() as u64 > self.options.pinned_bytes_max
    }

    /// Drops what is coldest until a part of both limits is free again, and sets the limits anew.
    pub fn evict(&self, work: &mut Work) -> Result<()> {
        let before = self.version.load().tracker_sizes();
        let since_bytes = work.accessed_bytes.saturating_sub(work.evicted_at_bytes);
        // Scores are judged as they are when records leave: CLOCK's counters have gone down by then.
        let now = Now { turns: work.now.turns.saturating_add(1), ..work.now };
        let verdict = self.judge(work, now, since_bytes)?;
        work.now = now;
        work.now.lowered_halves = work.now.lowered_halves.saturating_add(verdict.lowered_halves);
        work.evicted_at_bytes = work.accessed_bytes;
        let (hot_score, limits, now) = (verdict.hot_score, verdict.limits, work.now);
        let next = Version { hot_score, limits, now, ..Version::clone(&self.version.load()) };
        self.install(work, next);
        let deepest = self.version.load().deepest().max(1);
        let (begun, tunes) = (work.next_number, self.options.has_auto_tuning);
        let mut start: Option<Vec<u8>> = Some(Vec::new());
        // Each step leaves a version that holds: a store that is being closed does not wait for the rest.
        while let Some(from) = start.take().filter(|_| !self.is_closing.load(Ordering::Relaxed)) {
            let (epoch, now) = (self.epoch(work), work.now);
            let fate = |key: &[u8], record: &Record| {
                let score = self.score(now, key, record);
                let leaves = if tunes && !record.is_stable(epoch) {
                    recency(key, record) < verdict.keep_recency
                } else {
                    score < verdict.keep_score
                };
                if leaves { Fate::Drop } else { Fate::Keep { is_hot: score >= verdict.hot_score } }
            };
            start = self.merge_step(work, &Step { into: deepest, begun, from: &from, last: None }, &fate)?;
        }
        self.repeats.evicted(self.options.bounds.unsettled_bytes(since_bytes));
        self.counters.evictions.fetch_add(1, Ordering::Relaxed);
        let version = self.version.load();
        self.counters.note_limits(work.accessed_bytes, &limits, &version.sizes());
        if let Some(told) = &self.env.evicted {
            told(before, version.tracker_sizes());
        }
        Ok(())
    }

    /// Scans everything, and decides, `since_bytes` accessed after the last eviction, by the scores as of `now`.
    fn judge(&self, work: &Work, now: Now, since_bytes: u64) -> Result<Verdict> {
        let version = self.version.load_full();
        let (epoch, tunes) = (self.epoch(work), self.options.has_auto_tuning);
        let all = version.sizes();
        let seed = self.options.seed.wrapping_add(u64::from(now.turns) << 32);
        let mut by_hotrap = Sampler::new(all.hotrap_bytes, seed);
        let mut by_physical = Sampler::new(all.physical_bytes, !seed);
        let mut by_age = Sampler::new(all.hotrap_bytes, seed.rotate_left(1));
        let (mut stable, mut unstable) = (Sizes::default(), Sizes::default());
        let runs = version.placed().cloned().collect();
        let mut merged = Merged::new(runs, KeyRange::ALL, self.options.scoring, true)?;
        while let Some((key, record)) = merged.next()? {
            if tunes && !record.is_stable(epoch) {
                by_age.see(record.hotrap_size(key), recency(key, &record));
                unstable.see(key, &record, false, false);
                continue;
            }
            let score = self.score(now, key, &record);
            by_physical.see(physical_size(key), score);
            by_hotrap.see(record.hotrap_size(key), score);
            stable.see(key, &record, true, false);
        }
        self.counters.read_bytes.fetch_add(merged.take_read_bytes(), Ordering::Relaxed);
        // Runs of the upper levels will pin memory too: what stays leaves them a quarter.
        let pinned = self.options.pinned_bytes_max;
        let [physical_max, physical_kept] = [pinned, pinned / 4 * 3]
            .map(|pinned_bytes| self.physical_bytes_max(&version, all.physical_bytes, pinned_bytes));
        let mut limits = if tunes {
            Limits::for_stable(stable.hotrap_bytes, stable.physical_bytes, &self.options.bounds)
        } else {
            version.limits
        };
        limits.physical_bytes = limits.physical_bytes.min(physical_max);
        let free = |limit: u64| limit - limit / 100 * self.options.evict_percent.min(100);
        // Only what is left over the limit goes by its score; with auto-tuning that is rare.
        let keep = |size: u64, limit: u64| if size > free(limit) { free(limit) } else { size };
        let hot_limit =
            if tunes { self.options.bounds.hot_bytes_max.max(limits.hot_bytes) } else { limits.hot_bytes };
        let physical_limit = if tunes { physical_kept } else { limits.physical_bytes.min(physical_kept) };
        let keep_score = by_physical.threshold(keep(stable.physical_bytes, physical_limit));
        let hot_score = by_hotrap.threshold(keep(stable.hotrap_bytes, hot_limit)).max(keep_score);
        // A new key does not reach the scores of what is stable: were those to say what is hot, it could not show that it is.
        let (keep_score, hot_score) = if tunes { (hot_score, f64::MIN) } else { (keep_score, hot_score) };
        let room_bytes = free(limits.hot_bytes).saturating_sub(stable.hotrap_bytes);
        let physical_room_bytes =
            physical_limit.min(free(limits.physical_bytes)).saturating_sub(stable.physical_bytes);
        let room_bytes = room_bytes.min(unstable.in_hotrap_bytes(physical_room_bytes));
        let keep_recency = by_age.threshold(room_bytes / KEPT_UNSTABLE);
        let lowered_halves = if tunes {
            self.options.bounds.lowered_halves(&limits, stable.hotrap_bytes, since_bytes)
        } else {
            0
        };
        Ok(Verdict { keep_score, hot_score, keep_recency, limits, lowered_halves })
    }

    /// What RALT may be in the end, whatever the workload: its share of the fast disk, and no more than what pins `pinned_bytes`
    /// of memory, as far as the present ratio of the two tells.
    fn physical_bytes_max(&self, version: &Version, physical_bytes: u64, pinned_bytes: u64) -> u64 {
        let most = self.options.physical_bytes_max;
        let by_memory =
            u128::from(physical_bytes) * u128::from(pinned_bytes) / (version.memory_bytes() as u128).max(1);
        if physical_bytes == 0 { most } else { most.min(u64::try_from(by_memory).unwrap_or(u64::MAX)) }
    }
}
