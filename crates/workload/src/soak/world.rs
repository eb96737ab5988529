//! What the threads of a soak share: the store on its disks, what it must hold, and what was met.
//!
//! Whoever finds a broken promise says so by [`World::fail`], and everybody ends. To do something to the store with nobody on it the chaos
//! closes the [`Gate`]: each client lets go of all it holds and waits there. Tests: `tests/soak.rs` of this crate.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kelvin::{Clock, Db, Env, Error, Options, Result, Stats, Tier};
use kelvin_base::Signal;
use kelvin_base::sync::Mutex;
use kelvin_storage::deadline::Deadline;
use kelvin_storage::{DeadlineStorage, FaultStorage, OsStorage, Storage};

use super::keys::{Keys, Maker};
use super::meter::{Kind, Meter};
use super::parts::Parts;
use super::phase::{Allowed, Asked, Phases, allowed};
use super::setup::{CLIENTS, Setup};

/// A promise that was kept, or which was not and how.
pub type Check<T = ()> = std::result::Result<T, String>;

/// Who waits looks again after so long: background work raises signals of its own.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// With less than this part of its capacity free the fast disk counts as full for whoever cannot write during an outage.
const FULL_FROM: f64 = 0.7;

/// Where clients wait while the store is nobody's.
#[derive(Debug, Default)]
pub struct Gate {
    is_closed: AtomicBool,
    parked: AtomicUsize,
}

/// What all threads share.
pub struct World {
    /// What is run.
    pub setup: Setup,
    /// Makes values.
    pub maker: Maker,
    /// The disks, which can fail.
    pub disks: [Arc<FaultStorage>; 2],
    env: Env,
    db: Mutex<Option<Db>>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// When this part of the run began, by the clock and since the first part did.
    start: Duration,
    before: Duration,
    /// The same on the wall clock, milliseconds since 1970.
    pub unix_start_ms: u64,
    /// Bytes of the store's memtables.
    pub memtable_bytes: u64,
    /// What is done to the store.
    pub phases: Phases,
    /// What the keys of each client hold. A client holds its own while it does something with them.
    pub keys: Vec<Mutex<Keys>>,
    /// What each client measures; the last one is the chaos.
    pub meters: Vec<Meter>,
    /// Clients that have loaded their keys.
    loaded: AtomicUsize,
    /// When the last of them had, since the run began: from then on its seconds are counted.
    pub loaded_at: OnceLock<Duration>,
    /// Checkpoints, openings and the like, which no client does, and faults.
    pub rounds: AtomicU64,
    gate: Gate,
    failure: Mutex<Option<String>>,
    is_over: AtomicBool,
    changed: Arc<Signal>,
}

impl World {
    /// A new store, or that of the parts before.
    ///
    /// # Errors
    /// What keeps it from being made or opened.
    pub fn new(setup: Setup, parts: Option<&Parts>) -> Result<Arc<Self>> {
        let options = setup.options();
        let system = Env::system(&options.derive()?)?;
        let clock = Arc::clone(&system.clock);
        let disk = |seed| Arc::new(FaultStorage::new(Arc::new(OsStorage::new()), seed));
        let disks = [disk(setup.part_seed()), disk(setup.part_seed() + 1)];
        let [fast, slow] = disks.each_ref().map(|disk| Arc::clone(disk) as Arc<dyn Storage>);
        let slow = DeadlineStorage::new(slow, Deadline::new(setup.deadline), Arc::clone(&clock));
        let env = Env { fast, slow: Arc::new(slow), seed: setup.seed, ..system };
        let db = Db::open(options.env(env.clone()))?;
        let (start, unix_now_ms) = (clock.now(), clock.unix_millis());
        let before = parts.map_or(Duration::ZERO, |parts| parts.elapsed);
        let keys = |client| {
            let known = parts.and_then(|parts| parts.keys.get(client)).cloned();
            Mutex::new(known.unwrap_or_else(|| Keys::new(setup.keys)))
        };
        Ok(Arc::new(Self {
            maker: Maker::new(setup.seed)?,
            disks,
            env,
            memtable_bytes: db.config().memtable_bytes,
            db: Mutex::new(Some(db)),
            start,
            before,
            unix_start_ms: parts.map_or(unix_now_ms, |parts| parts.unix_start_ms),
            phases: Phases::new(before),
            keys: (0..CLIENTS).map(keys).collect(),
            meters: (0..=CLIENTS).map(|_| Meter::new()).collect::<Result<_>>()?,
            loaded: AtomicUsize::new(0),
            loaded_at: OnceLock::new(),
            rounds: AtomicU64::new(0),
            gate: Gate::default(),
            failure: Mutex::default(),
            is_over: AtomicBool::new(false),
            changed: Arc::default(),
            clock,
            setup,
        }))
    }

    /// Since the run began, without the time between its parts.
    pub fn now(&self) -> Duration {
        self.clock.now().saturating_sub(self.start) + self.before
    }

    /// The same moment, by the clock.
    fn on_the_clock(&self, at: Duration) -> Duration {
        self.start + at.saturating_sub(self.before)
    }

    /// Milliseconds since the run began, by the clock that records expire by.
    pub fn wall_ms(&self) -> u64 {
        self.clock.unix_millis().saturating_sub(self.unix_start_ms)
    }

    /// The store.
    ///
    /// # Errors
    /// It is closed.
    pub fn db(&self) -> Check<Db> {
        self.db.lock().clone().ok_or_else(|| "the store is closed".to_owned())
    }

    /// Its statistics; `None` while it is closed.
    pub fn stats(&self) -> Option<Stats> {
        self.db.lock().as_ref().map(Db::stats)
    }

    /// Closes the store and opens it again.
    ///
    /// # Errors
    /// The store's.
    pub fn reopen(&self) -> Check {
        let mut db = self.db.lock();
        if let Some(db) = db.take() {
            db.close().map_err(|error| format!("closing failed: {error}"))?;
        }
        let options: Options = self.setup.options().env(self.env.clone());
        *db = Some(Db::open(options).map_err(|error| format!("opening failed: {error}"))?);
        Ok(())
    }

    /// Closes the store for good.
    ///
    /// # Errors
    /// The store's.
    pub fn close(&self) -> Check {
        match self.db.lock().take() {
            Some(db) => db.close().map_err(|error| format!("closing failed: {error}")),
            None => Ok(()),
        }
    }

    /// A promise was broken: everybody ends. The first one is told.
    pub fn fail(&self, what: String) {
        self.failure.lock().get_or_insert(what);
        self.end();
    }

    /// The promise that was broken, if one was.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// A client has loaded its keys; returns when all have, or all is over.
    pub fn wait_for_load(&self) {
        if self.loaded.fetch_add(1, Ordering::AcqRel) + 1 == CLIENTS {
            self.loaded_at.get_or_init(|| self.now());
            self.tell();
        }
        self.wait_until(Duration::MAX, || self.loaded_at.get().is_some());
    }

    /// Everybody ends.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.changed.raise();
    }

    /// Everybody is to end.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Somebody may wait for what has just changed.
    pub fn tell(&self) {
        self.changed.raise();
    }

    /// Waits until `done`, at most until `at`, and no longer than until all is over; true if it was done.
    pub fn wait_until(&self, at: Duration, mut done: impl FnMut() -> bool) -> bool {
        loop {
            let look_at = self.on_the_clock(at.min(self.now() + LOOK_EVERY));
            let answer =
                self.changed.wait_until(&*self.clock, look_at, || (done() || self.is_over()).then_some(()));
            if answer.is_some() {
                return !self.is_over() || done();
            }
            if self.now() >= at {
                return false;
            }
        }
    }

    /// Lets `time` pass, also when all is over: for what the store does by itself.
    pub fn pause(&self, time: Duration) {
        let until = self.on_the_clock(self.now() + time);
        self.changed.wait_until(&*self.clock, until, || None::<()>);
    }

    /// Clients are to wait at the gate; returns once all of them do, or all is over.
    pub fn close_gate(&self) {
        self.gate.is_closed.store(true, Ordering::Release);
        self.wait_until(Duration::MAX, || self.gate.parked.load(Ordering::Acquire) == CLIENTS);
    }

    /// Clients go on.
    pub fn open_gate(&self) {
        self.gate.is_closed.store(false, Ordering::Release);
        self.tell();
    }

    /// Clients are to wait.
    pub fn is_gate_closed(&self) -> bool {
        self.gate.is_closed.load(Ordering::Acquire)
    }

    /// Waits until the gate is open.
    pub fn wait_at_gate(&self) {
        self.gate.parked.fetch_add(1, Ordering::AcqRel);
        self.tell();
        self.wait_until(Duration::MAX, || !self.is_gate_closed());
        self.gate.parked.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether what began at `begun` may fail so.
    ///
    /// # Errors
    /// The broken promise, if it may not.
    pub fn may_fail(&self, (asked, kind): (Asked, Kind), error: &Error, begun: Duration) -> Check {
        let phases = self.phases.since(begun);
        let is_allowed = match allowed(asked, error, &phases) {
            Allowed::Yes => true,
            Allowed::IfFastIsFull => self.stats().is_none_or(|stats| self.is_fast_full(&stats)),
            Allowed::No => false,
        };
        if is_allowed && error.is_retryable() {
            return Ok(());
        }
        let names: Vec<&str> = phases.iter().map(|phase| phase.name()).collect();
        let state = self.stats().map(|stats| {
            let [used, reserved] = [stats.used_bytes, stats.reserved_bytes];
            let failed = stats.background_error.unwrap_or_default();
            format!(
                "writers {}, used {used:?}, reserved {reserved:?}, background error {failed:?}",
                stats.pressure
            )
        });
        let (name, names) = (kind.name(), names.join(", "));
        Err(format!("{name} fails, in the phases {names}: {error} ({})", state.unwrap_or_default()))
    }

    fn is_fast_full(&self, stats: &Stats) -> bool {
        let fast = Tier::Fast.index();
        let taken = (stats.used_bytes[fast] + stats.reserved_bytes[fast]) as f64;
        stats.pressure.starts_with("stopped") || taken > self.setup.fast_capacity as f64 * FULL_FROM
    }
}

/// Says that its thread has panicked, if it has.
pub struct Watched(pub Arc<World>);

impl Drop for Watched {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("a thread panicked".to_owned());
        }
        self.0.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_all_is_over_nobody_waits_for_it_but_a_pause_lasts() {
        let temporary = tempfile::tempdir().unwrap();
        let dirs = ["fast", "slow"].map(|name| temporary.path().join(name));
        let world = World::new(Setup::of(1, 1, dirs), None).unwrap();
        world.end();
        assert!(!world.wait_until(Duration::MAX, || false));
        let (begun, pause) = (world.now(), Duration::from_millis(20));
        world.pause(pause);
        assert!(world.now() >= begun + pause);
        world.close().unwrap();
    }
}
