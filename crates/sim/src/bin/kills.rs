//! Kills a writing process on real files: `kills --budget KILLS --seed S [--fast DIR --slow DIR]`.
//!
//! Stores of all variants in turn, each killed fifty times. Without directories they lie in a temporary one. Ends with 1 at the first broken
//! promise, whose store stays. With `--life` it is the process that is killed.

use std::path::PathBuf;
use std::process::ExitCode;

use kelvin_sim::args::Args;
use kelvin_sim::kills::{Killer, Place, Tally, child};

/// Kills of one store.
const KILLS_EACH: u64 = 50;

fn main() -> ExitCode {
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}

fn work() -> Result<(), String> {
    let args = Args::parse()?;
    if args.text("--life").is_some() {
        return child::run(&args);
    }
    let budget = args.number("--budget", 100)?;
    let seed = args.number("--seed", 1)?;
    let program = std::env::current_exe().map_err(|error| format!("which program is this: {error}"))?;
    let temporary = std::env::temp_dir().join(format!("kelvin-kills-{}", std::process::id()));
    let dir = |name: &str| args.text(name).map_or_else(|| temporary.join(&name[2..]), PathBuf::from);
    let (fast, slow) = (dir("--fast"), dir("--slow"));
    let mut all = Tally::default();
    let mut store = 0;
    while all.kills < budget {
        let name = format!("store-{store}");
        let variant = usize::try_from(store).unwrap_or(0);
        let place = Place { fast: fast.join(&name), slow: slow.join(&name), variant };
        let mut killer = Killer::new(&program, place.clone(), seed + store);
        let kills = KILLS_EACH.min(budget - all.kills);
        (0..kills).try_for_each(|_| killer.kill())?;
        all.add(killer.tally);
        println!("{all:?}");
        place.remove();
        store += 1;
    }
    println!("every acknowledged write was there");
    Ok(())
}
