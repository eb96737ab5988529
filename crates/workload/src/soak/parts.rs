//! A soak in parts, where nobody can wait for the whole: what a part leaves to the next one, in a file.
//!
//! That is where the store is, what every key must hold, and all that was seen so far; the next part reads the whole store first and holds it
//! against what is known. While a part is at work the file says so, and it goes on saying so if the part found a broken promise or did not end:
//! the store is then no longer what the file knows. Tests stand below, and in `crates/cli/tests/cli/verify.rs`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kelvin::{Error, Result};
use serde::{Deserialize, Serialize};

use super::Soaked;
use super::keys::Keys;
use super::phase::Span;
use super::sample::Sample;
use super::setup::Setup;
use crate::dirs;

/// The form of the file.
const FORMAT: u32 = 1;

/// What the parts so far leave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    format: u32,
    is_at_work: bool,
    /// How many there were.
    pub parts: u32,
    /// Directories of the store, as in [`Setup`].
    pub dirs: [PathBuf; 2],
    /// As in [`Setup`].
    pub seed: u64,
    fast_capacity: u64,
    memory: u64,
    keys_each: u32,
    step_every: Duration,
    /// How long they took together, each after its data was there.
    pub seconds: u64,
    /// When the next one begins, since the first did: without the time between them.
    pub elapsed: Duration,
    /// When the first began, by the wall clock, milliseconds since 1970.
    pub unix_start_ms: u64,
    /// What the keys of each client hold.
    pub keys: Vec<Keys>,
    /// Over time.
    pub samples: Vec<Sample>,
    /// What was done to the store when.
    pub spans: Vec<Span>,
    /// What was done how often.
    pub done: Vec<(String, u64)>,
    /// Reads and writes that were told to come again later.
    pub refused: [u64; 2],
}

/// What every form of the file says.
#[derive(Deserialize)]
struct Form {
    format: u32,
}

impl Parts {
    /// What `soaked`, which held, leaves to the next part.
    #[must_use]
    pub fn of(soaked: &Soaked) -> Self {
        let setup = &soaked.setup;
        Self {
            format: FORMAT,
            is_at_work: false,
            parts: setup.part + 1,
            dirs: setup.dirs.clone(),
            seed: setup.seed,
            fast_capacity: setup.fast_capacity,
            memory: setup.memory,
            keys_each: setup.keys,
            step_every: setup.step_every,
            seconds: soaked.seconds,
            elapsed: soaked.elapsed,
            unix_start_ms: soaked.unix_start_ms,
            keys: soaked.keys.clone(),
            samples: soaked.samples.clone(),
            spans: soaked.spans.clone(),
            done: soaked.done.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
            refused: soaked.refused,
        }
    }

    /// What the file at `path` tells; `None` if there is none.
    ///
    /// # Errors
    /// `Io`; `InvalidArgument` for a file that is none of this kind, or whose last part did not end well.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        #[expect(clippy::disallowed_methods, reason = "a result, not a store's file")]
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("reading what the parts of a soak left", path, error)),
        };
        let no_parts = |error| {
            Error::invalid(format!("this is not what a part of a soak left: {error}"))
                .file(path)
                .advice("name another file, which is made; nothing was changed")
        };
        let Form { format } = serde_json::from_slice(&bytes).map_err(no_parts)?;
        if format != FORMAT {
            let told = format!("the file's form is {format}, and this program knows {FORMAT}");
            return Err(Error::invalid(told).file(path).advice("go on with the program that wrote it"));
        }
        let parts: Self = serde_json::from_slice(&bytes).map_err(no_parts)?;
        if parts.is_at_work {
            return Err(Error::invalid(
                "the last part of this soak is at work, did not end, or found a broken promise",
            )
            .file(path)
            .advice(format!(
                "name another file to begin anew; the store it was at is in {} and {}",
                parts.dirs[0].display(),
                parts.dirs[1].display()
            )));
        }
        Ok(Some(parts))
    }

    /// Writes it to `path`, whole or not at all.
    ///
    /// # Errors
    /// `Io`.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string(self)
            .map_err(|error| Error::io("writing what a part of a soak leaves", path, error.into()))?;
        dirs::write_whole(path, &text)
    }

    /// The same while a part is at work, without what nobody goes on from then.
    #[must_use]
    pub fn at_work(&self) -> Self {
        let (keys, samples, spans) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            is_at_work: true,
            keys,
            samples,
            spans,
            dirs: self.dirs.clone(),
            done: self.done.clone(),
            ..*self
        }
    }

    /// The next part, of so many seconds.
    ///
    /// # Errors
    /// `InvalidArgument` if a soak of so many seconds, or of this seed, is another one than that which it is to go on with.
    pub fn next(&self, seconds: u64, seed: u64) -> Result<Setup> {
        if seed != self.seed {
            let told = format!("the soak to go on with has the seed {}, not {seed}", self.seed);
            return Err(Error::invalid(told).advice(format!("give --seed {}", self.seed)));
        }
        let mut setup = Setup::of(seconds, self.seed, self.dirs.clone());
        let begun = (self.fast_capacity, self.memory, self.keys_each, self.step_every);
        if begun != (setup.fast_capacity, setup.memory, setup.keys, setup.step_every) {
            let told = format!(
                "a soak of {seconds} s has other data, or another pace, than the one it is to go on with"
            );
            return Err(Error::invalid(told).advice(format!(
                "give about as many seconds as before: the {} parts so far took {} s",
                self.parts, self.seconds
            )));
        }
        (setup.part, setup.seconds_before) = (self.parts, self.seconds);
        Ok(setup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_none_of_a_soak_is_refused_and_an_absent_one_is_a_beginning() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("soak.json");
        assert_eq!(Parts::read(&path).unwrap(), None);
        for (bytes, word) in [
            ("{}", "not what a part of a soak left"),
            ("", "EOF"),
            ("{\"format\": 7, \"more\": 1}", "the file's form is 7, and this program knows 1"),
        ] {
            dirs::write_whole(&path, bytes).unwrap();
            let told = Parts::read(&path).unwrap_err().to_string();
            assert!(told.contains(word) && told.contains("soak.json"), "{told}");
        }
        assert!(Parts::read(temporary.path()).unwrap_err().to_string().contains("reading"));
    }
}
