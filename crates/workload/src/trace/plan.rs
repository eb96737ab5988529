//! The first pass over a trace: how much of it is used, how often each request is repeated, where the run begins.
//!
//! HotRAP §4.3: records are inserted until there are about 110 GB of them, then 5 × 10^8 operations are run; a trace with
//! less data has each request repeated until there is enough. Here: requests are taken until their records reach the
//! size wanted, and then as many more as the run has operations. A trace that ends before is used whole, its last
//! requests are the run, and it is repeated `wanted / own size` times, rounded up. Tests: `tests/prepare.rs`.

use kelvin_base::{Error, Result};

use super::model::{Record, Rules};
use super::reader::{Reader, Skipped, TraceFiles};
use super::request::Request;
use super::table::KeyTable;
use crate::runner::{Progress, ProgressUpdate};

/// The paper's data for each operation of the run, bytes: 110 GB and 5 × 10^8 operations.
const DATA_BYTES_PER_OPERATION: u64 = 220;
/// How often a request is repeated at most; the paper's traces needed up to 4,168 copies.
const COPIES_MAX: u64 = 100_000;
/// Progress is told after so many requests.
const TOLD_EACH: u64 = 1 << 16;

/// How many operations the paper runs on so much data.
#[must_use]
pub const fn run_ops_for(data_bytes: u64) -> u64 {
    let ops = data_bytes / DATA_BYTES_PER_OPERATION;
    if ops == 0 { 1 } else { ops }
}

/// What is wanted of a trace.
#[derive(Clone, Debug)]
pub struct PrepareOptions {
    /// Bytes of keys and values there shall be; `None` is as many as the trace has.
    pub data: Option<u64>,
    /// Operations of the run; `None` is the paper's part of the data.
    pub ops: Option<u64>,
    /// How requests are understood.
    pub rules: Rules,
    /// Memory that may be used to know the keys, bytes.
    pub memory_bytes_max: u64,
}

impl Default for PrepareOptions {
    fn default() -> Self {
        Self { data: None, ops: None, rules: Rules::default(), memory_bytes_max: 2 << 30 }
    }
}

/// What is made of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Requests that are used, from the first on.
    pub requests: u64,
    /// The first request of the run; those before are the load.
    pub run_from: u64,
    /// How often each is repeated.
    pub copies: u64,
    /// Digits of the prefix that tells the copies apart.
    pub prefix_size: usize,
    /// Distinct keys, before repetition.
    pub keys: u64,
    /// Keys and values at the end, with all copies, bytes.
    pub data_bytes: u64,
    /// Operations of the run at most.
    pub ops: u64,
}

/// One reading of a trace, with progress.
pub(super) struct Pass<'a> {
    reader: Reader<'a>,
    files: &'a TraceFiles,
    progress: &'a mut dyn Progress,
    phase: &'static str,
    count: u64,
}

impl<'a> Pass<'a> {
    pub(super) fn new(files: &'a TraceFiles, phase: &'static str, progress: &'a mut dyn Progress) -> Self {
        Self { reader: files.read(), files, progress, phase, count: 0 }
    }

    /// The next request.
    pub(super) fn next_request(&mut self) -> Result<Option<Request<'_>>> {
        if self.count.is_multiple_of(TOLD_EACH) {
            self.progress.update(&ProgressUpdate {
                phase: self.phase,
                done: self.reader.bytes_read(),
                total: Some(self.files.bytes()),
                ..ProgressUpdate::default()
            });
        }
        self.count += 1;
        self.reader.next_request()
    }

    /// The next request of a trace that had it when it was read before.
    pub(super) fn known_request(&mut self) -> Result<Request<'_>> {
        let files = self.files;
        self.next_request()?.ok_or_else(|| {
            Error::invalid(format!("the trace {} became shorter while it was read", files.name()))
                .advice("let nobody write to it meanwhile")
        })
    }

    pub(super) fn skipped(&self) -> Skipped {
        self.reader.skipped().clone()
    }
}

/// Reads the trace once, leaves its keys in `table`, and says what is made of it.
pub(super) fn scan(
    options: &PrepareOptions,
    table: &mut KeyTable<Record>,
    mut pass: Pass<'_>,
) -> Result<(Plan, Skipped)> {
    let wanted_ops = options.ops.or(options.data.map(run_ops_for));
    let (mut requests, mut data_bytes, mut records) = (0u64, 0u64, 0u64);
    let mut end = u64::MAX;
    while requests < end {
        let Some(request) = pass.next_request()? else { break };
        let key_size = request.key.len() as u64;
        let record = table.at(request.key)?;
        let (bytes, was_live) = (record.bytes(key_size), record.is_live);
        record.meet(&request);
        record.expire(options.rules, &request);
        record.apply(options.rules, &request);
        data_bytes = data_bytes - bytes + record.bytes(key_size);
        records = records - u64::from(was_live) + u64::from(record.is_live);
        requests += 1;
        if end == u64::MAX && options.data.is_some_and(|wanted| data_bytes >= wanted) {
            end = requests.saturating_add(wanted_ops.unwrap_or(0));
        }
    }
    let empty = |what: &str| {
        Err(Error::invalid(what).advice("name a trace with reads that find something, or with writes"))
    };
    if requests == 0 {
        return empty("the trace has no request");
    }
    if data_bytes == 0 {
        return empty("no request of the trace leaves a record, so there is nothing to load");
    }
    let wanted = options.data.unwrap_or(data_bytes).max(1);
    let copies = if end == u64::MAX { wanted.div_ceil(data_bytes) } else { 1 };
    if copies > COPIES_MAX {
        return Err(Error::invalid("the trace has too little data to be repeated up to the size wanted")
            .expected(format!("at least {} bytes of records", wanted / COPIES_MAX), data_bytes)
            .advice("use a longer trace, or give less with --data"));
    }
    let prefix_size = if copies == 1 { 0 } else { (copies - 1).to_string().len() };
    let ops = wanted_ops.unwrap_or(run_ops_for(data_bytes)).max(1);
    let plan = Plan {
        requests,
        run_from: requests - requests.min(ops.div_ceil(copies)),
        copies,
        prefix_size,
        keys: table.len() as u64,
        data_bytes: (data_bytes + records * prefix_size as u64) * copies,
        ops,
    };
    Ok((plan, pass.skipped()))
}
