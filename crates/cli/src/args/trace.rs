//! `bench trace` and `bench make-trace`. The names of their options are a promise: scripts rely on them.

use std::path::PathBuf;

use clap::Args;

use super::bench::{DiskArgs, ResultArgs};
use super::values;

/// `bench trace`
#[derive(Debug, Args)]
#[command(after_help = "\
Each line is one request: timestamp,key,key size,value size,client,operation,ttl. Files may be plain
or zstd; several are one trace, in the order given. Values are made up, as long as the lines say,
and every read is checked.

As in the HotRAP paper, records are inserted until there are --data bytes of them, and then the run
begins; of a trace with less data each request is repeated under prefixed keys until there is
enough, and its last requests are the run. A read is of a sunk record if more than 5 % of the data
were written since the record was, of a hot one if less than 5 % were read since it was read. The
trace is read three times and never held; its distinct keys are known by 56 to 112 bytes each,
within --prepare-memory, until the store is opened. docs/benchmarks.md says what else is decided.

Examples:
  kelvin bench make-trace t.csv.zst --sunk 90 --hot 80
  kelvin bench trace t.csv.zst --compare kelvin,fat --slow-read-iops 1000 --json t.json
  kelvin bench trace cluster17.0.zst cluster17.1.zst --data 1.1GB --threads 4
  kelvin bench trace cluster29.zst --classify --skip-malformed")]
pub struct Trace {
    /// The files of the trace
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// The system to measure
    #[arg(long, value_name = "NAME", default_value = "kelvin", help_heading = "What")]
    pub system: String,
    /// Systems to measure in turn; the first one is compared with each of the others
    #[arg(long, value_name = "A,B", value_delimiter = ',', conflicts_with = "system", help_heading = "What")]
    pub compare: Vec<String>,
    /// How the system kelvin tells hot records: ralt, lru, clock, oracle, off [default: ralt]
    #[arg(long, value_name = "NAME", help_heading = "What")]
    pub hotness: Option<String>,
    /// Only say what the trace is like
    #[arg(long, conflicts_with = "html", help_heading = "What")]
    pub classify: bool,
    /// What writes do: inserts (each is one), memcached (add, replace, append .. under its rules)
    #[arg(long, value_name = "NAME", default_value = "inserts", help_heading = "The trace")]
    pub semantics: String,
    /// Let records end with their time to live
    #[arg(long, help_heading = "The trace")]
    pub expire: bool,
    /// Leave lines out that are no requests, and count them
    #[arg(long, help_heading = "The trace")]
    pub skip_malformed: bool,
    /// Memory for knowing the keys, before the store is opened
    #[arg(long, value_name = "SIZE", value_parser = values::size, default_value = "2GiB", help_heading = "The trace")]
    pub prepare_memory: u64,
    /// Directory for the prepared trace [default: a temporary one]
    #[arg(long, value_name = "DIR", help_heading = "The trace")]
    pub work: Option<PathBuf>,
    /// Bytes of records to have [default: as many as the trace has]
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = "How much")]
    pub data: Option<u64>,
    /// Operations of the run [default: one for 220 bytes of data, as in the paper]
    #[arg(long, value_name = "N", value_parser = values::count, help_heading = "How much")]
    pub ops: Option<u64>,
    /// Seconds of the run, if it has not ended before
    #[arg(long, value_name = "S", help_heading = "How much")]
    pub seconds: Option<f64>,
    /// Client threads; the order of the requests for one key is kept
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "How much")]
    pub threads: usize,
    /// Runs of each system; of those compared the median is reported
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "How much")]
    pub runs: usize,
    /// Seed of the values
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "How much")]
    pub seed: u64,
    #[command(flatten)]
    pub disks: DiskArgs,
    #[command(flatten)]
    pub results: ResultArgs,
}

/// `bench make-trace`
#[derive(Debug, Args)]
#[command(after_help = "\
First a set for each record, then the operations: gets and sets. Sunk and hot are meant as in `kelvin
bench trace`. A name that ends with .zst is compressed. Shares that cannot be had together are
refused.

Examples:
  kelvin bench make-trace t.csv.zst
  kelvin bench make-trace sunk.csv --data 1.1GB --reads 75 --sunk 90 --hot 20
  kelvin bench make-trace fresh.csv --reads 60 --sunk 10 --hot 90 --ops 1M")]
pub struct MakeTrace {
    /// Where the trace goes
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Bytes of keys and values
    #[arg(long, value_name = "SIZE", value_parser = values::size, default_value = "110MB")]
    pub data: u64,
    /// Operations behind the load [default: one for 220 bytes of data, as in the paper]
    #[arg(long, value_name = "N", value_parser = values::count)]
    pub ops: Option<u64>,
    /// Bytes of a key
    #[arg(long, value_name = "BYTES", default_value_t = 40)]
    pub key_size: usize,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value_t = 400)]
    pub value_size: u32,
    /// Reads among the operations, per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 90.0)]
    pub reads: f64,
    /// Reads of sunk records among the reads, per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 90.0)]
    pub sunk: f64,
    /// Reads of hot records among the reads, per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 80.0)]
    pub hot: f64,
    /// What all choices follow from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Replace a file that is there
    #[arg(long)]
    pub force: bool,
}
