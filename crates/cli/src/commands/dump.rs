//! `kelvin dump`: the records of a keyspace as of one moment, with their expiry, to a file or a pipe.

use std::io::{self, IsTerminal};

use kelvin::transfer::{Encoder, Encoding, Format, Record};
use kelvin::{Clock, DbIterator, Error, SystemClock};
use serde_json::json;

use super::range::Range;
use crate::args::data::Dump;
use crate::exit::{Exit, Failure, Outcome};
use crate::files::{Output, is_dash};
use crate::output::{bytes, grouped};
use crate::{progress, store};

/// Records between two looks at the progress bar.
const RECORDS_PER_REPORT: u64 = 256;

/// Writes the records.
///
/// # Errors
/// The store's, or the output's.
pub fn run(args: &Dump) -> Outcome {
    let file = args.file.as_deref().filter(|path| !is_dash(path));
    let format = format(args)?;
    if file.is_none() && format == Format::Dump && io::stdout().is_terminal() {
        return Err(Error::invalid("a dump is not text; it is not written to a terminal")
            .advice("name a file, pipe it, or choose --format csv or jsonl")
            .into());
    }
    let range = Range::parse(&args.range, args.encoding.unwrap_or_default())?;
    let clock = SystemClock::new();
    let db = store::open_existing(&args.store)?;
    let keyspace = store::keyspace(&db, &args.keyspace)?;
    let mut iter = keyspace.iter(range.into_options())?;
    iter.seek_to_first()?;
    let mut output = Output::create(file, args.force)?;
    let encoding = match (args.encoding, format) {
        (Some(encoding), _) => encoding,
        (None, Format::Csv) => Encoding::Escape,
        (None, _) => Encoding::Text,
    };
    let encoder = Encoder::new(format, &mut output, encoding);
    let (records, size) = write_all(&mut iter, encoder, args.quiet || args.output.json)?;
    output.complete()?;
    drop((iter, keyspace));
    db.close()?;
    if args.output.json {
        eprintln!("{}", json!({"records": records, "bytes": size, "seconds": clock.now().as_secs_f64()}));
    } else if file.is_some() && !args.quiet {
        eprintln!("dumped {} records ({})", grouped(records), bytes(size));
    }
    Ok(Exit::Ok)
}

fn format(args: &Dump) -> Result<Format, Failure> {
    let Some(file) = args.file.as_deref().filter(|path| !is_dash(path)) else {
        return Ok(args.format.unwrap_or(Format::Dump));
    };
    if let Some(format) = args.format.or_else(|| Format::of_path(file)) {
        return Ok(format);
    }
    if file.extension().is_none() {
        return Ok(Format::Dump);
    }
    Err(Error::invalid("the file's extension names no format")
        .file(file)
        .advice("name it .dump, .csv or .jsonl, or give --format")
        .into())
}

/// Writes every record; how many there were, and the bytes of their keys and values.
fn write_all(
    iter: &mut DbIterator,
    mut encoder: Encoder<&mut Output>,
    quiet: bool,
) -> Result<(u64, u64), Failure> {
    let bar = progress::bar(None, "records", quiet);
    let (mut records, mut size) = (0u64, 0u64);
    let mut record = Record::default();
    while iter.valid() {
        record.key.clear();
        record.key.extend_from_slice(iter.key());
        record.value.clear();
        record.value.extend_from_slice(iter.value());
        record.expiry_ms = iter.expiry_ms();
        encoder.write(&record)?;
        records += 1;
        size += record.key.len() as u64 + record.value.len() as u64;
        if records.is_multiple_of(RECORDS_PER_REPORT) {
            bar.set_position(records);
        }
        iter.next()?;
    }
    encoder.finish()?;
    bar.finish_and_clear();
    Ok((records, size))
}
