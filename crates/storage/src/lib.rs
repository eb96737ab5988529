//! The one seam through which every file of both tiers is reached.
//!
//! [`Storage`] is a directory tree of files. Implementations: [`os`] (direct or buffered I/O), [`memory`]; and the
//! wrappers [`throttle`] (a slower device), [`fault`] (a failing device), [`deadline`] (a hanging device) and
//! [`crash`] (tracks what was synced and produces every state a power loss may leave).
//! DESIGN section 2, RELIABILITY seam S1.

pub mod buffer;
mod content;
pub mod crash;
pub mod deadline;
pub mod fault;
pub mod memory;
pub mod os;
mod seeded;
pub mod throttle;

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use buffer::AlignedBuf;
pub use crash::{CrashLog, CrashStorage};
pub use deadline::DeadlineStorage;
pub use fault::FaultStorage;
pub use memory::MemoryStorage;
pub use os::OsStorage;
pub use throttle::ThrottledStorage;

/// Alignment of offsets, lengths and memory for direct I/O, bytes.
pub const ALIGNMENT: usize = 4096;

/// How file data travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMode {
    /// Past the operating system's page cache. Falls back to buffered where the file system refuses it.
    Direct,
    /// Through the page cache.
    Buffered,
}

/// How [`Storage::create`] makes a file.
#[derive(Clone, Copy, Debug)]
pub struct Create {
    /// How its data travels.
    pub mode: IoMode,
    /// Disk space to allocate at once, bytes; 0 for none. The file's length does not include it.
    pub preallocate_bytes: u64,
    /// Most bytes gathered before they are written without a flush, at least [`ALIGNMENT`]. A hint: memory it may take.
    pub buffer_bytes: usize,
    /// Keep an existing file's blocks and bytes and overwrite them from the start (recycled WAL files); an absent
    /// one is made. Old bytes after the last appended one may read as zeros up to the next multiple of
    /// [`ALIGNMENT`]. Otherwise an existing file is an `AlreadyExists` error.
    pub reuse: bool,
}

impl Create {
    /// A new file for `mode`.
    #[must_use]
    pub const fn new(mode: IoMode) -> Self {
        Self { mode, preallocate_bytes: 0, buffer_bytes: 1 << 20, reuse: false }
    }
}

/// A file open for reading at any position, from any number of threads.
pub trait ReadFile: Send + Sync + Debug {
    /// Reads `len` bytes at `offset` into `buf` and says where in `buf` they lie (direct I/O reads whole sectors).
    /// `buf` grows as needed; what it held is lost, and after an error so may be its memory.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before; else the operating system's error.
    fn read_at(&self, offset: u64, len: usize, buf: &mut AlignedBuf) -> io::Result<Range<usize>>;
    /// As [`ReadFile::read_at`], but answers `TimedOut` once the device has kept it waiting for `limit`; `buf` has lost
    /// its memory then. `None`, with nothing done, if this file cannot be read so, and the caller must let another
    /// thread wait.
    fn read_within(
        &self,
        _offset: u64,
        _len: usize,
        _buf: &mut AlignedBuf,
        _limit: Duration,
    ) -> Option<io::Result<Range<usize>>> {
        None
    }
    /// Length, bytes.
    ///
    /// # Errors
    /// The operating system's error.
    fn len(&self) -> io::Result<u64>;
    /// True if the file has no byte.
    ///
    /// # Errors
    /// The operating system's error.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// A file open for appending.
///
/// Dropping it without `sync` promises nothing about what was appended.
pub trait WriteFile: Send + Debug {
    /// Appends `data`. What was appended is readable by others after `flush` or `sync`.
    ///
    /// # Errors
    /// The operating system's error; how much of `data` reached the file is then unknown.
    fn append(&mut self, data: &[u8]) -> io::Result<()>;
    /// How many bytes [`WriteFile::append`] takes now without waiting for the device.
    fn room(&self) -> usize {
        0
    }
    /// Hands everything appended to the operating system (it survives the process).
    ///
    /// # Errors
    /// The operating system's error.
    fn flush(&mut self) -> io::Result<()>;
    /// Makes everything appended, and the file's length, survive power loss. The directory entry is
    /// [`Storage::sync_dir`]'s.
    ///
    /// # Errors
    /// The operating system's error. The file must not be synced again after one (RELIABILITY M5).
    fn sync(&mut self) -> io::Result<()>;
    /// Bytes appended so far.
    fn len(&self) -> u64;
    /// True if nothing was appended.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Held while a store is open; dropping it lets go.
pub trait FileLock: Send + Sync + Debug {}

/// A tree of directories and files.
pub trait Storage: Send + Sync + Debug {
    /// Makes a file for appending. See [`Create`].
    ///
    /// # Errors
    /// The operating system's error; `AlreadyExists` as [`Create::reuse`] says.
    fn create(&self, path: &Path, how: Create) -> io::Result<Box<dyn WriteFile>>;
    /// Opens a file for reading.
    ///
    /// # Errors
    /// `NotFound`, or the operating system's error.
    fn open(&self, path: &Path, mode: IoMode) -> io::Result<Arc<dyn ReadFile>>;
    /// Makes the directory's entries (creations, renames, removals) survive power loss.
    ///
    /// # Errors
    /// The operating system's error.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Makes a directory and its parents; existing ones are kept.
    ///
    /// # Errors
    /// The operating system's error.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Renames a file, replacing an existing one at `to`.
    ///
    /// # Errors
    /// The operating system's error.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// A second name for a file.
    ///
    /// # Errors
    /// `CrossesDevices` or `Unsupported` where the caller should copy instead; else the operating system's error.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    ///
    /// # Errors
    /// The operating system's error.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Names (without `dir`) of the files and directories in `dir`, sorted.
    ///
    /// # Errors
    /// The operating system's error.
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>>;
    /// Length of a file, bytes.
    ///
    /// # Errors
    /// `NotFound`, or the operating system's error.
    fn file_len(&self, path: &Path) -> io::Result<u64>;
    /// True if there is a file or directory of this name.
    ///
    /// # Errors
    /// The operating system's error (an absent file is no error).
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Takes the lock file at `path`, making it if needed. Nobody else gets it while something is under way that its holder asked for,
    /// also after the holder was told that it did not end in time and has let go of the lock.
    ///
    /// # Errors
    /// `WouldBlock` if somebody, this process included, holds it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>>;
    /// Bytes the file system at `dir` can still take.
    ///
    /// # Errors
    /// The operating system's error.
    fn free_space(&self, dir: &Path) -> io::Result<u64>;
    /// True while an operation is under way whose caller was told that it did not end in time: what it does will be there later.
    fn has_unanswered(&self) -> bool {
        false
    }
}
