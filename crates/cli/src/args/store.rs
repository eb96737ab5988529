//! Where a store is and how it is opened: options every command shares.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use kelvin::transfer::Encoding;

use super::values;

/// How results and errors are printed.
#[derive(Clone, Debug, Default, Args)]
pub struct OutputArgs {
    /// Print JSON, for programs; errors too, on stderr
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// The directories.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Store")]
pub struct PlaceArgs {
    /// The store's directory on the fast disk
    #[arg(long, value_name = "DIR", env = "KELVIN_DIR", hide_env_values = true)]
    pub fast: PathBuf,
    /// Its directory on the slow disk, if it has two tiers
    #[arg(long, value_name = "DIR", env = "KELVIN_SLOW_DIR", hide_env_values = true)]
    pub slow: Option<PathBuf>,
}

/// The store and its options.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Store")]
pub struct StoreArgs {
    /// The directories.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// The most bytes on the fast disk, everything included; needed with --slow
    #[arg(long, value_name = "SIZE", value_parser = values::size, env = "KELVIN_FAST_CAPACITY", hide_env_values = true)]
    pub fast_capacity: Option<u64>,
    /// The most bytes on the slow disk [default: all of it]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub slow_capacity: Option<u64>,
    /// The most memory, everything included [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub memory: Option<u64>,
    /// What a write survives before it is acknowledged [default: os]
    #[arg(long, value_name = "LEVEL", value_enum)]
    pub durability: Option<DurabilityArg>,
    /// How tables are compressed [default: lz4]
    #[arg(long, value_name = "HOW", value_enum)]
    pub compression: Option<CompressionArg>,
    /// What the store is mostly used for [default: balanced]
    #[arg(long, value_name = "NAME", value_enum)]
    pub profile: Option<ProfileArg>,
    /// How hot records are told from cold ones, with two tiers [default: as the store was kept so far, ralt for a new one]
    #[arg(long, value_name = "KIND", value_enum)]
    pub hotness: Option<HotnessArg>,
    /// Write what happens in the store (flushes, compactions, promotions, outages) to this file, a JSON object a line;
    /// - for stderr
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,
}

/// Which keyspace.
#[derive(Clone, Debug, Args)]
pub struct KeyspaceArgs {
    /// The keyspace (a map of its own inside the store)
    #[arg(long, value_name = "NAME", default_value = "default", help_heading = "Store")]
    pub keyspace: String,
}

/// Values of `--durability`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DurabilityArg {
    /// Nothing: lost with the process
    Memory,
    /// The end of the process
    Os,
    /// Power loss
    Sync,
}

/// Values of `--compression`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompressionArg {
    /// Not at all
    None,
    /// LZ4: cheap
    Lz4,
    /// Zstandard: smaller, dearer
    Zstd,
    /// LZ4 on the fast disk, Zstandard on the slow one
    ByTier,
}

/// Values of `--profile`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProfileArg {
    /// A mix of everything
    Balanced,
    /// Point reads
    Reads,
    /// Writes
    Writes,
    /// Scans
    Scans,
}

/// Values of `--hotness`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HotnessArg {
    /// By how often and how lately they were read
    Ralt,
    /// By the last read alone
    Lru,
    /// By counters of three bits
    Clock,
    /// Not at all; what was known is forgotten
    Off,
}

/// How keys and values stand on the command line and in the output.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Bytes")]
pub struct BytesArgs {
    /// How keys and values are written [default: text]
    #[arg(long, value_name = "HOW", value_parser = encoding, conflicts_with_all = ["hex", "base64", "escape"])]
    pub encoding: Option<Encoding>,
    /// As hexadecimal digits, 0x before them or not
    #[arg(long, conflicts_with_all = ["base64", "escape"])]
    pub hex: bool,
    /// As base64
    #[arg(long, conflicts_with = "escape")]
    pub base64: bool,
    /// As text with \n, \t, \\ and \xHH
    #[arg(long)]
    pub escape: bool,
}

impl BytesArgs {
    /// The encoding asked for, if one is.
    pub fn chosen(&self) -> Option<Encoding> {
        match (self.encoding, self.hex, self.base64, self.escape) {
            (Some(encoding), ..) => Some(encoding),
            (_, true, ..) => Some(Encoding::Hex),
            (_, _, true, _) => Some(Encoding::Base64),
            (_, _, _, true) => Some(Encoding::Escape),
            _ => None,
        }
    }
}

/// An encoding by its name.
pub fn encoding(text: &str) -> Result<Encoding, String> {
    Encoding::ALL
        .into_iter()
        .find(|encoding| encoding.name() == text)
        .ok_or_else(|| format!("{text:?} is no encoding; there are text, escape, base64 and hex"))
}
