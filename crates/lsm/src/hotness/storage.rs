//! The fast tier as RALT sees it: every byte is in the store's books before it is written, and counted.
//!
//! Invariants
//! - H1 A file's blocks are in the books before they are on the disk, and until it is known to be gone.
//! - H2 RALT leaves the reserve alone, but for its small state, and takes no more than it was given: it is told that the disk is
//!   full. Room for its next step stays set aside while others fill the disk, and what its files leave, and what a job gives back, comes back to that first: an
//!   eviction that begins can go on, or nothing would ever tell what is cold when room is short.
//! - H3 Its failures are not the tier's: nobody but RALT hears of them, since nothing is lost with its files.
//!
//! Tests: `tests.rs` beside.

#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kelvin_base::Tier;
use kelvin_base::sync::Mutex;
use kelvin_storage::{AlignedBuf, Create, FileLock, IoMode, ReadFile, Storage, WriteFile};

use crate::space::{Priority, Reservation, Space, on_disk_bytes};
use crate::tiers::{Purpose, TierHandle};

/// RALT's directory in the fast one.
pub const DIR_NAME: &str = "ralt";
/// What the names of its files begin with in the books.
pub const IN_BOOKS: &str = "ralt/";

/// What a file of RALT's is called in the books.
fn in_books(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    format!("{IN_BOOKS}{name}")
}

/// Enters the files that lie in RALT's directory into the books.
fn adopt(fast: &TierHandle, space: &Space) {
    let dir = fast.path(DIR_NAME);
    // A directory that is not there holds nothing; one that cannot be listed is of no use to RALT either.
    for name in fast.storage().list(&dir).unwrap_or_default() {
        let path = dir.join(name);
        if let Ok(bytes) = fast.storage().file_len(&path) {
            space.file_added(Tier::Fast, &in_books(&path), bytes);
        }
    }
}

/// Removes what a RALT has left behind, for a store that keeps none. What cannot be removed stays in the books.
pub fn discard(fast: &TierHandle, space: &Space) {
    adopt(fast, space);
    let dir = fast.path(DIR_NAME);
    for name in fast.storage().list(&dir).unwrap_or_default() {
        let is_ours = name.extension().is_some_and(|extension| extension == "ralt")
            || name.to_str().is_some_and(|name| matches!(name, "STATE" | "STATE.new"));
        let path = dir.join(name);
        if is_ours && fast.storage().remove(&path).is_ok() {
            space.file_removed(Tier::Fast, &in_books(&path));
        }
    }
}

/// The storage of RALT's files.
#[derive(Clone, Debug)]
pub struct BookedStorage {
    fast: TierHandle,
    space: Space,
    bytes_max: u64,
    step_bytes: u64,
    /// Room for the next step, as far as there was some.
    ahead: Arc<Mutex<Option<Reservation>>>,
    /// A write found no room, and half a step has not been set aside since.
    is_starved: Arc<AtomicBool>,
}

impl BookedStorage {
    /// The files of RALT on `fast`, which may take `bytes_max` together, `step_bytes` at a time. Those that are there are entered into
    /// the books.
    #[must_use]
    pub fn new(fast: TierHandle, space: Space, bytes_max: u64, step_bytes: u64) -> Self {
        adopt(&fast, &space);
        let ahead = space.reserve(Tier::Fast, step_bytes, Priority::Normal).ok();
        let ahead = ahead.or_else(|| space.reserve(Tier::Fast, 0, Priority::Essential).ok());
        Self {
            fast,
            space,
            bytes_max,
            step_bytes,
            ahead: Arc::new(Mutex::new(ahead)),
            is_starved: Arc::default(),
        }
    }

    /// Sets aside anew what was used of the room for a step, as far as there is more than `kept_bytes`.
    pub fn look_ahead(&self, kept_bytes: u64) {
        if let Some(ahead) = &mut *self.ahead.lock() {
            let missing_bytes = self.step_bytes.saturating_sub(ahead.left_bytes());
            let free_bytes = self.space.available(Tier::Fast, Priority::Essential).unwrap_or(u64::MAX);
            let free_bytes = free_bytes.saturating_sub(kept_bytes);
            // Others may have been faster; there is a next time.
            drop(ahead.grow(missing_bytes.min(free_bytes), Priority::Essential));
            if ahead.left_bytes() >= self.step_bytes / 2 {
                self.is_starved.store(false, Ordering::Relaxed);
            }
        }
    }

    /// What is missing of the room for half a step once there was too little for a write: neither set aside nor free, bytes.
    pub fn lacking_bytes(&self) -> u64 {
        if !self.is_starved.load(Ordering::Relaxed) {
            return 0;
        }
        let left_bytes = self.ahead.lock().as_ref().map_or(0, Reservation::left_bytes);
        let free_bytes = self.space.available(Tier::Fast, Priority::Normal).unwrap_or(u64::MAX);
        (self.step_bytes / 2).saturating_sub(left_bytes).saturating_sub(free_bytes)
    }

    /// Room set aside for the next step now, bytes.
    pub(super) fn ahead_bytes(&self) -> u64 {
        self.ahead.lock().as_ref().map_or(0, Reservation::left_bytes)
    }

    /// Takes the file `name` out of the books.
    fn unbook(&self, name: &str) {
        match &mut *self.ahead.lock() {
            Some(ahead) => ahead.take_over(name, self.step_bytes),
            None => drop(self.space.file_removed(Tier::Fast, name)),
        }
    }

    /// Where they lie.
    #[must_use]
    pub fn dir(&self) -> PathBuf {
        self.fast.path(DIR_NAME)
    }

    fn device(&self) -> &dyn Storage {
        &**self.fast.storage()
    }

    /// Enters `name`, so far `booked_bytes` long, with `bytes`.
    fn book(&self, name: &str, booked_bytes: u64, bytes: u64) -> io::Result<()> {
        let more = bytes - booked_bytes;
        let taken = self.space.used_below(Tier::Fast, IN_BOOKS);
        if taken.saturating_add(more) > self.bytes_max {
            return Err(io::ErrorKind::StorageFull.into());
        }
        // Without its state all runs would be lost at the next opening, and it is a block or two.
        let is_state = name.ends_with("STATE.new");
        let priority = if is_state { Priority::Essential } else { Priority::Normal };
        if let Ok(mut reserved) = self.space.reserve(Tier::Fast, more, priority) {
            reserved.file_written(name, bytes);
            return Ok(());
        }
        let mut ahead = self.ahead.lock();
        let Some(ahead) = ahead.as_mut().filter(|ahead| ahead.left_bytes() >= more) else {
            self.is_starved.store(true, Ordering::Relaxed);
            return Err(io::ErrorKind::StorageFull.into());
        };
        ahead.file_written(name, bytes);
        Ok(())
    }
}

impl Storage for BookedStorage {
    fn create(&self, path: &Path, how: Create) -> io::Result<Box<dyn WriteFile>> {
        let inner = self.device().create(path, how)?;
        Ok(Box::new(BookedFile { inner, storage: self.clone(), name: in_books(path), booked_bytes: 0 }))
    }

    fn open(&self, path: &Path, mode: IoMode) -> io::Result<Arc<dyn ReadFile>> {
        let inner = self.device().open(path, mode)?;
        Ok(Arc::new(CountedFile { inner, fast: self.fast.clone() }))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.device().sync_dir(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.device().create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.device().rename(from, to)?;
        self.space.file_renamed(Tier::Fast, &in_books(from), &in_books(to));
        Ok(())
    }

    fn hard_link(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        // Its blocks would be in the books twice, or go too early.
        Err(io::ErrorKind::Unsupported.into())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let removed = self.device().remove(path);
        let is_gone = match &removed {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        if is_gone {
            self.unbook(&in_books(path));
        }
        removed
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.device().list(dir)
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        self.device().file_len(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.device().exists(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.device().lock(path)
    }

    /// What RALT may still write.
    fn free_space(&self, _dir: &Path) -> io::Result<u64> {
        let left_bytes = self.bytes_max.saturating_sub(self.space.used_below(Tier::Fast, IN_BOOKS));
        let free_bytes = self.space.available(Tier::Fast, Priority::Normal).unwrap_or(u64::MAX);
        let ahead_bytes = self.ahead.lock().as_ref().map_or(0, Reservation::left_bytes);
        Ok(left_bytes.min(free_bytes.saturating_add(ahead_bytes)))
    }
}

#[derive(Debug)]
struct BookedFile {
    inner: Box<dyn WriteFile>,
    storage: BookedStorage,
    name: String,
    booked_bytes: u64,
}

impl WriteFile for BookedFile {
    fn append(&mut self, data: &[u8]) -> io::Result<()> {
        let bytes = on_disk_bytes(self.inner.len() + data.len() as u64);
        if bytes > self.booked_bytes {
            self.storage.book(&self.name, self.booked_bytes, bytes)?;
            self.booked_bytes = bytes;
        }
        self.inner.append(data)?;
        self.storage.fast.count_written(Purpose::Hotness, data.len() as u64);
        Ok(())
    }

    fn room(&self) -> usize {
        self.inner.room()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }

    fn sync(&mut self) -> io::Result<()> {
        self.inner.sync()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }
}

#[derive(Debug)]
struct CountedFile {
    inner: Arc<dyn ReadFile>,
    fast: TierHandle,
}

impl ReadFile for CountedFile {
    fn read_at(&self, offset: u64, len: usize, buf: &mut AlignedBuf) -> io::Result<Range<usize>> {
        self.fast.count_read(Purpose::Hotness, len as u64);
        self.inner.read_at(offset, len, buf)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
}
