//! `bench`, `demo` and `completions`. The names of `bench`'s options are a promise: scripts rely on them.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap_complete::Shell;

use super::ablations::Ablations;
use super::paper::BenchCommand;
use super::store::OutputArgs;
use super::values;

/// `bench`
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Systems: kelvin, fat (hotness off, the last fast level enlarged), fast-only (everything on the fast
disk). Where built with the feature `rocksdb`: rocksdb-fat, rocksdb-fast, rocksdb-cached (a cache of
slow blocks on six tenths of the fast disk), rocksdb-reput (hot records read from the slow disk are put
again). Where built with the feature `fjall`: fjall (everything on the fast disk).
Workloads: RO, RW (75 % read, 25 % insert), WH (50/50 insert), UH (50/50 update), RS (50/50 scan),
scan, load, and YCSB A to F. Keys: hotspot:P (all but P % of the operations go to P % of the
records), zipf:S, ycsb-zipf:S, ycsb-scrambled:S, uniform, latest, dynamic (seven stages: a hotspot
that appears, grows, moves and shrinks). Without --ops and --seconds, as many operations as records.

Examples:
  kelvin bench --records 100k --ops 200k
  kelvin bench --workload RW --keys hotspot:5 --fast /nvme/b --slow /hdd/b --fast-capacity 100MB
  kelvin bench --keys zipf:0.99 --slow-read-iops 1000 --slow-bandwidth 100MB --json run.json
  kelvin bench --system kelvin --vs fast-only --runs 3 --html report.html
  kelvin bench paper --list                 figures and tables of the HotRAP paper
  kelvin bench trace cluster17.zst          a production trace"
)]
pub struct Bench {
    /// Something other than a run of one system
    #[command(subcommand)]
    pub command: Option<BenchCommand>,
    #[command(flatten)]
    pub work: WorkArgs,
    /// Another system to measure in turn with it, and compare
    #[arg(long, value_name = "NAME", help_heading = "What")]
    pub vs: Option<String>,
    /// Paired runs of each system; the median is reported
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "How much")]
    pub runs: usize,
    #[command(flatten)]
    pub disks: DiskArgs,
    /// Keep the store, and use one that is already loaded
    #[arg(long, help_heading = "Disks")]
    pub reuse: bool,
    #[command(flatten)]
    pub results: ResultArgs,
}

/// Where the results of a benchmark go.
#[derive(Debug, Args)]
pub struct ResultArgs {
    /// Write the result as JSON to this file; - is stdout
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,
    /// Write a report with plots to this file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,
    /// Write what happens in the store, and when, to this file; - is stderr
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub events: Option<PathBuf>,
}

/// What is run: a system, a workload, and how much of it.
#[derive(Debug, Args)]
pub struct WorkArgs {
    /// The system to measure
    #[arg(long, value_name = "NAME", default_value = "kelvin", help_heading = "What")]
    pub system: String,
    /// How the system kelvin tells hot records: ralt, lru, clock, oracle, off [default: ralt]
    #[arg(long, value_name = "NAME", help_heading = "What")]
    pub hotness: Option<String>,
    #[command(flatten)]
    pub ablations: Ablations,
    /// Of a scan of 16 records at most, count so many as read, the first ones [default: 1]
    #[arg(
        long,
        value_name = "N",
        default_value_t = kelvin::HotParts::default().scan_accesses,
        hide_default_value = true,
        help_heading = "Ablations of the system kelvin (HotRAP tables 3 to 5)"
    )]
    pub scan_accesses: u32,
    /// The mix of operations
    #[arg(long, value_name = "NAME", default_value = "RO", help_heading = "What")]
    pub workload: String,
    /// The distribution of keys
    #[arg(long, value_name = "DIST", default_value = "hotspot:5", help_heading = "What")]
    pub keys: String,
    /// Records loaded before the run (10k, 1.1M)
    #[arg(long, value_name = "N", value_parser = values::count, default_value = "100k", help_heading = "How much")]
    pub records: u64,
    /// Bytes of a key
    #[arg(long, value_name = "BYTES", default_value_t = 24, help_heading = "How much")]
    pub key_size: usize,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value_t = 1000, help_heading = "How much")]
    pub value_size: usize,
    /// Load all but what the fast disk holds at once, as tables in order of keys, and put the rest
    #[arg(long, help_heading = "How much")]
    pub bulk_load: bool,
    /// Operations of the run phase
    #[arg(long, value_name = "N", value_parser = values::count, help_heading = "How much")]
    pub ops: Option<u64>,
    /// Seconds of the run phase; with --ops too, whichever ends first
    #[arg(long, value_name = "S", help_heading = "How much")]
    pub seconds: Option<f64>,
    /// Reads before the run phase that are not measured: they fill caches and open files
    #[arg(long, value_name = "N", value_parser = values::count, default_value = "0", help_heading = "How much")]
    pub warm_up: u64,
    /// Records a scan of the workloads `scan` and `RS` reads
    #[arg(long, value_name = "N", default_value_t = 100, help_heading = "How much")]
    pub scan_length: usize,
    /// Client threads
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "How much")]
    pub threads: usize,
    /// Seed of keys, values and the mix
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "How much")]
    pub seed: u64,
}

/// Where the stores of a benchmark are, and how fast the disks are there.
#[derive(Debug, Args)]
pub struct DiskArgs {
    /// Directory on the fast disk [default: a temporary one]
    #[arg(long, value_name = "DIR", help_heading = "Disks")]
    pub fast: Option<PathBuf>,
    /// Directory on the slow disk [default: a temporary one]
    #[arg(long, value_name = "DIR", help_heading = "Disks")]
    pub slow: Option<PathBuf>,
    /// Bytes of the fast disk that may be used [default: an eleventh of the data]
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = "Disks")]
    pub fast_capacity: Option<u64>,
    /// Memory of the system [default: 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = "Disks")]
    pub memory: Option<u64>,
    /// Reads a second the slow disk makes
    #[arg(long, value_name = "N", value_parser = values::count, help_heading = "Disks")]
    pub slow_read_iops: Option<u64>,
    /// Writes a second the slow disk makes
    #[arg(long, value_name = "N", value_parser = values::count, help_heading = "Disks")]
    pub slow_write_iops: Option<u64>,
    /// Bytes a second to and from the slow disk
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = "Disks")]
    pub slow_bandwidth: Option<u64>,
    /// What each read of the slow disk takes longer (20ms: an object store)
    #[arg(long, value_name = "TIME", value_parser = values::duration, help_heading = "Disks")]
    pub slow_latency: Option<Duration>,
    /// Reads a second the fast disk makes
    #[arg(long, value_name = "N", value_parser = values::count, help_heading = "Disks")]
    pub fast_read_iops: Option<u64>,
    /// Bytes a second to and from the fast disk
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = "Disks")]
    pub fast_bandwidth: Option<u64>,
}

/// `demo`
#[derive(Debug, Args)]
#[command(after_help = "\
Makes a store in a temporary directory, its slow tier on an emulated disk of 1000 reads a second and
100 MB/s, loads records, and reads them with skew: first without the tracker of hot records, then with
it, so that they come to the fast disk. Prints both beside each other, where the data lies and what it
cost, writes a report with plots, and removes the store.

Examples:
  kelvin demo
  kelvin demo --records 20k --seconds 5 --report report.html
  kelvin demo --keep                        keep the store and look around")]
pub struct Demo {
    /// Records to load, 1 KiB each
    #[arg(long, value_name = "N", value_parser = values::count, default_value = "80k")]
    pub records: u64,
    /// Seconds to read for with hotness, after half of that without
    #[arg(long, value_name = "S", default_value_t = 16)]
    pub seconds: u64,
    /// Where the report goes [default: kelvin-demo.html in the temporary directory]
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Keep the store
    #[arg(long)]
    pub keep: bool,
    /// Seed of keys and values
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `completions`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kelvin completions bash > /etc/bash_completion.d/kelvin
  kelvin completions zsh > ~/.zfunc/_kelvin
  kelvin completions fish > ~/.config/fish/completions/kelvin.fish")]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}
