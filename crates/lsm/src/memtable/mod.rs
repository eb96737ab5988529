//! The in-memory table of the newest writes: a lock-free skiplist for points, a list of range tombstones beside it.
//!
//! Invariants
//! - Inserts from any number of threads and reads need no lock. Visibility is the caller's: an entry may be read
//!   as soon as it is inserted, by readers whose snapshot reaches its sequence number.
//! - Nothing is removed; memory is freed at once, when the memtable is.
//! - `tombstones` and `covering` know every range tombstone whose `insert_tombstone` returned, and cost one atomic load
//!   when there are none.
//!
//! Files: `arena.rs` memory, `skiplist.rs` the list, `iter.rs` the cursor, `tombstones.rs` the other list. Tests: `tests.rs`, `loom_tests.rs`.

mod arena;
mod iter;
#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
mod skiplist;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
mod tombstones;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kelvin_base::key::{seek_trailer, trailer, trailer_kind_byte, trailer_sequence};
use kelvin_base::{Kind, RangeTombstone, Sequence};
use kelvin_table::Fragments;

pub use iter::MemIter;
use skiplist::{Inserter as ListInserter, SkipList, Target};
use tombstones::Tombstones;

/// An entry found in a memtable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemEntry<'a> {
    /// When it was written.
    pub sequence: Sequence,
    /// Its kind byte ([`kelvin_base::key`]).
    pub kind_byte: u8,
    /// Its stored value: expiry (if the kind byte says so) and user value.
    pub stored: &'a [u8],
}

/// The newest writes of one keyspace, in key order, newest first within a key.
pub struct MemTable {
    id: u64,
    wal_number: u64,
    list: SkipList,
    entries: AtomicU64,
    deletions: AtomicU64,
    /// `Sequence::MAX` while empty.
    sequence_first: AtomicU64,
    sequence_last: AtomicU64,
    tombstones: Tombstones,
}

impl MemTable {
    /// An empty memtable. `id` names it among the memtables of the store and seeds its list; its oldest write lies
    /// in the log `wal_number`.
    #[must_use]
    pub fn new(id: u64, wal_number: u64) -> Self {
        Self {
            id,
            wal_number,
            list: SkipList::new(id),
            entries: AtomicU64::new(0),
            deletions: AtomicU64::new(0),
            sequence_first: AtomicU64::new(Sequence::MAX),
            sequence_last: AtomicU64::new(0),
            tombstones: Tombstones::default(),
        }
    }

    /// Inserts one entry: [`Self::inserter`] is cheaper for several.
    ///
    /// Nothing is done if an entry of the same key, sequence number and kind byte is there already.
    ///
    /// # Panics
    /// If the key has 16 MiB or the value 4 GiB or more (the batch's limits are far below).
    pub fn insert(&self, user_key: &[u8], sequence: Sequence, kind_byte: u8, stored: &[u8]) {
        self.inserter().insert(user_key, sequence, kind_byte, stored);
    }

    /// An inserter, which remembers where it inserted last: keys in ascending order need no search. One per thread.
    #[must_use]
    pub fn inserter(&self) -> Inserter<'_> {
        Inserter {
            list: ListInserter::new(&self.list),
            memtable: self,
            entries: 0,
            deletions: 0,
            first: Sequence::MAX,
            last: 0,
        }
    }

    /// Adds a range tombstone.
    pub fn insert_tombstone(&self, tombstone: RangeTombstone) {
        // First: who finds the tombstone finds its sequence number among the memtable's.
        self.note_sequences(tombstone.sequence, tombstone.sequence);
        self.tombstones.insert(tombstone);
    }

    /// The newest entry of `user_key` that a reader at `at` sees; range tombstones are not considered.
    #[must_use]
    pub fn get(&self, user_key: &[u8], at: Sequence) -> Option<MemEntry<'_>> {
        let node = self.list.seek(&Target::new(user_key, seek_trailer(at)))?;
        if node.user_key() != user_key {
            return None;
        }
        let trailer = node.trailer();
        Some(MemEntry {
            sequence: trailer_sequence(trailer),
            kind_byte: trailer_kind_byte(trailer),
            stored: node.value(),
        })
    }

    /// The newest range tombstone at or before `at` that covers `user_key`; 0 if none does.
    #[must_use]
    pub fn covering(&self, user_key: &[u8], at: Sequence) -> Sequence {
        self.tombstones.max_covering(user_key, at)
    }

    /// The range tombstones, as few sets of fragments that may overlap.
    pub fn tombstones(&self) -> impl Iterator<Item = Arc<Fragments>> + use<> {
        let sets = self.tombstones.sets().unwrap_or_default();
        (0..sets.len()).map(move |index| Arc::clone(&sets[index]))
    }

    /// A cursor over the point entries.
    #[must_use]
    pub fn iter(self: &Arc<Self>) -> MemIter {
        MemIter::new(Arc::clone(self))
    }

    /// Bytes used: entries with their overhead, and range tombstones. Compare with a memtable's size limit.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        (self.list.arena().used_bytes() + self.tombstones.bytes()) as u64
    }

    /// Bytes that questions for range tombstones have taken beyond [`Self::memory_bytes`]: they are no part of what the
    /// memtable's table will hold.
    #[must_use]
    pub fn fragment_bytes(&self) -> u64 {
        self.tombstones.set_bytes() as u64
    }

    /// Point entries. Those of an [`Inserter`] count when it is dropped; so for the next three.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Point entries that are deletions.
    #[must_use]
    pub fn deletions(&self) -> u64 {
        self.deletions.load(Ordering::Relaxed)
    }

    /// Range tombstones.
    #[must_use]
    pub fn range_tombstones(&self) -> u64 {
        self.tombstones.count()
    }

    /// True if it holds neither entries nor range tombstones.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries() == 0 && self.range_tombstones() == 0
    }

    /// Smallest and largest sequence number inserted, range tombstones included; `None` while empty.
    #[must_use]
    pub fn sequences(&self) -> Option<(Sequence, Sequence)> {
        let first = self.sequence_first.load(Ordering::Relaxed);
        (first != Sequence::MAX).then(|| (first, self.sequence_last.load(Ordering::Relaxed)))
    }

    /// The name given to [`Self::new`].
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// The log that holds its oldest write: logs before it are not needed for this memtable.
    #[must_use]
    pub const fn wal_number(&self) -> u64 {
        self.wal_number
    }

    fn note_sequences(&self, first: Sequence, last: Sequence) {
        self.sequence_first.fetch_min(first, Ordering::Relaxed);
        self.sequence_last.fetch_max(last, Ordering::Relaxed);
    }
}

impl fmt::Debug for MemTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemTable")
            .field("id", &self.id)
            .field("wal_number", &self.wal_number)
            .field("entries", &self.entries())
            .field("range_tombstones", &self.range_tombstones())
            .field("memory_bytes", &self.memory_bytes())
            .finish_non_exhaustive()
    }
}

/// Inserts into one memtable from one thread, remembering where. Its counts reach the memtable on drop.
pub struct Inserter<'a> {
    list: ListInserter<'a>,
    memtable: &'a MemTable,
    entries: u64,
    deletions: u64,
    first: Sequence,
    last: Sequence,
}

impl Inserter<'_> {
    /// As [`MemTable::insert`].
    ///
    /// # Panics
    /// As [`MemTable::insert`].
    pub fn insert(&mut self, user_key: &[u8], sequence: Sequence, kind_byte: u8, stored: &[u8]) {
        if !self.list.insert(user_key, trailer(sequence, kind_byte), stored) {
            return;
        }
        self.entries += 1;
        self.deletions += u64::from(kind_byte == Kind::Deletion as u8);
        self.first = self.first.min(sequence);
        self.last = self.last.max(sequence);
    }
}

impl Drop for Inserter<'_> {
    fn drop(&mut self) {
        if self.entries == 0 {
            return;
        }
        self.memtable.note_sequences(self.first, self.last);
        self.memtable.entries.fetch_add(self.entries, Ordering::Relaxed);
        if self.deletions > 0 {
            self.memtable.deletions.fetch_add(self.deletions, Ordering::Relaxed);
        }
    }
}
