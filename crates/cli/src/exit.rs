//! How commands end: exit codes, and errors printed as what, where, is data lost, what to do.
//!
//! A reader that went away (a closed pipe) is no error: the program ends quietly. Tests: below and
//! `crates/cli/tests/errors.rs`.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use kelvin::{Error, ErrorKind};
use serde_json::{Value, json};

use crate::output::Paint;

/// Exit codes; `kelvin --help` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Ok = 0,
    /// `get` of a key without value.
    NotFound = 1,
    /// Wrong usage; clap's own code.
    Usage = 2,
    /// Corruption.
    Corruption = 3,
    /// A tier does not answer.
    TierUnavailable = 4,
    /// A capacity or disk is full.
    NoSpace = 5,
    /// No writes any more.
    ReadOnly = 6,
    /// The operating system refused.
    Io = 7,
    /// Somebody else has the store.
    Busy = 8,
}

impl Exit {
    /// The code of an error.
    pub fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::InvalidArgument => Self::Usage,
            ErrorKind::Corruption => Self::Corruption,
            ErrorKind::TierUnavailable => Self::TierUnavailable,
            ErrorKind::NoSpace => Self::NoSpace,
            ErrorKind::ReadOnly => Self::ReadOnly,
            ErrorKind::Busy => Self::Busy,
            _ => Self::Io,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command ended early.
#[derive(Debug)]
pub enum Failure {
    /// An error, and what else the user should know ("1,000 records were loaded").
    Error(Error, Vec<String>),
    /// Whoever read the output is gone.
    PipeClosed,
}

/// What a command answers.
pub type Outcome = Result<Exit, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error, Vec::new())
    }
}

/// An error of the program's own output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::PipeClosed,
            io::ErrorKind::InvalidInput => Error::invalid(error.to_string()).into(),
            _ => Error::io("writing the output", Path::new("stdout"), error).into(),
        }
    }
}

impl Failure {
    /// The same failure with one more thing the user should know.
    pub fn note(self, note: impl Into<String>) -> Self {
        match self {
            Self::Error(error, mut notes) => {
                notes.push(note.into());
                Self::Error(error, notes)
            }
            Self::PipeClosed => Self::PipeClosed,
        }
    }

    /// Prints the failure on stderr and answers the exit code.
    pub fn report(&self, json: bool) -> Exit {
        let Self::Error(error, notes) = self else { return Exit::Ok };
        let exit = Exit::of(error.kind());
        let text = if json {
            as_json(error, notes, exit).to_string()
        } else {
            as_text(error, notes, Paint::for_stderr())
        };
        use io::Write;
        // Nobody is left to tell if stderr is closed.
        let _unheard = writeln!(io::stderr(), "{text}");
        exit
    }
}

/// Whether an error of this kind means lost data, for people.
fn loss(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Corruption => "what the damaged bytes held may be lost; nothing was changed",
        ErrorKind::NoSpace => "nothing is lost; what did not fit was not written",
        ErrorKind::ReadOnly => "nothing acknowledged is known to be lost; this was not written",
        ErrorKind::Io => "nothing acknowledged is known to be lost",
        _ => "nothing is lost, nothing was changed",
    }
}

/// What to do where the error itself does not say.
fn advice(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Corruption => {
            "run `kelvin check` to see which keys are concerned; restore from a checkpoint, or rescue the rest with `kelvin salvage`"
        }
        ErrorKind::TierUnavailable => "make the tier answer again and retry; no repair is needed",
        ErrorKind::NoSpace => "free space or raise the capacity, and retry",
        ErrorKind::Busy => "end the other process that has the store open, or wait for it, and retry",
        ErrorKind::ReadOnly => "find out why a sync failed (disk, file system), then open the store again",
        ErrorKind::InvalidArgument => "see `kelvin help`",
        _ => "look at the operating system's message above: permissions, mounts, disk health",
    }
}

fn place(error: &Error) -> Option<String> {
    let mut place = String::new();
    if let Some(path) = error.path() {
        place.push_str(&path.display().to_string());
    }
    if let Some(offset) = error.at() {
        place.push_str(&format!("{}byte {offset}", if place.is_empty() { "" } else { ", " }));
    }
    if let Some(tier) = error.on() {
        place.push_str(&format!("{}{tier} tier", if place.is_empty() { "" } else { ", " }));
    }
    (!place.is_empty()).then_some(place)
}

fn as_text(error: &Error, notes: &[String], paint: Paint) -> String {
    let mut text = format!("{} {}: {}", paint.red("error:"), error.kind().name(), error.what());
    let mut line = |name: &str, value: &str| text.push_str(&format!("\n  {:<8} {value}", format!("{name}:")));
    if let Some(place) = place(error) {
        line("where", &place);
    }
    if let Some((expected, found)) = error.expected_found() {
        line("expected", expected);
        line("found", found);
    }
    if let Some(os) = error.os() {
        line("cause", &os.to_string());
    }
    for note in notes {
        line("note", note);
    }
    line("data", loss(error.kind()));
    line("do", error.advised().unwrap_or_else(|| advice(error.kind())));
    text
}

fn as_json(error: &Error, notes: &[String], exit: Exit) -> Value {
    let (expected, found) = error.expected_found().unzip();
    json!({"error": {
        "kind": error.kind().name(),
        "message": error.what(),
        "file": error.path().map(|path| path.display().to_string()),
        "offset": error.at(),
        "tier": error.on().map(|tier| tier.to_string()),
        "expected": expected,
        "found": found,
        "cause": error.os().map(ToString::to_string),
        "notes": notes,
        "data": loss(error.kind()),
        "do": error.advised().unwrap_or_else(|| advice(error.kind())),
        "retryable": error.is_retryable(),
        "exit_code": exit as u8,
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corruption() -> Error {
        Error::corruption(Path::new("fast/7.tbl"), 4096, "block checksum does not match").expected("1", "2")
    }

    #[test]
    fn an_error_says_what_where_whether_data_is_lost_and_what_to_do() {
        let text = as_text(&corruption(), &["3 records were read".to_string()], Paint::none());
        assert_eq!(
            text,
            "error: corruption: block checksum does not match\n  \
             where:   fast/7.tbl, byte 4096\n  \
             expected: 1\n  \
             found:   2\n  \
             note:    3 records were read\n  \
             data:    what the damaged bytes held may be lost; nothing was changed\n  \
             do:      run `kelvin check` to see which keys are concerned; restore from a checkpoint, or rescue the rest with \
             `kelvin salvage`"
        );
    }

    #[test]
    fn as_json_it_carries_the_same_facts_and_the_exit_code() {
        let value = as_json(&corruption(), &[], Exit::Corruption);
        assert_eq!(value["error"]["kind"], "corruption");
        assert_eq!(value["error"]["offset"], 4096);
        assert_eq!(value["error"]["exit_code"], 3);
        assert_eq!(value["error"]["retryable"], false);
    }

    #[test]
    fn a_closed_pipe_is_quiet() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(matches!(failure.note("unheard"), Failure::PipeClosed));
    }
}
