//! What the engine gets from outside: files, time, threads, randomness (DESIGN section 2, point 5).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kelvin_base::{Clock, Error, Executor, Result, SystemClock, ThreadPool, system_seed};
use kelvin_storage::deadline::Deadline;
use kelvin_storage::{DeadlineStorage, OsStorage, Storage};

use super::Config;

/// The injected world of a store. Clones share it; several stores may.
#[derive(Clone, Debug)]
pub struct Env {
    /// Files of the fast tier.
    pub fast: Arc<dyn Storage>,
    /// Files of the slow tier.
    pub slow: Arc<dyn Storage>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Background work.
    pub executor: Arc<dyn Executor>,
    /// Seed of everything random, where [`super::Advanced::seed`] gives none.
    pub seed: u64,
}

impl Env {
    /// The operating system's files, time and threads, as many as `config` says, and a seed of its own.
    ///
    /// The slow tier's files are behind `config`'s deadline, unless that is [`Duration::MAX`].
    ///
    /// # Errors
    /// `Io` if a thread cannot be started.
    pub fn system(config: &Config) -> Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let pool = ThreadPool::new(config.flushes_max, config.compactions_max, config.read_threads).map_err(
            |error| Error::io("cannot start the background threads", Path::new(&config.dir), error),
        )?;
        let fast: Arc<dyn Storage> = Arc::new(OsStorage::new());
        let slow: Arc<dyn Storage> = if config.slow_deadline == Duration::MAX {
            Arc::clone(&fast)
        } else {
            let deadline = Deadline::new(config.slow_deadline);
            Arc::new(DeadlineStorage::new(Arc::clone(&fast), deadline, Arc::clone(&clock)))
        };
        Ok(Self {
            fast,
            slow,
            clock,
            executor: Arc::new(pool),
            seed: config.seed.unwrap_or_else(system_seed),
        })
    }
}
