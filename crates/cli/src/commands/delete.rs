//! `kelvin delete`: keys, or a range of keys in one write.

use kelvin::{Error, KEY_BYTES_MAX, WriteBatch, WriteOptions};
use serde_json::json;

use super::range::Range;
use crate::args::data::Delete;
use crate::exit::{Exit, Outcome};
use crate::output::print_json;
use crate::store;

/// Removes what is named.
///
/// # Errors
/// The store's; `InvalidArgument` if nothing is named.
pub fn run(args: &Delete) -> Outcome {
    let range = Range::parse(&args.range, args.bytes.chosen().unwrap_or_default())?;
    let given = &args.range;
    let is_range = given.from.is_some() || given.to.is_some() || given.prefix.is_some();
    if args.keys.is_empty() && !is_range {
        return Err(Error::invalid("nothing to delete is named")
            .advice("name keys, or a range with --from and --to, or --prefix")
            .into());
    }
    if given.from.is_some() != given.to.is_some() {
        return Err(Error::invalid("a range to delete needs both --from and --to")
            .advice("half a range is refused because a slip would remove too much")
            .into());
    }
    if given.prefix.as_deref() == Some("") {
        return Err(Error::invalid("an empty prefix would delete everything")
            .advice("to empty a store, remove its directories")
            .into());
    }
    let db = store::open_existing(&args.store)?;
    let keyspace = store::keyspace(&db, &args.keyspace)?;
    let mut batch = WriteBatch::new();
    for text in &args.keys {
        batch.delete(keyspace.id(), &store::decode(&args.bytes, "key", text)?)?;
    }
    if is_range {
        // A prefix of 0xff bytes has no key behind it: the longest key of that byte ends it.
        let start = range.lower.unwrap_or_default();
        let end = range.upper.unwrap_or_else(|| vec![0xff; KEY_BYTES_MAX].into());
        batch.delete_range(keyspace.id(), &start, &end)?;
    }
    keyspace.write(batch, &WriteOptions::default())?;
    drop(keyspace);
    db.close()?;
    if args.output.json {
        print_json(&json!({"keys": args.keys.len(), "range": is_range}))?;
    }
    Ok(Exit::Ok)
}
