//! Processors of a [`World`]: computing takes time there, and waits where all of them are busy.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::World;

/// A number of processors, served in the order of the calls.
#[derive(Debug)]
pub struct Cores {
    world: Arc<World>,
    busy: Mutex<Busy>,
}

#[derive(Debug)]
struct Busy {
    /// Until when each has something to do.
    until: Vec<Duration>,
    spent: Duration,
}

impl Cores {
    /// `count` processors (at least one) of `world`.
    #[must_use]
    pub fn new(world: Arc<World>, count: usize) -> Self {
        let busy = Busy { until: vec![Duration::ZERO; count.max(1)], spent: Duration::ZERO };
        Self { world, busy: Mutex::new(busy) }
    }

    /// Computes for `time` on the first processor that is free; returns when that is done.
    pub fn compute(&self, time: Duration) {
        let now = self.world.now();
        let end = {
            let mut busy = self.busy.lock();
            busy.spent += time;
            let first = busy.until.iter_mut().min();
            first.map_or(now, |until| {
                *until = now.max(*until) + time;
                *until
            })
        };
        self.world.sleep(end.saturating_sub(now));
    }

    /// Time computed so far, by all of them.
    #[must_use]
    pub fn spent(&self) -> Duration {
        self.busy.lock().spent
    }
}
