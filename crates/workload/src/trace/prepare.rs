//! Makes of a trace what is replayed: records to load, and steps of the run with what each read must find.
//!
//! Three passes over the files; the trace is never held. The first is [`plan`](super::plan). The second follows each
//! key up to the beginning of the run. The third writes the load (records from before the trace, then every other record
//! where it was last written, so in the order of their last writes) and the run, and classifies its reads. Memory: 56
//! to 112 bytes for each distinct key, three times 56 while the table grows, bounded by an option. Disk: about 30
//! bytes and the key for each record and each operation. Tests: `tests/prepare.rs`, `tests/classes.rs`.

use std::path::{Path, PathBuf};

use kelvin_base::{Error, ErrorKind, Result};

use super::classify::{Classes, is_hot, is_sunk};
use super::figures::TraceFigures;
use super::model::{Change, Record, Rules};
use super::plan::{Pass, Plan, PrepareOptions, scan};
use super::reader::{Skipped, TraceFiles};
use super::request::Request;
use super::steps::{Content, Step, StepReader, StepWriter, Steps};
use super::table::KeyTable;
use crate::dirs;
use crate::runner::Progress;

/// Bytes of a step beside its key, at most.
const STEP_BYTES: u64 = 32;

/// A trace that can be replayed: two files of steps, and what is known of it.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The records to load.
    pub load: PathBuf,
    /// The steps of the run.
    pub run: PathBuf,
    /// What the trace is like.
    pub figures: TraceFigures,
}

/// Prepares `files` in the directory `dir`, which is there.
///
/// # Errors
/// Those of reading the trace; `InvalidArgument` if it cannot become what is wanted, or has more keys than the memory
/// allows; `NoSpace` before anything is written if `dir` has too little room; the operating system's.
pub fn prepare(
    files: &TraceFiles,
    options: &PrepareOptions,
    dir: &Path,
    progress: &mut dyn Progress,
) -> Result<Prepared> {
    let mut table = KeyTable::new(options.memory_bytes_max);
    let (plan, skipped) = scan(options, &mut table, Pass::new(files, "scan", progress))?;
    table.reset();
    let priors = dir.join("priors");
    let key_bytes = fold(options.rules, &plan, &mut table, Pass::new(files, "follow", progress), &priors)?;
    check_room(dir, &plan, key_bytes)?;
    let prepared = (dir.join("load"), dir.join("run"));
    let mut emission = Emission {
        rules: options.rules,
        plan: &plan,
        load: StepWriter::unordered(&prepared.0)?,
        run: StepWriter::ordered(&prepared.1)?,
        load_bytes: 0,
        load_key_bytes: 0,
        written: 0,
        read: 0,
        left: plan.ops,
        classes: Classes::default(),
        key: Vec::new(),
    };
    emission.load_priors(&priors, &mut table)?;
    dirs::remove_file(&priors)?;
    emission.pass(&mut table, Pass::new(files, "prepare", progress))?;
    drop(table);
    let figures = emission.finish(files.name(), skipped)?;
    Ok(Prepared { load: prepared.0, run: prepared.1, figures })
}

/// The second pass: what is there when the run begins, and which write it is of. Keys that a read finds before any
/// request has written them go to the file `priors`. Answers the bytes of the keys of all requests used.
fn fold(
    rules: Rules,
    plan: &Plan,
    table: &mut KeyTable<Record>,
    mut pass: Pass<'_>,
    priors: &Path,
) -> Result<u64> {
    let mut found = StepWriter::unordered(priors)?;
    let mut key_bytes = 0;
    for number in 0..plan.requests {
        let request = pass.known_request()?;
        key_bytes += request.key.len() as u64;
        let record = table.at(request.key)?;
        if record.meet(&request) {
            // Only the key is needed: the step says nothing.
            found.push(request.key, Step::Read(None))?;
        }
        // Of a key that only the run asks for, no more than what was there before matters here.
        if number < plan.run_from {
            record.expire(rules, &request);
            if matches!(record.apply(rules, &request), Change::Wrote | Change::Modified) {
                record.version = number + 1;
            }
        }
    }
    found.finish()?;
    Ok(key_bytes)
}

/// Refuses what would not fit.
pub(super) fn check_room(dir: &Path, plan: &Plan, key_bytes: u64) -> Result<()> {
    let key_size = key_bytes / plan.requests.max(1) + 1 + plan.prefix_size as u64;
    let run = plan.ops.min((plan.requests - plan.run_from).saturating_mul(plan.copies));
    let needed = (run + plan.keys.saturating_mul(plan.copies)).saturating_mul(key_size + STEP_BYTES);
    let free = dirs::free_bytes(dir)?;
    if free >= needed {
        return Ok(());
    }
    Err(Error::new(ErrorKind::NoSpace, "the prepared trace would not fit on this disk; nothing was begun")
        .file(dir)
        .expected(format!("{needed} bytes free"), free)
        .advice("name a directory on a larger disk with --work, or give less with --data and --ops"))
}

/// The third pass.
struct Emission<'a> {
    rules: Rules,
    plan: &'a Plan,
    load: StepWriter,
    run: StepWriter,
    load_bytes: u64,
    load_key_bytes: u64,
    /// Bytes written so far, by the load and the run, with all copies.
    written: u64,
    /// Bytes read so far.
    read: u64,
    /// Operations that the run may still have.
    left: u64,
    classes: Classes,
    key: Vec<u8>,
}

impl Emission<'_> {
    /// Bytes of one copy of a record.
    fn size(&self, key: &[u8], record: &Record) -> u64 {
        (self.plan.prefix_size + key.len()) as u64 + u64::from(record.value_size)
    }

    /// Copies of the next request that still belong to the run.
    fn copies_left(&self) -> u64 {
        self.plan.copies.min(self.left)
    }

    /// Puts the key of a copy into `self.key`.
    fn name_copy(&mut self, copy: u64, key: &[u8]) {
        self.key.clear();
        if self.plan.prefix_size > 0 {
            let width = self.plan.prefix_size;
            self.key.extend_from_slice(format!("{copy:0width$}").as_bytes());
        }
        self.key.extend_from_slice(key);
    }

    /// Loads all copies of a record.
    fn load(&mut self, key: &[u8], record: &mut Record) -> Result<()> {
        let size = self.size(key, record);
        for copy in 0..self.plan.copies {
            self.name_copy(copy, key);
            self.load_key_bytes += self.key.len() as u64;
            self.load.push(&self.key, Step::Insert(Content { version: 0, size: record.value_size }))?;
        }
        (record.version, record.written_at) = (0, self.written + size);
        self.written += size * self.plan.copies;
        self.load_bytes += size * self.plan.copies;
        Ok(())
    }

    /// Loads the records that were there before the trace began and that no request of the load wrote or removed.
    fn load_priors(&mut self, path: &Path, table: &mut KeyTable<Record>) -> Result<()> {
        let (mut found, mut segment) = (StepReader::open(path)?, Vec::new());
        while found.next_segment(&mut segment)?.is_some() {
            for step in Steps::of(&segment) {
                let (key, _) = step?;
                let record = table.at(key)?;
                if record.is_live && record.is_prior {
                    self.load(key, record)?;
                }
            }
        }
        Ok(())
    }

    /// Writes the rest of the load and the run.
    fn pass(&mut self, table: &mut KeyTable<Record>, mut pass: Pass<'_>) -> Result<()> {
        for number in 0..self.plan.requests {
            let request = pass.known_request()?;
            let record = table.at(request.key)?;
            if number >= self.plan.run_from {
                self.run(number, &request, record)?;
            } else if record.is_live && record.version == number + 1 {
                self.load(request.key, record)?;
            }
        }
        Ok(())
    }

    /// All copies of one request of the run.
    fn run(&mut self, number: u64, request: &Request<'_>, record: &mut Record) -> Result<()> {
        let key = request.key;
        if record.expire(self.rules, request) {
            self.delete(key)?;
        }
        let old = record.is_live.then_some(Content { version: record.version, size: record.value_size });
        match record.apply(self.rules, request) {
            Change::Read(_) => self.read(key, record),
            Change::Deleted => self.delete(key),
            Change::Probed(_) => {
                self.classes.writes += self.copies_left();
                self.push(key, Step::Read(old))
            }
            change => {
                self.classes.writes += self.copies_left();
                record.version = number + 1;
                let new = Content { version: record.version, size: record.value_size };
                let size = self.size(key, record);
                record.written_at = self.written + size;
                self.written += size * self.plan.copies;
                match (change, old) {
                    (Change::Modified, old) => self.push(key, Step::Modify(old, new)),
                    (_, Some(_)) => self.push(key, Step::Update(new)),
                    (_, None) => self.push(key, Step::Insert(new)),
                }
            }
        }
    }

    /// A read: classified for each copy. Copies are read and written one behind the other, so copy `n` lies `n` sizes
    /// behind the first, both then and now.
    fn read(&mut self, key: &[u8], record: &mut Record) -> Result<()> {
        let size = self.size(key, record);
        let data_bytes = self.plan.data_bytes;
        for copy in 0..self.copies_left() {
            let written_since = self.written - (record.written_at + copy * size).min(self.written);
            let read_since = (record.read_size > 0).then(|| {
                let then = record.read_at + copy * u64::from(record.read_size);
                (self.read + copy * size).saturating_sub(then)
            });
            let class = (is_sunk(written_since, data_bytes), is_hot(read_since, data_bytes));
            self.classes.count_read(record.is_live.then_some(class));
        }
        let content = Content { version: record.version, size: record.value_size };
        self.push(key, Step::Read(record.is_live.then_some(content)))?;
        if record.is_live {
            record.read_at = self.read + size;
            record.read_size = u32::try_from(size).unwrap_or(u32::MAX);
            self.read += size * self.plan.copies;
        }
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.classes.deletes += self.copies_left();
        self.written += (self.plan.prefix_size + key.len()) as u64 * self.plan.copies;
        self.push(key, Step::Delete)
    }

    /// Adds a step for each copy, as long as the run has operations left.
    fn push(&mut self, key: &[u8], step: Step) -> Result<()> {
        let copies = self.copies_left();
        for copy in 0..copies {
            self.name_copy(copy, key);
            self.run.push(&self.key, step)?;
        }
        self.left -= copies;
        Ok(())
    }

    fn finish(self, name: String, skipped: Skipped) -> Result<TraceFigures> {
        let load_records = self.load.finish()?;
        let run_ops = self.run.finish()?;
        Ok(TraceFigures {
            name,
            plan: self.plan.clone(),
            rules: self.rules,
            skipped,
            load_records,
            load_bytes: self.load_bytes,
            load_key_bytes: self.load_key_bytes,
            run_ops,
            classes: self.classes,
        })
    }
}
