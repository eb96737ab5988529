//! The model tests: `cargo xtask loom [NAME]...`.
//!
//! In:  parts of the names of tests, all of them without any. Out: for each test how many orders of its threads there are and in how
//! many seconds they were run, and findings: tests that fail, or a package without any.
//!
//! They are the unit tests whose names begin with `loom_`, built with `--cfg loom`, which makes the locks and atomics of
//! `kelvin_base::sync` loom's; built apart, under `target/loom`. Tests stand below.

use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::programs::target_dir;

/// Packages with model tests.
const PACKAGES: [&str; 2] = ["kelvin-lsm", "kelvin-ralt"];
/// Where a run that goes on is no more an error of the model than of the code.
const BRANCHES_MAX: &str = "10000";

/// Runs the model tests of every package.
pub(crate) fn check(root: &Path, args: &[String]) -> io::Result<Vec<String>> {
    let names: Vec<&str> =
        if args.is_empty() { vec!["loom_"] } else { args.iter().map(String::as_str).collect() };
    let (mut findings, mut ran) = (Vec::new(), 0);
    for package in PACKAGES {
        let mut tests = Command::new("cargo")
            .args(["test", "--locked", "--package", package, "--lib", "--"])
            .args(&names)
            // One after the other, so that what a test says stands behind its name.
            .args(["--test-threads", "1", "--nocapture"])
            .env("RUSTFLAGS", "--cfg loom")
            .env("LOOM_MAX_BRANCHES", BRANCHES_MAX)
            .env("CARGO_TARGET_DIR", target_dir(root).join("loom"))
            .current_dir(root)
            .stdout(Stdio::piped())
            .spawn()?;
        let known = findings.len();
        for line in BufReader::new(tests.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?).lines() {
            match said(&line?) {
                Some(Said::Orders(test, orders)) => {
                    println!("{package} {test}: {orders}");
                    ran += 1;
                }
                Some(Said::Failed(test)) => findings.push(format!("{package}: {test} fails")),
                None => {}
            }
        }
        if !tests.wait()?.success() && findings.len() == known {
            findings.push(format!("{package}: its model tests could not be built, or one fails"));
        }
    }
    if ran == 0 && findings.is_empty() {
        findings.push(format!("there is no model test {}", names.join(", ")));
    }
    Ok(findings)
}

/// What a line of the test program tells.
#[derive(Debug, PartialEq, Eq)]
enum Said<'a> {
    /// A test, and in how many orders its threads were run, in how many seconds.
    Orders(&'a str, &'a str),
    /// A test that failed.
    Failed(&'a str),
}

fn said(line: &str) -> Option<Said<'_>> {
    let (test, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
    if outcome.ends_with("FAILED") {
        return Some(Said::Failed(test));
    }
    outcome.contains(" orders in ").then_some(Said::Orders(test, outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_test_program_are_understood() {
        assert_eq!(
            said("test a::loom_b ... 12 orders in 0.1 s"),
            Some(Said::Orders("a::loom_b", "12 orders in 0.1 s"))
        );
        assert_eq!(said("test a::loom_b ... FAILED"), Some(Said::Failed("a::loom_b")));
        assert_eq!(said("test result: ok. 4 passed; 0 failed"), None);
        assert_eq!(said("ok"), None);
    }
}
