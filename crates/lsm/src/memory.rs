//! The one memory limit: who uses how much, and what is left for the block cache.
//!
//! Invariant: the cache gets the limit less everything else, and never less than its least size. Write buffers count
//! with their whole budget, used or not, so that the cache is not emptied and refilled with every memtable.
//! Promise 11. Tests stand below.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::options::Config;

/// Who uses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryPart {
    /// Active and immutable memtables of all keyspaces.
    Memtables,
    /// Blocks in the cache.
    Cache,
    /// Indexes and filters of open tables.
    Pinned,
    /// Tables being written.
    Writers,
    /// Read-ahead of scans and compactions.
    Readers,
}

impl MemoryPart {
    /// Every part.
    pub const ALL: [Self; 5] = [Self::Memtables, Self::Cache, Self::Pinned, Self::Writers, Self::Readers];

    /// The name used in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memtables => "memtables",
            Self::Cache => "cache",
            Self::Pinned => "pinned",
            Self::Writers => "writers",
            Self::Readers => "readers",
        }
    }
}

#[derive(Debug)]
struct Shared {
    limit_bytes: u64,
    memtable_budget_bytes: u64,
    process_bytes: u64,
    cache_bytes_min: u64,
    parts: [AtomicU64; MemoryPart::ALL.len()],
}

/// The accounts of a store's memory. Clones share them.
#[derive(Clone, Debug)]
pub struct MemoryBudget(Arc<Shared>);

impl MemoryBudget {
    /// Empty accounts under the limit of `config`.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self(Arc::new(Shared {
            limit_bytes: config.memory_bytes,
            memtable_budget_bytes: config.memtable_budget_bytes,
            process_bytes: config.process_bytes,
            cache_bytes_min: config.cache_bytes_min,
            parts: Default::default(),
        }))
    }

    /// The limit, bytes.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.0.limit_bytes
    }

    /// What `part` uses, bytes.
    #[must_use]
    pub fn used(&self, part: MemoryPart) -> u64 {
        self.0.parts[part as usize].load(Ordering::Relaxed)
    }

    /// What all parts use, bytes.
    #[must_use]
    pub fn total(&self) -> u64 {
        MemoryPart::ALL.iter().map(|&part| self.used(part)).sum()
    }

    /// Sets what `part` uses; for parts that know their own size.
    pub fn set(&self, part: MemoryPart, bytes: u64) {
        self.0.parts[part as usize].store(bytes, Ordering::Relaxed);
    }

    /// Counts `bytes` for `part` until the answer is dropped.
    #[must_use]
    pub fn charge(&self, part: MemoryPart, bytes: u64) -> MemoryCharge {
        self.0.parts[part as usize].fetch_add(bytes, Ordering::Relaxed);
        MemoryCharge { budget: self.clone(), part, bytes }
    }

    /// What the cache may hold now, bytes.
    #[must_use]
    pub fn cache_capacity(&self) -> u64 {
        let memtables = self.used(MemoryPart::Memtables).max(self.0.memtable_budget_bytes);
        let others = [MemoryPart::Pinned, MemoryPart::Writers, MemoryPart::Readers];
        let fixed = memtables.saturating_add(self.0.process_bytes);
        let taken = others.iter().fold(fixed, |sum, &part| sum.saturating_add(self.used(part)));
        self.0.limit_bytes.saturating_sub(taken).max(self.0.cache_bytes_min)
    }

    /// True when memtables together fill their budget: the largest should be sealed.
    #[must_use]
    pub fn memtables_full(&self) -> bool {
        self.used(MemoryPart::Memtables) >= self.0.memtable_budget_bytes
    }

    /// Bytes that everything but the cache takes beyond what the limit leaves with the least cache; 0 if it fits.
    #[must_use]
    pub fn excess_bytes(&self) -> u64 {
        let without_cache = self.total().saturating_sub(self.used(MemoryPart::Cache));
        without_cache.saturating_add(self.0.cache_bytes_min).saturating_sub(self.0.limit_bytes)
    }
}

/// Memory counted for one part until it is dropped.
#[derive(Debug)]
pub struct MemoryCharge {
    budget: MemoryBudget,
    part: MemoryPart,
    bytes: u64,
}

impl MemoryCharge {
    /// Bytes counted.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts `bytes` from now on.
    pub fn resize(&mut self, bytes: u64) {
        let account = &self.budget.0.parts[self.part as usize];
        if bytes >= self.bytes {
            account.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else {
            account.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        self.budget.0.parts[self.part as usize].fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    const MIB: u64 = 1 << 20;

    fn budget() -> MemoryBudget {
        MemoryBudget::new(&Options::new("/fast").memory(64 * MIB).derive().unwrap())
    }

    #[test]
    fn the_cache_gets_what_the_others_leave() {
        let budget = budget();
        assert_eq!(budget.cache_capacity(), 38 * MIB);
        let pinned = budget.charge(MemoryPart::Pinned, 8 * MIB);
        let mut writer = budget.charge(MemoryPart::Writers, MIB);
        writer.resize(2 * MIB);
        assert_eq!(budget.cache_capacity(), 28 * MIB);
        writer.resize(MIB);
        drop(pinned);
        assert_eq!(budget.cache_capacity(), 37 * MIB);
    }

    #[test]
    fn memtables_count_with_their_budget_and_beyond_it_with_what_they_use() {
        let budget = budget();
        budget.set(MemoryPart::Memtables, 10 * MIB);
        assert_eq!((budget.cache_capacity(), budget.memtables_full()), (38 * MIB, false));
        budget.set(MemoryPart::Memtables, 20 * MIB);
        assert_eq!((budget.cache_capacity(), budget.memtables_full()), (34 * MIB, true));
    }

    #[test]
    fn the_cache_keeps_its_least_size_and_the_excess_is_told() {
        let budget = budget();
        assert_eq!(budget.excess_bytes(), 0);
        let _pinned = budget.charge(MemoryPart::Pinned, 100 * MIB);
        assert_eq!(budget.cache_capacity(), 4 * MIB);
        assert_eq!(budget.excess_bytes(), 40 * MIB);
    }

    #[test]
    fn the_total_is_the_sum_of_the_parts_and_returns_to_nothing() {
        let budget = budget();
        let charges: Vec<_> = MemoryPart::ALL.iter().map(|&part| budget.charge(part, 7)).collect();
        assert_eq!(budget.total(), 35);
        drop(charges);
        assert_eq!(budget.total(), 0);
    }
}
