//! The hard limit on each tier: every byte on disk is either a known file's or was reserved before it was written.
//! Files count in whole blocks of the disk, [`on_disk_bytes`].
//!
//! In:  the files there are, with their lengths; requests to write.
//! Out: a [`Reservation`], or `NoSpace` before anything is written.
//!
//! Invariants
//! - S1 `used + reserved` never grows beyond the capacity by way of [`Space::reserve`]; what a file takes beyond its
//!   reservation is counted the moment it is told, and shows in [`SpaceStats::used_max_bytes`].
//! - S2 [`Priority::Normal`] leaves the reserve alone, so that flushes, the manifest and compactions, which are what
//!   frees space, always find some.
//! - S3 Whatever frees space raises [`Space::freed`]: stalled writers test again, and no restart is needed (promise 8).
//!
//! The disk's own free space is consulted too, at most once a second unless a refusal hangs on it. Space that another
//! program frees raises nothing: who waits for it calls [`Space::refresh`] from time to time.
//! Tests: `tests.rs`.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use kelvin_base::sync::Mutex;
use kelvin_base::{Clock, Error, ErrorKind, Result, Signal, Tier};

use crate::options::{Config, human_bytes};
use crate::tiers::TierHandle;

/// How long the disk's free space is believed.
const FREE_SPACE_AGE_MAX: Duration = Duration::from_secs(1);
/// Of the disk's own free space no more than this is kept back from normal work, bytes.
const DISK_MARGIN_BYTES_MAX: u64 = 16 << 20;

/// What a file of `bytes` takes of a disk: whole blocks.
#[must_use]
pub const fn on_disk_bytes(bytes: u64) -> u64 {
    bytes.next_multiple_of(kelvin_storage::ALIGNMENT as u64)
}

/// What the length of a file is refused with where there is none.
const fn is_no_file(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::IsADirectory)
}

/// Who may use the reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// What a user asks for, and work that may be left undone: admitting writes to the log, checkpoints, promotion.
    Normal,
    /// What must go on for the store to get out of a full disk: flushes, the manifest, compactions.
    Essential,
}

/// The limit of one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierLimit {
    /// Hard limit, bytes; `None` where only the disk limits.
    pub capacity_bytes: Option<u64>,
    /// The part of it that only [`Priority::Essential`] may use, bytes.
    pub reserve_bytes: u64,
}

/// The space of one tier at one moment, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceStats {
    /// Hard limit; `None` where only the disk limits.
    pub capacity_bytes: Option<u64>,
    /// Kept for essential work.
    pub reserve_bytes: u64,
    /// Files.
    pub used_bytes: u64,
    /// Reserved by work in flight.
    pub reserved_bytes: u64,
    /// Most that files ever took since the store was opened.
    pub used_max_bytes: u64,
    /// Most that files and reservations ever took together.
    pub committed_max_bytes: u64,
    /// What the disk had free when last asked.
    pub disk_free_bytes: Option<u64>,
    /// Requests refused.
    pub refusals: u64,
    /// Files known.
    pub files: u64,
}

#[derive(Debug, Default)]
struct Books {
    files: BTreeMap<Box<str>, u64>,
    used: u64,
    reserved: u64,
    used_max: u64,
    committed_max: u64,
    free: Option<(u64, Duration)>,
    refusals: u64,
}

impl Books {
    fn note_high_water(&mut self) {
        self.used_max = self.used_max.max(self.used);
        self.committed_max = self.committed_max.max(self.used + self.reserved);
    }

    /// Sets the length of `name`; true if that freed space.
    fn set_file(&mut self, name: &str, bytes: u64) -> bool {
        let before = self.files.insert(name.into(), bytes).unwrap_or(0);
        self.used = self.used - before + bytes;
        self.note_high_water();
        bytes < before
    }
}

#[derive(Debug)]
struct Shared {
    limits: [TierLimit; 2],
    books: [Mutex<Books>; 2],
    tiers: [Option<TierHandle>; 2],
    clock: Arc<dyn Clock>,
    freed: Arc<Signal>,
}

/// The space of both tiers. Clones share it.
#[derive(Clone, Debug)]
pub struct Space(Arc<Shared>);

/// Why a request does not fit.
enum Refusal {
    Capacity { capacity: u64, kept: u64 },
    Disk { free: u64, kept: u64 },
}

impl Space {
    /// Empty books under `limits` (by [`Tier::index`]). `tiers` are asked for their disks' free space.
    #[must_use]
    pub fn new(limits: [TierLimit; 2], tiers: [Option<TierHandle>; 2], clock: Arc<dyn Clock>) -> Self {
        let freed = Arc::new(Signal::new());
        Self(Arc::new(Shared { limits, books: Default::default(), tiers, clock, freed }))
    }

    /// Empty books under the limits of `config`.
    #[must_use]
    pub fn from_config(config: &Config, tiers: [Option<TierHandle>; 2], clock: Arc<dyn Clock>) -> Self {
        let limits = Tier::ALL.map(|tier| TierLimit {
            capacity_bytes: config.capacity(tier),
            reserve_bytes: config.reserve(tier),
        });
        Self::new(limits, tiers, clock)
    }

    /// Enters every file now in the tier's directory; their bytes together. For use at open.
    ///
    /// # Errors
    /// The tier's own.
    pub fn account_directory(&self, tier: Tier) -> Result<u64> {
        let Some(handle) = &self.0.tiers[tier.index()] else { return Ok(0) };
        for name in handle.list()? {
            match handle.file_len(&name) {
                Ok(bytes) => self.file_added(tier, &name.to_string_lossy(), bytes),
                // Removed between the two calls, or a directory: the tracker's is entered by itself, others are not ours.
                Err(error) if error.os().is_some_and(|os| is_no_file(os.kind())) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.used(tier))
    }

    /// Sets `bytes` aside on `tier` until the answer is dropped or turned into files.
    ///
    /// # Errors
    /// `NoSpace` that names the tier, its capacity, what is used, reserved and asked.
    pub fn reserve(&self, tier: Tier, bytes: u64, priority: Priority) -> Result<Reservation> {
        self.take(tier, bytes, priority)?;
        Ok(Reservation { space: self.clone(), tier, left_bytes: bytes })
    }

    /// Checks that a file of `bytes` fits beside the files there are. What work in flight has set aside is left out: for the log, whose room that
    /// work has left alone.
    ///
    /// # Errors
    /// As [`Space::reserve`].
    pub fn fits_beside_files(&self, tier: Tier, bytes: u64) -> Result<()> {
        let mut books = self.books(tier).lock();
        match self.capacity(tier) {
            Some(capacity) if bytes > 0 && books.used.saturating_add(bytes) > capacity => {
                books.refusals += 1;
                Err(self.no_space(tier, &books, bytes, &Refusal::Capacity { capacity, kept: 0 }))
            }
            _ => Ok(()),
        }
    }

    fn take(&self, tier: Tier, bytes: u64, priority: Priority) -> Result<()> {
        let stale =
            self.books(tier).lock().free.is_none_or(|(_, at)| self.0.clock.now() - at > FREE_SPACE_AGE_MAX);
        if stale {
            self.refresh_tier(tier);
        }
        let mut refreshed = stale;
        loop {
            let mut books = self.books(tier).lock();
            let refusal = match self.refusal(tier, &books, bytes, priority) {
                None => {
                    books.reserved += bytes;
                    books.note_high_water();
                    return Ok(());
                }
                Some(Refusal::Disk { .. }) if !refreshed => {
                    drop(books);
                    self.refresh_tier(tier);
                    refreshed = true;
                    continue;
                }
                Some(refusal) => refusal,
            };
            books.refusals += 1;
            return Err(self.no_space(tier, &books, bytes, &refusal));
        }
    }

    fn books(&self, tier: Tier) -> &Mutex<Books> {
        &self.0.books[tier.index()]
    }

    fn refusal(&self, tier: Tier, books: &Books, bytes: u64, priority: Priority) -> Option<Refusal> {
        let limit = self.0.limits[tier.index()];
        let kept = if priority == Priority::Normal { limit.reserve_bytes } else { 0 };
        if let Some(capacity) = limit.capacity_bytes {
            let wanted = books.used.saturating_add(books.reserved).saturating_add(bytes).saturating_add(kept);
            if wanted > capacity {
                return Some(Refusal::Capacity { capacity, kept });
            }
        }
        let (free, _) = books.free?;
        let kept = kept.min(DISK_MARGIN_BYTES_MAX);
        // What is reserved may lie on the disk already and is then counted twice: careful, and only near the end.
        let wanted = books.reserved.saturating_add(bytes).saturating_add(kept);
        (wanted > free).then_some(Refusal::Disk { free, kept })
    }

    fn no_space(&self, tier: Tier, books: &Books, bytes: u64, refusal: &Refusal) -> Error {
        let (used, reserved, asked) =
            (human_bytes(books.used), human_bytes(books.reserved), human_bytes(bytes));
        let (what, advice) = match *refusal {
            Refusal::Capacity { capacity, kept } => (
                format!(
                    "the {tier} tier's capacity of {} is reached: {used} used, {reserved} reserved by work in flight, \
                     {} kept to get out of a full tier, {asked} asked",
                    human_bytes(capacity),
                    human_bytes(kept)
                ),
                format!("delete data or raise {tier}_capacity; writing resumes by itself, and reads go on"),
            ),
            Refusal::Disk { free, kept } => (
                format!(
                    "the {tier} tier's disk is full: {} free, {reserved} reserved by work in flight, {} kept to get \
                     out of a full disk, {asked} asked",
                    human_bytes(free),
                    human_bytes(kept)
                ),
                "free space on that disk; writing resumes by itself, and reads go on".to_owned(),
            ),
        };
        let error = Error::new(ErrorKind::NoSpace, what).tier(tier).advice(advice);
        match &self.0.tiers[tier.index()] {
            Some(handle) => error.file(handle.dir()),
            None => error,
        }
    }

    /// Asks the disk for its free space; true if it has more than before.
    fn refresh_tier(&self, tier: Tier) -> bool {
        let Some(handle) = &self.0.tiers[tier.index()] else { return false };
        // Asked without the lock: a slow tier may take its time. Without an answer the write itself will tell.
        let answer = handle.free_space().ok().map(|bytes| (bytes, self.0.clock.now()));
        let mut books = self.books(tier).lock();
        let grown = match (books.free, answer) {
            (Some((before, _)), Some((now, _))) => now > before,
            _ => false,
        };
        books.free = answer;
        grown
    }

    /// Asks both disks for their free space and wakes who waits if one has more than before.
    pub fn refresh(&self) {
        let grown = Tier::ALL.map(|tier| self.refresh_tier(tier));
        if grown.contains(&true) {
            self.0.freed.raise();
        }
    }

    /// Raised whenever space was freed.
    #[must_use]
    pub fn freed(&self) -> &Arc<Signal> {
        &self.0.freed
    }

    /// The file `name` on `tier` is now `bytes` long: new, grown or shrunk.
    pub fn file_added(&self, tier: Tier, name: &str, bytes: u64) {
        let shrank = self.books(tier).lock().set_file(name, on_disk_bytes(bytes));
        if shrank {
            self.0.freed.raise();
        }
    }

    /// The file `name` on `tier` is gone; how long it was. Unknown names are ignored.
    pub fn file_removed(&self, tier: Tier, name: &str) -> u64 {
        let bytes = {
            let mut books = self.books(tier).lock();
            let bytes = books.files.remove(name).unwrap_or(0);
            books.used -= bytes;
            bytes
        };
        self.0.freed.raise();
        bytes
    }

    /// The file `from` is now called `to`, replacing what was there.
    pub fn file_renamed(&self, tier: Tier, from: &str, to: &str) {
        {
            let mut books = self.books(tier).lock();
            let Some(bytes) = books.files.remove(from) else { return };
            books.used -= bytes;
            books.set_file(to, bytes);
        }
        self.0.freed.raise();
    }

    /// Bytes of the files on `tier`.
    #[must_use]
    pub fn used(&self, tier: Tier) -> u64 {
        self.books(tier).lock().used
    }

    /// Bytes of the files on `tier` whose name begins with `prefix`.
    #[must_use]
    pub fn used_below(&self, tier: Tier, prefix: &str) -> u64 {
        let books = self.books(tier).lock();
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let named = books.files.range::<str, _>(from).take_while(|(name, _)| name.starts_with(prefix));
        named.map(|(_, bytes)| bytes).sum()
    }

    /// Hard limit on `tier`, bytes; `None` where only the disk limits.
    #[must_use]
    pub fn capacity(&self, tier: Tier) -> Option<u64> {
        self.0.limits[tier.index()].capacity_bytes
    }

    /// What work of `priority` could still reserve under the capacity of `tier`, bytes; `None` without one.
    #[must_use]
    pub fn available(&self, tier: Tier, priority: Priority) -> Option<u64> {
        let limit = self.0.limits[tier.index()];
        let kept = if priority == Priority::Normal { limit.reserve_bytes } else { 0 };
        let books = self.books(tier).lock();
        Some(limit.capacity_bytes?.saturating_sub(books.used + books.reserved + kept))
    }

    /// Everything known of `tier`.
    #[must_use]
    pub fn stats(&self, tier: Tier) -> SpaceStats {
        let limit = self.0.limits[tier.index()];
        let books = self.books(tier).lock();
        SpaceStats {
            capacity_bytes: limit.capacity_bytes,
            reserve_bytes: limit.reserve_bytes,
            used_bytes: books.used,
            reserved_bytes: books.reserved,
            used_max_bytes: books.used_max,
            committed_max_bytes: books.committed_max,
            disk_free_bytes: books.free.map(|(bytes, _)| bytes),
            refusals: books.refusals,
            files: books.files.len() as u64,
        }
    }
}

/// Bytes set aside for work in flight. What is left when it is dropped is free again.
#[derive(Debug)]
pub struct Reservation {
    space: Space,
    tier: Tier,
    left_bytes: u64,
}

impl Reservation {
    /// The tier it is on.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Bytes not yet turned into files.
    #[must_use]
    pub fn left_bytes(&self) -> u64 {
        self.left_bytes
    }

    /// Sets `bytes` more aside.
    ///
    /// # Errors
    /// As [`Space::reserve`]; what was set aside before stays so.
    pub fn grow(&mut self, bytes: u64, priority: Priority) -> Result<()> {
        self.space.take(self.tier, bytes, priority)?;
        self.left_bytes += bytes;
        Ok(())
    }

    /// Takes over what the file `name`, which is gone, took, up to `bytes_max` in all. What is beyond that is free.
    pub fn take_over(&mut self, name: &str, bytes_max: u64) {
        {
            let mut books = self.space.books(self.tier).lock();
            let bytes = books.files.remove(name).unwrap_or(0);
            let taken = bytes.min(bytes_max.saturating_sub(self.left_bytes));
            books.used -= bytes;
            books.reserved += taken;
            self.left_bytes += taken;
        }
        self.space.0.freed.raise();
    }

    /// Turns part of it into the file `name` of `bytes`, or into that file's growth to `bytes`.
    pub fn file_written(&mut self, name: &str, bytes: u64) {
        let bytes = on_disk_bytes(bytes);
        let shrank = {
            let mut books = self.space.books(self.tier).lock();
            let known = books.files.get(name).copied().unwrap_or(0);
            let taken = bytes.saturating_sub(known).min(self.left_bytes);
            books.reserved -= taken;
            self.left_bytes -= taken;
            books.set_file(name, bytes)
        };
        if shrank {
            self.space.0.freed.raise();
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.left_bytes > 0 {
            self.space.books(self.tier).lock().reserved -= self.left_bytes;
            self.space.0.freed.raise();
        }
    }
}
