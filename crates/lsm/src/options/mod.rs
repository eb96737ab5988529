//! What a user sets, and what follows from it.
//!
//! [`Options`] holds at most eight settings that a user meets and [`Advanced`] everything else. [`Options::derive`]
//! is pure: it checks every value, says what is wrong with one (name, given, allowed, what to do), and answers a
//! [`Config`] in which every figure is fixed and can say why ([`Config::explain`]).
//!
//! Invariants
//! - O1 `derive` reads no clock, file or environment: equal options give equal configurations.
//! - O2 Nothing here is written into the store. What must not change between opens is kept by the manifest, so
//!   every option may be changed at the next open; capacities may shrink as far as the data allows.
//!
//! Tests: `tests.rs`.

mod advanced;
mod config;
mod derive;
mod env;
mod explain;
mod hotness;
mod units;
mod validate;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use kelvin_base::events::{EventListener, Listener};
use kelvin_table::Compression;

pub use advanced::Advanced;
pub use config::Config;
pub use env::Env;
pub use explain::ConfigRow;
pub use hotness::{HotParts, Hotness, SHORT_SCAN_RECORDS_MAX};
pub use units::human_bytes;

/// What an acknowledged write survives (promise 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Durability {
    /// Lost with the process: the log is written when its buffer fills.
    Memory,
    /// Survives the process, not a power loss: the log is handed to the operating system first.
    #[default]
    Os,
    /// Survives a power loss: the log is synced first.
    Sync,
}

impl Durability {
    /// Every level, weakest first.
    pub const ALL: [Self; 3] = [Self::Memory, Self::Os, Self::Sync];

    /// The name used by the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Os => "os",
            Self::Sync => "sync",
        }
    }
}

/// How tables are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum CompressionChoice {
    /// Not at all.
    None,
    /// LZ4 on every level that is larger than the write buffers: cheap, and stored plain where it does not pay.
    #[default]
    Lz4,
    /// Zstd on every level that is larger than the write buffers: smaller, dearer.
    Zstd,
    /// LZ4 on the fast tier, Zstd on the slow tier, where a byte costs a wait.
    ByTier,
}

impl CompressionChoice {
    /// Every choice.
    pub const ALL: [Self; 4] = [Self::None, Self::Lz4, Self::Zstd, Self::ByTier];

    /// The name used by the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
            Self::ByTier => "by-tier",
        }
    }

    /// How the blocks of a table are compressed under this choice, once [`Config::compression_at`] has resolved it.
    #[must_use]
    pub const fn of_blocks(self) -> Compression {
        match self {
            Self::None => Compression::None,
            Self::Lz4 | Self::ByTier => Compression::Lz4,
            Self::Zstd => Compression::Zstd,
        }
    }
}

/// What the store is mostly used for. It shifts the derived figures; every profile serves every use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Profile {
    /// A mix of reads and writes.
    #[default]
    Balanced,
    /// Point reads: more memory for the cache and filters, fewer runs at level 0.
    Reads,
    /// Writes: more memory for write buffers, more runs at level 0 before they are merged.
    Writes,
    /// Scans: larger blocks, more read-ahead.
    Scans,
}

impl Profile {
    /// Every profile.
    pub const ALL: [Self; 4] = [Self::Balanced, Self::Reads, Self::Writes, Self::Scans];

    /// The name used by the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Balanced => "balanced",
            Self::Reads => "reads",
            Self::Writes => "writes",
            Self::Scans => "scans",
        }
    }
}

/// Default of [`Options::memory`], bytes.
pub const MEMORY_DEFAULT_BYTES: u64 = 256 << 20;
/// Least [`Options::memory`], bytes.
pub const MEMORY_BYTES_MIN: u64 = 1 << 20;
/// Least capacity of a tier, bytes.
pub const CAPACITY_BYTES_MIN: u64 = 1 << 20;

/// The settings of a store: eight that a user meets, the rest under [`Options::advanced`].
///
/// ```
/// use kelvin_lsm::options::{Durability, Options};
///
/// let options = Options::new("/fast/store")
///     .slow("/slow/store")
///     .fast_capacity(100 << 30)
///     .memory(2 << 30)
///     .durability(Durability::Sync);
/// let config = options.derive()?;
/// assert_eq!(config.memory_bytes, 2 << 30);
/// # Ok::<(), kelvin_base::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory of the fast tier: WAL, manifest, upper levels.
    pub dir: PathBuf,
    /// Directory of the slow tier: lower levels. Without one, the store has a single tier.
    pub slow_dir: Option<PathBuf>,
    /// Bytes the store may use in [`Options::dir`], everything included: a hard limit. Needed with a slow tier,
    /// since it decides what stays fast. Without one and not given, the disk is the limit.
    pub fast_capacity: Option<u64>,
    /// Bytes the store may use in [`Options::slow_dir`]: a hard limit. Not given, the disk is the limit.
    pub slow_capacity: Option<u64>,
    /// Bytes of memory for write buffers, cache, indexes, filters and everything else that grows with the data.
    /// Default 256 MiB.
    pub memory: u64,
    /// What an acknowledged write survives when the write itself does not say. Default [`Durability::Os`].
    pub durability: Durability,
    /// How tables are compressed. Default [`CompressionChoice::Lz4`].
    pub compression: CompressionChoice,
    /// What the store is mostly used for. Default [`Profile::Balanced`].
    pub profile: Profile,
    /// Everything else, for experts and experiments.
    pub advanced: Advanced,
    /// Files, time, threads and randomness, if not the operating system's.
    pub env: Option<Env>,
    /// Is told what happens in the store, in a thread of its own.
    pub listener: Option<Listener>,
}

impl Options {
    /// Defaults for a store of one tier in `dir`.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            slow_dir: None,
            fast_capacity: None,
            slow_capacity: None,
            memory: MEMORY_DEFAULT_BYTES,
            durability: Durability::default(),
            compression: CompressionChoice::default(),
            profile: Profile::default(),
            advanced: Advanced::default(),
            env: None,
            listener: None,
        }
    }

    /// Adds a slow tier in `dir`. Give [`Options::fast_capacity`] too.
    #[must_use]
    pub fn slow(mut self, dir: impl Into<PathBuf>) -> Self {
        self.slow_dir = Some(dir.into());
        self
    }

    /// Hard limit on the bytes used in the fast directory.
    #[must_use]
    pub fn fast_capacity(mut self, bytes: u64) -> Self {
        self.fast_capacity = Some(bytes);
        self
    }

    /// Hard limit on the bytes used in the slow directory.
    #[must_use]
    pub fn slow_capacity(mut self, bytes: u64) -> Self {
        self.slow_capacity = Some(bytes);
        self
    }

    /// The one limit on memory, bytes.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }

    /// Durability of writes that do not name one.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Compression of tables.
    #[must_use]
    pub fn compression(mut self, choice: CompressionChoice) -> Self {
        self.compression = choice;
        self
    }

    /// What the store is mostly used for.
    #[must_use]
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }

    /// Changes settings under [`Advanced`].
    #[must_use]
    pub fn advanced(mut self, change: impl FnOnce(&mut Advanced)) -> Self {
        change(&mut self.advanced);
        self
    }

    /// Injects files, time, threads and randomness.
    #[must_use]
    pub fn env(mut self, env: Env) -> Self {
        self.env = Some(env);
        self
    }

    /// Tells `listener` what happens in the store: flushes, compactions, promotions, evictions of the hot-key tracker, waits of
    /// writers, disks that do not answer, failures. [`EventListener`] says when it is called and what it may do.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use kelvin_base::Event;
    /// use kelvin_lsm::options::Options;
    ///
    /// let options = Options::new("/store").listener(Arc::new(|event: &Event| eprintln!("{event}")));
    /// ```
    #[must_use]
    pub fn listener(mut self, listener: Arc<dyn EventListener>) -> Self {
        self.listener = Some(Listener(listener));
        self
    }

    /// Checks every setting and derives every figure.
    ///
    /// # Errors
    /// `InvalidArgument` that names the option, what was given, what is allowed, and what to do.
    pub fn derive(&self) -> kelvin_base::Result<Config> {
        validate::validate(self)?;
        let config = derive::derive(self);
        validate::validate_derived(self, &config)?;
        Ok(config)
    }
}
