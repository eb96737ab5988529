//! What a disk does: reads at random, by one thread and by several, reads and writes in sequence. A report says so of the disks that it was made
//! on, and an emulated disk is checked by it (`bench/tiers.sh`).
//!
//! In: a directory. A file of random bytes is written there, synced, read and removed; direct I/O where the file system allows it. Each
//! measurement ends after a time, writing with the file. Tests stand below.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use kelvin_base::{Clock, Error, ErrorKind, Result, SystemClock};
use kelvin_storage::throttle::Limits;
use kelvin_storage::{AlignedBuf, Create, IoMode, OsStorage, ReadFile, Storage, ThrottledStorage};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::{Value, json};

use crate::paper::Table;

/// Bytes of a read at random: a block.
pub const BLOCK_BYTES: usize = 16 << 10;
/// Bytes of a read in sequence: so many that a limit of reads a second does not matter.
const SEQUENTIAL_BYTES: usize = 1 << 20;
/// Bytes given to the file at once.
const WRITE_BYTES: usize = 1 << 20;
const FILE: &str = "KELVIN-DEVICE.tmp";
/// Left free beside the file.
const SLACK_BYTES: u64 = 16 << 20;

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Order {
    /// In this directory; made if it is not there.
    pub dir: PathBuf,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Each of the three kinds of reading ends after so many seconds.
    pub seconds: f64,
    /// Threads that read at random at once, after one alone.
    pub threads: usize,
    /// Emulate a slower disk.
    pub limits: Option<Limits>,
}

impl Order {
    /// A disk of so many reads and bytes a second, which needs so much longer for each read; `None` if nothing is asked for.
    #[must_use]
    pub fn limits(
        read_iops: Option<u64>,
        bandwidth: Option<u64>,
        latency: Option<Duration>,
    ) -> Option<Limits> {
        let limits = Limits {
            read_iops,
            read_bandwidth: bandwidth,
            write_bandwidth: bandwidth,
            latency: latency.unwrap_or_default(),
            ..Limits::default()
        };
        (limits != Limits::default()).then_some(limits)
    }
}

/// Reads of 16 KiB at random.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RandomReads {
    /// Threads.
    pub threads: usize,
    /// Reads a second of all together.
    pub per_second: f64,
    /// Half of them took no longer, microseconds.
    pub p50_us: f64,
    /// All but one in a hundred took no longer, microseconds.
    pub p99_us: f64,
}

/// What a disk does.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Measured here.
    pub dir: PathBuf,
    /// False where the file system refuses direct I/O: the figures are those of its memory then.
    pub is_direct: bool,
    /// Its file system is mounted with `discard`.
    pub discards: bool,
    /// Reads at random by one thread, and by several.
    pub reads: [RandomReads; 2],
    /// Bytes read a second in sequence.
    pub read_bytes_per_s: f64,
    /// Bytes written a second in sequence, the sync at the end included.
    pub write_bytes_per_s: f64,
}

/// Removes the file whatever happens.
struct Temporary<'a> {
    storage: &'a dyn Storage,
    path: PathBuf,
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        // The next measurement says so if it is still there.
        let _gone = self.storage.remove(&self.path);
    }
}

/// Measures a disk.
///
/// # Errors
/// `InvalidArgument` for an order of nothing; `Busy` if another measurement's file is there; `NoSpace` before anything is written; the
/// operating system's.
pub fn measure(order: &Order) -> Result<Device> {
    let blocks = order.file_bytes / BLOCK_BYTES as u64;
    let time = Duration::try_from_secs_f64(order.seconds).unwrap_or_default();
    if blocks == 0 || order.threads == 0 || time.is_zero() {
        return Err(Error::invalid(
            "a disk is measured with a file of at least 16 KiB, by one thread or more, for some time",
        ));
    }
    let clock = Arc::new(SystemClock::new());
    let files = OsStorage::new();
    let mut storage: Arc<dyn Storage> = Arc::new(files.clone());
    if let Some(limits) = order.limits {
        storage = Arc::new(ThrottledStorage::new(storage, limits, Arc::clone(&clock) as _));
    }
    let io = |what: &'static str| {
        let dir = order.dir.clone();
        move |error| Error::io(what, &dir, error)
    };
    storage.create_dir_all(&order.dir).map_err(io("create directory"))?;
    let free = storage.free_space(&order.dir).map_err(io("ask for free space"))?;
    if free < order.file_bytes.saturating_add(SLACK_BYTES) {
        let text = format!("measuring takes {} bytes of disk space, {free} are free", order.file_bytes);
        return Err(Error::new(ErrorKind::NoSpace, text)
            .file(&order.dir)
            .advice("measure with a smaller file"));
    }
    let path = order.dir.join(FILE);
    if storage.exists(&path).map_err(io("look for a file"))? {
        return Err(Error::new(ErrorKind::Busy, "the file of another measurement is there")
            .file(&path)
            .advice("wait for it; if none runs, remove the file: it holds nothing of value"));
    }
    let temporary = Temporary { storage: &*storage, path };
    let write_bytes_per_s = write(&*storage, &temporary.path, blocks, &*clock).map_err(io("write"))?;
    let file = storage.open(&temporary.path, IoMode::Direct).map_err(io("open"))?;
    let rig = Rig { file: &*file, blocks, clock: &*clock, time };
    let read_bytes_per_s = rig.in_sequence().map_err(io("read"))?;
    let one = rig.at_random(1).map_err(io("read"))?;
    let many = rig.at_random(order.threads).map_err(io("read"))?;
    Ok(Device {
        dir: order.dir.clone(),
        is_direct: !files.direct_refused(),
        discards: kelvin_storage::os::discards(&order.dir),
        reads: [one, many],
        read_bytes_per_s,
        write_bytes_per_s,
    })
}

/// Writes the file; bytes a second.
fn write(storage: &dyn Storage, path: &Path, blocks: u64, clock: &dyn Clock) -> std::io::Result<f64> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut bytes = vec![0; WRITE_BYTES];
    rng.fill(&mut bytes[..]);
    let begun = clock.now();
    let mut file = storage.create(path, Create::new(IoMode::Direct))?;
    let mut left = blocks * BLOCK_BYTES as u64;
    while left > 0 {
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        // No two parts are alike, for disks that would notice.
        bytes[..8].copy_from_slice(&left.to_le_bytes());
        file.append(&bytes[..part])?;
        left -= part as u64;
    }
    file.sync()?;
    Ok(per_second((blocks * BLOCK_BYTES as u64) as f64, clock.now().saturating_sub(begun)))
}

fn per_second(amount: f64, time: Duration) -> f64 {
    amount / time.as_secs_f64().max(1e-9)
}

struct Rig<'a> {
    file: &'a dyn ReadFile,
    blocks: u64,
    clock: &'a dyn Clock,
    /// Of each measurement.
    time: Duration,
}

impl Rig<'_> {
    fn end(&self) -> Duration {
        self.clock.now().saturating_add(self.time)
    }

    /// Bytes a second.
    fn in_sequence(&self) -> std::io::Result<f64> {
        let bytes = self.blocks * BLOCK_BYTES as u64;
        let (begun, end) = (self.clock.now(), self.end());
        let (mut buf, mut read, mut at) = (AlignedBuf::with_capacity(SEQUENTIAL_BYTES), 0.0, 0);
        while read == 0.0 || self.clock.now() < end {
            let len = usize::try_from(bytes - at).unwrap_or(usize::MAX).min(SEQUENTIAL_BYTES);
            self.file.read_at(at, len, &mut buf)?;
            read += len as f64;
            at = (at + len as u64) % bytes;
        }
        Ok(per_second(read, self.clock.now().saturating_sub(begun)))
    }

    fn at_random(&self, threads: usize) -> std::io::Result<RandomReads> {
        let begun = self.clock.now();
        let end = self.end();
        let times = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads)
                .map(|number| scope.spawn(move || self.one_at_random(number as u64, end)))
                .collect();
            let joined = threads.into_iter().map(|thread| match thread.join() {
                Ok(times) => times,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            joined.collect::<std::io::Result<Vec<_>>>()
        })?;
        let time = self.clock.now().saturating_sub(begun);
        let mut all = histogram()?;
        times.iter().try_for_each(|times| all.add(times).map_err(std::io::Error::other))?;
        let us = |quantile: f64| all.value_at_quantile(quantile) as f64 / 1e3;
        Ok(RandomReads {
            threads,
            per_second: per_second(all.len() as f64, time),
            p50_us: us(0.5),
            p99_us: us(0.99),
        })
    }

    /// How long each read of one thread took, nanoseconds.
    fn one_at_random(&self, seed: u64, end: Duration) -> std::io::Result<Histogram<u32>> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut buf = AlignedBuf::with_capacity(BLOCK_BYTES);
        let mut times = histogram()?;
        let mut now = self.clock.now();
        while times.is_empty() || now < end {
            let block = rng.random_range(0..self.blocks);
            self.file.read_at(block * BLOCK_BYTES as u64, BLOCK_BYTES, &mut buf)?;
            let after = self.clock.now();
            times.saturating_record(u64::try_from(after.saturating_sub(now).as_nanos()).unwrap_or(u64::MAX));
            now = after;
        }
        Ok(times)
    }
}

/// For times of up to a minute.
fn histogram() -> std::io::Result<Histogram<u32>> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(std::io::Error::other)
}

impl Device {
    /// For machines.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let reads = |reads: &RandomReads| json!({"threads": reads.threads, "per_second": reads.per_second, "p50_us": reads.p50_us, "p99_us": reads.p99_us});
        json!({
            "dir": self.dir.display().to_string(),
            "direct": self.is_direct,
            "discards": self.discards,
            "random_reads": self.reads.iter().map(reads).collect::<Vec<_>>(),
            "read_bytes_per_s": self.read_bytes_per_s,
            "write_bytes_per_s": self.write_bytes_per_s,
        })
    }

    /// That of [`Self::to_json`].
    #[must_use]
    pub fn of_json(value: &Value) -> Option<Self> {
        let reads = |value: &Value| {
            let number = |name: &str| value[name].as_f64();
            let threads = usize::try_from(value["threads"].as_u64()?).ok()?;
            Some(RandomReads {
                threads,
                per_second: number("per_second")?,
                p50_us: number("p50_us")?,
                p99_us: number("p99_us")?,
            })
        };
        Some(Self {
            dir: value["dir"].as_str()?.into(),
            is_direct: value["direct"].as_bool()?,
            discards: value["discards"].as_bool()?,
            reads: [reads(&value["random_reads"][0])?, reads(&value["random_reads"][1])?],
            read_bytes_per_s: value["read_bytes_per_s"].as_f64()?,
            write_bytes_per_s: value["write_bytes_per_s"].as_f64()?,
        })
    }

    /// That it makes `reads_per_second` by several threads, and `bytes_per_s` in sequence, each within `percent`; what is not asked for may be anything.
    ///
    /// # Errors
    /// `Io` that says what it makes and what was expected.
    pub fn expect(
        &self,
        reads_per_second: Option<u64>,
        bytes_per_s: Option<u64>,
        percent: u32,
    ) -> Result<()> {
        let asked = [
            ("reads of 16 KiB a second", self.reads[1].per_second, reads_per_second),
            ("bytes a second read in sequence", self.read_bytes_per_s, bytes_per_s),
        ];
        for (what, is, expected) in asked {
            let Some(expected) = expected else { continue };
            if (is - expected as f64).abs() > expected as f64 * f64::from(percent) / 100.0 {
                let text = format!(
                    "this disk makes {is:.0} {what}, and {expected} were expected, {percent} % more or less"
                );
                return Err(Error::new(ErrorKind::Io, text).file(&self.dir).advice(
                    "see that nothing else uses the disk, and that its throttle is in force for this command",
                ));
            }
        }
        Ok(())
    }
}

/// A table of disks, each with what it is called.
#[must_use]
pub fn table(devices: &[(&str, &Device)]) -> Table {
    let mut table = Table::new(
        "The disks",
        "What the disks do, measured with files of their own: reads of 16 KiB at random, and bytes in sequence.",
        &[
            "disk",
            "reads/s, 1 thread",
            "p50 us",
            "p99 us",
            "reads/s",
            "threads",
            "p50 us",
            "p99 us",
            "MB/s read",
            "MB/s written",
            "I/O",
        ],
    );
    for (name, device) in devices {
        let [one, many] = &device.reads;
        let times = |reads: &RandomReads| [reads.p50_us, reads.p99_us].map(|us| format!("{us:.0}"));
        let how = match (device.is_direct, device.discards) {
            (false, _) => "buffered: its memory was measured",
            (true, false) => "direct",
            (true, true) => "direct, discards",
        };
        let ([p50, p99], [many_p50, many_p99]) = (times(one), times(many));
        let [read, written] =
            [device.read_bytes_per_s, device.write_bytes_per_s].map(|bytes| format!("{:.0}", bytes / 1e6));
        let [one, threads, many] =
            [format!("{:.0}", one.per_second), many.threads.to_string(), format!("{:.0}", many.per_second)];
        table.row([
            (*name).to_string(),
            one,
            p50,
            p99,
            many,
            threads,
            many_p50,
            many_p99,
            read,
            written,
            how.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(dir: &Path) -> Order {
        Order { dir: dir.join("disk"), file_bytes: 1 << 20, seconds: 0.2, threads: 3, limits: None }
    }

    #[test]
    fn a_disk_is_measured_and_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let device = measure(&order(dir.path())).unwrap();
        for reads in device.reads {
            assert!(
                reads.per_second > 0.0 && reads.p50_us > 0.0 && reads.p50_us <= reads.p99_us,
                "{reads:?}"
            );
        }
        assert_eq!(device.reads.map(|reads| reads.threads), [1, 3]);
        assert!(device.read_bytes_per_s > 0.0 && device.write_bytes_per_s > 0.0);
        assert!(OsStorage::new().list(&dir.path().join("disk")).unwrap().is_empty());
        assert_eq!(Device::of_json(&device.to_json()), Some(device.clone()));
        let text = table(&[("slow", &device)]).text();
        assert!(text.contains("slow") && text.contains("MB/s read"), "{text}");
    }

    #[test]
    fn a_slower_disk_is_emulated_and_makes_no_more_than_it_may() {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits { read_iops: Some(200), latency: Duration::from_millis(10), ..Limits::default() };
        let device = measure(&Order { limits: Some(limits), seconds: 0.5, ..order(dir.path()) }).unwrap();
        let [one, many] = device.reads;
        assert!(one.p50_us >= 10_000.0 && one.per_second <= 100.0, "{one:?}");
        assert!(many.per_second <= 250.0, "{many:?}");
        let wrong = device.expect(Some(1000), None, 15).unwrap_err().to_string();
        assert!(wrong.contains("reads of 16 KiB a second, and 1000 were expected"), "{wrong}");
        device.expect(None, None, 0).unwrap();
    }

    #[test]
    fn nonsense_want_of_room_and_another_measurement_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let order = order(dir.path());
        for wrong in [
            Order { threads: 0, ..order.clone() },
            Order { seconds: 0.0, ..order.clone() },
            Order { seconds: f64::NAN, ..order.clone() },
            Order { seconds: 1e30, ..order.clone() },
            Order { file_bytes: 1000, ..order.clone() },
        ] {
            assert_eq!(measure(&wrong).unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
        assert_eq!(
            measure(&Order { file_bytes: u64::MAX / 2, ..order.clone() }).unwrap_err().kind(),
            ErrorKind::NoSpace
        );
        let files = OsStorage::new();
        files.create_dir_all(&order.dir).unwrap();
        files.create(&order.dir.join(FILE), Create::new(IoMode::Buffered)).unwrap().sync().unwrap();
        assert_eq!(measure(&order).unwrap_err().kind(), ErrorKind::Busy);
        assert!(order.dir.join(FILE).exists(), "not ours to remove");
    }
}
