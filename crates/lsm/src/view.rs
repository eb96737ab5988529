//! What a reader pins: a keyspace's memtables and its version (DESIGN section 1; RocksDB: superversion).
//!
//! Invariants
//! - V1 Every entry of `mem` is at least as new as any of the same key in `imms`, those newest first, and every
//!   one of `imms` at least as new as any in the version.
//! - V2 A view is loaded with one atomic load and never changes; it is replaced whole, under the keyspace's
//!   change lock, after the manifest is durable.
//!
//! Tests: `view/loom_tests.rs`, and those of whoever changes it.

#[cfg(all(loom, test))]
mod loom_tests;

use std::sync::Arc;

use kelvin_base::seeded_bug;
use kelvin_base::sync::atomic::{AtomicBool, Ordering};
use kelvin_base::sync::{Loaded, Mutex, Published};

use crate::memtable::MemTable;
use crate::promotion::PromotionCache;
use crate::version::Version;

/// Memtables and version of one keyspace at one moment.
#[derive(Clone)]
pub struct View {
    /// Takes the writes.
    pub mem: Arc<MemTable>,
    /// Sealed memtables, newest first.
    pub imms: Vec<Arc<MemTable>>,
    /// The tables.
    pub version: Arc<Version>,
}

impl View {
    /// Memtables, newest first.
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<MemTable>> {
        std::iter::once(&self.mem).chain(&self.imms)
    }

    /// The oldest WAL that holds a write of this keyspace that is in no table yet.
    pub fn wal_number_min(&self) -> u64 {
        self.imms.last().unwrap_or(&self.mem).wal_number()
    }
}

/// A keyspace while the store is open.
pub struct KeyspaceState {
    /// Its number in WAL and manifest.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// What was read from the slow tier lately.
    pub promotion: PromotionCache,
    view: Published<Arc<View>>,
    change: Mutex<()>,
    /// A flush job is queued or runs.
    pub flushing: AtomicBool,
    dropped: AtomicBool,
}

impl KeyspaceState {
    /// A keyspace that begins with `view` and with nothing in `promotion`.
    pub fn new(id: u32, name: String, view: View, promotion: PromotionCache) -> Self {
        Self {
            id,
            name,
            promotion,
            view: Published::new(Arc::new(view)),
            change: Mutex::new(()),
            flushing: AtomicBool::new(false),
            dropped: AtomicBool::new(false),
        }
    }

    /// The view of now, for a short look.
    pub fn peek(&self) -> Loaded<Arc<View>> {
        self.view.load()
    }

    /// The view of now, to keep.
    pub fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Replaces the view by what `change` makes of it. Changes of one keyspace exclude each other.
    pub fn change_view(&self, change: impl FnOnce(&View) -> View) {
        let _one_at_a_time = self.change.lock();
        let next = change(&self.view.load());
        self.view.store(Arc::new(next));
    }

    /// The keyspace was dropped: handles to it answer errors, and hold nothing in memory or on disk.
    pub fn mark_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
        self.change_view(|view| View {
            mem: Arc::new(MemTable::new(view.mem.wal_number(), view.mem.wal_number())),
            imms: Vec::new(),
            version: Arc::new(Version::empty(self.id, false)),
        });
        if !seeded_bug!("dropped-keyspace-keeps-its-cache") {
            self.promotion.close();
        }
    }

    /// True once dropped.
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }
}
