//! Kelvin: a key-value store that keeps every record in the cheapest storage that still serves it fast.

#[cfg(feature = "transfer")]
pub mod transfer;

pub use kelvin_base::{Error, ErrorKind, Result};
pub use kelvin_lsm::batch::WriteBatch;
pub use kelvin_lsm::check::{CheckReport, FileCheck, FileKind, check};
pub use kelvin_lsm::db::{DEFAULT_KEYSPACE, Db, DbIterator, IterOptions, Keyspace, Snapshot, WriteOptions};
pub use kelvin_lsm::options::{Advanced, CompressionChoice, Config, Durability, Env, Options, Profile};
pub use kelvin_lsm::report::{KeyReport, LevelInfo};
pub use kelvin_lsm::stats::Stats;
pub use kelvin_lsm::transaction::Transaction;
