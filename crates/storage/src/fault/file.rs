//! Files of a failing device: the effects that change what is read or written.
//!
//! Invariant: a fault that reports success leaves every other byte right. Tests: `tests.rs`.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Control, EIO, ENOSPC, Effect, Op};
use crate::{ALIGNMENT, AlignedBuf, ReadFile, WriteFile};

#[derive(Debug)]
pub(super) struct FaultReader {
    inner: Arc<dyn ReadFile>,
    path: PathBuf,
    control: Arc<Control>,
}

impl FaultReader {
    pub(super) fn new(inner: Arc<dyn ReadFile>, path: &Path, control: &Arc<Control>) -> Self {
        Self { inner, path: path.to_path_buf(), control: Arc::clone(control) }
    }

    /// Reads `len` bytes from another place of the file, whole sectors away if there is one.
    fn misdirected(&self, offset: u64, len: usize, buf: &mut AlignedBuf) -> io::Result<Range<usize>> {
        let sector = u64::try_from(ALIGNMENT).unwrap_or(4096);
        let last = self.inner.len()?.saturating_sub(u64::try_from(len).unwrap_or(u64::MAX));
        let elsewhere: Vec<u64> =
            [offset.checked_sub(sector), offset.checked_add(sector), offset.checked_sub(1)]
                .into_iter()
                .flatten()
                .filter(|&at| at <= last)
                .collect();
        let at = elsewhere.get(self.control.below(elsewhere.len())).copied().unwrap_or(offset);
        self.inner.read_at(at, len, buf)
    }

    /// Reads as usual, then puts the older bytes in place.
    fn stale(&self, offset: u64, len: usize, buf: &mut AlignedBuf) -> io::Result<Range<usize>> {
        let range = self.inner.read_at(offset, len, buf)?;
        let old = self.control.state.lock().stale.get(&self.path).cloned().unwrap_or_default();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(old.len());
        let bytes = &old[start..old.len().min(start.saturating_add(len))];
        let target = &mut buf.as_mut_slice()[range.clone()];
        target.fill(0);
        target[..bytes.len()].copy_from_slice(bytes);
        Ok(range)
    }
}

fn flip_bit(control: &Control, bytes: &mut [u8]) {
    let bit = control.below(bytes.len().saturating_mul(8));
    if let Some(byte) = bytes.get_mut(bit / 8) {
        *byte ^= 1 << (bit % 8);
    }
}

impl ReadFile for FaultReader {
    fn read_at(&self, offset: u64, len: usize, buf: &mut AlignedBuf) -> io::Result<Range<usize>> {
        match self.control.decide(Op::Read, &self.path) {
            None => {}
            Some(Effect::FlipBit) => {
                let range = self.inner.read_at(offset, len, buf)?;
                flip_bit(&self.control, &mut buf.as_mut_slice()[range.clone()]);
                return Ok(range);
            }
            Some(Effect::MisdirectedRead) => return self.misdirected(offset, len, buf),
            Some(Effect::StaleRead) => return self.stale(offset, len, buf),
            Some(effect) => self.control.apply_plain(effect)?,
        }
        self.inner.read_at(offset, len, buf)
    }

    fn len(&self) -> io::Result<u64> {
        self.control.check(Op::Len, &self.path)?;
        self.inner.len()
    }
}

#[derive(Debug)]
pub(super) struct FaultWriter {
    inner: Box<dyn WriteFile>,
    path: PathBuf,
    control: Arc<Control>,
}

impl FaultWriter {
    pub(super) fn new(inner: Box<dyn WriteFile>, path: &Path, control: &Arc<Control>) -> Self {
        Self { inner, path: path.to_path_buf(), control: Arc::clone(control) }
    }
}

impl WriteFile for FaultWriter {
    fn append(&mut self, data: &[u8]) -> io::Result<()> {
        match self.control.decide(Op::Append, &self.path) {
            None => {}
            Some(Effect::ShortWrite) => {
                self.inner.append(&data[..self.control.below(data.len())])?;
                return Err(io::Error::from_raw_os_error(ENOSPC));
            }
            Some(Effect::TornWrite) => {
                self.inner.append(&data[..self.control.below(data.len())])?;
                self.inner.flush()?;
                return Err(io::Error::from_raw_os_error(EIO));
            }
            Some(Effect::FlipBit) => {
                let mut changed = data.to_vec();
                flip_bit(&self.control, &mut changed);
                return self.inner.append(&changed);
            }
            Some(effect) => self.control.apply_plain(effect)?,
        }
        self.inner.append(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.control.check(Op::Flush, &self.path)?;
        self.inner.flush()
    }

    fn sync(&mut self) -> io::Result<()> {
        self.control.check(Op::Sync, &self.path)?;
        self.inner.sync()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }
}
