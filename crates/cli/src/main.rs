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

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// mimalloc's option `purge_delay`, which its Rust bindings do not name.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

fn main() -> ExitCode {
    // What is freed stays resident so many milliseconds, not a second: the limit on memory is one on what is resident.
    // SAFETY: an option of the allocator that may be set at any time.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, 10) };
    let cli = args::Cli::parse();
    let json = cli.command.wants_json();
    match commands::run(cli.command) {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(json).into(),
    }
}
