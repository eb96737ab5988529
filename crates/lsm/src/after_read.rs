//! What follows a read: every policy on reads lives here, none in the lookup.
//!
//! For now a read is counted: by source, by tier, and whether the slow tier was touched. Nothing here blocks or
//! fails a reader (DESIGN section 2, idea 1).

use crate::read::{Lookup, Source};
use crate::stats::Counters;

/// Accounts for a finished point lookup.
pub fn after_read(counters: &Counters, lookup: &Lookup) {
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
