//! The policy on dependencies in `deny.toml`, checked over what `cargo metadata` says is in use: licences, banned
//! crates, sources, and two versions of one crate.
//!
//! `cargo deny` reads the same file and knows the advisories too; this check needs nothing installed and no network.
//! Tests stand below.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Command;

use serde_json::Value as Json;

/// What `deny.toml` allows and forbids.
struct Policy {
    licences: Vec<String>,
    banned: Vec<String>,
    several_versions: Vec<String>,
}

fn strings(table: &toml::Table, section: &str, key: &str) -> Vec<String> {
    let list = table.get(section).and_then(|section| section.get(key)).and_then(toml::Value::as_array);
    let text = |value: &toml::Value| {
        value.as_str().or_else(|| value.get("crate").and_then(toml::Value::as_str)).map(str::to_owned)
    };
    list.map(|list| list.iter().filter_map(text).collect()).unwrap_or_default()
}

#[expect(clippy::disallowed_methods, reason = "a chore reads the project's own files, not a store's")]
fn policy(root: &Path) -> io::Result<Policy> {
    let text = String::from_utf8(std::fs::read(root.join("deny.toml"))?).map_err(io::Error::other)?;
    let table: toml::Table = text.parse().map_err(io::Error::other)?;
    Ok(Policy {
        licences: strings(&table, "licenses", "allow"),
        banned: strings(&table, "bans", "deny"),
        several_versions: strings(&table, "bans", "skip"),
    })
}

fn metadata(root: &Path) -> io::Result<Json> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = target_triple();
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--locked", "--all-features", "--filter-platform", &target])
        .current_dir(root)
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(io::Error::other)
}

/// Crates for other platforms are never built here.
fn target_triple() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// Checks every dependency in use.
pub(crate) fn check(root: &Path) -> io::Result<Vec<String>> {
    let (policy, metadata) = (policy(root)?, metadata(root)?);
    let empty = Vec::new();
    let used: Vec<&str> = metadata["resolve"]["nodes"]
        .as_array()
        .unwrap_or(&empty)
        .iter()
        .filter_map(|node| node["id"].as_str())
        .collect();
    let packages: Vec<&Json> = metadata["packages"]
        .as_array()
        .unwrap_or(&empty)
        .iter()
        .filter(|package| package["id"].as_str().is_some_and(|id| used.contains(&id)))
        .collect();
    Ok(findings(&policy, &packages))
}

fn findings(policy: &Policy, packages: &[&Json]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        let (name, version) = (text(package, "name"), text(package, "version"));
        versions.entry(name).or_default().push(version);
        let licence = text(package, "license");
        if !is_allowed(licence, &policy.licences) {
            findings.push(format!("{name} {version}: the licence {licence:?} is not in deny.toml's list"));
        }
        if policy.banned.iter().any(|banned| banned == name) {
            findings.push(format!("{name} {version}: banned by deny.toml"));
        }
        let source = text(package, "source");
        if !source.is_empty() && !source.contains("crates.io-index") {
            findings.push(format!("{name} {version}: comes from {source}, not from crates.io"));
        }
    }
    for (name, versions) in versions {
        if versions.len() > 1 && !policy.several_versions.iter().any(|skipped| skipped == name) {
            findings
                .push(format!("{name}: in use in versions {}; see deny.toml's skip", versions.join(", ")));
        }
    }
    findings
}

fn text<'a>(package: &'a Json, key: &str) -> &'a str {
    package[key].as_str().unwrap_or("")
}

/// True if an SPDX expression can be met with `allowed` licences alone: one side of every `OR`, all of every `AND`.
/// `AND` binds more tightly than `OR`; parentheses are followed.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    !words.is_empty() && any_of(&words, &mut at, allowed) && at == words.len()
}

fn any_of(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut met = all_of(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        // Both sides are read whatever the first says, so that the position moves past them.
        let other = all_of(words, at, allowed);
        met = met || other;
    }
    met
}

fn all_of(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut met = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        let other = one(words, at, allowed);
        met = met && other;
    }
    met
}

fn one(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let met = any_of(words, at, allowed);
        let closed = words.get(*at) == Some(&")");
        *at += 1;
        return met && closed;
    }
    let mut licence = (*word).to_owned();
    if words.get(*at) == Some(&"WITH") {
        licence = format!("{licence} WITH {}", words.get(*at + 1).unwrap_or(&""));
        *at += 2;
    }
    allowed.contains(&licence)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_dependencies_keep_to_the_policy() {
        let findings = check(&crate::files::root()).unwrap();
        assert!(findings.is_empty(), "\n{}", findings.join("\n"));
    }

    #[test]
    fn licence_expressions_are_met_by_one_side_of_or_and_all_of_and() {
        let allowed = list(&["MIT", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"]);
        for expression in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0 OR MIT",
            "MIT/Apache-2.0",
            "(GPL-3.0 OR MIT) AND Unicode-3.0",
            "GPL-3.0 AND MIT OR MIT",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(is_allowed(expression, &allowed), "{expression}");
        }
        for expression in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT", "Apache-2.0", "MIT MIT"] {
            assert!(!is_allowed(expression, &allowed), "{expression}");
        }
    }

    #[test]
    fn each_part_of_the_policy_finds_its_offence() {
        let policy =
            Policy { licences: list(&["MIT"]), banned: list(&["bad"]), several_versions: list(&["twice"]) };
        let package = |name: &str, version: &str, licence: &str, source: &str| serde_json::json!({ "name": name, "version": version, "license": licence, "source": source });
        let packages = [
            package("fine", "1.0.0", "MIT", "registry+https://github.com/rust-lang/crates.io-index"),
            package("bad", "1.0.0", "MIT", ""),
            package("copyleft", "1.0.0", "GPL-3.0", ""),
            package("forked", "1.0.0", "MIT", "git+https://example.invalid"),
            package("twice", "1.0.0", "MIT", ""),
            package("twice", "2.0.0", "MIT", ""),
            package("two", "1.0.0", "MIT", ""),
            package("two", "2.0.0", "MIT", ""),
        ];
        let found = findings(&policy, &packages.iter().collect::<Vec<_>>());
        assert_eq!(found.len(), 4, "{found:?}");
        for (finding, name) in found.iter().zip(["bad", "copyleft", "forked", "two"]) {
            assert!(finding.starts_with(name), "{finding}");
        }
    }
}
