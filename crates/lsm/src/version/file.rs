//! A table file as versions hold it: its facts, the table once somebody needed it, and its end.
//!
//! An open table may be closed at any time to make room for others: who reads keeps what it reads with until it is done.
//!
//! Invariant: the file is deleted when the last holder lets go after [`TableFile::mark_obsolete`], which is called
//! only once an edit without the table is durable. Tests: `tests.rs`.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use arc_swap::{ArcSwapOption, Guard};
use bytes::Bytes;
use kelvin_base::sync::Mutex;
use kelvin_base::{Error, Result};
use kelvin_table::Table;

use super::meta::TableMeta;

/// Opens and deletes table files.
pub trait TableOpener: Send + Sync {
    /// Opens the table.
    ///
    /// # Errors
    /// What keeps it from being read.
    fn open(&self, meta: &TableMeta) -> Result<Arc<Table>>;
    /// The table of `slot` was opened; others may be closed for it.
    fn opened(&self, slot: &Arc<Slot>) {
        let _kept_open = slot;
    }
    /// Tells a failure of a table's device in the tier's terms (a slow disk that is away, a full one).
    fn classify(&self, meta: &TableMeta, error: Error) -> Error {
        let _any_tier = meta;
        error
    }
    /// The table is in no version any more, and will be deleted once nobody holds it.
    fn left(&self, meta: &TableMeta) {
        let _held_still = meta;
    }
    /// Deletes the file of a table that nobody holds any more. Must not fail loudly: what stays behind is
    /// found as an orphan at the next open.
    fn delete(&self, meta: &TableMeta);
}

/// Where a table stands while it is open.
#[derive(Default)]
pub struct Slot {
    table: ArcSwapOption<Table>,
    /// It was asked for since [`Slot::take_used`].
    used: AtomicBool,
}

impl Slot {
    /// Closes the table, for whoever asks for it next.
    pub fn close(&self) {
        self.table.store(None);
    }

    /// True if the table was asked for since the last call.
    pub fn take_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    fn get(&self) -> Option<OpenTable> {
        let table = self.table.load();
        table.is_some().then_some(OpenTable(table))
    }
}

/// A table that stays open as long as this is held. Meant to be held for one lookup.
pub struct OpenTable(Guard<Option<Arc<Table>>>);

impl OpenTable {
    fn table(&self) -> &Arc<Table> {
        match &*self.0 {
            Some(table) => table,
            None => unreachable!("made only where there is a table"),
        }
    }

    /// The table, to hold for long.
    #[must_use]
    pub fn share(&self) -> Arc<Table> {
        Arc::clone(self.table())
    }
}

impl Deref for OpenTable {
    type Target = Table;

    fn deref(&self) -> &Table {
        self.table()
    }
}

/// A moment in the life of a hot level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CooledAt {
    /// The tracker's turn ([`kelvin_base::HotTracker::turn`]), as far as it tells one from the next; `u32::MAX` for never.
    pub turn: u32,
    /// How often stale copies had been found then.
    pub clean_turn: u32,
}

impl CooledAt {
    /// In `turn`, when stale copies had been found `clean_turn` times.
    #[must_use]
    pub fn new(turn: u64, clean_turn: u32) -> Self {
        let turn = u32::try_from(turn % u64::from(u32::MAX)).unwrap_or_default();
        Self { turn, clean_turn }
    }

    /// How long `before` it was, in turns of each kind: the longest if it never was.
    #[must_use]
    pub const fn since(self, before: Self) -> (u32, u32) {
        (self.turn.wrapping_sub(before.turn), self.clean_turn.wrapping_sub(before.clean_turn))
    }
}

/// A table file.
pub struct TableFile {
    /// Its facts.
    pub meta: TableMeta,
    opener: Arc<dyn TableOpener>,
    slot: Arc<Slot>,
    being_compacted: AtomicBool,
    times_kept: AtomicU8,
    cooled_at: Mutex<CooledAt>,
    merged_to: Mutex<Option<Bytes>>,
    obsolete: AtomicBool,
}

impl TableFile {
    /// A table file that `opener` opens when it is first needed.
    #[must_use]
    pub fn new(meta: TableMeta, opener: Arc<dyn TableOpener>) -> Self {
        Self {
            meta,
            opener,
            slot: Arc::default(),
            being_compacted: AtomicBool::new(false),
            times_kept: AtomicU8::new(0),
            cooled_at: Mutex::new(CooledAt { turn: u32::MAX, clean_turn: 0 }),
            merged_to: Mutex::default(),
            obsolete: AtomicBool::new(false),
        }
    }

    /// The table, opened if it is not open. A failed open is tried again by the next call.
    ///
    /// # Errors
    /// What keeps it from being read.
    #[inline]
    pub fn table(&self) -> Result<OpenTable> {
        // Only the first use after a while writes: readers of one table share the line.
        if !self.slot.used.load(Ordering::Relaxed) {
            self.slot.used.store(true, Ordering::Relaxed);
        }
        match self.slot.get() {
            Some(table) => Ok(table),
            None => self.open(),
        }
    }

    /// The table if it is open.
    #[must_use]
    pub fn if_open(&self) -> Option<OpenTable> {
        self.slot.get()
    }

    #[cold]
    fn open(&self) -> Result<OpenTable> {
        loop {
            let table = self.opener.open(&self.meta)?;
            // Of two that open it at once, the first one's stays.
            let before = self.slot.table.compare_and_swap(&None::<Arc<Table>>, Some(table));
            if before.is_none() {
                self.opener.opened(&self.slot);
            }
            // It may have been closed for another's sake already.
            if let Some(table) = self.slot.get() {
                return Ok(table);
            }
        }
    }

    /// A failure met while reading the open table, in the tier's terms.
    #[must_use]
    pub fn classify(&self, error: Error) -> Error {
        self.opener.classify(&self.meta, error)
    }

    /// True while a compaction reads it.
    #[must_use]
    pub fn is_being_compacted(&self) -> bool {
        self.being_compacted.load(Ordering::Acquire)
    }

    /// Claims it for a compaction, or lets it go.
    pub fn set_being_compacted(&self, yes: bool) {
        self.being_compacted.store(yes, Ordering::Release);
    }

    /// How many boundary compactions in a row have kept nearly all of what it holds.
    #[must_use]
    pub fn times_kept(&self) -> u8 {
        self.times_kept.load(Ordering::Relaxed)
    }

    /// Says how many boundary compactions in a row have kept nearly all of it: the next one keeps less, so that picking ends.
    pub fn set_times_kept(&self, times: u8) {
        self.times_kept.store(times, Ordering::Relaxed);
    }

    /// When the hot level was last rid of what was not hot, and of what was stale, as far as this table's records were in it.
    #[must_use]
    pub fn cooled_at(&self) -> CooledAt {
        *self.cooled_at.lock()
    }

    /// Sets that.
    pub fn set_cooled_at(&self, at: CooledAt) {
        *self.cooled_at.lock() = at;
    }

    /// The first key that no merge of the hot level's runs has passed: what lies before it is in another run as well.
    #[must_use]
    pub fn first_unmerged(&self) -> Bytes {
        self.merged_to.lock().as_ref().unwrap_or(&self.meta.smallest).clone()
    }

    /// Says that a merge that ended early has passed what lies before `key`.
    pub fn set_merged_to(&self, key: &Bytes) {
        *self.merged_to.lock() = Some(key.clone());
    }

    /// The file is deleted once nobody holds it any more. Only after an edit without it is durable.
    pub fn mark_obsolete(&self) {
        if !self.obsolete.swap(true, Ordering::AcqRel) {
            self.opener.left(&self.meta);
        }
    }
}

impl Drop for TableFile {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            // The handle goes first: some systems refuse to delete an open file.
            self.slot.close();
            self.opener.delete(&self.meta);
        }
    }
}

impl fmt::Debug for TableFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableFile")
            .field("meta", &self.meta)
            .field("open", &self.slot.get().is_some())
            .field("being_compacted", &self.is_being_compacted())
            .finish_non_exhaustive()
    }
}
