//! Cuts the power at persistence points and opens what is left: `crash --budget small|night|IMAGES --seed S`.
//!
//! `night` opens every point of every sequence of at most three operations and of the long scenarios; a number spreads
//! about so many images over them; `small` is 20 000. Ends with 1 at the first broken promise.

use std::process::ExitCode;

use kelvin_sim::args::Args;
use kelvin_sim::crash::Tally;
use kelvin_sim::crash::scenarios::{long, sequences};

fn main() -> ExitCode {
    match run() {
        Ok(tally) => {
            println!(
                "{} scenarios, {} persistence points, {} images: all well",
                tally.scenarios, tally.points, tally.images
            );
            let [flushed, promoted, retained] = tally.moved_bytes;
            println!("bytes promoted by flush {flushed}, by compaction {promoted}, retained {retained}");
            ExitCode::SUCCESS
        }
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<Tally, String> {
    let args = Args::parse()?;
    let seed = args.number("--seed", 1)?;
    let go_on = args.number("--failures", 1)?;
    let budget = match args.text("--budget").unwrap_or("small") {
        "small" => Some(20_000),
        "night" => None,
        number => Some(number.parse().map_err(|_| format!("--budget {number:?} is no number"))?),
    };
    let sampling = kelvin_sim::crash::sampling(seed, budget);
    println!("sampling {sampling:?}");
    let mut tally = Tally::default();
    let mut failures = 0;
    let threads = 2;
    let scenarios: Vec<_> = sequences(3).chain(long(seed)).collect();
    let parts = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|first| {
                let mine = scenarios.iter().skip(first).step_by(threads);
                scope.spawn(move || mine.map(|scenario| scenario.run_caught(sampling)).collect::<Vec<_>>())
            })
            .collect();
        workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>()
    });
    for outcome in parts.into_iter().flat_map(|part| part.unwrap_or_default()) {
        match outcome {
            Ok(one) => tally.add(one),
            Err(what) => {
                failures += 1;
                if failures <= go_on {
                    eprintln!("{what}\n");
                }
            }
        }
    }
    if failures > 0 { Err(format!("{failures} scenarios broke a promise; {tally:?}")) } else { Ok(tally) }
}
