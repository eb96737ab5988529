//! `kelvin scan`: records in key order, forward or backward.

use std::io::{self, BufWriter, Write};

use kelvin::transfer::{Encoder, Encoding, Format, Record};
use kelvin::{DbIterator, IterOptions};
use serde_json::json;

use super::get::with_bytes;
use super::range::Range;
use crate::args::data::Scan;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{print, print_json};
use crate::store;

/// Prints the records.
///
/// # Errors
/// The store's, or the output's.
pub fn run(args: &Scan) -> Outcome {
    let range = Range::parse(&args.range, args.bytes.chosen().unwrap_or_default())?;
    let db = store::open_existing(&args.store)?;
    let keyspace = store::keyspace(&db, &args.keyspace)?;
    let expected_records = args.limit.filter(|_| !args.reverse);
    let mut iter = keyspace.iter(IterOptions { expected_records, ..range.into_options() })?;
    if args.reverse {
        iter.seek_to_last()?
    } else {
        iter.seek_to_first()?
    }
    let mut walk = Walk { iter, reverse: args.reverse, left: args.limit.unwrap_or(u64::MAX) };
    if args.count {
        count(&mut walk, args.output.json)?;
    } else if args.output.json {
        as_json(&mut walk, args)?;
    } else {
        as_text(&mut walk, args)?;
    }
    drop((walk, keyspace));
    db.close()?;
    Ok(Exit::Ok)
}

/// An iterator with a direction and a limit.
struct Walk {
    iter: DbIterator,
    reverse: bool,
    left: u64,
}

impl Walk {
    /// True while there is a record to look at.
    fn valid(&self) -> bool {
        self.left > 0 && self.iter.valid()
    }

    fn step(&mut self) -> kelvin::Result<()> {
        self.left -= 1;
        match self.reverse {
            // The record after the last one asked for is not looked up.
            _ if self.left == 0 => Ok(()),
            true => self.iter.prev(),
            false => self.iter.next(),
        }
    }
}

fn count(walk: &mut Walk, json: bool) -> Result<(), Failure> {
    let mut records = 0u64;
    while walk.valid() {
        records += 1;
        walk.step()?;
    }
    if json {
        print_json(&json!({"records": records}))?
    } else {
        print(&records.to_string())?
    }
    Ok(())
}

fn as_json(walk: &mut Walk, args: &Scan) -> Result<(), Failure> {
    let encoding = args.bytes.chosen().unwrap_or_default();
    if args.keys_only {
        let mut out = BufWriter::new(io::stdout().lock());
        while walk.valid() {
            writeln!(out, "{}", with_bytes(json!({}), "key", walk.iter.key(), Some(encoding)))?;
            walk.step()?;
        }
        return Ok(out.flush()?);
    }
    let mut encoder = Encoder::new(Format::JsonLines, io::stdout().lock(), encoding);
    let mut record = Record::default();
    while walk.valid() {
        record.key.clear();
        record.key.extend_from_slice(walk.iter.key());
        record.value.clear();
        record.value.extend_from_slice(walk.iter.value());
        record.expiry_ms = walk.iter.expiry_ms();
        encoder.write(&record)?;
        walk.step()?;
    }
    Ok(encoder.finish()?)
}

fn as_text(walk: &mut Walk, args: &Scan) -> Result<(), Failure> {
    let encoding =
        args.bytes.chosen().filter(|encoding| *encoding != Encoding::Text).unwrap_or(Encoding::Escape);
    let text = |bytes: &[u8]| encoding.encode(bytes).unwrap_or_default();
    let mut out = BufWriter::new(io::stdout().lock());
    while walk.valid() {
        out.write_all(text(walk.iter.key()).as_bytes())?;
        if !args.keys_only {
            out.write_all(b"\t")?;
            out.write_all(text(walk.iter.value()).as_bytes())?;
        }
        out.write_all(b"\n")?;
        walk.step()?;
    }
    Ok(out.flush()?)
}
