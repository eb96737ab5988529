//! The LSM engine over a fast and a slow disk.
//!
//! Lookup tells, policy decides; plan, act, install. ARCHITECTURE.md names the files in reading order.

pub mod batch;
pub mod compaction;
pub mod db;
pub mod iter;
pub mod memory;
pub mod memtable;
pub mod options;
pub mod space;
pub mod tiers;
pub mod version;
pub mod wal;
