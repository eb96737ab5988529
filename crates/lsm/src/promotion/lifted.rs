//! What a boundary compaction hands up: hot records that nobody has written anew for long leave the last fast level, where each table
//! that comes down would be merged with them, and go on as copies, in the promotion cache first and then in the hot level. Tests:
//! `compaction_tests.rs`, `compaction/job/boundary_tests.rs`.
//!
//! Invariants
//! - L1 A copy is put into the cache only once the compaction is installed, and while its claim is in force: its original is then what the slow
//!   part answers for the key (C6).
//! - L2 Of a key that a run of the hot level has something of, nothing is handed up: what is newer stays above what is older.
//! - L3 The cache has set the room aside before the record leaves its table: what is handed up is not lost for want of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use kelvin_base::Sequence;
use kelvin_base::key::{EXPIRES, Kind};
use kelvin_base::sync::Mutex;

use super::Promoted;
use super::cache::bytes_of;
use super::claimed::Records;
use super::room::Room;

/// Collects what one compaction hands up.
#[derive(Debug)]
pub struct Lifted {
    room: Arc<Room>,
    records: Mutex<Records>,
    is_full: AtomicBool,
}

impl Lifted {
    /// Nothing yet, within `room`.
    pub(crate) fn new(room: &Arc<Room>) -> Self {
        Self { room: Arc::clone(room), records: Mutex::default(), is_full: AtomicBool::new(false) }
    }

    /// Takes a copy of an entry; false if there is no room for it.
    pub fn take(&self, key: &[u8], sequence: Sequence, kind_byte: u8, stored: &[u8]) -> bool {
        let kind_byte = Kind::Copy as u8 | (kind_byte & EXPIRES);
        let record = Promoted { sequence, kind_byte, stored: Bytes::copy_from_slice(stored), was_hot: true };
        let has_room = self.room.take(bytes_of(key, &record));
        if has_room {
            self.records.lock().push((Bytes::copy_from_slice(key), record));
        } else {
            self.is_full.store(true, Ordering::Relaxed);
        }
        has_room
    }

    /// True if something found no room.
    pub(super) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Takes out what was handed up, with its room.
    pub(crate) fn take_out(&self) -> Records {
        std::mem::take(&mut *self.records.lock())
    }
}

impl Drop for Lifted {
    fn drop(&mut self) {
        self.room.give(self.take_out().iter().map(|(key, record)| bytes_of(key, record)).sum());
    }
}
