//! The LSM engine over a fast and a slow disk.
//!
//! Lookup tells, policy decides; plan, act, install. ARCHITECTURE.md names the files in reading order.

pub mod after_read;
pub mod audit;
pub mod batch;
pub mod bulk;
pub mod check;
pub mod checkpoint;
pub mod compaction;
pub mod copies;
pub mod db;
pub mod files;
pub mod flush;
pub mod health;
pub mod hot_level;
pub mod hotness;
pub mod install;
pub mod iter;
mod leaving;
pub mod memory;
pub mod memtable;
pub mod multi_get;
pub mod options;
pub mod promotion;
pub mod read;
pub mod recovery;
pub mod report;
pub mod salvage;
pub mod schedule;
pub mod snapshot;
pub mod space;
pub mod stats;
pub mod tiers;
mod told;
pub mod transaction;
pub mod version;
pub mod view;
pub mod wal;
pub mod write;
