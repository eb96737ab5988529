//! The whole store with all its threads in a world of its own, on disks that fail, through crashes and reopenings.
//!
//! The threads of the store and its clients take turns as a seed says ([`crate::world`]); the weather brings faults of both disks, one or two at a time, and
//! ends lives of the process: by a power loss, also while the store is being opened, by the process's death, by closing it. Every answer is held against what
//! a client knows of its keys ([`client`]). What a store may refuse depends on the weather: nothing, a while after it has become fair.
//! At the end, and after lives that ended well, the audit, `check`, the limits and the files are looked at. One case gives one trace.
//! RELIABILITY T15. Tests: `tests/simulation.rs`.

mod case;
mod client;
mod disks;
mod life;
mod weather;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kelvin::{Db, Env, Options};
use kelvin_base::sync::{self, Mutex};
use kelvin_base::{Clock, ThreadPool};
use kelvin_storage::crash::CrashModel;
use kelvin_storage::deadline::Deadline;
use kelvin_storage::{DeadlineStorage, Storage};

pub use case::{Case, shrunk};
use client::{Client, Kept, Shown};
use disks::Disks;
use life::{GRACE, Life, Opened, Stop};
use rand::RngExt;
use weather::{Ending, Fault, Turn, random_of};

use crate::checks::{audit, is_sound, said_by, tables_are_named};
use crate::model::Moved;
use crate::settings::{self, Configuration, START_UNIX_MILLIS, base};
use crate::world::{World, WorldClock};

/// Where the store lies.
const DIRS: [&str; 2] = ["/fast", "/slow"];

/// What a simulation met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Simulations.
    pub cases: u64,
    /// Steps of clients.
    pub steps: u64,
    /// Of these, refused for a fault.
    pub refused: u64,
    /// Turns of the weather.
    pub turns: u64,
    /// Power losses and deaths of the process.
    pub crashes: u64,
    /// Of these, while the store was being opened.
    pub crashes_opening: u64,
    /// Simulated time.
    pub time: Duration,
    /// What moved between the tiers.
    pub moved: Moved,
    /// A hash of all that clients saw, and when.
    pub trace: u64,
}

impl Tally {
    /// Adds `other`.
    pub fn add(&mut self, other: Self) {
        self.cases += other.cases;
        self.steps += other.steps;
        self.refused += other.refused;
        self.turns += other.turns;
        self.crashes += other.crashes;
        self.crashes_opening += other.crashes_opening;
        self.time += other.time;
        self.moved.add(other.moved);
        self.trace = self.trace.rotate_left(1) ^ other.trace;
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { steps, refused, turns, crashes, crashes_opening, time, moved, .. } = self;
        write!(
            f,
            "{steps} steps in {} simulated hours, {turns} turns of the weather, {refused} steps refused, {crashes} crashes, {crashes_opening} of them while opening; {moved}",
            time.as_secs() / 3600
        )
    }
}

/// A broken promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which.
    pub what: String,
    /// Turns that the weather had taken.
    pub turns: u64,
}

/// What all lives have in common.
pub(crate) struct Machine {
    clock: Arc<dyn Clock>,
    configuration: &'static Configuration,
    /// The longest that an operation of the slow disk may take: as by default in half of the seeds, none as where it is turned off.
    slow_deadline: Option<Duration>,
    seed: u64,
}

impl Machine {
    /// Options of a store in `dirs` of `disks`, with threads of its own.
    fn options(&self, disks: &Disks, dirs: &[PathBuf; 2]) -> kelvin::Result<Options> {
        let pool = ThreadPool::on(Arc::clone(&self.clock), 1, 2, 1)
            .map_err(|error| kelvin::Error::io("starting threads", &dirs[0], error))?;
        let [fast, slow] = disks.seen.clone();
        let clock = Arc::clone(&self.clock);
        let slow: Arc<dyn Storage> = match self.slow_deadline {
            Some(limit) => Arc::new(DeadlineStorage::new(slow, Deadline::new(limit), Arc::clone(&clock))),
            None => slow,
        };
        let env = Env { fast, slow, clock, executor: Arc::new(pool), seed: self.seed };
        Ok(base(self.configuration, &dirs[0], &dirs[1]).env(env))
    }
}

/// Runs `case`; a panic is told like a broken promise.
///
/// # Errors
/// The first broken promise.
pub fn run(case: &Case) -> Result<Tally, Failure> {
    let turns = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let ran = std::panic::catch_unwind(|| {
        let switches = random_of(case.seed, "order", 0).random_range(0..4);
        let switches = [0, 5_000, 50_000, 300_000][switches];
        World::shuffled(case.seed, switches, |world| {
            let clock: Arc<dyn Clock> = Arc::new(WorldClock::new(Arc::clone(world), START_UNIX_MILLIS));
            Simulation::new(case, world, &clock).run(&turns)
        })
    });
    let outcome = ran.unwrap_or_else(|panic| Err(format!("a panic: {}", said_by(&*panic))));
    outcome.map_err(|what| Failure { what, turns: turns.load(std::sync::atomic::Ordering::Relaxed) })
}

struct Simulation<'a> {
    case: &'a Case,
    world: &'a Arc<World>,
    machine: Machine,
    disks: Disks,
    clients: Vec<Client>,
    /// The next turn of the weather.
    turn: u64,
    /// So far; the number of crashes is also their seeds'.
    tally: Tally,
}

/// The longest that an operation of the slow disk may take where there is a limit: shorter than it hangs.
const SLOW_DEADLINE: Duration = Duration::from_secs(10);

/// How the life before ended.
struct Before {
    kept: Kept,
    /// What is wrong with the disks when the store is opened first.
    faults: Vec<Fault>,
    /// When the power fails again.
    again: Vec<Duration>,
}

impl<'a> Simulation<'a> {
    fn new(case: &'a Case, world: &'a Arc<World>, clock: &Arc<dyn Clock>) -> Self {
        let tiered: Vec<&'static Configuration> = settings::ALL.iter().filter(|one| one.tiered).collect();
        let which = random_of(case.seed, "configuration", 0).random_range(0..tiered.len());
        let slow_deadline = random_of(case.seed, "deadline", 0).random::<bool>().then_some(SLOW_DEADLINE);
        let machine = Machine {
            clock: Arc::clone(clock),
            configuration: tiered[which],
            slow_deadline,
            seed: case.seed,
        };
        Self {
            case,
            world,
            machine,
            disks: Disks::new(Arc::clone(clock), case.seed),
            clients: (0..case.clients).map(|number| Client::new(case.seed, number)).collect(),
            turn: 0,
            tally: Tally { cases: 1, ..Tally::default() },
        }
    }

    fn run(mut self, turns: &std::sync::atomic::AtomicU64) -> Result<Tally, String> {
        let mut before = Before { kept: Kept::All, faults: Vec::new(), again: Vec::new() };
        loop {
            let opened = self.open(before)?;
            let ended = self.live(opened);
            turns.store(self.turn, std::sync::atomic::Ordering::Relaxed);
            match ended.map_err(|what| format!("[{}] {what}", self.machine.configuration.name))? {
                Some(next) => before = next,
                None => break,
            }
        }
        for client in &self.clients {
            self.tally.steps += client.steps;
            self.tally.refused += client.refused;
        }
        self.tally.turns = self.turn;
        self.tally.time = self.world.now();
        Ok(self.tally)
    }

    /// Opens the store. One that was closed while the slow disk hung can be opened once that has ended what was given up.
    fn open_store(&self) -> kelvin::Result<Db> {
        let clock = &*self.machine.clock;
        let until = clock.now() + GRACE;
        loop {
            let opened = self.machine.options(&self.disks, &Self::dirs()).and_then(Db::open);
            let is_owed = self.machine.slow_deadline.is_some()
                && matches!(&opened, Err(error) if error.kind() == kelvin::ErrorKind::Busy);
            if !is_owed || clock.now() >= until {
                return opened;
            }
            clock.sleep(Duration::from_secs(1));
        }
    }

    fn dirs() -> [PathBuf; 2] {
        DIRS.map(PathBuf::from)
    }

    /// Opens what the life before left, through further crashes, and finds out what of it is there.
    fn open(&mut self, before: Before) -> Result<Opened, String> {
        let Before { kept, faults, again } = before;
        for delay in again {
            self.open_and_crash(kept, delay)?;
        }
        if !faults.is_empty() {
            faults.iter().for_each(|fault| fault.begin(&self.disks));
            let opened = self.open_store();
            self.disks.clear();
            let fair_since = Some(self.machine.clock.now());
            self.machine.clock.sleep(GRACE);
            if let Ok(db) = opened {
                match self.settle_raw(&db, kept) {
                    Ok(()) => return Ok(Opened { db, fair_since }),
                    // What a store opened on bad disks cannot read then, one opened on good ones must.
                    Err(Stop::Refused(_)) => drop(db.close()),
                    Err(Stop::Wrong(what)) => return Err(format!("opened on bad disks: {what}")),
                }
            }
        }
        let opened = self.open_store();
        let db = opened.map_err(|error| format!("opening on disks that are well: {error}"))?;
        self.settle(&db, kept)?;
        Ok(Opened { db, fair_since: None })
    }

    /// Opens the store, and lets the power fail after `delay`.
    fn open_and_crash(&mut self, kept: Kept, delay: Duration) -> Result<(), String> {
        let options = self.machine.options(&self.disks, &Self::dirs()).map_err(|error| error.to_string())?;
        let (disks, clock) = (self.disks.clone(), Arc::clone(&self.machine.clock));
        let is_cut = Mutex::new(false);
        let settled = sync::scope(|scope| {
            let cutter = scope.spawn(|| {
                clock.sleep(delay);
                *is_cut.lock() = true;
                disks.cut();
            });
            let settled = Db::open(options).map_err(Stop::from).and_then(|db| {
                let settled = self.settle_raw(&db, kept);
                let closed = db.close().map_err(Stop::from);
                settled.and(closed)
            });
            let was_cut = *is_cut.lock();
            let joined = cutter.join();
            match settled {
                Err(Stop::Refused(error)) if !was_cut => Err(format!("before the power failed: {error}")),
                Err(Stop::Wrong(what)) => Err(what),
                Ok(()) | Err(Stop::Refused(_)) => joined.map_err(|_| "the cutter panicked".to_owned()),
            }
        });
        settled.map_err(|what| format!("opening, with the power failing after {delay:?}: {what}"))?;
        self.tally.crashes_opening += 1;
        self.crash(CrashModel::chosen(kelvin_storage::crash::FileSystem::ReorderAll));
        Ok(())
    }

    fn crash(&mut self, model: CrashModel) {
        self.tally.crashes += 1;
        self.disks = self.disks.left(model, self.case.seed.wrapping_add(self.tally.crashes));
    }

    fn settle(&mut self, db: &Db, kept: Kept) -> Result<(), String> {
        self.settle_raw(db, kept).map_err(|stop| {
            format!(
                "[{}] opened again, {kept:?} to be there: {}",
                self.machine.configuration.name,
                stop.told()
            )
        })
    }

    /// Finds out what `db` holds of the clients' writes: of all of them together a prefix.
    fn settle_raw(&mut self, db: &Db, kept: Kept) -> Result<(), Stop> {
        let clock = &*self.machine.clock;
        let shown: Vec<Shown> =
            self.clients.iter_mut().map(|client| client.settle(db, clock, kept)).collect::<Result<_, _>>()?;
        for (one, Shown { lost, .. }) in shown.iter().enumerate() {
            for (other, Shown { begun, .. }) in shown.iter().enumerate() {
                if let (Some(lost), Some(begun)) = (lost, begun)
                    && begun > lost
                {
                    return Err(Stop::Wrong(format!(
                        "no prefix: a write of client {one}, acknowledged at {lost:?}, is lost, one of client {other}, begun at {begun:?}, is there"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Lets the clients work on the store until they are done (`None`) or the life ends.
    fn live(&mut self, opened: Opened) -> Result<Option<Before>, String> {
        let disks = self.disks.clone();
        let life = Life::new(opened, &self.machine, &disks, self.clients.len(), self.tally.trace);
        let (case, turn) = (self.case, &mut self.turn);
        let mut next_turn = || loop {
            let number = *turn;
            *turn += 1;
            let taken = Turn::of(case.seed, number);
            if case.turns.as_ref().is_none_or(|turns| turns.contains(&number)) {
                return taken;
            }
            if case.turns.as_ref().is_some_and(|turns| turns.last().is_none_or(|last| number > *last)) {
                // Fair from here on.
                return Turn { faults: Vec::new(), ending: None, ..taken };
            }
        };
        let ended = sync::scope(|scope| {
            let workers: Vec<_> = self
                .clients
                .iter_mut()
                .map(|client| {
                    let life = &life;
                    scope.spawn(move || {
                        let ran = client.run(life, case.steps);
                        if ran.is_err() {
                            life.end();
                        }
                        ran
                    })
                })
                .collect();
            let ended = life.weather(&mut next_turn);
            if ended.is_err() {
                self.world.give_up();
            }
            // All of them, whatever one says: a simulated thread may not wait for the others in any other way.
            let joined: Vec<_> = workers.into_iter().map(sync::ScopedJoinHandle::join).collect();
            joined
                .into_iter()
                .try_for_each(|worker| worker.unwrap_or_else(|_| Err("a client panicked".to_owned())))?;
            ended
        })?;
        self.tally.trace = life.trace();
        self.tally.moved.add(Moved::of(&life.db.stats().boundary));
        let wants_reopening = life.wants_reopening();
        let Life { db, .. } = life;
        match ended {
            Some(Turn { ending: Some(Ending::Kill), again, faults, .. }) => {
                self.die(db, CrashModel::KEPT);
                Ok(Some(Before { kept: Kept::Os, faults, again }))
            }
            Some(Turn { ending: Some(Ending::Power(model)), again, faults, .. }) => {
                self.die(db, model);
                Ok(Some(Before { kept: Kept::Synced, faults, again }))
            }
            Some(Turn { faults, .. }) => Ok(Some(self.close(db, faults))),
            None if wants_reopening => Ok(Some(self.close(db, Vec::new()))),
            None => self.finish(db).map(|()| None),
        }
    }

    /// What the dead process's threads still do reaches no disk.
    fn die(&mut self, db: Db, model: CrashModel) {
        let dead = self.disks.clone();
        self.crash(model);
        // It cannot end well.
        let _told = db.close();
        drop(dead);
    }

    fn close(&mut self, db: Db, faults: Vec<Fault>) -> Before {
        // What it had in memory is lost if it cannot be written.
        let kept = if db.close().is_ok() { Kept::All } else { Kept::Os };
        self.disks.clear();
        Before { kept, faults, again: Vec::new() }
    }

    /// With all clients done and the disks well: everything is in order, also once reopened.
    fn finish(&mut self, db: Db) -> Result<(), String> {
        self.disks.clear();
        self.machine.clock.sleep(GRACE);
        let mut db = db;
        let mut kept = Kept::All;
        for is_last in [false, true] {
            let told = |what: String| format!("at the end, reopened {is_last}: {what}");
            if is_last {
                let opened = self.open_store();
                db = opened.map_err(|error| told(error.to_string()))?;
                self.settle(&db, kept).map_err(told)?;
            }
            match db.wait_idle() {
                Ok(()) => {
                    audit(&db).map_err(told)?;
                    let tables = self.disks.tables(Self::dirs()).map_err(told)?;
                    tables_are_named(&db, &tables).map_err(told)?;
                    is_sound(&db).map_err(told)?;
                }
                Err(error) if error.kind() == kelvin::ErrorKind::ReadOnly && !is_last => {}
                Err(error) => return Err(told(error.to_string())),
            }
            let closed = db.clone().close();
            if closed.is_err() {
                kept = Kept::Os;
            }
            if is_last {
                closed.map_err(|error| told(format!("closing: {error}")))?;
            }
        }
        Ok(())
    }
}
