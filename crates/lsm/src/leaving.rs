//! Tables on their way out: who still reads them, whose removal is queued, which could not be removed.
//!
//! A table's file is removed when the last version, iterator and lookup let go of it, and never before the manifest edit that drops it
//! is durable (RELIABILITY M2). What a device does not remove is asked of it again until it does, so an outage costs no room for longer than it lasts;
//! what is left when the store is closed is an orphan, which the next opening removes. So it is with a file that is not there, while a disk that did
//! not answer in time may make it yet.
//!
//! Invariant: nothing is removed after [`Leaving::close`] was followed by [`Leaving::are_removed`] saying no: the numbers may be another's by then.
//! Tests: `tests/trust/slow_away.rs`, and those of who waits for room.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kelvin_base::sync::Mutex;
use kelvin_base::{Clock, Error, ErrorKind, Executor, Lane, Result, Signal, Tier, seeded_bug};

use crate::files::table_name;
use crate::options::Env;
use crate::space::{Space, on_disk_bytes};
use crate::tiers::TierHandle;
use crate::version::TableMeta;

/// A table that is in no version any more goes within so long unless an iterator holds it, or a backup: what reads single records does not
/// take longer.
const READ_MAX: Duration = Duration::from_secs(1);
/// What could not be removed is tried again after so long, then after twice as long each time.
const RETRY_FIRST: Duration = Duration::from_millis(100);
/// But at least so often.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// A table that is in no version any more and that somebody still reads.
#[derive(Clone, Copy, Debug)]
struct Held {
    tier: Tier,
    bytes: u64,
    since: Duration,
}

#[derive(Debug, Default)]
struct State {
    /// By number.
    held: BTreeMap<u64, Held>,
    /// Files whose removal is queued or under way.
    removals: usize,
    /// Removals that have ended.
    removed: u64,
    /// Somebody is to be told when none is queued any more.
    tells: bool,
    /// A timer will raise the signal.
    wakes: bool,
    /// What could not be removed.
    stuck: Vec<(TierHandle, u64)>,
    /// After how long it is tried again; `None` if that is not planned.
    retry: Option<Duration>,
    is_closed: bool,
}

impl State {
    /// When the last of the reads that hold tables has let go of them; `None` if none does.
    fn read_until(&self, now: Duration) -> Option<Duration> {
        let until = self.held.values().map(|held| held.since + READ_MAX).filter(|until| *until > now).max();
        until.filter(|_| !seeded_bug!("room-that-reads-hold-is-not-awaited"))
    }
}

/// Whom to tell when files are gone.
struct Removed(OnceLock<Box<dyn Fn() + Send + Sync>>);

impl std::fmt::Debug for Removed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Removed").finish_non_exhaustive()
    }
}

/// See the module.
#[derive(Debug)]
pub struct Leaving {
    state: Mutex<State>,
    told: Removed,
    space: Space,
    executor: Arc<dyn Executor>,
    clock: Arc<dyn Clock>,
    /// Raised when a file was removed.
    signal: Arc<Signal>,
}

impl Leaving {
    /// Of a store whose books are `space`; `signal` is raised when something has gone.
    #[must_use]
    pub fn new(space: Space, env: &Env, signal: Arc<Signal>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            told: Removed(OnceLock::new()),
            space,
            executor: Arc::clone(&env.executor),
            clock: Arc::clone(&env.clock),
            signal,
        })
    }

    /// Whom [`Self::tell_when_removed`] asks to tell. To be called once.
    pub fn on_removed(&self, tell: Box<dyn Fn() + Send + Sync>) {
        let _once = self.told.0.set(tell);
    }

    /// How many removals have ended.
    #[must_use]
    pub fn removed(&self) -> u64 {
        self.state.lock().removed
    }

    /// For who found no room while files were on their way out, `removed` of which had gone before: true if others have gone since, and
    /// it is to look again; else it will be told when those that are still queued have.
    #[must_use]
    pub fn tell_when_removed(&self, removed: u64) -> bool {
        let mut state = self.state.lock();
        state.tells |= state.removals > 0;
        state.removed != removed
    }

    /// True while the removal of a file is queued or under way.
    #[must_use]
    pub fn are_removed(&self) -> bool {
        self.state.lock().removals > 0
    }

    /// True if tables are about to go that take room still: their removal is queued, or a read has not let go of them.
    #[must_use]
    pub fn free_soon(&self) -> bool {
        let state = self.state.lock();
        state.removals > 0 || state.read_until(self.clock.now()).is_some()
    }

    /// The same for who waits on the signal, which is raised when it has changed.
    #[must_use]
    pub fn free_soon_and_tell(self: &Arc<Self>) -> bool {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let read_until = state.read_until(now);
        if let Some(until) = read_until.filter(|_| !std::mem::replace(&mut state.wakes, true)) {
            let leaving = Arc::clone(self);
            self.executor.spawn_after(
                until - now,
                Lane::Housekeeping,
                Box::new(move || {
                    leaving.state.lock().wakes = false;
                    leaving.signal.raise();
                }),
            );
        }
        state.removals > 0 || read_until.is_some()
    }

    /// Bytes of `tier` that tables take which are in no version any more, and which somebody still reads.
    #[must_use]
    pub fn held_bytes(&self, tier: Tier) -> u64 {
        self.state.lock().held.values().filter(|held| held.tier == tier).map(|held| held.bytes).sum()
    }

    /// A table is in no version any more, and somebody still reads it.
    pub fn left(&self, meta: &TableMeta) {
        let (bytes, since) = (on_disk_bytes(meta.size_bytes), self.clock.now());
        self.state.lock().held.insert(meta.number, Held { tier: meta.tier, bytes, since });
    }

    /// Removes the file of table `number`.
    pub fn remove(self: &Arc<Self>, handle: &TierHandle, number: u64) {
        if self.try_remove(handle, number).is_err() {
            self.keep_stuck(vec![(handle.clone(), number)]);
        }
        self.signal.raise();
    }

    /// Nobody reads table `number` any more: removes its file, where that is known to be on `handle`, in the background.
    pub fn remove_later(self: &Arc<Self>, handle: Option<&TierHandle>, number: u64) {
        let mut state = self.state.lock();
        state.held.remove(&number);
        let Some(handle) = handle.cloned() else { return };
        state.removals += 1;
        drop(state);
        let leaving = Arc::clone(self);
        self.executor
            .spawn(Lane::Housekeeping, Box::new(move || leaving.remove_all(vec![(handle, number)], 1)));
    }

    /// Removes `files`, which count as `removals`, and tells who waits. Of those on a tier that is away only the first is tried.
    fn remove_all(self: &Arc<Self>, mut files: Vec<(TierHandle, u64)>, removals: usize) {
        let mut away = None;
        files.retain(|(handle, number)| {
            let tier = Some(handle.tier());
            if away == tier {
                return true;
            }
            let Err(error) = self.try_remove(handle, *number) else { return false };
            if error.kind() == ErrorKind::TierUnavailable {
                away = tier;
            }
            true
        });
        self.keep_stuck(files);
        let mut state = self.state.lock();
        state.removals -= removals;
        state.removed += removals as u64;
        let tells = state.removals == 0 && std::mem::take(&mut state.tells);
        drop(state);
        if let Some(told) = self.told.0.get().filter(|_| tells) {
            told();
        }
        self.signal.raise();
    }

    fn try_remove(&self, handle: &TierHandle, number: u64) -> Result<()> {
        let name = table_name(number);
        // Asked before: what ends meanwhile has made its file by then.
        let may_come = handle.has_unanswered() && !seeded_bug!("late-file-stays");
        if !handle.remove_if_there(&name)? && may_come {
            return Err(Error::new(ErrorKind::Busy, "the disk may make the file yet"));
        }
        self.space.file_removed(handle.tier(), &name);
        Ok(())
    }

    /// Will try to remove `files` again.
    fn keep_stuck(self: &Arc<Self>, files: Vec<(TierHandle, u64)>) {
        if files.is_empty() || seeded_bug!("removal-is-not-tried-again") {
            return;
        }
        let mut state = self.state.lock();
        state.stuck.extend(files);
        if state.retry.is_none() {
            state.retry = Some(RETRY_FIRST);
            drop(state);
            self.retry_after(RETRY_FIRST);
        }
    }

    fn retry_after(self: &Arc<Self>, delay: Duration) {
        let leaving = Arc::downgrade(self);
        self.executor.spawn_after(
            delay,
            Lane::Housekeeping,
            Box::new(move || {
                if let Some(leaving) = leaving.upgrade() {
                    leaving.retry(delay);
                }
            }),
        );
    }

    /// Tries to remove what could not be removed `waited` ago.
    fn retry(self: &Arc<Self>, waited: Duration) {
        let mut state = self.state.lock();
        if state.is_closed {
            return;
        }
        let files = std::mem::take(&mut state.stuck);
        state.removals += files.len();
        drop(state);
        let removals = files.len();
        self.remove_all(files, removals);
        let mut state = self.state.lock();
        state.retry = (!state.stuck.is_empty()).then(|| (waited * 2).min(RETRY_MAX));
        let retry = state.retry;
        drop(state);
        if let Some(delay) = retry {
            self.retry_after(delay);
        }
    }

    /// What is stuck stays.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
    }
}
