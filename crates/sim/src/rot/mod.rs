//! Files rot: every bit of every file of a store is flipped, every length cut, every piece zeroed, moved, exchanged, or put back as it was;
//! and whole files go (promises 4, 5 and 6).
//!
//! Of each harm is shown:
//! - the store opens or says which file keeps it from opening; every way of reading answers the state of one moment, or an error that names a
//!   file. That moment is the last one, unless the bytes left are such as a power loss leaves (a log or a manifest that ends early);
//! - harm to what is advisory is no error at all;
//! - where there was an error, `check` finds damage;
//! - a salvage refuses, or makes a store whose records are right, with every other one among what it tells as lost or doubtful; where all was
//!   answered it makes a whole one. Nothing of the harmed store is changed by it.
//!
//! And nothing panics or hangs. [`fixture`] makes the stores, [`harms`] numbers what is done to them; a budget takes its share of each
//! class of harms, those of the last two spread evenly over all bytes. Tests: `tests/rot.rs`.

mod files;
mod fixture;
mod harms;
mod look;
mod rescued;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use kelvin::salvage::How;
use kelvin_storage::MemoryStorage;

use self::files::{list_all, read};
use self::fixture::{Fixture, SETUPS, Setup, World};
use self::harms::{CLASSES, Harms};

/// Seeds from so many on are of the next edition of the stores, with other bytes in the same places of their lives.
const EDITION_SEEDS: u64 = 1_000_000_000;
/// Threads that harm stores.
const THREADS: usize = 2;
/// Nothing takes as long.
const HANG: Duration = Duration::from_secs(120);
/// A salvage into a store is made of one in so many harms; of the others what is rescued is looked at as it comes.
const STORES_EVERY: u64 = 16;

/// What was done and met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Harms.
    pub harms: u64,
    /// Of these, after which a store did not open.
    pub refused: u64,
    /// After which it opened, and some answers were errors.
    pub errors: u64,
    /// After which it opened with the state of an earlier moment.
    pub earlier: u64,
    /// Salvages that refused.
    pub unsalvaged: u64,
    /// Records rescued where something was lost.
    pub rescued: u64,
    /// Doubtful ones.
    pub doubtful: u64,
    /// Harms that there are.
    pub there_are: u64,
}

impl Tally {
    /// Adds `other`.
    pub const fn add(&mut self, other: Self) {
        self.harms += other.harms;
        self.refused += other.refused;
        self.errors += other.errors;
        self.earlier += other.earlier;
        self.unsalvaged += other.unsalvaged;
        self.rescued += other.rescued;
        self.doubtful += other.doubtful;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { refused, errors, earlier, unsalvaged, rescued, doubtful, there_are, .. } = self;
        write!(
            f,
            "of {there_are} there are; {refused} openings refused, {errors} with errors of reads, {earlier} with an earlier state; {unsalvaged} salvages refused, {rescued} records \
             rescued beside lost ones, {doubtful} doubtful"
        )
    }
}

/// A broken promise, and the number of the harm that shows it.
#[derive(Clone, Debug)]
pub struct Found {
    /// What was wrong.
    pub what: String,
    /// The harm: with a budget of 1 it is the seed.
    pub number: u64,
}

/// The stores and what is done to them.
struct Stores(Vec<(Fixture, Harms)>);

impl Stores {
    fn make(edition: u64) -> Result<Self, String> {
        let one = |setup: Setup| {
            let fixture = fixture::make(setup.of_edition(edition))?;
            let harms = Harms::of(&fixture)?;
            Ok((fixture, harms))
        };
        SETUPS.into_iter().map(one).collect::<Result<_, String>>().map(Self)
    }

    /// How many harms of each class there are.
    fn counts(&self) -> [u64; CLASSES] {
        let mut sums = [0; CLASSES];
        for (_, harms) in &self.0 {
            sums.iter_mut().zip(harms.counts()).for_each(|(sum, count)| *sum += count);
        }
        sums
    }

    /// Numbers of the harms that `budget` and `seed` choose.
    fn chosen(&self, budget: u64, seed: u64) -> Vec<u64> {
        let counts = self.counts();
        let total: u64 = counts.iter().sum();
        if budget == 1 {
            return vec![seed % total];
        }
        let mut left = budget;
        let mut first = 0;
        let mut chosen = Vec::new();
        for (class, count) in counts.into_iter().enumerate() {
            let share = if class + 1 == CLASSES { left } else { budget / 4 };
            let take = share.min(count);
            // Evenly spread, from another place with each seed.
            let at = |number: u64| {
                let place = u128::from(number) * u128::from(count) / u128::from(take.max(1));
                (u64::try_from(place).unwrap_or(0) + seed) % count.max(1)
            };
            chosen.extend((0..take).map(|number| first + at(number)));
            left -= take;
            first += count;
        }
        chosen
    }

    /// The store, the file and the harm of a number.
    fn nth(&self, mut number: u64) -> Option<(&Fixture, &Harms, usize, harms::Harm)> {
        for class in 0..CLASSES {
            for (fixture, harms) in &self.0 {
                let count = harms.counts()[class];
                if number < count {
                    let (target, harm) = harms.nth(class, number)?;
                    return Some((fixture, harms, target, harm));
                }
                number -= count;
            }
        }
        None
    }

    /// Does the harm `number` and looks at what follows.
    fn run(&self, number: u64) -> Result<Tally, String> {
        let Some((fixture, harms, target, harm)) = self.nth(number) else { return Ok(Tally::default()) };
        let told = |what: String| {
            let path = harms.targets[target].path.display();
            format!("store {:?}, {path} {harm}: {what}", fixture.setup.name)
        };
        let case = || judge(fixture, harms, target, &harm, number);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(case))
            .unwrap_or_else(|panic| {
                let what = panic.downcast_ref::<String>().cloned();
                let what = what.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
                Err(format!("a panic: {}", what.unwrap_or_default()))
            })
            .map_err(told)
    }
}

fn judge(
    fixture: &Fixture,
    harms: &Harms,
    at: usize,
    harm: &harms::Harm,
    number: u64,
) -> Result<Tally, String> {
    let mut tally = Tally { harms: 1, ..Tally::default() };
    let device = fixture.device.fork();
    harms.inflict(&device, at, harm)?;
    let look = look::look(fixture, &device.fork())?;
    look.errors().try_for_each(look::is_told)?;
    let is_error = look.errors().next().is_some();
    let target = &harms.targets[at];
    if let (true, Some(error)) = (target.kind.is_advisory(), look.errors().next()) {
        return Err(format!("nothing is lost with it, but: {error}"));
    }
    let least = harms.least(fixture, at, harm);
    let moment = moment_of(fixture, least, |moment| look.is_of(fixture, moment))?;
    if look.refused.is_none() {
        tally.earlier += u64::from(moment < fixture.last());
        tally.errors += u64::from(is_error);
    } else {
        tally.refused += 1;
    }
    if is_error {
        check(fixture, &device)?;
    }
    let before = image(&device)?;
    match rescued::rescue_from(fixture, &device, How::default()) {
        Err(error) => {
            look::is_told(&error)?;
            if !is_error {
                return Err(format!("all is answered, but a salvage refuses: {error}"));
            }
            tally.unsalvaged += 1;
            let how = How { without_manifest: true, ..How::default() };
            if let Ok((_, kept)) = rescued::rescue_from(fixture, &device, how) {
                kept.was_written(fixture)?;
            }
        }
        Ok((salvaged, kept)) => {
            if !is_error && (!salvaged.is_whole() || salvaged.doubtful() > 0) {
                return Err(format!("all is answered, but a salvage tells of losses: {:?}", salvaged.lost));
            }
            let least = if is_error { least } else { moment };
            moment_of(fixture, least, |moment| kept.is_of(&salvaged, fixture, moment))
                .map_err(|what| format!("salvage: {what}"))?;
            if !salvaged.is_whole() {
                tally.rescued += salvaged.rescued();
                tally.doubtful += salvaged.doubtful();
            }
            if number.is_multiple_of(STORES_EVERY) {
                rescued::salvage_from(fixture, &device.fork())?.is_as(&kept)?;
            }
        }
    }
    if image(&device)? != before {
        return Err("a salvage changed the store".to_string());
    }
    Ok(tally)
}

/// The last moment from `least` on that `is_of` agrees with; what it says of the last one if it agrees with none.
fn moment_of(
    fixture: &Fixture,
    least: u64,
    is_of: impl Fn(u64) -> Result<(), String>,
) -> Result<u64, String> {
    let last = fixture.last();
    let Err(what) = is_of(last) else { return Ok(last) };
    (least..last).rev().find(|moment| is_of(*moment).is_ok()).ok_or_else(|| {
        if least == last {
            what
        } else {
            format!("the state is of no moment from {least} to {last}; of the last one: {what}")
        }
    })
}

/// The store must be told as damaged.
fn check(fixture: &Fixture, device: &MemoryStorage) -> Result<(), String> {
    let world = World::at(fixture.now_ms);
    let report = kelvin::check(fixture.setup.options(&fixture.dirs, device, &world), &mut |_, _| {});
    match report {
        Err(error) => look::is_told(&error),
        Ok(report) if report.is_well() => Err("there was an error, but `check` finds no damage".to_string()),
        Ok(_) => Ok(()),
    }
}

fn image(device: &MemoryStorage) -> Result<Vec<(std::path::PathBuf, files::Bytes)>, String> {
    let paths = list_all(device, Path::new("/"))?;
    paths.into_iter().map(|path| read(device, &path).map(|bytes| (path, bytes))).collect()
}

/// Does `budget` of all harms to the stores, those that `seed` chooses; with a budget of 1 the one that has the seed for its number. A thousand
/// million seeds are of one edition of the stores.
///
/// # Errors
/// The first broken promise.
pub fn run(budget: u64, seed: u64, progress: &(dyn Fn(u64) + Sync)) -> Result<Tally, Found> {
    let edition = seed / EDITION_SEEDS;
    let found = |what, number| Found { what, number: edition * EDITION_SEEDS + number };
    let stores = Arc::new(Stores::make(edition).map_err(|what| found(what, 0))?);
    let chosen = Arc::new(stores.chosen(budget, seed % EDITION_SEEDS));
    let next = Arc::new(AtomicUsize::new(0));
    let at: Arc<[AtomicU64; THREADS]> = Arc::default();
    let (sender, receiver) = mpsc::channel();
    for thread in 0..THREADS {
        let (stores, chosen, next) = (Arc::clone(&stores), Arc::clone(&chosen), Arc::clone(&next));
        let (at, sender) = (Arc::clone(&at), sender.clone());
        let work = move || {
            while let Some(&number) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                at[thread].store(number, Ordering::Relaxed);
                if sender.send(stores.run(number).map_err(|what| (what, number))).is_err() {
                    return;
                }
            }
        };
        // One that hangs is left behind, which no thread of a scope or a pool could be.
        let begun = std::thread::Builder::new().spawn(work);
        begun.map_err(|error| found(format!("starting a thread: {error}"), 0))?;
    }
    drop(sender);
    let mut tally = Tally { there_are: stores.counts().iter().sum(), ..Tally::default() };
    loop {
        match receiver.recv_timeout(HANG) {
            Ok(outcome) => tally.add(outcome.map_err(|(what, number)| found(what, number))?),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let number = at.iter().map(|at| at.load(Ordering::Relaxed)).min().unwrap_or(0);
                return Err(found("it hangs".to_string(), number));
            }
        }
        progress(tally.harms);
    }
    if tally.harms < chosen.len() as u64 {
        return Err(found("a thread of the suite ended early".to_string(), 0));
    }
    Ok(tally)
}
