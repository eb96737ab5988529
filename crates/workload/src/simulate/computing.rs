//! A disk whose writes take processor time: what merging and checksumming a table costs, a stretch at a time.
//!
//! Reads are left alone: what an operation takes is counted for it as a whole, and a compaction writes about what it reads.
//! Tests: the simulation's.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kelvin_sim::world::Cores;
use kelvin_storage::{Create, FileLock, IoMode, ReadFile, Storage, WriteFile};

/// Bytes that are computed for at a time: others have their turn in between.
const STRETCH_BYTES: u64 = 64 << 10;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Computing {
    pub(super) inner: Arc<dyn Storage>,
    pub(super) cores: Arc<Cores>,
    /// Processor time of a megabyte written.
    pub(super) megabyte: Duration,
}

impl Storage for Computing {
    fn create(&self, path: &Path, how: Create) -> io::Result<Box<dyn WriteFile>> {
        let inner = self.inner.create(path, how)?;
        Ok(Box::new(Writer { inner, disk: self.clone(), owed_bytes: 0 }))
    }

    fn open(&self, path: &Path, mode: IoMode) -> io::Result<Arc<dyn ReadFile>> {
        self.inner.open(path, mode)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.inner.create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.inner.list(dir)
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        self.inner.file_len(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.inner.lock(path)
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        self.inner.free_space(dir)
    }
}

#[derive(Debug)]
struct Writer {
    inner: Box<dyn WriteFile>,
    disk: Computing,
    /// Written and not yet computed for.
    owed_bytes: u64,
}

impl Writer {
    fn compute(&self, bytes: u64) {
        self.disk.cores.compute(self.disk.megabyte.mul_f64(bytes as f64 / 1e6));
    }
}

impl WriteFile for Writer {
    fn append(&mut self, data: &[u8]) -> io::Result<()> {
        self.owed_bytes += data.len() as u64;
        while self.owed_bytes >= STRETCH_BYTES {
            self.owed_bytes -= STRETCH_BYTES;
            self.compute(STRETCH_BYTES);
        }
        self.inner.append(data)
    }

    fn room(&self) -> usize {
        self.inner.room()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }

    fn sync(&mut self) -> io::Result<()> {
        let owed = std::mem::take(&mut self.owed_bytes);
        self.compute(owed);
        self.inner.sync()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }
}
