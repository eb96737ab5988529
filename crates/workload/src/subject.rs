//! The store under test, as the runner sees it: the store traits, counters, and a way to let it settle.
//!
//! [`MemorySubject`] is a map in memory that the runner's own tests use; a wrong answer can be planted in it.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use kelvin::Purpose;
use kelvin_base::{Error, OrderedStore, PointStore, Result};
use parking_lot::RwLock;

use crate::samples::HotSet;

/// Bytes moved so far, by what for; `None` where the system does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteCounts {
    /// Written by flushes of memtables.
    pub flushed: Option<u64>,
    /// Read by compactions.
    pub compaction_read: Option<u64>,
    /// Written by compactions.
    pub compaction_written: Option<u64>,
    /// Read from the fast tier.
    pub fast_read: Option<u64>,
    /// Written to the fast tier.
    pub fast_written: Option<u64>,
    /// Read from the slow tier.
    pub slow_read: Option<u64>,
    /// Written to the slow tier.
    pub slow_written: Option<u64>,
}

impl ByteCounts {
    /// The names of the counts, as reports print them, with their values.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, Option<u64>); 7] {
        [
            ("flushed", self.flushed),
            ("compaction_read", self.compaction_read),
            ("compaction_written", self.compaction_written),
            ("fast_read", self.fast_read),
            ("fast_written", self.fast_written),
            ("slow_read", self.slow_read),
            ("slow_written", self.slow_written),
        ]
    }

    /// What was moved since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let less = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        Self {
            flushed: less(self.flushed, earlier.flushed),
            compaction_read: less(self.compaction_read, earlier.compaction_read),
            compaction_written: less(self.compaction_written, earlier.compaction_written),
            fast_read: less(self.fast_read, earlier.fast_read),
            fast_written: less(self.fast_written, earlier.fast_written),
            slow_read: less(self.slow_read, earlier.slow_read),
            slow_written: less(self.slow_written, earlier.slow_written),
        }
    }
}

/// Bytes read and written so far, by what for (in the order of [`Purpose::ALL`]) and by tier (fast, slow).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic(pub [[f64; 2]; Purpose::ALL.len()]);

impl Traffic {
    /// `change` of each figure of this and the same of `other`.
    #[must_use]
    pub fn with(mut self, other: &Self, change: impl Fn(f64, f64) -> f64) -> Self {
        for (mine, theirs) in self.0.as_flattened_mut().iter_mut().zip(other.0.as_flattened()) {
            *mine = change(*mine, *theirs);
        }
        self
    }
}

/// What a system has counted since it was opened.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Reads (gets and scans) that touched the slow tier; `None` where the system does not say.
    pub slow_hits: Option<u64>,
    /// Bytes moved.
    pub bytes: ByteCounts,
    /// The same by purpose; `None` where the system does not say.
    pub traffic: Option<Traffic>,
    /// Further counts that this system alone has; reports print them under their names.
    pub more: Vec<(String, u64)>,
    /// Sizes as they are now, likewise.
    pub sizes: Vec<(String, u64)>,
    /// The set of hot records as it is now, where the system has one.
    pub hot_set: Option<HotSet>,
}

/// What a system uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Processor time so far.
    pub cpu: Duration,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Disk space of the fast tier, bytes.
    pub fast_bytes: u64,
    /// Disk space of the slow tier, bytes.
    pub slow_bytes: u64,
}

/// Puts records into a store that is loaded at once, in order of their keys, by what it is given.
pub type Fill<'a> = &'a mut dyn FnMut(&mut dyn FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()>;

/// A store under test.
pub trait Subject: Send + Sync {
    /// The store itself.
    fn store(&self) -> &dyn OrderedStore;
    /// What it has counted so far. Called a few times a second.
    fn counters(&self) -> Counters;
    /// Writes everything in memory to tables and waits until no compaction is needed or running.
    ///
    /// # Errors
    /// If the store reports that background work failed.
    fn settle(&self) -> Result<()>;
    /// Loads at once what `fill` puts.
    ///
    /// # Errors
    /// `InvalidArgument` from a system that cannot; the store's, and the error of `fill`.
    fn bulk_load(&self, _fill: Fill<'_>) -> Result<()> {
        Err(Error::invalid("this system cannot be loaded at once").advice("leave --bulk-load out"))
    }
    /// How large each of its levels is, bytes; nothing for a system without.
    fn levels(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
    /// What it uses, if this process and the directories of the benchmark do not tell: in a simulation.
    fn used(&self) -> Option<Used> {
        None
    }
}

/// An ordered map in memory.
#[derive(Debug, Default)]
pub struct MemorySubject {
    map: RwLock<BTreeMap<Vec<u8>, Bytes>>,
}

impl MemorySubject {
    /// An empty map.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl PointStore for MemorySubject {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.map.read().get(key).cloned())
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.map.write().insert(key.to_vec(), Bytes::copy_from_slice(value));
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.map.write().remove(key);
        Ok(())
    }

    fn update(&self, key: &[u8], change: &mut dyn FnMut(Option<&[u8]>) -> Option<Vec<u8>>) -> Result<()> {
        let mut map = self.map.write();
        match change(map.get(key).map(|value| &value[..])) {
            Some(value) => drop(map.insert(key.to_vec(), value.into())),
            None => drop(map.remove(key)),
        }
        Ok(())
    }
}

impl OrderedStore for MemorySubject {
    fn scan(&self, start: &[u8], limit: usize, each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        for (key, value) in self.map.read().range(start.to_vec()..).take(limit) {
            if !each(key, value) {
                break;
            }
        }
        Ok(())
    }
}

impl Subject for MemorySubject {
    fn store(&self) -> &dyn OrderedStore {
        self
    }

    fn counters(&self) -> Counters {
        Counters { slow_hits: Some(0), ..Counters::default() }
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }
}
