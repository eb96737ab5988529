//! A rate limit as one number: the time from which the next request may start.
//!
//! Each request moves that time on by what it costs, so requests queue in the order they came and the sum over any
//! number of threads keeps the rate. A device that idled may be at most [`BURST`] late, which also makes up for
//! sleeps that last too long.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How much idle time is kept for later requests.
pub(super) const BURST: Duration = Duration::from_millis(5);

const SECOND: u128 = 1_000_000_000;

#[derive(Debug)]
pub(super) struct Bucket {
    per_second: u64,
    next_free_nanos: AtomicU64,
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Bucket {
    /// A limit of `per_second` units (at least 1).
    pub(super) fn new(per_second: u64) -> Self {
        Self { per_second: per_second.max(1), next_free_nanos: AtomicU64::new(0) }
    }

    /// Takes `amount` units at time `now`; how long the taker waits until they are done.
    pub(super) fn take(&self, now: Duration, amount: u64) -> Duration {
        let now = nanos(now);
        let cost = u128::from(amount) * SECOND / u128::from(self.per_second);
        let cost = u64::try_from(cost).unwrap_or(u64::MAX);
        let earliest = now.saturating_sub(nanos(BURST));
        let after = |next: u64| next.max(earliest).saturating_add(cost);
        let before = self
            .next_free_nanos
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| Some(after(next)))
            .unwrap_or_else(|next| next);
        Duration::from_nanos(after(before).saturating_sub(now))
    }
}
