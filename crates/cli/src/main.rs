//! The `kelvin` program: parses the command line, runs one command, and ends with a documented exit code.
//!
//! `args` says what can be asked, `commands` does it, `exit` says how it ended. Everything that touches data goes
//! through the library `kelvin`. Tests: `crates/cli/tests`.

mod args;
mod commands;
mod demo;
mod events;
mod exit;
mod files;
mod output;
mod progress;
mod store;

use std::process::ExitCode;

use clap::Parser;

/// Heaps that the allocator keeps apart for threads that meet: each holds freed memory for itself.
#[cfg(target_env = "gnu")]
const ARENAS_MAX: libc::c_int = 2;
/// Pieces from this size on come from the system and go back to it when they are freed. Said, it stays so: unsaid, the
/// allocator raises it to the largest piece freed so far.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: libc::c_int = 128 << 10;

/// Has the allocator keep little of what is freed: the limit on memory is one on what is resident.
fn bound_allocator() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [
        (libc::M_ARENA_MAX, ARENAS_MAX),
        (libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN),
        (libc::M_TRIM_THRESHOLD, MAPPED_BYTES_MIN),
    ] {
        // SAFETY: parameters of the allocator, set before there is a second thread. One that it does not know stays as it is.
        let _taken = unsafe { libc::mallopt(parameter, value) };
    }
}

fn main() -> ExitCode {
    bound_allocator();
    let cli = args::Cli::parse();
    let json = cli.command.wants_json();
    match commands::run(cli.command) {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(json).into(),
    }
}
