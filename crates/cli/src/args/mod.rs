//! The command line: every command, option and example, and nothing that runs.
//!
//! Parsing is pure, so `--help` and completions need no store. Numbers with units are parsed in [`values`].
//! Tests: `crates/cli/tests/help.rs` keeps every help text as a golden file.

pub mod ablations;
pub mod bench;
pub mod data;
pub mod device;
pub mod inspect;
pub mod paper;
pub mod sim;
pub mod store;
pub mod trace;
pub mod values;
pub mod verify;

use clap::{Parser, Subcommand};

const LONG_ABOUT: &str = "\
Kelvin is a key-value store that spreads one LSM-tree over a fast and a slow disk.

Give it a directory on a fast disk, one on a slow disk, and how much of the fast disk it may
use; it keeps to that, and to one memory limit, and loses nothing it has acknowledged.";

const AFTER_HELP: &str = "\
Start here:
  kelvin demo                               two tiers, real records, a report; nothing to set up
  kelvin put  --fast ./store greeting hello
  kelvin get  --fast ./store greeting
  kelvin load --fast /nvme/s --slow /hdd/s --fast-capacity 10GiB records.csv
  kelvin explain --fast ./store             every figure it runs with, and why

Set KELVIN_DIR, KELVIN_SLOW_DIR and KELVIN_FAST_CAPACITY to leave --fast, --slow and
--fast-capacity out.

Exit codes:
  0  done                                   5  no space: a capacity or the disk is full
  1  get: the key has no value              6  read-only: the store takes no writes
  2  wrong usage or argument                7  the operating system refused something
  3  corruption found                       8  busy: another process has the store open
  4  a tier does not answer: retry";

/// The program.
#[derive(Debug, Parser)]
#[command(name = "kelvin", version, about = "A key-value store over a fast and a slow disk", long_about = LONG_ABOUT,
    after_help = AFTER_HELP, max_term_width = 100, subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print the value of a key
    Get(data::Get),
    /// Set the value of a key
    Put(data::Put),
    /// Remove keys, or a range of keys
    Delete(data::Delete),
    /// Print records in key order
    Scan(data::Scan),
    /// Read records from files or a pipe
    Load(data::Load),
    /// Write records to a file or a pipe
    Dump(data::Dump),
    /// What the store counts: space, memory, entries
    Stats(inspect::Stats),
    /// Where the data lies: tier, tables and bytes of each level
    Levels(inspect::Levels),
    /// Every figure the store runs with and why, or where a key lies
    Explain(inspect::Explain),
    /// Read and verify every byte of every file, and say what is lost
    Check(inspect::Check),
    /// Rescue what can be read of a damaged store into a new one
    Salvage(inspect::Salvage),
    /// Make a copy that opens like any other store
    Checkpoint(inspect::Checkpoint),
    /// Measure a system under a workload
    Bench(Box<bench::Bench>),
    /// Measure a system in simulated time, on disks that need not be there
    Sim(Box<sim::Sim>),
    /// Put the promises to the test: crashes, kills, failing disks, rotten files, concurrent clients
    Verify(verify::Verify),
    /// Show two tiers at work: no argument needed
    Demo(bench::Demo),
    /// Print a completion script for a shell
    Completions(bench::Completions),
}

impl Command {
    /// True if errors are to be printed as JSON.
    pub fn wants_json(&self) -> bool {
        match self {
            Self::Get(args) => args.output.json,
            Self::Put(args) => args.output.json,
            Self::Delete(args) => args.output.json,
            Self::Scan(args) => args.output.json,
            Self::Load(args) => args.output.json,
            Self::Dump(args) => args.output.json,
            Self::Stats(args) => args.output.json,
            Self::Levels(args) => args.output.json,
            Self::Explain(args) => args.output.json,
            Self::Check(args) => args.output.json,
            Self::Salvage(args) => args.output.json,
            Self::Checkpoint(args) => args.output.json,
            Self::Verify(args) => args.output.json,
            Self::Demo(args) => args.output.json,
            Self::Bench(_) | Self::Sim(_) | Self::Completions(_) => false,
        }
    }
}
