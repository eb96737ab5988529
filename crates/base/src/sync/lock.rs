//! Locks and a condition variable whose waits a simulation sees.

use std::time::Duration;

use parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

use super::{point, turns};

/// What `attempt` answers, once it does; a simulated thread hands its turn on meanwhile, any other takes `waiting`.
#[cold]
fn wait_busy<G>(attempt: impl Fn() -> Option<G>, waiting: impl FnOnce() -> G) -> G {
    let Some(turns) = turns() else { return waiting() };
    let mut has_acted = true;
    loop {
        if let Some(guard) = attempt() {
            return guard;
        }
        turns.give_way(has_acted);
        has_acted = false;
    }
}

/// A mutex. Unlike the operating system's it may be held by a simulated thread that waits.
#[derive(Debug, Default)]
pub struct Mutex<T>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    /// A mutex around `value`.
    pub const fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        point();
        self.0.try_lock().unwrap_or_else(|| wait_busy(|| self.0.try_lock(), || self.0.lock()))
    }

    /// The lock, if nobody has it.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        point();
        self.0.try_lock()
    }

    /// The value; nobody else can hold the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

/// A lock that many may share to read, or one have to write. As [`Mutex`] it may be held by a simulated thread that waits.
#[derive(Debug, Default)]
pub struct RwLock<T>(parking_lot::RwLock<T>);

impl<T> RwLock<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(parking_lot::RwLock::new(value))
    }

    /// Waits until nobody writes.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        point();
        self.0.try_read().unwrap_or_else(|| wait_busy(|| self.0.try_read(), || self.0.read()))
    }

    /// Waits until nobody reads or writes.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        point();
        self.0.try_write().unwrap_or_else(|| wait_busy(|| self.0.try_write(), || self.0.write()))
    }

    /// The lock to read, if nobody writes.
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        point();
        self.0.try_read()
    }

    /// The lock to write, if nobody has it.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        point();
        self.0.try_write()
    }
}

/// A condition variable for [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// One that nobody waits for.
    #[must_use]
    pub const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    /// Where a simulation knows it by.
    fn place(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Lets the lock go, waits to be notified, and takes it again. May return without having been notified.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        if !self.wait_turn(guard, None) {
            self.0.wait(guard);
        }
    }

    /// As [`Condvar::wait`], at most so long.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, at_most: Duration) {
        if !self.wait_turn(guard, Some(at_most)) {
            // Who waits looks at the time anyway.
            let _is_over = self.0.wait_for(guard, at_most);
        }
    }

    /// Waits as a simulated thread does; false if the caller is none.
    fn wait_turn<T>(&self, guard: &mut MutexGuard<'_, T>, at_most: Option<Duration>) -> bool {
        let Some(turns) = turns() else { return false };
        let mutex = MutexGuard::mutex(guard);
        MutexGuard::unlocked(guard, || {
            turns.wait(self.place(), at_most);
            // Nobody else runs from here until the lock is taken again.
            while mutex.is_locked() {
                turns.give_way(false);
            }
        });
        true
    }

    /// Wakes one of those who wait.
    pub fn notify_one(&self) {
        if let Some(turns) = turns() {
            turns.wake(self.place(), false);
        } else {
            self.0.notify_one();
        }
    }

    /// Wakes all who wait.
    pub fn notify_all(&self) {
        if let Some(turns) = turns() {
            turns.wake(self.place(), true);
        } else {
            self.0.notify_all();
        }
    }
}
