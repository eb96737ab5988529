//! One tracker for all keyspaces: each has a range of its own among the tracked keys.
//!
//! The default keyspace's keys are tracked as they are, but for those that begin with [`AREA`]. These, and the keys of all other
//! keyspaces, stand behind `AREA` and the keyspace's number, so that nothing is the same key twice, and the order of the keys of
//! a keyspace stays what it is: a key sorts at or behind `AREA` exactly if it begins with it, since there is no higher byte.
//!
//! What a key grows by is taken off its value's length: the tracker's sizes are those of the records.
//! Tests: `of_keyspace/tests.rs`, `tests.rs`.

#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::ops::{Bound, Deref};

use kelvin_base::{Heat, HotKeys, HotTracker, KeyRange};

/// What the tracked keys begin with that are not those of the default keyspace as they are.
const AREA: [u8; 2] = [0xff; 2];
/// `AREA` and a keyspace's number.
const PREFIX_BYTES: usize = AREA.len() + size_of::<u32>();
/// The keyspace that each store has from the start.
const DEFAULT_ID: u32 = 0;
/// Longer keys are put together on the heap.
const STACK_BYTES: usize = 256;

/// A tracker as one keyspace sees it.
#[derive(Clone, Copy, Debug)]
pub struct OfKeyspace<T> {
    tracker: T,
    id: u32,
}

impl<T> OfKeyspace<T> {
    /// `tracker` for the keyspace `id`.
    #[must_use]
    pub const fn new(tracker: T, id: u32) -> Self {
        Self { tracker, id }
    }
}

fn prefix(id: u32) -> [u8; PREFIX_BYTES] {
    let mut prefix = [0; PREFIX_BYTES];
    let (area, number) = prefix.split_at_mut(AREA.len());
    area.copy_from_slice(&AREA);
    // The first byte first, so that the areas lie in the order of their numbers.
    number.copy_from_slice(&id.to_be_bytes());
    prefix
}

fn is_tracked_as_it_is(id: u32, key: &[u8]) -> bool {
    id == DEFAULT_ID && !key.starts_with(&AREA)
}

/// As what `key` of the keyspace `id` is tracked.
fn tracked(id: u32, key: &[u8]) -> Vec<u8> {
    if is_tracked_as_it_is(id, key) { key.to_vec() } else { [&prefix(id), key].concat() }
}

/// The same, without an allocation for a key of common length.
fn with_tracked<R>(id: u32, key: &[u8], then: impl FnOnce(&[u8], usize) -> R) -> R {
    if is_tracked_as_it_is(id, key) {
        return then(key, 0);
    }
    let mut on_stack = [0; STACK_BYTES];
    match on_stack.get_mut(..PREFIX_BYTES + key.len()) {
        Some(whole) => {
            let (front, back) = whole.split_at_mut(PREFIX_BYTES);
            front.copy_from_slice(&prefix(id));
            back.copy_from_slice(key);
            then(whole, PREFIX_BYTES)
        }
        None => then(&tracked(id, key), PREFIX_BYTES),
    }
}

/// A range of tracked keys.
struct Area {
    start: Vec<u8>,
    end: Bound<Vec<u8>>,
}

impl Area {
    /// Where the keys of `range` of the keyspace `id` are tracked.
    fn of(id: u32, range: KeyRange<'_>) -> Self {
        let end = match range.end {
            Bound::Included(last) => Bound::Included(tracked(id, last)),
            Bound::Excluded(end) => Bound::Excluded(tracked(id, end)),
            Bound::Unbounded => match id.checked_add(1) {
                Some(next) => Bound::Excluded(prefix(next).to_vec()),
                None => Bound::Unbounded,
            },
        };
        Self { start: tracked(id, range.start), end }
    }

    fn range(&self) -> KeyRange<'_> {
        KeyRange { start: &self.start, end: self.end.as_ref().map(Vec::as_slice) }
    }
}

impl<T> HotTracker for OfKeyspace<T>
where
    T: Deref + Send + Sync + Debug,
    T::Target: HotTracker,
{
    fn access(&self, key: &[u8], value_len: usize) {
        with_tracked(self.id, key, |key, more| self.tracker.access(key, value_len.saturating_sub(more)));
    }

    fn is_hot(&self, key: &[u8]) -> bool {
        with_tracked(self.id, key, |key, _| self.tracker.is_hot(key))
    }

    fn catch_up(&self) {
        self.tracker.catch_up();
    }

    fn turn(&self) -> u64 {
        self.tracker.turn()
    }

    fn hot_size(&self, range: KeyRange<'_>) -> u64 {
        self.tracker.hot_size(Area::of(self.id, range).range())
    }

    fn hot_keys(&self, range: KeyRange<'_>) -> Box<dyn HotKeys + '_> {
        Box::new(Stripped(self.tracker.hot_keys(Area::of(self.id, range).range())))
    }

    fn heat(&self, key: &[u8]) -> Option<Heat> {
        with_tracked(self.id, key, |key, _| self.tracker.heat(key))
    }

    fn forget(&self, range: KeyRange<'_>) {
        self.tracker.forget(Area::of(self.id, range).range());
    }
}

/// Tracked keys as their keyspace knows them.
struct Stripped<'a>(Box<dyn HotKeys + 'a>);

impl HotKeys for Stripped<'_> {
    fn next(&mut self) -> Option<&[u8]> {
        let key = self.0.next()?;
        Some(if key.starts_with(&AREA) { key.get(PREFIX_BYTES..).unwrap_or_default() } else { key })
    }
}
