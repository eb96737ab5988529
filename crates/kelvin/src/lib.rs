//! Kelvin: a key-value store that keeps every record in the cheapest storage that still serves it fast.

#[cfg(feature = "transfer")]
pub mod transfer;

pub use kelvin_base::{Error, ErrorKind, Result};
