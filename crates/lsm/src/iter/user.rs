//! The iterator a user sees: one entry for each live key, as of a snapshot.
//!
//! In:  sources of internal entries, the range tombstones of all of them, a snapshot's sequence number, the time,
//!      bounds.
//! Out: user keys and values, each key once, forward and backward.
//!
//! Invariants
//! - D1 The newest version at or before the snapshot decides; if it is a deletion, expired, or older than a range
//!   tombstone the snapshot sees, the key and everything older of it is hidden.
//! - D2 Forward, the merge stands on the entry yielded, whose key and value are borrowed from its source. Backward,
//!   it stands before every entry of the yielded key, whose key and value lie in reused buffers.
//! - D3 The first error is kept: the iterator is invalid for good and every move repeats it.
//! - D4 An entry and its copy (same key and sequence number) are versions of one key, so one of them is yielded.
//!
//! Tests: `tests.rs`.

use std::sync::Arc;

use bytes::Bytes;
use kelvin_base::key::{
    EXPIRES, Kind, append_internal, seek_trailer, split_expiry, split_internal, trailer_kind_byte,
    trailer_sequence,
};
use kelvin_base::{Error, ErrorKind, InternalIterator, Result, Sequence, seeded_bug};
use kelvin_table::Fragments;

use super::cover::Cover;
use super::merging::MergingIter;
use super::source::Source;

/// Versions of one key stepped over before the merge seeks instead.
const SKIPS_MAX: usize = 8;
/// Sorts before every entry of its user key.
const TRAILER_FIRST: u64 = u64::MAX;
/// Sorts behind every entry of its user key.
const TRAILER_LAST: u64 = 0;
/// Bytes of an expiry before a value.
const EXPIRY_BYTES: usize = 8;

/// What an iterator may see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// The newest sequence number to see.
    pub at: Sequence,
    /// Unix milliseconds: records that expire at or before are gone.
    pub now_ms: u64,
    /// First user key to see; `None` for no bound.
    pub lower: Option<Bytes>,
    /// First user key not to see any more; `None` for no bound.
    pub upper: Option<Bytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not on an entry.
    Off,
    /// On the merge's entry (D2).
    Forward,
    /// On the entry in the buffers (D2).
    Backward,
}

/// A user iterator over the merge of sources `S`.
#[derive(Debug)]
pub struct DbIter<S = Source> {
    merge: MergingIter<S>,
    covers: Vec<Cover>,
    sight: Sight,
    state: State,
    sequence: Sequence,
    /// Bytes of expiry before the yielded value.
    value_offset: usize,
    /// Forward: the key being skipped. Backward: the key yielded.
    saved_key: Vec<u8>,
    /// Backward: the stored value yielded.
    saved_value: Vec<u8>,
    target: Vec<u8>,
    error: Option<Error>,
}

impl<S: InternalIterator> DbIter<S> {
    /// An iterator over `sources` and the range tombstones of all of them, not positioned.
    #[must_use]
    pub fn new(sources: Vec<S>, tombstones: Vec<Arc<Fragments>>, sight: Sight) -> Self {
        let covers = tombstones.into_iter().filter(|set| !set.is_empty()).map(Cover::new).collect();
        Self {
            merge: MergingIter::new(sources),
            covers,
            sight,
            state: State::Off,
            sequence: 0,
            value_offset: 0,
            saved_key: Vec::new(),
            saved_value: Vec::new(),
            target: Vec::new(),
            error: None,
        }
    }

    #[cfg(test)]
    pub(super) fn sources_mut(&mut self) -> &mut [S] {
        self.merge.sources_mut()
    }

    /// True if the iterator stands on an entry.
    #[must_use]
    pub fn valid(&self) -> bool {
        self.state != State::Off
    }

    /// The user key under the iterator; empty if it is not valid.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        match self.state {
            State::Off => &[],
            State::Forward => kelvin_base::key::user_key(self.merge.key()),
            State::Backward => &self.saved_key,
        }
    }

    /// The value under the iterator, without its expiry; empty if it is not valid.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        let stored = match self.state {
            State::Off => &[],
            State::Forward => self.merge.value(),
            State::Backward => self.saved_value.as_slice(),
        };
        stored.get(self.value_offset..).unwrap_or_default()
    }

    /// Which of the sources the entry under the iterator lies in. Forward only: `None` when it was reached backward.
    #[must_use]
    pub const fn source(&self) -> Option<usize> {
        match self.state {
            State::Forward => self.merge.current_source(),
            State::Off | State::Backward => None,
        }
    }

    /// When the entry under the iterator expires, Unix milliseconds; `None` if it does not.
    #[must_use]
    pub fn expiry_ms(&self) -> Option<u64> {
        let stored = match self.state {
            State::Forward if self.value_offset > 0 => self.merge.value(),
            State::Backward if self.value_offset > 0 => self.saved_value.as_slice(),
            _ => return None,
        };
        stored.first_chunk::<EXPIRY_BYTES>().map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// The sources, to ask what they have read.
    pub fn sources(&mut self) -> impl Iterator<Item = &mut S> {
        self.merge.sources()
    }

    /// The sequence number of the entry under the iterator.
    #[must_use]
    pub const fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// What the iterator may see.
    #[must_use]
    pub const fn sight(&self) -> &Sight {
        &self.sight
    }

    /// Moves to the first key.
    ///
    /// # Errors
    /// If a source cannot be read, now or before.
    pub fn seek_to_first(&mut self) -> Result<()> {
        match self.sight.lower.clone() {
            Some(lower) => self.seek(&lower),
            None => self.run(|this| {
                this.merge.seek_to_first()?;
                this.settle_forward(false)
            }),
        }
    }

    /// Moves to the last key.
    ///
    /// # Errors
    /// If a source cannot be read, now or before.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.run(|this| {
            match this.sight.upper.clone() {
                Some(upper) => this.merge_seek_before(&upper, TRAILER_FIRST)?,
                None => this.merge.seek_to_last()?,
            }
            this.settle_backward()
        })
    }

    /// Moves to the first key at or behind `target`.
    ///
    /// # Errors
    /// If a source cannot be read, now or before.
    pub fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.run(|this| {
            let lower = this.sight.lower.clone();
            let start = lower.as_deref().filter(|lower| *lower > target).unwrap_or(target);
            if this.sight.upper.as_deref().is_some_and(|upper| start >= upper) {
                return Ok(());
            }
            this.merge_seek(start, seek_trailer(this.sight.at))?;
            this.settle_forward(false)
        })
    }

    /// Moves to the last key at or before `target`.
    ///
    /// # Errors
    /// If a source cannot be read, now or before.
    pub fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        if self.sight.upper.as_deref().is_some_and(|upper| target >= upper) {
            return self.seek_to_last();
        }
        self.run(|this| {
            if this.sight.lower.as_deref().is_some_and(|lower| target < lower) {
                return Ok(());
            }
            this.merge_seek_before(target, TRAILER_LAST)?;
            this.settle_backward()
        })
    }

    /// Moves to the next key; stays off an entry if it is off one.
    ///
    /// # Errors
    /// If a source cannot be read, now or before.
    #[expect(clippy::should_implement_trait, reason = "a move answers an error, and the entry is borrowed")]
    pub fn next(&mut self) -> Result<()> {
        self.run_from(|this, state| match state {
            State::Off => Ok(()),
            State::Forward => {
                this.save_merge_key();
                this.merge.next()?;
                this.settle_forward(true)
            }
            State::Backward => {
                let key = std::mem::take(&mut this.saved_key);
                let sought = this.merge_seek(&key, TRAILER_LAST);
                this.saved_key = key;
                sought?;
                this.settle_forward(false)
            }
        })
    }

    /// Moves to the previous key; stays off an entry if it is off one.
    ///
    /// # Errors
    /// If a source cannot be read, now or before.
    pub fn prev(&mut self) -> Result<()> {
        self.run_from(|this, state| match state {
            State::Off => Ok(()),
            State::Forward => {
                this.save_merge_key();
                this.seek_before_saved()?;
                this.settle_backward()
            }
            State::Backward => this.settle_backward(),
        })
    }

    /// A move from nowhere: repeats a kept error, keeps a new one.
    fn run(&mut self, step: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.run_from(|this, _| step(this))
    }

    fn run_from(&mut self, step: impl FnOnce(&mut Self, State) -> Result<()>) -> Result<()> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let state = std::mem::replace(&mut self.state, State::Off);
        let outcome = step(self, state);
        if let Err(error) = &outcome {
            self.state = State::Off;
            self.error = Some(error.clone());
        }
        outcome
    }

    fn save_merge_key(&mut self) {
        self.saved_key.clear();
        self.saved_key.extend_from_slice(kelvin_base::key::user_key(self.merge.key()));
    }

    fn merge_seek(&mut self, user_key: &[u8], trailer: u64) -> Result<()> {
        self.target.clear();
        append_internal(&mut self.target, user_key, trailer);
        self.merge.seek(&self.target)
    }

    fn merge_seek_before(&mut self, user_key: &[u8], trailer: u64) -> Result<()> {
        self.target.clear();
        append_internal(&mut self.target, user_key, trailer);
        self.merge.seek_before(&self.target)
    }

    /// Moves the merge before every entry of the saved key.
    fn seek_before_saved(&mut self) -> Result<()> {
        let key = std::mem::take(&mut self.saved_key);
        let sought = self.merge_seek_before(&key, TRAILER_FIRST);
        self.saved_key = key;
        sought
    }

    /// From the merge's entry on, finds the first live key and stands on it. `decided` says that what the snapshot
    /// sees of the saved key is settled, so that its entries are skipped.
    fn settle_forward(&mut self, mut decided: bool) -> Result<()> {
        let mut skips = 0;
        while self.merge.valid() {
            let (key, trailer) = split(self.merge.key())?;
            if self.sight.upper.as_deref().is_some_and(|upper| key >= upper) {
                return Ok(());
            }
            let (sequence, kind_byte) = (trailer_sequence(trailer), trailer_kind_byte(trailer));
            let seen = sequence <= self.sight.at;
            let same = (decided || !seen) && key == self.saved_key.as_slice();
            let is_again =
                seeded_bug!("iterator-yields-a-copy-and-its-original") && sequence == self.sequence;
            let skip = !seen || (same && decided && !is_again);
            if !skip {
                let live = is_live(&self.sight, kind_byte, self.merge.value())?
                    && newest_cover(&mut self.covers, key, self.sight.at) <= sequence;
                if live {
                    self.sequence = sequence;
                    self.value_offset = value_offset(kind_byte);
                    self.state = State::Forward;
                    return Ok(());
                }
            }
            if !same {
                self.save_merge_key();
                (decided, skips) = (!skip, 0);
            } else if skips == SKIPS_MAX {
                // A long run of versions of one key: over all of them, or to the first that may be seen.
                skips = 0;
                let behind = if decided { TRAILER_LAST } else { seek_trailer(self.sight.at) };
                self.target.clear();
                append_internal(&mut self.target, key, behind);
                self.merge.seek(&self.target)?;
                continue;
            }
            skips += 1;
            self.merge.next()?;
        }
        Ok(())
    }

    /// From the merge's entry back, finds the first key that is live and keeps it in the buffers.
    fn settle_backward(&mut self) -> Result<()> {
        while self.merge.valid() {
            let (key, _) = split(self.merge.key())?;
            if self.sight.lower.as_deref().is_some_and(|lower| key < lower) {
                return Ok(());
            }
            self.save_merge_key();
            let Some((sequence, kind_byte)) = self.newest_of_saved()? else { continue };
            let live = is_live(&self.sight, kind_byte, &self.saved_value)?
                && newest_cover(&mut self.covers, &self.saved_key, self.sight.at) <= sequence;
            if live {
                self.sequence = sequence;
                self.value_offset = value_offset(kind_byte);
                self.state = State::Backward;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Moves the merge, which stands on the oldest entry of the saved key, before all of them. Answers sequence
    /// number and kind byte of the newest that may be seen, its value being saved.
    fn newest_of_saved(&mut self) -> Result<Option<(Sequence, u8)>> {
        let mut newest = None;
        let mut steps = 0;
        while self.merge.valid() {
            let (key, trailer) = split(self.merge.key())?;
            if key != self.saved_key.as_slice() {
                return Ok(newest);
            }
            let sequence = trailer_sequence(trailer);
            if sequence > self.sight.at || steps > SKIPS_MAX {
                break;
            }
            newest = Some((sequence, trailer_kind_byte(trailer)));
            self.saved_value.clear();
            self.saved_value.extend_from_slice(self.merge.value());
            steps += 1;
            self.merge.prev()?;
        }
        if !self.merge.valid() {
            return Ok(newest);
        }
        if steps > SKIPS_MAX {
            newest = self.seek_newest_of_saved()?;
        }
        self.seek_before_saved()?;
        Ok(newest)
    }

    /// Seeks the newest entry of the saved key that may be seen and saves its value.
    fn seek_newest_of_saved(&mut self) -> Result<Option<(Sequence, u8)>> {
        let key = std::mem::take(&mut self.saved_key);
        let sought = self.merge_seek(&key, seek_trailer(self.sight.at));
        self.saved_key = key;
        sought?;
        if !self.merge.valid() {
            return Ok(None);
        }
        let (key, trailer) = split(self.merge.key())?;
        if key != self.saved_key.as_slice() {
            return Ok(None);
        }
        self.saved_value.clear();
        self.saved_value.extend_from_slice(self.merge.value());
        Ok(Some((trailer_sequence(trailer), trailer_kind_byte(trailer))))
    }
}

fn newest_cover(covers: &mut [Cover], user_key: &[u8], at: Sequence) -> Sequence {
    covers.iter_mut().map(|cover| cover.newest(user_key, at)).max().unwrap_or(0)
}

const fn value_offset(kind_byte: u8) -> usize {
    if kind_byte & EXPIRES == 0 { 0 } else { EXPIRY_BYTES }
}

/// True if an entry of this kind and stored value is a value that has not expired.
fn is_live(sight: &Sight, kind_byte: u8, stored: &[u8]) -> Result<bool> {
    match Kind::from_byte(kind_byte) {
        Some(kind) if kind.has_value() => {
            let (expiry, _) = split_expiry(kind_byte, stored)
                .ok_or_else(|| corrupt("an entry that expires has no expiry"))?;
            Ok(expiry.is_none_or(|expiry| expiry > sight.now_ms))
        }
        Some(Kind::Deletion) => Ok(false),
        _ => Err(corrupt("an entry has a kind this version does not know").expected("1, 3 or 4", kind_byte)),
    }
}

fn split(internal: &[u8]) -> Result<(&[u8], u64)> {
    split_internal(internal).ok_or_else(|| corrupt("an internal key is shorter than its trailer"))
}

fn corrupt(what: &str) -> Error {
    Error::new(ErrorKind::Corruption, what).advice("run `kelvin check` to find the file")
}
