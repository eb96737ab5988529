//! `bench paper`. The names of its options and items are a promise: scripts rely on them.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::ablations::Ablations;
use super::device::Device;
use super::trace::{MakeTrace, Trace};
use super::values;

/// What `bench` can do beside measuring one system.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Repeat figures and tables of the HotRAP paper, and write one report
    Paper(Paper),
    /// Replay a production trace in the form in which Twitter published theirs
    Trace(Box<Trace>),
    /// Write a synthetic trace with given shares of reads of sunk and of hot records
    MakeTrace(MakeTrace),
    /// Measure what a disk does
    Device(Device),
}

/// `bench paper`
#[derive(Debug, Args)]
#[command(after_help = "\
At --scale 1 the records are the paper's 110 GB with 10 GB of fast disk; at 1/100 they are 1.1 GB
with 100 MB. The slow disk is emulated: the paper's 10,000 reads a second and 1000 MB/s at 1; 1000
and 100 MB/s at 1/100; 3162 and 100 MB/s at 1/1000. With --slow it is the disk that is named, as
fast as it is, unless --slow-read-iops or --slow-bandwidth say otherwise.

Each run begins with a fresh copy of a loaded store. Results are kept in DIR/runs; what is there
already, made with the same settings, is not run again. DIR/report.html has tables and plots,
DIR/report.json everything, DIR/ITEM.csv each table. With --only and --keep-stores the runs can be
made one by one. Kelvin with parts left out stands beside the whole in figures and in `reference`.

Systems: all that this program was built with; RocksDB with two tiers only where --slow names a
disk that is slow itself (see bench/tiers.sh), because its files cannot be slowed down from here.

Examples:
  kelvin bench paper --list
  kelvin bench paper --out results          the whole report, in a quarter of an hour
  kelvin bench paper table3 figure6 --out results
  kelvin bench paper --scale 1/100 --out results --fast /nvme/b --slow /hdd/b
  kelvin bench paper reference --scale 1/100 --out results --keep-stores --only ro-hotspot5
  kelvin bench paper reference --out results --only rw-hotspot5-kelvin --no-retention")]
pub struct Paper {
    /// Figures and tables [default: all of the paper's, that is all but uniform and reference]
    #[arg(value_name = "ITEM")]
    pub items: Vec<String>,
    /// The part of the paper's size: 1, 1/100, 1/1000
    #[arg(long, value_name = "PART", default_value = "1/1000")]
    pub scale: String,
    /// Where results go, and the stores meanwhile
    #[arg(long, value_name = "DIR", required_unless_present = "list")]
    pub out: Option<PathBuf>,
    /// Say what items there are, and end
    #[arg(long)]
    pub list: bool,
    /// Directory on the fast disk [default: below DIR]
    #[arg(long, value_name = "DIR")]
    pub fast: Option<PathBuf>,
    /// Directory on the slow disk [default: below DIR, emulated]
    #[arg(long, value_name = "DIR")]
    pub slow: Option<PathBuf>,
    /// Reads a second the slow disk makes
    #[arg(long, value_name = "N", value_parser = values::count)]
    pub slow_read_iops: Option<u64>,
    /// Bytes a second to and from the slow disk
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub slow_bandwidth: Option<u64>,
    /// What each read of the slow disk takes longer
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub slow_latency: Option<Duration>,
    /// Client threads
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub threads: usize,
    /// Seed of keys, values and the mix
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Seconds of each measurement of the two disks, before the runs; 0 for none
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub disk_seconds: f64,
    /// Load Kelvin's stores at once, as tables in order of keys, but for what the fast disk holds, which is put
    #[arg(long)]
    pub bulk_load: bool,
    /// Keep the loaded stores for the next time
    #[arg(long)]
    pub keep_stores: bool,
    /// Make only runs with this in their name, and show what was made before of the others
    #[arg(long, value_name = "TEXT")]
    pub only: Vec<String>,
    /// Systems, with commas between [default: all that can be run]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub systems: Vec<String>,
    /// A file of a production trace for figures 9 to 11 [default: synthetic traces]
    #[arg(long = "trace", value_name = "FILE")]
    pub traces: Vec<PathBuf>,
    /// How kelvin tells hot records in a row beside its default: lru, clock, oracle, off
    #[arg(long, value_name = "NAME")]
    pub hotness: Option<String>,
    #[command(flatten)]
    pub ablations: Ablations,
}
