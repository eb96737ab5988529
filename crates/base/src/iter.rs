//! The iterator over internal keys that memtables, tables, levels and merges share.

use crate::error::Result;

/// A cursor over entries in internal-key order.
///
/// A new cursor is not valid until positioned. Moving answers an error if the source could not be read; the
/// error is sticky: the cursor stays invalid and every further move repeats it (a scan never skips silently).
pub trait InternalIterator: Send {
    /// Moves to the first entry.
    ///
    /// # Errors
    /// If the source cannot be read.
    fn seek_to_first(&mut self) -> Result<()>;
    /// Moves to the last entry.
    ///
    /// # Errors
    /// If the source cannot be read.
    fn seek_to_last(&mut self) -> Result<()>;
    /// Moves to the first entry at or behind the internal key `target`.
    ///
    /// # Errors
    /// If the source cannot be read.
    fn seek(&mut self, target: &[u8]) -> Result<()>;
    /// Moves to the last entry before the internal key `target`.
    ///
    /// # Errors
    /// If the source cannot be read.
    fn seek_before(&mut self, target: &[u8]) -> Result<()>;
    /// Moves on. The cursor must be valid.
    ///
    /// # Errors
    /// If the source cannot be read.
    fn next(&mut self) -> Result<()>;
    /// Moves back. The cursor must be valid.
    ///
    /// # Errors
    /// If the source cannot be read.
    fn prev(&mut self) -> Result<()>;
    /// True if the cursor stands on an entry.
    fn valid(&self) -> bool;
    /// The internal key under the cursor, which must be valid.
    fn key(&self) -> &[u8];
    /// The stored value under the cursor, which must be valid.
    fn value(&self) -> &[u8];
}
