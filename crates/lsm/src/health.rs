//! What is broken, and what that stops.
//!
//! - A failed WAL or manifest sync leaves the outcome unknown: the store takes no writes any more (promise 9), reads go on.
//! - A failed flush or compaction stops itself, is tried again later, and is reported; writers hear of it
//!   only when they would have to wait for that very work.
//! - Compactions of tables found corrupt are not tried again; everything else goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use kelvin_base::events::What;
use kelvin_base::sync::Mutex;
use kelvin_base::{Error, ErrorKind, Events, Result};

use crate::schedule::Kind;

/// Sticky and passing errors of an open store.
#[derive(Debug, Default)]
pub struct Health {
    stopped: AtomicBool,
    fatal: Mutex<Option<Error>>,
    background: Mutex<BTreeMap<Kind, Error>>,
    quarantined: Mutex<BTreeSet<u64>>,
    events: Events,
}

impl Health {
    /// All is well; what is not will be told to `events`.
    #[must_use]
    pub fn new(events: Events) -> Self {
        Self { events, ..Self::default() }
    }

    /// Refuses writes if the store is closed or read-only.
    ///
    /// # Errors
    /// `ReadOnly`, with what made it so.
    pub fn check_writable(&self) -> Result<()> {
        if !self.stopped.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(self
            .fatal
            .lock()
            .clone()
            .unwrap_or_else(|| Error::new(ErrorKind::ReadOnly, "the store is closed")))
    }

    /// Takes no writes from now on. The first reason stays.
    pub fn stop_writes(&self, reason: &Error) {
        let mut fatal = self.fatal.lock();
        if fatal.is_none() {
            let told = Error::new(
                ErrorKind::ReadOnly,
                format!("the store takes no more writes after this error: {reason}"),
            )
            .advice("reads go on; what was acknowledged before is kept; close and reopen the store once the disk is well");
            self.events.post(|| What::ReadOnly { error: told.to_string() });
            *fatal = Some(told);
        }
        self.stopped.store(true, Ordering::Release);
    }

    /// Takes no writes from now on because the store was closed.
    pub fn close(&self) {
        let mut fatal = self.fatal.lock();
        if fatal.is_none() {
            let told = Error::new(ErrorKind::ReadOnly, "the store is closed");
            *fatal = Some(told.advice("open it again; what was acknowledged is kept"));
        }
        self.stopped.store(true, Ordering::Release);
    }

    /// Notes the error of a background job; `None` when one of its kind has succeeded since, or is tried again.
    pub fn note_background(&self, kind: Kind, error: Option<&Error>) {
        let mut background = self.background.lock();
        let work = kind.name();
        match error {
            Some(error) => {
                self.events.post(|| What::WorkFailed { work, error: error.to_string() });
                background.insert(kind, error.clone());
            }
            None if background.remove(&kind).is_some() => self.events.post(|| What::WorkRecovered { work }),
            None => {}
        }
    }

    /// A background error that no success of its kind has followed.
    pub fn background_error(&self) -> Option<Error> {
        self.background.lock().values().next().cloned()
    }

    /// The same, of one of `kinds`.
    pub fn background_error_of(&self, kinds: &[Kind]) -> Option<Error> {
        let background = self.background.lock();
        kinds.iter().find_map(|kind| background.get(kind).cloned())
    }

    /// What stops writes, if anything.
    pub fn fatal(&self) -> Option<Error> {
        self.fatal.lock().clone()
    }

    /// Leaves a damaged table out of further compactions.
    pub fn quarantine(&self, table: u64) {
        self.quarantined.lock().insert(table);
    }

    /// Tables left out of compactions.
    pub fn quarantined(&self) -> BTreeSet<u64> {
        self.quarantined.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fatal_reason_stays_and_is_told_to_every_writer() {
        let health = Health::default();
        assert!(health.check_writable().is_ok());
        health.stop_writes(&Error::new(ErrorKind::Io, "sync of the WAL failed"));
        health.stop_writes(&Error::new(ErrorKind::Io, "something later"));
        let told = health.check_writable().unwrap_err();
        assert_eq!(told.kind(), ErrorKind::ReadOnly);
        assert!(told.to_string().contains("sync of the WAL failed"), "{told}");
    }
}
