//! `bench device`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::values;

/// `bench device`
#[derive(Debug, Args)]
#[command(after_help = "\
Writes a file below DIR, reads it with direct I/O, and removes it: 16 KiB at random, by one thread and
by several at once, and all of it in sequence. With --expect-reads and --expect-bandwidth it fails
(exit code 7) if the disk makes less or more: an emulated disk is checked so.

Examples:
  kelvin bench device --dir /hdd
  kelvin bench device --dir /hdd --expect-reads 400 --expect-bandwidth 260MB
  kelvin bench device --dir /tmp/slow --read-iops 1000 --bandwidth 100MB     an emulated disk")]
pub struct Device {
    /// Directory on the disk; made if it is not there
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Bytes of the file
    #[arg(long, value_name = "SIZE", value_parser = values::size, default_value = "256MB")]
    pub size: u64,
    /// Seconds of each of the three kinds of reading
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    pub seconds: f64,
    /// Threads that read at random at once
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub threads: usize,
    /// Write the figures as JSON, `-` for the terminal
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Emulate a disk of so many reads a second
    #[arg(long, value_name = "N", value_parser = values::count, help_heading = "Emulation")]
    pub read_iops: Option<u64>,
    /// Emulate a disk of so many bytes a second
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = "Emulation")]
    pub bandwidth: Option<u64>,
    /// Emulate a disk that needs so much longer for each read
    #[arg(long, value_name = "TIME", value_parser = values::duration, help_heading = "Emulation")]
    pub latency: Option<Duration>,
    /// Fail unless several threads make about so many reads a second
    #[arg(long, value_name = "N", value_parser = values::count, help_heading = "Check")]
    pub expect_reads: Option<u64>,
    /// Fail unless about so many bytes a second are read in sequence
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = "Check")]
    pub expect_bandwidth: Option<u64>,
    /// How much more or less that may be, per cent
    #[arg(long, value_name = "N", default_value_t = 15, help_heading = "Check")]
    pub tolerance: u32,
}
