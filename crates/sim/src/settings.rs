//! The configurations that every operation list runs under: tiers, sizes, compression, caches, devices, threads.

use std::path::Path;
use std::sync::Arc;

use kelvin::{CompressionChoice, Db, Durability, Env, HotParts, Hotness, Options, Profile};
use kelvin_base::{Clock, Executor, ManualClock, ManualExecutor, ThreadPool};
use kelvin_storage::Storage;
use kelvin_storage::memory::MemoryStorage;

use crate::harm::{Harm, tables_in};
use crate::model::{History, Mismatch, Moved, Ran, Run, Setting};
use crate::ops::Generator;

/// One way to run a store.
#[derive(Clone, Copy, Debug)]
pub struct Configuration {
    /// Its name in messages.
    pub name: &'static str,
    /// It has a slow tier.
    pub tiered: bool,
    /// Background work has threads of its own; else it is stepped by hand.
    pub threads: bool,
    /// Changes of the options.
    pub change: fn(Options) -> Options,
}

/// The wall time at which every run begins.
pub(crate) const START_UNIX_MILLIS: u64 = 1_000_000;
const FAST: &str = "/fast";
const SLOW: &str = "/slow";

fn small(options: Options) -> Options {
    options.memory(8 << 20).advanced(|a| {
        a.memtable_bytes = Some(16 << 10);
        a.table_bytes = Some(16 << 10);
        a.fast_block_bytes = Some(512);
        a.slow_block_bytes = Some(512);
    })
}

/// What is read from the slow tier is promoted every few reads, if it is hot by `hotness`.
fn tracked(options: Options, hotness: Hotness) -> Options {
    small(options).advanced(|a| {
        a.hotness = Some(hotness);
        a.promotion_bytes = Some(2 << 10);
    })
}

/// What is read from the slow tier is promoted every few reads, hot or not; `parts` is what is done besides.
fn promoting(options: Options, parts: HotParts) -> Options {
    tracked(options, Hotness::Oracle).advanced(|a| {
        a.hot_parts = HotParts { hotness_check: false, ..parts };
    })
}

/// All of them.
pub const ALL: [Configuration; 25] = [
    Configuration { name: "one tier", tiered: false, threads: false, change: small },
    Configuration { name: "two tiers", tiered: true, threads: false, change: small },
    Configuration { name: "one tier, threads", tiered: false, threads: true, change: small },
    Configuration { name: "two tiers, threads", tiered: true, threads: true, change: small },
    Configuration { name: "defaults", tiered: false, threads: true, change: |options| options },
    Configuration {
        name: "two tiers, LZ4",
        tiered: true,
        threads: false,
        change: |options| small(options).compression(CompressionChoice::Lz4),
    },
    Configuration {
        name: "two tiers, Zstd, large blocks",
        tiered: true,
        threads: false,
        change: |options| {
            small(options).compression(CompressionChoice::Zstd).advanced(|a| {
                a.fast_block_bytes = Some(8 << 10);
                a.slow_block_bytes = Some(8 << 10);
                a.restart_interval = 3;
            })
        },
    },
    Configuration {
        name: "by tier, memory durability",
        tiered: true,
        threads: false,
        change: |options| {
            small(options).compression(CompressionChoice::ByTier).durability(Durability::Memory)
        },
    },
    Configuration {
        name: "sync durability",
        tiered: false,
        threads: false,
        change: |options| small(options).durability(Durability::Sync),
    },
    Configuration {
        name: "ratio 2, many levels",
        tiered: false,
        threads: false,
        change: |options| small(options).advanced(|a| a.level_ratio = 2),
    },
    Configuration {
        name: "two tiers, ratio 4, parts",
        tiered: true,
        threads: true,
        change: |options| {
            small(options).advanced(|a| {
                a.level_ratio = 4;
                a.compactions_max = Some(4);
            })
        },
    },
    Configuration {
        name: "two tiers, hotness by RALT, little memory",
        tiered: true,
        threads: true,
        change: |options| small(options).memory(1 << 20).advanced(|a| a.hotness = Some(Hotness::Ralt)),
    },
    Configuration {
        name: "two tiers, hotness by an oracle",
        tiered: true,
        threads: false,
        change: |options| small(options).advanced(|a| a.hotness = Some(Hotness::Oracle)),
    },
    Configuration {
        name: "two tiers, hotness off",
        tiered: true,
        threads: false,
        change: |options| small(options).advanced(|a| a.hotness = Some(Hotness::Off)),
    },
    Configuration {
        name: "two tiers, all promoted",
        tiered: true,
        threads: false,
        change: |options| promoting(options, HotParts::default()),
    },
    Configuration {
        name: "two tiers, all promoted, threads",
        tiered: true,
        threads: true,
        change: |options| promoting(options, HotParts::default()),
    },
    Configuration {
        name: "two tiers, promotion by RALT",
        tiered: true,
        threads: false,
        change: |options| tracked(options, Hotness::Ralt),
    },
    Configuration {
        name: "two tiers, promotion by LRU",
        tiered: true,
        threads: false,
        change: |options| tracked(options, Hotness::Lru),
    },
    Configuration {
        name: "two tiers, promotion by CLOCK, threads",
        tiered: true,
        threads: true,
        change: |options| tracked(options, Hotness::Clock),
    },
    Configuration {
        name: "two tiers, no retention",
        tiered: true,
        threads: false,
        change: |options| promoting(options, HotParts { retention: false, ..HotParts::default() }),
    },
    Configuration {
        name: "two tiers, no promotion by compaction",
        tiered: true,
        threads: false,
        change: |options| {
            promoting(options, HotParts { promotion_by_compaction: false, ..HotParts::default() })
        },
    },
    Configuration {
        name: "two tiers, no promotion by flush",
        tiered: true,
        threads: false,
        change: |options| promoting(options, HotParts { promotion_by_flush: false, ..HotParts::default() }),
    },
    Configuration {
        name: "write profile",
        tiered: true,
        threads: false,
        change: |options| small(options).profile(Profile::Writes),
    },
    Configuration {
        name: "read profile, one level-0 table",
        tiered: true,
        threads: false,
        change: |options| small(options).profile(Profile::Reads).advanced(|a| a.level0_compact_at = Some(1)),
    },
    Configuration {
        name: "scan profile, small WAL",
        tiered: true,
        threads: false,
        change: |options| {
            small(options).profile(Profile::Scans).advanced(|a| a.wal_bytes_max = Some(64 << 10))
        },
    },
];

/// What is read from the slow tier is promoted at every other read or so, as few small records fill the cache.
fn racing(options: Options, hotness: Hotness, cache_bytes: u64, parts: HotParts) -> Options {
    promoting(options, parts).advanced(|a| {
        a.hotness = Some(hotness);
        a.promotion_bytes = Some(cache_bytes);
    })
}

/// A promotion cache for two records of at most 64 bytes, and for one.
const FOR_TWO: u64 = 500;
const FOR_ONE: u64 = 300;

/// What of promotion and retention may meet: all of it, and without each part in turn, which would hide what another does wrong.
pub const RACES: [Configuration; 5] = [
    Configuration {
        name: "races, all",
        tiered: true,
        threads: true,
        change: |options| racing(options, Hotness::Oracle, FOR_ONE, HotParts::default()),
    },
    Configuration {
        name: "races, no retention",
        tiered: true,
        threads: true,
        change: |options| {
            let parts = HotParts { retention: false, ..HotParts::default() };
            racing(options, Hotness::Oracle, FOR_TWO, parts)
        },
    },
    Configuration {
        name: "races, no retention, no promotion by flush",
        tiered: true,
        threads: true,
        change: |options| {
            let parts = HotParts { retention: false, promotion_by_flush: false, ..HotParts::default() };
            racing(options, Hotness::Oracle, FOR_TWO, parts)
        },
    },
    Configuration {
        name: "races, by CLOCK",
        tiered: true,
        threads: true,
        change: |options| racing(options, Hotness::Clock, FOR_TWO, HotParts::default()),
    },
    Configuration {
        name: "races, no promotion by compaction",
        tiered: true,
        threads: true,
        change: |options| {
            let parts = HotParts { promotion_by_compaction: false, ..HotParts::default() };
            racing(options, Hotness::Oracle, FOR_ONE, parts)
        },
    },
];

/// The options of `configuration` for a store in these places.
pub(crate) fn base(configuration: &Configuration, fast: &Path, slow: &Path) -> Options {
    let options = Options::new(fast).compression(CompressionChoice::None);
    let options = if configuration.tiered { options.slow(slow).fast_capacity(1 << 20) } else { options };
    (configuration.change)(options)
}

/// Runs `count` operations of `seed` under `configuration` on memory devices.
///
/// # Errors
/// The first difference from the model.
pub fn run(configuration: &Configuration, seed: u64, count: u64, keys: u64) -> Result<Ran, Mismatch> {
    run_all(configuration, Generator::new(seed, keys), seed, count)
}

/// What one list of operations came to under several configurations.
#[derive(Debug, Default)]
pub struct Compared {
    /// What moved between the tiers, in all.
    pub moved: Moved,
    /// The first configuration, and what it answered.
    first: Option<(&'static str, History)>,
}

impl Compared {
    /// Adds a run of the same list under another configuration.
    ///
    /// # Errors
    /// If it answered something else than the first one.
    pub fn add(&mut self, configuration: &Configuration, ran: Ran) -> Result<(), Mismatch> {
        self.moved.add(ran.moved);
        let (name, first) = *self.first.get_or_insert((configuration.name, ran.history));
        if ran.history == first {
            return Ok(());
        }
        let what = if ran.history.answers == first.answers { "hold" } else { "answer" };
        Err(Mismatch(format!(
            "[{}] and [{name}] {what} different things after the same list",
            configuration.name
        )))
    }

    /// A digest of what every configuration answered and held.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.first.map_or(0, |(_, history)| history.answers ^ history.content.rotate_left(1))
    }
}

/// Runs `count` operations of `seed` under each of `configurations`, which must answer alike and hold the same in the end.
/// `progress` is told of each.
///
/// # Errors
/// The first difference from the model, or between two of them.
pub fn compare<'a>(
    configurations: impl IntoIterator<Item = &'a Configuration>,
    (seed, count, keys): (u64, u64, u64),
    mut progress: impl FnMut(),
) -> Result<Compared, Mismatch> {
    let mut compared = Compared::default();
    for configuration in configurations {
        let ran = run(configuration, seed, count, keys)?;
        compared.add(configuration, ran).map_err(|what| Mismatch(format!("seed {seed}: {what}")))?;
        progress();
    }
    Ok(compared)
}

/// Runs at most `count` operations that `bytes` choose under `configuration` on memory devices.
///
/// # Errors
/// The first difference from the model.
pub fn run_bytes(
    configuration: &Configuration,
    bytes: &[u8],
    count: u64,
    keys: u64,
) -> Result<Ran, Mismatch> {
    run_all(configuration, Generator::of_bytes(bytes.to_vec(), keys), 0, count)
}

/// Threads for background work.
fn threads() -> Result<Arc<dyn Executor>, String> {
    let pool = ThreadPool::new(1, 2, 2).map_err(|error| format!("starting threads: {error}"))?;
    Ok(Arc::new(pool))
}

/// Memory devices.
fn devices() -> [Arc<dyn Storage>; 2] {
    [Arc::new(MemoryStorage::new()), Arc::new(MemoryStorage::new())]
}

/// An empty store under `configuration`, which has threads, on memory devices.
///
/// # Errors
/// What keeps it from being opened.
pub fn open(configuration: &Configuration, seed: u64) -> Result<Db, String> {
    let clock = Arc::new(ManualClock::new(START_UNIX_MILLIS));
    open_on(devices(), configuration, seed, clock, threads()?)
}

/// As [`open`], on these devices, with this clock and the threads of `executor`.
///
/// # Errors
/// What keeps it from being opened.
pub(crate) fn open_on(
    [fast, slow]: [Arc<dyn Storage>; 2],
    configuration: &Configuration,
    seed: u64,
    clock: Arc<dyn Clock>,
    executor: Arc<dyn Executor>,
) -> Result<Db, String> {
    let env = Env { fast, slow, clock, executor, seed };
    let options = base(configuration, Path::new(FAST), Path::new(SLOW)).env(env);
    Db::open(options).map_err(|error| format!("open failed: {error}"))
}

fn run_all(
    configuration: &Configuration,
    generator: Generator,
    seed: u64,
    count: u64,
) -> Result<Ran, Mismatch> {
    let clock = Arc::new(ManualClock::new(START_UNIX_MILLIS));
    let manual = (!configuration.threads).then(|| Arc::new(ManualExecutor::new()));
    let executor: Arc<dyn Executor> = match &manual {
        Some(manual) => Arc::clone(manual) as _,
        None => threads().map_err(Mismatch)?,
    };
    let devices = devices();
    let [fast, slow] = devices.clone();
    let env = Env { fast, slow, clock: Arc::clone(&clock) as Arc<dyn Clock>, executor, seed };
    let harm = Harm::new(Arc::clone(&devices[0]), FAST, |fast| {
        let slow = fast.with_extension("slow");
        base(configuration, fast, &slow).env(Env { seed: seed ^ 1, ..env.clone() })
    });
    let tables = || {
        let mut tables = tables_in(&*devices[0], Path::new(FAST))?;
        tables.append(&mut tables_in(&*devices[1], Path::new(SLOW))?);
        Ok(tables)
    };
    let options = || base(configuration, Path::new(FAST), Path::new(SLOW)).env(env.clone());
    let checkpoint = |dir: &Path| {
        let (fast, slow) = (dir.join("fast"), dir.join("slow"));
        let slow_dir = configuration.tiered.then(|| slow.clone());
        (base(configuration, &fast, &slow).env(env.clone()), slow_dir)
    };
    let setting = Setting {
        options: &options,
        checkpoint: &checkpoint,
        clock: Arc::clone(&clock),
        executor: manual.clone(),
        harm: &|number, copies| harm.inflict(number, copies),
        tables: &tables,
        name: configuration.name,
    };
    let outcome = Run::new(setting).and_then(|run| run.run_all(generator, &format!("seed {seed}"), count));
    if let Some(manual) = manual {
        // Jobs still queued hold the store, which holds their queue.
        manual.discard();
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_that_answers_or_holds_something_else_is_found() {
        let ran = |answers, content| Ran { moved: Moved::default(), history: History { answers, content } };
        let mut compared = Compared::default();
        assert!(compared.add(&ALL[0], ran(1, 2)).is_ok() && compared.add(&ALL[1], ran(1, 2)).is_ok());
        for (other, what) in [(ran(1, 3), "hold"), (ran(4, 2), "answer")] {
            let told = compared.add(&ALL[2], other).unwrap_err().0;
            let expected = format!("[{}] and [{}] {what} different", ALL[2].name, ALL[0].name);
            assert!(told.starts_with(&expected), "{told}");
        }
    }

    #[test]
    fn lists_that_differ_have_different_histories_and_each_is_the_same_again() {
        let digest = |seed| compare(&ALL[..2], (seed, 300, 50), || ()).unwrap().digest();
        assert_eq!(digest(1), digest(1));
        assert_ne!(digest(1), digest(2));
    }
}
