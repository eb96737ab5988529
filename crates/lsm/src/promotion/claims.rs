//! Which key ranges are claimed by compactions that write the slow tier. Tests: `tests.rs` beside.

use bytes::Bytes;
use kelvin_base::seeded_bug;

/// A claim in force; [`super::PromotionCache::release`] ends it.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a claim that is not released keeps its range out of the cache for ever"]
pub struct ClaimId(u64);

#[derive(Clone, Debug)]
struct Range {
    smallest: Bytes,
    /// `None` for no end.
    largest: Option<Bytes>,
}

impl Range {
    fn holds(&self, key: &[u8]) -> bool {
        let is_before_the_end = |largest: &Bytes| {
            key < largest.as_ref() || key == largest.as_ref() && !seeded_bug!("claim-without-its-last-key")
        };
        self.smallest.as_ref() <= key && self.largest.as_ref().is_none_or(is_before_the_end)
    }
}

#[derive(Debug)]
struct Claim {
    id: u64,
    range: Range,
    /// The ranges of all other claims that were in force at some time while this one was.
    met: Vec<Range>,
}

/// The claims in force.
#[derive(Debug, Default)]
pub(super) struct Claims {
    last_id: u64,
    in_force: Vec<Claim>,
    /// Everything is claimed, for ever.
    closed: bool,
}

impl Claims {
    /// The claim of a cache that is switched off.
    pub(super) const NONE: ClaimId = ClaimId(0);

    /// A new claim of `[smallest, largest]`; `None` for no end.
    pub(super) fn begin(&mut self, smallest: &[u8], largest: Option<&[u8]>) -> ClaimId {
        let bytes = Bytes::copy_from_slice;
        let range = Range { smallest: bytes(smallest), largest: largest.map(bytes) };
        self.last_id += 1;
        let mut met = Vec::with_capacity(self.in_force.len());
        for other in &mut self.in_force {
            other.met.push(range.clone());
            met.push(other.range.clone());
        }
        self.in_force.push(Claim { id: self.last_id, range, met });
        ClaimId(self.last_id)
    }

    /// Ends a claim.
    #[expect(clippy::needless_pass_by_value, reason = "a claim ends once")]
    pub(super) fn end(&mut self, claim: ClaimId) {
        self.in_force.retain(|one| one.id != claim.0);
    }

    /// Claims everything, for ever.
    pub(super) const fn close(&mut self) {
        self.closed = true;
    }

    /// True if a claim covers `key`.
    pub(super) fn cover(&self, key: &[u8]) -> bool {
        self.closed || self.in_force.iter().any(|claim| claim.range.holds(key))
    }

    /// True if one claim covers `key`, and no other did as long as it has been in force.
    pub(super) fn cover_once(&self, key: &[u8]) -> bool {
        // Of two that cover it each has met the other.
        let covering = self.in_force.iter().find(|claim| claim.range.holds(key));
        let alone = |claim: &Claim| !claim.met.iter().any(|range| range.holds(key));
        !self.closed && covering.is_some_and(alone)
    }
}
