//! Test programs: what cargo and libtest say of them, and where what they write is kept. Tests stand below.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What programs are built for, where build scripts and macros are to be built without the flags of the programs.
pub(crate) const HOST: &str = "x86_64-unknown-linux-gnu";

/// A program that cargo built.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The name of its target.
    pub(crate) target: String,
    /// Whether it is one of tests.
    pub(crate) is_test: bool,
    /// Where it lies.
    pub(crate) path: PathBuf,
}

/// The programs that cargo's messages tell of.
pub(crate) fn built(messages: &str) -> Vec<Program> {
    let program = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let path = PathBuf::from(message["executable"].as_str()?);
        let target = message["target"]["name"].as_str()?.to_string();
        Some(Program { target, is_test: message["profile"]["test"] == true, path })
    };
    messages.lines().filter_map(program).collect()
}

/// How many tests passed, as libtest says.
pub(crate) fn passed(said: &str) -> u64 {
    let count = |line: &str| -> Option<u64> {
        line.strip_prefix("test result:")?.split(". ").nth(1)?.split(' ').next()?.parse().ok()
    };
    said.lines().filter_map(count).sum()
}

/// The directory of what is built.
pub(crate) fn target_dir(root: &Path) -> PathBuf {
    root.join(std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from))
}

/// Makes the directory `dir` empty.
#[expect(clippy::disallowed_methods, reason = "a chore keeps reports among what is built, not in a store")]
pub(crate) fn empty(dir: &Path) -> io::Result<()> {
    if dir.exists() {
        std::fs::remove_dir_all(dir)?;
    }
    std::fs::create_dir_all(dir)
}

#[expect(clippy::disallowed_methods, reason = "a chore tells how long it really took")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_is_counted() {
        let said = "running 2 tests\n..\ntest result: ok. 2 passed; 0 failed; 0 ignored\n\
                    test result: FAILED. 41 passed; 1 failed; 0 ignored\n";
        assert_eq!(passed(said), 43);
        assert_eq!(passed("error: no such test"), 0);
    }

    #[test]
    fn programs_are_read_out_of_what_is_said() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"model"},"profile":{"test":true},"executable":"/t/model-1"}
{"reason":"compiler-artifact","target":{"name":"killed"},"profile":{"test":false},"executable":"/t/killed"}
{"reason":"compiler-artifact","target":{"name":"base"},"profile":{"test":false},"executable":null}
no json"#;
        let program =
            |target: &str, is_test, path: &str| Program { target: target.into(), is_test, path: path.into() };
        assert_eq!(
            built(messages),
            [program("model", true, "/t/model-1"), program("killed", false, "/t/killed")]
        );
    }
}
