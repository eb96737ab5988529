//! `unsafe` code under Miri: which modules hold it, and the run of exactly their tests.
//!
//! In:  the modules of [`TESTED`]; a nightly toolchain with the component `miri`. Out: findings, one line each.
//! Rule, for `tidy`: a file with `unsafe` belongs to one of these modules, or to [`FOREIGN`] ones, whose `unsafe` calls what
//! Miri cannot run. Tests stand below.

use std::io;
use std::path::Path;
use std::process::Command;

use crate::files::SourceFile;

/// Modules whose tests run under Miri: path, crate, and what the names of their tests begin with.
const TESTED: [(&str, &str, &str); 4] = [
    ("crates/base/src/pages.rs", "kelvin-base", "pages::"),
    ("crates/base/src/sync/thread.rs", "kelvin-base", "sync::thread::"),
    ("crates/storage/src/buffer.rs", "kelvin-storage", "buffer::"),
    ("crates/lsm/src/memtable/", "kelvin-lsm", "memtable::"),
];

/// Modules whose `unsafe` is a call of the kernel, or of a library in another language, or on a stack that was switched to.
const FOREIGN: [&str; 4] = [
    "crates/storage/src/os/ring.rs",
    "crates/peer-rocksdb/src/",
    "crates/cli/src/main.rs",
    "crates/sim/src/world/fibers.rs",
];

/// Runs the tests of every module.
pub(crate) fn check(root: &Path) -> io::Result<Vec<String>> {
    let mut findings = Vec::new();
    for (path, package, tests) in TESTED {
        println!("miri: {path}");
        let ran = Command::new("rustup")
            .args([
                "run",
                "nightly",
                "cargo",
                "miri",
                "test",
                "--locked",
                "--package",
                package,
                "--lib",
                tests,
            ])
            .current_dir(root)
            .status()
            .map_err(|error| io::Error::new(error.kind(), format!("rustup: {error}")))?;
        if !ran.success() {
            findings.push(format!(
                "{path}: its tests fail under Miri, or there is none (rustup +nightly component add miri rust-src)"
            ));
        }
    }
    Ok(findings)
}

/// The first line of `file` with `unsafe` code, if nobody sees to that code.
pub(crate) fn untested(file: &SourceFile) -> Option<usize> {
    let known = TESTED.iter().map(|(path, ..)| path).chain(&FOREIGN);
    if known.into_iter().any(|path| file.name.starts_with(path)) {
        return None;
    }
    let opens = [
        concat!("uns", "afe {"),
        concat!("uns", "afe impl "),
        concat!("uns", "afe fn "),
        concat!("uns", "afe extern "),
    ];
    let is_code =
        |line: &str| !line.trim_start().starts_with("//") && opens.iter().any(|open| line.contains(open));
    file.text.lines().position(is_code).map(|index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, line: &str) -> SourceFile {
        SourceFile { name: name.into(), text: format!("//! What this file is for.\n{line}\n") }
    }

    #[test]
    fn code_that_no_run_reaches_is_found() {
        let code = concat!("let a = uns", "afe { *b };");
        assert_eq!(untested(&file("crates/table/src/block.rs", code)), Some(2));
        assert_eq!(untested(&file("crates/table/src/block.rs", &format!("// {code}"))), None);
        assert_eq!(untested(&file("crates/lsm/src/memtable/arena.rs", code)), None);
    }

    #[test]
    fn every_module_is_there() {
        let root = crate::files::root();
        for path in TESTED.iter().map(|(path, ..)| path).chain(&FOREIGN) {
            assert!(root.join(path).exists(), "{path}");
        }
    }
}
