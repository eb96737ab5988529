//! The suites of the promises by name, each at any size: what `kelvin verify` runs.
//!
//! A size is a number of what the suite counts. Whatever a suite finds comes with the command that shows it again.
//! Tests: `crates/cli/tests/cli/verify.rs`, and those of each suite.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::crash::scenarios::{long, sequences};
use crate::crash::{self, sampling};
use crate::faults::{Failure, Victim, every_io_fails, scripts};
use crate::kills::{self, Killer, Place};
use crate::linear::{self, history};
use crate::model::Moved;
use crate::rot;
use crate::settings::{self, Configuration};
use crate::simulation::{self, Case, shrunk};

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
    /// Told of each step: what has been done so far.
    pub progress: &'a (dyn Fn(u64) + Sync),
    /// Given what a suite has to show besides its outcome, whichever that is.
    pub show: &'a dyn Fn(Shown),
}

/// What a suite has to show besides its outcome.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Figures for machines.
    pub figures: serde_json::Value,
    /// A page of HTML that needs nothing else.
    pub page: String,
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
pub static SUITES: [Suite; 8] = [
    Suite {
        name: "model",
        about: "random operations under 25 configurations answer as a sorted map does",
        unit: "operations",
        sizes: [150_000, 50_000_000, 1_000_000_000],
        check_case: None,
        run: model,
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
        unit: "runs",
        sizes: [200, 20_000, 1_000_000],
        check_case: None,
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

fn model(order: &Order<'_>) -> Outcome {
    let configurations = settings::ALL.len() as u64;
    let round = MODEL_ROUND.min(order.budget.div_ceil(configurations)).max(1);
    let (mut done, mut moved) = (0, Moved::default());
    for seed in order.seed.. {
        for configuration in &settings::ALL {
            if done >= order.budget {
                return Ok(Done { count: done, met: moved.to_string() });
            }
            let one = settings::run(configuration, seed, round, MODEL_KEYS).map_err(|mismatch| Broken {
                what: mismatch.to_string(),
                again: format!("model --seed {seed} --budget {}", round * configurations),
            })?;
            moved.add(one);
            done += round;
            (order.progress)(done);
        }
    }
    Ok(Done { count: done, met: moved.to_string() })
}

/// Threads that open images.
const CRASH_THREADS: usize = 2;

fn crash(order: &Order<'_>) -> Outcome {
    let sampling = sampling(order.seed, Some(order.budget));
    let scenarios: Vec<_> = sequences(3).chain(long(order.seed)).collect();
    let tally = parking_lot::Mutex::new(crash::Tally::default());
    let again = format!("crash --seed {} --budget {}", order.seed, order.budget);
    let work = |first: usize| {
        scenarios.iter().skip(first).step_by(CRASH_THREADS).try_for_each(|scenario| {
            let one = scenario.run_caught(sampling).map_err(|what| Broken { what, again: again.clone() })?;
            let mut tally = tally.lock();
            tally.add(one);
            (order.progress)(tally.images);
            Ok(())
        })
    };
    std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = (0..CRASH_THREADS).map(|first| scope.spawn(move || work(first))).collect();
        let lost = || Broken { what: "a thread of the suite panicked".to_owned(), again: again.clone() };
        workers.into_iter().try_for_each(|one| one.join().unwrap_or_else(|_| Err(lost())))
    })?;
    let tally = tally.into_inner();
    let [flushed, promoted, retained] = tally.moved_bytes;
    let met = format!(
        "{} scenarios, {} persistence points; bytes promoted by flush {flushed}, by compaction {promoted}, retained {retained}",
        tally.scenarios, tally.points
    );
    Ok(Done { count: tally.images, met })
}

/// One in so many I/Os fails in a round; each round begins with the next one.
const FAULTS_STRIDE: u64 = 64;

fn faults(order: &Order<'_>) -> Outcome {
    let scripts = scripts();
    let mut done = 0;
    for round in 0..FAULTS_STRIDE {
        for (number, script) in scripts.iter().enumerate() {
            for (kind, failure) in Failure::ALL.into_iter().enumerate() {
                for victim in [Victim::Fast, Victim::Slow] {
                    if done >= order.budget {
                        return Ok(Done { count: done, met: format!("{} scripts", scripts.len()) });
                    }
                    let offset = order.seed + round + (number * 9 + kind * 2) as u64;
                    done += every_io_fails(script, victim, failure, FAULTS_STRIDE, offset % FAULTS_STRIDE)
                        .map_err(|what| Broken {
                            what,
                            again: format!("faults --seed {} --budget {}", order.seed, order.budget),
                        })?;
                    (order.progress)(done);
                }
            }
        }
    }
    Ok(Done { count: done, met: format!("{} scripts, every I/O of them in every manner", scripts.len()) })
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
    for seed in order.seed..order.seed + order.budget {
        let case = Case::new(seed, SIMULATION_STEPS);
        let one = simulation::run(&case).map_err(|failure| {
            let smaller = shrunk(case.clone(), failure.turns, |case| simulation::run(case).is_err());
            // It may fail in another way then.
            let what =
                simulation::run(&smaller).map_or_else(|failure| failure.what, |_| failure.what.clone());
            broken(&smaller, format!("{what} (before it was made smaller: {case}: {})", failure.what))
        })?;
        tally.add(one);
        (order.progress)(tally.cases);
    }
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
    histories(order, "linear", &|seed| {
        let configuration = threaded[usize::try_from(seed % threaded.len() as u64).unwrap_or(0)];
        history::run(configuration, seed, HISTORY_OPERATIONS)
    })
}

fn schedules(order: &Order<'_>) -> Outcome {
    histories(order, "schedules", &linear::schedules::run)
}

/// Histories, one for each seed.
fn histories(order: &Order<'_>, suite: &str, run: &dyn Fn(u64) -> Result<history::Tally, String>) -> Outcome {
    let mut tally = history::Tally::default();
    for seed in order.seed..order.seed + order.budget {
        let one =
            run(seed).map_err(|what| Broken { what, again: format!("{suite} --seed {seed} --budget 1") })?;
        tally.add(one);
        (order.progress)(tally.histories);
    }
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
