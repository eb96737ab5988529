//! Tests of reads that end in time, on real pipes: a kernel without rings has nothing to test.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use kelvin_base::{Clock, ManualClock, SystemClock};
use rustix::fs::{CWD, FileType, Mode, OFlags};

use super::*;
use crate::deadline::{Deadline, DeadlineStorage};
use crate::{Create, IoMode, OsStorage, ReadFile, Storage};

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

fn has_rings() -> bool {
    Ring::new().is_some()
}

/// A file of `dir` that holds "good".
fn good_file(dir: &Path) -> std::path::PathBuf {
    let path = dir.join("good");
    let mut file = OsStorage::new().create(&path, Create::new(IoMode::Buffered)).unwrap();
    file.append(b"good").unwrap();
    file.sync().unwrap();
    path
}

/// A named pipe in `dir` and its other end: reads of it hang until something is written there.
fn hanging_file(dir: &Path) -> (std::path::PathBuf, File) {
    let path = dir.join("hanging");
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let other_end = rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
    (path, File::from(other_end))
}

fn is_good(file: &dyn ReadFile, buf: &mut AlignedBuf) -> bool {
    let range = file.read_at(0, 4, buf).unwrap();
    &buf.as_slice()[range] == b"good"
}

#[test]
fn a_read_is_given_up_at_its_limit_and_no_sooner() {
    let (reader, _writer) = slow_file();
    let (clock, limit) = (SystemClock::new(), Duration::from_secs(1));
    let mut buf = AlignedBuf::with_capacity(64);
    let begun = clock.now();
    let outcome = lend(&mut buf, |ring, buf| ring.read(&reader, &mut buf.as_mut_slice()[..64], 0, limit));
    if let Some(outcome) = outcome {
        let took = clock.now() - begun;
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(took >= limit, "{took:?}");
    }
}

#[test]
fn a_file_that_hangs_times_out_keeps_its_buffer_and_the_threads_other_reads_go_on() {
    // Large enough that a buffer given back is the next one's.
    const HELD_BYTES: usize = 64 << 10;
    if !has_rings() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (hanging, mut other_end) = hanging_file(dir.path());
    let clock = Arc::new(ManualClock::new(0));
    let deadline =
        Deadline { limit: SOON, probe_interval: Duration::from_secs(1), workers_max: 4, idle_max: 2 };
    let storage = DeadlineStorage::new(Arc::new(OsStorage::new()), deadline, clock.clone());
    let good = storage.open(&good_file(dir.path()), IoMode::Buffered).unwrap();
    let hanging = storage.open(&hanging, IoMode::Buffered).unwrap();
    let mut buf = AlignedBuf::with_capacity(HELD_BYTES);
    let held_at = buf.as_slice().as_ptr();
    assert_eq!(hanging.read_at(0, 3, &mut buf).unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert!(storage.is_tripped() && buf.capacity() == 0);
    clock.advance(deadline.probe_interval);

    let mut others: Vec<_> = (0..8).map(|_| AlignedBuf::with_capacity(HELD_BYTES)).collect();
    for other in &mut others {
        assert_ne!(other.as_slice().as_ptr(), held_at, "the kernel may still write there");
        other.as_mut_slice().fill(7);
    }
    assert!(is_good(&*good, &mut buf) && !storage.is_tripped());
    let served = RING.with(|slot| matches!(*slot.borrow(), Slot::Ready(_)));
    assert!(served, "by a ring, and no other thread");

    // The late answer goes where nobody looks.
    other_end.write_all(b"old").unwrap();
    let began = monotonic();
    while rustix::io::ioctl_fionread(&other_end).unwrap() > 0 {
        assert!(monotonic() - began < Duration::from_secs(60), "the first read is gone");
        std::thread::yield_now();
    }
    assert!(others.iter().all(|other| other.as_slice().iter().all(|&byte| byte == 7)));
    other_end.write_all(b"new").unwrap();
    let range = hanging.read_at(0, 3, &mut buf).unwrap();
    assert_eq!(&buf.as_slice()[range], b"new");
    assert!(is_good(&*good, &mut buf));
}

#[test]
fn the_wait_for_an_overdue_read_ends_with_it() {
    let (reader, mut writer) = slow_file();
    let Some(ring) = Ring::new() else { return };
    let (mut ring, mut buf) = (Box::new(ring), AlignedBuf::with_capacity(64));
    let late = ring.read(&reader, &mut buf.as_mut_slice()[..64], 0, SOON);
    assert!(late.unwrap_err().kind() == io::ErrorKind::TimedOut && ring.overdue);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(move || ring.wait(buf));
        assert!(!waiter.is_finished());
        writer.write_all(b"late").unwrap();
        waiter.join().unwrap();
    });
}

/// Gives this thread a ring whose submissions the kernel refuses.
fn be_refused() {
    let uring = IoUring::builder().setup_r_disabled().build(ENTRIES).unwrap();
    put_back(Slot::Ready(Box::new(Ring { uring, overdue: false, refused: false })));
}

#[test]
fn a_kernel_that_refuses_a_read_is_not_asked_again_and_another_thread_reads() {
    if !has_rings() {
        return;
    }
    let is_absent = || RING.with(|slot| matches!(*slot.borrow(), Slot::Absent));
    let dir = tempfile::tempdir().unwrap();
    let (path, mut buf) = (good_file(dir.path()), AlignedBuf::new());
    for mode in [IoMode::Buffered, IoMode::Direct] {
        be_refused();
        let file = OsStorage::new().open(&path, mode).unwrap();
        assert!(file.read_within(0, 4, &mut buf, SOON).is_none() && is_absent());
        assert!(file.read_within(0, 4, &mut buf, SOON).is_none(), "nor later");
        assert!(is_good(&*file, &mut buf));
        be_refused();
        let deadline = Deadline::new(Duration::from_secs(60));
        let storage =
            DeadlineStorage::new(Arc::new(OsStorage::new()), deadline, Arc::new(ManualClock::new(0)));
        let file = storage.open(&path, mode).unwrap();
        assert!(is_good(&*file, &mut buf) && is_absent() && !storage.is_tripped());
    }
    // The thread may be another test's next.
    put_back(Slot::Untried);
}
