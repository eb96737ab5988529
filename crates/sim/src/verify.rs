//! The suites of the promises by name, each at any size: what `kelvin verify` runs.
//!
//! A size is a number of what the suite counts. Whatever a suite finds comes with the command that shows it again.
//! Tests: `crates/cli/tests/cli/verify.rs`, and those of each suite.

use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::crash::scenarios::{long, sequences};
use crate::crash::{self, sampling};
use crate::faults::scripts::{Script, random, scripts};
use crate::faults::sites::{Sites, is_shipped};
use crate::faults::{self, Failure, Faults, Victim};
use crate::kills::{self, Killer, Place};
use crate::linear::{self, history};
use crate::model::Moved;
use crate::rot;
use crate::settings::{self, Configuration};
use crate::simulation::{self, Case, shrunk};
use crate::spread::spread;

/// What is to be run.
pub struct Order<'a> {
    /// How much.
    pub budget: u64,
    /// The first seed.
    pub seed: u64,
    /// Where stores on real files lie: on the fast disk and on the slow one.
    pub dirs: [PathBuf; 2],
    /// The command line of the program that is killed ([`kills::child`]).
    pub killed: &'a [OsString],
    /// The one case to run, as a broken promise of the suite named it; else as many as the budget says.
    pub case: Option<&'a str>,
    /// The file that tells of the parts so far of a suite that is run in parts, and of this one once it has ended.
    pub parts: Option<&'a Path>,
    /// Told of each step: what has been done so far.
    pub progress: &'a (dyn Fn(u64) + Sync),
    /// Given what a suite has to show besides its outcome, whichever that is.
    pub show: &'a dyn Fn(Shown),
}

impl Order<'_> {
    /// The first `count` seeds.
    const fn seeds(&self, count: u64) -> Range<u64> {
        self.seed..self.seed.saturating_add(count)
    }
}

/// What a suite has to show besides its outcome.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Figures for machines.
    pub figures: serde_json::Value,
    /// A page of HTML that needs nothing else, if it can be drawn.
    pub page: Option<String>,
}

/// A suite that found nothing wrong.
#[derive(Clone, Debug)]
pub struct Done {
    /// How much was run.
    pub count: u64,
    /// What was met meanwhile.
    pub met: String,
}

/// A broken promise.
#[derive(Clone, Debug)]
pub struct Broken {
    /// Which, where and how.
    pub what: String,
    /// The options of `kelvin verify` that show it again; kills fall at another moment each time.
    pub again: String,
}

type Outcome = Result<Done, Broken>;
/// Says what is wrong with the text of a case.
type CheckCase = fn(&str) -> Result<(), String>;

/// A suite.
pub struct Suite {
    /// Its name.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// What its size counts.
    pub unit: &'static str,
    /// Sizes: small, night, release.
    pub sizes: [u64; 3],
    /// If it can run one case that is given as text: says what is wrong with that.
    pub check_case: Option<CheckCase>,
    /// Runs it.
    pub run: fn(&Order<'_>) -> Outcome,
}

/// Those of this crate. `kelvin-workload` has one more.
pub static SUITES: [Suite; 9] = [
    Suite {
        name: "model",
        about: "random operations under 25 configurations answer as a sorted map does",
        unit: "operations",
        sizes: [150_000, 50_000_000, 1_000_000_000],
        check_case: None,
        run: model,
    },
    Suite {
        name: "metamorphic",
        about: "a list of random operations has the same answers and the same end under each of 25 configurations",
        unit: "lists",
        sizes: [8, 2_000, 5_000],
        check_case: None,
        run: metamorphic,
    },
    Suite {
        name: "crash",
        about: "after a power loss at any moment a prefix of the commits is there, with all that was acknowledged",
        unit: "images",
        sizes: [20_000, 300_000, 1_000_000],
        check_case: None,
        run: crash,
    },
    Suite {
        name: "faults",
        about: "whichever I/O fails, no answer is wrong and nothing acknowledged is lost",
        unit: "faults",
        sizes: [2_000, 100_000, 1_000_000],
        check_case: Some(|text| text.parse::<faults::Case>().map(drop)),
        run: faults,
    },
    Suite {
        name: "simulation",
        about: "with all threads, faults and crashes at once in simulated time, answers are right and nothing acknowledged is lost",
        unit: "seeds",
        sizes: [20, 2_000, 20_000],
        check_case: Some(|text| text.parse::<Case>().map(drop)),
        run: simulation,
    },
    Suite {
        name: "rot",
        about: "whatever bytes of a store rot, no answer is wrong, and what is rescued is right",
        unit: "harms",
        sizes: [20_000, 300_000, 1_000_000],
        check_case: None,
        run: rot,
    },
    Suite {
        name: "linear",
        about: "concurrent calls of each key take effect one after the other",
        unit: "histories",
        sizes: [14, 500, 2_000],
        check_case: None,
        run: linear,
    },
    Suite {
        name: "schedules",
        about: "so they do in any order of the threads, those of the store among them",
        unit: "schedules",
        sizes: [200, 50_000, 1_000_000],
        check_case: None,
        run: schedules,
    },
    Suite {
        name: "kills",
        about: "what a killed process had acknowledged is there",
        unit: "kills",
        sizes: [40, 500, 1_000],
        check_case: None,
        run: kills,
    },
];

/// Operations of one seed under one configuration, at most.
const MODEL_ROUND: u64 = 100_000;
/// Keys of the model.
const MODEL_KEYS: u64 = 150;
/// Operations of a list that is compared.
const LIST_OPERATIONS: u64 = 1_000;

fn model(order: &Order<'_>) -> Outcome {
    let configurations = settings::ALL.len() as u64;
    let round = MODEL_ROUND.min(order.budget.div_ceil(configurations)).max(1);
    let lists = order.budget.div_ceil(round * configurations);
    let again = |seed| format!("model --seed {seed} --budget {}", round * configurations);
    let (moved, _) = compare_lists(order, lists, round, &|runs| runs * round, &again)?;
    Ok(Done { count: lists * round * configurations, met: moved.to_string() })
}

fn metamorphic(order: &Order<'_>) -> Outcome {
    let configurations = settings::ALL.len() as u64;
    let again = |seed| format!("metamorphic --seed {seed} --budget 1");
    let (moved, digest) =
        compare_lists(order, order.budget, LIST_OPERATIONS, &|runs| runs / configurations, &again)?;
    let met = format!(
        "{LIST_OPERATIONS} operations each under {configurations} configurations; digest of all histories {digest:016x}; {moved}"
    );
    Ok(Done { count: order.budget, met })
}

/// Runs so many lists of `operations` under every configuration: what moved, and a digest of all that was answered. `done` says what the suite
/// counts after so many runs, `again` how the list of a seed is run again.
fn compare_lists(
    order: &Order<'_>,
    lists: u64,
    operations: u64,
    done: &(dyn Fn(u64) -> u64 + Sync),
    again: &(dyn Fn(u64) -> String + Sync),
) -> Result<(Moved, u64), Broken> {
    let (runs, progress) = (AtomicU64::new(0), order.progress);
    let work = |seed| {
        let ran = || progress(done(runs.fetch_add(1, Ordering::Relaxed) + 1));
        let one = settings::compare(&settings::ALL, (seed, operations, MODEL_KEYS), ran);
        one.map_err(|mismatch| Broken { what: mismatch.to_string(), again: again(seed) })
    };
    let (mut moved, mut digest) = (Moved::default(), 0_u64);
    spread(order.seeds(lists), work, |one| {
        moved.add(one.moved);
        digest = digest.rotate_left(1) ^ one.digest();
    })?;
    Ok((moved, digest))
}

fn crash(order: &Order<'_>) -> Outcome {
    let sampling = sampling(order.seed, Some(order.budget));
    let scenarios: Vec<_> = sequences(3).chain(long(order.seed)).collect();
    let work = |number: u64| scenarios[usize::try_from(number).unwrap_or(0)].run_caught(sampling);
    let mut tally = crash::Tally::default();
    let outcome = spread(0..scenarios.len() as u64, work, |one| {
        tally.add(one);
        (order.progress)(tally.images);
    });
    let again = format!("crash --seed {} --budget {}", order.seed, order.budget);
    outcome.map_err(|what| Broken { what, again })?;
    let [flushed, promoted, retained] = tally.moved_bytes;
    let met = format!(
        "{} scenarios, {} persistence points, {} of a second loss during recovery; bytes promoted by flush {flushed}, by compaction {promoted}, retained {retained}",
        tally.scenarios, tally.points, tally.in_recovery
    );
    Ok(Done { count: tally.images, met })
}

/// One in so many I/Os of the scripts fails in a round; each round begins with the next one.
const FAULTS_STRIDE: u64 = 64;
/// The same of a random script, which has one round.
const FAULTS_STRIDE_RANDOM: u64 = 16;

fn faults(order: &Order<'_>) -> Outcome {
    let sites = Arc::default();
    let mut tally = faults::Tally::default();
    let outcome = match order.case {
        Some(text) => one_fault(text, &sites, &mut tally),
        None => all_faults(order, &sites, &mut tally),
    };
    let hit = sites.hit();
    let shipped = hit.iter().filter(|((file, _), _)| is_shipped(file));
    let lines: Vec<_> =
        shipped.map(|((file, line), op)| serde_json::json!([file, line, format!("{op:?}")])).collect();
    (order.show)(Shown { figures: serde_json::json!({ "lines": lines }), page: None });
    outcome?;
    let met = format!("{} runs; at {} lines that ask for I/O", tally.runs, sites.calls());
    Ok(Done { count: tally.faults, met })
}

fn one_fault(text: &str, sites: &Arc<Sites>, tally: &mut faults::Tally) -> Result<(), Broken> {
    let broken = |what| Broken { what, again: format!("faults --case {text}") };
    let case: faults::Case = text.parse().map_err(broken)?;
    tally.add(case.run(sites).map_err(broken)?);
    Ok(())
}

/// Every I/O of the scripts in every manner, then random scripts.
fn all_faults(order: &Order<'_>, sites: &Arc<Sites>, tally: &mut faults::Tally) -> Result<(), Broken> {
    let counting = |what| Broken { what, again: format!("faults --seed {} --budget 1", order.seed) };
    let scripts = scripts();
    let counted: Vec<Faults<'_>> = scripts
        .iter()
        .map(|script| Faults::new(script, sites))
        .collect::<Result<_, _>>()
        .map_err(counting)?;
    for round in 0..FAULTS_STRIDE {
        for (number, script) in counted.iter().enumerate() {
            let first = order.seed + round + number as u64 * 9;
            if !faults_of(script, [first, FAULTS_STRIDE], order, tally)? {
                return Ok(());
            }
        }
    }
    for seed in order.seed.. {
        let script = random(seed);
        if !faults_of(&self::counted(&script, sites)?, [seed, FAULTS_STRIDE_RANDOM], order, tally)? {
            break;
        }
    }
    Ok(())
}

/// The script, whose I/Os are counted in a run without a fault.
fn counted<'a>(script: &'a Script, sites: &'a Arc<Sites>) -> Result<Faults<'a>, Broken> {
    // Each case begins with such a run.
    let again = || format!("faults --case {},Fast,Once,0", script.name);
    Faults::new(script, sites).map_err(|what| Broken { what, again: again() })
}

/// One of so many I/Os of a script in every manner; false once the order is done.
fn faults_of(
    script: &Faults<'_>,
    [first, stride]: [u64; 2],
    order: &Order<'_>,
    tally: &mut faults::Tally,
) -> Result<bool, Broken> {
    for (kind, failure) in Failure::ALL.into_iter().enumerate() {
        for victim in Victim::ALL {
            if tally.faults >= order.budget {
                return Ok(false);
            }
            let first = (first + kind as u64 * 2) % stride;
            let one = script.every(victim, failure, first, stride);
            tally.add(one.map_err(|(case, what)| Broken { what, again: format!("faults --case {case}") })?);
            (order.progress)(tally.faults);
        }
    }
    Ok(true)
}

/// Steps of a simulation.
const SIMULATION_STEPS: u64 = 20_000;

fn simulation(order: &Order<'_>) -> Outcome {
    let broken = |case: &Case, what: String| Broken { what, again: format!("simulation --case {case}") };
    if let Some(text) = order.case {
        let case: Case =
            text.parse().map_err(|what| Broken { what, again: "simulation --case CASE".to_owned() })?;
        let tally = simulation::run(&case).map_err(|failure| broken(&case, failure.what))?;
        return Ok(Done { count: 1, met: format!("{tally}; trace {:016x}", tally.trace) });
    }
    let mut tally = simulation::Tally::default();
    let work = |seed| {
        let case = Case::new(seed, SIMULATION_STEPS);
        simulation::run(&case).map_err(|failure| (case, failure))
    };
    let outcome = spread(order.seeds(order.budget), work, |one| {
        tally.add(one);
        (order.progress)(tally.cases);
    });
    outcome.map_err(|(case, failure)| {
        let smaller = shrunk(case.clone(), failure.turns, |case| simulation::run(case).is_err());
        // It may fail in another way then.
        let what = simulation::run(&smaller).map_or_else(|failure| failure.what, |_| failure.what.clone());
        broken(&smaller, format!("{what} (before it was made smaller: {case}: {})", failure.what))
    })?;
    Ok(Done { count: tally.cases, met: tally.to_string() })
}

fn rot(order: &Order<'_>) -> Outcome {
    let outcome = rot::run(order.budget, order.seed, order.progress);
    let tally = outcome.map_err(|rot::Found { what, number }| Broken {
        what,
        again: format!("rot --seed {number} --budget 1"),
    })?;
    Ok(Done { count: tally.harms, met: tally.to_string() })
}

/// What clients of a history ask for.
const HISTORY_OPERATIONS: u64 = 10_000;

fn linear(order: &Order<'_>) -> Outcome {
    let threaded: Vec<&Configuration> = settings::ALL.iter().filter(|one| one.threads).collect();
    let mut tally = history::Tally::default();
    // One after the other: the threads of a history have the processors to themselves.
    for seed in order.seeds(order.budget) {
        let configuration = threaded[usize::try_from(seed % threaded.len() as u64).unwrap_or(0)];
        let one = history::run(configuration, seed, HISTORY_OPERATIONS);
        tally.add(one.map_err(|what| Broken { what, again: format!("linear --seed {seed} --budget 1") })?);
        (order.progress)(tally.histories);
    }
    Ok(Done { count: tally.histories, met: tally.to_string() })
}

fn schedules(order: &Order<'_>) -> Outcome {
    let mut tally = history::Tally::default();
    let work = |seed| {
        let one = linear::schedules::run(seed);
        one.map_err(|what| Broken { what, again: format!("schedules --seed {seed} --budget 1") })
    };
    spread(order.seeds(order.budget), work, |one| {
        tally.add(one);
        (order.progress)(tally.histories);
    })?;
    Ok(Done { count: tally.histories, met: tally.to_string() })
}

/// Kills of one store.
const KILLS_EACH: u64 = 10;

fn kills(order: &Order<'_>) -> Outcome {
    let mut tally = kills::Tally::default();
    for seed in order.seed.. {
        if tally.kills >= order.budget {
            break;
        }
        let [fast, slow] = order.dirs.each_ref().map(|dir| dir.join(format!("store-{seed}")));
        let variant = usize::try_from(seed % 1_000).unwrap_or(0);
        let place = Place { fast, slow, variant };
        let mut killer = Killer::new(order.killed, place.clone(), seed);
        let count = KILLS_EACH.min(order.budget - tally.kills);
        for _ in 0..count {
            killer.kill().map_err(|what| Broken {
                what,
                again: format!("kills --seed {seed} --budget {KILLS_EACH}"),
            })?;
            (order.progress)(tally.kills + killer.tally.kills);
        }
        tally.add(killer.tally);
        place.remove();
    }
    Ok(Done { count: tally.kills, met: tally.to_string() })
}
