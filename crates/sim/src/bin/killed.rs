//! The process that `tests/kills.rs` kills.

use std::process::ExitCode;

use kelvin_sim::args::Args;
use kelvin_sim::kills::child;

fn main() -> ExitCode {
    match Args::parse().and_then(|args| child::run(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}
