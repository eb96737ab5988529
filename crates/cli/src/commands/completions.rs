//! `kelvin completions`: a completion script for a shell.

use clap::CommandFactory;

use crate::args::Cli;
use crate::args::bench::Completions;
use crate::exit::{Exit, Outcome};

/// Prints the script.
///
/// # Errors
/// The output's.
pub fn run(args: &Completions) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "kelvin", &mut script);
    crate::output::print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Ok)
}
