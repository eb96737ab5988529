//! The cursor over a memtable's entries.
//!
//! It holds its memtable, so it outlives a flush. It sees entries inserted while it runs; readers pass by what is
//! newer than their snapshot. Moving back searches from the top, as nodes have no backward links.
//! Tests: `tests.rs`.

use std::sync::Arc;

use kelvin_base::key::split_internal;
use kelvin_base::{InternalIterator, Result};

use super::MemTable;
use super::skiplist::{NodeRef, Saved, Target};

/// A cursor over the point entries of a [`MemTable`]. Never fails. Moving an invalid cursor does nothing.
#[derive(Debug)]
pub struct MemIter {
    memtable: Arc<MemTable>,
    /// The node under the cursor: always of `memtable`'s list.
    at: Option<Saved>,
}

impl MemIter {
    pub(super) fn new(memtable: Arc<MemTable>) -> Self {
        Self { memtable, at: None }
    }

    fn node(&self) -> Option<NodeRef<'_>> {
        // SAFETY: `at` is only ever set from nodes of this memtable's list, below.
        self.at.map(|at| unsafe { self.memtable.list.resume(at) })
    }
}

/// The order's position of an internal key. Bytes too short for a trailer mean the front of that user key.
fn target(internal: &[u8]) -> Target<'_> {
    let (user_key, trailer) = split_internal(internal).unwrap_or((internal, u64::MAX));
    Target::new(user_key, trailer)
}

impl InternalIterator for MemIter {
    fn seek_to_first(&mut self) -> Result<()> {
        self.at = self.memtable.list.first().map(NodeRef::save);
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.at = self.memtable.list.last().map(NodeRef::save);
        Ok(())
    }

    fn seek(&mut self, internal: &[u8]) -> Result<()> {
        self.at = self.memtable.list.seek(&target(internal)).map(NodeRef::save);
        Ok(())
    }

    fn seek_before(&mut self, internal: &[u8]) -> Result<()> {
        self.at = self.memtable.list.seek_before(&target(internal)).map(NodeRef::save);
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.at = self.node().and_then(NodeRef::successor).map(NodeRef::save);
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        let list = &self.memtable.list;
        let before =
            self.node().and_then(|node| list.seek_before(&Target::new(node.user_key(), node.trailer())));
        self.at = before.map(NodeRef::save);
        Ok(())
    }

    fn valid(&self) -> bool {
        self.at.is_some()
    }

    fn key(&self) -> &[u8] {
        self.node().map_or(&[], NodeRef::internal_key)
    }

    fn value(&self) -> &[u8] {
        self.node().map_or(&[], NodeRef::value)
    }
}
