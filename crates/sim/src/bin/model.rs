//! The model test at any size: `model --budget OPERATIONS --seed S --keys N`.
//!
//! The budget is spread over all configurations, a seed each 100 000 operations. Ends with 1 at the first difference.

use std::process::ExitCode;

use kelvin_sim::args::Args;
use kelvin_sim::model::Moved;
use kelvin_sim::settings::{ALL, run};

/// Operations of one seed.
const ROUND: u64 = 100_000;

fn main() -> ExitCode {
    match work() {
        Ok(done) => {
            println!("{done} operations under {} configurations: every answer as the model's", ALL.len());
            ExitCode::SUCCESS
        }
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}

fn work() -> Result<u64, String> {
    let args = Args::parse()?;
    let budget = args.number("--budget", 2_000_000)?;
    let keys = args.number("--keys", 150)?;
    let mut seed = args.number("--seed", 1)?;
    let (mut done, mut moved) = (0, Moved::default());
    while done < budget {
        for configuration in &ALL {
            let count = ROUND.min(budget.saturating_sub(done).max(1));
            moved.add(run(configuration, seed, count, keys).map_err(|mismatch| mismatch.to_string())?);
            done += count;
            if done >= budget {
                break;
            }
        }
        println!("{done} of {budget} operations, seed {seed}, {moved:?}");
        seed += 1;
    }
    Ok(done)
}
