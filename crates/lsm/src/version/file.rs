//! A table file as versions hold it: its facts, the table once somebody needed it, and its end.
//!
//! Invariant: the file is deleted when the last holder lets go after [`TableFile::mark_obsolete`], which is called
//! only once an edit without the table is durable. Tests: `tests.rs`.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

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
    /// Tells a failure of a table's device in the tier's terms (a slow disk that is away, a full one).
    fn classify(&self, meta: &TableMeta, error: Error) -> Error {
        let _any_tier = meta;
        error
    }
    /// Deletes the file of a table that nobody holds any more. Must not fail loudly: what stays behind is
    /// found as an orphan at the next open.
    fn delete(&self, meta: &TableMeta);
}

/// A table file.
pub struct TableFile {
    /// Its facts.
    pub meta: TableMeta,
    opener: Arc<dyn TableOpener>,
    table: OnceLock<Arc<Table>>,
    being_compacted: AtomicBool,
    obsolete: AtomicBool,
}

impl TableFile {
    /// A table file that `opener` opens when it is first needed.
    #[must_use]
    pub fn new(meta: TableMeta, opener: Arc<dyn TableOpener>) -> Self {
        Self {
            meta,
            opener,
            table: OnceLock::new(),
            being_compacted: AtomicBool::new(false),
            obsolete: AtomicBool::new(false),
        }
    }

    /// The table, opened by the first call that succeeds. A failed open is tried again by the next call.
    ///
    /// # Errors
    /// What keeps it from being read.
    pub fn table(&self) -> Result<&Arc<Table>> {
        if let Some(table) = self.table.get() {
            return Ok(table);
        }
        let table = self.opener.open(&self.meta)?;
        Ok(self.table.get_or_init(|| table))
    }

    /// A failure met while reading the open table, in the tier's terms.
    #[must_use]
    pub fn classify(&self, error: Error) -> Error {
        self.opener.classify(&self.meta, error)
    }

    /// The table, if it is open.
    #[must_use]
    pub fn opened(&self) -> Option<&Arc<Table>> {
        self.table.get()
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

    /// The file is deleted once nobody holds it any more. Only after an edit without it is durable.
    pub fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }
}

impl Drop for TableFile {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            // The handle goes first: some systems refuse to delete an open file.
            self.table.take();
            self.opener.delete(&self.meta);
        }
    }
}

impl fmt::Debug for TableFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableFile")
            .field("meta", &self.meta)
            .field("open", &self.table.get().is_some())
            .field("being_compacted", &self.is_being_compacted())
            .finish_non_exhaustive()
    }
}
