//! Files that count what they do and report to their tier.
//!
//! They pass on the storage's own errors, since the seam speaks `io::Error`; whoever makes an
//! [`kelvin_base::Error`] of one hands it to [`TierHandle::classify`].
//!
//! Tests: `tests.rs` beside.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use kelvin_storage::{AlignedBuf, ReadFile, WriteFile};

use super::counters::Purpose;
use super::handle::TierHandle;

#[derive(Debug)]
pub(super) struct CountedRead {
    pub(super) inner: Arc<dyn ReadFile>,
    pub(super) tier: TierHandle,
    pub(super) path: PathBuf,
}

impl ReadFile for CountedRead {
    fn read_at(&self, offset: u64, len: usize, buf: &mut AlignedBuf) -> io::Result<Range<usize>> {
        self.tier.counters().read(Purpose::current(), len as u64);
        self.tier.noted("read", &self.path, self.inner.read_at(offset, len, buf))
    }

    fn len(&self) -> io::Result<u64> {
        self.tier.noted("ask the length of", &self.path, self.inner.len())
    }
}

#[derive(Debug)]
pub(super) struct CountedWrite {
    pub(super) inner: Box<dyn WriteFile>,
    pub(super) tier: TierHandle,
    pub(super) path: PathBuf,
    pub(super) purpose: Purpose,
}

impl WriteFile for CountedWrite {
    fn append(&mut self, data: &[u8]) -> io::Result<()> {
        let done = self.inner.append(data);
        if done.is_ok() {
            self.tier.counters().written(self.purpose, data.len() as u64);
        }
        self.tier.noted("append to", &self.path, done)
    }

    fn flush(&mut self) -> io::Result<()> {
        let done = self.inner.flush();
        self.tier.noted("flush", &self.path, done)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.tier.counters().synced();
        let done = self.inner.sync();
        self.tier.noted("sync", &self.path, done)
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }
}
