//! `sim`: a benchmark in simulated time.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ablations::Ablations;
use super::bench::{ResultArgs, WorkArgs};
use super::values;

/// What `sim` can do beside one run.
#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Figures and tables of the HotRAP paper, on its own machine, simulated
    Paper(SimPaper),
}

/// `sim paper`
#[derive(Debug, Args)]
#[command(after_help = "\
The paper's machine is simulated: 8 processors, its local SSD (83,000 reads a second) and gp3 (10,000 a
second, 1000 MiB/s) at their full speed, for figure16 its NVMe and its hard disk; 16 client threads.
The data are the scale's part of its 110 GB, so a run takes that part of the paper's time, and
throughputs stand beside the paper's own. The same command prints the same figures on any machine.
Items, results and resuming are those of `kelvin bench paper`; traces are not replayed here.

Examples:
  kelvin sim paper --out results
  kelvin sim paper figure6 figure16 --scale 1/100 --out results")]
pub struct SimPaper {
    /// Figures and tables [default: all of the paper's but those of traces]
    #[arg(value_name = "ITEM")]
    pub items: Vec<String>,
    /// The part of the paper's size: 1, 1/100, 1/1000
    #[arg(long, value_name = "PART", default_value = "1/1000")]
    pub scale: String,
    /// Where results go
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Client threads
    #[arg(long, value_name = "N", default_value_t = kelvin_workload::paper::machine::THREADS)]
    pub threads: usize,
    /// Seed of keys, values and the mix
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Load all but what the fast disk holds at once, as tables in order of keys, and put the rest
    #[arg(long)]
    pub bulk_load: bool,
    /// Make only runs with this in their name, and show what was made before of the others
    #[arg(long, value_name = "TEXT")]
    pub only: Vec<String>,
    /// Systems, with commas between [default: kelvin,fat,fast-only]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub systems: Vec<String>,
    /// How kelvin tells hot records in a row beside its default: lru, clock, oracle, off
    #[arg(long, value_name = "NAME")]
    pub hotness: Option<String>,
    #[command(flatten)]
    pub ablations: Ablations,
}

/// `sim`
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Runs the store with all its threads in a time of its own, which passes when all of them wait for the
disks: files are in memory, and each disk takes as long as is said here. The same command prints the
same figures on any machine, whatever else that does. What processors take is an estimate:
--operation-us for each operation, --megabyte-us for what is written, nothing for the rest.
Systems, workloads and keys are those of `kelvin bench`.

Examples:
  kelvin sim --records 110k --ops 200k
  kelvin sim --records 1.1M --ops 1.2M --workload RW --threads 4 --memory 48MiB
  kelvin sim --system fat --slow-read-iops 400 --slow-bandwidth 260MB --slow-latency-us 5000
  kelvin sim paper --out results            the paper's figures on its machine"
)]
pub struct Sim {
    /// Something other than one run
    #[command(subcommand)]
    pub command: Option<SimCommand>,
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
    #[arg(long, value_name = "US", default_value_t = 4_500, help_heading = "Machine")]
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
