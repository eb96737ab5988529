//! `--events`: what happens in the store while a command runs, a JSON object a line.
//!
//! The store tells in a thread of its own and waits for nobody, so a full pipe costs events and not time; closing the store waits
//! until what was told is written. Tests: `crates/cli/tests/cli/events.rs`.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use kelvin::Error;
use kelvin::events::{Event, EventListener, Field};
use serde_json::Value;

use crate::exit::Failure;
use crate::files::is_dash;
use crate::output::nested;

/// A listener that writes to `path`, behind what is there; to stderr for `-`.
///
/// # Errors
/// The operating system's error, naming the file.
pub fn listener(path: &Path) -> Result<Arc<dyn EventListener>, Failure> {
    if is_dash(path) {
        return Ok(Arc::new(Lines::new("stderr".into(), Box::new(io::stderr()))));
    }
    #[expect(clippy::disallowed_methods, reason = "the user's file, not the store's")]
    let file = OpenOptions::new().append(true).create(true).open(path);
    let file = file.map_err(|error| Error::io("opening the file for events", path, error))?;
    Ok(Arc::new(Lines::new(path.to_path_buf(), Box::new(BufWriter::new(file)))))
}

/// An event as a JSON object.
pub fn as_json(event: &Event) -> Value {
    let value = |field: Field| match field {
        Field::Text(text) => text.into(),
        Field::Number(number) => number.into(),
        Field::Flag(flag) => flag.into(),
    };
    Value::Object(nested(event.fields().into_iter().map(|(name, field)| (name.to_string(), value(field)))))
}

/// Lines into a file.
struct Lines {
    name: PathBuf,
    /// None once it could not be written.
    out: Mutex<Option<Box<dyn Write + Send>>>,
}

impl Lines {
    fn new(name: PathBuf, out: Box<dyn Write + Send>) -> Self {
        Self { name, out: Mutex::new(Some(out)) }
    }
}

impl EventListener for Lines {
    fn on_event(&self, event: &Event) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = out.as_mut() else { return };
        let written = writeln!(file, "{}", as_json(event)).and_then(|()| file.flush());
        if let Err(error) = written {
            *out = None;
            // Nobody is left to hear of it if stderr is gone too.
            let _unheard = writeln!(io::stderr(), "kelvin: no more events: {}: {error}", self.name.display());
        }
    }
}
