//! Project chores: `cargo run -p xtask -- tidy` checks the house rules that no lint checks, and
//! `cargo run -p xtask -- policy` the licences and bans of `deny.toml` over the dependencies in use. Both run in the tests
//! too, so that `cargo test --workspace` enforces them.
//!
//! `cargo run -p xtask -- miri` runs the tests of `unsafe` code under Miri, which takes a nightly toolchain and a minute, and
//! `cargo run -p xtask -- bugs` shows that the tests find each deliberate defect, and `cargo run -p xtask -- sanitize` runs tests with
//! threads under the sanitizers of the nightly toolchain. `cargo run -p xtask -- loom` runs the model tests of small parts in every order of
//! their threads, and `cargo run -p xtask -- coverage` says which lines of the engine the tests reach, and
//! `cargo run -p xtask -- sites` which calls of a storage had faults injected.

mod bugs;
mod coverage;
mod files;
mod loom;
mod miri;
mod policy;
mod programs;
mod sanitize;
mod sites;
mod tidy;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(2).collect();
    let chore = std::env::args().nth(1);
    let root = files::root();
    let outcome = match chore.as_deref() {
        Some("tidy") => tidy::check(&root),
        Some("policy") => policy::check(&root),
        Some("miri") => miri::check(&root),
        Some("bugs") => bugs::check(&root, &args),
        Some("loom") => loom::check(&root, &args),
        Some("sanitize") => sanitize::check(&root, &args),
        Some("coverage") => coverage::check(&root, &args),
        Some("sites") => sites::check(&root, &args),
        _ => {
            eprintln!(
                "usage: cargo run -p xtask -- tidy | policy | miri | bugs [--list] [--unit] [--model] [NAME...] \
                 | loom [NAME...] | sanitize [thread|address] [--suite NAME]... | coverage | sites [FAULTS]"
            );
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(findings) if findings.is_empty() => {
            println!("{}: nothing to say", chore.unwrap_or_default());
            ExitCode::SUCCESS
        }
        Ok(findings) => {
            for finding in &findings {
                eprintln!("{finding}");
            }
            eprintln!("{} findings", findings.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("cannot check: {error}");
            ExitCode::FAILURE
        }
    }
}
