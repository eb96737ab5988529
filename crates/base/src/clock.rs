//! Injected time. The only place, with `executor`, that may ask the operating system for it.

use std::fmt::Debug;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::sync::Mutex;

use crate::signal::Signal;

/// A source of time.
pub trait Clock: Send + Sync + Debug {
    /// Time since an arbitrary start; never goes back.
    fn now(&self) -> Duration;
    /// Wall time, milliseconds since 1970-01-01 UTC (for expiry).
    fn unix_millis(&self) -> u64;
    /// Lets `duration` pass.
    fn sleep(&self, duration: Duration);
    /// How long a thread that waits for `signal` until `at` has to wait at most; `None` if only others let time pass, who
    /// then raise it. See [`Signal::wait_until`].
    fn wait_at_most(&self, at: Duration, signal: &Arc<Signal>) -> Option<Duration>;
}

/// The operating system's clock.
#[derive(Debug)]
pub struct SystemClock {
    start: std::time::Instant,
}

impl SystemClock {
    /// A clock whose `now` starts at zero.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is where the clock is injected")]
    pub fn new() -> Self {
        Self { start: std::time::Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "this is where the clock is injected")]
    fn unix_millis(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    #[expect(clippy::disallowed_methods, reason = "this is where the clock is injected")]
    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }

    fn wait_at_most(&self, at: Duration, _: &Arc<Signal>) -> Option<Duration> {
        Some(at.saturating_sub(self.now()))
    }
}

/// A clock that moves only when told. Somebody who sleeps on it moves `now`, which nobody has to wait for, but not the wall
/// time: what has expired depends on what the clock was told, never on who had to wait meanwhile.
#[derive(Debug)]
pub struct ManualClock {
    passed: Mutex<Passed>,
    unix_millis_start: u64,
    waiting: Mutex<Vec<Weak<Signal>>>,
}

/// The time of a [`ManualClock`] since its start.
#[derive(Clone, Copy, Debug, Default)]
struct Passed {
    told: Duration,
    slept: Duration,
}

impl ManualClock {
    /// A clock at zero whose wall time is `unix_millis_start`.
    #[must_use]
    pub fn new(unix_millis_start: u64) -> Self {
        Self { passed: Mutex::default(), unix_millis_start, waiting: Mutex::default() }
    }

    /// Moves time on by `duration`.
    pub fn advance(&self, duration: Duration) {
        self.passed.lock().told += duration;
        self.wake();
    }

    /// Whoever waits for a moment looks whether it has come.
    fn wake(&self) {
        self.waiting.lock().retain(|signal| signal.upgrade().inspect(|signal| signal.raise()).is_some());
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        let Passed { told, slept } = *self.passed.lock();
        told + slept
    }

    fn unix_millis(&self) -> u64 {
        let told = self.passed.lock().told;
        self.unix_millis_start + u64::try_from(told.as_millis()).unwrap_or(u64::MAX)
    }

    fn sleep(&self, duration: Duration) {
        self.passed.lock().slept += duration;
        self.wake();
    }

    fn wait_at_most(&self, _: Duration, signal: &Arc<Signal>) -> Option<Duration> {
        let signal = Arc::downgrade(signal);
        let mut waiting = self.waiting.lock();
        if !waiting.iter().any(|known| known.ptr_eq(&signal)) {
            waiting.push(signal);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = ManualClock::new(1_000);
        assert_eq!(clock.unix_millis(), 1_000);
        clock.sleep(Duration::from_millis(5));
        clock.advance(Duration::from_millis(7));
        assert_eq!(
            (clock.now(), clock.unix_millis()),
            (Duration::from_millis(12), 1_007),
            "a sleep is no wall time"
        );
    }
}
