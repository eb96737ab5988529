//! What follows a read: every policy on reads lives here, none in the lookup.
//!
//! - A read is counted: by source, by tier, and whether the slow tier was touched.
//! - A read that found a value is an access for the hot-key tracker, wherever the value was: also what a memtable or a cache
//!   serves must stay known as hot, or it would leave the fast tier while it is wanted. A read at a snapshot is one too.
//! - What a read of the latest state found on the slow tier goes into the promotion cache.
//!
//! Nothing here blocks or fails a reader (DESIGN section 2, idea 1). Tests: `hotness/tests.rs`, `promotion/hazards_tests.rs`.

use bytes::Bytes;
use kelvin_base::key::{EXPIRES, Kind};
use kelvin_base::{HotTracker, Sequence, Tier, seeded_bug};

use crate::db::engine::Engine;
use crate::promotion::{Insertion, Promoted};
use crate::read::{Found, Lookup, Source};
use crate::stats::Counters;
use crate::version::{FIRST_SLOW, LEVELS, Version};
use crate::view::{KeyspaceState, View};

/// What follows a finished point lookup of `key` in `keyspace`.
pub fn after_read(engine: &Engine, keyspace: &KeyspaceState, key: &[u8], lookup: &Lookup) {
    count(&engine.counters, lookup);
    if engine.hotness.is_on()
        && let Some(value) = lookup.found.as_ref().and_then(|found| found.value.as_ref())
    {
        engine.hotness.of_keyspace(keyspace.id).access(key, value.len());
    }
}

/// Accounts for it.
fn count(counters: &Counters, lookup: &Lookup) {
    let reads = &counters.reads;
    match &lookup.found {
        None => reads.absent.add(1),
        Some(found) => match found.source {
            Source::Memtable => reads.memtable.add(1),
            Source::Promotion => reads.promotion.add(1),
            Source::Level(level, _) => reads.level(level).add(1),
        },
    }
    if lookup.touched_slow() {
        reads.slow_touched.add(1);
    }
    for (tier, io) in lookup.io.iter().enumerate() {
        if io.reads > 0 {
            reads.ios[tier].add(io.reads);
            reads.bytes[tier].add(io.bytes);
        }
        if io.cache_hits > 0 {
            reads.cache_hits.add(io.cache_hits);
        }
    }
}

/// A read of the latest state.
#[derive(Clone, Copy)]
pub struct LatestRead<'a> {
    /// Of this keyspace.
    pub keyspace: &'a KeyspaceState,
    /// In this view of it.
    pub view: &'a View,
    /// At this sequence number, the latest one when the read began or later.
    pub at: Sequence,
    /// Of this key.
    pub key: &'a [u8],
}

impl LatestRead<'_> {
    /// Puts what was found into the promotion cache, if it is a record of a slow level and nothing newer can
    /// have come there since. (Compactions write no copies there.)
    pub fn promote(&self, engine: &Engine, found: Option<&Found>) {
        let promotion = &self.keyspace.promotion;
        let Some(found) = found.filter(|found| is_deep(found.source) && promotion.is_on()) else { return };
        let Some(value) = &found.value else { return };
        let was_hot = engine.hotness.of_keyspace(self.keyspace.id).is_hot(self.key);
        if was_hot {
            engine.counters.promotion.known.add(1);
        }
        let record = promoted(found.sequence, value, found.expiry_ms, was_hot);
        let insertion = promotion.insert(self.key, record, || self.is_newest_below());
        engine.counters.promotion.count(insertion);
        if insertion == Insertion::RefusedFull {
            engine.request_promotion();
        }
    }

    /// True if the slow levels that were read and those of now hold nothing newer of the key than what was found: the
    /// same tables may hold it, and nothing in them was hidden from this read. (A view may be younger than `at`.)
    pub(crate) fn is_newest_below(&self) -> bool {
        let then = &self.view.version;
        let now = &self.keyspace.peek().version;
        (FIRST_SLOW..LEVELS).all(|level| {
            let read = then.candidate(level, self.key);
            let is_all_seen = read.is_none_or(|file| file.meta.sequence_max <= self.at)
                || seeded_bug!("insertion-above-what-was-hidden");
            if seeded_bug!("tables-marked-not-compared") && read.is_none() {
                return true;
            }
            is_all_seen && read.map(|file| file.meta.number) == number(now, level, self.key)
        })
    }
}

fn number(version: &Version, level: usize, key: &[u8]) -> Option<u64> {
    version.candidate(level, key).map(|file| file.meta.number)
}

/// True for a table of a slow level on the slow tier.
fn is_deep(source: Source) -> bool {
    matches!(source, Source::Level(level, tier) if (level >= FIRST_SLOW && tier == Tier::Slow) || seeded_bug!("insertion-from-fast-levels"))
}

/// The entry that duplicates a record.
fn promoted(sequence: Sequence, value: &Bytes, expiry_ms: Option<u64>, was_hot: bool) -> Promoted {
    match expiry_ms.filter(|_| !seeded_bug!("promotion-without-expiry")) {
        None => Promoted { sequence, kind_byte: Kind::Copy as u8, stored: value.clone(), was_hot },
        Some(expiry_ms) => {
            let mut stored = Vec::with_capacity(8 + value.len());
            stored.extend_from_slice(&expiry_ms.to_le_bytes());
            stored.extend_from_slice(value);
            Promoted { sequence, kind_byte: Kind::Copy as u8 | EXPIRES, stored: stored.into(), was_hot }
        }
    }
}
