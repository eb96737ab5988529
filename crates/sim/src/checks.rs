//! What is looked at in any store: answers beside those of a model, what a store says of itself, its files.
//!
//! Tests: those of who looks.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::PathBuf;

use kelvin::{Db, FileKind};
use kelvin_base::hash::hash64_seeded;

/// From this much memory on a run must stay within it.
const MEMORY_HELD_FROM_BYTES: u64 = 2 << 20;

/// What was looked at, or what is wrong with it.
pub type Check<T = ()> = Result<T, String>;

pub(crate) fn said<T>(what: &str, outcome: kelvin::Result<T>) -> Check<T> {
    outcome.map_err(|error| format!("{what} failed: {error}"))
}

pub(crate) fn same<T: PartialEq + std::fmt::Debug>(what: &str, store: &T, model: &T) -> Check {
    if store == model {
        Ok(())
    } else {
        Err(format!("{what}: the store says {store:?}, the model {model:?}"))
    }
}

/// A digest of what a store has answered, in order.
#[derive(Debug, Default)]
pub(crate) struct Heard(Cell<u64>);

impl Heard {
    /// Adds an answer; none is another answer than an empty one.
    pub(crate) fn hear(&self, answer: Option<&[u8]>) {
        let before = self.0.get().wrapping_add(u64::from(answer.is_some()));
        self.0.set(hash64_seeded(before, answer.unwrap_or_default()));
    }

    /// The digest so far; from here on another begins.
    pub(crate) fn take(&self) -> u64 {
        self.0.take()
    }
}

/// What a store says of itself: everything in order, and within the limits.
///
/// # Errors
/// What is not.
pub fn audit(db: &Db) -> Check {
    let audit = said("audit", db.audit())?;
    if !audit.findings.is_empty() {
        return Err(format!("the audit finds: {}", audit.findings.join("; ")));
    }
    let (stats, config) = (db.stats(), db.config());
    for (used, capacity) in stats.used_bytes_max.iter().zip(stats.capacity_bytes) {
        if capacity.is_some_and(|capacity| *used > capacity) {
            return Err(format!("{used} bytes were used of {capacity:?}"));
        }
    }
    let limit = config.memory_bytes.saturating_sub(config.process_bytes);
    // With the least memory there is, several compactions at once may pass it: docs/reliability.md, open.
    if config.memory_bytes >= MEMORY_HELD_FROM_BYTES && stats.memory_used_bytes_max > limit {
        return Err(format!(
            "{} bytes of memory were used of {limit}: {:?}",
            stats.memory_used_bytes_max, stats.memory
        ));
    }
    Ok(())
}

/// The tables on the devices are those that the manifest of `db`, in which nothing is under way, names.
///
/// # Errors
/// Which are not.
pub fn tables_are_named(db: &Db, on_devices: &BTreeSet<PathBuf>) -> Check {
    let report = db.check();
    let tables = report.files.iter().filter(|file| file.kind == FileKind::Table);
    let named: BTreeSet<PathBuf> = tables.map(|file| file.path.clone()).collect();
    same("tables on the devices and in the manifest", on_devices, &named)
}

/// `check` finds no damage in `db`.
///
/// # Errors
/// What it finds.
pub fn is_sound(db: &Db) -> Check {
    match db.check().damaged_files().first() {
        Some(file) => Err(format!("check finds damage: {:?}", file.damage)),
        None => Ok(()),
    }
}

/// What a panic said.
pub(crate) fn said_by(panic: &(dyn std::any::Any + Send)) -> String {
    let what = panic.downcast_ref::<String>().cloned();
    what.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::Heard;

    #[test]
    fn answers_that_differ_in_anything_have_another_digest() {
        let digest = |answers: &[Option<&[u8]>]| {
            let heard = Heard::default();
            answers.iter().for_each(|answer| heard.hear(*answer));
            let digest = heard.take();
            assert_eq!(heard.take(), 0, "another begins");
            digest
        };
        let histories: [&[Option<&[u8]>]; 7] = [
            &[],
            &[None],
            &[Some(b"")],
            &[Some(b"a"), Some(b"b")],
            &[Some(b"b"), Some(b"a")],
            &[Some(b"ab")],
            &[Some(b"a"), None],
        ];
        for (at, one) in histories.iter().enumerate() {
            assert_eq!(digest(one), digest(one));
            for other in &histories[..at] {
                assert_ne!(digest(one), digest(other), "{one:?} {other:?}");
            }
        }
    }
}
