//! What the command line's tests share: the program, a directory, and its answers.

use std::path::PathBuf;

use assert_cmd::Command;
use tempfile::TempDir;

/// The program, untouched by the environment of whoever runs the tests.
pub fn kelvin() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kelvin"));
    command
        .env_remove("KELVIN_DIR")
        .env_remove("KELVIN_SLOW_DIR")
        .env_remove("KELVIN_FAST_CAPACITY")
        .env_remove("COLUMNS")
        .env("NO_COLOR", "1");
    command
}

/// A temporary directory and stores in it.
pub struct Place {
    dir: TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { dir: TempDir::new().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The program on the store `name`.
    pub fn on(&self, name: &str, command: &str) -> Command {
        let mut kelvin = kelvin();
        kelvin.arg(command).arg("--fast").arg(self.path(name));
        kelvin
    }

    /// A file with `content`.
    #[expect(clippy::disallowed_methods, reason = "a test prepares its files")]
    pub fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// The content of a file.
    #[expect(clippy::disallowed_methods, reason = "a test looks at its files")]
    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    /// The store `name` with the pair.
    pub fn put(&self, name: &str, key: &str, value: &str) {
        self.on(name, "put").args([key, value]).assert().success();
    }
}

/// What a command wrote to stdout.
pub fn stdout(command: &mut Command) -> String {
    let output = command.assert().success().get_output().stdout.clone();
    String::from_utf8(output).unwrap()
}

/// The exit code and what was written to stderr.
pub fn failure(command: &mut Command) -> (i32, String) {
    let output = command.assert().failure().get_output().clone();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}
