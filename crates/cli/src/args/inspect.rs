//! The commands that look at a store, copy it, and rescue it.

use std::path::PathBuf;

use clap::Args;

use super::store::{BytesArgs, KeyspaceArgs, OutputArgs, PlaceArgs, StoreArgs};
use super::values;

/// `stats`
#[derive(Debug, Args)]
#[command(after_help = "\
Counters run from the opening of the store, so most are small here; spaces and sizes are the store's.

Examples:
  kelvin stats --fast ./store
  kelvin stats --fast ./store --json | jq .used_bytes.fast")]
pub struct Stats {
    /// Rows that are zero, too
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `levels`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kelvin levels --fast /nvme/s --slow /hdd/s --fast-capacity 10GiB
  kelvin levels --fast ./store --json")]
pub struct Levels {
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `explain`
#[derive(Debug, Args)]
#[command(after_help = "\
Without a key nothing is opened or written: the figures follow from the options alone.

Examples:
  kelvin explain --fast /nvme/s --slow /hdd/s --fast-capacity 10GiB --memory 1GiB
  kelvin explain --fast ./store greeting")]
pub struct Explain {
    /// Say where this key lies and what reading it costs
    #[arg(value_name = "KEY", allow_hyphen_values = true)]
    pub key: Option<String>,
    #[command(flatten)]
    pub bytes: BytesArgs,
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub keyspace: KeyspaceArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `check`
#[derive(Debug, Args)]
#[command(after_help = "\
Reads every byte of every file of both tiers, changes nothing, and works on a store that cannot be
opened. Exit code 3 if anything is damaged or missing; the report names the key ranges concerned.

Examples:
  kelvin check --fast /nvme/s --slow /hdd/s
  kelvin check --fast ./store --json")]
pub struct Check {
    /// Every file, sound ones too
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub place: PlaceArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `salvage`
#[derive(Debug, Args)]
#[command(after_help = "\
Reads what can be read of a store that is damaged and closed, changes nothing of it, and makes a new
store of it. What a lost piece may have overwritten or deleted is not certain: such records are put
into a keyspace NAME.doubtful of the new store. Exit code 3 if anything is lost; the report says what.

Examples:
  kelvin salvage --fast ./store ./new
  kelvin salvage --fast /nvme/s --slow /hdd/s /nvme/new --slow-to /hdd/new --fast-capacity 10GiB
  kelvin salvage --fast ./store ./new --without-manifest --json")]
pub struct Salvage {
    /// The new store's directory (on the fast disk), absent or empty
    #[arg(value_name = "NEW")]
    pub to: PathBuf,
    /// The new store's directory on the slow disk, if it is to have two tiers
    #[arg(long, value_name = "DIR")]
    pub slow_to: Option<PathBuf>,
    /// The most bytes of the new store on the fast disk; needed with --slow-to
    #[arg(long, value_name = "SIZE", value_parser = values::size, env = "KELVIN_FAST_CAPACITY", hide_env_values = true)]
    pub fast_capacity: Option<u64>,
    /// The most memory for writing the new store [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub memory: Option<u64>,
    /// The manifest cannot be read: take the newest version of every key from all tables and logs, as doubtful
    #[arg(long)]
    pub without_manifest: bool,
    /// The slow disk is lost: take what the fast one has, and do not look at --slow
    #[arg(long)]
    pub without_slow: bool,
    #[command(flatten)]
    pub place: PlaceArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `checkpoint`
#[derive(Debug, Args)]
#[command(after_help = "\
Tables are hard links where the file system allows it, copies elsewhere. The directories must be
absent or empty. The copy is a store of its own.

Examples:
  kelvin checkpoint --fast ./store ./copy
  kelvin checkpoint --fast /nvme/s --slow /hdd/s --fast-capacity 10GiB \\
      /nvme/copy --slow-to /hdd/copy")]
pub struct Checkpoint {
    /// The copy's directory (on the fast disk, for hard links)
    #[arg(value_name = "DIR")]
    pub to: PathBuf,
    /// The copy's directory on the slow disk, if the store has two tiers
    #[arg(long, value_name = "DIR")]
    pub slow_to: Option<PathBuf>,
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}
