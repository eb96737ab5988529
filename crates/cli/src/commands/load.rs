//! `kelvin load`: records from files or a pipe, in batches or as tables at once.
//!
//! Invariant: when an input is refused in the middle, every record before the place named is in the store and the
//! error says how many these are; with `--bulk` none is. Loading the same input again writes the same records again, so a corrected input can
//! simply be loaded once more.

use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::ProgressBar;
use kelvin::transfer::{DecodeOptions, Decoder, Format, Header, Record};
use kelvin::{Clock, Error, Keyspace, SystemClock, WriteBatch, WriteOptions};
use serde_json::json;

use crate::args::data::Load;
use crate::exit::{Exit, Failure, Outcome};
use crate::files::{self, Input};
use crate::output::{bytes, grouped, print, print_json, rate};
use crate::{progress, store};

/// A batch takes at most this part of a memtable: larger ones would make memtables, and logs, larger than planned.
const BATCH_OF_MEMTABLE: u64 = 4;
/// Records between two looks at the progress bar.
const RECORDS_PER_REPORT: u64 = 256;

/// Loads every input.
///
/// # Errors
/// The input's or the store's, with what was loaded before.
pub fn run(args: &Load) -> Outcome {
    let inputs = open_all(&args.files)?;
    let clock = SystemClock::new();
    let db = store::open_or_make(&args.store)?;
    let keyspace = db.keyspace(&args.keyspace.keyspace)?;
    let total = inputs.iter().map(|input| input.len).sum::<Option<u64>>();
    let bar = progress::bar(total, "bytes", args.quiet || args.output.json);
    let options = DecodeOptions {
        header: header(args),
        encoding: args.encoding.unwrap_or_default(),
        now_ms: clock.unix_millis(),
        ..DecodeOptions::default()
    };
    let ends_ms = args.ttl.map(|ttl| expiry_ms(options.now_ms, ttl));
    let source = Source { format: args.format, options, ends_ms, bar: &bar };
    let loaded = match args.bulk {
        true => load_at_once(&source, inputs, &keyspace),
        false => {
            let batch_bytes_max = (db.config().memtable_bytes / BATCH_OF_MEMTABLE).max(1);
            load_in_batches(&source, inputs, keyspace, args.batch.clamp(1, batch_bytes_max))
        }
    };
    bar.finish_and_clear();
    let (records, size) = loaded?;
    db.close()?;
    report(records, size, clock.now(), args.output.json)
}

/// Writes the records of `inputs` in batches; how many, and the bytes of their keys and values.
fn load_in_batches(
    source: &Source<'_>,
    inputs: Vec<Input>,
    keyspace: Keyspace,
    batch_bytes_max: u64,
) -> Result<(u64, u64), Failure> {
    let mut batches = Batches {
        keyspace,
        batch: WriteBatch::new(),
        batch_bytes: 0,
        batch_bytes_max,
        held: 0,
        records: 0,
        bytes: 0,
    };
    let loaded = inputs.into_iter().try_for_each(|input| {
        let read = source.read(input, &mut |record| batches.add(record));
        // What was decoded before an error is loaded, so that the place in the error divides the input.
        batches.write().and(read)
    });
    match loaded {
        Ok(()) => Ok((batches.records, batches.bytes)),
        Err(error) => {
            let count = grouped(batches.records);
            let note = format!("{count} records before it were loaded and stay in the store");
            Err(Failure::from(error).note(note))
        }
    }
}

/// Writes the records of `inputs`, in order of their keys, as tables; how many, and the bytes of their keys and values.
fn load_at_once(source: &Source<'_>, inputs: Vec<Input>, keyspace: &Keyspace) -> Result<(u64, u64), Failure> {
    let loaded = keyspace.bulk_load(|load| {
        let mut put = |record: &Record| match record.expiry_ms {
            None => load.put(&record.key, &record.value),
            Some(expiry_ms) => load.put_expiring(&record.key, &record.value, expiry_ms),
        };
        inputs.into_iter().try_for_each(|input| source.read(input, &mut put))
    });
    match loaded {
        Ok(loaded) => Ok((loaded.records, loaded.bytes)),
        Err(error) => Err(Failure::from(error).note(
            "no record was loaded; if it is the manifest that could not be written, the next opening finds all of them or none",
        )),
    }
}

fn header(args: &Load) -> Header {
    match (args.header, args.no_header) {
        (true, _) => Header::Present,
        (_, true) => Header::Absent,
        _ => Header::Detect,
    }
}

fn expiry_ms(now_ms: u64, ttl: Duration) -> u64 {
    now_ms.saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
}

/// Opens every input before anything is loaded, so that a mistyped name is heard of first.
fn open_all(names: &[PathBuf]) -> Result<Vec<Input>, Failure> {
    if names.is_empty() {
        return Ok(vec![files::open(Path::new("-"))?]);
    }
    names.iter().map(|name| files::open(name)).collect()
}

/// How inputs are read.
struct Source<'a> {
    format: Option<Format>,
    options: DecodeOptions,
    ends_ms: Option<u64>,
    bar: &'a ProgressBar,
}

impl Source<'_> {
    /// Hands each record of `input` to `take`.
    fn read(
        &self,
        mut input: Input,
        take: &mut dyn FnMut(&Record) -> kelvin::Result<()>,
    ) -> kelvin::Result<()> {
        let format = match self.format.or_else(|| Format::of_path(&input.name)) {
            Some(format) => format,
            None => {
                let start = input.reader.fill_buf();
                Format::of_start(start.map_err(|error| Error::io("reading", &input.name, error))?)
            }
        };
        let before = self.bar.position();
        let mut decoder = Decoder::new(format, &mut input.reader, self.options);
        let mut record = Record::default();
        let mut records = 0_u64;
        while decoder.next(&mut record).map_err(|error| error.file(&input.name))? {
            record.expiry_ms = record.expiry_ms.or(self.ends_ms);
            take(&record)?;
            records += 1;
            if records.is_multiple_of(RECORDS_PER_REPORT) {
                self.bar.set_position(before + decoder.position().offset);
            }
        }
        self.bar.set_position(before + decoder.position().offset);
        Ok(())
    }
}

/// Records on their way into a keyspace, in batches.
struct Batches {
    keyspace: Keyspace,
    batch: WriteBatch,
    batch_bytes: u64,
    batch_bytes_max: u64,
    /// Records in the batch.
    held: u64,
    /// Records written.
    records: u64,
    /// Bytes of keys and values written.
    bytes: u64,
}

impl Batches {
    fn add(&mut self, record: &Record) -> kelvin::Result<()> {
        let id = self.keyspace.id();
        match record.expiry_ms {
            None => self.batch.put(id, &record.key, &record.value)?,
            Some(expiry_ms) => self.batch.put_expiring(id, &record.key, &record.value, expiry_ms)?,
        }
        self.held += 1;
        self.batch_bytes += record.key.len() as u64 + record.value.len() as u64;
        if self.batch_bytes >= self.batch_bytes_max { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> kelvin::Result<()> {
        if self.held == 0 {
            return Ok(());
        }
        // What is refused is not counted, nor written again.
        let (held, bytes) = (std::mem::take(&mut self.held), std::mem::take(&mut self.batch_bytes));
        self.keyspace.write(std::mem::take(&mut self.batch), &WriteOptions::default())?;
        self.records += held;
        self.bytes += bytes;
        Ok(())
    }
}

fn report(records: u64, size: u64, took: Duration, json: bool) -> Outcome {
    let per_second = rate(records, took);
    if json {
        print_json(&json!({
            "records": records, "bytes": size, "seconds": took.as_secs_f64(), "records_per_s": per_second,
        }))?;
    } else {
        print(&format!(
            "loaded {} records ({}) in {:.1} s, {per_second:.0} records/s",
            grouped(records),
            bytes(size),
            took.as_secs_f64()
        ))?;
    }
    Ok(Exit::Ok)
}
