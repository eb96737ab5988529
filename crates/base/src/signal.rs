//! An event count: wait until somebody says that something changed, without losing a wake-up.
//!
//! Waiters read a token, test their condition, then wait for the token to become old. With a single-threaded
//! [`crate::Executor`] the waiter runs the queued background work itself, so the same code runs in simulation.

use std::sync::Arc;
use std::time::Duration;

use crate::sync::{Condvar, Mutex};

use crate::clock::Clock;
use crate::executor::Executor;

/// Tells waiters that something changed.
#[derive(Debug, Default)]
pub struct Signal {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Signal {
    /// A signal nobody has raised yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes every waiter.
    pub fn raise(&self) {
        *self.count.lock() += 1;
        self.changed.notify_all();
    }

    /// Waits until `done` answers something, testing it at first and after each `raise`.
    ///
    /// `done` runs without any lock of the signal. Background work queued on a single-threaded executor is
    /// run by the waiter.
    pub fn wait_for<T>(&self, executor: &dyn Executor, mut done: impl FnMut() -> Option<T>) -> T {
        loop {
            let token = *self.count.lock();
            if let Some(answer) = done() {
                return answer;
            }
            if executor.help() {
                continue;
            }
            let mut count = self.count.lock();
            while *count == token {
                self.changed.wait(&mut count);
            }
        }
    }

    /// Waits until `done` answers something, testing it at first and after each `raise`, or until `at` on `clock`: `None`
    /// then.
    pub fn wait_until<T>(
        self: &Arc<Self>,
        clock: &dyn Clock,
        at: Duration,
        mut done: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        loop {
            let token = *self.count.lock();
            // Before the time is looked at: who lets it pass from here on raises the signal.
            let limit = clock.wait_at_most(at, self);
            if let Some(answer) = done() {
                return Some(answer);
            }
            if clock.now() >= at {
                return None;
            }
            let mut count = self.count.lock();
            if *count == token {
                match limit {
                    Some(limit) => self.changed.wait_for(&mut count, limit),
                    None => self.changed.wait(&mut count),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{ManualClock, SystemClock};

    #[test]
    fn a_wait_ends_by_its_answer_or_when_its_clock_is_moved_on() {
        let signal = Arc::new(Signal::new());
        let clock = Arc::new(ManualClock::new(0));
        let at = Duration::from_secs(10);
        assert_eq!(signal.wait_until(&*clock, at, || Some(1)), Some(1));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| signal.wait_until(&*clock, at, || None::<()>));
            for _ in 0..10 {
                assert!(!waiter.is_finished(), "not before its time");
                clock.advance(Duration::from_secs(1));
            }
            assert_eq!(waiter.join().unwrap(), None);
        });
        let system = SystemClock::new();
        assert_eq!(signal.wait_until(&system, system.now() + Duration::from_millis(1), || None::<()>), None);
    }
}
