//! Which tables there are: table facts, levels, immutable versions, edits, and the manifest that makes them last.
//!
//! Invariants
//! - T1 The tables of a level deeper than L0 are disjoint in user keys (range tombstone extents included) and sorted.
//! - T2 L0 is ordered newest first; tables that one merge was cut into are disjoint, and in any order among themselves.
//! - T3 A version is published only after the edit that leads to it is durable; a table's file is deleted only after
//!   an edit without it is durable and its last reader is gone (RELIABILITY M2, M4).
//! - T4 Level numbers are fixed: 0 to [`LEVELS_FAST`] - 1 and the [`HOT_RUNS`] after them belong to the fast tier, the rest to the
//!   slow one if there is one. A change of capacity therefore moves data, never level numbers. A table's own tier is in its facts.
//!
//! Format: docs/formats/manifest.md. Tests: beside the code and in `tests.rs`.

mod edit;
mod file;
mod level;
mod manifest;
mod meta;
mod replay;
mod set;
#[cfg(test)]
pub(crate) mod tests;
mod tree;

pub use edit::{Edit, KeyspaceEntry};
pub use file::{CooledAt, Slot, TableFile, TableOpener};
pub use level::Level;
pub(crate) use manifest::edits_that_check;
pub use manifest::{CURRENT, CURRENT_NEW, current_line, manifest_name, sign as sign_manifest};
pub use meta::TableMeta;
pub use replay::{Keyspace as RecordedKeyspace, Recorded};
pub use set::{FileNumbers, VersionSet, read_recorded, write_recorded};
pub(crate) use set::{manifests_in, read_recorded_in};
pub use tree::Version;

pub use crate::tiers::StoreId;

/// Levels 0 to `LEVELS_FAST - 1` belong to the fast tier.
pub const LEVELS_FAST: usize = 7;
/// Levels from `LEVELS_FAST` on that are runs of the hot level (DESIGN section 6): copies of entries below them, on the fast
/// tier. Their order among themselves means nothing.
pub const HOT_RUNS: usize = 12;
/// The first level of the slow tier.
pub const FIRST_SLOW: usize = LEVELS_FAST + HOT_RUNS;
/// Levels of a version.
pub const LEVELS: usize = FIRST_SLOW + 5;

/// True if `level` is a run of the hot level.
#[must_use]
pub const fn is_hot_run(level: usize) -> bool {
    level >= LEVELS_FAST && level < FIRST_SLOW
}

/// The level that data of `level` goes down to.
#[must_use]
pub const fn next_level(level: usize) -> usize {
    if level + 1 == LEVELS_FAST { FIRST_SLOW } else { level + 1 }
}

/// What people call a level: runs of the hot level do not count.
#[must_use]
pub fn level_name(level: usize) -> String {
    match level {
        _ if level < LEVELS_FAST => format!("L{level}"),
        _ if level < FIRST_SLOW => format!("hot {}", level - LEVELS_FAST),
        _ => format!("L{}", level - HOT_RUNS),
    }
}
