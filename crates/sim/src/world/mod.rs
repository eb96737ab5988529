//! A world of its own for the shipped store: threads that take turns, and time that passes when all of them wait.
//!
//! The threads are coroutines of the one that runs the world. Of them one has the turn. It keeps it until it waits; the next is who became ready first. When nobody is ready the time jumps to where
//! the first of those who sleep wakes up. So a run depends on its inputs alone, not on the machine, and takes as long as its computations do.
//! In a [`World::shuffled`] one a seed says who is next, and whether one who could go on does. In a [`World::held_up`] one some threads, each in
//! its own measure, do not go on for long though they could, as on a machine that has taken their processor away: meanwhile others come far.
//! Computing itself takes no time here; who wants it to sleeps for it.
//!
//! Invariants: at most one thread runs; `now` never goes back; a thread is in one of `ready`, `busy`, `waiting` (with `asleep` beside it), `held_up` or
//! has the turn. A wait that nothing can end is a defect of what runs here: the run panics with its stack instead of hanging. All others that
//! wait panic before the first thread does, those last that started others: so nobody goes whom somebody else borrows from.
//! Tests: `tests.rs`.

mod clock;
mod cores;
mod fibers;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kelvin_base::sync::{self, Turns, Work};
use parking_lot::{Mutex, MutexGuard};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

pub use clock::WorldClock;
pub use cores::Cores;

/// The number of the thread that runs the world.
const FIRST: usize = 0;
/// Where nobody can be woken: who waits here sleeps.
const NOWHERE: usize = 0;
/// In how many of a million places a thread is held up; one of them for each thread.
const HOLDS_PER_MILLION: [u32; 4] = [0, 0, 5_000, 200_000];
/// A thread is held up for at most two to this power places that others come to; half as long is as likely, and so on.
const HOLD_LOG_MAX: u32 = 14;
/// Where only time or somebody who is held up could go on, it is him once in so many times.
const HELD_BEFORE_TIME: u32 = 8;

/// Nothing that ends passes so many places while no time passes.
const STANDSTILL_MAX: u64 = 20_000_000;

/// Threads that take turns, and their time.
#[derive(Debug, Default)]
pub struct World {
    state: Mutex<State>,
    /// Nanoseconds since the start; changed under the lock of `state` alone.
    now: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    threads: Vec<Thread>,
    /// Who has the turn.
    running: Option<usize>,
    ready: VecDeque<usize>,
    /// Those who need what somebody holds: ready once somebody else has done something.
    busy: Vec<usize>,
    /// Somebody did something before he became one of them: what others of them need may be free.
    has_acted: bool,
    waiting: Vec<Waiting>,
    /// When a wait ends at the latest, and its number: of those that end at one moment the first begun is the first to end.
    asleep: BinaryHeap<Reverse<(u64, u64)>>,
    waits: u64,
    /// Who is held up, and until how many places have been passed.
    held_up: Vec<(u64, usize)>,
    /// Places passed in a world that holds threads up.
    places: u64,
    /// Places passed since time last went on.
    standstill: u64,
    /// Nothing will ever happen again, or nothing that anybody waits for.
    is_stuck: bool,
    shuffle: Option<Shuffle>,
}

/// Who chooses the order of threads.
#[derive(Debug)]
struct Shuffle {
    random: Xoshiro256PlusPlus,
    /// In how many of a million places another thread goes on.
    switches_per_million: u32,
    holds_up: bool,
}

#[derive(Debug, Default)]
struct Thread {
    has_left: bool,
    /// It was told that nothing will end what it waits for.
    is_given_up: bool,
    holds_per_million: u32,
}

#[derive(Debug)]
struct Waiting {
    place: usize,
    thread: usize,
    /// The number of the wait.
    wait: u64,
}

impl World {
    /// Runs `work` as the first thread of a new world; what it starts must have ended when it returns.
    pub fn run<T>(work: impl FnOnce(&Arc<Self>) -> T) -> T {
        Self::run_as(State::default(), work)
    }

    /// As [`World::run`]; `seed` says which of those who are ready is next, and in which of the places where the order may matter, so
    /// many of a million, another thread goes on.
    pub fn shuffled<T>(seed: u64, switches_per_million: u32, work: impl FnOnce(&Arc<Self>) -> T) -> T {
        Self::run_shuffled(seed, switches_per_million, false, work)
    }

    /// As [`World::shuffled`]; threads are held up, too, some of them never, some often.
    pub fn held_up<T>(seed: u64, switches_per_million: u32, work: impl FnOnce(&Arc<Self>) -> T) -> T {
        Self::run_shuffled(seed, switches_per_million, true, work)
    }

    fn run_shuffled<T>(
        seed: u64,
        switches_per_million: u32,
        holds_up: bool,
        work: impl FnOnce(&Arc<Self>) -> T,
    ) -> T {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let shuffle = Some(Shuffle { random, switches_per_million, holds_up });
        Self::run_as(State { shuffle, ..State::default() }, work)
    }

    fn run_as<T>(state: State, work: impl FnOnce(&Arc<Self>) -> T) -> T {
        /// Also where `work` panics.
        struct Ends;
        impl Drop for Ends {
            fn drop(&mut self) {
                fibers::forget();
            }
        }
        let world = Arc::new(Self { state: Mutex::new(state), now: AtomicU64::new(0) });
        let first = world.state.lock().add_thread();
        world.state.lock().running = Some(first);
        let _ends = Ends;
        sync::take_part(world.clone(), || work(&world))
    }

    /// Time since the start.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.now.load(Ordering::Relaxed))
    }

    /// Lets `duration` pass for the calling thread.
    pub fn sleep(&self, duration: Duration) {
        self.wait(NOWHERE, Some(duration));
    }

    /// Ends the world: what waits panics. For who finds that nothing goes on any more though time passes.
    pub fn give_up(&self) {
        self.state.lock().is_stuck = true;
    }

    /// Hands the turn of the calling thread on; returns once it has it again.
    fn hand_over<'a>(&'a self, mut state: MutexGuard<'a, State>, me: usize) {
        self.choose(&mut state);
        if state.running != Some(me) {
            drop(state);
            if me == FIRST {
                self.others_go_on()
            } else {
                fibers::suspend()
            }
            state = self.state.lock();
        }
        let is_given_up = state.gives_up(me);
        drop(state);
        assert!(!is_given_up, "a wait that nothing will end: every thread waits, and none for time to pass");
    }

    /// Each of the others goes on in its turn, until the first thread has it again.
    fn others_go_on(&self) {
        loop {
            let next = self.state.lock().running.unwrap_or(FIRST);
            if next == FIRST {
                return;
            }
            fibers::resume(next);
        }
    }

    /// Says in `running` who is next.
    fn choose(&self, state: &mut State) {
        if state.ready.is_empty() && std::mem::take(&mut state.has_acted) {
            state.retry_busy();
        }
        let next = state.next_ready().or_else(|| {
            if state.is_stuck { None } else { state.first_held_up().or_else(|| self.first_awake(state)) }
        });
        state.is_stuck |= next.is_none();
        state.running = next.or_else(|| state.next_given_up());
    }

    /// The calling thread ends: somebody else has the turn.
    fn leave(&self) {
        let mut state = self.state.lock();
        let me = state.me();
        state.threads[me].has_left = true;
        state.retry_busy();
        self.choose(&mut state);
    }

    /// Lets time pass until the first of those who sleep wakes up.
    fn first_awake(&self, state: &mut State) -> Option<usize> {
        while let Some(Reverse((at, wait))) = state.asleep.pop() {
            let Some(index) = state.waiting.iter().position(|waiting| waiting.wait == wait) else { continue };
            self.now.store(self.now.load(Ordering::Relaxed).max(at), Ordering::Relaxed);
            state.standstill = 0;
            return Some(state.waiting.swap_remove(index).thread);
        }
        None
    }
}

impl State {
    /// A thread more; its number.
    fn add_thread(&mut self) -> usize {
        let holds_per_million =
            self.shuffle.as_mut().filter(|shuffle| shuffle.holds_up).map_or(0, |shuffle| {
                HOLDS_PER_MILLION[shuffle.random.random_range(0..HOLDS_PER_MILLION.len())]
            });
        self.threads.push(Thread { holds_per_million, ..Thread::default() });
        self.threads.len() - 1
    }

    /// Of those that wait for ever the next that is told so: threads before those that started them, none twice if it can be helped.
    fn next_given_up(&self) -> Option<usize> {
        let me = self.running;
        let left = self.threads.iter().enumerate().filter(|(_, thread)| !thread.has_left);
        left.max_by_key(|(number, thread)| (!thread.is_given_up, Some(*number) != me, *number))
            .map(|(number, _)| number)
    }

    /// Nothing will end what thread `me` waits for, if it waits.
    fn gives_up(&mut self, me: usize) -> bool {
        if !self.is_stuck {
            return false;
        }
        self.held_up.retain(|(_, thread)| *thread != me);
        let waited = self.waiting.len() + self.busy.len();
        self.waiting.retain(|waiting| waiting.thread != me);
        self.busy.retain(|thread| *thread != me);
        let waits = self.waiting.len() + self.busy.len() < waited;
        self.threads[me].is_given_up |= waits;
        waits
    }

    /// Who of the ready ones is next.
    fn next_ready(&mut self) -> Option<usize> {
        let ready = self.ready.len();
        match &mut self.shuffle {
            Some(shuffle) if ready > 1 => self.ready.remove(shuffle.random.random_range(0..ready)),
            _ => self.ready.pop_front(),
        }
    }

    /// What the calling thread did may have been what others were waiting for.
    fn retry_busy(&mut self) {
        self.ready.extend(self.busy.drain(..));
    }

    fn me(&self) -> usize {
        self.running.unwrap_or_default()
    }

    /// Until which place a thread that comes to one is held up there, if it is. Who has been held up long enough is ready.
    fn hold_up(&mut self, me: usize) -> Option<u64> {
        let shuffle = self.shuffle.as_mut().filter(|shuffle| shuffle.holds_up)?;
        self.places += 1;
        let per_million = self.threads[me].holds_per_million;
        let is_held = per_million > 0 && shuffle.random.random_ratio(per_million, 1_000_000);
        let until = is_held.then(|| self.places + (1 << shuffle.random.random_range(0..=HOLD_LOG_MAX)));
        let places = self.places;
        let is_over = |held: &mut (u64, usize)| held.0 <= places;
        self.ready.extend(self.held_up.extract_if(.., is_over).map(|(_, thread)| thread));
        until
    }

    /// Who is held up and goes on first, as nobody else can, unless time is to pass before.
    fn first_held_up(&mut self) -> Option<usize> {
        let is_time = |wait: &Waiting| self.asleep.iter().any(|Reverse((_, asleep))| *asleep == wait.wait);
        if !self.held_up.is_empty()
            && self.waiting.iter().any(is_time)
            && let Some(shuffle) = &mut self.shuffle
            && !shuffle.random.random_ratio(1, HELD_BEFORE_TIME)
        {
            return None;
        }
        let first = (0..self.held_up.len()).min_by_key(|index| self.held_up[*index])?;
        let (until, thread) = self.held_up.swap_remove(first);
        self.places = self.places.max(until);
        Some(thread)
    }
}

impl Turns for World {
    fn start(self: Arc<Self>, work: Work) -> u64 {
        let number = {
            let mut state = self.state.lock();
            let number = state.add_thread();
            state.ready.push_back(number);
            number
        };
        let ends = move || {
            work();
            self.leave();
        };
        fibers::start(number, Box::new(ends));
        number as u64
    }

    fn wait(&self, place: usize, at_most: Option<Duration>) {
        let mut state = self.state.lock();
        let me = state.me();
        state.waits += 1;
        let wait = state.waits;
        state.waiting.push(Waiting { place, thread: me, wait });
        if let Some(at_most) = at_most {
            let at = self.now() + at_most;
            state.asleep.push(Reverse((u64::try_from(at.as_nanos()).unwrap_or(u64::MAX), wait)));
        }
        state.retry_busy();
        self.hand_over(state, me);
    }

    fn wake(&self, place: usize, all: bool) {
        let mut state = self.state.lock();
        // In the order in which they began to wait.
        while let Some(first) = (0..state.waiting.len())
            .filter(|index| state.waiting[*index].place == place)
            .min_by_key(|index| state.waiting[*index].wait)
        {
            let woken = state.waiting.swap_remove(first).thread;
            state.ready.push_back(woken);
            if !all {
                break;
            }
        }
    }

    fn give_way(&self, has_acted: bool) {
        let mut state = self.state.lock();
        let me = state.me();
        state.has_acted |= has_acted;
        state.busy.push(me);
        self.hand_over(state, me);
    }

    fn point(&self) {
        let mut state = self.state.lock();
        if state.is_stuck {
            return;
        }
        state.standstill += 1;
        if state.standstill > STANDSTILL_MAX {
            state.is_stuck = true;
            drop(state);
            panic!("somebody does the same again and again, and no time passes");
        }
        let me = state.me();
        let held_until = state.hold_up(me);
        let Some(shuffle) = &mut state.shuffle else { return };
        let switches = shuffle.random.random_ratio(shuffle.switches_per_million, 1_000_000);
        if held_until.is_none() && !switches {
            return;
        }
        // What it did so far may be what others are waiting for.
        state.retry_busy();
        if state.ready.is_empty() {
            return;
        }
        match held_until {
            Some(until) => state.held_up.push((until, me)),
            None => state.ready.push_back(me),
        }
        self.hand_over(state, me);
    }
}
