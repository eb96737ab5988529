//! Which entries and range tombstones a merge keeps. The only place that decides it; pure.
//!
//! Live snapshots cut the sequence numbers into stripes: two sequence numbers are in one stripe if no snapshot sees
//! the older without the newer. Stripe 0 is what the oldest snapshot sees.
//!
//! Invariants
//! - R1 Of the versions of a key in a stripe only the newest is kept.
//! - R2 A version that a range tombstone of its stripe covers is dropped.
//! - R3 A deletion is dropped in stripe 0 if nothing older lies below: there it hides nothing.
//! - R4 An expired value becomes a deletion, which R3 may drop. It hides what is older either way.
//! - R5 A copy is dropped when the same key and sequence number follows (one `Value` stays), when it would be
//!   written to the slow tier, and when it expired. A dropped copy hides nothing: its original does.
//! - R6 Sequence numbers are never changed.
//! - R7 Where hot records are routed to the fast tier, a copy that would be kept is judged by its heat afterwards, and
//!   hides nothing: its original, which follows or lies deeper, goes on to the slow tier (invariant C1).
//!
//! Tests: `rules_tests.rs`, and the model test in `tests.rs`.

use std::sync::Arc;

use kelvin_base::key::{Kind, split_expiry};
use kelvin_base::{Error, ErrorKind, RangeTombstone, Result, SEQUENCE_MAX, Sequence, seeded_bug};
use kelvin_table::Fragments;

use super::below::Below;
use crate::iter::Cover;

/// Why an entry was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A newer version of its key is in its stripe.
    Shadowed,
    /// A range tombstone of its stripe covers it.
    Covered,
    /// A deletion with nothing left to delete.
    Deletion,
    /// It expired and there is nothing left to hide.
    Expired,
    /// A copy nobody needs.
    Copy,
}

/// What becomes of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is written as it is.
    Keep,
    /// A deletion of the same sequence number is written instead.
    Delete,
    /// It is not written.
    Drop(Why),
}

/// An entry, taken apart.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// User key.
    pub key: &'a [u8],
    /// Sequence number.
    pub sequence: Sequence,
    /// Kind byte.
    pub kind_byte: u8,
    /// Stored value.
    pub stored: &'a [u8],
    /// The next entry has the same key and sequence number.
    pub repeated: bool,
    /// Something older of the key lies beside the output, wherever else.
    pub guarded: bool,
}

/// What the rules depend on besides the entries.
#[derive(Debug)]
pub struct Terms {
    /// Live snapshots, ascending.
    pub snapshots: Vec<Sequence>,
    /// Unix milliseconds.
    pub now_ms: u64,
    /// Copies are dropped (the output goes to the slow tier, and to nowhere else).
    pub drops_copies: bool,
    /// Copies are written beside their originals, to another tier.
    pub routes_copies: bool,
    /// The inputs' range tombstones.
    pub tombstones: Arc<Fragments>,
}

impl Terms {
    /// The stripe of a sequence number.
    fn stripe(&self, sequence: Sequence) -> usize {
        self.snapshots.partition_point(|&snapshot| snapshot < sequence)
    }

    /// The newest sequence number of a stripe.
    fn stripe_end(&self, stripe: usize) -> Sequence {
        self.snapshots.get(stripe).copied().unwrap_or(SEQUENCE_MAX)
    }

    /// The range tombstones to keep: the newest of each stripe, but in stripe 0 only where older data may lie below.
    pub fn kept_tombstones(&self, below: &Below) -> Vec<RangeTombstone> {
        let mut kept = Vec::new();
        for (index, fragment) in self.tombstones.fragments().iter().enumerate() {
            let mut at = SEQUENCE_MAX;
            loop {
                let sequence = self.tombstones.newest(index, at);
                let stripe = self.stripe(sequence);
                if sequence == 0 || (stripe == 0 && !below.may_meet(&fragment.start, &fragment.end)) {
                    break;
                }
                let (start, end) = (fragment.start.clone(), fragment.end.clone());
                kept.push(RangeTombstone { start, end, sequence });
                match stripe.checked_sub(1) {
                    Some(older) => at = self.stripe_end(older),
                    None => break,
                }
            }
        }
        kept
    }
}

/// Judges entries in internal-key order.
#[derive(Debug)]
pub struct Rules<'a> {
    terms: &'a Terms,
    cover: Option<Cover>,
    below: Below,
    key: Vec<u8>,
    /// The stripe of the last version of `key` that hides older ones.
    hidden: Option<usize>,
    any: bool,
}

impl<'a> Rules<'a> {
    /// Rules under `terms`, with `below` under the output.
    pub fn new(terms: &'a Terms, below: Below) -> Self {
        let cover = (!terms.tombstones.is_empty()).then(|| Cover::new(Arc::clone(&terms.tombstones)));
        Self { terms, cover, below, key: Vec::new(), hidden: None, any: false }
    }

    /// What becomes of the next entry.
    ///
    /// # Errors
    /// `Corruption` if it has an unknown kind or lacks the expiry it announces.
    pub fn judge(&mut self, entry: &Entry<'_>) -> Result<Verdict> {
        if !self.any || self.key != entry.key {
            self.any = true;
            self.key.clear();
            self.key.extend_from_slice(entry.key);
            self.hidden = None;
        }
        let (kind, expired) = self.kind_of(entry)?;
        let stripe = self.terms.stripe(entry.sequence);
        if self.hidden == Some(stripe) {
            return Ok(Verdict::Drop(Why::Shadowed));
        }
        let end = self.terms.stripe_end(stripe);
        if self.cover.as_mut().is_some_and(|cover| cover.newest(entry.key, end) > entry.sequence) {
            return Ok(Verdict::Drop(Why::Covered));
        }
        if kind == Kind::Copy {
            if entry.repeated || self.terms.drops_copies {
                return Ok(Verdict::Drop(Why::Copy));
            }
            if expired && !seeded_bug!("expired-copy-is-kept") {
                return Ok(Verdict::Drop(Why::Expired));
            }
            if self.terms.routes_copies && !seeded_bug!("copy-hides-its-original") {
                return Ok(Verdict::Keep);
            }
        }
        self.hidden = Some(stripe);
        if kind != Kind::Deletion && !expired {
            return Ok(Verdict::Keep);
        }
        let guarded = entry.guarded && !seeded_bug!("deletion-dropped-above-a-copy");
        let needed = stripe > 0 || guarded || self.below.may_hold(entry.key);
        Ok(match (needed, expired) {
            (true, true) => Verdict::Delete,
            (true, false) => Verdict::Keep,
            (false, true) => Verdict::Drop(Why::Expired),
            (false, false) => Verdict::Drop(Why::Deletion),
        })
    }

    /// True if some range tombstone of the inputs, of whichever stripe, covers the version of the key judged last.
    pub fn is_covered(&mut self, key: &[u8], sequence: Sequence) -> bool {
        self.cover.as_mut().is_some_and(|cover| cover.newest(key, SEQUENCE_MAX) > sequence)
    }

    /// The kind of an entry, and whether it expired.
    fn kind_of(&self, entry: &Entry<'_>) -> Result<(Kind, bool)> {
        let kind = Kind::from_byte(entry.kind_byte).filter(|kind| *kind != Kind::RangeDeletion);
        let kind = kind.ok_or_else(|| {
            Error::new(ErrorKind::Corruption, "an entry has a kind this version does not know")
                .expected("1, 3 or 4", entry.kind_byte)
        })?;
        let (expiry, _) = split_expiry(entry.kind_byte, entry.stored)
            .ok_or_else(|| Error::new(ErrorKind::Corruption, "an entry that expires has no expiry"))?;
        Ok((kind, expiry.is_some_and(|expiry| expiry <= self.terms.now_ms)))
    }
}
