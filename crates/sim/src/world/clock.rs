//! The time of a [`World`], as the store asks for it.

use std::sync::Arc;
use std::time::Duration;

use kelvin_base::{Clock, Signal};

use super::World;

/// The clock of a world. Only the world's threads may sleep on it.
#[derive(Clone, Debug)]
pub struct WorldClock {
    world: Arc<World>,
    unix_millis_start: u64,
}

impl WorldClock {
    /// The clock of `world`, whose wall time is `unix_millis_start` at its start.
    #[must_use]
    pub const fn new(world: Arc<World>, unix_millis_start: u64) -> Self {
        Self { world, unix_millis_start }
    }
}

impl Clock for WorldClock {
    fn now(&self) -> Duration {
        self.world.now()
    }

    fn unix_millis(&self) -> u64 {
        self.unix_millis_start + u64::try_from(self.now().as_millis()).unwrap_or(u64::MAX)
    }

    fn sleep(&self, duration: Duration) {
        self.world.sleep(duration);
    }

    fn wait_at_most(&self, at: Duration, _: &Arc<Signal>) -> Option<Duration> {
        Some(at.saturating_sub(self.now()))
    }
}
