//! Hot records that a read finds on the slow tier are put again, which brings them to the levels at the top.
//!
//! It is what can be had of promotion without changing RocksDB. The second put is written to no log and gives way where writers
//! are delayed: the record is still where it was. Invariant: it never hides a newer value. All writes of a key hold its
//! stripe, and the value is put again under it only if it is still the one that was read. Tests: `tests.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kelvin_base::{ErrorKind, HotTracker, Result};

use super::Peer;
use crate::ffi;
use crate::shim::slow_reads;

/// What puts records again.
#[derive(Debug)]
pub(super) struct Reput {
    tracker: Arc<dyn HotTracker>,
    write: *mut ffi::WriteOptions,
    records: AtomicU64,
    bytes: AtomicU64,
}

impl Reput {
    pub(super) fn new(tracker: Arc<dyn HotTracker>) -> Self {
        // SAFETY: a plain constructor, and its object.
        let write = unsafe {
            let write = ffi::rocksdb_writeoptions_create();
            ffi::rocksdb_writeoptions_disable_WAL(write, 1);
            ffi::rocksdb_writeoptions_set_no_slowdown(write, 1);
            write
        };
        Self { tracker, write, records: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// Records and bytes put again.
    pub(super) fn counted(&self) -> [u64; 2] {
        [&self.records, &self.bytes].map(|count| count.load(Ordering::Relaxed))
    }

    /// The value of `key`, noted as an access.
    pub(super) fn get(&self, peer: &Peer, key: &[u8]) -> Result<Option<Bytes>> {
        let before = slow_reads();
        let value = peer.read(key)?;
        let was_slow = slow_reads() != before;
        if let Some(value) = &value {
            self.tracker.access(key, value.len());
            if was_slow && self.tracker.is_hot(key) {
                self.put_again(peer, key, value)?;
            }
        }
        Ok(value)
    }

    fn put_again(&self, peer: &Peer, key: &[u8], value: &[u8]) -> Result<()> {
        let _held = peer.stripe(key);
        if peer.read(key)?.as_deref() != Some(value) {
            return Ok(());
        }
        match peer.write(self.write, key, value) {
            Ok(()) => {
                self.records.fetch_add(1, Ordering::Relaxed);
                self.bytes.fetch_add((key.len() + value.len()) as u64, Ordering::Relaxed);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Busy => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Reput {
    fn drop(&mut self) {
        // SAFETY: made in `new`, owned here alone, destroyed once; no write is under way.
        unsafe { ffi::rocksdb_writeoptions_destroy(self.write) }
    }
}
