//! Which keys are claimed by compactions that write the slow tier. Tests: `tests.rs` beside.

use std::sync::Arc;

use bytes::Bytes;
use kelvin_base::{hash64, seeded_bug};

use crate::compaction::pick::Plan;
use crate::version::{FIRST_SLOW, TableFile};

/// A claim in force; [`super::PromotionCache::release`] ends it.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a claim that is not released keeps its range out of the cache for ever"]
pub struct ClaimId(u64);

#[derive(Clone, Debug)]
struct Range {
    smallest: Bytes,
    largest: Bytes,
    is_exclusive: bool,
}

impl Range {
    fn holds(&self, key: &[u8]) -> bool {
        let takes_last = !self.is_exclusive && !seeded_bug!("claim-without-its-last-key");
        self.smallest <= key && (self.largest > key || self.largest == key && takes_last)
    }
}

/// Where something newer may come down.
#[derive(Debug)]
struct Inside {
    range: Range,
    /// What comes down there.
    table: Arc<TableFile>,
}

impl Inside {
    /// False if nothing of `key`, whose hash is `hash`, can come down: the table's filter excludes it, and no range tombstone lies there. A table
    /// that is not open is not opened for that.
    fn may_bring(&self, key: &[u8], hash: u64) -> bool {
        let has_stones =
            self.table.meta.range_tombstones > 0 && !seeded_bug!("claim-forgets-range-tombstones");
        let may_contain = || self.table.if_open().is_none_or(|table| table.may_contain(hash));
        self.range.holds(key) && (has_stones || may_contain())
    }
}

/// For which keys a compaction that writes the slow tier changes something there.
#[derive(Debug)]
pub struct Scope {
    inside: Vec<Inside>,
    /// All that is written anew. What lies there and not inside is moved: of what expires it may be that nothing is left.
    whole: Range,
}

impl Scope {
    /// What `plan` changes: something newer may come down within the range of each table that it takes from the fast levels.
    pub(super) fn of(plan: &Plan) -> Self {
        let range = |smallest: &Bytes, largest: &Bytes, is_exclusive| Range {
            smallest: smallest.clone(),
            largest: largest.clone(),
            is_exclusive,
        };
        let whole = range(&plan.smallest, &plan.largest, false);
        let fast = plan.tables().filter(|(level, _)| *level < FIRST_SLOW).map(|(_, file)| file);
        let inside = |file: &Arc<TableFile>| {
            let range = range(&file.meta.smallest, &file.meta.largest, file.meta.largest_exclusive);
            Inside { range, table: Arc::clone(file) }
        };
        Self { inside: fast.map(inside).collect(), whole }
    }

    /// True if it changes something for `key`, as far as ranges tell; of the key there is a record that expires or does not.
    pub(super) fn covers(&self, key: &[u8], expires: bool) -> bool {
        self.comes_down(key) || self.moves(key, expires)
    }

    /// True if something newer than what is there may come down for `key`, as far as ranges tell.
    pub(super) fn comes_down(&self, key: &[u8]) -> bool {
        let beyond = || seeded_bug!("promotion-beyond-the-fast-input") && self.whole.holds(key);
        self.inside.iter().any(|inside| inside.range.holds(key)) || beyond()
    }

    /// True if it may change something for `key`.
    fn changes(&self, key: &[u8], expires: bool) -> bool {
        let hash = hash64(key);
        self.inside.iter().any(|inside| inside.may_bring(key, hash)) || self.moves(key, expires)
    }

    /// True if it may drop a record that expires.
    fn moves(&self, key: &[u8], expires: bool) -> bool {
        let may_go = expires && !seeded_bug!("what-expires-is-not-claimed-where-it-moves");
        may_go && self.whole.holds(key)
    }
}

#[derive(Debug)]
struct Claim {
    id: u64,
    scope: Arc<Scope>,
    /// All other claims that were in force at some time while this one was.
    met: Vec<Arc<Scope>>,
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

    /// A new claim.
    pub(super) fn begin(&mut self, scope: &Arc<Scope>) -> ClaimId {
        self.last_id += 1;
        let mut met = Vec::with_capacity(self.in_force.len());
        for other in &mut self.in_force {
            other.met.push(Arc::clone(scope));
            met.push(Arc::clone(&other.scope));
        }
        self.in_force.push(Claim { id: self.last_id, scope: Arc::clone(scope), met });
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

    /// True if a claim keeps out a record of `key`, which expires or does not.
    pub(super) fn keep_out(&self, key: &[u8], expires: bool) -> bool {
        self.closed || self.in_force.iter().any(|claim| claim.scope.changes(key, expires))
    }

    /// True if one claim covers it, and no other did as long as it has been in force.
    pub(super) fn cover_once(&self, key: &[u8], expires: bool) -> bool {
        // Of two that cover it each has met the other.
        let covering = self.in_force.iter().find(|claim| claim.scope.covers(key, expires));
        let alone = |claim: &Claim| !claim.met.iter().any(|scope| scope.covers(key, expires));
        !self.closed && covering.is_some_and(alone)
    }
}
