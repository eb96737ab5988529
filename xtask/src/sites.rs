//! Calls of a storage in the shipped crates, and which of them had a fault happen to them: `cargo xtask sites [FAULTS]`.
//!
//! In:  how many faults the suite `faults` is to inject. Out: findings: calls that no fault happened to, and excuses that are none.
//!
//! Which calls there are the compiler says: Clippy names every use of a method of a list, with its types resolved, and here the list is the
//! operations of `kelvin_storage`'s traits and of `TierHandle`, read from their sources. Where faults happened the suite says: lines on
//! the stack at each, with the operation. A call was reached if a fault happened below its line, to the operation it asks for; a method of `TierHandle`
//! asks for several. Tests stand below.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value as Json;

use crate::programs;

/// Calls that no fault can reach: a file, what stands in the line, and why.
const EXCUSED: [(&str, &str, &str); 5] = [
    (
        "crates/ralt/src/compact.rs",
        "self.env.storage.free_space(",
        "in a store the books answer it, which ask no disk then",
    ),
    (
        "crates/lsm/src/hotness/storage.rs",
        "self.device().sync_dir(dir)",
        "the trait wants it; RALT syncs nothing",
    ),
    (
        "crates/lsm/src/hotness/storage.rs",
        "self.device().file_len(path)",
        "the trait wants it; RALT asks open files",
    ),
    (
        "crates/lsm/src/hotness/storage.rs",
        "self.device().lock(path)",
        "the trait wants it; the store holds the lock",
    ),
    ("crates/lsm/src/tiers/files.rs", "self.inner.flush()", "the trait wants it; files of tiers are synced"),
];

/// Faults to inject without an argument.
const FAULTS: &str = "300000";

/// Where operations are declared: a file, what the path of a method begins with for Clippy, and what its result is.
const DECLARED: [(&str, &str, &str); 2] = [
    ("crates/storage/src/lib.rs", "kelvin_storage::", "io::Result<"),
    ("crates/lsm/src/tiers/handle.rs", "kelvin_lsm::tiers::handle::", " Result<"),
];

/// Source folders whose calls are the storage's own.
const OWN: &str = "crates/storage/";

/// A call in the source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Call {
    file: String,
    line: u64,
    /// The path of what is called.
    method: String,
    /// The line's text.
    text: String,
}

/// The operation that `method` of a trait asks for, as the suite calls it; `None` for one that asks for several.
fn operation(method: &str) -> Option<&'static str> {
    let name = method.strip_prefix("kelvin_storage::")?.split("::").nth(1)?;
    Some(match name {
        "read_at" | "read_within" => "Read",
        "len" | "is_empty" | "file_len" => "Len",
        "create_dir_all" => "CreateDir",
        "sync_dir" => "SyncDir",
        "hard_link" => "Link",
        "free_space" => "Space",
        "append" => "Append",
        "create" => "Create",
        "exists" => "Exists",
        "flush" => "Flush",
        "list" => "List",
        "lock" => "Lock",
        "open" => "Open",
        "remove" => "Remove",
        "rename" => "Rename",
        "sync" => "Sync",
        _ => "unknown",
    })
}

/// Paths of the functions in `source` that answer `result`: those of its traits and types.
fn declared(source: &str, prefix: &str, result: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut owner = "";
    for (at, _) in source.match_indices('\n') {
        let line = source[at + 1..].lines().next().unwrap_or_default();
        let opens = line.strip_prefix("pub trait ").or_else(|| line.strip_prefix("impl "));
        if let Some(name) = opens {
            owner = name.split([' ', ':', '{']).next().unwrap_or_default();
        }
        let shown = line.trim_start().strip_prefix("pub ").unwrap_or(line.trim_start());
        let Some(name) = shown.strip_prefix("fn ") else { continue };
        let is_private = !line.trim_start().starts_with("pub ") && prefix.contains("::tiers::");
        let signature = source[at + 1..].split(['{', ';']).next().unwrap_or_default();
        let answers = signature.rsplit("->").next().unwrap_or_default();
        if line.starts_with("    ") && !is_private && signature.contains("->") && answers.contains(result) {
            let name = name.split(['(', '<']).next().unwrap_or_default();
            found.push(format!("{prefix}{owner}::{name}"));
        }
    }
    found
}

/// The configuration that has Clippy name every use of `methods`.
fn configuration(methods: &[String]) -> String {
    let entry = |method: &String| format!("    {{ path = \"{method}\", allow-invalid = true }},\n");
    format!("disallowed-methods = [\n{}]\n", methods.iter().map(entry).collect::<String>())
}

/// The calls of `methods` that Clippy's `messages` name, those of the storage crate itself left out.
fn calls(messages: &str, methods: &[String]) -> BTreeSet<Call> {
    let call = |line: &str| -> Option<Call> {
        let message: Json = serde_json::from_str(line).ok()?;
        let message = message.get("message")?;
        let said = message["message"].as_str()?;
        let method = methods.iter().find(|method| said.contains(&format!("`{method}`")))?.clone();
        let span = message["spans"].as_array()?.iter().find(|span| span["is_primary"] == true)?;
        let file = span["file_name"].as_str()?.to_owned();
        let text = span["text"][0]["text"].as_str()?.trim().to_owned();
        (!file.starts_with(OWN)).then_some(Call { file, line: span["line_start"].as_u64()?, method, text })
    };
    messages.lines().filter_map(call).collect()
}

/// Lines on the stacks of faults, with the operation: file, line, operation.
type Reached = BTreeSet<(String, u64, String)>;

/// What the suite reported.
fn reached(report: &Json) -> Reached {
    let suites = report["suites"].as_array();
    let lines =
        suites.and_then(|suites| suites.first()).and_then(|suite| suite["figures"]["lines"].as_array());
    let one =
        |line: &Json| Some((line[0].as_str()?.to_owned(), line[1].as_u64()?, line[2].as_str()?.to_owned()));
    lines.into_iter().flatten().filter_map(one).collect()
}

fn is_reached(call: &Call, reached: &Reached) -> bool {
    match operation(&call.method) {
        Some(operation) => reached.contains(&(call.file.clone(), call.line, operation.to_owned())),
        None => reached.iter().any(|(file, line, _)| (file, *line) == (&call.file, call.line)),
    }
}

/// What is wrong: calls not reached without an excuse, excuses for calls that were reached or are not there.
fn findings(calls: &BTreeSet<Call>, reached: &Reached, excused: &[(&str, &str, &str)]) -> Vec<String> {
    let excuses =
        |call: &Call, (file, text, _): &(&str, &str, &str)| call.file == *file && call.text.contains(text);
    let mut findings = Vec::new();
    for call in calls {
        let has_excuse = excused.iter().any(|excuse| excuses(call, excuse));
        if !has_excuse && !is_reached(call, reached) {
            let Call { file, line, method, text } = call;
            findings.push(format!("{file}:{line}: no fault happened to {method}: {text}"));
        }
    }
    for excuse in excused {
        let (file, text, _) = excuse;
        let mut meant = calls.iter().filter(|call| excuses(call, excuse)).peekable();
        if meant.peek().is_none() {
            findings.push(format!("{file}: {text:?} is excused, and there is no such call"));
        } else if meant.all(|call| is_reached(call, reached)) {
            findings.push(format!("{file}: {text:?} is excused, and was reached"));
        }
    }
    findings
}

/// Runs `command` in `root`; what it printed.
fn printed(root: &Path, command: &mut Command) -> io::Result<String> {
    let output = command.current_dir(root).stderr(Stdio::inherit()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(io::Error::other(format!("{command:?} ended with {}", output.status)))
}

/// The command that runs the suite.
fn suite(cargo: &OsStr, built: &Path, budget: &str) -> Command {
    let mut suite = Command::new(cargo);
    suite.args(["run", "--quiet", "--locked", "--package", "kelvin-cli", "--"]);
    suite.args(["verify", "faults", "--json", "--budget", budget]);
    // An optimised call at the end of a function leaves that function's frame, and the stack lacks its line.
    suite.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0").env("CARGO_TARGET_DIR", built);
    suite
}

/// Compares the calls in the source with where faults happened.
#[expect(clippy::disallowed_methods, reason = "a chore reads the project's own files, not a store's")]
pub(crate) fn check(root: &Path, args: &[String]) -> io::Result<Vec<String>> {
    let budget = args.first().map_or(FAULTS, String::as_str);
    let mut methods = Vec::new();
    for (file, prefix, result) in DECLARED {
        methods.extend(declared(&std::fs::read_to_string(root.join(file))?, prefix, result));
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // Crates are checked with another configuration than usual: beside what is built otherwise.
    let built = programs::target_dir(root).join("sites");
    std::fs::create_dir_all(&built)?;
    std::fs::write(built.join("clippy.toml"), configuration(&methods))?;
    let mut clippy = Command::new(&cargo);
    clippy.args(["clippy", "--quiet", "--locked", "--package", "kelvin", "--lib", "--message-format=json"]);
    clippy.args(["--", "--force-warn", "clippy::disallowed_methods"]);
    clippy.env("CLIPPY_CONF_DIR", &built).env("CARGO_TARGET_DIR", &built);
    let calls = calls(&printed(root, &mut clippy)?, &methods);
    let said = suite(&cargo, &built, budget).current_dir(root).stderr(Stdio::inherit()).output()?;
    let report: Json = serde_json::from_slice(&said.stdout).map_err(io::Error::other)?;
    if let Some(what) = report["suites"][0]["broken"].as_str() {
        let again = report["suites"][0]["again"].as_str().unwrap_or_default();
        return Ok(vec![format!("a promise is broken: {what}; again: {again}")]);
    }
    let reached = reached(&report);
    let count = calls.iter().filter(|call| is_reached(call, &reached)).count();
    println!("{} calls of {} operations; faults happened to {count}", calls.len(), methods.len());
    for (file, text, why) in EXCUSED {
        println!("excused: {file}: {text}: {why}");
    }
    if calls.is_empty() {
        return Ok(vec!["no call was found: Clippy was not asked well".to_owned()]);
    }
    Ok(findings(&calls, &reached, &EXCUSED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_read_from_where_they_are_declared() {
        let root = crate::files::root();
        let of = |at: usize| {
            let (file, prefix, result) = DECLARED[at];
            declared(&std::fs::read_to_string(root.join(file)).unwrap(), prefix, result)
        };
        let (traits, handle) = (of(0), of(1));
        for method in [
            "Storage::create",
            "Storage::free_space",
            "ReadFile::read_within",
            "ReadFile::len",
            "WriteFile::sync",
        ] {
            assert!(traits.contains(&format!("kelvin_storage::{method}")), "{method} of {traits:?}");
        }
        assert!(!traits.contains(&"kelvin_storage::WriteFile::len".to_owned()), "it asks nobody");
        assert!(
            traits.iter().all(|method| operation(method).is_some_and(|name| name != "unknown")),
            "{traits:?}"
        );
        for method in ["create", "remove_if_there", "replace_small", "sync_dir"] {
            assert!(
                handle.contains(&format!("kelvin_lsm::tiers::handle::TierHandle::{method}")),
                "{method} of {handle:?}"
            );
        }
        assert!(
            !handle.iter().any(|method| method.ends_with("::told") || method.ends_with("::path")),
            "{handle:?}"
        );
    }

    #[test]
    fn calls_are_read_from_what_clippy_says() {
        let message = |method: &str, file: &str| {
            let span = serde_json::json!({ "is_primary": true, "file_name": file, "line_start": 7, "text": [{ "text": "  a.b()" }] });
            serde_json::json!({ "message": { "message": format!("use of a disallowed method `{method}`"), "spans": [span] } }).to_string()
        };
        let methods = ["kelvin_storage::Storage::open".to_owned()];
        let said = [
            message(&methods[0], "crates/lsm/src/a.rs"),
            message(&methods[0], "crates/storage/src/a.rs"),
            message("std::fs::read", "crates/lsm/src/a.rs"),
            "{}".to_owned(),
        ];
        let found = calls(&said.join("\n"), &methods);
        assert_eq!(found.len(), 1);
        assert!(
            found
                .iter()
                .all(|call| call.file == "crates/lsm/src/a.rs" && call.line == 7 && call.text == "a.b()")
        );
    }

    #[test]
    fn a_call_counts_if_its_own_operation_failed_below_it() {
        let call = |line, method: &str, text: &str| Call {
            file: "f.rs".to_owned(),
            line,
            method: method.to_owned(),
            text: text.to_owned(),
        };
        let calls = BTreeSet::from([
            call(1, "kelvin_storage::WriteFile::append", "file.append(x)"),
            call(2, "kelvin_storage::WriteFile::sync", "file.sync()"),
            call(3, "kelvin_lsm::tiers::handle::TierHandle::probe", "tier.probe()"),
        ]);
        let report = serde_json::json!({ "suites": [{ "figures": { "lines": [["f.rs", 1, "Append"], ["f.rs", 2, "Append"], ["f.rs", 3, "List"]] } }] });
        let reached = reached(&report);
        let found = |excused: &[(&str, &str, &str)]| findings(&calls, &reached, excused);
        assert_eq!(found(&[]).len(), 1);
        assert!(found(&[])[0].starts_with("f.rs:2: no fault happened to kelvin_storage::WriteFile::sync"));
        assert!(found(&[("f.rs", "file.sync()", "why")]).is_empty());
        assert!(found(&[("f.rs", "file.sync()", ""), ("f.rs", "append", "")])[0].contains("was reached"));
        assert!(found(&[("f.rs", "file.sync()", ""), ("g.rs", "append", "")])[0].contains("no such call"));
    }
}
