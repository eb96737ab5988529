//! `verify`: the promises, put to the test.

use std::path::PathBuf;

use clap::Args;

use super::store::OutputArgs;

/// `verify`
#[derive(Debug, Args)]
#[command(after_help = "\
Sizes: small takes a minute or two, night some hours, release is what is published with a release
(docs/reliability.md). A number is of what the suite counts, and wants one suite: see --list.

A suite that finds a broken promise prints it with the command that shows it again, and the exit
code is 3. The stores it was found in stay where they are if they lie in files, in new directories.

Examples:
  kelvin verify                                    every suite, small
  kelvin verify kills --budget 1000 --fast /nvme/v --slow /hdd/v
  kelvin verify linear --budget 1 --seed 77
  kelvin verify soak --budget 3600 --fast /nvme/v --slow /hdd/v --html soak.html
  kelvin verify soak --budget 7200 --continue soak.json     three times: six hours of one store")]
pub struct Verify {
    /// Suites [default: all]
    #[arg(value_name = "SUITE")]
    pub suites: Vec<String>,
    /// How much: small, night, release, or a number
    #[arg(long, value_name = "SIZE", default_value = "small")]
    pub budget: String,
    /// Seed of what is run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Run this one case: what a suite that found a broken promise printed
    #[arg(long, value_name = "CASE", conflicts_with_all = ["budget", "seed"])]
    pub case: Option<String>,
    /// Directory on the fast disk to put stores in, for suites on real files [default: the temporary one]
    #[arg(long, value_name = "DIR")]
    pub fast: Option<PathBuf>,
    /// The same on the slow disk [default: the temporary one]
    #[arg(long, value_name = "DIR")]
    pub slow: Option<PathBuf>,
    /// A soak in parts: go on with the store, in its place, and the seed of the soak that FILE tells of, and tell there how this one did, for the next; made if it is not there
    #[arg(long = "continue", value_name = "FILE")]
    pub parts: Option<PathBuf>,
    /// Write a report with plots over time to this file, for the suite soak
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Say what suites there are and how much each size is, and end
    #[arg(long)]
    pub list: bool,
    /// The arguments of the process that is killed.
    #[arg(long, hide = true, num_args = 1.., allow_hyphen_values = true)]
    pub killed: Vec<String>,
    #[command(flatten)]
    pub output: OutputArgs,
}
