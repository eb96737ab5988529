//! What a compaction that writes the slow tier took out of the promotion cache, and what becomes of it. Tests: `hazards_tests.rs`,
//! `flush_tests.rs`.

use std::sync::Arc;

use bytes::Bytes;
use kelvin_base::key::{append_internal, trailer};
use kelvin_base::seeded_bug;

use super::claims::{ClaimId, Scope};
use super::{Lifted, Promoted};
use crate::compaction::pick::Plan;
use crate::memory::{MemoryBudget, MemoryCharge, MemoryPart};
use crate::version::FIRST_SLOW;
use crate::view::KeyspaceState;

/// Records with their keys, in key order.
pub type Records = Vec<(Bytes, Promoted)>;

/// What goes between the promotion cache and a boundary compaction.
#[derive(Debug, Default)]
pub struct Exchange {
    /// Records that it may write to the fast tier, as entries.
    pub promoted: Vec<(Bytes, Bytes)>,
    /// Where it hands up what is hot.
    pub lifted: Option<Arc<Lifted>>,
}

/// A claim, and what it took.
pub struct Claimed {
    keyspace: Arc<KeyspaceState>,
    claim: ClaimId,
    /// Where something newer may come down.
    inside: Records,
    /// What expires, where the compaction only moves what is there.
    outside: Records,
    /// What the compaction hands up.
    lifted: Option<Arc<Lifted>>,
    /// Counts both.
    _memory: MemoryCharge,
}

impl Claimed {
    /// Claims what `plan` changes, if it writes slow levels.
    pub fn of(keyspace: &Arc<KeyspaceState>, plan: &Plan, memory: &MemoryBudget) -> Option<Self> {
        if plan.output_level < FIRST_SLOW {
            return None;
        }
        let scope = Arc::new(Scope::of(plan));
        let (claim, taken) = keyspace.promotion.claim(Arc::clone(&scope));
        let charge = memory.charge(MemoryPart::Promotion, bytes_of(&taken));
        let (inside, outside) = taken.into_iter().partition(|(key, _)| scope.comes_down(key));
        let lifted = plan.retain_level.and_then(|_| keyspace.promotion.lifting()).map(Arc::new);
        Some(Self { keyspace: Arc::clone(keyspace), claim, inside, outside, lifted, _memory: charge })
    }

    /// How many records it took.
    pub const fn records(&self) -> usize {
        self.inside.len() + self.outside.len()
    }

    /// What the compaction may take from the cache, and leave there. With `checked` only records that were hot before they were read.
    pub fn exchange(&self, checked: bool) -> Exchange {
        let promoted = entries(self.inside.iter().filter(|(_, record)| record.was_hot || !checked));
        Exchange { promoted, lifted: self.lifted.clone() }
    }

    /// True if the cache is too full for what the compaction would have handed up.
    pub fn is_full(&self) -> bool {
        self.lifted.as_ref().is_some_and(|lifted| lifted.is_full())
    }

    /// Ends the claim of a compaction; `None` if what became of it is not known. What it took goes back only if nothing was installed (C7); what
    /// the compaction hands up follows its install (L1).
    pub fn end(self, is_installed: Option<bool>) {
        let promotion = &self.keyspace.promotion;
        if is_installed == Some(false) || seeded_bug!("put-back-after-the-install") {
            promotion.put_back(self.inside);
        }
        if is_installed == Some(false) || seeded_bug!("put-back-of-what-may-have-expired") {
            promotion.put_back(self.outside);
        }
        if let Some(lifted) = &self.lifted
            && (is_installed == Some(true) || seeded_bug!("lifted-without-the-install"))
        {
            promotion.put_lifted(lifted);
        }
        promotion.release(self.claim);
    }
}

/// Bytes of records: keys, and values as they are stored.
pub fn bytes_of(records: &Records) -> u64 {
    records.iter().map(|(key, record)| (key.len() + record.stored.len()) as u64).sum()
}

/// Records as entries of a table.
pub fn entries<'a>(records: impl IntoIterator<Item = &'a (Bytes, Promoted)>) -> Vec<(Bytes, Bytes)> {
    let entry = |(key, record): &(Bytes, Promoted)| {
        let mut internal = Vec::with_capacity(key.len() + 8);
        append_internal(&mut internal, key, trailer(record.sequence, record.kind_byte));
        (Bytes::from(internal), record.stored.clone())
    };
    records.into_iter().map(entry).collect()
}
