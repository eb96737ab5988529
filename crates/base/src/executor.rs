//! Injected background work: a pool of threads in production, a queue stepped by hand in tests and simulation.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{Clock, SystemClock};
use crate::process;
use crate::sync::{self, Condvar, Mutex};

/// A piece of background work.
pub type Job = Box<dyn FnOnce() + Send>;

/// Which queue a job waits in; each has threads of its own so that a flush never waits behind a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Memtable flushes.
    Flush,
    /// Compactions and sub-compactions.
    Compaction,
    /// Parallel reads of `multi_get` and read-ahead.
    Read,
    /// Everything else: file deletion, retries.
    Housekeeping,
    /// The hot-key tracker: its work may take long, and nobody waits for it.
    Tracking,
    /// Calls of a listener of events, which may do what it likes.
    Events,
}

impl Lane {
    /// Every lane.
    pub const ALL: [Self; LANES] =
        [Self::Flush, Self::Compaction, Self::Read, Self::Housekeeping, Self::Tracking, Self::Events];

    /// The name used in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flush => "flush",
            Self::Compaction => "compaction",
            Self::Read => "read",
            Self::Housekeeping => "housekeeping",
            Self::Tracking => "tracking",
            Self::Events => "events",
        }
    }
}

const LANES: usize = 6;

/// Runs background work.
pub trait Executor: Send + Sync + Debug {
    /// Queues `job`. Jobs of one lane start in order.
    fn spawn(&self, lane: Lane, job: Job);
    /// Queues `job` on `lane` once `delay` has passed. An executor without threads keeps it until asked
    /// ([`ManualExecutor::fire_delayed`]). Delayed jobs still waiting when the executor stops are dropped.
    fn spawn_after(&self, delay: Duration, lane: Lane, job: Job);
    /// Runs one queued job on the calling thread if this executor has no threads; true if it ran one.
    fn help(&self) -> bool;
    /// How many jobs of `lane` can run at once.
    fn width(&self, lane: Lane) -> usize;
    /// Processor time that the jobs of `lane` that are over have taken; zero where nobody counts it.
    fn cpu_time(&self, lane: Lane) -> Duration {
        let _uncounted = lane;
        Duration::ZERO
    }
}

#[derive(Debug, Default)]
struct Queues {
    jobs: Mutex<State>,
    wake: [Condvar; LANES],
    timer: Condvar,
    /// Processor time of the jobs that are over, nanoseconds.
    spent_ns: [AtomicU64; LANES],
}

#[derive(Default)]
struct State {
    lanes: [VecDeque<Job>; LANES],
    delayed: Vec<Delayed>,
    stopping: bool,
}

struct Delayed {
    /// On the clock of the executor, if it has threads.
    due: Duration,
    lane: Lane,
    job: Job,
}

impl Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let queued: Vec<usize> = self.lanes.iter().map(VecDeque::len).collect();
        f.debug_struct("State").field("queued", &queued).field("stopping", &self.stopping).finish()
    }
}

/// Threads, a fixed number for each lane. Dropping the pool runs what is queued and joins the threads.
#[derive(Debug)]
pub struct ThreadPool {
    queues: Arc<Queues>,
    widths: [usize; LANES],
    threads: Mutex<Vec<sync::JoinHandle<()>>>,
    clock: Arc<dyn Clock>,
}

impl ThreadPool {
    /// A pool with `flush`, `compaction` and `read` threads (each at least 1) and one each for housekeeping, tracking and events.
    ///
    /// # Errors
    /// The operating system's error if a thread cannot be started.
    pub fn new(flush: usize, compaction: usize, read: usize) -> std::io::Result<Self> {
        Self::on(Arc::new(SystemClock::new()), flush, compaction, read)
    }

    /// As [`ThreadPool::new`], with delays measured on `clock`.
    ///
    /// # Errors
    /// The operating system's error if a thread cannot be started.
    pub fn on(clock: Arc<dyn Clock>, flush: usize, compaction: usize, read: usize) -> std::io::Result<Self> {
        let queues = Arc::new(Queues::default());
        let widths = [flush.max(1), compaction.max(1), read.max(1), 1, 1, 1];
        let mut threads = Vec::new();
        // Names of threads have 15 characters.
        for (lane, name) in ["flush", "compact", "read", "house", "track", "event"].into_iter().enumerate() {
            for index in 0..widths[lane] {
                let queues = Arc::clone(&queues);
                threads.push(sync::spawn(format!("kelvin-{name}-{index}"), move || work(&queues, lane))?);
            }
        }
        let (timer_queues, timer_clock) = (Arc::clone(&queues), Arc::clone(&clock));
        let timer = move || keep_time(&timer_queues, &*timer_clock);
        threads.push(sync::spawn("kelvin-timer".to_string(), timer)?);
        Ok(Self { queues, widths, threads: Mutex::new(threads), clock })
    }
}

/// Moves delayed jobs to their lanes when they are due.
fn keep_time(queues: &Queues, clock: &dyn Clock) {
    let mut state = queues.jobs.lock();
    while !state.stopping {
        let now = clock.now();
        while let Some(index) = state.delayed.iter().position(|delayed| delayed.due <= now) {
            let due = state.delayed.swap_remove(index);
            state.lanes[due.lane as usize].push_back(due.job);
            queues.wake[due.lane as usize].notify_one();
        }
        match state.delayed.iter().map(|delayed| delayed.due).min() {
            Some(due) => queues.timer.wait_for(&mut state, due.saturating_sub(now)),
            None => queues.timer.wait(&mut state),
        }
    }
}

fn work(queues: &Queues, lane: usize) {
    loop {
        let job = {
            let mut state = queues.jobs.lock();
            loop {
                if let Some(job) = state.lanes[lane].pop_front() {
                    break job;
                }
                if state.stopping {
                    return;
                }
                queues.wake[lane].wait(&mut state);
            }
        };
        let before = process::thread_cpu_time();
        // A panicking job must not take the lane's thread with it; the job's owner sees that it never reported.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
        drop(outcome);
        let spent = process::thread_cpu_time().saturating_sub(before);
        queues.spent_ns[lane].fetch_add(u64::try_from(spent.as_nanos()).unwrap_or(0), Ordering::Relaxed);
    }
}

impl Executor for ThreadPool {
    fn spawn(&self, lane: Lane, job: Job) {
        self.queues.jobs.lock().lanes[lane as usize].push_back(job);
        self.queues.wake[lane as usize].notify_one();
    }

    fn spawn_after(&self, delay: Duration, lane: Lane, job: Job) {
        let due = self.clock.now() + delay;
        self.queues.jobs.lock().delayed.push(Delayed { due, lane, job });
        self.queues.timer.notify_one();
    }

    fn help(&self) -> bool {
        false
    }

    fn width(&self, lane: Lane) -> usize {
        self.widths[lane as usize]
    }

    fn cpu_time(&self, lane: Lane) -> Duration {
        Duration::from_nanos(self.queues.spent_ns[lane as usize].load(Ordering::Relaxed))
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.queues.jobs.lock().stopping = true;
        for wake in &self.queues.wake {
            wake.notify_all();
        }
        self.queues.timer.notify_all();
        for thread in self.threads.lock().drain(..) {
            // The last owner may be a job on a pool thread: that thread cannot join itself.
            if !thread.is_current() {
                let _ended = thread.join();
            }
        }
    }
}

/// No threads: jobs wait until somebody steps them. Deterministic, for tests and simulation.
#[derive(Debug, Default)]
pub struct ManualExecutor {
    jobs: Mutex<State>,
}

impl ManualExecutor {
    /// An executor with nothing queued.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Jobs waiting.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.jobs.lock().lanes.iter().map(VecDeque::len).sum()
    }

    /// Runs the `choice`-th (modulo) waiting job, lanes in order; false if none waits.
    pub fn run_nth(&self, choice: usize) -> bool {
        let job = {
            let mut state = self.jobs.lock();
            let queued: usize = state.lanes.iter().map(VecDeque::len).sum();
            if queued == 0 {
                return false;
            }
            let mut index = choice % queued;
            let lane = state.lanes.iter_mut().find(|lane| {
                let here = index < lane.len();
                if !here {
                    index -= lane.len();
                }
                here
            });
            lane.and_then(|lane| lane.remove(index))
        };
        job.map(|job| job()).is_some()
    }

    /// Runs jobs, and the jobs they queue, until none waits.
    pub fn run_all(&self) {
        while self.run_nth(0) {}
    }

    /// Queues every delayed job, as if all their delays had passed; how many there were.
    pub fn fire_delayed(&self) -> usize {
        let mut state = self.jobs.lock();
        let due = std::mem::take(&mut state.delayed);
        let count = due.len();
        for delayed in due {
            state.lanes[delayed.lane as usize].push_back(delayed.job);
        }
        count
    }

    /// Forgets every waiting job, as a power loss does.
    pub fn discard(&self) {
        let dropped = std::mem::take(&mut *self.jobs.lock());
        drop(dropped);
    }
}

impl Executor for ManualExecutor {
    fn spawn(&self, lane: Lane, job: Job) {
        self.jobs.lock().lanes[lane as usize].push_back(job);
    }

    fn spawn_after(&self, delay: Duration, lane: Lane, job: Job) {
        self.jobs.lock().delayed.push(Delayed { due: delay, lane, job });
    }

    fn help(&self) -> bool {
        self.run_nth(0)
    }

    fn width(&self, _lane: Lane) -> usize {
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::Signal;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_waiter_is_woken_by_a_job_on_either_executor() {
        let pool: Arc<dyn Executor> = Arc::new(ThreadPool::new(1, 1, 1).unwrap());
        for executor in [pool, Arc::new(ManualExecutor::new())] {
            let (signal, done) = (Arc::new(Signal::new()), Arc::new(AtomicUsize::new(0)));
            let (their_signal, their_done) = (Arc::clone(&signal), Arc::clone(&done));
            executor.spawn(
                Lane::Flush,
                Box::new(move || {
                    their_done.store(7, Ordering::Release);
                    their_signal.raise();
                }),
            );
            let seen = signal
                .wait_for(&*executor, || Some(done.load(Ordering::Acquire)).filter(|&value| value != 0));
            assert_eq!(seen, 7);
        }
    }

    #[test]
    fn a_delayed_job_runs_after_its_delay_or_when_fired() {
        let pool = ThreadPool::new(1, 1, 1).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let later = sender.clone();
        pool.spawn_after(Duration::from_millis(1), Lane::Read, Box::new(move || later.send("pool").unwrap()));
        assert_eq!(receiver.recv().unwrap(), "pool");

        let manual = ManualExecutor::new();
        manual.spawn_after(
            Duration::from_secs(3600),
            Lane::Read,
            Box::new(move || sender.send("manual").unwrap()),
        );
        manual.run_all();
        assert!(receiver.try_recv().is_err());
        assert_eq!(manual.fire_delayed(), 1);
        manual.run_all();
        assert_eq!(receiver.recv().unwrap(), "manual");
    }

    #[test]
    fn the_processor_time_of_jobs_is_counted_by_lane() {
        let pool = ThreadPool::new(1, 1, 1).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let spin = move || {
            let start = process::thread_cpu_time();
            while process::thread_cpu_time() - start < Duration::from_millis(2) {}
        };
        pool.spawn(Lane::Compaction, Box::new(spin));
        // The next job of the lane begins once the one before is counted.
        pool.spawn(Lane::Compaction, Box::new(move || sender.send(()).unwrap()));
        receiver.recv().unwrap();
        assert!(pool.cpu_time(Lane::Compaction) >= Duration::from_millis(2));
        assert_eq!(pool.cpu_time(Lane::Flush), Duration::ZERO);
        assert_eq!(ManualExecutor::new().cpu_time(Lane::Compaction), Duration::ZERO);
    }

    #[test]
    fn dropping_a_pool_runs_what_is_queued() {
        let done = Arc::new(AtomicUsize::new(0));
        let pool = ThreadPool::new(1, 2, 1).unwrap();
        for _ in 0..100 {
            let done = Arc::clone(&done);
            pool.spawn(
                Lane::Compaction,
                Box::new(move || {
                    done.fetch_add(1, Ordering::Relaxed);
                }),
            );
        }
        pool.spawn(Lane::Compaction, Box::new(|| panic!("a panicking job leaves its thread alive")));
        drop(pool);
        assert_eq!(done.load(Ordering::Relaxed), 100);
    }
}
