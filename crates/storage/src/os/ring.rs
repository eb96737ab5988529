//! Reads that end in time, on the reader's own thread: one io_uring for each thread that asks.
//!
//! One system call submits the read and waits for it, so that it costs what a `pread` costs; a hand-over to another
//! thread costs half as much processor time again. Where the kernel has no io_uring or forbids it (containers often
//! do), [`lend`] answers `None` and the caller waits in another way.
//!
//! Invariant: while the kernel may still write to a buffer, ring and buffer are owned by a thread that waits for the
//! completion, and by nobody else. Tests below; the fault and conformance tests cover the other way.

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
        let limit = types::Timespec::from(limit);
        let args = types::SubmitArgs::new().timespec(&limit);
        loop {
            let waited = self.uring.submitter().submit_with_args(1, &args);
            if let Some(done) = self.uring.completion().next() {
                let count = done.result();
                return usize::try_from(count).map_err(|_| io::Error::from_raw_os_error(-count));
            }
            match waited {
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::TIME.raw_os_error()) => {
                    self.overdue = true;
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(error) if !self.uring.submission().is_empty() && !is_interruption(&error) => {
                    self.refused = true;
                    return Err(error);
                }
                // Interrupted: the read is queued or under way.
                _ => {}
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
mod tests {
    use std::io::Write;

    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    /// A file that answers once something is written to the other end.
    fn slow_file() -> (File, File) {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        (File::from(reader), File::from(writer))
    }

    #[test]
    fn a_read_that_is_answered_yields_its_bytes_and_one_that_is_not_ends_in_time() {
        let (reader, mut writer) = slow_file();
        writer.write_all(b"abc").unwrap();
        let mut buf = AlignedBuf::with_capacity(64);
        let read = |buf: &mut AlignedBuf| {
            lend(buf, |ring, buf| ring.read(&reader, &mut buf.as_mut_slice()[..64], 0, SOON))
        };
        let Some(answer) = read(&mut buf) else {
            // A kernel without rings: nothing to test, and the callers' other way has its own tests.
            return;
        };
        assert_eq!(answer.unwrap(), 3);
        assert_eq!(&buf.as_slice()[..3], b"abc");
        let late = read(&mut buf).unwrap();
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(buf.capacity(), 0, "the kernel may still write to that memory");
        // The late answer goes where nobody looks, and a new ring serves this thread.
        writer.write_all(b"late").unwrap();
        let mut buf = AlignedBuf::with_capacity(64);
        let next = std::iter::from_fn(|| {
            writer.write_all(b"next").unwrap();
            Some(read(&mut buf))
        });
        // The abandoned read may take the first "next" together with "late".
        let answered = next.take(3).flatten().find_map(Result::ok).unwrap();
        assert!(buf.as_slice()[..answered].ends_with(b"next"));
    }

    #[test]
    fn an_error_of_the_file_is_the_reads() {
        let (_reader, writer) = slow_file();
        let mut buf = AlignedBuf::with_capacity(64);
        let outcome = lend(&mut buf, |ring, buf| ring.read(&writer, &mut buf.as_mut_slice()[..64], 0, SOON));
        if let Some(outcome) = outcome {
            assert_eq!(outcome.unwrap_err().raw_os_error(), Some(rustix::io::Errno::BADF.raw_os_error()));
            assert_eq!(buf.capacity(), crate::ALIGNMENT);
        }
    }
}
