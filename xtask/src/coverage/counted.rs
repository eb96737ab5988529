//! Which lines count: those with code of the store, as the compiler maps it, and none of tests.
//!
//! In:  the project's files, and what `llvm-cov export --format=lcov` says. Out: for each file of the store's the lines that count,
//! and whether a test reached them. Left out are items under `#[cfg(test)]`, whole files that such a `mod` names with all below
//! them, and [`SUPPORT`]. Ends of items are told by their indent, which `cargo fmt` sees to. Tests stand below.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use crate::files::SourceFile;

/// What only tests use though it stands in every build: entry points of fuzzing, the walk over a store that says what is out of
/// order, and compactions begun though none is due.
pub(super) const SUPPORT: [&str; 4] = [
    "crates/lsm/src/audit.rs",
    "crates/lsm/src/db/forced.rs",
    "crates/ralt/src/fuzz.rs",
    "crates/table/src/fuzz.rs",
];

/// The lines of a file that count, from 1, and whether each was reached.
pub(super) type Lines = BTreeMap<usize, bool>;

/// What is a test's.
#[derive(Debug, Default, PartialEq, Eq)]
struct OfTests {
    /// Beginnings of paths.
    paths: Vec<String>,
    /// Lines of files, from 1.
    lines: BTreeSet<usize>,
}

/// The lines that count, by file, of what `lcov` says of the files under `root`.
pub(super) fn counted(root: &Path, files: &[SourceFile], lcov: &str) -> io::Result<BTreeMap<String, Lines>> {
    let mut support: Vec<String> = SUPPORT.map(String::from).into();
    let mut lines_of_tests = BTreeMap::new();
    for file in files.iter().filter(|file| file.name.ends_with(".rs")) {
        let found = of_tests(file);
        support.extend(found.paths);
        lines_of_tests.insert(file.name.as_str(), found.lines);
    }
    let mut counted = BTreeMap::new();
    for (path, mut lines) in mapped(lcov)? {
        let Some(name) = Path::new(&path).strip_prefix(root).ok().and_then(Path::to_str) else { continue };
        if support.iter().any(|path| name.starts_with(path.as_str())) {
            continue;
        }
        let of_tests = lines_of_tests
            .get(name)
            .ok_or_else(|| io::Error::other(format!("{name} was built and is not there")))?;
        lines.retain(|line, _| !of_tests.contains(line));
        counted.insert(name.to_string(), lines);
    }
    Ok(counted)
}

/// The lines of each file, as llvm-cov writes them.
fn mapped(lcov: &str) -> io::Result<BTreeMap<String, Lines>> {
    let mut files: BTreeMap<String, Lines> = BTreeMap::new();
    let mut path = "";
    for text in lcov.lines() {
        if let Some(file) = text.strip_prefix("SF:") {
            path = file;
        } else if let Some(line) = text.strip_prefix("DA:") {
            let strange = || io::Error::other(format!("llvm-cov says {text:?} of {path}"));
            let (number, count) = line.split_once(',').ok_or_else(strange)?;
            let number = number.parse().map_err(|_| strange())?;
            let reached = count.parse::<u64>().map_err(|_| strange())? > 0;
            *files.entry(path.to_string()).or_default().entry(number).or_default() |= reached;
        }
    }
    Ok(files)
}

/// What in `file` stands under `#[cfg(test)]`.
fn of_tests(file: &SourceFile) -> OfTests {
    let mut found = OfTests::default();
    let lines: Vec<&str> = file.text.lines().collect();
    let mut at = 0;
    while at < lines.len() {
        if lines[at].trim_start() != "#[cfg(test)]" {
            at += 1;
            continue;
        }
        let indent = lines[at].len() - lines[at].trim_start().len();
        let first = (at..lines.len()).find(|line| !lines[*line].trim_start().starts_with("#["));
        let first = first.unwrap_or(at);
        let item = lines[first].trim_start();
        if let Some(module) = item.strip_suffix(';').and_then(|item| item.rsplit_once("mod ")) {
            let path = below(&file.name, module.1);
            found.paths.extend([format!("{path}.rs"), format!("{path}/")]);
        }
        let ends = |line: &str| {
            line.len() - line.trim_start().len() == indent && (line.ends_with('}') || line.ends_with(';'))
        };
        let last = (first..lines.len()).find(|line| ends(lines[*line])).unwrap_or(lines.len() - 1);
        found.lines.extend(at + 1..=last + 1);
        at = last + 1;
    }
    found
}

/// The path, without an ending, of the module `module` that the file `name` declares.
fn below(name: &str, module: &str) -> String {
    let path = name.trim_end_matches(".rs");
    let dir = ["/mod", "/lib", "/main"].into_iter().find_map(|own| path.strip_suffix(own));
    format!("{}/{module}", dir.unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> SourceFile {
        SourceFile { name: name.into(), text: text.into() }
    }

    #[test]
    fn what_is_under_cfg_test_is_a_tests() {
        let text = "//! A file.\n#[cfg(test)]\nmod tests;\nmod shipped;\n\nfn f() {\n    #[cfg(not(test))]\n    g();\n}\n\n\
                    impl A {\n    #[cfg(test)]\n    #[inline]\n    fn h(\n        a: u8,\n    ) {\n        if a {\n        }\n    }\n\n    \
                    fn i() {}\n}\n\n#[cfg(test)]\nfn j() {}\n\n#[cfg(test)]\nmod short {\n    fn k() {\n    }\n}\n\nfn l() {}\n";
        let found = of_tests(&file("crates/x/src/y/mod.rs", text));
        assert_eq!(found.paths, ["crates/x/src/y/tests.rs", "crates/x/src/y/tests/"]);
        let lines: Vec<usize> = found.lines.into_iter().collect();
        assert_eq!(lines, [2, 3, 12, 13, 14, 15, 16, 17, 18, 19, 24, 25, 27, 28, 29, 30, 31]);
        let found = of_tests(&file("crates/x/src/y.rs", "#[cfg(test)]\npub(crate) mod testing;\n"));
        assert_eq!(found.paths, ["crates/x/src/y/testing.rs", "crates/x/src/y/testing/"]);
    }

    #[test]
    fn lines_of_the_store_count_and_those_of_tests_and_of_others_do_not() {
        let root = Path::new("/p");
        let files = [
            file("crates/x/src/lib.rs", "#[cfg(test)]\nmod tests;\nfn f() {\n}\n#[cfg(test)]\nfn g() {\n}\n"),
            file("crates/x/src/tests.rs", "fn t() {\n}\n"),
            file(SUPPORT[0], "fn a() {\n}\n"),
        ];
        let of = |name: &str, lines: &str| format!("SF:{name}\n{lines}LF:9\nend_of_record\n");
        let lcov = of("/p/crates/x/src/lib.rs", "DA:3,0\nDA:4,2\nDA:6,7\nDA:7,7\n")
            + &of("/p/crates/x/src/tests.rs", "DA:1,1\n")
            + &of("/other/registry/src/lib.rs", "DA:1,1\n")
            + &of(&format!("/p/{}", SUPPORT[0]), "DA:1,1\n")
            + &of("/p/crates/x/src/lib.rs", "DA:3,1\n");
        let lines = Lines::from([(3, true), (4, true)]);
        assert_eq!(
            counted(root, &files, &lcov).unwrap(),
            BTreeMap::from([("crates/x/src/lib.rs".to_string(), lines)])
        );
        let gone = of("/p/crates/x/src/gone.rs", "DA:1,1\n");
        assert!(counted(root, &files, &gone).is_err());
        assert!(counted(root, &files, &of("/p/crates/x/src/lib.rs", "DA:3\n")).is_err());
    }

    #[test]
    fn all_of_the_support_is_there() {
        let files = crate::files::all(&crate::files::root()).unwrap();
        for path in SUPPORT {
            assert!(files.iter().any(|file| file.name == path), "{path}");
        }
    }
}
