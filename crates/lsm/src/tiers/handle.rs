//! One tier: its directory, its storage, and every operation on its files.
//!
//! Names are relative to the tier's directory; absolute paths are taken as they are (checkpoints).
//! Tests: `tests.rs` beside.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kelvin_base::{Clock, Error, ErrorKind, Result, Tier};
use kelvin_storage::{AlignedBuf, Create, FileLock, IoMode, ReadFile, Storage, WriteFile};

use super::counters::{Counters, IoStats, Purpose};
use super::files::{CountedRead, CountedWrite};
use super::health::{Health, HealthReport};
use super::identity;

#[derive(Debug)]
struct Inner {
    tier: Tier,
    dir: PathBuf,
    storage: Arc<dyn Storage>,
    clock: Arc<dyn Clock>,
    health: Health,
    counters: Counters,
}

/// A tier. Clones share its counters and its health.
#[derive(Clone, Debug)]
pub struct TierHandle(Arc<Inner>);

/// Linux error numbers that say "the device is not there" and have no [`io::ErrorKind`] of their own.
const AWAY_ERRNO: [i32; 7] = [
    5,   // EIO
    6,   // ENXIO
    19,  // ENODEV
    108, // ESHUTDOWN
    112, // EHOSTDOWN
    121, // EREMOTEIO
    123, // ENOMEDIUM
];

/// True if `error` says that the device, not the request, is at fault.
fn says_away(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(
        error.kind(),
        K::TimedOut
            | K::StaleNetworkFileHandle
            | K::NotConnected
            | K::HostUnreachable
            | K::NetworkUnreachable
            | K::NetworkDown
            | K::ConnectionReset
            | K::ConnectionAborted
            | K::ConnectionRefused
    ) || error.raw_os_error().is_some_and(|number| AWAY_ERRNO.contains(&number))
}

impl TierHandle {
    /// The tier `tier` in `dir` of `storage`. Touches no file.
    #[must_use]
    pub fn new(
        tier: Tier,
        dir: impl Into<PathBuf>,
        storage: Arc<dyn Storage>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (health, counters) = (Health::default(), Counters::default());
        Self(Arc::new(Inner { tier, dir: dir.into(), storage, clock, health, counters }))
    }

    /// Which tier this is.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.0.tier
    }

    /// Its directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// The storage underneath, uncounted.
    #[must_use]
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.0.storage
    }

    /// The full path of `name`.
    #[must_use]
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.dir.join(name)
    }

    /// Whether the tier answers.
    #[must_use]
    pub fn health(&self) -> &Health {
        &self.0.health
    }

    /// What is known of the tier's outages.
    #[must_use]
    pub fn health_report(&self) -> HealthReport {
        self.0.health.report(&*self.0.clock)
    }

    /// What the tier has read and written since it was opened.
    #[must_use]
    pub fn io_stats(&self) -> IoStats {
        self.0.counters.stats()
    }

    /// Counts a read of `bytes` that did not go through this handle.
    pub(crate) fn count_read(&self, purpose: Purpose, bytes: u64) {
        self.0.counters.read(purpose, bytes);
    }

    /// Counts a write of `bytes` that did not go through this handle.
    pub(crate) fn count_written(&self, purpose: Purpose, bytes: u64) {
        self.0.counters.written(purpose, bytes);
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// Tells an error of this tier in Kelvin's terms: names the tier, tells a device that is away from a request that
    /// failed, and says what to do. Errors without an operating-system error underneath only gain the tier.
    #[must_use]
    pub fn classify(&self, error: Error) -> Error {
        let tier = self.tier();
        let error = error.tier(tier);
        let Some(os) = error.os() else { return error };
        let dir = self.dir().display();
        let (kind, advice) = match os.kind() {
            _ if tier == Tier::Slow && says_away(os) => (
                ErrorKind::TierUnavailable,
                format!(
                    "the disk at {dir} does not answer; nothing is lost, and it is used again when it does"
                ),
            ),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => (
                ErrorKind::NoSpace,
                format!("free space on the disk of {dir}; writing resumes by itself, and reads go on"),
            ),
            io::ErrorKind::ReadOnlyFilesystem => (
                ErrorKind::ReadOnly,
                format!("the file system of {dir} takes no writes: check the disk, and mount it for writing"),
            ),
            io::ErrorKind::PermissionDenied => {
                (ErrorKind::Io, format!("let this user read and write {dir} and the files in it"))
            }
            io::ErrorKind::NotFound => (
                ErrorKind::Io,
                format!(
                    "the file is missing from {dir}; if nobody moved it, run `kelvin check` to see what it held"
                ),
            ),
            _ if says_away(os) => (
                ErrorKind::Io,
                format!("the disk at {dir} failed: look at the system's log, and run `kelvin check`"),
            ),
            _ => return error,
        };
        error.as_kind(kind).advice(advice)
    }

    fn failed(&self, what: &str, path: &Path, source: io::Error) -> Error {
        let absent = matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists);
        // A store in use by another is the normal answer of a lock, and unsupported links are copied instead. A directory has
        // no length.
        let normal = matches!(
            source.kind(),
            io::ErrorKind::WouldBlock
                | io::ErrorKind::CrossesDevices
                | io::ErrorKind::Unsupported
                | io::ErrorKind::IsADirectory
        );
        let away = says_away(&source);
        let error = self.classify(Error::io(format!("cannot {what} the file"), path, source));
        if !absent && !normal {
            self.0.health.failed(&error, away, &*self.0.clock);
        }
        error
    }

    /// Notes the outcome of an operation on an open file and passes it on.
    pub(super) fn noted<T>(&self, what: &str, path: &Path, outcome: io::Result<T>) -> io::Result<T> {
        match &outcome {
            Ok(_) => self.0.health.answered(&*self.0.clock),
            Err(error) => {
                // `io::Error` cannot be cloned: the health keeps a copy with the same number or text.
                let copy = match error.raw_os_error() {
                    Some(number) => io::Error::from_raw_os_error(number),
                    None => io::Error::new(error.kind(), error.to_string()),
                };
                let _told = self.failed(what, path, copy);
            }
        }
        outcome
    }

    fn told<T>(&self, what: &str, path: &Path, outcome: io::Result<T>) -> Result<T> {
        match outcome {
            Ok(value) => {
                self.0.health.answered(&*self.0.clock);
                Ok(value)
            }
            Err(source) => Err(self.failed(what, path, source)),
        }
    }

    /// Makes a file for appending; its writes count for `purpose`.
    ///
    /// # Errors
    /// As [`TierHandle::classify`] tells them.
    pub fn create(
        &self,
        name: impl AsRef<Path>,
        how: Create,
        purpose: Purpose,
    ) -> Result<Box<dyn WriteFile>> {
        let path = self.path(name);
        let inner = self.told("create", &path, self.0.storage.create(&path, how))?;
        Ok(Box::new(CountedWrite { inner, tier: self.clone(), path, purpose }))
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// As [`TierHandle::classify`] tells them. A file missing from a slow tier whose identity file is missing too is
    /// `TierUnavailable`: the disk is not mounted.
    pub fn open(&self, name: impl AsRef<Path>, mode: IoMode) -> Result<Arc<dyn ReadFile>> {
        let path = self.path(name);
        match self.0.storage.open(&path, mode) {
            Ok(inner) => {
                self.0.health.answered(&*self.0.clock);
                Ok(Arc::new(CountedRead { inner, tier: self.clone(), path }))
            }
            Err(source) => Err(self.open_failed(&path, source)),
        }
    }

    fn open_failed(&self, path: &Path, source: io::Error) -> Error {
        let missing = source.kind() == io::ErrorKind::NotFound;
        let error = self.failed("open", path, source);
        let identity = self.path(identity::FILE_NAME);
        if !missing || self.tier() == Tier::Fast || path == identity {
            return error;
        }
        if matches!(self.0.storage.exists(&identity), Ok(true)) {
            return error;
        }
        let error = error.as_kind(ErrorKind::TierUnavailable).advice(format!(
            "{} holds no {} file either, so the slow disk is not mounted there; mount it, nothing is lost",
            self.dir().display(),
            identity::FILE_NAME
        ));
        self.0.health.failed(&error, true, &*self.0.clock);
        error
    }

    /// Makes the directory's entries survive power loss.
    ///
    /// # Errors
    /// As [`TierHandle::classify`] tells them.
    pub fn sync_dir(&self) -> Result<()> {
        self.0.counters.synced();
        self.told("sync", self.dir(), self.0.storage.sync_dir(self.dir()))
    }

    /// Makes the tier's directory and its parents, and makes those that were missing survive power loss.
    ///
    /// # Errors
    /// As [`TierHandle::classify`] tells them.
    pub fn create_dir_all(&self) -> Result<()> {
        let dir = self.dir();
        let mut missing = Vec::new();
        for ancestor in dir.ancestors().filter(|ancestor| !ancestor.as_os_str().is_empty()) {
            if self.told("look for", ancestor, self.0.storage.exists(ancestor))? {
                break;
            }
            missing.push(ancestor);
        }
        self.told("create", dir, self.0.storage.create_dir_all(dir))?;
        for made in missing {
            // A relative name's parent is the working directory.
            let parent = match made.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
            self.told("sync", parent, self.0.storage.sync_dir(parent))?;
        }
        Ok(())
    }

    /// Renames a file, replacing one at `to`.
    ///
    /// # Errors
    /// As [`TierHandle::classify`] tells them.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let (from, to) = (self.path(from), self.path(to));
        self.told("rename", &from, self.0.storage.rename(&from, &to))
    }

    /// Removes a file if it is there; true if it was.
    ///
    /// # Errors
    /// As [`TierHandle::classify`] tells them.
    pub fn remove_if_there(&self, name: impl AsRef<Path>) -> Result<bool> {
        let path = self.path(name);
        match self.0.storage.remove(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            outcome => self.told("remove", &path, outcome).map(|()| true),
        }
    }

    /// True while an operation that was given up is under way: what it does will be there later.
    #[must_use]
    pub fn has_unanswered(&self) -> bool {
        self.0.storage.has_unanswered()
    }

    /// Names in the tier's directory, sorted.
    ///
    /// # Errors
    /// As [`TierHandle::classify`] tells them.
    pub fn list(&self) -> Result<Vec<PathBuf>> {
        self.told("list", self.dir(), self.0.storage.list(self.dir()))
    }

    /// Length of a file, bytes.
    ///
    /// # Errors
    /// As [`TierHandle::classify`] tells them.
    pub fn file_len(&self, name: impl AsRef<Path>) -> Result<u64> {
        let path = self.path(name);
        self.told("ask the length of", &path, self.0.storage.file_len(&path))
    }

    /// True if there is a file or directory of this name.
    ///
    /// # Errors
    /// As [`TierHandle::classify`] tells them.
    pub fn exists(&self, name: impl AsRef<Path>) -> Result<bool> {
        let path = self.path(name);
        self.told("look for", &path, self.0.storage.exists(&path))
    }

    /// Takes the lock file `name`.
    ///
    /// # Errors
    /// `Busy` if somebody, this process included, holds it; else as [`TierHandle::classify`] tells them.
    pub fn lock(&self, name: impl AsRef<Path>) -> Result<Box<dyn FileLock>> {
        let path = self.path(name);
        self.told("lock", &path, self.0.storage.lock(&path)).map_err(|error| {
            let held = error.os().is_some_and(|os| os.kind() == io::ErrorKind::WouldBlock);
            if !held {
                return error;
            }
            let dir = self.dir().display();
            error.as_kind(ErrorKind::Busy).advice(match self.tier() {
                Tier::Fast => format!("another process, or this one, has the store at {dir} open: close it there first"),
                Tier::Slow => format!(
                    "another process, or this one, has the store at {dir} open: close it there first; if it was closed while the disk did not answer, wait until the disk has ended what was asked of it"
                ),
            })
        })
    }

    /// Bytes the disk can still take.
    ///
    /// # Errors
    /// As [`TierHandle::classify`] tells them.
    pub fn free_space(&self) -> Result<u64> {
        self.told("ask the free space at", self.dir(), self.0.storage.free_space(self.dir()))
    }

    /// All bytes of a file of at most `bytes_max`.
    ///
    /// # Errors
    /// `Corruption` if it is longer; else as [`TierHandle::classify`] tells them.
    pub fn read_small(&self, name: impl AsRef<Path>, bytes_max: usize) -> Result<Vec<u8>> {
        let path = self.path(&name);
        let file = self.open(&name, IoMode::Buffered)?;
        let len = file
            .len()
            .map_err(|e| self.classify(Error::io("cannot ask the length of the file", &path, e)))?;
        let Some(len) = usize::try_from(len).ok().filter(|&len| len <= bytes_max) else {
            return Err(Error::corruption(&path, 0, "the file is too long")
                .expected(format!("at most {bytes_max} bytes"), format!("{len} bytes"))
                .tier(self.tier()));
        };
        if len == 0 {
            return Ok(Vec::new());
        }
        let mut buf = AlignedBuf::new();
        let range = file
            .read_at(0, len, &mut buf)
            .map_err(|e| self.classify(Error::io("cannot read the file", &path, e)))?;
        match buf.as_slice().get(range) {
            Some(bytes) => Ok(bytes.to_vec()),
            None => Err(Error::corruption(&path, 0, "the storage answered a range outside its buffer")),
        }
    }

    /// Replaces or makes the small file `name` so that after a crash it holds its old or its new bytes, whole.
    ///
    /// # Errors
    /// As [`TierHandle::classify`] tells them. Which of the two it holds is then unknown.
    pub fn replace_small(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let temporary = format!("{name}.tmp");
        self.remove_if_there(&temporary)?;
        let path = self.path(&temporary);
        let mut file = self.create(&temporary, Create::new(IoMode::Buffered), Purpose::Upkeep)?;
        let written = file.append(bytes).and_then(|()| file.sync());
        drop(file);
        if let Err(source) = written {
            let error = self.classify(Error::io("cannot write the file", &path, source));
            // Nobody reads a leftover: the next replacement removes it, so failing to here changes nothing.
            let _left = self.remove_if_there(&temporary);
            return Err(error);
        }
        self.rename(&temporary, name)?;
        self.sync_dir()
    }
}
