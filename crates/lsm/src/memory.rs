//! The one memory limit: who uses how much, and what is left for open tables and for the block cache.
//!
//! Invariants
//! - B1 The cache gets the limit less everything else, and never less than its least size. Of the write buffers it
//!   leaves what sealed ones hold and what the open ones may grow to: a store that is only read has the rest as cache.
//! - B2 Where the cache has no more to give, open tables are closed, down to their least size: an index saves more reads than
//!   the blocks that would lie in its place, so the cache goes first.
//! - B3 Whoever takes memory charges it first; cache and tables have made room for it when [`MemoryBudget::charge`] returns.
//!   So the parts never exceed the limit together, unless the others alone leave less than the two least sizes:
//!   `derive` sizes them so that they do not.
//! - B4 What is given back is the cache's when memory is next counted ([`MemoryBudget::recount`]), after every install.
//! - B5 Locks are taken in the order sharing, open tables; whoever holds the latter charges nothing.
//!
//! Promise 11. Tests stand below and in `tests/trust/memory.rs`.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use kelvin_base::sync::Mutex;

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
    /// What is known of every table: key range, figures, places in versions.
    Tables,
    /// Tables being written.
    Writers,
    /// Read-ahead of scans and compactions.
    Readers,
    /// The hot-key tracker: accesses not sorted yet, filters and indexes of its runs, merges of these.
    Hotness,
    /// Records in promotion caches.
    Promotion,
}

impl MemoryPart {
    /// Every part.
    pub const ALL: [Self; 8] = [
        Self::Memtables,
        Self::Cache,
        Self::Pinned,
        Self::Tables,
        Self::Writers,
        Self::Readers,
        Self::Hotness,
        Self::Promotion,
    ];

    /// The name used in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memtables => "memtables",
            Self::Cache => "cache",
            Self::Pinned => "pinned",
            Self::Tables => "tables",
            Self::Writers => "writers",
            Self::Readers => "readers",
            Self::Hotness => "hotness",
            Self::Promotion => "promotion",
        }
    }
}

/// What is counted and not charged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// What memtables use, bytes.
    pub memtables_bytes: u64,
    /// By how much the open ones may grow before they are counted again, bytes.
    pub growth_bytes: u64,
    /// What is known of every table, bytes.
    pub tables_bytes: u64,
}

/// What yields to the others: the block cache.
pub trait Yielding: Send + Sync + Debug {
    /// Changes what it may hold, bytes. It holds no more when this returns.
    fn set_capacity(&self, bytes: u64);
    /// What it holds, bytes.
    fn used_bytes(&self) -> u64;
}

/// What yields when the cache has no more to give: the open tables, which are [`MemoryPart::Pinned`].
pub trait Closing: Send + Sync + Debug {
    /// Closes tables, those not used lately first, until `is_enough` answers true or none is left to close.
    fn close_until(&self, is_enough: &dyn Fn() -> bool);
}

#[derive(Debug)]
struct Shared {
    limit_bytes: u64,
    process_bytes: u64,
    cache_bytes_min: u64,
    pinned_bytes_min: u64,
    /// What open memtables may grow by before anybody counts again.
    memtable_growth_bytes: AtomicU64,
    /// [`MemoryPart::Cache`] is not used: the cache knows itself.
    parts: [AtomicU64; MemoryPart::ALL.len()],
    cache: OnceLock<Arc<dyn Yielding>>,
    tables: OnceLock<Arc<dyn Closing>>,
    /// Held while it is worked out who has to make room, and while they do.
    sharing: Mutex<()>,
    total_max: AtomicU64,
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
            process_bytes: config.process_bytes,
            cache_bytes_min: config.cache_bytes_min,
            pinned_bytes_min: config.pinned_bytes_min,
            memtable_growth_bytes: AtomicU64::new(config.memtable_budget_bytes),
            parts: Default::default(),
            cache: OnceLock::new(),
            tables: OnceLock::new(),
            sharing: Mutex::default(),
            total_max: AtomicU64::new(0),
        }))
    }

    /// Names the cache, once.
    pub fn yields(&self, cache: Arc<dyn Yielding>) {
        // A second cache would be one too many; the first stays.
        let _first = self.0.cache.set(cache);
        self.share();
    }

    /// Names the open tables, once.
    pub fn closes(&self, tables: Arc<dyn Closing>) {
        // As above.
        let _first = self.0.tables.set(tables);
        self.share();
    }

    /// The limit, bytes.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.0.limit_bytes
    }

    /// What `part` uses, bytes.
    #[must_use]
    pub fn used(&self, part: MemoryPart) -> u64 {
        if part == MemoryPart::Cache {
            return self.0.cache.get().map_or(0, |cache| cache.used_bytes());
        }
        self.0.parts[part as usize].load(Ordering::Relaxed)
    }

    /// What all parts use, bytes.
    #[must_use]
    pub fn total(&self) -> u64 {
        // The cache first: it can only have shrunk for what the others have charged since.
        let cache = self.used(MemoryPart::Cache);
        let others = MemoryPart::ALL.iter().filter(|&&part| part != MemoryPart::Cache);
        cache + others.map(|&part| self.used(part)).sum::<u64>()
    }

    /// The highest total seen at a charge or a share, bytes.
    #[must_use]
    pub fn total_max(&self) -> u64 {
        self.0.total_max.load(Ordering::Relaxed)
    }

    /// Counts anew what is not charged, as `count` says, and gives the cache what is left. Who charges meanwhile waits: else it could make
    /// room for one count, and find another one beside it.
    pub fn recount(&self, count: impl FnOnce() -> Counted) {
        let _alone = self.0.sharing.lock();
        let counted = count();
        let set = |part: MemoryPart, bytes| self.0.parts[part as usize].store(bytes, Ordering::Relaxed);
        set(MemoryPart::Memtables, counted.memtables_bytes);
        set(MemoryPart::Tables, counted.tables_bytes);
        self.0.memtable_growth_bytes.store(counted.growth_bytes, Ordering::Relaxed);
        self.make_room(0);
        self.note_total();
    }

    /// Counts `bytes` for `part` until the answer is dropped. Cache and tables have made room when this returns.
    #[must_use]
    pub fn charge(&self, part: MemoryPart, bytes: u64) -> MemoryCharge {
        let mut charge = MemoryCharge { budget: self.clone(), part, bytes: 0 };
        charge.resize(bytes);
        charge
    }

    /// Makes room for `bytes` more of `part`, then counts them.
    fn take(&self, part: MemoryPart, bytes: u64) {
        let _alone = self.0.sharing.lock();
        self.make_room(bytes);
        self.0.parts[part as usize].fetch_add(bytes, Ordering::Relaxed);
        self.note_total();
    }

    /// Gives the cache what the others leave; closes tables if that is less than its least size.
    pub fn share(&self) {
        let _alone = self.0.sharing.lock();
        self.make_room(0);
        self.note_total();
    }

    /// Makes tables and cache leave `more_bytes`. Call with `sharing` held.
    fn make_room(&self, more_bytes: u64) {
        let Shared { limit_bytes, cache_bytes_min, pinned_bytes_min, .. } = *self.0;
        let is_enough = || {
            self.used(MemoryPart::Pinned) <= pinned_bytes_min
                || self.taken(more_bytes).saturating_add(cache_bytes_min) <= limit_bytes
        };
        if let Some(tables) = self.0.tables.get()
            && !is_enough()
        {
            tables.close_until(&is_enough);
        }
        if let Some(cache) = self.0.cache.get() {
            cache.set_capacity(self.left(more_bytes));
        }
    }

    fn note_total(&self) {
        self.0.total_max.fetch_max(self.total(), Ordering::Relaxed);
    }

    /// What the cache may hold now, bytes.
    #[must_use]
    pub fn cache_capacity(&self) -> u64 {
        self.left(0)
    }

    /// What is not the cache's once others have taken `more_bytes`.
    fn taken(&self, more_bytes: u64) -> u64 {
        let growth = self.0.memtable_growth_bytes.load(Ordering::Relaxed);
        let fixed = growth.saturating_add(self.0.process_bytes).saturating_add(more_bytes);
        let others = MemoryPart::ALL.iter().filter(|&&part| part != MemoryPart::Cache);
        others.fold(fixed, |sum, &part| sum.saturating_add(self.used(part)))
    }

    /// What the cache may hold once others have taken `more_bytes`.
    fn left(&self, more_bytes: u64) -> u64 {
        self.0.limit_bytes.saturating_sub(self.taken(more_bytes)).max(self.0.cache_bytes_min)
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
    /// Counts `bytes` from now on. For more than before, room has been made when this returns.
    pub fn resize(&mut self, bytes: u64) {
        if bytes > self.bytes {
            self.budget.take(self.part, bytes - self.bytes);
        } else {
            self.budget.0.parts[self.part as usize].fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        self.resize(0);
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
        assert_eq!(budget.cache_capacity(), 34 * MIB);
        let pinned = budget.charge(MemoryPart::Pinned, 8 * MIB);
        let mut writer = budget.charge(MemoryPart::Writers, MIB);
        writer.resize(2 * MIB);
        assert_eq!(budget.cache_capacity(), 24 * MIB);
        writer.resize(MIB);
        drop(pinned);
        assert_eq!(budget.cache_capacity(), 33 * MIB);
    }

    #[test]
    fn memtables_count_with_what_they_hold_and_what_the_open_ones_may_grow_by() {
        let budget = budget();
        assert_eq!(budget.cache_capacity(), 34 * MIB, "before they were counted: all of their budget");
        let recount = |memtables_bytes, growth_bytes| {
            budget.recount(|| Counted { memtables_bytes, growth_bytes, tables_bytes: 0 });
        };
        recount(MIB, 3 * MIB);
        assert_eq!(budget.cache_capacity(), 46 * MIB);
        recount(12 * MIB, 4 * MIB);
        assert_eq!(budget.cache_capacity(), 34 * MIB);
        recount(20 * MIB, 4 * MIB);
        assert_eq!(budget.cache_capacity(), 26 * MIB);
    }

    #[test]
    fn the_cache_keeps_its_least_size() {
        let budget = budget();
        let _pinned = budget.charge(MemoryPart::Pinned, 100 * MIB);
        assert_eq!(budget.cache_capacity(), 4 * MIB);
    }

    #[test]
    fn the_total_is_the_sum_of_the_parts_and_returns_to_nothing_but_its_highest() {
        let budget = budget();
        let others = [MemoryPart::Pinned, MemoryPart::Writers, MemoryPart::Readers];
        let charges: Vec<_> = others.iter().map(|&part| budget.charge(part, 7)).collect();
        assert_eq!(budget.total(), 21);
        drop(charges);
        assert_eq!((budget.total(), budget.total_max()), (0, 21));
    }

    /// A cache that is always as full as it may be.
    #[derive(Debug, Default)]
    struct Full(AtomicU64);

    impl Yielding for Full {
        fn set_capacity(&self, bytes: u64) {
            self.0.store(bytes, Ordering::Relaxed);
        }

        fn used_bytes(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// Open tables, the one that goes first in front.
    #[derive(Debug, Default)]
    struct Open(Mutex<std::collections::VecDeque<MemoryCharge>>);

    impl Closing for Open {
        fn close_until(&self, is_enough: &dyn Fn() -> bool) {
            while !is_enough() && self.0.lock().pop_front().is_some() {}
        }
    }

    fn yielding() -> (MemoryBudget, Arc<Full>, Arc<Open>) {
        let (budget, cache, open) = (budget(), Arc::new(Full::default()), Arc::new(Open::default()));
        budget.yields(Arc::clone(&cache) as _);
        budget.closes(Arc::clone(&open) as _);
        (budget, cache, open)
    }

    #[test]
    fn the_cache_makes_room_before_a_charge_counts_and_gets_it_back_at_the_next_share() {
        let (budget, cache, _) = yielding();
        assert_eq!(budget.total(), 34 * MIB);
        let mut charge = budget.charge(MemoryPart::Writers, 5 * MIB);
        assert_eq!((cache.used_bytes(), budget.total()), (29 * MIB, 34 * MIB));
        charge.resize(6 * MIB);
        assert_eq!((cache.used_bytes(), budget.total()), (28 * MIB, 34 * MIB));
        drop(charge);
        assert_eq!((cache.used_bytes(), budget.total()), (28 * MIB, 28 * MIB));
        budget.share();
        assert_eq!((budget.total(), budget.total_max()), (34 * MIB, 34 * MIB));
    }

    #[test]
    fn open_tables_get_all_but_the_least_cache_and_make_room_before_the_limit_is_passed() {
        let (budget, cache, open) = yielding();
        let pinned = || budget.used(MemoryPart::Pinned);
        for _ in 0..40 {
            let charge = budget.charge(MemoryPart::Pinned, MIB);
            open.0.lock().push_back(charge);
        }
        assert_eq!((pinned(), cache.used_bytes()), (30 * MIB, 4 * MIB), "34 MiB for both of them");
        let writer = budget.charge(MemoryPart::Writers, 2 * MIB + 1);
        assert_eq!((pinned(), cache.used_bytes()), (27 * MIB, 5 * MIB - 1), "only whole tables go");
        budget.recount(|| Counted { memtables_bytes: 20 * MIB, ..Counted::default() });
        assert_eq!((pinned(), cache.used_bytes()), (23 * MIB, 5 * MIB - 1));
        drop(writer);
        budget.share();
        assert_eq!((pinned(), cache.used_bytes()), (23 * MIB, 7 * MIB), "the cache has what nobody opens");
        assert_eq!(budget.total_max(), 50 * MIB);
    }

    #[test]
    fn what_is_counted_and_what_is_charged_at_once_never_exceed_the_limit_together() {
        let (budget, ..) = yielding();
        std::thread::scope(|scope| {
            let counting = scope.spawn(|| {
                for round in 0..20_000 {
                    let tables_bytes = MIB * (1 + round % 2);
                    budget.recount(|| Counted { tables_bytes, ..Counted::default() });
                }
            });
            while !counting.is_finished() {
                drop(budget.charge(MemoryPart::Readers, MIB));
            }
        });
        assert_eq!(budget.total_max(), 50 * MIB);
    }

    #[test]
    fn open_tables_keep_their_least_size() {
        let (budget, cache, open) = yielding();
        for _ in 0..20 {
            let charge = budget.charge(MemoryPart::Pinned, MIB);
            open.0.lock().push_back(charge);
        }
        let _writer = budget.charge(MemoryPart::Writers, 100 * MIB);
        assert_eq!((budget.used(MemoryPart::Pinned), cache.used_bytes()), (5 * MIB, 4 * MIB));
    }
}
