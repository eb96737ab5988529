//! What follows a read: every policy on reads lives here, none in the lookup.
//!
//! - A read is counted: by source, by tier, and whether the slow tier was touched.
//! - A read that found a value is an access for the hot-key tracker, wherever the value was: also what a memtable or a cache
//!   serves must stay known as hot, or it would leave the fast tier while it is wanted. A read at a snapshot is one too.
//!
//! Nothing here blocks or fails a reader (DESIGN section 2, idea 1). Tests: `hotness/tests.rs`.

use crate::db::engine::Engine;
use crate::read::{Lookup, Source};
use crate::stats::Counters;

/// What follows a finished point lookup of `key`.
pub fn after_read(engine: &Engine, key: &[u8], lookup: &Lookup) {
    count(&engine.counters, lookup);
    if engine.hotness.is_on()
        && let Some(value) = lookup.found.as_ref().and_then(|found| found.value.as_ref())
    {
        engine.tracker.access(key, value.len());
    }
}

/// Accounts for it.
fn count(counters: &Counters, lookup: &Lookup) {
    let reads = &counters.reads;
    match &lookup.found {
        None => reads.absent.add(1),
        Some(found) => match found.source {
            Source::Memtable => reads.memtable.add(1),
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
