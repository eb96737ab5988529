//! A storage that may hang, behind a deadline (RELIABILITY M21).
//!
//! Reads wait on the caller's own thread where the file can bound them ([`ReadFile::read_within`]), and appends that
//! only fill the inner writer's buffer need not wait at all ([`WriteFile::room`]). Every other operation runs on a
//! worker thread; the caller waits at most the deadline and then gets `TimedOut`, while the hung operation keeps its
//! worker and whatever it owns until the device lets go. After a timeout, calls fail at once until a probe, one call
//! per [`Deadline::probe_interval`] of the clock, is answered in time.
//!
//! Invariants
//! - A worker owns all that its operation touches: buffers move to it and come back, so a late end harms nobody.
//! - A writer whose operation timed out is gone; later calls on it answer `TimedOut`.
//! - At most [`Deadline::workers_max`] threads, hung ones included; with none to spare a call fails at once.
//! - A file lock that is let go of is held on until no operation is under way whose caller was told that it did not end:
//!   who takes the lock next may rely on it that nobody else changes what it guards. (The kernel does the same for a
//!   process that ends: its descriptors live as long as a thread of it that hangs.)
//! - At most [`Deadline::idle_max`] of them wait for work: each takes a stack, and what the allocator keeps for it.
//!
//! Time is the injected clock's, except where the file itself bounds a read. Tests: `deadline/tests.rs` and `tests/conformance.rs`.
//! Why 10 seconds and what an operation costs: docs/decisions/0004-slow-tier-deadline.md.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use kelvin_base::sync::{self, Condvar, Mutex};
use kelvin_base::{Clock, Job, Signal, seeded_bug};

use crate::{AlignedBuf, Create, FileLock, IoMode, ReadFile, Storage, WriteFile};

/// How long a [`DeadlineStorage`] waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// The longest an operation may take.
    pub limit: Duration,
    /// From a timeout to the next call that is let through.
    pub probe_interval: Duration,
    /// Most threads.
    pub workers_max: usize,
    /// Most threads that stay when there is nothing to do.
    pub idle_max: usize,
}

impl Deadline {
    /// `limit` per operation, a probe after as long again, 32 threads at most, 6 of which stay.
    #[must_use]
    pub const fn new(limit: Duration) -> Self {
        Self { limit, probe_interval: limit, workers_max: 32, idle_max: 6 }
    }
}

#[derive(Default)]
struct Workers {
    state: Mutex<WorkersState>,
    wake: Condvar,
}

/// What became of a job. Changed under the workers' lock only.
#[derive(Default)]
struct Fate {
    has_ended: AtomicBool,
    /// Its caller's time has passed: it need not begin any more.
    is_given_up: AtomicBool,
}

#[derive(Default)]
struct WorkersState {
    jobs: VecDeque<(Job, Arc<Fate>)>,
    idle: usize,
    total: usize,
    /// Jobs that were given up and have not ended.
    given_up: usize,
    /// Let go of while there were such jobs.
    locks: Vec<Box<dyn FileLock>>,
    stopping: bool,
}

fn work(workers: &Workers, idle_max: usize) {
    let mut state = workers.state.lock();
    loop {
        if let Some((job, fate)) = state.jobs.pop_front() {
            drop(state);
            if fate.is_given_up.load(Ordering::Relaxed) {
                drop(job);
            } else {
                // The waiting caller sees that its operation never reported.
                let _outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
            }
            state = workers.state.lock();
            fate.has_ended.store(true, Ordering::Relaxed);
            if fate.is_given_up.load(Ordering::Relaxed) {
                state.given_up -= 1;
            }
            if state.given_up == 0 && !state.locks.is_empty() {
                let locks = std::mem::take(&mut state.locks);
                drop(state);
                drop(locks);
                state = workers.state.lock();
            }
        } else if state.stopping || state.idle >= idle_max {
            state.total -= 1;
            return;
        } else {
            state.idle += 1;
            workers.wake.wait(&mut state);
            state.idle -= 1;
        }
    }
}

impl Workers {
    /// Queues `job` for an idle or a new thread, or for the first to be done if there may be no more; `None` if nobody
    /// waits any more for what all of them do.
    fn run(self: &Arc<Self>, deadline: Deadline, job: Job) -> io::Result<Option<Arc<Fate>>> {
        let fate = Arc::new(Fate::default());
        let mut state = self.state.lock();
        if state.jobs.len() < state.idle {
            state.jobs.push_back((job, Arc::clone(&fate)));
            self.wake.notify_one();
            return Ok(Some(fate));
        }
        if state.total < deadline.workers_max {
            let workers = Arc::clone(self);
            sync::spawn("kelvin-deadline".to_string(), move || work(&workers, deadline.idle_max))?;
            state.total += 1;
        } else if state.given_up >= deadline.workers_max {
            return Ok(None);
        }
        state.jobs.push_back((job, Arc::clone(&fate)));
        Ok(Some(fate))
    }

    /// Says that nobody waits any more for the job of `fate`.
    fn give_up(&self, fate: &Fate) {
        let mut state = self.state.lock();
        if !fate.has_ended.load(Ordering::Relaxed) {
            fate.is_given_up.store(true, Ordering::Relaxed);
            state.given_up += 1;
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Breaker {
    /// When the next call is let through, while the device is thought hung.
    probe_at: Option<Duration>,
}

struct Shared {
    inner: Arc<dyn Storage>,
    deadline: Deadline,
    clock: Arc<dyn Clock>,
    breaker: Mutex<Breaker>,
    workers: Arc<Workers>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("inner", &self.inner)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Idle threads end; hung ones end when the device lets go. Joining them could hang the caller.
        self.workers.state.lock().stopping = true;
        self.workers.wake.notify_all();
    }
}

fn timed_out(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

impl Shared {
    /// Lets the call through, or fails it at once while the device is thought hung.
    fn enter(&self) -> io::Result<()> {
        let mut breaker = self.breaker.lock();
        match breaker.probe_at {
            Some(at) if self.clock.now() < at => Err(timed_out("the device did not answer an earlier call")),
            Some(_) => {
                // This call is the probe; the next one waits its turn.
                breaker.probe_at = Some(self.clock.now() + self.deadline.probe_interval);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Lets the call through and has a worker run it.
    fn run<T: Send + 'static>(&self, operation: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        self.enter()?;
        self.run_entered(operation)
    }

    fn run_entered<T: Send + 'static>(
        &self,
        operation: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let ended = Arc::new(Signal::new());
        let raise = RaiseAtEnd(Arc::clone(&ended));
        let at = self.clock.now().saturating_add(self.deadline.limit);
        let job = Box::new(move || {
            // Dropped after the sender, by a panic too: the caller then finds an answer, or nobody left to send one.
            let _raise = raise;
            let sender = sender;
            // Nobody listens any more after a timeout; what came out is dropped here.
            let _sent = sender.send(operation());
        });
        let fate = self.workers.run(self.deadline, job)?;
        let fate = fate.ok_or_else(|| timed_out("every worker waits for the device"))?;
        let answer = ended.wait_until(&*self.clock, at, || match receiver.try_recv() {
            Err(mpsc::TryRecvError::Empty) => None,
            answer => Some(answer),
        });
        match answer {
            Some(Ok(answer)) => {
                self.answered();
                Ok(answer)
            }
            Some(Err(_)) => Err(io::Error::other("a device operation panicked")),
            None => {
                self.workers.give_up(&fate);
                Err(self.trip())
            }
        }
    }

    /// Notes that the device answered.
    fn answered(&self) {
        self.breaker.lock().probe_at = None;
    }

    /// Notes that it did not; the error for the caller.
    fn trip(&self) -> io::Error {
        self.breaker.lock().probe_at = Some(self.clock.now() + self.deadline.probe_interval);
        timed_out("the device did not answer in time")
    }
}

/// Tells the caller that its operation has ended.
struct RaiseAtEnd(Arc<Signal>);

impl Drop for RaiseAtEnd {
    fn drop(&mut self) {
        self.0.raise();
    }
}

/// A storage whose operations end in time, if with an error.
#[derive(Debug)]
pub struct DeadlineStorage {
    shared: Arc<Shared>,
}

impl DeadlineStorage {
    /// `inner` behind `deadline`, probing by `clock`.
    #[must_use]
    pub fn new(inner: Arc<dyn Storage>, deadline: Deadline, clock: Arc<dyn Clock>) -> Self {
        let (breaker, workers) = (Mutex::default(), Arc::default());
        Self { shared: Arc::new(Shared { inner, deadline, clock, breaker, workers }) }
    }

    /// True while calls fail at once because the device did not answer.
    #[must_use]
    pub fn is_tripped(&self) -> bool {
        self.shared.breaker.lock().probe_at.is_some()
    }

    fn on<T: Send + 'static>(
        &self,
        path: &Path,
        operation: impl FnOnce(&dyn Storage, &Path) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (inner, path) = (Arc::clone(&self.shared.inner), path.to_path_buf());
        self.shared.run(move || operation(&*inner, &path))?
    }
}

#[derive(Debug)]
struct DeadlineReader {
    inner: Arc<dyn ReadFile>,
    shared: Arc<Shared>,
}

impl ReadFile for DeadlineReader {
    fn read_at(&self, offset: u64, len: usize, buf: &mut AlignedBuf) -> io::Result<Range<usize>> {
        self.shared.enter()?;
        match self.inner.read_within(offset, len, buf, self.shared.deadline.limit) {
            Some(Err(error)) if error.kind() == io::ErrorKind::TimedOut => return Err(self.shared.trip()),
            Some(outcome) => {
                self.shared.answered();
                return outcome;
            }
            None => {}
        }
        let (inner, mut moved) = (Arc::clone(&self.inner), std::mem::take(buf));
        let (range, moved) =
            self.shared.run_entered(move || (inner.read_at(offset, len, &mut moved), moved))?;
        *buf = moved;
        range
    }

    fn len(&self) -> io::Result<u64> {
        let inner = Arc::clone(&self.inner);
        self.shared.run(move || inner.len())?
    }
}

#[derive(Debug)]
struct DeadlineWriter {
    /// Absent once an operation on it timed out.
    inner: Option<Box<dyn WriteFile>>,
    shared: Arc<Shared>,
    /// What an append hands over; kept for its memory.
    buffer: Vec<u8>,
    appended: u64,
}

impl DeadlineWriter {
    /// Has a worker append what lies in the buffer and run `then`.
    fn hand_over(&mut self, then: fn(&mut dyn WriteFile) -> io::Result<()>) -> io::Result<()> {
        let mut file = self.inner.take().ok_or_else(gone)?;
        let data = std::mem::take(&mut self.buffer);
        let (outcome, file, mut data) = self.shared.run(move || {
            let outcome = if data.is_empty() { Ok(()) } else { file.append(&data) };
            (outcome.and_then(|()| then(&mut *file)), file, data)
        })?;
        data.clear();
        self.buffer = data;
        self.inner = Some(file);
        outcome
    }
}

fn gone() -> io::Error {
    timed_out("an earlier call on this file was not answered")
}

impl WriteFile for DeadlineWriter {
    fn append(&mut self, data: &[u8]) -> io::Result<()> {
        let inner = self.inner.as_mut().ok_or_else(gone)?;
        self.appended += u64::try_from(data.len()).unwrap_or(u64::MAX);
        if data.len() <= inner.room() {
            return inner.append(data);
        }
        self.buffer.extend_from_slice(data);
        self.hand_over(|_| Ok(()))
    }

    fn room(&self) -> usize {
        self.inner.as_ref().map_or(0, |inner| inner.room())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.hand_over(|file| file.flush())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.hand_over(|file| file.sync())
    }

    fn len(&self) -> u64 {
        self.appended
    }
}

/// See the invariants of the module.
#[derive(Debug)]
struct DeadlineLock {
    /// Present until it is dropped.
    inner: Option<Box<dyn FileLock>>,
    shared: Arc<Shared>,
}

impl FileLock for DeadlineLock {}

impl Drop for DeadlineLock {
    fn drop(&mut self) {
        let mut state = self.shared.workers.state.lock();
        if state.given_up > 0 && !seeded_bug!("lock-goes-before-what-was-given-up") {
            state.locks.extend(self.inner.take());
        }
    }
}

impl Storage for DeadlineStorage {
    fn create(&self, path: &Path, how: Create) -> io::Result<Box<dyn WriteFile>> {
        let inner = self.on(path, move |inner, path| inner.create(path, how))?;
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(DeadlineWriter { inner: Some(inner), shared, buffer: Vec::new(), appended: 0 }))
    }

    fn open(&self, path: &Path, mode: IoMode) -> io::Result<Arc<dyn ReadFile>> {
        let inner = self.on(path, move |inner, path| inner.open(path, mode))?;
        Ok(Arc::new(DeadlineReader { inner, shared: Arc::clone(&self.shared) }))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.on(dir, |inner, dir| inner.sync_dir(dir))
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.on(dir, |inner, dir| inner.create_dir_all(dir))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let to = to.to_path_buf();
        self.on(from, move |inner, from| inner.rename(from, &to))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let to = to.to_path_buf();
        self.on(from, move |inner, from| inner.hard_link(from, &to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.on(path, |inner, path| inner.remove(path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.on(dir, |inner, dir| inner.list(dir))
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        self.on(path, |inner, path| inner.file_len(path))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.on(path, |inner, path| inner.exists(path))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let inner = self.on(path, |inner, path| inner.lock(path))?;
        Ok(Box::new(DeadlineLock { inner: Some(inner), shared: Arc::clone(&self.shared) }))
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        self.on(dir, |inner, dir| inner.free_space(dir))
    }

    fn has_unanswered(&self) -> bool {
        self.shared.workers.state.lock().given_up > 0
    }
}

#[cfg(test)]
mod tests;
