//! A life of the process in a simulation: an open store, its clients, and what is known of the weather.
//!
//! Tests: those of the simulation.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kelvin::{Db, Error, ErrorKind};
use kelvin_base::Clock;
use kelvin_base::hash::hash64_seeded;
use kelvin_base::sync::{Condvar, Mutex};
use kelvin_storage::Storage;

use super::Machine;
use super::disks::Disks;
use super::weather::{Ending, Turn};

/// So long after the end of a fault the store may still refuse what it refused for it: what is slow is asked again after a while.
pub const GRACE: Duration = Duration::from_secs(60);
/// An operation that takes longer is given good weather.
const PATIENCE: Duration = Duration::from_secs(30 * 60);

/// Why a step came to no answer.
#[derive(Debug)]
pub enum Stop {
    /// The store refused it.
    Refused(Error),
    /// A promise is broken.
    Wrong(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl Stop {
    /// Says where.
    #[must_use]
    pub fn within(self, place: &str) -> Self {
        match self {
            Self::Wrong(what) => Self::Wrong(format!("{place}: {what}")),
            Self::Refused(error) => Self::Refused(error),
        }
    }

    /// It, where nothing may be refused.
    #[must_use]
    pub fn told(self) -> String {
        match self {
            Self::Wrong(what) => what,
            Self::Refused(error) => format!("refused on disks that are well: {error}"),
        }
    }
}

#[derive(Debug, Default)]
struct Sky {
    /// When the last fault ended; `None` while there is one.
    fair_since: Option<Duration>,
    /// There were faults in this life.
    was_foul: bool,
    /// Reads lied in this life.
    has_lied: bool,
    is_ending: bool,
    is_cut: bool,
    /// The store takes no writes any more.
    wants_reopening: bool,
    /// What clients are at: since when.
    at_work: Vec<Option<Duration>>,
    clients_left: usize,
    trace: u64,
}

/// A store that was opened.
pub struct Opened {
    /// It.
    pub db: Db,
    /// When the disks were well again, if they were not while it was opened: what it did then may have failed.
    pub fair_since: Option<Duration>,
}

/// See the module.
pub struct Life<'a> {
    /// The store.
    pub db: Db,
    /// The time of the world.
    pub clock: Arc<dyn Clock>,
    machine: &'a Machine,
    disks: &'a Disks,
    sky: Mutex<Sky>,
    changed: Condvar,
}

impl<'a> Life<'a> {
    /// A store on `disks`, which are well; `trace` is what was seen so far.
    pub fn new(
        Opened { db, fair_since }: Opened,
        machine: &'a Machine,
        disks: &'a Disks,
        clients: usize,
        trace: u64,
    ) -> Self {
        let clock = Arc::clone(&machine.clock);
        let sky = Sky {
            was_foul: fair_since.is_some(),
            fair_since: Some(fair_since.unwrap_or_else(|| clock.now())),
            at_work: vec![None; clients],
            clients_left: clients,
            trace,
            ..Sky::default()
        };
        Self { db, clock, machine, disks, sky: Mutex::new(sky), changed: Condvar::new() }
    }

    /// A client begins something: when.
    pub fn begin(&self, client: usize) -> Duration {
        let now = self.clock.now();
        self.sky.lock().at_work[client] = Some(now);
        now
    }

    /// A client did `what` as step `step`.
    pub fn note(&self, client: usize, step: u64, what: &str) {
        let now = u64::try_from(self.clock.now().as_nanos()).unwrap_or(u64::MAX);
        let mut sky = self.sky.lock();
        sky.at_work[client] = None;
        for number in [client as u64, step, now] {
            sky.trace = hash64_seeded(sky.trace, &number.to_le_bytes());
        }
        sky.trace = hash64_seeded(sky.trace, what.as_bytes());
    }

    /// A hash of all that clients saw, and when.
    pub fn trace(&self) -> u64 {
        self.sky.lock().trace
    }

    /// A client is done.
    pub fn leave(&self, client: usize) {
        let mut sky = self.sky.lock();
        sky.at_work[client] = None;
        sky.clients_left -= 1;
        self.changed.notify_all();
    }

    /// Ends the life.
    pub fn end(&self) {
        self.sky.lock().is_ending = true;
        self.changed.notify_all();
    }

    /// Clients are to stop.
    pub fn is_ending(&self) -> bool {
        self.sky.lock().is_ending
    }

    /// What is acknowledged from now on is not in the image.
    pub fn is_cut(&self) -> bool {
        self.sky.lock().is_cut
    }

    /// The store takes no writes any more.
    pub fn wants_reopening(&self) -> bool {
        self.sky.lock().wants_reopening
    }

    /// Whether what began at `begun` may have been refused with `error`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn permits(&self, error: &Error, begun: Duration) -> Result<(), String> {
        let mut sky = self.sky.lock();
        let is_foul = sky.fair_since.is_none_or(|since| sky.was_foul && begun <= since + GRACE);
        let is_permitted = match error.kind() {
            ErrorKind::InvalidArgument => false,
            _ if sky.is_ending => true,
            ErrorKind::ReadOnly => {
                sky.wants_reopening = true;
                sky.is_ending = true;
                self.changed.notify_all();
                sky.was_foul
            }
            ErrorKind::Corruption => is_foul && sky.has_lied,
            _ => is_foul,
        };
        let since = sky.fair_since.map(|since| self.clock.now().saturating_sub(since));
        if is_permitted { Ok(()) } else { Err(format!("refused, disks well for {since:?}: {error}")) }
    }

    /// Waits for `duration`, or until the clients are done or stopped; true if they are.
    fn is_over_after(&self, duration: Duration) -> bool {
        let until = self.clock.now() + duration;
        let mut sky = self.sky.lock();
        loop {
            let now = self.clock.now();
            if sky.is_ending || sky.clients_left == 0 {
                return true;
            }
            if now >= until {
                return false;
            }
            self.changed.wait_for(&mut sky, until - now);
        }
    }

    /// How long the longest operation has been under way.
    fn longest(&self) -> Duration {
        let sky = self.sky.lock();
        let since = sky.at_work.iter().flatten().min().copied();
        since.map_or(Duration::ZERO, |since| self.clock.now().saturating_sub(since))
    }

    /// Lets the weather take its turns until the clients are done or the life ends; how it does, and the turn that ended it.
    ///
    /// # Errors
    /// An operation that does not end though the disks are well.
    pub fn weather(&self, mut turn: impl FnMut() -> Turn) -> Result<Option<Turn>, String> {
        loop {
            let turn = turn();
            if self.is_over_after(turn.pause) {
                return Ok(None);
            }
            while self.longest() > PATIENCE {
                if self.longest() > PATIENCE * 2 {
                    return Err(format!("an operation has been under way for {:?}", self.longest()));
                }
                if self.is_over_after(GRACE) {
                    return Ok(None);
                }
            }
            if !turn.faults.is_empty() {
                let mut sky = self.sky.lock();
                sky.fair_since = None;
                sky.was_foul = true;
                sky.has_lied |= turn.faults.iter().any(super::weather::Fault::is_lie);
            }
            turn.faults.iter().for_each(|fault| fault.begin(self.disks));
            let is_over = self.is_over_after(turn.lasts);
            match turn.ending {
                Some(Ending::Close) if !is_over => {
                    self.end();
                    return Ok(Some(turn));
                }
                Some(_) if !is_over => {
                    self.cut();
                    return Ok(Some(turn));
                }
                _ => {}
            }
            self.clear();
            if is_over {
                return Ok(None);
            }
        }
    }

    /// The disks are well again.
    pub fn clear(&self) {
        self.disks.clear();
        let mut sky = self.sky.lock();
        if sky.was_foul {
            sky.fair_since = Some(self.clock.now());
        }
    }

    fn cut(&self) {
        {
            // Before: what ends from here on may be in the image or not.
            let mut sky = self.sky.lock();
            sky.is_cut = true;
            sky.is_ending = true;
            sky.was_foul = true;
        }
        self.disks.cut();
        self.changed.notify_all();
    }

    /// Makes a checkpoint called `name` and opens it; its directories.
    ///
    /// # Errors
    /// The store's.
    pub fn checkpoint(&self, name: &str) -> kelvin::Result<(Db, [PathBuf; 2])> {
        let dirs = ["fast", "slow"].map(|tier| PathBuf::from(format!("/{name}-{tier}")));
        let made = self.db.checkpoint(&dirs[0], Some(&dirs[1]));
        let opened = made.and_then(|()| Db::open(self.machine.options(self.disks, &dirs)?));
        if opened.is_err() {
            self.remove(&dirs);
        }
        Ok((opened?, dirs))
    }

    /// Removes what is in `dirs`, as far as that can be done.
    pub fn remove(&self, dirs: &[PathBuf; 2]) {
        for (disk, dir) in self.disks.seen.iter().zip(dirs) {
            remove_all(&**disk, dir);
        }
    }
}

/// Removes the files in `dir` and in what is below, as far as that can be done.
fn remove_all(disk: &dyn Storage, dir: &Path) {
    for name in disk.list(dir).unwrap_or_default() {
        let path = dir.join(name);
        if disk.remove(&path).is_err() {
            remove_all(disk, &path);
        }
    }
}
