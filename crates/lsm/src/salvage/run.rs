//! The entries of tables that do not overlap, in order, read block by block: what cannot be read is told and passed over.
//!
//! Forward only. What is passed over lies behind everything that was yielded before, so a merge learns of it before it yields a key that
//! it may concern. Tests: `tests/trust/salvage.rs`.

use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;
use kelvin_base::key::compare_internal;
use kelvin_base::sync::Mutex;
use kelvin_base::{Error, InternalIterator, Result};
use kelvin_table::{ScanOptions, Table, TableIter};

use super::damage::{Damage, Place};
use super::survey::{Tables, open_remains};
use crate::files::table_name;
use crate::tiers::TierHandle;
use crate::version::TableMeta;

/// Tables of one level that do not overlap, in order.
pub(super) struct Run {
    tiers: [Option<TierHandle>; 2],
    id: u32,
    keyspace: String,
    level: usize,
    metas: Vec<TableMeta>,
    damage: Arc<Mutex<Damage>>,
    /// Index of the table behind the one that is open.
    next: usize,
    open: Option<(Arc<Table>, TableIter)>,
}

impl Run {
    pub(super) fn new(tables: &Tables, level: usize, metas: Vec<TableMeta>) -> Self {
        Self {
            tiers: tables.tiers.clone(),
            id: tables.id,
            keyspace: tables.keyspace.clone(),
            level,
            metas,
            damage: Arc::clone(&tables.damage),
            next: 0,
            open: None,
        }
    }

    /// Tells of what `error` says of the table that was opened last, with `tell`.
    fn tell(&self, tell: impl FnOnce(&mut Damage, Place<'_>)) {
        let Some(meta) = self.next.checked_sub(1).and_then(|at| self.metas.get(at)) else { return };
        let name = table_name(meta.number);
        let path = self.tiers[meta.tier.index()]
            .as_ref()
            .map_or_else(|| name.clone().into(), |tier| tier.path(&name));
        let place = Place { id: self.id, keyspace: &self.keyspace, level: self.level, meta, path: &path };
        tell(&mut self.damage.lock(), place);
    }

    /// Goes on to an entry after a move with `outcome`: over blocks and tables that cannot be read, and from one table to the next.
    fn settle(&mut self, outcome: &Result<()>) {
        if outcome.is_err() {
            self.pass_damage();
        }
        while !self.valid() {
            let Some(meta) = self.metas.get(self.next) else {
                self.open = None;
                return;
            };
            self.next += 1;
            match open_remains(&self.tiers, meta) {
                // Its tail was read before; now it cannot be.
                Err(error) => {
                    self.open = None;
                    self.tell(|damage, place| damage.table(place, error));
                }
                Ok(remains) => {
                    let table = Arc::new(remains.table);
                    let mut iter = table.iter(ScanOptions::default());
                    let first = iter.seek_to_first();
                    self.open = Some((table, iter));
                    if first.is_err() {
                        self.pass_damage();
                    }
                }
            }
        }
    }

    /// Passes over the block that cannot be read, and over those behind it that cannot be read either.
    fn pass_damage(&mut self) {
        let mut lost = Vec::new();
        if let Some((table, iter)) = &mut self.open {
            while let Some((block, error)) = iter.pass_damaged_block() {
                lost.extend(table.block_place(block).map(|place| (place, error)));
            }
        }
        for ((handle, from, to), error) in lost {
            self.tell(|damage, place| {
                let from = if from.is_empty() { place.meta.smallest.clone() } else { Bytes::from(from) };
                let at = (handle.offset, handle.len_with_trailer() as u64);
                damage.block(place, at, (from, Bytes::from(to)), error);
            });
        }
    }
}

fn forward_only() -> Error {
    Error::invalid("what is rescued is read forward only")
}

impl InternalIterator for Run {
    fn seek_to_first(&mut self) -> Result<()> {
        self.next = 0;
        self.open = None;
        self.settle(&Ok(()));
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        Err(forward_only())
    }

    fn seek(&mut self, target: &[u8]) -> Result<()> {
        while self.valid() && compare_internal(self.key(), target) == Ordering::Less {
            self.next()?;
        }
        Ok(())
    }

    fn seek_before(&mut self, _target: &[u8]) -> Result<()> {
        Err(forward_only())
    }

    fn next(&mut self) -> Result<()> {
        let outcome = self.open.as_mut().map_or(Ok(()), |(_, iter)| iter.next());
        self.settle(&outcome);
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        Err(forward_only())
    }

    fn valid(&self) -> bool {
        self.open.as_ref().is_some_and(|(_, iter)| iter.valid())
    }

    fn key(&self) -> &[u8] {
        self.open.as_ref().map_or(&[], |(_, iter)| iter.key())
    }

    fn value(&self) -> &[u8] {
        self.open.as_ref().map_or(&[], |(_, iter)| iter.value())
    }
}
