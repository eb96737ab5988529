//! One file for each command, or for a few that belong together. Each answers an exit code or a failure.

mod bench;
mod check;
mod checkpoint;
mod completions;
mod delete;
mod device;
mod dump;
mod explain;
mod get;
pub mod levels;
mod load;
mod paper;
mod put;
mod range;
mod salvage;
mod scan;
mod sim;
mod stats;
mod trace;
mod verify;

use crate::args::Command;
use crate::exit::Outcome;

/// Runs `command`.
///
/// # Errors
/// Whatever kept it from being done.
pub fn run(command: Command) -> Outcome {
    match command {
        Command::Get(args) => get::run(&args),
        Command::Put(args) => put::run(&args),
        Command::Delete(args) => delete::run(&args),
        Command::Scan(args) => scan::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Dump(args) => dump::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Levels(args) => levels::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Salvage(args) => salvage::run(&args),
        Command::Checkpoint(args) => checkpoint::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Demo(args) => crate::demo::run(&args),
        Command::Completions(args) => completions::run(&args),
    }
}
