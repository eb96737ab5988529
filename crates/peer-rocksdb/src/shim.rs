//! The Rust side of `shim.cc`: which reads go to the slow directory, and a [`FlashCache`] between block cache and tables.
//!
//! Invariant: nothing is written through RocksDB's options before their layout was checked. Tests: `peer/tests.rs`.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::sync::Arc;

use kelvin_base::{Error, Result};

use crate::ffi;
use crate::flash::FlashCache;
use crate::settings::{OptionsHandle, c_path};

type Allocate = unsafe extern "C" fn(to: *mut c_void, len: usize) -> *mut c_char;
type Insert = unsafe extern "C" fn(*const c_void, *const c_char, usize, *const c_char, usize);
type Lookup = unsafe extern "C" fn(*const c_void, *const c_char, usize, *mut c_void, Allocate) -> c_int;

unsafe extern "C" {
    fn kelvin_shim_layout_holds(
        options: *const ffi::Options,
        write_buffer_size: usize,
        max_open_files: c_int,
        target_file_size_base: u64,
    ) -> c_int;
    fn kelvin_shim_count_slow_reads(options: *mut ffi::Options, slow_dir: *const c_char) -> *mut c_void;
    fn kelvin_shim_env_destroy(env: *mut c_void);
    fn kelvin_shim_slow_reads() -> u64;
    fn kelvin_shim_set_block_cache(
        options: *mut ffi::Options,
        cache: *const c_void,
        insert: Insert,
        lookup: Lookup,
    ) -> c_int;
}

/// Reads of files in slow directories that this thread has made through [`CountingEnv`]s.
pub(crate) fn slow_reads() -> u64 {
    // SAFETY: reads a number of this thread's.
    unsafe { kelvin_shim_slow_reads() }
}

/// True if the shim finds in RocksDB's options what the C interface writes there.
fn layout_holds() -> bool {
    // Figures that are nobody's default.
    let (buffer, files, table) = (0x0123_4567, 54_321, 0x0765_4321);
    // SAFETY: a live options object, plain numbers; freed by the handle.
    unsafe {
        let options = OptionsHandle(ffi::rocksdb_options_create());
        ffi::rocksdb_options_set_write_buffer_size(options.0, buffer);
        ffi::rocksdb_options_set_max_open_files(options.0, files);
        ffi::rocksdb_options_set_target_file_size_base(options.0, table);
        kelvin_shim_layout_holds(options.0, buffer, files, table) == 1
    }
}

fn unknown_layout() -> Error {
    Error::invalid("this RocksDB keeps its options elsewhere than version 7.8 does")
        .advice("link Debian's librocksdb 7.8, or measure rocksdb-fat, which needs nothing of the kind")
}

/// An environment that counts reads of a slow directory. It outlives the options and the store opened with them.
#[derive(Debug)]
pub(crate) struct CountingEnv(*mut c_void);

impl CountingEnv {
    pub(crate) fn set(options: &OptionsHandle, slow_dir: &Path) -> Result<Self> {
        if !layout_holds() {
            return Err(unknown_layout());
        }
        let name = c_path(slow_dir)?;
        // SAFETY: the layout was checked; the name is copied.
        Ok(Self(unsafe { kelvin_shim_count_slow_reads(options.0, name.as_ptr()) }))
    }
}

impl Drop for CountingEnv {
    fn drop(&mut self) {
        // SAFETY: made by `kelvin_shim_count_slow_reads`, owned here alone, destroyed once.
        unsafe { kelvin_shim_env_destroy(self.0) }
    }
}

/// Has the tables of `options` ask `cache`, which must outlive the options and the store, for blocks.
pub(crate) fn set_block_cache(options: &OptionsHandle, cache: &Arc<FlashCache>) -> Result<()> {
    // SAFETY: the layout is checked first; the caller keeps the cache as long as it is asked.
    let is_set = layout_holds()
        && unsafe { kelvin_shim_set_block_cache(options.0, Arc::as_ptr(cache).cast(), insert, lookup) == 1 };
    if is_set { Ok(()) } else { Err(unknown_layout()) }
}

/// RocksDB's keys of blocks have 16 bytes; others are not cached.
///
/// # Safety
/// `key` points to `len` bytes.
unsafe fn key_of(key: *const c_char, len: usize) -> Option<u128> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(key.cast::<u8>(), len) };
    Some(u128::from_ne_bytes(bytes.try_into().ok()?))
}

unsafe extern "C" fn insert(
    cache: *const c_void,
    key: *const c_char,
    key_len: usize,
    data: *const c_char,
    len: usize,
) {
    // SAFETY: the shim passes the cache it was given, which is alive, and slices that live through the call.
    unsafe {
        let (cache, key) = (&*cache.cast::<FlashCache>(), key_of(key, key_len));
        if let Some(key) = key {
            cache.insert(key, std::slice::from_raw_parts(data.cast(), len));
        }
    }
}

unsafe extern "C" fn lookup(
    cache: *const c_void,
    key: *const c_char,
    key_len: usize,
    to: *mut c_void,
    allocate: Allocate,
) -> c_int {
    // SAFETY: as above; `allocate` answers memory for as many bytes as it is asked for.
    unsafe {
        let (cache, key) = (&*cache.cast::<FlashCache>(), key_of(key, key_len));
        let mut copy = |bytes: &[u8]| {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), allocate(to, bytes.len()).cast(), bytes.len());
        };
        c_int::from(key.is_some_and(|key| cache.lookup(key, &mut copy)))
    }
}
