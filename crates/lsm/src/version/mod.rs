//! Which tables there are: table facts, levels, immutable versions, edits, and the manifest that makes them last.
//!
//! Invariants
//! - T1 The tables of a level deeper than L0 are disjoint in user keys (range tombstone extents included) and sorted.
//! - T2 L0 is ordered newest first.
//! - T3 A version is published only after the edit that leads to it is durable; a table's file is deleted only after
//!   an edit without it is durable and its last reader is gone (RELIABILITY M2, M4).
//! - T4 Level numbers are fixed: 0 to [`LEVELS_FAST`] - 1 belong to the fast tier, the rest to the slow one if there is
//!   one. A change of capacity therefore moves data, never level numbers. A table's own tier is in its facts.
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
pub use file::{Slot, TableFile, TableOpener};
pub use level::Level;
pub use manifest::{CURRENT, CURRENT_NEW, current_line, manifest_name, sign as sign_manifest};
pub use meta::TableMeta;
pub use replay::{Keyspace as RecordedKeyspace, Recorded};
pub use set::{FileNumbers, VersionSet, read_recorded, write_recorded};
pub use tree::Version;

pub use crate::tiers::StoreId;

/// Levels of a version.
pub const LEVELS: usize = 12;
/// Levels 0 to `LEVELS_FAST - 1` belong to the fast tier.
pub const LEVELS_FAST: usize = 7;
