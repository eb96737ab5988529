//! Appending to a file of the operating system.
//!
//! Appends gather in aligned memory and go out [`Create::buffer_bytes`] at a time, or by one write at a flush. Memory
//! comes whole at the first append and is resident as far as it was written to; nothing is moved but a sector's rest.
//! Through the page cache, what is large or not aligned to anything goes out as it comes.
//! With direct I/O a flush pads the last sector with zeros and then sets the length, so it is exact; later
//! appends rewrite that sector with its old bytes in front.
//!
//! Invariants
//! - The file holds bytes `0..base`; `buffer[..fill]` is what follows; `base` is a multiple of [`ALIGNMENT`] while
//!   the handle is direct. `clean` bytes of the buffer are in the file already.
//! - After any error the writer answers errors only (RELIABILITY M5): what reached the file is unknown.

use std::io;

use super::{Handle, retry, transfer};
use crate::{ALIGNMENT, AlignedBuf, Create, WriteFile};

/// From this size on, bytes that nothing waits before are written through the page cache without being gathered.
const THROUGH_BYTES: usize = 32 << 10;

#[derive(Debug)]
pub(super) struct OsWriter {
    handle: Handle,
    buffer: AlignedBuf,
    /// Bytes gathered before they are written without a flush.
    batch_bytes: usize,
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
    pub(super) fn new(handle: Handle, file_bytes: u64, how: Create) -> Self {
        let buffer = AlignedBuf::new();
        let batch_bytes = how.buffer_bytes.max(ALIGNMENT).next_multiple_of(ALIGNMENT);
        let (fill, clean, base, failed) = (0, 0, 0, false);
        let preallocated_bytes = how.preallocate_bytes;
        Self { handle, buffer, batch_bytes, fill, clean, base, file_bytes, preallocated_bytes, failed }
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
        if self.fill == 0 && data.len() >= THROUGH_BYTES && !self.handle.is_direct() {
            return self.write_through(data);
        }
        while !data.is_empty() {
            self.buffer.grow(self.batch_bytes);
            let count = data.len().min(self.batch_bytes - self.fill);
            let wanted = self.fill + count;
            self.buffer.as_mut_slice()[self.fill..wanted].copy_from_slice(&data[..count]);
            self.fill = wanted;
            data = &data[count..];
            if self.fill == self.batch_bytes {
                self.write_out()?;
            }
        }
        Ok(())
    }

    /// Writes `data`, before which nothing waits, from where it is.
    fn write_through(&mut self, data: &[u8]) -> io::Result<()> {
        let (handle, base) = (&self.handle, self.base);
        transfer::write_full(data, 1, base, |at, part| {
            rustix::io::pwrite(&handle.file, part, at).map_err(io::Error::from)
        })?;
        self.base += to_u64(data.len());
        self.file_bytes = self.file_bytes.max(self.base);
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
        // A full batch goes out at once, and so may what is large.
        let batch = self.batch_bytes - self.fill - 1;
        if self.fill == 0 && !self.handle.is_direct() { batch.min(THROUGH_BYTES - 1) } else { batch }
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
