//! A failing device: rules decide which operations fail and how; everything else goes through.
//!
//! Every operation is counted, failed ones included, so that a test can repeat a scenario with its first, second, ...
//! operation failing ([`FaultStorage::fail_nth`]). Rules are tried in the order they were added; the first that
//! fires wins. The same seed, rules and operations give the same faults.
//!
//! Invariant: no lock is held while an operation of the device runs or stalls. Tests: `tests.rs` and
//! `tests/conformance.rs`.

mod file;
mod rule;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kelvin_base::sync::{Condvar, Mutex};

use crate::seeded::Seeded;
use crate::{AlignedBuf, Create, FileLock, IoMode, ReadFile, Storage, WriteFile};
pub use rule::{Effect, Op, Rule};

/// The error number of an input/output error.
pub const EIO: i32 = 5;
/// The error number of a device that is gone.
pub const ENODEV: i32 = 19;
/// The error number of a full device.
pub const ENOSPC: i32 = 28;

/// Told of each operation that a fault happens to, by the thread that asked for it, with no lock held.
pub type Watcher = dyn Fn(Op) + Send + Sync;

#[derive(Clone)]
struct Watch(Arc<Watcher>);

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

#[derive(Debug)]
struct State {
    rules: Vec<Rule>,
    watch: Option<Watch>,
    random: Seeded,
    counts: BTreeMap<Op, u64>,
    operations: u64,
    injected: u64,
    /// Operations still let through before one (`times`) or all of them fail with the error number.
    fail: Option<FailFrom>,
    away: Option<i32>,
    /// Raised by each release; a stall ends when it changes.
    releases: u64,
    stalled: u64,
    /// What files held before they were overwritten, for stale reads.
    stale: BTreeMap<PathBuf, Arc<Vec<u8>>>,
    keep_stale: bool,
}

#[derive(Clone, Copy, Debug)]
struct FailFrom {
    skip: u64,
    once: bool,
    errno: i32,
}

#[derive(Debug)]
struct Control {
    state: Mutex<State>,
    released: Condvar,
    stalling: Condvar,
}

impl Control {
    /// Counts the operation and decides its fate.
    fn decide(&self, op: Op, path: &Path) -> Option<Effect> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.operations += 1;
        *state.counts.entry(op).or_default() += 1;
        let effect = match (state.away, &mut state.fail) {
            (Some(errno), _) => Some(Effect::Error(errno)),
            (None, Some(fail)) if fail.skip == 0 => {
                let errno = fail.errno;
                if fail.once {
                    state.fail = None;
                }
                Some(Effect::Error(errno))
            }
            (None, fail) => {
                if let Some(fail) = fail {
                    fail.skip -= 1;
                }
                let random = &mut state.random;
                let fired = state.rules.iter_mut().find_map(|rule| {
                    rule.fires(op, path, |rate| random.chance(rate)).then_some(&rule.effect)
                });
                fired.cloned()
            }
        };
        state.injected += u64::from(effect.is_some());
        let watch = effect.as_ref().and(state.watch.clone());
        drop(guard);
        if let Some(Watch(watcher)) = watch {
            watcher(op);
        }
        effect
    }

    fn below(&self, bound: usize) -> usize {
        self.state.lock().random.index(bound)
    }

    fn wait_for_release(&self) {
        let mut state = self.state.lock();
        let before = state.releases;
        state.stalled += 1;
        self.stalling.notify_all();
        while state.releases == before {
            self.released.wait(&mut state);
        }
        state.stalled -= 1;
    }

    /// For an operation that transfers nothing: waits, or fails.
    fn check(&self, op: Op, path: &Path) -> io::Result<()> {
        match self.decide(op, path) {
            Some(effect) => self.apply_plain(effect),
            None => Ok(()),
        }
    }

    fn apply_plain(&self, effect: Effect) -> io::Result<()> {
        match effect {
            Effect::Stall => self.wait_for_release(),
            Effect::StallFor(duration, clock) => clock.sleep(duration),
            Effect::Error(errno) => return Err(io::Error::from_raw_os_error(errno)),
            Effect::ShortRead => return Err(io::ErrorKind::UnexpectedEof.into()),
            Effect::ShortWrite => return Err(io::Error::from_raw_os_error(ENOSPC)),
            Effect::TornWrite | Effect::FlipBit | Effect::MisdirectedRead | Effect::StaleRead => {
                return Err(io::Error::from_raw_os_error(EIO));
            }
        }
        Ok(())
    }
}

/// A storage that fails as its rules say.
#[derive(Debug)]
pub struct FaultStorage {
    inner: Arc<dyn Storage>,
    control: Arc<Control>,
}

impl FaultStorage {
    /// `inner` without faults; `seed` decides random ones.
    #[must_use]
    pub fn new(inner: Arc<dyn Storage>, seed: u64) -> Self {
        let state = State {
            rules: Vec::new(),
            watch: None,
            random: Seeded::new(seed),
            counts: BTreeMap::new(),
            operations: 0,
            injected: 0,
            fail: None,
            away: None,
            releases: 0,
            stalled: 0,
            stale: BTreeMap::new(),
            keep_stale: false,
        };
        let (released, stalling) = (Condvar::new(), Condvar::new());
        Self { inner, control: Arc::new(Control { state: Mutex::new(state), released, stalling }) }
    }

    /// Adds a rule. Files overwritten before a [`Effect::StaleRead`] rule was added have no older content.
    pub fn add(&self, rule: Rule) {
        let mut state = self.control.state.lock();
        state.keep_stale |= matches!(rule.effect, Effect::StaleRead);
        state.rules.push(rule);
    }

    /// Removes every rule and pending [`FaultStorage::fail_nth`]; stalled operations stay stalled.
    pub fn clear(&self) {
        let mut state = self.control.state.lock();
        state.rules.clear();
        state.fail = None;
    }

    /// Has `watcher` told of each fault from now on.
    pub fn watch(&self, watcher: Arc<Watcher>) {
        self.control.state.lock().watch = Some(Watch(watcher));
    }

    /// The `n`-th operation from now (0 is the next) fails with `errno`, once.
    pub fn fail_nth(&self, n: u64, errno: i32) {
        self.control.state.lock().fail = Some(FailFrom { skip: n, once: true, errno });
    }

    /// Every operation from the `n`-th from now on (0 is the next) fails with `errno`.
    pub fn fail_from(&self, n: u64, errno: i32) {
        self.control.state.lock().fail = Some(FailFrom { skip: n, once: false, errno });
    }

    /// The device is gone: every operation fails with `errno` ([`EIO`], [`ENODEV`], ...).
    pub fn away(&self, errno: i32) {
        self.control.state.lock().away = Some(errno);
    }

    /// The device is back.
    pub fn back(&self) {
        self.control.state.lock().away = None;
    }

    /// Lets every stalled operation go on.
    pub fn release(&self) {
        self.control.state.lock().releases += 1;
        self.control.released.notify_all();
    }

    /// Operations waiting in [`Effect::Stall`] now.
    #[must_use]
    pub fn stalled(&self) -> u64 {
        self.control.state.lock().stalled
    }

    /// Waits until `count` operations stall.
    pub fn wait_stalled(&self, count: u64) {
        let mut state = self.control.state.lock();
        while state.stalled < count {
            self.control.stalling.wait(&mut state);
        }
    }

    /// Operations so far, failed ones included.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.control.state.lock().operations
    }

    /// Operations of one kind so far, failed ones included.
    #[must_use]
    pub fn operations_of(&self, op: Op) -> u64 {
        self.control.state.lock().counts.get(&op).copied().unwrap_or(0)
    }

    /// Faults that happened so far.
    #[must_use]
    pub fn injected(&self) -> u64 {
        self.control.state.lock().injected
    }

    /// Remembers what the file holds, before it is overwritten or replaced, if a rule may ask for it.
    fn remember(&self, path: &Path) -> io::Result<()> {
        if !self.control.state.lock().keep_stale || !self.inner.exists(path)? {
            return Ok(());
        }
        let file = self.inner.open(path, IoMode::Buffered)?;
        let len = usize::try_from(file.len()?).unwrap_or(usize::MAX);
        let mut buf = AlignedBuf::new();
        let range = file.read_at(0, len, &mut buf)?;
        let bytes = Arc::new(buf.as_slice()[range].to_vec());
        self.control.state.lock().stale.insert(path.to_path_buf(), bytes);
        Ok(())
    }
}

impl Storage for FaultStorage {
    fn create(&self, path: &Path, how: Create) -> io::Result<Box<dyn WriteFile>> {
        self.control.check(Op::Create, path)?;
        if how.reuse {
            self.remember(path)?;
        }
        let inner = self.inner.create(path, how)?;
        Ok(Box::new(file::FaultWriter::new(inner, path, &self.control)))
    }

    fn open(&self, path: &Path, mode: IoMode) -> io::Result<Arc<dyn ReadFile>> {
        self.control.check(Op::Open, path)?;
        Ok(Arc::new(file::FaultReader::new(self.inner.open(path, mode)?, path, &self.control)))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.control.check(Op::SyncDir, dir)?;
        self.inner.sync_dir(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.control.check(Op::CreateDir, dir)?;
        self.inner.create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.control.check(Op::Rename, from)?;
        self.remember(to)?;
        self.inner.rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.control.check(Op::Link, from)?;
        self.inner.hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.control.check(Op::Remove, path)?;
        self.inner.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.control.check(Op::List, dir)?;
        self.inner.list(dir)
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        self.control.check(Op::Len, path)?;
        self.inner.file_len(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.control.check(Op::Exists, path)?;
        self.inner.exists(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.control.check(Op::Lock, path)?;
        self.inner.lock(path)
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        self.control.check(Op::Space, dir)?;
        self.inner.free_space(dir)
    }
}
