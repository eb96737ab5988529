//! Linearizability of concurrent histories: `linear --budget HISTORIES --seed S --operations N`.
//!
//! Each history is of one configuration that has threads, all of them in turn. Ends with 1 at the first that has no order.

use std::process::ExitCode;

use kelvin_sim::args::Args;
use kelvin_sim::linear::history::{Tally, run};
use kelvin_sim::settings::ALL;

fn main() -> ExitCode {
    match work() {
        Ok(tally) => {
            println!("{tally:?}: every one has an order");
            ExitCode::SUCCESS
        }
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}

fn work() -> Result<Tally, String> {
    let args = Args::parse()?;
    let budget = args.number("--budget", 50)?;
    let operations = args.number("--operations", 10_000)?;
    let first = args.number("--seed", 1)?;
    let mut tally = Tally::default();
    let configurations = ALL.iter().filter(|one| one.threads).cycle();
    for (seed, configuration) in (first..first + budget).zip(configurations) {
        tally.add(run(configuration, seed, operations)?);
        if tally.histories % 50 == 0 {
            println!("{tally:?}");
        }
    }
    Ok(tally)
}
