//! `sim`: a benchmark in simulated time.

use clap::Args;

use super::bench::{ResultArgs, WorkArgs};
use super::values;

/// `sim`
#[derive(Debug, Args)]
#[command(after_help = "\
Runs the store with all its threads in a time of its own, which passes when all of them wait for the
disks: files are in memory, and each disk takes as long as is said here. The same command prints the
same figures on any machine, whatever else that does. What processors take is an estimate:
--operation-us for each operation, --megabyte-us for what is written, nothing for the rest.
Systems, workloads and keys are those of `kelvin bench`.

Examples:
  kelvin sim --records 110k --ops 200k
  kelvin sim --records 1.1M --ops 1.2M --workload RW --threads 4 --memory 48MiB
  kelvin sim --system fat --slow-read-iops 400 --slow-bandwidth 260MB --slow-latency-us 5000")]
pub struct Sim {
    #[command(flatten)]
    pub work: WorkArgs,
    /// Bytes of the fast disk that may be used [default: an eleventh of the data]
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = "Machine")]
    pub fast_capacity: Option<u64>,
    /// Memory of the system [default: 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = "Machine")]
    pub memory: Option<u64>,
    /// Processors
    #[arg(long, value_name = "N", default_value_t = 2, help_heading = "Machine")]
    pub cores: usize,
    /// Processor time of an operation, microseconds
    #[arg(long, value_name = "US", default_value_t = 15, help_heading = "Machine")]
    pub operation_us: u64,
    /// Processor time of a megabyte written: log, flushes, compactions; microseconds
    #[arg(long, value_name = "US", default_value_t = 0, help_heading = "Machine")]
    pub megabyte_us: u64,
    /// Reads a second the fast disk makes
    #[arg(long, value_name = "N", value_parser = values::count, default_value = "50k", help_heading = "Machine")]
    pub fast_read_iops: u64,
    /// Bytes a second to and from the fast disk
    #[arg(long, value_name = "SIZE", value_parser = values::size, default_value = "500MB", help_heading = "Machine")]
    pub fast_bandwidth: u64,
    /// What each access of the fast disk takes at least, microseconds
    #[arg(long, value_name = "US", default_value_t = 100, help_heading = "Machine")]
    pub fast_latency_us: u64,
    /// Reads a second the slow disk makes
    #[arg(long, value_name = "N", value_parser = values::count, default_value = "1000", help_heading = "Machine")]
    pub slow_read_iops: u64,
    /// Writes a second the slow disk makes [default: no limit]
    #[arg(long, value_name = "N", value_parser = values::count, help_heading = "Machine")]
    pub slow_write_iops: Option<u64>,
    /// Bytes a second to and from the slow disk
    #[arg(long, value_name = "SIZE", value_parser = values::size, default_value = "100MB", help_heading = "Machine")]
    pub slow_bandwidth: u64,
    /// What each access of the slow disk takes at least, microseconds
    #[arg(long, value_name = "US", default_value_t = 100, help_heading = "Machine")]
    pub slow_latency_us: u64,
    #[command(flatten)]
    pub results: ResultArgs,
}
