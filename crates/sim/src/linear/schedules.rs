//! Short histories in a world whose order of threads a seed shuffles: wherever a lock is taken or what others change is looked at, another
//! thread may go on, those of the store among them.
//!
//! So readers that promote, writers, flushes, boundary compactions and their claims meet in orders that a machine seldom has, and one seed gives one
//! of them again. Every second history is one of `races.rs`, whose threads are held up, too. RELIABILITY T14. Tests: `tests/linear.rs`.

use std::sync::Arc;

use kelvin_base::{Clock, ThreadPool};
use kelvin_storage::Storage;
use kelvin_storage::fault::FaultStorage;
use kelvin_storage::memory::MemoryStorage;

use super::history::{self, LONG, Tally};
use super::races::Races;
use crate::checks::{Check, said_by};
use crate::settings::{self, Configuration, START_UNIX_MILLIS, open_on};
use crate::world::{World, WorldClock};

/// In how many of a million places the order changes; one of them for each schedule.
const SWITCHES_PER_MILLION: [u32; 4] = [10_000, 50_000, 200_000, 500_000];

/// What clients of a long history ask for here.
const OPERATIONS: u64 = 120;

/// Runs the history of `seed` in the order of threads that it says, and checks it.
///
/// # Errors
/// As [`super::history::run`]; a wait that nothing ends.
pub fn run(seed: u64) -> Check<Tally> {
    let nth = |count: usize| usize::try_from(seed / 2 % count as u64).unwrap_or(0);
    let switches = SWITCHES_PER_MILLION[nth(SWITCHES_PER_MILLION.len())];
    let is_race = !seed.is_multiple_of(2);
    let threaded: Vec<&Configuration> = settings::ALL.iter().filter(|one| one.threads).collect();
    let configuration =
        if is_race { &settings::RACES[nth(settings::RACES.len())] } else { threaded[nth(threaded.len())] };
    let ran = std::panic::catch_unwind(|| {
        if is_race {
            World::held_up(seed, switches, |world| run_in(world, configuration, seed, is_race))
        } else {
            World::shuffled(seed, switches, |world| run_in(world, configuration, seed, is_race))
        }
    });
    let outcome = ran.unwrap_or_else(|panic| Err(format!("a panic: {}", said_by(&*panic))));
    outcome.map_err(|what| format!("[{}] seed {seed}: {what}", configuration.name))
}

fn run_in(world: &Arc<World>, configuration: &Configuration, seed: u64, is_race: bool) -> Check<Tally> {
    let clock: Arc<dyn Clock> = Arc::new(WorldClock::new(Arc::clone(world), START_UNIX_MILLIS));
    let pool = ThreadPool::on(Arc::clone(&clock), 1, 2, 2);
    let executor = Arc::new(pool.map_err(|error| format!("starting threads: {error}"))?);
    let disks =
        [seed, seed + 1].map(|seed| Arc::new(FaultStorage::new(Arc::new(MemoryStorage::new()), seed)));
    let devices = disks.each_ref().map(|disk| Arc::clone(disk) as Arc<dyn Storage>);
    let db = open_on(devices, configuration, seed, Arc::clone(&clock), executor)?;
    if is_race {
        Races::new(clock, disks, seed).run(db, seed)
    } else {
        history::run_on(db, &LONG, seed, OPERATIONS)
    }
}
