//! How often and how much each tier is read and written, by purpose.
//!
//! The purpose of a read is a matter of who reads, not of which file: a thread says what it is doing with a
//! [`PurposeScope`]. The purpose of a write is fixed when its file is made.
//!
//! Tests: `tests.rs` beside.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use kelvin_base::sync::Local;

/// What an I/O is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Point reads, and whatever names no other purpose.
    Get,
    /// Iterators of users.
    Scan,
    /// Writing memtables to level 0.
    Flush,
    /// Merging tables.
    Compaction,
    /// The write-ahead log.
    Log,
    /// Manifest, identity, checkpoints, recovery, checks.
    Upkeep,
    /// The hot-key tracker.
    Hotness,
}

impl Purpose {
    /// Every purpose.
    pub const ALL: [Self; 7] =
        [Self::Get, Self::Scan, Self::Flush, Self::Compaction, Self::Log, Self::Upkeep, Self::Hotness];

    /// The name used in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Scan => "scan",
            Self::Flush => "flush",
            Self::Compaction => "compaction",
            Self::Log => "log",
            Self::Upkeep => "upkeep",
            Self::Hotness => "hotness",
        }
    }

    /// What the calling thread is doing now.
    #[must_use]
    pub fn current() -> Self {
        Self::ALL.get(usize::from(Local::Purpose.get())).copied().unwrap_or(Self::Get)
    }

    /// Names what the calling thread does until the answer is dropped. Scopes nest.
    #[must_use]
    pub fn enter(self) -> PurposeScope {
        PurposeScope { before: Local::Purpose.replace(self as u8), on_this_thread: PhantomData }
    }
}

/// While it lives, reads of the thread that made it count as [`Purpose::enter`] said.
#[derive(Debug)]
pub struct PurposeScope {
    before: u8,
    /// Not `Send`: it restores the thread that made it.
    on_this_thread: PhantomData<*const ()>,
}

impl Drop for PurposeScope {
    fn drop(&mut self) {
        Local::Purpose.replace(self.before);
    }
}

/// Reads and writes for one purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCount {
    /// Read calls that reached the storage.
    pub reads: u64,
    /// Bytes asked for by them.
    pub read_bytes: u64,
    /// Append calls.
    pub writes: u64,
    /// Bytes appended by them.
    pub written_bytes: u64,
}

/// What a tier has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoStats {
    by_purpose: [IoCount; Purpose::ALL.len()],
    /// Syncs of files and directories.
    pub syncs: u64,
}

impl IoStats {
    /// Counts for `purpose`.
    #[must_use]
    pub fn of(&self, purpose: Purpose) -> IoCount {
        self.by_purpose[purpose as usize]
    }

    /// Counts for every purpose together.
    #[must_use]
    pub fn total(&self) -> IoCount {
        self.by_purpose.iter().fold(IoCount::default(), |sum, count| IoCount {
            reads: sum.reads + count.reads,
            read_bytes: sum.read_bytes + count.read_bytes,
            writes: sum.writes + count.writes,
            written_bytes: sum.written_bytes + count.written_bytes,
        })
    }
}

/// Counts of one purpose. Aligned so that a compaction's writes do not slow down the readers' counting.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Cells {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
}

/// The live counters behind [`IoStats`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    by_purpose: [Cells; Purpose::ALL.len()],
    syncs: AtomicU64,
}

impl Counters {
    pub(super) fn read(&self, purpose: Purpose, bytes: u64) {
        let cells = &self.by_purpose[purpose as usize];
        cells.reads.fetch_add(1, Ordering::Relaxed);
        cells.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn written(&self, purpose: Purpose, bytes: u64) {
        let cells = &self.by_purpose[purpose as usize];
        cells.writes.fetch_add(1, Ordering::Relaxed);
        cells.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn synced(&self) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn stats(&self) -> IoStats {
        let mut stats = IoStats { syncs: self.syncs.load(Ordering::Relaxed), ..IoStats::default() };
        for (count, cells) in stats.by_purpose.iter_mut().zip(&self.by_purpose) {
            *count = IoCount {
                reads: cells.reads.load(Ordering::Relaxed),
                read_bytes: cells.read_bytes.load(Ordering::Relaxed),
                writes: cells.writes.load(Ordering::Relaxed),
                written_bytes: cells.written_bytes.load(Ordering::Relaxed),
            };
        }
        stats
    }
}
