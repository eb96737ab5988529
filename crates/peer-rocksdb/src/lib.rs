//! RocksDB as a peer in Kelvin's benchmarks, through the C interface of the system's library (Debian: 7.8.3) and a shim of C++
//! for what that lacks.
//!
//! Empty without the cargo feature `rocksdb`, so that a machine without the library builds the workspace.
//! [`Peer`] is a store of the kind the runner drives; [`Settings`] are the figures that must equal Kelvin's for the
//! comparison to be fair. With two tiers it can keep blocks of the slow one in a [`FlashCache`] on the fast one, or put hot
//! records again that it finds on the slow one. Tests: `peer.rs`, `flash.rs`.

#[cfg(feature = "rocksdb")]
mod ffi;
#[cfg(feature = "rocksdb")]
pub mod flash;
#[cfg(feature = "rocksdb")]
mod peer;
#[cfg(feature = "rocksdb")]
mod settings;
#[cfg(feature = "rocksdb")]
mod shim;

#[cfg(feature = "rocksdb")]
pub use flash::{FlashCache, FlashCounters};
#[cfg(feature = "rocksdb")]
pub use peer::{Peer, PeerCounters};
#[cfg(feature = "rocksdb")]
pub use settings::{FlashSettings, Settings, SlowTier};
