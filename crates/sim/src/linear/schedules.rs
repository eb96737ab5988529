//! Short histories in a world whose order of threads a seed shuffles: wherever a lock is taken or what others change is looked at, another
//! thread may go on, those of the store among them.
//!
//! So readers that promote, writers, flushes, boundary compactions and their claims meet in orders that a machine seldom has, and one seed gives one
//! of them again. RELIABILITY T14. Tests: `tests/linear.rs`.

use std::sync::Arc;

use kelvin_base::{Clock, ThreadPool};

use super::history::{Tally, run_on};
use crate::checks::{Check, said_by};
use crate::settings::{Configuration, START_UNIX_MILLIS, open_with};
use crate::world::{World, WorldClock};

/// In how many of a million places the order changes; one of them for each schedule.
const SWITCHES_PER_MILLION: [u32; 4] = [10_000, 50_000, 200_000, 500_000];

/// Runs a history of `operations` under `configuration` in the order of threads that `seed` says, and checks it.
///
/// # Errors
/// As [`super::history::run`]; a wait that nothing ends.
pub fn run(configuration: &Configuration, seed: u64, operations: u64) -> Check<Tally> {
    let count = SWITCHES_PER_MILLION.len() as u64;
    let switches = SWITCHES_PER_MILLION[usize::try_from(seed % count).unwrap_or(0)];
    let ran = std::panic::catch_unwind(|| {
        World::shuffled(seed, switches, |world| {
            let clock: Arc<dyn Clock> = Arc::new(WorldClock::new(Arc::clone(world), START_UNIX_MILLIS));
            let pool = ThreadPool::on(Arc::clone(&clock), 1, 2, 2);
            let pool = pool.map_err(|error| format!("starting threads: {error}"))?;
            run_on(open_with(configuration, seed, clock, Arc::new(pool))?, seed, operations)
        })
    });
    let outcome = ran.unwrap_or_else(|panic| Err(format!("a panic: {}", said_by(&*panic))));
    outcome.map_err(|what| format!("[{}] seed {seed}: {what}", configuration.name))
}
