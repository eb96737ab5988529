//! Threads, locks and waits that a simulation can take into its own hands (DESIGN section 2, point 5).
//!
//! On an ordinary thread these are the operating system's, at no cost beside it. A thread of a simulation has [`Turns`]:
//! of all such threads one runs at a time, and where it would wait it hands its turn on. All of them may share one thread of the operating
//! system's, so what the shipped code keeps for each thread is a [`Local`], or is left as it was found before the turn can go on. So the shipped code runs with all its threads,
//! the same way each time, and time passes only when all of them wait.
//!
//! Invariant: a thread of a simulation never waits for the operating system while it has the turn. A [`Condvar`] that threads of a
//! simulation wait for must be notified by one of them, and a [`Mutex`] that they take is taken by no other thread: what the whole process shares, and
//! nobody holds while he waits, has an ordinary one (`pages`). Tests: in `thread.rs`, and those of the simulator's world.
//!
//! In a build with `--cfg loom` they are loom's, so that the model tests of small parts run the shipped code (`modelled.rs`).

#[cfg(not(loom))]
mod lock;
#[cfg(loom)]
mod modelled;
mod own;
#[cfg(not(loom))]
mod published;
mod thread;

use std::cell::RefCell;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[cfg(not(loom))]
pub use lock::{Condvar, Mutex, RwLock};
#[cfg(loom)]
pub use modelled::{Condvar, Loaded, Mutex, MutexGuard, Published, RwLock, atomic, model};
pub use own::{Local, Own, current_number};
#[cfg(not(loom))]
pub use parking_lot::MutexGuard;
#[cfg(not(loom))]
pub use published::{Loaded, Published};
#[cfg(not(loom))]
pub use std::sync::atomic;
pub use thread::{JoinHandle, Scope, ScopedJoinHandle, scope, spawn};

/// What a thread of a simulation does; it does not panic.
pub type Work = Box<dyn FnOnce() + Send>;

/// Who decides which of a simulation's threads runs. All is called by the thread that has the turn.
pub trait Turns: Send + Sync + Debug {
    /// There is a thread more, which does `work` from its first turn on; its number. Numbers follow from the order of the calls.
    fn start(self: Arc<Self>, work: Work) -> u64;
    /// Waits until woken at `place`, or until `at_most` has passed.
    fn wait(&self, place: usize, at_most: Option<Duration>);
    /// Wakes those who wait at `place`: the first, or all.
    fn wake(&self, place: usize, all: bool);
    /// Somebody holds what the caller needs: returns after others have run. `has_acted` if the caller did something since it got its turn:
    /// others may have waited for that.
    fn give_way(&self, has_acted: bool);
    /// Another thread could as well go on from here: it is for the simulation to say whether one does.
    fn point(&self) {}
}

/// Some thread of this process has been one of a simulation.
static IS_SIMULATING: AtomicBool = AtomicBool::new(false);

/// A place where the order of threads may matter: before a lock is taken, before what others change without one is
/// looked at. On an ordinary thread one load.
#[inline]
pub fn point() {
    if IS_SIMULATING.load(Ordering::Relaxed) {
        point_simulated();
    }
}

#[cold]
fn point_simulated() {
    if let Some(turns) = turns() {
        turns.point();
    }
}

thread_local! {
    static TURNS: RefCell<Option<Arc<dyn Turns>>> = const { RefCell::new(None) };
}

/// The turns of the calling thread, if it belongs to a simulation.
fn turns() -> Option<Arc<dyn Turns>> {
    // Of a thread that is being torn down there is nothing left.
    TURNS.try_with(|turns| turns.borrow().clone()).ok().flatten()
}

/// Runs `work` on the calling thread as the first one of `turns`, number 0.
pub fn take_part<T>(turns: Arc<dyn Turns>, work: impl FnOnce() -> T) -> T {
    /// Also where `work` panics: the thread is what it was.
    struct Leaves(Own);
    impl Drop for Leaves {
        fn drop(&mut self) {
            TURNS.with(|turns| *turns.borrow_mut() = None);
            let _simulated = self.0.swap();
        }
    }
    IS_SIMULATING.store(true, Ordering::Relaxed);
    TURNS.with(|mine| *mine.borrow_mut() = Some(turns));
    let _leaves = Leaves(Own::of(0).swap());
    work()
}
