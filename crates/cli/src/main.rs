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

#[cfg(target_env = "gnu")]
use std::os::unix::process::CommandExt;
#[cfg(target_env = "gnu")]
use std::process::Command;
use std::process::ExitCode;

use clap::Parser;

/// Heaps that the allocator keeps apart for threads that meet: each holds freed memory for itself.
#[cfg(target_env = "gnu")]
const ARENAS_MAX: libc::c_int = 2;
/// Pieces from this size on come from the system and go back to it when they are freed. Said, it stays so: unsaid, the
/// allocator raises it to the largest piece freed so far.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: libc::c_int = 128 << 10;

/// What a program tells the allocator in the environment that it begins with, since nowhere else it can.
#[cfg(target_env = "gnu")]
const TUNABLES: &str = "GLIBC_TUNABLES";
/// Freed pieces that each thread keeps of each size: none. They would be up to 236 kB a thread.
#[cfg(target_env = "gnu")]
const NOTHING_KEPT: [&str; 2] = ["glibc.malloc.tcache_count", "0"];
/// Memory by the large page: the disks of a simulation are gigabytes that are read here and there.
#[cfg(target_env = "gnu")]
const LARGE_PAGES: [&str; 2] = ["glibc.malloc.hugetlb", "1"];

/// Has the allocator keep little of what is freed: the limit on memory is one on what is resident (decision 3).
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

/// Begins once more, as the same process, with `tunable`, unless the environment says it already.
#[cfg(target_env = "gnu")]
fn begin_with([tunable, value]: [&str; 2]) {
    let given = std::env::var_os(TUNABLES).unwrap_or_default();
    if given.to_string_lossy().contains(tunable) {
        return;
    }
    // Ahead of the others: glibc cuts the text where it read it, and what is seen of it may end there.
    let mut tunables = std::ffi::OsString::from(format!("{tunable}={value}"));
    if !given.is_empty() {
        tunables.push(":");
        tunables.push(given);
    }
    let mut args = std::env::args_os();
    let (Ok(program), Some(called)) = (std::env::current_exe(), args.next()) else { return };
    // Returns only if it failed: then more stays resident, and all else is the same.
    let _failed = Command::new(program).arg0(called).args(args).env(TUNABLES, tunables).exec();
}

fn main() -> ExitCode {
    let cli = args::Cli::parse();
    // What a simulation holds is its disks, and its limit on memory is one on what the store counts.
    let is_simulated = matches!(cli.command, args::Command::Sim(_));
    #[cfg(target_env = "gnu")]
    begin_with(if is_simulated { LARGE_PAGES } else { NOTHING_KEPT });
    if !is_simulated {
        bound_allocator();
    }
    let json = cli.command.wants_json();
    match commands::run(cli.command) {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(json).into(),
    }
}
