//! A slower device: limits of I/Os and bytes per second, and a fixed latency.
//!
//! A read costs one I/O per [`Limits::request_bytes`] begun, and its bytes. Appends cost when they go out: at a
//! flush, a sync, or once a request's worth has gathered. A sync with nothing to write, and a directory sync, cost one
//! write I/O; an open costs one read I/O. Other directory operations cost nothing.
//! Invariant: waiting happens before the I/O, by [`Clock::sleep`], never while a lock is held.
//! Tests: `tests.rs` and `tests/conformance.rs`.

mod bucket;
#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kelvin_base::Clock;

use crate::{AlignedBuf, Create, FileLock, IoMode, ReadFile, Storage, WriteFile};
use bucket::Bucket;

/// What a [`ThrottledStorage`] allows; `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Reads per second.
    pub read_iops: Option<u64>,
    /// Writes per second.
    pub write_iops: Option<u64>,
    /// Bytes read per second.
    pub read_bandwidth: Option<u64>,
    /// Bytes written per second.
    pub write_bandwidth: Option<u64>,
    /// Added to every read, sync and open; a flush may end in a cache.
    pub latency: Duration,
    /// Largest transfer that counts as one I/O, bytes.
    pub request_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            read_iops: None,
            write_iops: None,
            read_bandwidth: None,
            write_bandwidth: None,
            latency: Duration::ZERO,
            request_bytes: 256 << 10,
        }
    }
}

/// What went through a [`ThrottledStorage`] so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Read I/Os.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write I/Os, syncs included.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

#[derive(Debug)]
struct Direction {
    iops: Option<Bucket>,
    bandwidth: Option<Bucket>,
    ios: AtomicU64,
    bytes: AtomicU64,
}

impl Direction {
    fn new(iops: Option<u64>, bandwidth: Option<u64>) -> Self {
        let (iops, bandwidth) = (iops.map(Bucket::new), bandwidth.map(Bucket::new));
        Self { iops, bandwidth, ios: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    fn take(&self, now: Duration, ios: u64, bytes: u64) -> Duration {
        self.ios.fetch_add(ios, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let wait = |bucket: &Option<Bucket>, amount| bucket.as_ref().map(|bucket| bucket.take(now, amount));
        wait(&self.iops, ios).max(wait(&self.bandwidth, bytes)).unwrap_or_default()
    }
}

#[derive(Debug)]
struct Gate {
    limits: Limits,
    read: Direction,
    write: Direction,
    clock: Arc<dyn Clock>,
}

impl Gate {
    /// How long `bytes` have to wait for the device's rates.
    fn turn(&self, direction: &Direction, bytes: u64) -> Duration {
        let ios = bytes.div_ceil(self.limits.request_bytes.max(1)).max(1);
        direction.take(self.clock.now(), ios, bytes)
    }

    /// The same, and what the device takes itself.
    fn delay(&self, direction: &Direction, bytes: u64) -> Duration {
        self.turn(direction, bytes) + self.limits.latency
    }

    fn pass(&self, direction: &Direction, bytes: u64) {
        self.wait(self.delay(direction, bytes));
    }

    fn wait(&self, delay: Duration) {
        if !delay.is_zero() {
            self.clock.sleep(delay);
        }
    }
}

/// A storage that is no faster than its [`Limits`].
#[derive(Debug)]
pub struct ThrottledStorage {
    inner: Arc<dyn Storage>,
    gate: Arc<Gate>,
}

impl ThrottledStorage {
    /// `inner`, slowed down to `limits`, waiting on `clock`.
    #[must_use]
    pub fn new(inner: Arc<dyn Storage>, limits: Limits, clock: Arc<dyn Clock>) -> Self {
        let read = Direction::new(limits.read_iops, limits.read_bandwidth);
        let write = Direction::new(limits.write_iops, limits.write_bandwidth);
        Self { inner, gate: Arc::new(Gate { limits, read, write, clock }) }
    }

    /// What went through so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic {
            reads: count(&self.gate.read.ios),
            read_bytes: count(&self.gate.read.bytes),
            writes: count(&self.gate.write.ios),
            written_bytes: count(&self.gate.write.bytes),
        }
    }
}

#[derive(Debug)]
struct ThrottledReader {
    inner: Arc<dyn ReadFile>,
    gate: Arc<Gate>,
}

impl ReadFile for ThrottledReader {
    fn read_at(&self, offset: u64, len: usize, buf: &mut AlignedBuf) -> io::Result<Range<usize>> {
        self.gate.pass(&self.gate.read, u64::try_from(len).unwrap_or(u64::MAX));
        self.inner.read_at(offset, len, buf)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
}

#[derive(Debug)]
struct ThrottledWriter {
    inner: Box<dyn WriteFile>,
    gate: Arc<Gate>,
    /// Bytes appended that have not been paid for.
    owed_bytes: u64,
}

impl ThrottledWriter {
    /// How long what is owed has to wait for the device's rates.
    fn pay(&mut self) -> Duration {
        self.gate.turn(&self.gate.write, std::mem::take(&mut self.owed_bytes))
    }
}

impl WriteFile for ThrottledWriter {
    fn append(&mut self, data: &[u8]) -> io::Result<()> {
        self.owed_bytes += u64::try_from(data.len()).unwrap_or(u64::MAX);
        if self.owed_bytes >= self.gate.limits.request_bytes {
            let turn = self.pay();
            self.gate.wait(turn);
        }
        self.inner.append(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.owed_bytes > 0 {
            let turn = self.pay();
            self.gate.wait(turn);
        }
        self.inner.flush()
    }

    fn sync(&mut self) -> io::Result<()> {
        let turn = self.pay();
        self.gate.wait(turn + self.gate.limits.latency);
        self.inner.sync()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }
}

impl Storage for ThrottledStorage {
    fn create(&self, path: &Path, how: Create) -> io::Result<Box<dyn WriteFile>> {
        let inner = self.inner.create(path, how)?;
        Ok(Box::new(ThrottledWriter { inner, gate: Arc::clone(&self.gate), owed_bytes: 0 }))
    }

    fn open(&self, path: &Path, mode: IoMode) -> io::Result<Arc<dyn ReadFile>> {
        self.gate.pass(&self.gate.read, 0);
        let inner = self.inner.open(path, mode)?;
        Ok(Arc::new(ThrottledReader { inner, gate: Arc::clone(&self.gate) }))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.gate.pass(&self.gate.write, 0);
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
