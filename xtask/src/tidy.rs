//! The house rules of DESIGN section 14 that no lint checks.
//!
//! In:  the project's files. Out: findings, one line each, `file:line: what`.
//! Rules: a header on every Rust file; files of 600 lines at most and test modules of 150; no commented-out code; no
//! unfinished work; no `allow`; `unsafe` only where Miri tests it; links and paths in documents lead to files; no path of somebody's machine; crates
//! depend downwards only. Tests stand below.

use std::io;
use std::path::Path;

use crate::bugs;
use crate::files::{SourceFile, all};
use crate::miri;

const FILE_LINES_MAX: usize = 600;
const TEST_MODULE_LINES_MAX: usize = 150;

/// Lower crates first: a crate depends only on crates of lower rank.
const RANKS: [(&str, u32); 13] = [
    ("base", 0),
    ("storage", 1),
    ("cache", 1),
    ("table", 2),
    ("ralt", 3),
    ("lsm", 4),
    ("kelvin", 5),
    ("workload", 7),
    ("peer-fjall", 1),
    ("peer-rocksdb", 2),
    ("sim", 6),
    ("fuzzing", 8),
    ("cli", 8),
];

/// Checks every file under `root`.
pub(crate) fn check(root: &Path) -> io::Result<Vec<String>> {
    let files = all(root)?;
    let mut findings = Vec::new();
    for file in &files {
        if file.name.ends_with(".rs") {
            rust(file, &mut findings);
        }
        if file.name.ends_with(".md") {
            markdown(root, file, &mut findings);
        }
        if file.name.ends_with("Cargo.toml") {
            layers(file, &mut findings);
        }
        machine_paths(file, &mut findings);
    }
    findings.extend(bugs::unlisted(&files));
    Ok(findings)
}

fn say(findings: &mut Vec<String>, file: &SourceFile, line: usize, what: &str) {
    findings.push(format!("{}:{line}: {what}", file.name));
}

/// Tests, benches and build scripts may be longer.
fn may_be_long(name: &str) -> bool {
    name.ends_with("/tests.rs")
        || name.ends_with("/build.rs")
        || ["/tests/", "/benches/", "/examples/"].iter().any(|part| name.contains(part))
}

fn rust(file: &SourceFile, findings: &mut Vec<String>) {
    let lines: Vec<&str> = file.text.lines().collect();
    // A shebang-free Rust file may only have attributes before its header when a tool insists.
    let first = lines.iter().find(|line| !line.trim().is_empty() && !line.starts_with("#!["));
    if !first.is_some_and(|line| line.starts_with("//! ") && line.len() > 12) {
        say(findings, file, 1, "no `//!` header: say the purpose, the invariants, and where the tests are");
    }
    if lines.len() > FILE_LINES_MAX && !may_be_long(&file.name) {
        let what = format!("{} lines: split it, {FILE_LINES_MAX} at most", lines.len());
        say(findings, file, FILE_LINES_MAX + 1, &what);
    }
    test_module_length(file, &lines, findings);
    for (index, line) in lines.iter().enumerate() {
        rust_line(file, index + 1, line, findings);
    }
    if let Some(line) = miri::untested(file) {
        say(findings, file, line, "`unsafe` that no test under Miri reaches: see xtask/src/miri.rs");
    }
}

fn test_module_length(file: &SourceFile, lines: &[&str], findings: &mut Vec<String>) {
    let Some(start) = lines
        .windows(2)
        .position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{'))
    else {
        return;
    };
    let end = lines.iter().skip(start).position(|line| *line == "}").unwrap_or(0);
    if end > TEST_MODULE_LINES_MAX {
        let what =
            format!("a test module of {end} lines: move it to a tests.rs beside ({TEST_MODULE_LINES_MAX})");
        say(findings, file, start + 1, &what);
    }
}

fn rust_line(file: &SourceFile, number: usize, line: &str, findings: &mut Vec<String>) {
    let code = line.trim_start();
    // Spelled apart so that this file passes its own check.
    let unfinished = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
        concat!("to", "do!("),
        concat!("unimpl", "emented!("),
    ];
    if let Some(word) = unfinished.iter().find(|word| has_word(line, word)) {
        say(findings, file, number, &format!("`{word}`: finish it, or open an issue"));
    }
    if code.starts_with(concat!("#[all", "ow(")) || code.starts_with(concat!("#![all", "ow(")) {
        say(findings, file, number, "`allow`: use `expect` with a reason");
    }
    if let Some(comment) = code.strip_prefix("// ")
        && is_code(comment)
    {
        say(findings, file, number, "commented-out code: delete it, Git remembers");
    }
}

/// True if `word` stands in `line` with no letter or digit next to it.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        let after = line.get(at + word.len()..).and_then(|text| text.chars().next());
        let joined = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !joined(before) && (word.ends_with('(') || !joined(after))
    })
}

/// True if the text of a comment reads like a statement.
fn is_code(comment: &str) -> bool {
    let text = comment.trim();
    let starts = [
        "let ", "use ", "fn ", "pub ", "impl ", "struct ", "return ", "if ", "for ", "while ", "match ", "} ",
    ];
    let ends = [";", "{", "})", "},"];
    let statement =
        starts.iter().any(|word| text.starts_with(word)) && ends.iter().any(|end| text.ends_with(end));
    let call = text.ends_with(");") || text.ends_with(")?;");
    statement || call || text == "}" || text.starts_with("#[")
}

fn markdown(root: &Path, file: &SourceFile, findings: &mut Vec<String>) {
    let here = root.join(&file.name);
    let here = here.parent().unwrap_or(root);
    let mut in_code = false;
    for (index, line) in file.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
            continue;
        }
        if in_code {
            continue;
        }
        for target in link_targets(line) {
            let path = target.split('#').next().unwrap_or("");
            let elsewhere = path.is_empty() || path.contains("://") || path.starts_with("mailto:");
            if !elsewhere && !here.join(path).exists() {
                say(findings, file, index + 1, &format!("the link to {path} leads nowhere"));
            }
        }
        for path in source_paths(line) {
            if !root.join(path).exists() {
                say(findings, file, index + 1, &format!("there is no {path}"));
            }
        }
    }
}

/// The targets of `[text](target)` links in `line`.
fn link_targets(line: &str) -> Vec<&str> {
    line.match_indices("](")
        .filter_map(|(at, _)| line.get(at + 2..)?.split(')').next())
        .map(|target| target.split(' ').next().unwrap_or(target))
        .collect()
}

/// Paths of source files and crates named in backquotes in `line`.
fn source_paths(line: &str) -> Vec<&str> {
    line.split('`')
        .skip(1)
        .step_by(2)
        .filter(|text| ["crates/", "docs/", "xtask/", "fuzz/"].iter().any(|top| text.starts_with(top)))
        .filter(|text| text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c)))
        .collect()
}

fn machine_paths(file: &SourceFile, findings: &mut Vec<String>) {
    let places = [
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
        concat!("/wo", "rk/"),
        concat!("/tm", "p/k/"),
        concat!("/Use", "rs/"),
    ];
    for (index, line) in file.text.lines().enumerate() {
        if let Some(place) = places.iter().find(|place| {
            // Inside a longer path (`crates/x/y`) the same letters are no machine's path.
            line.match_indices(**place).any(|(at, _)| {
                let before = line.get(..at).and_then(|text| text.chars().next_back());
                before.is_none_or(|c| !c.is_alphanumeric() && !"._-".contains(c))
            })
        }) {
            say(findings, file, index + 1, &format!("a path of somebody's machine ({place})"));
        }
    }
}

fn layers(file: &SourceFile, findings: &mut Vec<String>) {
    let rank = |name: &str| RANKS.iter().find(|(crate_name, _)| *crate_name == name).map(|(_, rank)| *rank);
    let Some(own) = file.name.strip_prefix("crates/").and_then(|rest| rest.strip_suffix("/Cargo.toml"))
    else {
        return;
    };
    let Some(own_rank) = rank(own) else {
        say(findings, file, 1, "a crate without a rank: add it to the list in xtask/src/tidy.rs");
        return;
    };
    let mut for_tests = false;
    for (index, line) in file.text.lines().enumerate() {
        if line.starts_with('[') {
            for_tests = line.contains("dev-dependencies");
        }
        let name = line.split(['.', ' ', '=']).next().unwrap_or("");
        let used = if name == "kelvin" { Some("kelvin") } else { name.strip_prefix("kelvin-") };
        if let Some(used_rank) = used.and_then(rank)
            && used_rank >= own_rank
            && !for_tests
        {
            say(
                findings,
                file,
                index + 1,
                &format!("{own} may not depend on {name}: dependencies point downwards"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rust_findings(name: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        rust(&SourceFile { name: name.into(), text: text.into() }, &mut findings);
        findings
    }

    #[test]
    fn the_project_is_tidy() {
        let findings = check(&crate::files::root()).unwrap();
        assert!(findings.is_empty(), "\n{}", findings.join("\n"));
    }

    #[test]
    fn each_rule_finds_its_offence() {
        let header = "//! What this file is for.\n";
        let cases = [
            ("fn f() {}\n".to_owned(), "no `//!` header"),
            (format!("{header}{}", "\n".repeat(600)), "split it"),
            (format!("{header}// let a = 1;\n"), "commented-out"),
            (format!("{header}// file.sync()?;\n"), "commented-out"),
            (format!("{header}// {} later\n", concat!("FIX", "ME")), "finish it"),
            (format!("{header}#[{}(dead_code)]\n", concat!("all", "ow")), "use `expect`"),
            (format!("{header}#[cfg(test)]\nmod tests {{\n{}}}\n", "\n".repeat(151)), "tests.rs"),
            (format!("{header}{} impl Send for A {{}}\n", concat!("uns", "afe")), "Miri"),
        ];
        for (text, expected) in cases {
            let findings = rust_findings("crates/x/src/y.rs", &text);
            assert!(findings.len() == 1 && findings[0].contains(expected), "{expected}: {findings:?}");
        }
    }

    #[test]
    fn prose_in_comments_is_not_code() {
        let text = "//! What this file is for.\n// If it fails, the next open tries again;\n// for (ever).\n";
        assert_eq!(rust_findings("crates/x/src/y.rs", text), Vec::<String>::new());
    }

    #[test]
    fn long_tests_stand_in_files_of_their_own() {
        let text = format!("//! What this file is for.\n{}", "\n".repeat(900));
        assert_eq!(rust_findings("crates/x/src/tests.rs", &text), Vec::<String>::new());
    }

    #[test]
    fn a_crate_may_not_depend_upwards() {
        let mut findings = Vec::new();
        let text =
            "[dependencies]\nkelvin-lsm.workspace = true\n[dev-dependencies]\nkelvin-lsm.workspace = true\n";
        layers(&SourceFile { name: "crates/table/Cargo.toml".into(), text: text.into() }, &mut findings);
        assert_eq!(
            findings,
            ["crates/table/Cargo.toml:2: table may not depend on kelvin-lsm: dependencies point downwards"]
        );
    }

    #[test]
    fn links_and_source_paths_are_found_in_a_line() {
        let line =
            "See [the format](formats/x.md#bytes), `crates/lsm/src/db` and [home](https://example.invalid).";
        assert_eq!(link_targets(line), ["formats/x.md#bytes", "https://example.invalid"]);
        assert_eq!(source_paths(line), ["crates/lsm/src/db"]);
    }
}
