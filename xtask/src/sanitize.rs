//! Tests with threads under ThreadSanitizer and AddressSanitizer: `cargo xtask sanitize [thread|address] [--suite NAME]...`.
//!
//! In:  a sanitizer, both without one; names of suites, all of [`SUITES`] without any; a nightly toolchain, for threads with the
//! component `rust-src`, as the standard library must be built with that sanitizer, too. Out: for each suite how many tests passed in how
//! many seconds, and findings: tests that fail, and each different summary of the sanitizer's reports.
//!
//! Reports go to files under `target/sanitize`, those of processes that a test starts and kills as well. Tests stand below.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::programs::{HOST, empty, now, passed, target_dir};

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sanitizer {
    /// Data races, and locks taken in orders that may deadlock.
    Thread,
    /// Memory used after it was given back or past its end, and leaks.
    Address,
}

impl Sanitizer {
    const ALL: [Self; 2] = [Self::Thread, Self::Address];

    /// As the command line and the compiler call it.
    const fn name(self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::Address => "address",
        }
    }

    /// The variable with its options, and those besides where its reports go.
    const fn options(self) -> (&'static str, &'static str) {
        match self {
            Self::Thread => ("TSAN_OPTIONS", "halt_on_error=0:second_deadlock_stack=1"),
            Self::Address => ("ASAN_OPTIONS", "detect_leaks=1:detect_stack_use_after_return=1"),
        }
    }
}

/// Tests of one program.
struct Suite {
    name: &'static str,
    package: &'static str,
    /// What of the package's: its unit tests, or a file of `tests/`.
    target: &'static [&'static str],
    /// What the names of its tests hold; all tests without any.
    tests: &'static [&'static str],
    /// Sizes; those of every day without any.
    variables: &'static [(&'static str, &'static str)],
}

/// Not the simulation: its threads take turns on one, where no two of them race.
const SUITES: [Suite; 5] = [
    Suite {
        name: "deadline",
        package: "kelvin-storage",
        target: &["--lib"],
        tests: &["deadline::"],
        variables: &[],
    },
    Suite {
        name: "lsm",
        package: "kelvin-lsm",
        target: &["--lib"],
        tests: &["write::", "promotion::", "memtable::", "multi_get::"],
        variables: &[],
    },
    Suite {
        name: "linear",
        package: "kelvin-sim",
        target: &["--test", "linear"],
        tests: &[],
        variables: &[],
    },
    Suite { name: "kills", package: "kelvin-sim", target: &["--test", "kills"], tests: &[], variables: &[] },
    Suite {
        name: "model",
        package: "kelvin-sim",
        target: &["--test", "model"],
        tests: &[],
        variables: &[("KELVIN_MODEL_SEEDS", "6"), ("KELVIN_MODEL_THREADS", "1")],
    },
];

/// What is wanted of a run.
type Wanted = (Vec<Sanitizer>, Vec<&'static Suite>);

fn wanted(args: &[String]) -> Result<Wanted, String> {
    let (mut sanitizers, mut suites) = (Vec::new(), Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--suite" {
            let name = args.next().map_or("", String::as_str);
            let known = || SUITES.map(|suite| suite.name).join(", ");
            let suite = SUITES.iter().find(|suite| suite.name == name);
            suites.push(suite.ok_or_else(|| format!("there is no suite {name:?}: {}", known()))?);
        } else {
            let sanitizer = Sanitizer::ALL.into_iter().find(|one| one.name() == arg);
            sanitizers
                .push(sanitizer.ok_or_else(|| format!("there is no sanitizer {arg}: thread, address"))?);
        }
    }
    if sanitizers.is_empty() {
        sanitizers.extend(Sanitizer::ALL);
    }
    if suites.is_empty() {
        suites.extend(&SUITES);
    }
    Ok((sanitizers, suites))
}

/// Runs what `args` name.
pub(crate) fn check(root: &Path, args: &[String]) -> io::Result<Vec<String>> {
    let (sanitizers, suites) = match wanted(args) {
        Ok(wanted) => wanted,
        Err(what) => return Ok(vec![what]),
    };
    let dir = target_dir(root).join("sanitize");
    let mut findings = Vec::new();
    for sanitizer in sanitizers {
        for suite in &suites {
            let reports = dir.join(sanitizer.name()).join(suite.name);
            findings.extend(run(root, sanitizer, suite, &reports)?);
        }
    }
    Ok(findings)
}

/// Builds `suite` and runs it, with reports in the directory `reports`.
fn run(root: &Path, sanitizer: Sanitizer, suite: &Suite, reports: &Path) -> io::Result<Vec<String>> {
    let title = format!("{}, {}", sanitizer.name(), suite.name);
    if !cargo(root, sanitizer, suite).arg("--no-run").status()?.success() {
        return Ok(vec![format!(
            "{title}: it cannot be built (rustup toolchain install nightly --component rust-src)"
        )]);
    }
    empty(reports)?;
    let (variable, options) = sanitizer.options();
    let mut command = cargo(root, sanitizer, suite);
    command.arg("--").args(suite.tests).envs(suite.variables.iter().copied());
    command.env(variable, format!("{options}:log_path={}", reports.join("report").display()));
    let start = now();
    let output = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let passed = passed(&said);
    println!("{title}: {passed} tests passed in {:.0} s", start.elapsed().as_secs_f64());
    let mut findings: Vec<String> = summaries(&texts(reports)?)
        .into_iter()
        .map(|(summary, count)| format!("{title}: {summary} ({count} times; {})", reports.display()))
        .collect();
    if !output.status.success() {
        eprintln!("{said}{}", String::from_utf8_lossy(&output.stderr));
        findings.push(format!("{title}: its tests fail, or a report ended them"));
    } else if passed == 0 {
        findings.push(format!("{title}: it has no tests"));
    }
    Ok(findings)
}

/// A command that tests `suite`.
fn cargo(root: &Path, sanitizer: Sanitizer, suite: &Suite) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo", "test", "--quiet", "--locked", "--target", HOST]);
    command.args(["--package", suite.package]).args(suite.target);
    if sanitizer == Sanitizer::Thread {
        // What the standard library does between threads would not be seen, and each use of it be taken for a race.
        command.arg("-Zbuild-std");
    }
    command.env("RUSTFLAGS", format!("-Zsanitizer={}", sanitizer.name())).current_dir(root);
    command
}

/// The different summaries of reports, and how often each stands there; of an output without one its first line.
fn summaries(texts: &[String]) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for text in texts {
        let summaries = text.lines().filter(|line| line.starts_with("SUMMARY: "));
        let mut lines: Vec<&str> = summaries.collect();
        if lines.is_empty() {
            // Its process was killed while it wrote, or the sanitizer itself cannot run here.
            lines.extend(text.lines().find(|line| line.contains("Sanitizer")));
        }
        for line in lines {
            *found.entry(line.trim_start_matches("SUMMARY: ").to_string()).or_default() += 1;
        }
    }
    found
}

/// What stands in the files of the directory `reports`.
#[expect(clippy::disallowed_methods, reason = "a chore keeps reports among what is built, not in a store")]
fn texts(reports: &Path) -> io::Result<Vec<String>> {
    let read = |entry: io::Result<std::fs::DirEntry>| {
        Ok(String::from_utf8_lossy(&std::fs::read(entry?.path())?).into_owned())
    };
    std::fs::read_dir(reports)?.map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sanitizers_and_suites_are_chosen_or_refused() {
        let chosen = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(ToString::to_string).collect();
            wanted(&args).map(|(sanitizers, suites)| (sanitizers.len(), suites.len()))
        };
        assert_eq!(chosen(&[]), Ok((2, SUITES.len())));
        assert_eq!(chosen(&["thread", "--suite", "linear", "--suite", "lsm"]), Ok((1, 2)));
        for refused in [&["memory"][..], &["--suite"], &["--suite", "none"], &["--list"]] {
            assert!(chosen(refused).is_err(), "{refused:?}");
        }
    }

    #[test]
    fn each_summary_is_counted_and_the_first_line_of_what_was_cut_off() {
        let race = "SUMMARY: ThreadSanitizer: data race a.rs:3 in f\n";
        let texts = [
            format!("WARNING: ThreadSanitizer: data race (pid=2)\n  Write of size 8\n{race}{race}"),
            race.to_string(),
            "==3==ERROR: AddressSanitizer: heap-use-after-free\n  cut off".to_string(),
            String::new(),
        ];
        let found: Vec<(String, usize)> = summaries(&texts).into_iter().collect();
        assert_eq!(
            found,
            [
                ("==3==ERROR: AddressSanitizer: heap-use-after-free".to_string(), 1),
                ("ThreadSanitizer: data race a.rs:3 in f".to_string(), 3)
            ]
        );
    }

    #[test]
    fn every_suite_is_of_a_package_that_is_there() {
        let root = crate::files::root();
        for suite in &SUITES {
            let dir = root.join("crates").join(suite.package.trim_start_matches("kelvin-"));
            assert!(dir.join("Cargo.toml").exists(), "{}", suite.package);
            if let ["--test", name] = suite.target {
                assert!(dir.join("tests").join(format!("{name}.rs")).exists(), "{name}");
            }
        }
    }
}
