//! Where a boundary compaction writes an entry that the rules keep: hot ones to the fast tier, the others on (HotRAP
//! section 3.4).
//!
//! Invariants
//! - H2 Only the newest version of a key that the merge writes may stay above, and only if no range tombstone covers it, not
//!   even one that a snapshot keeps it visible beneath: everything that goes to the output level and concerns the key is
//!   older, or is the original of the copy that stays.
//! - H7 A record that comes from the fast tier moves or stays, one from the promotion cache is a copy of one that the
//!   merge writes to the output level, or that lies deeper. A record of the slow tier never moves up by itself.
//! - L2 What is hot and was not written anew for long, and copies, are handed up ([`Lifted`]) instead of staying, unless a run has
//!   something of the key: the value goes on, its copy lies above it.
//! - Deletions go on, and range tombstones.
//! - H1 A run of the hot level may hold a copy of a key of which the fast tier has something newer. All that the fast tier has
//!   of such a key, deletions included, stays above the run. Where the runs' filters cannot exclude a key, the runs are read. Where a
//!   range tombstone would have to stay too, or nothing shall stay, the plan evicts the runs' tables instead.
//!
//! Tests: `tests.rs` (`boundary_compactions_...`; each condition of [`HotSide::way`] left out fails it).

use std::sync::Arc;

use bytes::Bytes;
use kelvin_base::key::{Kind, compare_internal};
use kelvin_base::{HotTracker, InternalIterator, Result, Sequence, seeded_bug};

use super::below::Below;
use super::output::OutputWriter;
use super::{Retention, Routed};
use crate::options::HotParts;
use crate::promotion::Lifted;

/// Where an entry goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the output level.
    Output,
    /// To the fast level that retains, for its heat.
    Hot,
    /// There too, hot or not: the hot level below may hold a copy of an older version.
    Guarded,
    /// On, and a copy to the promotion cache; of a copy, which is on the slow tier already, nothing goes on.
    Lift,
    /// Nowhere: a copy that is not hot.
    Nowhere,
}

/// The side of a merge that hot records go to.
pub struct HotSide<'a> {
    /// Writes the tables of the fast level.
    pub out: OutputWriter<'a>,
    /// Tells what is hot.
    pub tracker: &'a dyn HotTracker,
    /// What of it is done.
    pub parts: HotParts,
    /// Sources of the merge that hold records of the promotion cache; they come first.
    pub promoted_sources: usize,
    /// Sources after those that hold tables of the fast tier.
    pub fast_sources: usize,
    /// The runs of the hot level that lie below the input.
    pub guards: Below,
    /// Takes copies of what is hot and not written anew; `None` if that is retained too.
    pub lifted: Option<&'a Lifted>,
    /// What was written before this sequence number is not.
    pub lift_before: Sequence,
}

/// What is asked about an entry that the rules keep.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub key: &'a [u8],
    pub sequence: Sequence,
    pub kind_byte: u8,
    /// Nothing of its key was written yet, and no range tombstone covers it.
    pub is_newest: bool,
    pub source: usize,
    /// It must stay above the hot level.
    pub guarded: bool,
}

impl HotSide<'_> {
    /// The way of an entry that the rules keep.
    pub fn way(&self, asked: &Asked<'_>) -> Way {
        let Asked { key, sequence, source, guarded, .. } = *asked;
        let is_wanted = || {
            let parts = self.parts;
            let (may, checked) = if source < self.promoted_sources {
                (parts.promotion_by_compaction, parts.hotness_check)
            } else {
                (parts.retention, true)
            };
            let is_newest = asked.is_newest || seeded_bug!("older-version-retained");
            let is_fast = self.is_fast(source) || seeded_bug!("slow-record-moves-up");
            is_newest && is_fast && may && (!checked || self.tracker.is_hot(key))
        };
        let is_free = !guarded || seeded_bug!("lifted-over-a-run");
        let lifts = self.lifted.is_some() && source >= self.promoted_sources && is_free;
        match Kind::from_byte(asked.kind_byte) {
            Some(Kind::Copy) if lifts && is_wanted() => Way::Lift,
            Some(Kind::Value) if lifts && sequence < self.lift_before && is_wanted() => Way::Lift,
            Some(Kind::Copy | Kind::Value) if is_wanted() => Way::Hot,
            Some(Kind::Value | Kind::Deletion) if guarded && !seeded_bug!("guarded-entry-goes-down") => {
                Way::Guarded
            }
            Some(Kind::Copy) if !seeded_bug!("cold-copy-goes-down") => Way::Nowhere,
            _ => Way::Output,
        }
    }

    /// True if `source` holds what may stay.
    pub const fn is_fast(&self, source: usize) -> bool {
        source < self.promoted_sources + self.fast_sources
    }

    /// True if what `source` says of `key` must stay above the hot level.
    pub fn guards(&mut self, key: &[u8], source: usize) -> bool {
        self.is_fast(source) && self.guards.has(key)
    }

    /// Counts an entry of `bytes` that stays.
    pub fn count(&self, way: Way, source: usize, bytes: u64, routed: &mut Routed) {
        let (records, all_bytes) = match way {
            Way::Guarded => (&mut routed.guarded, &mut routed.guarded_bytes),
            _ if source < self.promoted_sources => (&mut routed.promoted, &mut routed.promoted_bytes),
            _ => (&mut routed.retained, &mut routed.retained_bytes),
        };
        *records += 1;
        *all_bytes += bytes;
    }

    /// Hands up a copy of an entry; false if there is no room for it.
    pub fn lift(&self, asked: &Asked<'_>, stored: &[u8], routed: &mut Routed) -> bool {
        let Asked { key, sequence, kind_byte, .. } = *asked;
        let is_taken = self.lifted.is_some_and(|lifted| lifted.take(key, sequence, kind_byte, stored));
        if is_taken {
            routed.lifted += 1;
            routed.lifted_bytes += (key.len() + stored.len()) as u64;
        }
        is_taken
    }
}

/// Judges the copies of a merge of runs of the hot level.
pub struct Cooler<'a> {
    /// Tells what is hot; `None` if what is not may stay.
    pub tracker: Option<&'a dyn HotTracker>,
    /// The fast levels.
    pub above: Below,
}

impl Cooler<'_> {
    /// The way of an entry that the rules keep.
    pub fn way(&mut self, key: &[u8], kind_byte: u8) -> Way {
        let is_copy = Kind::from_byte(kind_byte) == Some(Kind::Copy);
        let keeps_stale = seeded_bug!("stale-copy-survives-its-merge");
        let is_cold = |tracker: &dyn HotTracker| !tracker.is_hot(key);
        let is_useless =
            is_copy && (self.tracker.is_some_and(is_cold) || (self.above.has(key) && !keeps_stale));
        if is_useless { Way::Nowhere } else { Way::Output }
    }
}

/// A cursor over the records taken from the promotion cache.
#[derive(Debug)]
pub struct PromotedIter {
    retention: Arc<Retention>,
    /// Where it stands; not valid off the ends.
    at: usize,
}

impl PromotedIter {
    /// A cursor over what `retention` holds, not positioned.
    pub const fn new(retention: Arc<Retention>) -> Self {
        Self { retention, at: usize::MAX }
    }

    fn entries(&self) -> &[(Bytes, Bytes)] {
        &self.retention.promoted
    }
}

impl InternalIterator for PromotedIter {
    fn seek_to_first(&mut self) -> Result<()> {
        self.at = 0;
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.at = self.entries().len().wrapping_sub(1);
        Ok(())
    }

    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.at = self.entries().partition_point(|(key, _)| compare_internal(key, target).is_lt());
        Ok(())
    }

    fn seek_before(&mut self, target: &[u8]) -> Result<()> {
        self.seek(target)?;
        self.at = self.at.wrapping_sub(1);
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.at = self.at.saturating_add(1);
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        self.at = self.at.wrapping_sub(1);
        Ok(())
    }

    fn valid(&self) -> bool {
        self.at < self.entries().len()
    }

    fn key(&self) -> &[u8] {
        self.entries().get(self.at).map_or(&[], |(key, _)| key)
    }

    fn value(&self) -> &[u8] {
        self.entries().get(self.at).map_or(&[], |(_, stored)| stored)
    }
}
