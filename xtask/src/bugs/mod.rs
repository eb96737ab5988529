//! Shows that the tests find the seeded bugs: `cargo xtask bugs [--list] [--model] [--unit] [NAME...]`.
//!
//! In:  the names of bugs, all of [`list::BUGS`] without any. `--unit` leaves out those that only the simulation finds, so that little
//! is built; `--model` says of each bug whether the model test finds it too.
//! Out: a table, and a finding for each bug that no test finds.
//!
//! The test programs are built once, with the feature `seeded-bugs` of `kelvin-base`. Without a bug the directed tests must pass;
//! then each bug is switched on by itself: the test written for its hazard must fail, else the rest of its suite, else
//! the model test. A test that does not end in time counts as failed. Tests stand below.

mod list;

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use self::list::{BUGS, Bug};
use crate::files::SourceFile;
use crate::programs::built;

/// A test program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Suite {
    /// Unit tests of the engine.
    Lsm,
    /// The engine's promises on devices that fail.
    Trust,
    /// Unit tests of the tracker.
    Ralt,
    /// Power losses.
    Crash,
    /// Each I/O fails.
    Faults,
    /// Real kills of a process.
    Kills,
    /// Concurrent histories.
    Linear,
    /// A store at work while its disks fail.
    Soak,
    /// Bytes of files rot.
    Rot,
    /// Random operations against the model.
    Model,
}

impl Suite {
    /// Crate, and the target's name as cargo tells it.
    const fn target(self) -> (&'static str, &'static str) {
        match self {
            Self::Lsm => ("kelvin-lsm", "kelvin_lsm"),
            Self::Trust => ("kelvin-lsm", "trust"),
            Self::Ralt => ("kelvin-ralt", "kelvin_ralt"),
            Self::Crash => ("kelvin-sim", "crash"),
            Self::Faults => ("kelvin-sim", "faults"),
            Self::Kills => ("kelvin-sim", "kills"),
            Self::Linear => ("kelvin-sim", "linear"),
            Self::Soak => ("kelvin-workload", "soak"),
            Self::Rot => ("kelvin-sim", "rot"),
            Self::Model => ("kelvin-sim", "model"),
        }
    }

    const fn is_unit(self) -> bool {
        matches!(self, Self::Lsm | Self::Trust | Self::Ralt)
    }

    const fn name(self) -> &'static str {
        self.target().1
    }
}

/// A test program that takes longer is taken for one that hangs.
const RUN_MAX: Duration = Duration::from_secs(300);
/// What the simulation is run with: more than in the tests of every day.
const SIMULATION: [(&str, &str); 4] = [
    ("KELVIN_MODEL_OPS", "20000"),
    ("KELVIN_MODEL_SEEDS", "2"),
    ("KELVIN_CRASH_IMAGES", "200000"),
    ("KELVIN_ROT_HARMS", "20000"),
];

/// How a test program ended.
enum Outcome {
    Passed,
    /// The tests that failed.
    Failed(Vec<String>),
    /// It was ended: a hang, or an abort.
    Hung,
}

impl Outcome {
    /// Who found the bug; `None` if nobody did.
    fn finder(self, suite: Suite) -> Option<String> {
        match self {
            Self::Passed => None,
            Self::Failed(tests) => {
                let first = tests.first().map_or("(aborted)", String::as_str);
                let more = tests.len().saturating_sub(1);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                Some(format!("{}: {first}{more}", suite.name()))
            }
            Self::Hung => Some(format!("{}: does not end", suite.name())),
        }
    }
}

/// What is wanted of a run.
struct Wanted {
    bugs: Vec<&'static Bug>,
    model: bool,
}

fn wanted(args: &[String]) -> Result<Wanted, String> {
    let is_set = |flag: &str| args.iter().any(|arg| arg == flag);
    let names: Vec<&String> = args.iter().filter(|arg| !arg.starts_with("--")).collect();
    if let Some(flag) = args
        .iter()
        .find(|arg| arg.starts_with("--") && !matches!(arg.as_str(), "--list" | "--unit" | "--model"))
    {
        return Err(format!("there is no {flag}"));
    }
    if let Some(name) = names.iter().find(|name| BUGS.iter().all(|bug| bug.name != name.as_str())) {
        return Err(format!("there is no bug {name}: see --list"));
    }
    let is_wanted = |bug: &&Bug| {
        (names.is_empty() || names.iter().any(|name| *name == bug.name))
            && (!is_set("--unit") || bug.suite.is_unit())
    };
    Ok(Wanted { bugs: BUGS.iter().filter(is_wanted).collect(), model: is_set("--model") })
}

/// Runs the bugs that `args` name. Findings: those that survive.
pub(crate) fn check(root: &Path, args: &[String]) -> io::Result<Vec<String>> {
    let wanted = match wanted(args) {
        Ok(wanted) => wanted,
        Err(what) => return Ok(vec![what]),
    };
    if args.iter().any(|arg| arg == "--list") {
        for bug in &wanted.bugs {
            println!("{:44} {:32} {}: {}", bug.name, bug.hazard, bug.suite.name(), bug.test);
        }
        return Ok(Vec::new());
    }
    let mut programs = Programs { root: root.to_path_buf(), built: BTreeMap::new() };
    let mut findings = baseline(&mut programs, &wanted.bugs)?;
    if !findings.is_empty() {
        return Ok(findings);
    }
    let mut caught = 0;
    for bug in &wanted.bugs {
        let finder = find(&mut programs, bug)?;
        match &finder {
            Some(finder) => {
                caught += 1;
                println!("{:44} {finder}", bug.name);
            }
            None => {
                println!("{:44} NOBODY", bug.name);
                findings.push(format!("{}: no test finds it ({})", bug.name, bug.hazard));
            }
        }
        if wanted.model {
            let model = programs.run(Suite::Model, None, Some(bug.name))?.finder(Suite::Model);
            println!("{:44} {}", "", model.as_deref().unwrap_or("model: passes"));
        }
    }
    println!("{caught} of {} seeded bugs are found", wanted.bugs.len());
    Ok(findings)
}

/// Without a bug every directed test passes.
fn baseline(programs: &mut Programs, bugs: &[&'static Bug]) -> io::Result<Vec<String>> {
    let mut findings = Vec::new();
    let mut tests: Vec<(Suite, &str)> = bugs.iter().map(|bug| (bug.suite, bug.test)).collect();
    tests.sort_unstable();
    tests.dedup();
    for (suite, test) in tests {
        if let Some(finder) = programs.run(suite, Some(test), None)?.finder(suite) {
            findings.push(format!("{test} fails, or is not there, without any bug: {finder}"));
        }
    }
    Ok(findings)
}

/// Who finds `bug`.
fn find(programs: &mut Programs, bug: &Bug) -> io::Result<Option<String>> {
    let directed = programs.run(bug.suite, Some(bug.test), Some(bug.name))?;
    if let Some(finder) = directed.finder(bug.suite) {
        return Ok(Some(finder));
    }
    for suite in [bug.suite, Suite::Model] {
        // Whoever fails without a bug as well finds nothing.
        if let Some(finder) = programs.run(suite, None, Some(bug.name))?.finder(suite)
            && programs.run(suite, None, None)?.finder(suite).is_none()
        {
            return Ok(Some(format!("{finder} (but not the test written for it)")));
        }
    }
    Ok(None)
}

/// The test programs, built when they are needed.
struct Programs {
    root: PathBuf,
    built: BTreeMap<Suite, PathBuf>,
}

impl Programs {
    fn path(&mut self, suite: Suite) -> io::Result<PathBuf> {
        if let Some(path) = self.built.get(&suite) {
            return Ok(path.clone());
        }
        let path = build(&self.root, suite)?;
        self.built.insert(suite, path.clone());
        Ok(path)
    }

    /// Runs one test of `suite`, or all of them, with `bug` on.
    fn run(&mut self, suite: Suite, test: Option<&str>, bug: Option<&str>) -> io::Result<Outcome> {
        let mut command = Command::new(self.path(suite)?);
        command.current_dir(self.root.join("crates").join(suite.target().0.trim_start_matches("kelvin-")));
        command.args(test.map(|test| ["--exact", test]).into_iter().flatten());
        command.env_remove("KELVIN_SEEDED_BUG").envs(bug.map(|bug| ("KELVIN_SEEDED_BUG", bug)));
        command.envs(SIMULATION).env("RUST_BACKTRACE", "0").stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let mut stdout = child.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
        let (sender, receiver) = mpsc::channel();
        let said = std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut said = Vec::new();
                let outcome = stdout.read_to_end(&mut said);
                // Nobody listens any more once the program was ended.
                let _ended = sender.send(outcome.map(|_| said));
            });
            let said = receiver.recv_timeout(RUN_MAX).ok();
            if said.is_none() {
                child.kill()?;
            }
            io::Result::Ok(said)
        })?;
        let status = child.wait()?;
        let Some(said) = said else { return Ok(Outcome::Hung) };
        let said = String::from_utf8_lossy(&said?).into_owned();
        let ran_none = test.is_some() && !said.contains("running 1 test");
        Ok(if status.success() && !ran_none { Outcome::Passed } else { Outcome::Failed(failed(&said)) })
    }
}

/// The tests that libtest says have failed.
fn failed(said: &str) -> Vec<String> {
    let name = |line: &str| Some(line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?.to_string());
    said.lines().filter_map(name).collect()
}

/// Builds a test program with the seeded bugs in it; its path.
fn build(root: &Path, suite: Suite) -> io::Result<PathBuf> {
    let (package, target) = suite.target();
    let mut command = Command::new(env!("CARGO"));
    command.args(["test", "--locked", "--no-run", "--package", package]);
    if target.replace('_', "-") == package {
        command.arg("--lib");
    } else {
        command.args(["--test", target]);
    }
    command.args(["--features", "kelvin-base/seeded-bugs", "--message-format", "json-render-diagnostics"]);
    let output = command.current_dir(root).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("{package} cannot be built")));
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let found = built(&said).into_iter().rfind(|program| program.is_test && program.target == target);
    let none = || io::Error::other(format!("cargo names no test program {target}"));
    found.map(|program| program.path).ok_or_else(none)
}

/// Bugs of the list that stand nowhere in the code or twice, and those in the code that the list does not have.
pub(crate) fn unlisted(files: &[SourceFile]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let opening = concat!("seeded_", "bug!(\"");
    for file in files.iter().filter(|file| file.name.starts_with("crates/") && file.name.ends_with(".rs")) {
        for (at, _) in file.text.match_indices(opening) {
            let name = file.text[at + opening.len()..].split('"').next().unwrap_or_default();
            *seen.entry(name).or_default() += 1;
            if BUGS.iter().all(|bug| bug.name != name) {
                findings
                    .push(format!("{}: the seeded bug {name} is not in xtask/src/bugs/list.rs", file.name));
            }
        }
    }
    for bug in BUGS {
        let count = seen.get(bug.name).copied().unwrap_or(0);
        if count != 1 {
            findings.push(format!("xtask/src/bugs/list.rs: {} stands {count} times in the code", bug.name));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_of_the_list_stands_once_in_the_code_and_no_other() {
        let files = crate::files::all(&crate::files::root()).unwrap();
        assert_eq!(unlisted(&files), Vec::<String>::new());
        let text = format!("if {}nobody-knows\") {{}}\n", concat!("seeded_", "bug!(\""));
        let file = SourceFile { name: "crates/lsm/src/read.rs".into(), text };
        let findings = unlisted(&[file]);
        assert!(findings[0].contains("nobody-knows"), "{findings:?}");
        assert_eq!(findings.len(), 1 + BUGS.len());
    }

    #[test]
    fn names_are_chosen_or_refused() {
        let chosen = |args: &[&str]| {
            wanted(&args.iter().map(ToString::to_string).collect::<Vec<_>>()).map(|wanted| wanted.bugs.len())
        };
        assert_eq!(chosen(&[]), Ok(BUGS.len()));
        assert_eq!(chosen(&[BUGS[3].name, BUGS[1].name]), Ok(2));
        assert!(chosen(&["--unit"]).is_ok_and(|count| count > 20 && count < BUGS.len()));
        assert!(chosen(&["no-such-bug"]).is_err() && chosen(&["--no-such-flag"]).is_err());
    }

    #[test]
    fn failures_are_read_out_of_what_is_said() {
        let said =
            "running 3 tests\ntest a::b ... ok\ntest a::c ... FAILED\ntest d ... FAILED\n\nfailures:\n";
        assert_eq!(failed(said), ["a::c", "d"]);
    }
}
