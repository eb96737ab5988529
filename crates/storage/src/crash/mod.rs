//! A file system in memory that knows what a power loss may leave of it.
//!
//! The running program sees a [`MemoryStorage`]; every change is logged as a numbered persistence point, and
//! [`CrashLog::image`] builds, from any point and without running the program again, one of the states that a power
//! loss there may leave, as a fresh `CrashStorage` (so that a recovery can be crashed in turn).
//!
//! Invariants
//! - Bytes synced by `sync` and names synced by `sync_dir` are in every later image. A file's data and its name are
//!   apart: synced data under a name that is not synced may vanish with the name.
//! - Appends not flushed are in no image: they have not left the process.
//! - The log's lock is held while a change is made, so the order of the log is the order of the changes.
//!
//! Tests: `tests.rs` and `tests/conformance.rs`.

mod disk;
mod image;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kelvin_base::sync::Mutex;

use crate::memory::{MemoryFile, WRITE_BUFFER_BYTES};
use crate::{Create, FileLock, IoMode, MemoryStorage, ReadFile, Storage, WriteFile};
use disk::{Change, Disk, EntryChange};
pub use image::{CrashModel, FileSystem, Unsynced};

/// Points between two kept states of the disk: an image replays fewer changes than this.
const CHECKPOINT_INTERVAL: usize = 128;

#[derive(Debug, Default)]
struct Log {
    /// Changes so far.
    points: usize,
    changes: Vec<Change>,
    /// The disk before change `index * CHECKPOINT_INTERVAL`.
    checkpoints: Vec<Disk>,
    disk: Disk,
    /// Neither of the lists is kept: images are of now alone.
    forgets: bool,
}

impl Log {
    fn push(&mut self, change: Change) {
        if !self.forgets && self.changes.len().is_multiple_of(CHECKPOINT_INTERVAL) {
            self.checkpoints.push(self.disk.clone());
        }
        self.disk.apply(&change);
        self.points += 1;
        if !self.forgets {
            self.changes.push(change);
        }
    }
}

/// The persistence points of a [`CrashStorage`]. Clones share them.
#[derive(Clone, Debug)]
pub struct CrashLog {
    log: Arc<Mutex<Log>>,
}

impl CrashLog {
    /// Changes so far. A point `p` is the moment after the first `p` changes: `0..=points()` are valid.
    #[must_use]
    pub fn points(&self) -> usize {
        self.log.lock().points
    }

    /// One of the states that a power loss at `point` may leave; a later point than the last is the last, and so is
    /// every point of a storage that forgets.
    #[must_use]
    pub fn image(&self, point: usize, seed: u64, model: CrashModel) -> CrashStorage {
        let log = self.log.lock();
        let point = point.min(log.points);
        let index = point / CHECKPOINT_INTERVAL;
        let image = match log.checkpoints.get(index) {
            _ if point == log.points => image::choose(&log.disk, seed, model),
            Some(checkpoint) => {
                let mut disk = checkpoint.clone();
                for change in &log.changes[index * CHECKPOINT_INTERVAL..point] {
                    disk.apply(change);
                }
                image::choose(&disk, seed, model)
            }
            None => image::choose(&log.disk, seed, model),
        };
        let forgets = log.forgets;
        drop(log);
        CrashStorage::from_image(image, forgets)
    }
}

/// A file system whose power can fail. Clones share it.
#[derive(Clone, Debug)]
pub struct CrashStorage {
    live: MemoryStorage,
    log: CrashLog,
}

impl Default for CrashStorage {
    fn default() -> Self {
        Self::new()
    }
}

impl CrashStorage {
    /// An empty file system.
    #[must_use]
    pub fn new() -> Self {
        Self::with_log(MemoryStorage::new(), Log::default())
    }

    /// An empty file system of which images can be had of the present alone: for long runs. So it is with its images.
    #[must_use]
    pub fn forgetful() -> Self {
        Self::with_log(MemoryStorage::new(), Log { forgets: true, ..Log::default() })
    }

    fn with_log(live: MemoryStorage, log: Log) -> Self {
        Self { live, log: CrashLog { log: Arc::new(Mutex::new(log)) } }
    }

    /// Changes how many bytes it can hold; what it holds stays.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        self.live.set_capacity(capacity_bytes);
    }

    /// Sum of the lengths of its files, bytes.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.live.used_bytes()
    }

    fn from_image(image: image::Image, forgets: bool) -> Self {
        let mut disk = Disk::default();
        disk.entries.extend(image.dirs.iter().map(|dir| (dir.clone(), None)));
        let live = MemoryStorage::new();
        let kept: Vec<_> = image.files.clone();
        for (id, (names, content)) in live.populate(image.dirs, image.files).into_iter().zip(kept) {
            disk.entries.extend(names.into_iter().map(|name| (name, Some(id))));
            disk.inodes.insert(id, disk::Inode { durable: content, pending: Vec::new() });
        }
        Self::with_log(live, Log { disk, forgets, ..Log::default() })
    }

    /// The persistence points.
    #[must_use]
    pub fn log(&self) -> CrashLog {
        self.log.clone()
    }

    /// As [`CrashLog::points`].
    #[must_use]
    pub fn points(&self) -> usize {
        self.log.points()
    }

    /// What a power loss now may leave.
    #[must_use]
    pub fn crash_image(&self, seed: u64, model: CrashModel) -> Self {
        self.log.image(usize::MAX, seed, model)
    }

    /// True if the file's name survives a power loss now (RELIABILITY M1).
    #[must_use]
    pub fn is_entry_synced(&self, path: &Path) -> bool {
        let log = self.log.log.lock();
        log.disk.is_entry_synced(path, self.live.id_of(path))
    }

    fn entries(&self, log: &mut Log, sets: Vec<(PathBuf, Option<Option<u64>>)>) {
        debug_assert!(!sets.is_empty(), "a change names what it changes");
        log.push(Change::Entries(EntryChange { sets }));
    }

    fn create_file(&self, path: &Path, reuse: bool) -> io::Result<Arc<MemoryFile>> {
        let mut log = self.log.log.lock();
        let (file, made) = self.live.create_file(path, reuse)?;
        if made {
            self.entries(&mut log, vec![(path.to_path_buf(), Some(Some(file.id)))]);
        }
        Ok(file)
    }
}

#[derive(Debug)]
struct CrashWriter {
    file: Arc<MemoryFile>,
    log: CrashLog,
    buffer: Vec<u8>,
    written: usize,
}

impl CrashWriter {
    fn write_out(&mut self, log: &mut Log) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.file.write(u64::try_from(self.written).unwrap_or(u64::MAX), &self.buffer)?;
        let data = Arc::from(self.buffer.as_slice());
        log.push(Change::Write { id: self.file.id, offset: self.written, data });
        self.written += self.buffer.len();
        self.buffer.clear();
        Ok(())
    }
}

impl WriteFile for CrashWriter {
    fn append(&mut self, data: &[u8]) -> io::Result<()> {
        self.buffer.extend_from_slice(data);
        if self.buffer.len() >= WRITE_BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        let log = self.log.clone();
        self.write_out(&mut log.log.lock())
    }

    fn sync(&mut self) -> io::Result<()> {
        let log = self.log.clone();
        let mut log = log.log.lock();
        self.write_out(&mut log)?;
        log.push(Change::Sync { id: self.file.id });
        Ok(())
    }

    fn len(&self) -> u64 {
        u64::try_from(self.written + self.buffer.len()).unwrap_or(u64::MAX)
    }
}

impl Storage for CrashStorage {
    fn create(&self, path: &Path, how: Create) -> io::Result<Box<dyn WriteFile>> {
        let file = self.create_file(path, how.reuse)?;
        Ok(Box::new(CrashWriter { file, log: self.log.clone(), buffer: Vec::new(), written: 0 }))
    }

    fn open(&self, path: &Path, mode: IoMode) -> io::Result<Arc<dyn ReadFile>> {
        self.live.open(path, mode)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut log = self.log.log.lock();
        self.live.sync_dir(dir)?;
        log.push(Change::SyncDir(dir.to_path_buf()));
        Ok(())
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut log = self.log.log.lock();
        let missing = self.live.missing_dirs(dir);
        self.live.create_dir_all(dir)?;
        for dir in missing {
            self.entries(&mut log, vec![(dir, Some(None))]);
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut log = self.log.log.lock();
        let id = self.live.id_of(from);
        self.live.rename(from, to)?;
        let same = id.is_none() || from == to;
        if !same {
            self.entries(&mut log, vec![(from.to_path_buf(), None), (to.to_path_buf(), Some(id))]);
        }
        Ok(())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut log = self.log.log.lock();
        self.live.hard_link(from, to)?;
        let id = self.live.id_of(to);
        self.entries(&mut log, vec![(to.to_path_buf(), Some(id))]);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut log = self.log.log.lock();
        self.live.remove(path)?;
        self.entries(&mut log, vec![(path.to_path_buf(), None)]);
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.live.list(dir)
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        self.live.file_len(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.live.exists(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.create_file(path, true)?;
        self.live.lock(path)
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        self.live.free_space(dir)
    }
}
