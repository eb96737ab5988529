//! An event count: wait until somebody says that something changed, without losing a wake-up.
//!
//! Waiters read a token, test their condition, then wait for the token to become old. With a single-threaded
//! [`crate::Executor`] the waiter runs the queued background work itself, so the same code runs in simulation.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

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

    /// Waits for a `raise`, at most `timeout`; true if one came.
    pub fn wait_timeout(&self, executor: &dyn Executor, timeout: Duration) -> bool {
        let token = *self.count.lock();
        if executor.help() {
            return true;
        }
        let mut count = self.count.lock();
        if *count == token {
            self.changed.wait_for(&mut count, timeout);
        }
        *count != token
    }
}
