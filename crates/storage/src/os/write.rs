//! Appending to a file of the operating system.
//!
//! Appends gather in aligned memory and go out [`BATCH_BYTES`] at a time, or by one write at a flush.
//! With direct I/O a flush pads the last sector with zeros and then sets the length, so it is exact; later
//! appends rewrite that sector with its old bytes in front.
//!
//! Invariants
//! - The file holds bytes `0..base`; `buffer[..fill]` is what follows; `base` is a multiple of [`ALIGNMENT`] while
//!   the handle is direct. `clean` bytes of the buffer are in the file already.
//! - After any error the writer answers errors only (RELIABILITY M5): what reached the file is unknown.

use std::io;

use super::{Handle, retry, transfer};
use crate::{ALIGNMENT, AlignedBuf, WriteFile};

/// Bytes gathered before they are written without a flush.
const BATCH_BYTES: usize = 1 << 20;

/// Memory of a new writer; most logs and manifests flush less than this at a time.
const FIRST_BUFFER_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct OsWriter {
    handle: Handle,
    buffer: AlignedBuf,
    fill: usize,
    clean: usize,
    base: u64,
    /// Length of the file as the operating system knows it (recycled files are longer than what was appended).
    file_bytes: u64,
    preallocated_bytes: u64,
    failed: bool,
}

fn to_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

impl OsWriter {
    pub(super) const fn new(handle: Handle, file_bytes: u64, preallocated_bytes: u64) -> Self {
        let buffer = AlignedBuf::new();
        Self { handle, buffer, fill: 0, clean: 0, base: 0, file_bytes, preallocated_bytes, failed: false }
    }

    /// Runs `step`, and refuses everything after it failed once.
    fn guarded(&mut self, step: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        if self.failed {
            return Err(io::Error::other(
                "an earlier write or sync of this file failed; what it holds is unknown",
            ));
        }
        let outcome = step(self);
        self.failed = outcome.is_err();
        outcome
    }

    fn add(&mut self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let count = data.len().min(BATCH_BYTES - self.fill);
            let wanted = self.fill + count;
            if wanted > self.buffer.capacity() {
                let doubled = (self.buffer.capacity() * 2).clamp(FIRST_BUFFER_BYTES, BATCH_BYTES);
                self.buffer.grow(wanted.max(doubled));
            }
            self.buffer.as_mut_slice()[self.fill..wanted].copy_from_slice(&data[..count]);
            self.fill = wanted;
            data = &data[count..];
            if self.fill == BATCH_BYTES {
                self.write_out()?;
            }
        }
        Ok(())
    }

    /// Writes everything gathered; the file's length is exact afterwards.
    fn write_out(&mut self) -> io::Result<()> {
        if self.fill == self.clean {
            return Ok(());
        }
        let (fill, clean, base) = (self.fill, self.clean, self.base);
        let buffer = &mut self.buffer;
        let end = self.handle.transfer(|handle| {
            let (start, end, unit) = if handle.is_direct() {
                (0, fill.next_multiple_of(ALIGNMENT), ALIGNMENT)
            } else {
                (clean, fill, 1)
            };
            buffer.as_mut_slice()[fill..end].fill(0);
            let bytes = &buffer.as_slice()[start..end];
            transfer::write_full(bytes, unit, base + to_u64(start), |at, part| {
                rustix::io::pwrite(&handle.file, part, at).map_err(io::Error::from)
            })?;
            Ok(base + to_u64(end))
        })?;
        let exact = self.file_bytes.max(base + to_u64(fill));
        if end > exact {
            retry(|| rustix::fs::ftruncate(&self.handle.file, exact))?;
        }
        self.file_bytes = exact;
        self.keep_tail();
        Ok(())
    }

    /// Lets go of what is written, except the sector that a direct writer writes again.
    fn keep_tail(&mut self) {
        let kept = if self.handle.is_direct() { self.fill % ALIGNMENT } else { 0 };
        let gone = self.fill - kept;
        self.buffer.as_mut_slice().copy_within(gone..self.fill, 0);
        self.base += to_u64(gone);
        self.fill = kept;
        self.clean = kept;
    }
}

impl WriteFile for OsWriter {
    fn append(&mut self, data: &[u8]) -> io::Result<()> {
        self.guarded(|writer| writer.add(data))
    }

    fn room(&self) -> usize {
        // A full batch goes out at once.
        BATCH_BYTES - self.fill - 1
    }

    fn flush(&mut self) -> io::Result<()> {
        self.guarded(Self::write_out)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.guarded(|writer| {
            writer.write_out()?;
            // Also writes the length and the blocks' places, which are all that reading back needs.
            retry(|| rustix::fs::fdatasync(&writer.handle.file))?;
            Ok(())
        })
    }

    fn len(&self) -> u64 {
        self.base + to_u64(self.fill)
    }
}

impl Drop for OsWriter {
    fn drop(&mut self) {
        if self.preallocated_bytes > self.file_bytes && !self.failed {
            // Setting the same length gives back the blocks after it. Nothing depends on it.
            let _trimmed = rustix::fs::ftruncate(&self.handle.file, self.file_bytes);
        }
    }
}
