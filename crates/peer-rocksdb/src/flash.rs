//! A cache of blocks on the fast disk, behind the block cache in memory.
//!
//! Blocks are gathered in memory until they fill a region, which is written as one file; the region that was hit longest ago
//! goes when there are too many. What is kept in memory is where each block lies. Invariants: the files together have at most
//! the bytes given, in whole regions; a block is found whole or not at all; a failure of the disk costs blocks and nothing
//! else. It begins empty at each opening. Tests stand below.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kelvin_base::{Error, Result};
use kelvin_storage::{AlignedBuf, Create, IoMode, ReadFile, Storage};
use parking_lot::Mutex;

/// Regions that the bytes are divided into, where those are neither too small nor too large.
const REGIONS: u64 = 64;
/// The least and the most of a region, bytes.
const REGION_BYTES: [u64; 2] = [128 << 10, 4 << 20];
/// What the names of its files begin with.
const PREFIX: &str = "blocks-";
/// Memory for where a block lies, bytes, roughly: two keys, a place, free room of the table.
const ENTRY_BYTES: u64 = 96;

/// What the cache has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashCounters {
    /// Blocks asked for.
    pub lookups: u64,
    /// Of these found.
    pub hits: u64,
    /// Bytes written to its files.
    pub written_bytes: u64,
    /// Regions lost because the disk failed.
    pub failures: u64,
}

#[derive(Clone, Copy)]
struct Place {
    region: u64,
    offset: usize,
    len: usize,
}

#[derive(Clone)]
enum Data {
    /// Not written yet.
    Memory(Arc<Vec<u8>>),
    File(Arc<dyn ReadFile>),
}

struct Region {
    data: Data,
    keys: Vec<u128>,
    last_hit: u64,
}

#[derive(Default)]
struct State {
    places: HashMap<u128, Place>,
    regions: HashMap<u64, Region>,
    /// The region that is being filled.
    open: u64,
    bytes: Vec<u8>,
    keys: Vec<u128>,
    hits: u64,
}

impl State {
    /// Lets go of the region that was hit longest ago.
    fn evict(&mut self) -> Option<u64> {
        let (&oldest, _) = self.regions.iter().min_by_key(|(id, region)| (region.last_hit, **id))?;
        self.forget(oldest);
        Some(oldest)
    }

    fn forget(&mut self, id: u64) {
        for key in self.regions.remove(&id).map(|region| region.keys).unwrap_or_default() {
            if self.places.get(&key).is_some_and(|place| place.region == id) {
                self.places.remove(&key);
            }
        }
    }
}

/// The cache.
pub struct FlashCache {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    region_bytes: usize,
    regions_max: usize,
    state: Mutex<State>,
    lookups: AtomicU64,
    hits: AtomicU64,
    written_bytes: AtomicU64,
    failures: AtomicU64,
}

impl std::fmt::Debug for FlashCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlashCache").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// Bytes of a region of a cache of `bytes`.
fn region_bytes(bytes: u64) -> u64 {
    let [least, most] = REGION_BYTES;
    (bytes / REGIONS).clamp(least, most)
}

/// Memory that a cache of `bytes` for blocks of `block_bytes` takes, bytes: where its blocks lie, the region that is filled, and one being written.
#[must_use]
pub fn memory_bytes(bytes: u64, block_bytes: u64) -> u64 {
    bytes / block_bytes.max(1) * ENTRY_BYTES + 2 * region_bytes(bytes)
}

impl FlashCache {
    /// An empty cache of at most `bytes` in `dir`; what an earlier one left there is removed.
    ///
    /// # Errors
    /// `InvalidArgument` if `bytes` are less than two regions; the operating system's.
    pub fn open(storage: Arc<dyn Storage>, dir: &Path, bytes: u64) -> Result<Self> {
        let region_bytes = region_bytes(bytes);
        let regions_max = bytes / region_bytes;
        if regions_max < 2 {
            return Err(Error::invalid(format!("a cache of blocks of {bytes} bytes is too small"))
                .file(dir)
                .advice(format!("give it {} bytes at least", 2 * region_bytes)));
        }
        storage.create_dir_all(dir).map_err(|error| Error::io("make directory", dir, error))?;
        for name in storage.list(dir).map_err(|error| Error::io("list", dir, error))? {
            if name.to_string_lossy().starts_with(PREFIX) {
                let path = dir.join(name);
                storage.remove(&path).map_err(|error| Error::io("remove", &path, error))?;
            }
        }
        Ok(Self {
            storage,
            dir: dir.to_path_buf(),
            region_bytes: usize::try_from(region_bytes).unwrap_or(usize::MAX),
            regions_max: usize::try_from(regions_max).unwrap_or(usize::MAX),
            state: Mutex::default(),
            lookups: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        })
    }

    /// Keeps `block` under `key`. What is as large as a region, or there already, is passed over.
    pub fn insert(&self, key: u128, block: &[u8]) {
        let mut state = self.state.lock();
        if block.is_empty() || block.len() > self.region_bytes || state.places.contains_key(&key) {
            return;
        }
        let full = (state.bytes.len() + block.len() > self.region_bytes).then(|| self.seal(&mut state));
        let place = Place { region: state.open, offset: state.bytes.len(), len: block.len() };
        state.bytes.extend_from_slice(block);
        state.keys.push(key);
        state.places.insert(key, place);
        drop(state);
        if let Some((id, bytes, evicted)) = full {
            self.write(id, &bytes, evicted);
        }
    }

    /// Begins another region, and makes room for the full one: its number, its bytes, and the region that went.
    fn seal(&self, state: &mut State) -> (u64, Arc<Vec<u8>>, Option<u64>) {
        let evicted = if state.regions.len() >= self.regions_max { state.evict() } else { None };
        let id = state.open;
        let bytes = Arc::new(std::mem::replace(&mut state.bytes, Vec::with_capacity(self.region_bytes)));
        let keys = std::mem::take(&mut state.keys);
        let last_hit = state.hits;
        state.regions.insert(id, Region { data: Data::Memory(Arc::clone(&bytes)), keys, last_hit });
        state.open += 1;
        (id, bytes, evicted)
    }

    fn write(&self, id: u64, bytes: &[u8], evicted: Option<u64>) {
        if let Some(evicted) = evicted {
            self.remove(evicted);
        }
        let written = self.write_file(id, bytes);
        let mut state = self.state.lock();
        match written {
            Ok(file) => {
                self.written_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                if let Some(region) = state.regions.get_mut(&id) {
                    region.data = Data::File(file);
                    return;
                }
                // It went while it was written, and whoever took it found no file.
            }
            Err(_) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                state.forget(id);
            }
        }
        drop(state);
        self.remove(id);
    }

    fn write_file(&self, id: u64, bytes: &[u8]) -> std::io::Result<Arc<dyn ReadFile>> {
        let path = self.path(id);
        let mut file = self.storage.create(&path, Create::new(IoMode::Direct))?;
        file.append(bytes)?;
        file.flush()?;
        drop(file);
        self.storage.open(&path, IoMode::Direct)
    }

    fn path(&self, id: u64) -> PathBuf {
        self.dir.join(format!("{PREFIX}{id}"))
    }

    fn remove(&self, id: u64) {
        // One that is not there was not written; another that stays is removed at the next opening.
        let _left = self.storage.remove(&self.path(id));
    }

    /// The block of `key`, told to `found`; true if there was one.
    pub fn lookup(&self, key: u128, found: &mut dyn FnMut(&[u8])) -> bool {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        let Some(&Place { region, offset, len }) = state.places.get(&key) else { return false };
        if region == state.open {
            found(&state.bytes[offset..offset + len]);
            self.hits.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        state.hits += 1;
        let hit = state.hits;
        let Some(region) = state.regions.get_mut(&region) else { return false };
        region.last_hit = hit;
        let data = region.data.clone();
        drop(state);
        match data {
            Data::Memory(bytes) => found(&bytes[offset..offset + len]),
            Data::File(file) => {
                let mut buf = AlignedBuf::new();
                let Ok(range) = file.read_at(offset as u64, len, &mut buf) else {
                    self.failures.fetch_add(1, Ordering::Relaxed);
                    return false;
                };
                found(&buf.as_slice()[range]);
            }
        }
        self.hits.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// What it has done so far.
    #[must_use]
    pub fn counters(&self) -> FlashCounters {
        FlashCounters {
            lookups: self.lookups.load(Ordering::Relaxed),
            hits: self.hits.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use kelvin_storage::MemoryStorage;

    use super::*;

    const BYTES: u64 = 4 * (128 << 10);

    fn block(key: u128) -> Vec<u8> {
        format!("{key:08}").repeat(1000).into_bytes()
    }

    fn read(cache: &FlashCache, key: u128) -> Option<Vec<u8>> {
        let mut read = None;
        let is_there = cache.lookup(key, &mut |bytes| read = Some(bytes.to_vec()));
        assert_eq!(is_there, read.is_some());
        read
    }

    #[test]
    fn blocks_come_back_whole_and_those_hit_longest_ago_go() {
        let storage = Arc::new(MemoryStorage::new());
        let cache = FlashCache::open(storage.clone(), Path::new("/f"), BYTES).unwrap();
        for key in 0..500 {
            cache.insert(key, &block(key));
            assert!(key < 3 || read(&cache, 3) == Some(block(3)), "kept, since it is hit again and again");
        }
        let kept = (0..500).filter(|&key| read(&cache, key).is_some_and(|bytes| bytes == block(key)));
        let kept: Vec<u128> = kept.collect();
        assert!((50..=80).contains(&kept.len()) && kept.contains(&499) && !kept.contains(&100), "{kept:?}");
        let files = storage.list(Path::new("/f")).unwrap();
        assert!(files.len() <= 4, "{files:?}");
        let counters = cache.counters();
        assert!(counters.written_bytes > 3_000_000 && counters.failures == 0, "{counters:?}");
        assert!(counters.hits > 500 && counters.lookups > counters.hits, "{counters:?}");
        // Another begins empty, in the same directory.
        let cache = FlashCache::open(storage.clone(), Path::new("/f"), BYTES).unwrap();
        assert_eq!(read(&cache, 499), None);
        assert!(storage.list(Path::new("/f")).unwrap().is_empty());
        assert!(FlashCache::open(storage, Path::new("/f"), 1 << 10).is_err());
    }
}
