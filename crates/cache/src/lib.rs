//! Memory caches of the store: today one cache bounded by bytes, from which block, record and pointer caches are made.
//!
//! Knows nothing of the engine. Tests stand beside the code.

pub mod bytes;

pub use bytes::{ByteCache, CacheStats, Weigh};
