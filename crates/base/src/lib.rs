//! What every Kelvin crate shares: keys, sequence numbers, errors, time, background work, and the store traits.
//!
//! Nothing here touches a file. Clock, background threads and identity of tiers are injected from here so that
//! tests and the simulator run the shipped code. Tests stand beside the code.

pub mod bug;
pub mod clock;
pub mod coding;
pub mod error;
pub mod events;
pub mod executor;
pub mod hash;
pub mod hotness;
pub mod iter;
pub mod key;
pub mod pages;
pub mod process;
pub mod seed;
pub mod signal;
pub mod store;
pub mod sync;
pub mod tier;
pub mod tombstone;

pub use clock::{Clock, ManualClock, SystemClock};
pub use error::{Error, ErrorKind, Result};
pub use events::{Event, EventListener, Events};
pub use executor::{Executor, Job, Lane, ManualExecutor, ThreadPool};
pub use hash::hash64;
pub use hotness::{Heat, HotKeys, HotTracker, KeyRange, NoTracker};
pub use iter::InternalIterator;
pub use key::{KEY_BYTES_MAX, Kind, SEQUENCE_MAX, Sequence, VALUE_BYTES_MAX};
pub use seed::system_seed;
pub use signal::Signal;
pub use store::{Change, OrderedStore, PointStore, ScanItem};
pub use tier::Tier;
pub use tombstone::RangeTombstone;
