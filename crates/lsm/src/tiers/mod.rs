//! The two tiers as the engine sees them: a directory each, with every file operation counted, watched and its
//! errors told in Kelvin's terms.
//!
//! In:  a [`kelvin_storage::Storage`], a directory, a clock.
//! Out: operations that answer [`kelvin_base::Error`]: a slow tier that does not answer is `TierUnavailable`, a
//!      full disk `NoSpace`, a read-only file system `ReadOnly`, all with the tier, the path and what to do.
//!
//! Invariants
//! - T1 An error is never turned into "not there": only `exists` answers a bool, and only from a clean answer.
//! - T2 Files handed out count and report to the tier's [`Health`] whoever uses them.
//!
//! Tests: `tests.rs`.

mod counters;
mod files;
mod handle;
mod health;
pub mod identity;

#[cfg(test)]
mod tests;

pub use counters::{IoCount, IoStats, Purpose, PurposeScope};
pub use handle::TierHandle;
pub use health::{Health, HealthReport};
pub use identity::StoreId;
