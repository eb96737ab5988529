//! The operating system's files: direct or buffered I/O, locks, directories.
//!
//! A file system that refuses direct I/O (at open or at the first transfer) is used through the page cache, and the
//! storage remembers: [`OsStorage::direct_refused`]. Use one `OsStorage` per tier, so that a slow tier's file
//! system does not decide for the fast one.
//! Tests: below, in `transfer`, and `tests/conformance.rs`.

#![expect(clippy::disallowed_methods, reason = "this module is where files are reached")]

mod mount;
#[cfg(target_os = "linux")]
mod ring;
mod transfer;
mod write;

pub use mount::discards;

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(target_os = "linux")]
use std::time::Duration;

use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::{ALIGNMENT, AlignedBuf, Create, FileLock, IoMode, ReadFile, Storage, WriteFile};

/// Reads larger than this that need a larger buffer check the file's length first: the length asked for may come
/// from a corrupted file.
const TRUSTED_READ_BYTES: usize = 1 << 20;

/// Files of the operating system. Clones share what they know of direct I/O.
#[derive(Clone, Debug, Default)]
pub struct OsStorage {
    direct_refused: Arc<AtomicBool>,
}

/// An open descriptor and whether it goes past the page cache.
#[derive(Debug)]
struct Handle {
    file: File,
    direct: AtomicBool,
    refused: Arc<AtomicBool>,
}

impl Handle {
    fn is_direct(&self) -> bool {
        self.direct.load(Ordering::Relaxed)
    }

    /// Goes on through the page cache after the file system refused an aligned transfer.
    fn drop_direct(&self) -> io::Result<()> {
        let flags = rustix::fs::fcntl_getfl(&self.file)?;
        rustix::fs::fcntl_setfl(&self.file, flags & !OFlags::DIRECT)?;
        self.direct.store(false, Ordering::Relaxed);
        self.refused.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Runs `transfer`, once more through the page cache if direct I/O is what is refused.
    fn transfer<T>(&self, mut transfer: impl FnMut(&Self) -> io::Result<T>) -> io::Result<T> {
        match transfer(self) {
            Err(error) if self.is_direct() && error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                self.drop_direct()?;
                transfer(self)
            }
            outcome => outcome,
        }
    }
}

impl OsStorage {
    /// The operating system's files.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// True once a file system has refused direct I/O; files are then opened buffered.
    #[must_use]
    pub fn direct_refused(&self) -> bool {
        self.direct_refused.load(Ordering::Relaxed)
    }

    fn open_handle(&self, path: &Path, flags: OFlags, mode: IoMode) -> io::Result<Handle> {
        let permissions = Mode::from_raw_mode(0o644);
        let flags = flags | OFlags::CLOEXEC;
        let open = |flags| retry(|| rustix::fs::open(path, flags, permissions));
        let handle = |file, direct| Handle {
            file: File::from(file),
            direct: AtomicBool::new(direct),
            refused: Arc::clone(&self.direct_refused),
        };
        if mode == IoMode::Direct && !self.direct_refused() {
            match open(flags | OFlags::DIRECT) {
                Ok(file) => return Ok(handle(file, true)),
                Err(Errno::INVAL | Errno::OPNOTSUPP) => self.direct_refused.store(true, Ordering::Relaxed),
                Err(error) => return Err(error.into()),
            }
            // A refused open may have made the file already.
            return Ok(handle(open(flags & !OFlags::EXCL)?, false));
        }
        Ok(handle(open(flags)?, false))
    }
}

/// Runs a system call again when a signal interrupted it.
fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            outcome => return outcome,
        }
    }
}

#[derive(Debug)]
struct OsReadFile {
    handle: Handle,
}

impl OsReadFile {
    /// Reads by `read`, which gets the descriptor, the part of the buffer to fill, and the file offset.
    fn read_once(
        handle: &Handle,
        (offset, len): (u64, usize),
        buf: &mut AlignedBuf,
        mut read: impl FnMut(&File, &mut [u8], u64) -> io::Result<usize>,
    ) -> io::Result<Range<usize>> {
        let unit = if handle.is_direct() { ALIGNMENT } else { 1 };
        let unit_u64 = u64::try_from(unit).unwrap_or(1);
        let lead = usize::try_from(offset % unit_u64).unwrap_or(0);
        let eof = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let need =
            lead.checked_add(len).filter(|&need| need < crate::buffer::CAPACITY_MAX).ok_or_else(eof)?;
        if need > buf.capacity() && need > TRUSTED_READ_BYTES {
            let end = offset.checked_add(u64::try_from(len).unwrap_or(u64::MAX)).ok_or_else(eof)?;
            if end > handle.file.metadata()?.len() {
                return Err(eof());
            }
        }
        let whole = need.next_multiple_of(unit);
        buf.renew(whole);
        let target = &mut buf.as_mut_slice()[..whole];
        let from = offset - offset % unit_u64;
        transfer::read_full(target, need, unit, from, |at, part| read(&handle.file, part, at))?;
        Ok(lead..need)
    }
}

impl ReadFile for OsReadFile {
    fn read_at(&self, offset: u64, len: usize, buf: &mut AlignedBuf) -> io::Result<Range<usize>> {
        let read = |file: &File, part: &mut [u8], at| Ok(rustix::io::pread(file, part, at)?);
        self.handle.transfer(|handle| Self::read_once(handle, (offset, len), buf, read))
    }

    #[cfg(target_os = "linux")]
    fn read_within(
        &self,
        offset: u64,
        len: usize,
        buf: &mut AlignedBuf,
        limit: Duration,
    ) -> Option<io::Result<Range<usize>>> {
        ring::lend(buf, |ring, buf| {
            self.handle.transfer(|handle| {
                Self::read_once(handle, (offset, len), buf, |file, part, at| ring.read(file, part, at, limit))
            })
        })
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.handle.file.metadata()?.len())
    }
}

/// Held through the descriptor: closing it unlocks.
#[derive(Debug)]
struct OsLock {
    _file: File,
}

impl FileLock for OsLock {}

fn preallocate(file: &File, bytes: u64) -> io::Result<()> {
    match retry(|| rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes)) {
        // Preallocation saves time, nothing depends on it; a file system without it is fine.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Storage for OsStorage {
    fn create(&self, path: &Path, how: Create) -> io::Result<Box<dyn WriteFile>> {
        let exclusive = if how.reuse { OFlags::empty() } else { OFlags::EXCL };
        let handle = self.open_handle(path, OFlags::WRONLY | OFlags::CREATE | exclusive, how.mode)?;
        let old_bytes = handle.file.metadata()?.len();
        if how.preallocate_bytes > old_bytes
            && let Err(error) = preallocate(&handle.file, how.preallocate_bytes)
        {
            if !how.reuse {
                // Best effort: the error that matters is the first one.
                let _removed = fs::remove_file(path);
            }
            return Err(error);
        }
        Ok(Box::new(write::OsWriter::new(handle, old_bytes, how)))
    }

    fn open(&self, path: &Path, mode: IoMode) -> io::Result<Arc<dyn ReadFile>> {
        let handle = self.open_handle(path, OFlags::RDONLY, mode)?;
        Ok(Arc::new(OsReadFile { handle }))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let file = retry(|| rustix::fs::open(dir, flags, Mode::empty()))?;
        retry(|| rustix::fs::fsync(&file))?;
        Ok(())
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to).map_err(|error| {
            let errno = error.raw_os_error().map(Errno::from_raw_os_error);
            // What file systems without hard links, or with no more of them for this file, answer.
            if matches!(errno, Some(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK)) {
                io::Error::new(io::ErrorKind::Unsupported, error)
            } else {
                error
            }
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        let names = fs::read_dir(dir)?.map(|entry| entry.map(|entry| PathBuf::from(entry.file_name())));
        let mut names = names.collect::<io::Result<Vec<PathBuf>>>()?;
        names.sort_unstable();
        Ok(names)
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        let metadata = fs::metadata(path)?;
        if metadata.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(metadata.len()) }
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let handle = self.open_handle(path, OFlags::RDWR | OFlags::CREATE, IoMode::Buffered)?;
        // `flock` belongs to the open file description, so a second open in this process is refused too.
        retry(|| rustix::fs::flock(&handle.file, FlockOperation::NonBlockingLockExclusive))?;
        Ok(Box::new(OsLock { _file: handle.file }))
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        let space = retry(|| rustix::fs::statvfs(dir))?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }
}

#[cfg(test)]
mod tests;
