//! Which keys are hot: the tracker that [`crate::options::Advanced::hotness`] names, opened and closed with the store.
//!
//! RALT keeps its files in the directory `ralt` of the fast tier. They are advisory (promise 6): opening never fails because of
//! them, `check` does not look at them, a checkpoint does not copy them, and a store without RALT removes them. They count in the
//! books of the fast tier like every file ([`storage`]), and what they take is taken from the levels there
//! ([`Engine::pick_config_now`]). Its memory is a part of the one budget.
//!
//! RALT's files name the scoring they were kept with. A store that is opened without a word on hotness goes on with it; one that is opened
//! with another choice begins anew, and says so in the statistics ([`HotnessStats::last_error`]).
//!
//! All keyspaces share the tracker and its limits, and each has keys of its own there ([`of_keyspace`]); those of a dropped one are
//! forgotten. Tests: `tests.rs`, `tests/trust/hotness.rs`, the model test.

pub mod means;
pub mod of_keyspace;
pub mod storage;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use kelvin_base::events::What;
use kelvin_base::sync::Mutex;
use kelvin_base::{Events, HotTracker, KeyRange, Lane, NoTracker, Tier};
use kelvin_ralt::limits::{Bounds, Limits};
use kelvin_ralt::{Oracle, Ralt, Scoring};

use crate::compaction::pick::PickConfig;
use crate::db::engine::Engine;
use crate::files::Files;
use crate::hotness::of_keyspace::OfKeyspace;
use crate::hotness::storage::{BookedStorage, IN_BOOKS, discard};
use crate::memory::MemoryPart;
use crate::options::{Config, Env, Hotness};
use crate::promotion::Wants;

/// The highest count of [`Hotness::Clock`]: three bits.
const CLOCK_MAX: u32 = 7;

/// The tracker of an open store, and what the store must know of it.
#[derive(Debug)]
pub struct Tracking {
    kind: Hotness,
    tracker: Arc<dyn HotTracker>,
    ralt: Option<Ralt>,
    /// Where RALT's files are.
    files: Option<BookedStorage>,
    /// What exact counts let be hot, bytes.
    exact_bytes: u64,
    /// Room that RALT's next step wants beside its files, bytes.
    step_bytes: u64,
    /// What its files took when compactions were last picked because of them, bytes.
    told_bytes: AtomicU64,
}

/// What [`crate::stats::Stats::hotness`] says. Bytes and counts since the store was opened, unless said otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotnessStats {
    /// Which tracker it is.
    pub kind: Hotness,
    /// Accesses that were sorted into runs.
    pub accesses: u64,
    /// Accesses that were not noted, since their keys had been noted twice shortly before.
    pub left_out: u64,
    /// Accesses that were let go because everybody was busy.
    pub lost: u64,
    /// Evictions.
    pub evictions: u64,
    /// Times that everything was thrown away as doubtful, or as kept with another scoring; at the opening too.
    pub resets: u64,
    /// Read from its files.
    pub read_bytes: u64,
    /// Written to its files.
    pub written_bytes: u64,
    /// Physical size of its records now (HotRAP figure 3).
    pub physical_bytes: u64,
    /// The limit of that now.
    pub physical_limit_bytes: u64,
    /// What its files take now.
    pub disk_bytes: u64,
    /// Memory now.
    pub memory_bytes: u64,
    /// Processor time of its background work, microseconds.
    pub cpu_us: u64,
    /// Bytes of the records that are hot now.
    pub hot_set_bytes: u64,
    /// The limit of that now.
    pub hot_set_limit_bytes: u64,
    /// What failed last, if anything did; it costs speed and nothing else.
    pub last_error: Option<String>,
}

impl HotnessStats {
    /// What was counted since the store was opened, by name.
    #[must_use]
    pub const fn counts(&self) -> [(&'static str, u64); 8] {
        [
            ("accesses", self.accesses),
            ("left_out", self.left_out),
            ("lost", self.lost),
            ("evictions", self.evictions),
            ("resets", self.resets),
            ("read_bytes", self.read_bytes),
            ("written_bytes", self.written_bytes),
            ("cpu_us", self.cpu_us),
        ]
    }

    /// What is so large now, by name.
    #[must_use]
    pub const fn sizes(&self) -> [(&'static str, u64); 6] {
        [
            ("physical_bytes", self.physical_bytes),
            ("physical_limit_bytes", self.physical_limit_bytes),
            ("disk_bytes", self.disk_bytes),
            ("memory_bytes", self.memory_bytes),
            ("hot_set_bytes", self.hot_set_bytes),
            ("hot_set_limit_bytes", self.hot_set_limit_bytes),
        ]
    }
}

/// What goes by `scoring`.
const fn kind_of(scoring: Scoring) -> Hotness {
    match scoring {
        Scoring::Exponential { .. } => Hotness::Ralt,
        Scoring::Lru => Hotness::Lru,
        Scoring::Clock { .. } => Hotness::Clock,
    }
}

fn scoring(kind: Hotness) -> Option<Scoring> {
    match kind {
        Hotness::Lru => Some(Scoring::Lru),
        Hotness::Clock => Some(Scoring::Clock { max: CLOCK_MAX }),
        Hotness::Ralt | Hotness::Oracle | Hotness::Off => None,
    }
}

/// What hot records can fill of the fast tier: the levels' part of it less three tenths, for the tracker itself, level 0, tables cut and blocks
/// begun, and what is on its way down.
fn hot_bytes_max(config: &Config) -> u64 {
    config.fast_levels_bytes.unwrap_or(u64::MAX) / 10 * 7
}

fn ralt_options(config: &Config, env: &Env, owner: [u8; 16]) -> kelvin_ralt::Options {
    let fast_bytes = config.capacity(Tier::Fast).unwrap_or(0);
    let of_fast = kelvin_ralt::Options::of_fast(fast_bytes, owner);
    let scoring = scoring(config.hotness).unwrap_or(of_fast.scoring);
    let seed = config.seed.unwrap_or(env.seed);
    let keeps_scoring = config.keeps_hotness;
    let bounds = of_fast.bounds.within(hot_bytes_max(config));
    // What is forgotten at the first eviction of a cold start must be read again: the first limit is the largest there can be.
    let first = Limits { hot_bytes: bounds.hot_bytes_max, ..of_fast.first };
    let options = kelvin_ralt::Options { scoring, keeps_scoring, seed, bounds, first, ..of_fast }
        .within_memory(config.hotness_memory_bytes)
        .within_disk(fast_bytes / 2);
    match config.hot_set_bytes {
        Some(bytes) => options.with_fixed_hot_set(bytes),
        None => options,
    }
}

/// What may be hot where exact counts tell.
fn exact_hot_bytes(config: &Config) -> u64 {
    let bounds = Bounds::of_fast(config.capacity(Tier::Fast).unwrap_or(0)).within(hot_bytes_max(config));
    config.hot_set_bytes.unwrap_or(bounds.hot_bytes_max)
}

impl Tracking {
    /// Opens the tracker of the store `owner`. Whatever RALT finds in doubt it throws away.
    #[must_use]
    pub fn open(
        config: &Config,
        env: &Env,
        events: &Events,
        files: &Files,
        owner: [u8; 16],
        engine: Weak<Engine>,
    ) -> Self {
        let kind = config.hotness;
        let without = |tracker: Arc<dyn HotTracker>| {
            let told_bytes = AtomicU64::new(0);
            Self {
                kind,
                tracker,
                ralt: None,
                files: None,
                exact_bytes: exact_hot_bytes(config),
                step_bytes: 0,
                told_bytes,
            }
        };
        let fast = match files.tier(Tier::Fast) {
            Ok(fast) if kind.is_on_disk() => fast,
            fast => {
                if let Ok(fast) = fast {
                    discard(fast, &files.space);
                }
                return without(match kind {
                    Hotness::Oracle => Arc::new(Oracle::new(exact_hot_bytes(config))),
                    _ => Arc::new(NoTracker),
                });
            }
        };
        let options = ralt_options(config, env, owner);
        let step_bytes = options.step_bytes();
        // No less than what its evictions count on: one without room for a step would never get any.
        let storage =
            BookedStorage::new(fast.clone(), files.space.clone(), options.disk_bytes_max(), step_bytes);
        let charge = Mutex::new(files.memory.charge(MemoryPart::Hotness, 0));
        let told = move |bytes: u64| {
            charge.lock().resize(bytes);
            if let Some(engine) = engine.upgrade() {
                engine.hotness_worked();
            }
        };
        let dir = storage.dir();
        let events = events.clone();
        let evicted = move |before, after| events.post(|| What::TrackerEvicted { before, after });
        let ralt = Ralt::open(
            kelvin_ralt::Env {
                storage: Arc::new(storage.clone()),
                dir,
                io: config.table_io,
                executor: Arc::clone(&env.executor),
                lane: Lane::Tracking,
                memory: Some(Arc::new(told)),
                evicted: Some(Arc::new(evicted)),
            },
            options,
        );
        let kind = kind_of(ralt.scoring());
        let files = Some(storage);
        Self { kind, ralt: Some(ralt.clone()), files, step_bytes, ..without(Arc::new(ralt)) }
    }

    /// Sees to it that the tracker can do its next step, as far as more than `kept_bytes` of the fast tier are free.
    pub fn look_ahead(&self, kept_bytes: u64) {
        if let Some(files) = &self.files {
            files.look_ahead(kept_bytes);
        }
    }

    /// Room set aside for the tracker's next step now, bytes.
    pub(crate) fn ahead_bytes(&self) -> u64 {
        self.files.as_ref().map_or(0, BookedStorage::ahead_bytes)
    }

    /// Bytes of the room for the tracker's next step that there are not.
    fn lacking_bytes(&self) -> u64 {
        self.files.as_ref().map_or(0, BookedStorage::lacking_bytes)
    }

    /// True if accesses are wanted.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.kind != Hotness::Off
    }

    /// The tracker: [`NoTracker`] if accesses are not wanted.
    #[must_use]
    pub fn tracker(&self) -> &Arc<dyn HotTracker> {
        &self.tracker
    }

    /// The tracker as the keyspace `id` sees it.
    #[must_use]
    pub fn of_keyspace(&self, id: u32) -> OfKeyspace<&dyn HotTracker> {
        OfKeyspace::new(&*self.tracker, id)
    }

    /// The same, to keep.
    #[must_use]
    pub fn shared_of_keyspace(&self, id: u32) -> Arc<dyn HotTracker> {
        Arc::new(OfKeyspace::new(Arc::clone(&self.tracker), id))
    }

    /// Writes down what was noted, and ends its work.
    pub fn close(&self) {
        if let Some(ralt) = &self.ralt {
            ralt.close();
        }
    }

    /// What it has done and how large it is; `None` if there is none.
    #[must_use]
    pub fn stats(&self) -> Option<HotnessStats> {
        let Some(ralt) = &self.ralt else {
            let hot_set_bytes = self.tracker.hot_size(KeyRange::ALL);
            return self.is_on().then(|| HotnessStats {
                kind: self.kind,
                hot_set_bytes,
                hot_set_limit_bytes: self.exact_bytes,
                ..HotnessStats::default()
            });
        };
        let stats = ralt.stats();
        Some(HotnessStats {
            kind: self.kind,
            accesses: stats.accesses,
            left_out: stats.left_out,
            lost: stats.lost,
            evictions: stats.evictions,
            resets: stats.resets,
            read_bytes: stats.read_bytes,
            written_bytes: stats.written_bytes,
            physical_bytes: stats.physical_bytes,
            physical_limit_bytes: stats.physical_limit_bytes,
            disk_bytes: stats.disk_bytes,
            memory_bytes: stats.memory_bytes,
            cpu_us: stats.cpu_us,
            hot_set_bytes: stats.hot_set_bytes,
            hot_set_limit_bytes: stats.hot_set_limit_bytes,
            last_error: stats.last_error,
        })
    }

    /// Does at once what the tracker has to do, for tests.
    #[cfg(test)]
    pub fn settle(&self) {
        if let Some(ralt) = &self.ralt {
            ralt.settle();
        }
    }
}

impl Engine {
    /// The figures compactions are picked with now: what the tracker's files take, and the room for its next step, is not the
    /// levels', nor is what a promotion waits for.
    pub(crate) fn pick_config_now(&self) -> PickConfig {
        let usable = self.pick_config.fast_usable_bytes;
        let wants = self.promotion_wants();
        let wanted_bytes = if let Wants::Bytes(bytes) = wants { bytes } else { 0 };
        let taken = self.hotness_bytes().saturating_add(wanted_bytes);
        let fast_usable_bytes = usable.saturating_sub(taken).max(usable / 2);
        let means = &self.means;
        let (cold_permille, above_permille) = (means.cold_permille(), means.above_permille());
        let clean_turn = means.clean_turn();
        let [of_fast, of_slow] = self.pick_config.parts_max;
        let parts_max = [of_fast, self.slow_compactions_max().map_or(of_slow, |_| of_slow.min(2))];
        PickConfig {
            fast_usable_bytes,
            cold_permille,
            above_permille,
            clean_turn,
            parts_max,
            hot_level_is_full: wants == Wants::WhatIsCold,
            ..self.pick_config.clone()
        }
    }

    /// What the tracker takes of the fast tier now, with the room for its next step, bytes. What others than the levels have taken of that room counts
    /// once more, so that the levels make up for it.
    pub(crate) fn hotness_bytes(&self) -> u64 {
        let taken_bytes = self.space.used_below(Tier::Fast, IN_BOOKS);
        taken_bytes.saturating_add(self.hotness.step_bytes).saturating_add(self.hotness.lacking_bytes())
    }

    /// The tracker's files have changed, or could not: the levels may have to give way before it goes on.
    fn hotness_worked(&self) {
        let now = self.space.used_below(Tier::Fast, IN_BOOKS);
        let before = self.hotness.told_bytes.load(Ordering::Relaxed);
        let grew = now > before.saturating_add(self.hotness.step_bytes / 4);
        if grew || now < before {
            self.hotness.told_bytes.store(now, Ordering::Relaxed);
        }
        if grew || self.hotness.lacking_bytes() > 0 {
            self.schedule();
        }
    }
}
