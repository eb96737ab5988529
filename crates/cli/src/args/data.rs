//! The commands that read and write records.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kelvin::transfer::{Encoding, Format};

use super::store::{BytesArgs, KeyspaceArgs, OutputArgs, StoreArgs, encoding};
use super::values;

/// `get`
#[derive(Debug, Args)]
#[command(after_help = "\
The value's bytes are written as they are; a line feed follows only on a terminal.
Exit code 1, and no output, if the key has no value.

Examples:
  kelvin get --fast ./store greeting
  kelvin get --fast ./store --hex 0xcafe
  kelvin get --fast ./store image.png > image.png
  kelvin get --fast ./store greeting --json")]
pub struct Get {
    /// The key
    #[arg(value_name = "KEY", allow_hyphen_values = true)]
    pub key: String,
    #[command(flatten)]
    pub bytes: BytesArgs,
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub keyspace: KeyspaceArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `put`
#[derive(Debug, Args)]
#[command(after_help = "\
A store that does not exist is made.

Examples:
  kelvin put --fast ./store greeting hello
  kelvin put --fast ./store session:7 abc --ttl 30m
  kelvin put --fast ./store image.png - < image.png
  kelvin put --fast ./store --durability sync balance 100")]
pub struct Put {
    /// The key
    #[arg(value_name = "KEY", allow_hyphen_values = true)]
    pub key: String,
    /// The value; - reads it from stdin, byte for byte
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    pub value: String,
    /// Hide and remove the record after this time (500ms, 90s, 10m, 2h, 7d)
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub ttl: Option<Duration>,
    #[command(flatten)]
    pub bytes: BytesArgs,
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub keyspace: KeyspaceArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// A range of keys.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Range")]
pub struct RangeArgs {
    /// From this key on
    #[arg(long, value_name = "KEY", allow_hyphen_values = true, conflicts_with = "prefix")]
    pub from: Option<String>,
    /// Up to this key, not including it
    #[arg(long, value_name = "KEY", allow_hyphen_values = true, conflicts_with = "prefix")]
    pub to: Option<String>,
    /// Keys that begin so
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub prefix: Option<String>,
}

/// `delete`
#[derive(Debug, Args)]
#[command(after_help = "\
Removing a key that has no value is no error. A range is removed in one write, however much
it holds; give both --from and --to, or --prefix.

Examples:
  kelvin delete --fast ./store greeting
  kelvin delete --fast ./store --prefix session:
  kelvin delete --fast ./store --from log:2025 --to log:2026")]
pub struct Delete {
    /// The keys
    #[arg(value_name = "KEY", conflicts_with_all = ["from", "to", "prefix"], allow_hyphen_values = true)]
    pub keys: Vec<String>,
    #[command(flatten)]
    pub range: RangeArgs,
    #[command(flatten)]
    pub bytes: BytesArgs,
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub keyspace: KeyspaceArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `scan`
#[derive(Debug, Args)]
#[command(after_help = "\
One record a line: key, tab, value, with \\n, \\t, \\\\ and \\xHH for what would break a line.
The scan sees the store as of its start. With --json, lines as `load` reads them.

Examples:
  kelvin scan --fast ./store --prefix user: --limit 20
  kelvin scan --fast ./store --from m --to n --keys-only
  kelvin scan --fast ./store --reverse --limit 1
  kelvin scan --fast ./store --count --prefix user:")]
pub struct Scan {
    #[command(flatten)]
    pub range: RangeArgs,
    /// At most this many records (10k, 1.5M)
    #[arg(long, value_name = "N", value_parser = values::count)]
    pub limit: Option<u64>,
    /// From the last key to the first
    #[arg(long)]
    pub reverse: bool,
    /// Keys without values
    #[arg(long, conflicts_with = "count")]
    pub keys_only: bool,
    /// Only how many records there are
    #[arg(long)]
    pub count: bool,
    #[command(flatten)]
    pub bytes: BytesArgs,
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub keyspace: KeyspaceArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `load`
#[derive(Debug, Args)]
#[command(after_help = "\
Formats: csv (columns key,value,expiry_ms; key_base64, key_hex, key_escape and so on for bytes that
are not text), jsonl ({\"key\":\"a\",\"value\":\"b\"} a line), dump (what `kelvin dump` writes by
default). The format comes from --format, else the file's extension, else its first bytes.
A store that does not exist is made. Records are written in batches; an error names the line or
byte and says how many records were loaded before it; those stay. With --bulk they are written as
tables at once, past the log and the fast tier: all of them or, after an error, none.

Examples:
  kelvin load --fast ./store users.csv
  kelvin load --fast ./copy --bulk all.dump
  zcat events.jsonl.gz | kelvin load --fast ./store --format jsonl -
  kelvin dump --fast ./old | kelvin load --fast ./new -
  kelvin load --fast /nvme/s --slow /hdd/s --fast-capacity 10GiB *.dump")]
pub struct Load {
    /// Files to read, in order; - or none is stdin
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// csv, jsonl or dump
    #[arg(long, value_name = "NAME", value_parser = format)]
    pub format: Option<Format>,
    /// CSV: the first line names columns
    #[arg(long, conflicts_with = "no_header")]
    pub header: bool,
    /// CSV: the first line is a record
    #[arg(long)]
    pub no_header: bool,
    /// CSV without header: how keys and values are written (text, escape, base64, hex)
    #[arg(long, value_name = "HOW", value_parser = encoding)]
    pub encoding: Option<Encoding>,
    /// Give every record that has no end one this far away
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub ttl: Option<Duration>,
    /// Write the records as tables at once: they must come in order of their keys (a dump's do), and
    /// the keyspace must hold nothing yet
    #[arg(long, conflicts_with = "batch")]
    pub bulk: bool,
    /// Bytes of records written at once; a quarter of a memtable at most
    #[arg(long, value_name = "SIZE", value_parser = values::size, default_value = "1MiB")]
    pub batch: u64,
    /// No progress bar
    #[arg(long)]
    pub quiet: bool,
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub keyspace: KeyspaceArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `dump`
#[derive(Debug, Args)]
#[command(after_help = "\
Writes the records as of the start of the dump, with their expiry. The format comes from --format,
else the file's extension, else it is dump (compact, checksummed, and a cut one is noticed).
A file that exists is kept unless --force is given.

Examples:
  kelvin dump --fast ./store backup.dump
  kelvin dump --fast ./store --format csv | head
  kelvin dump --fast ./store --prefix user: users.jsonl
  kelvin dump --fast ./store --format csv --encoding base64 all.csv")]
pub struct Dump {
    /// The file to write; - or none is stdout
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// csv, jsonl or dump
    #[arg(long, value_name = "NAME", value_parser = format)]
    pub format: Option<Format>,
    #[command(flatten)]
    pub range: RangeArgs,
    /// How csv and jsonl write keys and values, and how --from, --to and --prefix are read
    /// [default: escape in csv; text, base64 where it must be, in jsonl]
    #[arg(long, value_name = "HOW", value_parser = encoding)]
    pub encoding: Option<Encoding>,
    /// Replace the file if it exists
    #[arg(long)]
    pub force: bool,
    /// No progress bar
    #[arg(long)]
    pub quiet: bool,
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub keyspace: KeyspaceArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

fn format(text: &str) -> Result<Format, String> {
    Format::ALL
        .into_iter()
        .find(|format| format.name() == text)
        .ok_or_else(|| format!("{text:?} is no format; there are csv, jsonl and dump"))
}
