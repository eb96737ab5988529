//! Line coverage of the engine by the project's own tests: `cargo xtask coverage`.
//!
//! In:  the toolchain's component `llvm-tools`. Out: a table of [`AREAS`] and of their files below [`LEAST_PERCENT`]; below the
//! directory of what is built, in `coverage/unreached.txt`, each line that no test reaches. Findings: tests that fail, areas below
//! the least.
//!
//! The tests of [`PACKAGES`] are built with the compiler's own instrumentation and run at the sizes of every day. What each process
//! counted is merged and told by line; a line counts as `counted.rs` says. Processes that are killed, as some tests do, tell nothing.
//! Tests stand below.

mod counted;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use self::counted::{Lines, counted};
use crate::files::all;
use crate::programs::{HOST, built, empty, now, passed, target_dir};

/// A part of the store.
struct Area {
    name: &'static str,
    /// Where its files lie.
    paths: &'static [&'static str],
}

const AREAS: [Area; 4] = [
    Area { name: "engine", paths: &["crates/lsm/src/", "crates/table/src/", "crates/cache/src/"] },
    Area { name: "promotion", paths: &["crates/lsm/src/promotion/"] },
    Area { name: "RALT", paths: &["crates/ralt/src/"] },
    Area { name: "base and storage", paths: &["crates/base/src/", "crates/storage/src/"] },
];

/// Of the lines of an area at least so many must be reached.
const LEAST_PERCENT: usize = 90;

/// Whose tests are run.
const PACKAGES: [&str; 8] = [
    "kelvin-base",
    "kelvin-storage",
    "kelvin-cache",
    "kelvin-table",
    "kelvin-ralt",
    "kelvin-lsm",
    "kelvin",
    "kelvin-sim",
];

/// How many lines there are, and how many of them were reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    lines: usize,
    reached: usize,
}

impl Count {
    fn of<'a>(files: impl IntoIterator<Item = &'a Lines>) -> Self {
        let mut count = Self::default();
        for lines in files {
            count.lines += lines.len();
            count.reached += lines.values().filter(|reached| **reached).count();
        }
        count
    }

    /// Tenths of a percent, rounded down.
    fn tenths(self) -> usize {
        // No line reached is no part of none.
        (self.reached * 1000).checked_div(self.lines).unwrap_or(0)
    }

    fn is_enough(self) -> bool {
        self.tenths() >= LEAST_PERCENT * 10
    }

    /// A row of the table.
    fn row(self, name: &str) -> String {
        let (whole, tenth) = (self.tenths() / 10, self.tenths() % 10);
        format!("{name:56} {:6} {:7} {whole:5}.{tenth}", self.lines, self.reached)
    }
}

/// Runs the tests and says what they reach.
pub(crate) fn check(root: &Path, args: &[String]) -> io::Result<Vec<String>> {
    if let Some(arg) = args.first() {
        return Ok(vec![format!("coverage takes nothing, and not {arg}")]);
    }
    let tools = Tools::find(root)?;
    let dir = target_dir(root).join("coverage");
    let profiles = dir.join("profiles");
    empty(&profiles)?;
    let programs = build(root)?;
    let mut findings = run(root, &profiles)?;
    let lcov = tools.lines(&dir, &profiles, &programs)?;
    let counted = counted(root, &all(root)?, &lcov)?;
    let (table, below) = judge(&counted);
    print!("{table}");
    findings.extend(below);
    let list = dir.join("unreached.txt");
    write(&list, &unreached(&counted))?;
    println!("lines not reached: {}", list.display());
    Ok(findings)
}

/// The table, and findings.
fn judge(counted: &BTreeMap<String, Lines>) -> (String, Vec<String>) {
    let mut table = format!("{:56} {:>6} {:>7} {:>7}\n", "", "lines", "reached", "percent");
    let mut findings = Vec::new();
    for area in &AREAS {
        let is_in = |name: &str| area.paths.iter().any(|path| name.starts_with(path));
        let count = Count::of(counted.iter().filter(|(name, _)| is_in(name)).map(|(_, lines)| lines));
        // Writing to a string does not fail.
        let _ = writeln!(table, "{}", count.row(area.name));
        if !count.is_enough() {
            findings.push(format!(
                "{}: {} of {} lines are reached, less than {LEAST_PERCENT} %",
                area.name, count.reached, count.lines
            ));
        }
    }
    let _ = writeln!(table, "\nfiles below {LEAST_PERCENT} %:");
    for (name, lines) in counted {
        let count = Count::of([lines]);
        let is_of_an_area = AREAS.iter().flat_map(|area| area.paths).any(|path| name.starts_with(path));
        if is_of_an_area && count.lines > 0 && !count.is_enough() {
            let _ = writeln!(table, "{}", count.row(name));
        }
    }
    (table, findings)
}

/// The lines that were not reached: of each file, runs of them.
fn unreached(counted: &BTreeMap<String, Lines>) -> String {
    let mut list = String::new();
    for (name, lines) in counted {
        let mut lines = lines.iter().peekable();
        while let Some((first, reached)) = lines.next() {
            if *reached {
                continue;
            }
            let mut last = first;
            while let Some((line, _)) = lines.next_if(|(_, reached)| !**reached) {
                last = line;
            }
            let _ = writeln!(list, "{name}:{first}-{last}");
        }
    }
    list
}

#[expect(clippy::disallowed_methods, reason = "a chore keeps reports among what is built, not in a store")]
fn write(path: &Path, text: &str) -> io::Result<()> {
    std::fs::write(path, text)
}

/// A command that tests the packages, instrumented.
fn cargo(root: &Path) -> Command {
    let mut command = Command::new(env!("CARGO"));
    // Not benches, which say nothing of what is right.
    command.args(["test", "--locked", "--target", HOST, "--no-fail-fast"]);
    command.args(["--lib", "--bins", "--examples", "--test", "*"]);
    command.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    command.env("RUSTFLAGS", "-C instrument-coverage").current_dir(root);
    command
}

/// Builds the tests and the programs they start; where they lie.
fn build(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut command = cargo(root);
    command.args(["--no-run", "--message-format", "json-render-diagnostics"]);
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(io::Error::other("the tests cannot be built"));
    }
    let programs = built(&String::from_utf8_lossy(&output.stdout));
    Ok(programs.into_iter().map(|program| program.path).collect())
}

/// Runs the tests; each of their processes writes what it counted to a file of its own in `profiles`.
fn run(root: &Path, profiles: &Path) -> io::Result<Vec<String>> {
    let start = now();
    let mut command = cargo(root);
    command.arg("--quiet").env("LLVM_PROFILE_FILE", profiles.join("%p-%m.profraw"));
    let output = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{} tests passed in {:.0} s", passed(&said), start.elapsed().as_secs_f64());
    if output.status.success() {
        return Ok(Vec::new());
    }
    eprintln!("{said}{}", String::from_utf8_lossy(&output.stderr));
    Ok(vec!["tests fail: what they reach is not what is counted".to_string()])
}

/// The toolchain's own tools, which know the format of what its compiler counts.
struct Tools {
    profdata: PathBuf,
    cov: PathBuf,
}

impl Tools {
    fn find(root: &Path) -> io::Result<Self> {
        let sysroot = said(Command::new("rustc").args(["--print", "sysroot"]).current_dir(root))?;
        let bin = Path::new(sysroot.trim()).join("lib/rustlib").join(HOST).join("bin");
        let found = Self { profdata: bin.join("llvm-profdata"), cov: bin.join("llvm-cov") };
        if found.profdata.exists() && found.cov.exists() {
            Ok(found)
        } else {
            Err(io::Error::other("llvm-cov is not there (rustup component add llvm-tools)"))
        }
    }

    /// The lines of the files that `programs` were made of, and how often each ran, in the format of lcov.
    fn lines(&self, dir: &Path, profiles: &Path, programs: &[PathBuf]) -> io::Result<String> {
        let merged = dir.join("merged.profdata");
        let mut merge = Command::new(&self.profdata);
        // A process that was killed while it wrote its counts leaves a file that is none.
        merge.args(["merge", "--sparse", "--failure-mode=all"]).arg(profiles).arg("--output").arg(&merged);
        said(&mut merge)?;
        let mut export = Command::new(&self.cov);
        export.args(["export", "--format=lcov", "--skip-functions", "--skip-branches"]);
        export.arg("--instr-profile").arg(&merged);
        for program in programs {
            export.arg("--object").arg(program);
        }
        said(&mut export)
    }
}

/// What `command` writes.
fn said(command: &mut Command) -> io::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |what: String| io::Error::other(format!("{name}: {what}"));
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(output.status.to_string()));
    }
    String::from_utf8(output.stdout).map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of which the first `reached` of `lines` lines are reached.
    fn file(name: &str, lines: usize, reached: usize) -> (String, Lines) {
        (name.to_string(), (1..=lines).map(|line| (line, line <= reached)).collect())
    }

    #[test]
    fn an_area_is_judged_by_all_of_its_files_and_nothing_else() {
        let counted = BTreeMap::from([
            file("crates/lsm/src/read.rs", 800, 800),
            file("crates/lsm/src/promotion/flush.rs", 100, 89),
            file("crates/ralt/src/core.rs", 1000, 900),
            file("crates/storage/src/lib.rs", 1000, 899),
            file("crates/cli/src/main.rs", 1000, 0),
        ]);
        let (table, findings) = judge(&counted);
        assert_eq!(
            findings,
            [
                "promotion: 89 of 100 lines are reached, less than 90 %",
                "base and storage: 899 of 1000 lines are reached, less than 90 %"
            ]
        );
        let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        for row in [
            &["engine", "900", "889", "98.7"][..],
            &["RALT", "1000", "900", "90.0"],
            &["crates/lsm/src/promotion/flush.rs", "100", "89", "89.0"],
        ] {
            assert!(rows.iter().any(|found| found == row), "{row:?}\n{table}");
        }
        assert!(!table.contains("read.rs") && !table.contains("core.rs") && !table.contains("main.rs"));
    }

    #[test]
    fn an_area_without_lines_is_below_the_least() {
        let (_, findings) = judge(&BTreeMap::new());
        assert_eq!(findings.len(), AREAS.len());
    }

    #[test]
    fn lines_that_are_not_reached_are_told_in_runs() {
        let lines = [(1, true), (2, false), (3, false), (5, false), (6, true), (9, false)];
        let counted = BTreeMap::from([("a.rs".to_string(), lines.into())]);
        assert_eq!(unreached(&counted), "a.rs:2-5\na.rs:9-9\n");
    }

    #[test]
    fn areas_and_packages_are_there() {
        let root = crate::files::root();
        for path in AREAS.iter().flat_map(|area| area.paths) {
            assert!(root.join(path).is_dir(), "{path}");
        }
        for package in PACKAGES {
            let dir = root.join("crates").join(package.trim_start_matches("kelvin-"));
            assert!(dir.join("Cargo.toml").exists(), "{package}");
        }
    }

    #[test]
    fn arguments_are_refused() {
        let findings = check(&crate::files::root(), &["--list".to_string()]).unwrap();
        assert_eq!(findings, ["coverage takes nothing, and not --list"]);
    }
}
