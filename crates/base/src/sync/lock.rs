//! A mutex and a condition variable whose waits a simulation sees.

use std::time::Duration;

use parking_lot::MutexGuard;

use super::turns;

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
        match self.0.try_lock() {
            Some(guard) => guard,
            None => self.lock_busy(),
        }
    }

    #[cold]
    fn lock_busy(&self) -> MutexGuard<'_, T> {
        let Some(turns) = turns() else { return self.0.lock() };
        loop {
            if let Some(guard) = self.0.try_lock() {
                return guard;
            }
            turns.give_way();
        }
    }

    /// The lock, if nobody has it.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
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
                turns.give_way();
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
