//! Directed tests of the promises of DESIGN section 3 and of bad input: a clear error, nothing lost, no panic.
//!
//! Everything runs on memory devices that fail as told, with background work stepped by the waiter, except
//! where a real directory is the point. One binary, so that it is linked once.

#![expect(clippy::unwrap_used, reason = "a failed expectation of a test ends it")]

mod background;
mod bad_input;
mod bulk;
mod copies;
mod damage;
mod events;
mod full;
mod full_log;
mod full_manifest;
mod full_slow;
mod hotness;
mod memory;
mod newer;
mod power;
mod recovery;
mod rig;
mod salvage;
mod slow_away;
mod store;
mod sync_failed;
