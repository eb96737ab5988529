//! Replays a prepared trace on a store: loads it, lets it settle, runs it, and checks every read.
//!
//! Threads take segments in turn ([`Turns`]), so the operations on one key happen in the trace's order whatever the
//! number of threads, and each read knows the one value it must find. Tests: `tests/replay.rs`.

use kelvin_base::hash::hash64;
use kelvin_base::{Clock, Error, ErrorKind, Result, SystemClock};
use parking_lot::Mutex;

use super::prepare::Prepared;
use super::steps::{Content, Step, StepReader, Steps};
use super::turns::Turns;
use super::values::Values;
use crate::dirs;
use crate::options::{BenchOptions, DeviceLimits, Workload};
use crate::report::Report;
use crate::runner::{
    Client, Extent, Operation, Peaks, Phase, PhaseResult, Progress, Stage, load_figures, make_dirs,
};
use crate::subject::Subject;

/// `options` with the sizes and operations of `trace`.
#[must_use]
pub fn options_for(options: &BenchOptions, trace: &Prepared) -> BenchOptions {
    let (key_size, value_size) = trace.figures.mean_sizes();
    BenchOptions {
        workload: Workload::Trace,
        records: trace.figures.load_records.max(1),
        key_size,
        value_size,
        ops: Some(trace.figures.run_ops),
        ..options.clone()
    }
}

/// Opens the system that `options` names, in fresh directories, and replays `trace` on it.
///
/// # Errors
/// `InvalidArgument` for options that cannot be run; whatever the store reports; `Corruption` for a wrong value.
pub fn replay(options: &BenchOptions, trace: &Prepared, progress: &mut dyn Progress) -> Result<Report> {
    let options = fresh(options, trace)?;
    let subject = crate::systems::open(&options)?;
    replay_on(&options, trace, &*subject, &SystemClock::new(), progress)
}

/// The same, but the load is done as fast as the machine allows, whatever the limits of the disks, and the store opened again before the run:
/// for those who do not measure loads.
///
/// # Errors
/// As [`replay`].
pub fn replay_loaded(
    options: &BenchOptions,
    trace: &Prepared,
    progress: &mut dyn Progress,
) -> Result<Report> {
    let options = fresh(options, trace)?;
    let clock = SystemClock::new();
    let unlimited = BenchOptions { limits: DeviceLimits::default(), ..options.clone() };
    let subject = crate::systems::open(&unlimited)?;
    let loaded = load(&Stage { options: &unlimited, subject: &*subject, clock: &clock }, trace, progress)?;
    drop(subject);
    let subject = crate::systems::open(&options)?;
    run(&Stage { options: &options, subject: &*subject, clock: &clock }, trace, &loaded, progress)
}

/// The options of a replay in directories that were just made.
fn fresh(options: &BenchOptions, trace: &Prepared) -> Result<BenchOptions> {
    let options = options_for(options, trace);
    options.check()?;
    if options.reuse {
        return Err(
            Error::invalid("a trace changes its store, so none is used again").advice("leave --reuse out")
        );
    }
    make_dirs(&options)?;
    check_room(&options, trace)?;
    Ok(options)
}

/// Refuses what would not fit: the data, and half as much again while it is merged.
fn check_room(options: &BenchOptions, trace: &Prepared) -> Result<()> {
    let data = trace.figures.plan.data_bytes.max(trace.figures.load_bytes);
    let data = data + data / 2;
    let wanted = match (options.slow_dir(), options.fast_capacity) {
        (Some(slow), Some(capacity)) if dirs::device(&slow)? != dirs::device(&options.fast_dir())? => {
            vec![(options.fast_dir(), capacity), (slow, data)]
        }
        (Some(slow), Some(capacity)) => vec![(slow, data + capacity)],
        _ => vec![(options.fast_dir(), data)],
    };
    for (dir, needed) in wanted {
        let free = dirs::free_bytes(&dir)?;
        if free < needed {
            return Err(Error::new(
                ErrorKind::NoSpace,
                "the store would not fit on this disk; nothing was begun",
            )
            .file(&dir)
            .expected(format!("{needed} bytes free"), free)
            .advice("give less with --data, or --fast and --slow on larger disks"));
        }
    }
    Ok(())
}

/// Replays `trace` on a store that is open and empty.
///
/// # Errors
/// As [`replay`].
pub fn replay_on(
    options: &BenchOptions,
    trace: &Prepared,
    subject: &dyn Subject,
    clock: &dyn Clock,
    progress: &mut dyn Progress,
) -> Result<Report> {
    let options = options_for(options, trace);
    let stage = Stage { options: &options, subject, clock };
    let loaded = load(&stage, trace, progress)?;
    run(&stage, trace, &loaded, progress)
}

/// Loads what was there when the run begins, and lets the store settle; both phases.
fn load(stage: &Stage<'_>, trace: &Prepared, progress: &mut dyn Progress) -> Result<[PhaseResult; 2]> {
    let values = Values::new(stage.options.seed);
    let extent =
        Extent { total: Some(trace.figures.load_records), seconds: None, threads: stage.options.threads };
    let records = Mutex::new(StepReader::open(&trace.load)?);
    let load = |client: &mut Client<'_>| Player::new(stage, &values, client).play(&records, None);
    let loaded = stage.phase(Phase::Load, extent, &load, progress)?;
    Ok([loaded, stage.settle(progress)?])
}

/// Replays the run on a store that was loaded.
fn run(
    stage: &Stage<'_>,
    trace: &Prepared,
    [loaded, settled]: &[PhaseResult; 2],
    progress: &mut dyn Progress,
) -> Result<Report> {
    let (options, figures) = (stage.options, &trace.figures);
    let values = Values::new(options.seed);
    let extent = Extent { total: Some(figures.run_ops), seconds: options.seconds, threads: options.threads };
    let (steps, turns) = (Mutex::new(StepReader::open(&trace.run)?), Turns::new());
    let run = |client: &mut Client<'_>| Player::new(stage, &values, client).play(&steps, Some(&turns));
    let ran = stage.phase(Phase::Run, extent, &run, progress)?;

    let mut peaks = Peaks::default();
    [loaded, settled, &ran].iter().for_each(|phase| peaks.include(&phase.peaks));
    let figures_of_load = load_figures(std::slice::from_ref(loaded), settled, figures.load_records);
    let slow_used = options.slow_dir().map_or(0, |dir| dirs::used_bytes(&dir));
    let mut report = Report::new(options, ran, Some(figures_of_load), peaks, slow_used);
    report.fast_discards = kelvin_storage::os::discards(&options.fast_dir());
    report.trace = Some(figures.clone());
    Ok(report)
}

/// One client thread of a replay.
struct Player<'a, 'c, 'd> {
    stage: &'a Stage<'a>,
    values: &'a Values,
    client: &'c mut Client<'d>,
    segment: Vec<u8>,
    value: Vec<u8>,
}

impl<'a, 'c, 'd> Player<'a, 'c, 'd> {
    const fn new(stage: &'a Stage<'a>, values: &'a Values, client: &'c mut Client<'d>) -> Self {
        Self { stage, values, client, segment: Vec::new(), value: Vec::new() }
    }

    /// Takes segments until none is left or the phase is stopped.
    fn play(mut self, steps: &Mutex<StepReader>, turns: Option<&Turns>) -> Result<()> {
        let mut segment = std::mem::take(&mut self.segment);
        loop {
            let Some(number) = steps.lock().next_segment(&mut segment)? else { return Ok(()) };
            let turn = match turns.map(|turns| turns.begin(number)) {
                Some(Some(turn)) => Some(turn),
                Some(None) => return Ok(()),
                None => None,
            };
            for step in Steps::of(&segment) {
                if self.client.is_stopped() {
                    return Ok(());
                }
                let (key, step) = step?;
                self.step(key, step)?;
                self.client.count_done();
            }
            if let Some(turn) = turn {
                turn.end();
            }
        }
    }

    fn step(&mut self, key: &[u8], step: Step) -> Result<()> {
        let key_hash = hash64(key);
        let operation = match step {
            Step::Read(_) => Operation::Read,
            Step::Insert(_) => Operation::Insert,
            Step::Update(_) => Operation::Update,
            Step::Modify(..) => Operation::Modify,
            Step::Delete => Operation::Delete,
        };
        if matches!(operation, Operation::Read | Operation::Modify) {
            self.client.count_read();
        }
        if let Step::Insert(content) | Step::Update(content) | Step::Modify(_, content) = step {
            self.values.fill(key_hash, content, &mut self.value);
        }
        let store = self.stage.subject.store();
        let start = self.client.begin();
        match step {
            Step::Read(expected) => {
                let found = store.get(key)?;
                self.client.record(operation, start)?;
                return self.check(key, key_hash, expected, found.as_deref());
            }
            Step::Insert(_) | Step::Update(_) => store.put(key, &self.value)?,
            Step::Delete => store.delete(key)?,
            Step::Modify(expected, _) => {
                let mut checked = Ok(());
                store.update(key, &mut |found| {
                    checked = self.check(key, key_hash, expected, found);
                    Some(self.value.clone())
                })?;
                checked?;
            }
        }
        self.client.record(operation, start)
    }

    /// Refuses anything but the value that the trace says is there.
    fn check(
        &self,
        key: &[u8],
        key_hash: u64,
        expected: Option<Content>,
        found: Option<&[u8]>,
    ) -> Result<()> {
        let is_right = match (expected, found) {
            (None, None) => true,
            (Some(content), Some(value)) => self.values.is_value(key_hash, content, value),
            _ => false,
        };
        if is_right {
            return Ok(());
        }
        let what = match (expected, found) {
            (None, _) => "returned a record that is not there",
            (_, None) => "lost a record",
            _ => "returned a wrong value",
        };
        let content = expected.map_or("no record".to_string(), |content| {
            format!("write {} of {} bytes", content.version, content.size)
        });
        let bytes =
            found.map_or("no record".to_string(), |value| format!("another value of {} bytes", value.len()));
        Err(Error::new(ErrorKind::Corruption, format!("the store {what} of key {}", key.escape_ascii()))
            .expected(content, bytes))
    }
}
