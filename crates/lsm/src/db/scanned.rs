//! What a scan has read, until it is known to be a short one.
//!
//! A short scan is an access to the record it was put on: whoever asks for a key by a scan wants it as one who asks by a read. The records
//! behind it are none, unless [`HotParts::scan_accesses`](crate::options::HotParts) says so: they are there because they lie beside it. A long scan is none
//! at all: it passes what nobody asked for. So what may count is noted until the scan ends, moves elsewhere, or has read one too many; then it is
//! forgotten, and each further step costs a comparison. docs/papers/hotrap.md has the measurement.
//!
//! Nothing a scan reads goes into the promotion cache. A scan reads the slow levels wherever the records lie that it passes, so a copy
//! would save no scan a read; a point read that finds a record hot by scans on the slow tier promotes it.
//!
//! Tests: `hotness/tests.rs`.

use kelvin_base::HotTracker;

use crate::options::SHORT_SCAN_RECORDS_MAX;

/// Bytes of a noted record beside its key.
const HEADER_BYTES: usize = 4 + 4;

/// The records that a scan has read.
#[derive(Debug)]
pub struct Scanned {
    /// For each the lengths of key and value, then the key.
    noted: Vec<u8>,
    /// How many records it stood on; `None` if they are too many, or if nobody wants to know.
    count: Option<u32>,
    accesses_max: u32,
}

impl Scanned {
    /// None yet. Of a short scan the first `accesses_max` records count; of one that is not, none does.
    pub const fn new(accesses_max: u32) -> Self {
        let mut scanned = Self { noted: Vec::new(), count: None, accesses_max };
        scanned.restart();
        scanned
    }

    const fn restart(&mut self) {
        self.count = if self.accesses_max > 0 { Some(0) } else { None };
    }

    /// True if the next record is to be noted.
    pub const fn is_open(&self) -> bool {
        self.count.is_some()
    }

    /// The scan stands on this record.
    pub fn note(&mut self, key: &[u8], value_len: usize) {
        let Some(count) = &mut self.count else { return };
        *count += 1;
        if *count > SHORT_SCAN_RECORDS_MAX {
            self.noted.clear();
            self.count = None;
        } else if *count <= self.accesses_max {
            let len = |len: usize| u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes();
            self.noted.extend_from_slice(&len(key.len()));
            self.noted.extend_from_slice(&len(value_len));
            self.noted.extend_from_slice(key);
        }
    }

    /// The scan ends, or goes on elsewhere: tells `tracker` of the records if they were few.
    pub fn tell(&mut self, tracker: &dyn HotTracker) {
        let mut rest = self.noted.as_slice();
        while let Some((header, tail)) = rest.split_first_chunk::<HEADER_BYTES>() {
            let [key_len, value_len] =
                [0, 4].map(|at| u32::from_le_bytes(std::array::from_fn(|byte| header[at + byte])) as usize);
            let Some((key, next)) = tail.split_at_checked(key_len) else { break };
            tracker.access(key, value_len);
            rest = next;
        }
        self.noted.clear();
        self.restart();
    }
}
