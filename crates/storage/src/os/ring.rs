//! Reads that end in time, on the reader's own thread: one io_uring for each thread that asks.
//!
//! One system call submits the read and waits for it, so that it costs what a `pread` costs; a hand-over to another
//! thread costs half as much processor time again. Where the kernel has no io_uring or forbids it (containers often
//! do), [`lend`] answers `None` and the caller waits in another way.
//!
//! Invariant: while the kernel may still write to a buffer, ring and buffer are owned by a thread that waits for the
//! completion, and by nobody else. Tests: `ring/tests.rs`; the fault and conformance tests cover the other way.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::{IoUring, opcode, types};

use crate::AlignedBuf;

/// One read at a time.
const ENTRIES: u32 = 2;

thread_local! {
    static RING: RefCell<Slot> = const { RefCell::new(Slot::Untried) };
}

enum Slot {
    Untried,
    Ready(Box<Ring>),
    /// The kernel refuses rings, or the ring is in use further up the stack.
    Absent,
}

/// A ring, and what became of it.
pub(super) struct Ring {
    uring: IoUring,
    /// A read on it is overdue.
    overdue: bool,
    /// The kernel took a read neither now nor before.
    refused: bool,
}

impl Ring {
    fn new() -> Option<Self> {
        let uring = IoUring::new(ENTRIES).ok()?;
        // Waiting with a limit came with Linux 5.11.
        uring.params().is_feature_ext_arg().then_some(Self { uring, overdue: false, refused: false })
    }

    /// Fills `part` from file offset `at`; how many bytes.
    ///
    /// # Errors
    /// `TimedOut` after `limit` without an answer: `part` then belongs to the kernel. Else the file's.
    pub(super) fn read(
        &mut self,
        file: &File,
        part: &mut [u8],
        at: u64,
        limit: Duration,
    ) -> io::Result<usize> {
        let len = u32::try_from(part.len()).unwrap_or(u32::MAX / 2);
        let entry = opcode::Read::new(types::Fd(file.as_raw_fd()), part.as_mut_ptr(), len).offset(at).build();
        // SAFETY: `part` outlives the read: this returns only after its completion, except when overdue, and then
        // `lend` keeps the buffer from everybody until the completion.
        let pushed = unsafe { self.uring.submission().push(&entry) };
        pushed.map_err(|_| io::Error::other("a ring of reads was full though one read is made at a time"))?;
        // The call that submits does not say whether its wait was interrupted or came to its end: it gets half of the
        // limit, and time is looked at only behind it. A read that is answered soon costs no look at a clock.
        let (mut wait, mut end) = (limit / 2, None);
        loop {
            let span = types::Timespec::from(wait);
            let waited =
                self.uring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&span));
            if let Some(done) = self.uring.completion().next() {
                let count = done.result();
                return usize::try_from(count).map_err(|_| io::Error::from_raw_os_error(-count));
            }
            if let Err(error) = waited
                && !self.uring.submission().is_empty()
                && !is_interruption(&error)
            {
                self.refused = true;
                return Err(error);
            }
            let now = monotonic();
            wait = end.get_or_insert_with(|| now.saturating_add(limit / 2)).saturating_sub(now);
            if wait.is_zero() {
                self.overdue = true;
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// Waits for the overdue read.
    fn wait(mut self: Box<Self>, buf: AlignedBuf) {
        while self.uring.completion().next().is_none() {
            // Whatever it answers: the completion is what counts.
            let _waited = self.uring.submit_and_wait(1);
        }
        drop(buf);
    }
}

/// Runs `reads` with this thread's ring on the memory of `buf`. `None`, with nothing done, without a ring. `buf` has
/// lost its memory after `TimedOut`.
pub(super) fn lend<T>(
    buf: &mut AlignedBuf,
    reads: impl FnOnce(&mut Ring, &mut AlignedBuf) -> io::Result<T>,
) -> Option<io::Result<T>> {
    let slot = RING.try_with(|slot| slot.replace(Slot::Absent)).ok()?;
    let mut ring = match slot {
        Slot::Untried => Box::new(Ring::new()?),
        Slot::Ready(ring) => ring,
        Slot::Absent => return None,
    };
    let outcome = reads(&mut ring, buf);
    if ring.refused {
        return None;
    }
    if ring.overdue {
        abandon(ring, std::mem::take(buf));
        put_back(Slot::Untried);
    } else {
        put_back(Slot::Ready(ring));
    }
    Some(outcome)
}

/// Since some moment in the past.
fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::try_from(now).unwrap_or_default()
}

fn is_interruption(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted
}

fn put_back(slot: Slot) {
    // A thread that ends needs no ring any more.
    let _ended = RING.try_with(|place| place.replace(slot));
}

/// Keeps `ring` and `buf` until the kernel is done with them.
fn abandon(ring: Box<Ring>, buf: AlignedBuf) {
    let kept = Box::leak(Box::new(Some((ring, buf))));
    let wait = || {
        if let Some((ring, buf)) = kept.take() {
            ring.wait(buf);
        }
    };
    // Without a thread the two stay in memory for good, which harms nobody but costs their few KiB.
    let _spawned = std::thread::Builder::new().name("kelvin-hung-read".to_string()).spawn(wait);
}

#[cfg(test)]
mod tests;
