//! The demo's store: a temporary directory, a small fast tier, and an emulated slow disk.
//!
//! Both disks are seen through a meter; only the slow one is slowed down. The store is opened twice, without a tracker of
//! hot records and with one. The directories go when this is dropped.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kelvin::storage::{OsStorage, ThrottleLimits, ThrottledStorage, Traffic};
use kelvin::{Clock, CompressionChoice, Db, Env, Error, Hotness, Options, SystemClock, ThreadPool};
use tempfile::TempDir;

use crate::exit::Failure;

/// Reads a second of the emulated slow disk: a fast hard disk, or a small cloud volume.
pub const SLOW_READS_PER_SECOND: u64 = 1_000;
/// Bytes a second of the emulated slow disk, each way.
pub const SLOW_BYTES_PER_SECOND: u64 = 100_000_000;
/// The data is this many times the fast tier, as in the paper's evaluation, about.
const DATA_OVER_FAST: u64 = 10;
/// The data is this many times the memory.
const DATA_OVER_MEMORY: u64 = 8;
/// The least fast capacity.
const FAST_BYTES_MIN: u64 = 8 << 20;
/// The least memory.
const MEMORY_BYTES_MIN: u64 = 8 << 20;

/// An open store and its meters.
pub struct World {
    /// The store.
    pub db: Db,
    /// Where its fast directory is.
    pub fast_dir: PathBuf,
    /// Where its slow directory is.
    pub slow_dir: PathBuf,
    /// The fast disk's meter and the slow disk's.
    pub meters: [Arc<ThrottledStorage>; 2],
    /// Its limit on the fast disk, bytes.
    pub fast_capacity: u64,
    /// Its limit on memory, bytes.
    pub memory: u64,
    /// Its time.
    pub clock: Arc<dyn Clock>,
    options: Options,
    dir: Option<TempDir>,
}

/// Opens the store that `options` describe over the two meters.
fn open(
    options: &Options,
    hotness: Hotness,
    meters: &[Arc<ThrottledStorage>; 2],
    clock: &Arc<dyn Clock>,
) -> Result<Db, Failure> {
    let options = options.clone().advanced(|advanced| advanced.hotness = Some(hotness));
    let config = options.derive()?;
    let executor = ThreadPool::new(config.flushes_max, config.compactions_max, config.read_threads)
        .map_err(|error| Error::io("starting threads", &std::env::temp_dir(), error))?;
    let [fast, slow] = meters.clone();
    let env = Env { fast, slow, clock: Arc::clone(clock), executor: Arc::new(executor), seed: 1 };
    Ok(Db::open(options.env(env))?)
}

impl World {
    /// A store for `data_bytes` of records, without a tracker of hot records.
    ///
    /// # Errors
    /// The operating system's or the store's.
    pub fn new(data_bytes: u64) -> Result<Self, Failure> {
        let parent = std::env::temp_dir();
        let dir = tempfile::Builder::new()
            .prefix("kelvin-demo-")
            .tempdir()
            .map_err(|error| Error::io("making a temporary directory", &parent, error))?;
        let (fast_dir, slow_dir) = (dir.path().join("fast"), dir.path().join("slow"));
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let meter =
            |limits| Arc::new(ThrottledStorage::new(Arc::new(OsStorage::new()), limits, Arc::clone(&clock)));
        let meters = [meter(ThrottleLimits::default()), meter(slow_limits())];
        let fast_capacity = (data_bytes / DATA_OVER_FAST).max(FAST_BYTES_MIN);
        let memory = (data_bytes / DATA_OVER_MEMORY).max(MEMORY_BYTES_MIN);
        let options = Options::new(&fast_dir)
            .slow(&slow_dir)
            .fast_capacity(fast_capacity)
            .memory(memory)
            .compression(CompressionChoice::None);
        let db = open(&options, Hotness::Off, &meters, &clock)?;
        Ok(Self { db, fast_dir, slow_dir, meters, fast_capacity, memory, clock, options, dir: Some(dir) })
    }

    /// Closes the store and opens it again as it is meant: with a tracker of hot records.
    ///
    /// # Errors
    /// The store's.
    pub fn reopened_with_hotness(self) -> Result<Self, Failure> {
        self.db.close()?;
        let db = open(&self.options, Hotness::Ralt, &self.meters, &self.clock)?;
        Ok(Self { db, ..self })
    }

    /// What went through the disks so far, fast and slow.
    pub fn traffic(&self) -> [Traffic; 2] {
        [self.meters[0].traffic(), self.meters[1].traffic()]
    }

    /// Closes the store; its directory is removed, or kept and named.
    ///
    /// # Errors
    /// The store's.
    pub fn close(mut self, keep: bool) -> Result<Option<PathBuf>, Failure> {
        let dir = self.dir.take();
        self.db.close()?;
        Ok(dir.filter(|_| keep).map(TempDir::keep))
    }

    /// The directory everything is in.
    pub fn dir(&self) -> &Path {
        self.dir.as_ref().map_or(Path::new(""), TempDir::path)
    }
}

fn slow_limits() -> ThrottleLimits {
    ThrottleLimits {
        read_iops: Some(SLOW_READS_PER_SECOND),
        read_bandwidth: Some(SLOW_BYTES_PER_SECOND),
        write_bandwidth: Some(SLOW_BYTES_PER_SECOND),
        ..ThrottleLimits::default()
    }
}
