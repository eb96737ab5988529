//! Background work in simulation: stepped by hand, and time that passes when nothing else can happen.
//!
//! A caller that waits runs the queued jobs itself. If there are none, every delay is over at once: with nothing else to
//! do, nothing but time can pass. If there is no delayed job either the wait would never end, which is a defect
//! of the store: the run panics with the waiter's stack instead of hanging. Tests: the crash and fault tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kelvin_base::{Executor, Job, Lane, ManualExecutor};

/// Retries in a row, with nothing else done, after which a wait counts as endless.
const RETRIES_MAX: u32 = 1000;

/// A [`ManualExecutor`] whose waiters cannot hang.
#[derive(Debug, Default)]
pub struct SimExecutor {
    jobs: Arc<ManualExecutor>,
    retries: AtomicU32,
}

impl SimExecutor {
    /// The jobs, to step by hand.
    #[must_use]
    pub fn jobs(&self) -> &ManualExecutor {
        &self.jobs
    }

    /// Runs everything queued; delayed jobs stay.
    pub fn run_all(&self) {
        self.jobs.run_all();
    }

    /// Runs everything queued and everything delayed, a few times over.
    pub fn settle(&self) {
        for _ in 0..8 {
            self.jobs.run_all();
            if self.jobs.fire_delayed() == 0 {
                return;
            }
        }
        self.jobs.run_all();
    }
}

impl Executor for SimExecutor {
    fn spawn(&self, lane: Lane, job: Job) {
        self.jobs.spawn(lane, job);
    }

    fn spawn_after(&self, delay: Duration, lane: Lane, job: Job) {
        self.jobs.spawn_after(delay, lane, job);
    }

    fn help(&self) -> bool {
        if self.jobs.help() {
            return true;
        }
        let fired = self.jobs.fire_delayed() > 0;
        let retries = self.retries.fetch_add(1, Ordering::Relaxed);
        assert!(fired, "a wait that nothing will end: no job is queued and none is delayed");
        assert!(retries < RETRIES_MAX, "a wait that only repeats failing work");
        true
    }

    fn width(&self, lane: Lane) -> usize {
        self.jobs.width(lane)
    }
}
