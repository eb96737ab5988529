//! Kelvin: a key-value store that keeps every record in the cheapest storage that still serves it fast.
//!
//! One LSM-tree lies over a fast and a slow disk. You give it a directory on each, how much of the fast one it may use,
//! and how much memory; it keeps to both limits and loses nothing it has acknowledged.
//!
//! # A first program
//!
//! ```
//! use kelvin::{Db, Options};
//!
//! # fn main() -> kelvin::Result<()> {
//! # let temporary = tempfile::tempdir().expect("a temporary directory");
//! # let dir = temporary.path().join("store");
//! let db = Db::open(Options::new(dir))?;
//! db.put(b"greeting", b"hello")?;
//! assert_eq!(db.get(b"greeting")?.as_deref(), Some(&b"hello"[..]));
//! db.close()
//! # }
//! ```
//!
//! # Two tiers
//!
//! ```
//! use kelvin::{Db, Options};
//!
//! # fn main() -> kelvin::Result<()> {
//! # let temporary = tempfile::tempdir().expect("a temporary directory");
//! # let (nvme, hdd) = (temporary.path().join("nvme"), temporary.path().join("hdd"));
//! let options = Options::new(nvme)
//!     .slow(hdd)
//!     .fast_capacity(64 << 20)
//!     .memory(32 << 20);
//! let db = Db::open(options)?;
//! # db.put(b"k", b"v")?;
//! # db.close()
//! # }
//! ```
//!
//! # Where to look
//!
//! - [`Options`]: eight settings; [`Options::derive`] and [`Config::explain`] show what follows from them.
//! - [`Db`] is the keyspace "default" and opens others ([`Db::keyspace`]); both read and write alike ([`Keyspace`]).
//! - [`WriteBatch`] for several writes at once, [`Transaction`] for read-modify-write, [`Snapshot`] for a moment that
//!   stays, [`DbIterator`] for ranges in either direction.
//! - [`events`] tells of flushes, compactions, promotions and failures as they happen.
//! - [`ErrorKind`] says what a caller can do about an [`Error`]. A key that is not there is not an error.
//! - [`check`] reads every byte of a store and says what is lost, also when it cannot be opened.
//! - [`salvage`] rescues what can be read of a damaged store into a new one, and says what is lost.
//! - `transfer` (feature `transfer`) reads and writes records as CSV, JSON lines and Kelvin's dump format.

#[cfg(feature = "transfer")]
pub mod transfer;

pub use bytes::Bytes;
pub use kelvin_base::{
    Clock, Error, ErrorKind, Executor, Heat, KEY_BYTES_MAX, Lane, ManualClock, ManualExecutor, OrderedStore,
    PointStore, Result, Sequence, SystemClock, ThreadPool, Tier, VALUE_BYTES_MAX,
};
pub use kelvin_lsm::batch::WriteBatch;
pub use kelvin_lsm::bulk::{BulkLoad, BulkLoaded};
pub use kelvin_lsm::check::{CheckReport, FileCheck, FileKind, check};
pub use kelvin_lsm::db::{DEFAULT_KEYSPACE, Db, DbIterator, IterOptions, Keyspace, Snapshot, WriteOptions};
pub use kelvin_lsm::hotness::HotnessStats;
pub use kelvin_lsm::options::{
    Advanced, CompressionChoice, Config, ConfigRow, Durability, Env, HotParts, Hotness, Options, Profile,
    human_bytes,
};
pub use kelvin_lsm::report::{KeyReport, LevelInfo};
pub use kelvin_lsm::stats::{HotLevelStats, Stats};
pub use kelvin_lsm::tiers::{IoCount, Purpose};
pub use kelvin_lsm::transaction::Transaction;

pub mod events {
    //! What happens in a store, told to a listener: [`Options::listener`](crate::Options::listener).
    //!
    //! ```
    //! use std::sync::{Arc, Mutex};
    //!
    //! use kelvin::events::{Event, What};
    //! use kelvin::{Db, Options};
    //!
    //! # fn main() -> kelvin::Result<()> {
    //! # let temporary = tempfile::tempdir().expect("a temporary directory");
    //! # let dir = temporary.path().join("store");
    //! let flushed = Arc::new(Mutex::new(0));
    //! let sum = Arc::clone(&flushed);
    //! let listener = move |event: &Event| match &event.what {
    //!     What::Flushed { bytes, .. } => *sum.lock().expect("nobody panics with it") += bytes,
    //!     // Every event prints as one line, and `Event::fields` has its parts.
    //!     _ => eprintln!("{event}"),
    //! };
    //! let db = Db::open(Options::new(dir).listener(Arc::new(listener)))?;
    //! db.put(b"greeting", b"hello")?;
    //! db.flush()?;
    //! db.close()?;
    //! assert!(*flushed.lock().expect("nobody panics with it") > 0);
    //! # Ok(())
    //! # }
    //! ```

    pub use kelvin_base::events::{
        Compaction, EVENTS_WAITING_MAX, Event, EventListener, Field, Kept, Listener, TrackerSizes, What,
    };
}

pub mod salvage {
    //! What can be read of a damaged store, in a new one. See [`salvage()`].
    //!
    //! ```
    //! use kelvin::salvage::{How, salvage};
    //! use kelvin::{Db, Options};
    //!
    //! # fn main() -> kelvin::Result<()> {
    //! # let temporary = tempfile::tempdir().expect("a temporary directory");
    //! # let (dir, new) = (temporary.path().join("store"), temporary.path().join("new"));
    //! # Db::open(Options::new(&dir))?.close()?;
    //! let salvaged = salvage(Options::new(dir), Options::new(&new), How::default(), &mut |_| {})?;
    //! for lost in &salvaged.lost {
    //!     eprintln!("{} of {}: {}", lost.part.name(), lost.path.display(), lost.error);
    //! }
    //! let db = Db::open(Options::new(new))?;
    //! # db.close()
    //! # }
    //! ```

    pub use kelvin_lsm::salvage::{How, Keyspace, Lost, Part, Record, Salvaged, Sink, rescue, salvage};
}

pub mod storage {
    //! Where a store's files are: the seam through which disks can be replaced ([`crate::Env`]).

    pub use kelvin_storage::throttle::{Limits as ThrottleLimits, Traffic};
    pub use kelvin_storage::{IoMode, MemoryStorage, OsStorage, Storage, ThrottledStorage};
}
