//! Whether a tier answers: noted by every operation, read by whoever decides what to try.
//!
//! Nothing is refused here: an operation on a tier that is away is tried and its outcome noted, so recovery needs no
//! restart (promise 7).
//!
//! Tests: `tests.rs` beside.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kelvin_base::events::What;
use kelvin_base::sync::Mutex;
use kelvin_base::{Clock, Error, Events, Tier};

/// The state of one tier.
#[derive(Debug, Default)]
pub struct Health {
    away: AtomicBool,
    outages: AtomicU64,
    errors: AtomicU64,
    last: Mutex<Last>,
    events: OnceLock<(Tier, Events)>,
}

#[derive(Debug, Default)]
struct Last {
    away_since: Option<(Duration, u64)>,
    error: Option<Error>,
}

/// What [`Health`] knew at one moment.
#[derive(Clone, Debug, Default)]
pub struct HealthReport {
    /// The last operation that depended on the device was answered.
    pub available: bool,
    /// Wall time at which the running outage was noticed, milliseconds since 1970.
    pub away_since_unix_ms: Option<u64>,
    /// How long the running outage has lasted.
    pub away_for: Option<Duration>,
    /// Outages since the store was opened, the running one included.
    pub outages: u64,
    /// Operations that failed since the store was opened, files that are not there excluded.
    pub errors: u64,
    /// The last of those errors.
    pub last_error: Option<Error>,
}

impl Health {
    /// True unless the last operation showed that the device is away.
    #[must_use]
    pub fn available(&self) -> bool {
        !self.away.load(Ordering::Acquire)
    }

    /// Everything known.
    #[must_use]
    pub fn report(&self, clock: &dyn Clock) -> HealthReport {
        let last = self.last.lock();
        HealthReport {
            available: last.away_since.is_none(),
            away_since_unix_ms: last.away_since.map(|(_, unix_ms)| unix_ms),
            away_for: last.away_since.map(|(since, _)| clock.now().saturating_sub(since)),
            outages: self.outages.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            last_error: last.error.clone(),
        }
    }

    /// Outages of `tier`, which this is the health of, are told to `events` from now on.
    pub fn tell(&self, tier: Tier, events: &Events) {
        let _told_already = self.events.set((tier, events.clone()));
    }

    /// Notes that the device answered. Nearly free while it always does.
    pub(super) fn answered(&self, clock: &dyn Clock) {
        if self.away.load(Ordering::Relaxed) {
            let mut last = self.last.lock();
            let since = last.away_since.take();
            self.away.store(false, Ordering::Release);
            if let (Some((since, _)), Some((tier, events))) = (since, self.events.get()) {
                let away = clock.now().saturating_sub(since);
                let away_ms = u64::try_from(away.as_millis()).unwrap_or(u64::MAX);
                events.post(|| What::TierBack { tier: *tier, away_ms });
            }
        }
    }

    /// Notes a failure; `away` if it shows that the device does not answer.
    pub(super) fn failed(&self, error: &Error, away: bool, clock: &dyn Clock) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        let mut last = self.last.lock();
        last.error = Some(error.clone());
        if away && last.away_since.is_none() {
            last.away_since = Some((clock.now(), clock.unix_millis()));
            self.outages.fetch_add(1, Ordering::Relaxed);
            self.away.store(true, Ordering::Release);
            if let Some((tier, events)) = self.events.get() {
                events.post(|| What::TierAway { tier: *tier, error: error.to_string() });
            }
        }
    }
}
