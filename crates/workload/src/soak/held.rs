//! Scans, and what a client holds for a while: snapshots and iterators, which must answer what was there when they were made.
//!
//! Tests: `tests/soak.rs` of this crate.

use std::collections::BTreeMap;
use std::time::Duration;

use kelvin::{DbIterator, IterOptions, Snapshot};
use rand::RngExt;

use super::client::{Client, Step};
use super::keys::{Known, key, number_of};
use super::meter::Kind;
use super::phase::Asked;
use super::world::Check;

/// Keys that are read of a snapshot.
const WITNESSES: usize = 24;
/// Keys of a scan, at most.
const SCAN_KEYS: u32 = 100;
/// What a client holds at once, at most.
const HELD_MAX: usize = 3;
/// Iterators keep files; they are held for this part of the time that snapshots are.
const CURSOR_PART: u32 = 4;

/// Keys in a row, and what they held at a moment; `None` where that is in doubt.
#[derive(Clone, Debug)]
pub(super) struct Window {
    first: u32,
    known: Vec<Option<Known>>,
    /// Of that moment, milliseconds.
    made_ms: u64,
}

/// Something that must stay as it is.
pub(super) enum Held {
    Snapshot { snapshot: Snapshot, witnesses: Vec<(u32, Known)>, until: Duration },
    Cursor { iter: Box<DbIterator>, window: Window, found: Vec<(Vec<u8>, Vec<u8>)>, until: Duration },
}

impl Held {
    const fn until(&self) -> Duration {
        match self {
            Self::Snapshot { until, .. } | Self::Cursor { until, .. } => *until,
        }
    }
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Adds up to `count` pairs to `found`, from where the iterator is on.
fn read_on(iter: &mut DbIterator, count: usize, back: bool, found: &mut Pairs) -> kelvin::Result<()> {
    for _ in 0..count {
        if !iter.valid() {
            break;
        }
        found.push((iter.key().to_vec(), iter.value().to_vec()));
        if back { iter.prev()? } else { iter.next()? }
    }
    Ok(())
}

impl Client {
    fn window(&mut self, step: &Step<'_>) -> Window {
        let first = self.number();
        let end = (first + self.random.random_range(2..SCAN_KEYS)).min(self.world.setup.keys);
        let known = (first..end).map(|number| step.keys.certain(number)).collect();
        Window { first, known, made_ms: self.world.wall_ms() }
    }

    fn options(&self, window: &Window) -> IterOptions {
        let end = window.first + u32::try_from(window.known.len()).unwrap_or(0);
        let [lower, upper] = [window.first, end].map(|number| Some(key(self.me, number).into()));
        IterOptions { lower, upper, ..IterOptions::default() }
    }

    /// Holds what an iterator found against what was there.
    fn compare(&self, window: &Window, found: &Pairs, back: bool, to_ms: u64) -> Check {
        if !found.is_sorted_by(|(one, _), (other, _)| if back { one > other } else { one < other }) {
            return Err("an iterator's keys are in no order".to_owned());
        }
        let mut answers = BTreeMap::new();
        for (name, value) in found {
            answers.insert(number_of(name)?, &value[..]);
        }
        for (number, known) in (window.first..).zip(&window.known) {
            let answer = answers.remove(&number);
            if let Some(known) = known {
                self.verify(number, *known, answer, (window.made_ms, to_ms))
                    .map_err(|what| format!("an iterator: {what}"))?;
            }
        }
        match answers.keys().next() {
            None => Ok(()),
            Some(number) => Err(format!("an iterator goes past its bounds, to key {number}")),
        }
    }

    pub(super) fn scan(&mut self, step: &Step<'_>) -> Check {
        let (window, back) = (self.window(step), self.random.random());
        let options = self.options(&window);
        let read = self.timed((Asked::Read, Kind::Scan), || {
            let mut iter = step.db.iter(options)?;
            if back {
                iter.seek_to_last()?
            } else {
                iter.seek_to_first()?
            }
            let mut found = Vec::new();
            read_on(&mut iter, usize::MAX, back, &mut found)?;
            Ok(found)
        })?;
        read.map_or(Ok(()), |(found, (_, to_ms))| self.compare(&window, &found, back, to_ms))
    }

    pub(super) fn holds_iterator(&self) -> bool {
        self.held.iter().any(|held| matches!(held, Held::Cursor { .. }))
    }

    /// Takes a snapshot, or opens an iterator and reads half of what it has, to go on later.
    pub(super) fn hold(&mut self, step: &Step<'_>) -> Check {
        if self.held.len() >= HELD_MAX {
            return Ok(());
        }
        let longest = self.world.setup.held;
        let mut until =
            |longest: Duration| self.world.now() + longest.mul_f64(self.random.random_range(0.3..1.0));
        let [until_snapshot, until_cursor] = [until(longest), until(longest / CURSOR_PART)];
        if self.random.random() {
            let numbers: Vec<u32> = (0..WITNESSES).map(|_| self.number()).collect();
            let witness = |number: u32| Some((number, step.keys.certain(number)?));
            let witnesses = numbers.into_iter().filter_map(witness).collect();
            self.held.push(Held::Snapshot { snapshot: step.db.snapshot(), witnesses, until: until_snapshot });
            return Ok(());
        }
        let window = self.window(step);
        let options = self.options(&window);
        let half = window.known.len() / 2;
        let read = self.timed((Asked::Read, Kind::Scan), || {
            let mut iter = step.db.iter(options)?;
            iter.seek_to_first()?;
            let mut found = Vec::new();
            read_on(&mut iter, half, false, &mut found)?;
            Ok((Box::new(iter), found))
        })?;
        if let Some(((iter, found), _)) = read {
            self.held.push(Held::Cursor { iter, window, found, until: until_cursor });
        }
        Ok(())
    }

    /// Reads what was held for long enough, and lets it go; false if there is nothing.
    pub(super) fn look_back(&mut self) -> Check<bool> {
        let now = self.world.now();
        let Some(at) = self.held.iter().position(|held| held.until() <= now) else { return Ok(false) };
        match self.held.remove(at) {
            Held::Snapshot { snapshot, witnesses, .. } => {
                for (number, known) in witnesses {
                    let name = key(self.me, number);
                    let read = self.timed((Asked::Read, Kind::Snapshot), || snapshot.get(&name))?;
                    if let Some((answer, between)) = read {
                        self.verify(number, known, answer.as_deref(), between)
                            .map_err(|what| format!("a snapshot: {what}"))?;
                    }
                }
            }
            Held::Cursor { mut iter, window, mut found, .. } => {
                let rest = || read_on(&mut iter, usize::MAX, false, &mut found);
                if let Some(((), (_, to_ms))) = self.timed((Asked::Read, Kind::Cursor), rest)? {
                    self.compare(&window, &found, false, to_ms)?;
                }
            }
        }
        Ok(true)
    }
}
