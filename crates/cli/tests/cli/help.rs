//! Help texts and completions. The texts are golden files in `tests/help`: `REWRITE=1 cargo test -p kelvin-cli`
//! writes them anew.

use std::path::Path;

use crate::common::{kelvin, stdout};

const COMMANDS: [&str; 17] = [
    "get",
    "put",
    "delete",
    "scan",
    "load",
    "dump",
    "stats",
    "levels",
    "explain",
    "check",
    "salvage",
    "checkpoint",
    "bench",
    "sim",
    "verify",
    "demo",
    "completions",
];

#[expect(clippy::disallowed_methods, reason = "golden files are not the store's")]
fn assert_golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help").join(format!("{name}.txt"));
    if std::env::var_os("REWRITE").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, golden, "{} differs; REWRITE=1 writes it anew", path.display());
}

#[test]
fn help_says_what_it_said() {
    assert_golden("kelvin", &stdout(kelvin().arg("--help")));
    for command in COMMANDS {
        assert_golden(command, &stdout(kelvin().args([command, "--help"])));
    }
    for command in ["paper", "trace", "make-trace", "device"] {
        let text = stdout(kelvin().args(["bench", command, "--help"]));
        assert!(text.contains(&format!("kelvin bench {command}")), "{command} has no example");
        assert_golden(&format!("bench-{command}"), &text);
    }
}

#[test]
fn every_command_has_examples() {
    for command in COMMANDS {
        let help = stdout(kelvin().args([command, "--help"]));
        assert!(help.contains(&format!("kelvin {command}")), "{command} has no example");
    }
}

#[test]
fn every_shell_gets_a_completion_script() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = stdout(kelvin().args(["completions", shell]));
        assert!(script.contains("fast-capacity"), "{shell}");
    }
}

#[test]
fn no_argument_shows_help_and_is_wrong_usage() {
    let (code, help) = crate::common::failure(&mut kelvin());
    assert_eq!(code, 2);
    assert!(help.contains("kelvin demo"), "{help}");
}
