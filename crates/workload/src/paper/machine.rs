//! The machines of the paper's evaluation, simulated: the disks of its Tables 1 and 6 at their full speed under a part of its data.
//!
//! With the same speeds an operation takes what it takes in the paper, and a run the scale's part of the paper's time; so throughputs can be
//! put beside the paper's own. What processors take is ours: on two cores of an AMD EPYC a read of a hot record takes some 15 us, and what RW and
//! WH take beyond that is 4.2 and 4.6 ms for each megabyte written. Tests: `tests.rs`.

use std::time::Duration;

use kelvin_storage::throttle::Limits;

use super::plan::RunSpec;
use super::store::asked_of;
use crate::kelvin::device_limits;
use crate::options::{BenchOptions, DeviceLimits};
use crate::report::Report;
use crate::runner::Progress;
use crate::simulate::{Image, Machine, load, simulate};

/// Client threads of the paper.
pub const THREADS: usize = 16;
/// Its slow disk, gp3.
pub(super) const GP3: DeviceLimits = DeviceLimits {
    slow_read_iops: Some(10_000),
    slow_bandwidth: Some(1000 << 20),
    slow_write_iops: None,
    slow_latency: None,
    fast_read_iops: None,
    fast_bandwidth: None,
};
/// A read of the local SSD: with 16 at a time there are 83,000 a second.
const FAST_LATENCY: Duration = Duration::from_micros(100);
/// A read of gp3 that does not wait for others.
const GP3_LATENCY: Duration = Duration::from_micros(700);
/// A read of a hard disk that does not wait for others: its 400 reads a second are of a queue of 16.
const HDD_LATENCY: Duration = Duration::from_millis(8);
/// Processor time of an operation.
const OPERATION: Duration = Duration::from_micros(15);
/// Processor time of a megabyte written.
const MEGABYTE: Duration = Duration::from_micros(4_500);
/// The fast disks' bytes a second, read and written: the SSD's and the NVMe's.
const FAST_BYTES: [[u64; 2]; 2] = [[1434 << 20, 1126 << 20], [5120 << 20, 4096 << 20]];
/// Their reads a second.
const FAST_READS: [u64; 2] = [83_000, 98_000];

/// The machine that `run` is simulated on. Its slow disk is the run's own.
pub(super) fn of(run: &RunSpec) -> Machine {
    let hdd = usize::from(run.has_own_disk);
    let [read, written] = FAST_BYTES[hdd];
    let fast = Limits {
        read_iops: Some(FAST_READS[hdd]),
        read_bandwidth: Some(read),
        write_bandwidth: Some(written),
        latency: FAST_LATENCY,
        ..Limits::default()
    };
    let [_, slow] = device_limits(&run.options.limits);
    let slow = Limits { latency: [GP3_LATENCY, HDD_LATENCY][hdd], ..slow.unwrap_or_default() };
    Machine { cores: 8, operation: OPERATION, megabyte: MEGABYTE, disks: [fast, slow] }
}

/// Stores that were loaded once, by what they were loaded with.
#[derive(Debug, Default)]
pub(super) struct Images(Vec<(serde_json::Value, Image)>);

/// As many loaded stores are kept: three systems, two sizes of records.
const IMAGES_MAX: usize = 6;

impl Images {
    /// Runs `run`, which begins with the store that `loaded` loads.
    ///
    /// # Errors
    /// As [`simulate`].
    pub(super) fn run(
        &mut self,
        run: &RunSpec,
        loaded: &BenchOptions,
        progress: &mut dyn Progress,
    ) -> kelvin_base::Result<Report> {
        let asked = asked_of(loaded);
        if self.0.iter().all(|(known, _)| *known != asked) {
            if self.0.len() == IMAGES_MAX {
                self.0.remove(0);
            }
            self.0.push((asked.clone(), load(loaded, progress)?));
        }
        let image = self.0.iter().find(|(known, _)| *known == asked).map(|(_, image)| image);
        simulate(&run.options, &of(run), image, progress)
    }
}
