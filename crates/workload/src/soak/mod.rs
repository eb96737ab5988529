//! The soak: a store on real disks under mixed load for hours, with outages, full disks, checkpoints and openings, every answer verified, and
//! what it takes over time (RELIABILITY T19).
//!
//! [`setup`] says how large all is, [`world`] is what the threads share; clients (`client.rs`) read and write keys of their own and know what each must
//! hold ([`keys`]), the chaos (`chaos.rs`) goes through the [`phase`]s, the calling thread takes a [`sample`] now and then and watches that nobody hangs. At
//! the end everything is read once more, and [`verdict`]s are drawn from the samples. It is the suite `soak` of `kelvin verify`.
//! Tests: `tests/soak.rs` of this crate.

mod chaos;
mod client;
mod held;
pub mod keys;
pub mod meter;
mod page;
pub mod parts;
pub mod phase;
pub mod sample;
pub mod setup;
pub mod verdict;
pub mod world;
mod writes;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kelvin::{Error, Result};
use kelvin_base::sync::{self, Mutex};
use kelvin_sim::verify::{Broken, Done, Order, Shown, Suite};
use serde_json::{Value, json};

use chaos::Chaos;
use client::Client;
use keys::Keys;
use meter::Kind;
use parts::Parts;
use phase::Span;
use sample::{Sample, Sampler};
use setup::{CLIENTS, Setup};
use verdict::{Verdict, verdicts};
use world::World;

use crate::dirs;

/// Whatever takes longer than this hangs.
const HANGS_AFTER: Duration = Duration::from_secs(300);

/// The suite, of so many seconds.
pub static SUITE: Suite = Suite {
    name: "soak",
    about: "through outages and full disks no answer is wrong, nothing is left over and no limit is passed",
    unit: "seconds",
    sizes: [20, 3_600, 21_600],
    check_case: None,
    run,
};

fn run(order: &Order<'_>) -> std::result::Result<Done, Broken> {
    let again = format!("soak --seed {} --budget {}", order.seed, order.budget);
    let broken = |what: String| Broken { what, again: again.clone() };
    let soaked = run_part(order).map_err(|error| broken(error.to_string()))?;
    let page = page::page(&soaked).map_err(|error| broken(error.to_string()))?;
    (order.show)(Shown { figures: soaked.to_json(), page: Some(page) });
    match soaked.broken() {
        Some(what) => Err(broken(what)),
        None => Ok(Done { count: soaked.seconds, met: soaked.text() }),
    }
}

/// Runs the whole of a soak, or its next part.
fn run_part(order: &Order<'_>) -> Result<Soaked> {
    let parts = order.parts.map(Parts::read).transpose()?.flatten();
    let setup = match &parts {
        Some(parts) => parts.next(order.budget, order.seed)?,
        None => Setup::of(order.budget, order.seed, order.dirs.each_ref().map(|dir| dir.join("soak"))),
    };
    let world = World::new(setup, parts.as_ref())?;
    // Not before the store is open: where it cannot be opened, the file goes on telling of it.
    if let (Some(file), Some(parts)) = (order.parts, &parts) {
        parts.at_work().write(file)?;
    }
    let soaked = soak_in(&world, parts, order.progress)?;
    if let Some(file) = order.parts.filter(|_| soaked.broken().is_none()) {
        Parts::of(&soaked).write(file)?;
    }
    Ok(soaked)
}

/// What keeps a soak of `budget` seconds and `seed` from going on with that of `file`, or from beginning there.
///
/// # Errors
/// As [`Parts::read`] and [`Parts::next`] tell them; `Io` if the file cannot be made.
pub fn check_parts(file: &Path, budget: u64, seed: u64) -> Result<()> {
    match Parts::read(file)? {
        Some(parts) => parts.next(budget, seed).map(drop),
        None => dirs::write_whole(file, "").and_then(|()| dirs::remove_file(file)),
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Soaked {
    /// What was run.
    pub setup: Setup,
    /// For how long, after the load; all parts together.
    pub seconds: u64,
    /// The first promise that an answer, or a disk, broke.
    pub failure: Option<String>,
    /// What was done how often.
    pub done: Vec<(&'static str, u64)>,
    /// Reads and writes that were told to come again later.
    pub refused: [u64; 2],
    /// What was done to the store when.
    pub spans: Vec<Span>,
    /// Over time.
    pub samples: Vec<Sample>,
    /// What the samples say.
    pub verdicts: Vec<Verdict>,
    /// What the clients hold besides the store, bytes.
    pub own_bytes: u64,
    /// When it ended, since it began, without the time between parts.
    pub elapsed: Duration,
    /// When it began, milliseconds since 1970.
    pub unix_start_ms: u64,
    /// What the keys of each client hold; none if a promise was broken: who hangs has not let go of its own.
    pub keys: Vec<Keys>,
}

/// A verdict in a word.
const fn word(holds: Option<bool>) -> &'static str {
    match holds {
        Some(true) => "holds",
        Some(false) => "BROKEN",
        None => "not judged",
    }
}

impl Soaked {
    /// The promise that was broken, if one was.
    #[must_use]
    pub fn broken(&self) -> Option<String> {
        let verdict = || {
            let one = self.verdicts.iter().find(|verdict| verdict.holds == Some(false))?;
            Some(format!("{}: {}", one.name, one.says))
        };
        self.failure.clone().or_else(verdict)
    }

    /// How often `kind` was done.
    #[must_use]
    pub fn count_of(&self, kind: Kind) -> u64 {
        self.done.iter().find(|(name, _)| *name == kind.name()).map_or(0, |(_, count)| *count)
    }

    fn setting(&self) -> String {
        let setup = &self.setup;
        let megabytes = |bytes: u64| format!("{:.0} MB", bytes as f64 / 1e6);
        let parts = match setup.part {
            0 => String::new(),
            before => format!(", in {} parts", before + 1),
        };
        format!(
            "{CLIENTS} clients with {} keys each, {} of the fast disk, {} of memory, seed {}; {} s after the load{parts}",
            setup.keys,
            megabytes(setup.fast_capacity),
            megabytes(setup.memory),
            setup.seed,
            self.seconds
        )
    }

    /// For people, in a few lines.
    fn text(&self) -> String {
        let all: u64 = self.done.iter().map(|(_, count)| count).sum();
        let [reads, writes] = self.refused;
        let mut lines = vec![format!(
            "{all} operations, {reads} reads and {writes} writes told to come again later; {}",
            self.setting()
        )];
        let done: Vec<String> = self.done.iter().map(|(name, count)| format!("{name} {count}")).collect();
        lines.push(done.join(", "));
        lines.extend(
            self.verdicts.iter().map(|one| format!("{}: {}, {}", one.name, word(one.holds), one.says)),
        );
        lines.join("\n  ")
    }

    /// For machines, all samples among it.
    fn to_json(&self) -> Value {
        let verdict = |one: &Verdict| json!({ "name": one.name, "holds": one.holds, "says": one.says });
        let span = |span: &Span| {
            let to = span.to.map(|to| to.as_secs_f64());
            json!({ "phase": span.phase.name(), "from_s": span.from.as_secs_f64(), "to_s": to })
        };
        json!({
            "clients": CLIENTS,
            "keys_each": self.setup.keys,
            "fast_capacity": self.setup.fast_capacity,
            "memory": self.setup.memory,
            "own_bytes": self.own_bytes,
            "parts": self.setup.part + 1,
            "done": self.done.iter().map(|(name, count)| ((*name).to_owned(), json!(count))).collect::<serde_json::Map<_, _>>(),
            "refused_reads": self.refused[0],
            "refused_writes": self.refused[1],
            "verdicts": self.verdicts.iter().map(verdict).collect::<Vec<_>>(),
            "phases": self.spans.iter().map(span).collect::<Vec<_>>(),
            "samples": self.samples.iter().map(Sample::to_json).collect::<Vec<_>>(),
        })
    }
}

/// Runs a soak; `progress` is told of the seconds since the data was loaded.
///
/// # Errors
/// What keeps it from being begun. A broken promise is no error: [`Soaked::broken`].
pub fn soak(setup: Setup, progress: &(dyn Fn(u64) + Sync)) -> Result<Soaked> {
    soak_in(&World::new(setup, None)?, None, progress)
}

/// Runs a soak in `world`, after `parts`.
fn soak_in(world: &Arc<World>, parts: Option<Parts>, progress: &(dyn Fn(u64) + Sync)) -> Result<Soaked> {
    if parts.is_some()
        && let Err(what) = Chaos::new(world).is_as_known()
    {
        world.fail(format!("in what the part before left {what}"));
    }
    let mut threads = Vec::new();
    let failed = |error| Error::io("cannot start a thread", Path::new("soak"), error);
    for me in 0..CLIENTS {
        let client = Client::new(world, me);
        threads.push(sync::spawn(format!("client {me}"), move || client.run()).map_err(failed)?);
    }
    let chaos = Chaos::new(world);
    threads.push(sync::spawn("chaos".to_owned(), move || chaos.run()).map_err(failed)?);
    let (mut samples, mut spans) = (Vec::new(), Vec::new());
    let (mut done_before, mut refused_before) = (Vec::new(), [0; 2]);
    if let Some(parts) = parts {
        (samples, spans) = (parts.samples, parts.spans);
        (done_before, refused_before) = (parts.done, parts.refused);
    }
    let mut sampler = Sampler::new(world.now(), samples);
    // Of this part, since all data was there.
    let seconds = || world.loaded_at.get().map(|at| world.now().saturating_sub(*at).as_secs());
    let mut hangs = None;
    while !world.is_over() {
        let next = world.now() + world.setup.sample_every;
        world.wait_until(next, || false);
        seconds().into_iter().for_each(progress);
        sampler.take(world)?;
        hangs = hanging(world);
        if let Some(what) = &hangs {
            world.fail(what.clone());
        }
    }
    let seconds = seconds().unwrap_or(0);
    spans.extend(world.phases.all(world.now()));
    // Who hangs is not waited for: it ends with the process.
    if hangs.is_none() {
        let ended: Vec<bool> = threads.into_iter().map(|thread| thread.join().is_ok()).collect();
        if ended.contains(&false) {
            world.fail("a thread panicked".to_owned());
        }
        finish(world);
    }
    let own_bytes = own_bytes(world);
    let count = |kind: &Kind| {
        let before = done_before.iter().find(|(name, _)| name == kind.name()).map_or(0, |(_, count)| *count);
        (kind.name(), before + world.meters.iter().map(|meter| meter.count_of(*kind)).sum::<u64>())
    };
    let refused = [0, 1]
        .map(|at| refused_before[at] + world.meters.iter().map(|meter| meter.refusals()[at]).sum::<u64>());
    let failure = world.failure();
    let take = |keys: &Mutex<Keys>| std::mem::replace(&mut *keys.lock(), Keys::new(0));
    let keys = if failure.is_none() { world.keys.iter().map(take).collect() } else { Vec::new() };
    Ok(Soaked {
        seconds: world.setup.seconds_before + seconds,
        failure,
        done: Kind::ALL.iter().map(count).collect(),
        refused,
        spans,
        verdicts: verdicts(&world.setup, &sampler.samples, own_bytes),
        samples: sampler.samples,
        own_bytes,
        elapsed: world.now(),
        unix_start_ms: world.unix_start_ms,
        keys,
        setup: world.setup.clone(),
    })
}

/// If all went well, everything is read once more.
fn finish(world: &Arc<World>) {
    world.disks[1].release();
    let outcome = if world.failure().is_none() { Chaos::new(world).finish() } else { world.close() };
    if let Err(what) = outcome {
        world.fail(what);
    }
}

/// What has taken too long, if anything.
fn hanging(world: &World) -> Option<String> {
    let now = world.now();
    world.meters.iter().enumerate().find_map(|(client, meter)| {
        let (kind, since) = meter.is_at()?;
        let spent = now.saturating_sub(since);
        (spent > HANGS_AFTER)
            .then(|| format!("{} of thread {client} hangs: for {} s so far", kind.name(), spent.as_secs()))
    })
}

/// What a client has besides what it knows: a stack, and two iterators with a block of each level. The memtable that one of them keeps is more.
const CLIENT_BYTES: u64 = 512 << 10;

/// What the clients hold, which is no memory of the store's (decision 3).
fn own_bytes(world: &World) -> u64 {
    let known = u64::from(world.setup.keys) * size_of::<keys::Known>() as u64;
    let each = CLIENT_BYTES + world.memtable_bytes + known;
    CLIENTS as u64 * each + world.maker.bytes()
}
