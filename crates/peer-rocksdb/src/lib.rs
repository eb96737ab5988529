//! RocksDB as a peer in Kelvin's benchmarks, through the C interface of the system's library (Debian: 7.8.3).
//!
//! Empty without the cargo feature `rocksdb`, so that a machine without the library builds the workspace.
//! [`Peer`] is a store of the kind the runner drives; [`Settings`] are the figures that must equal Kelvin's for the
//! comparison to be fair. Tests: `peer.rs`.

#[cfg(feature = "rocksdb")]
mod ffi;
#[cfg(feature = "rocksdb")]
mod peer;
#[cfg(feature = "rocksdb")]
mod settings;

#[cfg(feature = "rocksdb")]
pub use peer::{Peer, PeerCounters};
#[cfg(feature = "rocksdb")]
pub use settings::{Settings, SlowTier};
