//! What a compaction that writes the slow tier took out of the promotion cache, and what becomes of it. Tests: `hazards_tests.rs`,
//! `flush_tests.rs`.

use std::sync::Arc;

use bytes::Bytes;
use kelvin_base::key::{EXPIRES, append_internal, trailer};
use kelvin_base::seeded_bug;

use super::{ClaimId, Promoted};
use crate::compaction::pick::Plan;
use crate::memory::{MemoryBudget, MemoryCharge, MemoryPart};
use crate::version::FIRST_SLOW;
use crate::view::KeyspaceState;

/// Records with their keys, in key order.
pub type Records = Vec<(Bytes, Promoted)>;

/// A claim, and what it took.
pub struct Claimed {
    keyspace: Arc<KeyspaceState>,
    claim: ClaimId,
    /// Where something newer may come down.
    inside: Records,
    /// Where the compaction only moves what is there.
    outside: Records,
    /// Counts both.
    _memory: MemoryCharge,
}

impl Claimed {
    /// Claims the range of `plan`, if it writes slow levels.
    pub fn of(keyspace: &Arc<KeyspaceState>, plan: &Plan, memory: &MemoryBudget) -> Option<Self> {
        if plan.output_level < FIRST_SLOW {
            return None;
        }
        if seeded_bug!("no-claim-within-the-slow-tier") && plan.tables().all(|(level, _)| level >= FIRST_SLOW)
        {
            return None;
        }
        let (claim, taken) = keyspace.promotion.claim(&plan.smallest, &plan.largest);
        let charge = memory.charge(MemoryPart::Promotion, bytes_of(&taken));
        let comes_down = |(key, _): &(Bytes, Promoted)| {
            let comes = plan.tables().any(|(level, file)| level < FIRST_SLOW && file.meta.contains(key));
            comes || seeded_bug!("promotion-beyond-the-fast-input")
        };
        let (inside, outside) = taken.into_iter().partition(comes_down);
        Some(Self { keyspace: Arc::clone(keyspace), claim, inside, outside, _memory: charge })
    }

    /// How many records it took.
    pub const fn records(&self) -> usize {
        self.inside.len() + self.outside.len()
    }

    /// The records that the compaction may write to the fast tier, as entries; with `checked` only those that were hot before they
    /// were read.
    pub fn entries(&self, checked: bool) -> Vec<(Bytes, Bytes)> {
        entries(self.inside.iter().filter(|(_, record)| record.was_hot || !checked))
    }

    /// Ends the claim of a compaction; `None` if what became of it is not known. What it only moved is still what the slow tier answers, so it goes back; what
    /// something newer may have met goes back only if nothing was installed (C7).
    pub fn end(mut self, is_installed: Option<bool>) {
        let promotion = &self.keyspace.promotion;
        if is_installed == Some(false) || seeded_bug!("put-back-after-the-install") {
            promotion.put_back(self.inside);
        } else {
            // The original of a record that expires may be gone.
            let lasts =
                |kind_byte: u8| kind_byte & EXPIRES == 0 || seeded_bug!("put-back-of-what-may-have-expired");
            self.outside.retain(|(_, record)| lasts(record.kind_byte));
        }
        promotion.put_back(self.outside);
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
