//! Which version of each record a reader may see: what makes a stale or lost update visible.
//!
//! Invariant: while a record's stripe is held, its next version is `acknowledged + 1` and nobody else writes it. So a
//! reader must find at least the version acknowledged before it began, and at most one more than after it ended.
//! Nothing is known of the records of a store that is used again, so nothing of theirs is kept: four bytes for each of
//! millions of records would count as the system's memory. Tests: the runner's.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use kelvin_base::sync::{Mutex, MutexGuard};
use kelvin_base::{Error, ErrorKind, Result};

const STRIPES: usize = 1024;

/// Versions of the loaded records. Empty, and nothing checked, for workloads that never update and for stores used again.
#[derive(Debug)]
pub(crate) struct Versions {
    acknowledged: Vec<AtomicU32>,
    stripes: Vec<Mutex<()>>,
    /// The next version of a record of which nothing is known.
    next: AtomicU64,
}

impl Versions {
    /// Versions of `records` records, which are at 0, as after a fresh load.
    pub(crate) fn new(records: u64) -> Self {
        let acknowledged = (0..records).map(|_| AtomicU32::new(0)).collect();
        let stripes = (0..STRIPES).map(|_| Mutex::new(())).collect();
        Self { acknowledged, stripes, next: AtomicU64::new(1) }
    }

    /// The version acknowledged so far.
    pub(crate) fn acknowledged(&self, index: u64) -> u32 {
        let slot = usize::try_from(index).ok().and_then(|at| self.acknowledged.get(at));
        slot.map_or(0, |version| version.load(Ordering::Acquire))
    }

    /// Holds the record for a write; the guard and the version to write.
    pub(crate) fn begin(&self, index: u64) -> (MutexGuard<'_, ()>, u64) {
        let stripe = usize::try_from(index).unwrap_or(0) % STRIPES;
        let guard = self.stripes[stripe].lock();
        let next = if self.acknowledged.is_empty() {
            self.next.fetch_add(1, Ordering::Relaxed)
        } else {
            u64::from(self.acknowledged(index)) + 1
        };
        (guard, next)
    }

    /// Says that `version` was acknowledged by the store. The record must be held.
    pub(crate) fn acknowledge(&self, index: u64, version: u64) {
        if let Some(slot) = usize::try_from(index).ok().and_then(|at| self.acknowledged.get(at)) {
            slot.store(u32::try_from(version).unwrap_or(u32::MAX), Ordering::Release);
        }
    }

    /// Checks a version read between `before` (acknowledged when the read began) and now.
    pub(crate) fn check(&self, index: u64, version: u64, before: u32) -> Result<()> {
        let after = u64::from(self.acknowledged(index)) + 1;
        if self.acknowledged.is_empty() || (u64::from(before) <= version && version <= after) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Corruption,
            format!("the store returned a stale version of record {index}"),
        )
        .expected(format!("version {before} to {after}"), version))
    }
}
