//! fjall, an LSM-tree in Rust, as a peer in Kelvin's benchmarks: everything on one disk.
//!
//! Empty without the cargo feature `fjall`. [`Peer`] is a store of the kind the runner drives; [`Settings`] are the figures
//! that must equal Kelvin's for the comparison to be fair, as far as fjall lets them. What it does not:
//! - It reads and writes through the page cache: there is no direct I/O. Memory outside its limit serves its reads.
//! - Its journal is synced at each flush of a memtable; in between it is written to the operating system, as asked.
//! - Level 1 is as many tables as level 0 is merged at, and there are seven levels; five memtables may be there at once.
//! - The runs of level 0 at which writers wait are its own: 20 and 30.
//! - It counts no bytes.
//!
//! Tests: `peer.rs`.

#[cfg(feature = "fjall")]
mod peer;

#[cfg(feature = "fjall")]
pub use peer::{MEMTABLES_MAX, Peer, Settings};
