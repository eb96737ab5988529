//! A RocksDB store behind Kelvin's store traits.
//!
//! Invariant: every pointer is owned by exactly one of the types here and freed once; slices from RocksDB never outlive
//! the object they came from. RocksDB's handles may be used from any thread at once (its own documentation).

use std::ffi::{CStr, c_char};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kelvin_base::{Clock, Error, ErrorKind, OrderedStore, PointStore, Result};
use kelvin_storage::OsStorage;
use parking_lot::{Mutex, MutexGuard};

use crate::ffi;
use crate::flash::{FlashCache, FlashCounters};
use crate::peer::reput::Reput;
use crate::settings::{OptionsHandle, Settings, c_path};
use crate::shim::{self, CountingEnv};

mod reput;

const STRIPES: usize = 256;
/// How often background work is asked whether it is done.
const POLL: Duration = Duration::from_millis(20);

/// What a peer has counted since it was opened; `None` without statistics, unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCounters {
    /// Reads of files of the last level.
    pub last_level_reads: Option<u64>,
    /// Bytes of these.
    pub last_level_read_bytes: Option<u64>,
    /// Bytes read from other levels.
    pub other_level_read_bytes: Option<u64>,
    /// Bytes written by flushes.
    pub flush_bytes: Option<u64>,
    /// Bytes read by compactions.
    pub compaction_read_bytes: Option<u64>,
    /// Bytes written by compactions.
    pub compaction_write_bytes: Option<u64>,
    /// Bytes written to the WAL.
    pub wal_bytes: Option<u64>,
    /// What the cache of blocks on the fast disk has done, where there is one; needs no statistics.
    pub flash: Option<FlashCounters>,
    /// Records put again and their bytes, where that is done; needs no statistics.
    pub reput: Option<[u64; 2]>,
}

/// A RocksDB store.
#[derive(Debug)]
pub struct Peer {
    db: *mut ffi::Db,
    options: OptionsHandle,
    read: *mut ffi::ReadOptions,
    write: *mut ffi::WriteOptions,
    has_statistics: bool,
    /// Keeps read-modify-writes of one key apart, and all writes of it where records are put again.
    stripes: Vec<Mutex<()>>,
    reput: Option<Reput>,
    /// What the store asks while it is open, dropped after it and after its options.
    flash: Option<Arc<FlashCache>>,
    _counting: Option<CountingEnv>,
}

// SAFETY: RocksDB's database, options and statistics objects are made for use from many threads at once.
unsafe impl Send for Peer {}
// SAFETY: as above; nothing here is changed after opening.
unsafe impl Sync for Peer {}

/// The error that RocksDB left in `error`, if any; frees it.
fn outcome(error: *mut c_char) -> Result<()> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: RocksDB sets it to a string of its own that the caller frees.
    let text = unsafe {
        let text = CStr::from_ptr(error).to_string_lossy().into_owned();
        ffi::rocksdb_free(error.cast());
        text
    };
    let kind = match text.split(':').next() {
        Some("Corruption") => ErrorKind::Corruption,
        // A write that may not wait would have had to.
        Some("Result incomplete") => ErrorKind::Busy,
        _ => ErrorKind::Io,
    };
    Err(Error::new(kind, format!("RocksDB: {text}")))
}

/// A value that RocksDB keeps pinned until it is dropped.
struct Value(*mut ffi::Pinned);

// SAFETY: a pinned slice is immutable, and its release may happen on any thread.
unsafe impl Send for Value {}
// SAFETY: as above.
unsafe impl Sync for Value {}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        let mut len = 0;
        // SAFETY: the slice lives until `rocksdb_pinnableslice_destroy` in `drop`.
        unsafe {
            let data = ffi::rocksdb_pinnableslice_value(self.0, &raw mut len);
            if data.is_null() { &[] } else { std::slice::from_raw_parts(data.cast(), len) }
        }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: owned, destroyed once.
        unsafe { ffi::rocksdb_pinnableslice_destroy(self.0) }
    }
}

impl Peer {
    /// Opens or makes the store.
    ///
    /// # Errors
    /// What RocksDB reports; `InvalidArgument` for a cache of blocks, or a tracker, without a slow tier or that this RocksDB
    /// cannot be given.
    pub fn open(settings: &Settings) -> Result<Self> {
        let options = settings.options()?;
        let wants_slow_reads = settings.flash.is_some() || settings.reput.is_some();
        let counting = match (&settings.slow, wants_slow_reads) {
            (Some(slow), true) => Some(CountingEnv::set(&options, &slow.dir)?),
            (None, true) => {
                return Err(Error::invalid("there is no slow tier to keep reads from").advice("give one"));
            }
            (_, false) => None,
        };
        let flash = settings
            .flash
            .as_ref()
            .map(|flash| FlashCache::open(Arc::new(OsStorage::new()), &flash.dir, flash.bytes))
            .transpose()?
            .map(Arc::new);
        if let Some(flash) = &flash {
            shim::set_block_cache(&options, flash)?;
        }
        let name = c_path(&settings.dir)?;
        let mut error = std::ptr::null_mut();
        // SAFETY: live options, a zero-terminated name, a place for the error.
        let db = unsafe { ffi::rocksdb_open(options.0, name.as_ptr(), &raw mut error) };
        outcome(error)?;
        // SAFETY: plain constructors.
        let (read, write) =
            unsafe { (ffi::rocksdb_readoptions_create(), ffi::rocksdb_writeoptions_create()) };
        let stripes = (0..STRIPES).map(|_| Mutex::new(())).collect();
        Ok(Self {
            db,
            options,
            read,
            write,
            has_statistics: settings.has_statistics,
            stripes,
            reput: settings.reput.clone().map(Reput::new),
            flash,
            _counting: counting,
        })
    }

    fn read(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let mut error = std::ptr::null_mut();
        // SAFETY: live handles; the key lives through the call.
        let value = unsafe {
            ffi::rocksdb_get_pinned(self.db, self.read, key.as_ptr().cast(), key.len(), &raw mut error)
        };
        outcome(error)?;
        Ok(if value.is_null() { None } else { Some(Bytes::from_owner(Value(value))) })
    }

    fn write(&self, how: *const ffi::WriteOptions, key: &[u8], value: &[u8]) -> Result<()> {
        let mut error = std::ptr::null_mut();
        // SAFETY: live handles; key and value live through the call, which copies them.
        unsafe {
            ffi::rocksdb_put(
                self.db,
                how,
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
                &raw mut error,
            );
        }
        outcome(error)
    }

    fn remove(&self, key: &[u8]) -> Result<()> {
        let mut error = std::ptr::null_mut();
        // SAFETY: live handles; the key lives through the call.
        unsafe { ffi::rocksdb_delete(self.db, self.write, key.as_ptr().cast(), key.len(), &raw mut error) };
        outcome(error)
    }

    fn stripe(&self, key: &[u8]) -> MutexGuard<'_, ()> {
        let stripe = usize::try_from(kelvin_base::hash64(key) % STRIPES as u64).unwrap_or(0);
        self.stripes[stripe].lock()
    }

    /// What a plain write of `key` holds: nothing, unless records are put again.
    fn against_reput(&self, key: &[u8]) -> Option<MutexGuard<'_, ()>> {
        self.reput.as_ref().map(|_| self.stripe(key))
    }

    /// Flushes the memtables and waits until no flush or compaction is wanted or running.
    ///
    /// # Errors
    /// What RocksDB reports.
    pub fn settle(&self, clock: &dyn Clock) -> Result<()> {
        let mut error = std::ptr::null_mut();
        // SAFETY: live handles; the flush options are freed after use.
        unsafe {
            let flush = ffi::rocksdb_flushoptions_create();
            ffi::rocksdb_flush(self.db, flush, &raw mut error);
            ffi::rocksdb_flushoptions_destroy(flush);
        }
        outcome(error)?;
        let busy = [
            c"rocksdb.mem-table-flush-pending",
            c"rocksdb.num-running-flushes",
            c"rocksdb.compaction-pending",
            c"rocksdb.num-running-compactions",
        ];
        while busy.iter().any(|name| self.property(name).is_some_and(|count| count > 0)) {
            clock.sleep(POLL);
        }
        Ok(())
    }

    /// A property that is a number.
    #[must_use]
    pub fn property(&self, name: &CStr) -> Option<u64> {
        let mut value = 0;
        // SAFETY: live handle, zero-terminated name, a place for the number. 0 means that it was written.
        let status = unsafe { ffi::rocksdb_property_int(self.db, name.as_ptr(), &raw mut value) };
        (status == 0).then_some(value)
    }

    /// A property that is text, such as `rocksdb.levelstats`.
    #[must_use]
    pub fn property_text(&self, name: &CStr) -> Option<String> {
        // SAFETY: live handle and zero-terminated name; the answer is a string to free, or null.
        unsafe { owned_text(ffi::rocksdb_property_value(self.db, name.as_ptr())) }
    }

    /// What was counted so far.
    #[must_use]
    pub fn counters(&self) -> PeerCounters {
        let own = PeerCounters {
            flash: self.flash.as_ref().map(|flash| flash.counters()),
            reput: self.reput.as_ref().map(Reput::counted),
            ..PeerCounters::default()
        };
        if !self.has_statistics {
            return own;
        }
        // SAFETY: live options; the answer is a string to free, or null.
        let text = unsafe { owned_text(ffi::rocksdb_options_statistics_get_string(self.options.0)) };
        let text = text.unwrap_or_default();
        PeerCounters {
            last_level_reads: ticker(&text, "rocksdb.last.level.read.count"),
            last_level_read_bytes: ticker(&text, "rocksdb.last.level.read.bytes"),
            other_level_read_bytes: ticker(&text, "rocksdb.non.last.level.read.bytes"),
            flush_bytes: ticker(&text, "rocksdb.flush.write.bytes"),
            compaction_read_bytes: ticker(&text, "rocksdb.compact.read.bytes"),
            compaction_write_bytes: ticker(&text, "rocksdb.compact.write.bytes"),
            wal_bytes: ticker(&text, "rocksdb.wal.bytes"),
            ..own
        }
    }
}

/// Takes over a string of RocksDB's.
///
/// # Safety
/// `text` is null, or zero-terminated and to be freed by the caller.
unsafe fn owned_text(text: *mut c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let owned = CStr::from_ptr(text).to_string_lossy().into_owned();
        ffi::rocksdb_free(text.cast());
        Some(owned)
    }
}

/// The count of `name` in the text of the statistics: lines of `NAME COUNT : n`.
fn ticker(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" COUNT : "))?;
    line.trim().parse().ok()
}

impl Drop for Peer {
    fn drop(&mut self) {
        // SAFETY: all owned and destroyed once; nothing borrows from the database any more (values pin blocks of the
        // cache, which RocksDB keeps alive by reference counts).
        unsafe {
            ffi::rocksdb_close(self.db);
            ffi::rocksdb_readoptions_destroy(self.read);
            ffi::rocksdb_writeoptions_destroy(self.write);
        }
    }
}

impl PointStore for Peer {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        match &self.reput {
            None => self.read(key),
            Some(reput) => reput.get(self, key),
        }
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let _held = self.against_reput(key);
        self.write(self.write, key, value)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        let _held = self.against_reput(key);
        self.remove(key)
    }

    fn update(&self, key: &[u8], change: &mut dyn FnMut(Option<&[u8]>) -> Option<Vec<u8>>) -> Result<()> {
        let _held = self.stripe(key);
        let old = self.read(key)?;
        match change(old.as_deref()) {
            Some(value) => self.write(self.write, key, &value),
            None => self.remove(key),
        }
    }
}

/// An iterator, destroyed on drop.
struct Iter(*mut ffi::Iter);

impl Drop for Iter {
    fn drop(&mut self) {
        // SAFETY: owned, destroyed once, before the database (it borrows the peer's lifetime in `scan`).
        unsafe { ffi::rocksdb_iter_destroy(self.0) }
    }
}

impl OrderedStore for Peer {
    fn scan(&self, start: &[u8], limit: usize, each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        // SAFETY: live handles; the iterator is dropped before this call returns.
        let iter = Iter(unsafe { ffi::rocksdb_create_iterator(self.db, self.read) });
        // SAFETY: the key lives through the call.
        unsafe { ffi::rocksdb_iter_seek(iter.0, start.as_ptr().cast(), start.len()) };
        for _ in 0..limit {
            let (mut key_len, mut value_len) = (0, 0);
            // SAFETY: key and value are read only while the iterator is valid, and not kept past the next move.
            let goes_on = unsafe {
                if ffi::rocksdb_iter_valid(iter.0) == 0 {
                    break;
                }
                let key = ffi::rocksdb_iter_key(iter.0, &raw mut key_len);
                let value = ffi::rocksdb_iter_value(iter.0, &raw mut value_len);
                each(
                    std::slice::from_raw_parts(key.cast(), key_len),
                    std::slice::from_raw_parts(value.cast(), value_len),
                )
            };
            if !goes_on {
                return Ok(());
            }
            // SAFETY: the iterator is valid.
            unsafe { ffi::rocksdb_iter_next(iter.0) };
        }
        let mut error = std::ptr::null_mut();
        // SAFETY: live iterator, a place for the error.
        unsafe { ffi::rocksdb_iter_get_error(iter.0, &raw mut error) };
        outcome(error)
    }
}

#[cfg(test)]
mod tests;
