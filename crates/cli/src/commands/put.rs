//! `kelvin put`: one record, its value from the command line or from stdin.

use kelvin::{VALUE_BYTES_MAX, WriteOptions};
use serde_json::json;

use crate::args::data::Put;
use crate::exit::{Exit, Outcome};
use crate::output::print_json;
use crate::{files, store};

/// Writes the record.
///
/// # Errors
/// The store's.
pub fn run(args: &Put) -> Outcome {
    let key = store::decode(&args.bytes, "key", &args.key)?;
    let value = match args.value.as_str() {
        "-" => files::stdin_bytes(VALUE_BYTES_MAX)?,
        text => store::decode(&args.bytes, "value", text)?,
    };
    store::check_key(&key)?;
    let db = store::open_or_make(&args.store)?;
    let options = WriteOptions { ttl: args.ttl, ..WriteOptions::default() };
    db.keyspace(&args.keyspace.keyspace)?.put_with(&key, &value, &options)?;
    db.close()?;
    if args.output.json {
        print_json(&json!({"key_bytes": key.len(), "value_bytes": value.len()}))?;
    }
    Ok(Exit::Ok)
}
