//! The map behind the promotion cache, and who may change it when. Invariants and proof: `mod.rs` beside.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use kelvin_base::key::EXPIRES;
use kelvin_base::sync::atomic::{AtomicUsize, Ordering};
use kelvin_base::sync::{Published, RwLock};
use kelvin_base::{Sequence, hash64, seeded_bug};

use super::claimed::Records;
use super::claims::{ClaimId, Claims, Scope};
use super::lifted::Lifted;
use super::room::{NoRoom, Room};

/// Maps with a lock each; few in a model, which tries every order of their locks.
const SHARDS: usize = if cfg!(loom) { 2 } else { 16 };

/// What a record takes beside its key and value: its slots in a map about two thirds full, two allocations.
pub(super) const RECORD_BYTES: u64 = 192;

/// A record read from the slow tier, as an entry that duplicates its original.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promoted {
    /// The original's sequence number.
    pub sequence: Sequence,
    /// [`Kind::Copy`](kelvin_base::Kind::Copy), with [`EXPIRES`] if it expires.
    pub kind_byte: u8,
    /// The value as it is stored, the expiry before it.
    pub stored: Bytes,
    /// Its key was hot before the read that found it.
    pub was_hot: bool,
}

impl Promoted {
    /// True if there is a time at which it ends.
    pub(super) const fn expires(&self) -> bool {
        self.kind_byte & EXPIRES != 0
    }
}

/// What became of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// The record is in the cache.
    Inserted,
    /// It was there.
    Present,
    /// A lock was busy.
    AbandonedLock,
    /// A compaction changes the key's tables on the slow tier, or did since they were read.
    AbandonedCompacted,
    /// The memory for it is used up.
    RefusedFull,
}

type Shard = RwLock<HashMap<Bytes, Promoted>>;

struct Cache {
    room: Arc<Room>,
    /// Shared: to insert. Exclusive: to make and to end a claim.
    gate: RwLock<Claims>,
    shards: [Shard; SHARDS],
    /// What is being promoted by flush, in key order; until that has ended it answers as the rest does.
    frozen: Published<Option<Arc<Records>>>,
    /// In both parts.
    records: AtomicUsize,
}

/// The promotion cache of a keyspace.
pub struct PromotionCache(Option<Box<Cache>>);

impl PromotionCache {
    /// A cache that is switched off.
    pub const OFF: Self = Self(None);

    /// A cache in `room`; without any it is switched off: it holds nothing, and asking it costs one branch.
    #[must_use]
    pub fn new(room: Option<&Arc<Room>>) -> Self {
        Self(room.map(|room| {
            Box::new(Cache {
                room: Arc::clone(room),
                gate: RwLock::default(),
                shards: Default::default(),
                frozen: Published::new(None),
                records: AtomicUsize::new(0),
            })
        }))
    }

    /// False if it is switched off.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// How many records it holds.
    #[must_use]
    pub fn records(&self) -> usize {
        self.0.as_ref().map_or(0, |cache| cache.records.load(Ordering::Relaxed))
    }

    /// The record of `key`, whose hash is `hash`, unless it is newer than `at`.
    #[must_use]
    pub fn get(&self, key: &[u8], hash: u64, at: Sequence) -> Option<Promoted> {
        let cache = self.0.as_ref()?;
        if cache.records.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let found = cache.shard(hash).read().get(key).cloned();
        found
            .or_else(|| cache.frozen(key))
            .filter(|record| record.sequence <= at || seeded_bug!("cache-serves-older-snapshots"))
    }

    /// Inserts what a reader found for `key` in the slow part of its view. `is_unchanged` says whether the tables that
    /// may hold the key there are still the same; no claim can come into force between its answer and the insertion.
    /// Waits for nobody.
    pub fn insert(&self, key: &[u8], record: Promoted, is_unchanged: impl FnOnce() -> bool) -> Insertion {
        let Some(cache) = &self.0 else { return Insertion::RefusedFull };
        let Some(claims) = cache.gate.try_read() else { return Insertion::AbandonedLock };
        let is_claimed = claims.keep_out(key, record.expires()) && !seeded_bug!("insertion-under-a-claim");
        if is_claimed || !(is_unchanged() || seeded_bug!("insertion-of-what-was-compacted")) {
            return Insertion::AbandonedCompacted;
        }
        if seeded_bug!("gate-left-after-the-look") {
            drop(claims);
        }
        let Some(mut shard) = cache.shard(hash64(key)).try_write() else { return Insertion::AbandonedLock };
        if let Some(present) = shard.get(key).cloned().or_else(|| cache.frozen(key)) {
            debug_assert_eq!(present.sequence, record.sequence, "the slow part has one answer");
            return Insertion::Present;
        }
        match cache.room.try_take(bytes_of(key, &record)) {
            Err(NoRoom::Full) => return Insertion::RefusedFull,
            Err(NoRoom::Busy) => return Insertion::AbandonedLock,
            Ok(()) => {}
        }
        // Only what is kept is copied: what was read is part of a whole block.
        let stored = Bytes::copy_from_slice(&record.stored);
        shard.insert(Bytes::copy_from_slice(key), Promoted { stored, ..record });
        cache.records.fetch_add(1, Ordering::Relaxed);
        Insertion::Inserted
    }

    /// Claims what a compaction that writes the slow tier changes, before it starts: takes out all records that `scope` covers, in key order, and
    /// keeps new ones out until [`Self::release`], but those of keys of which nothing can come down. What was taken may be dropped at any time.
    pub fn claim(&self, scope: Arc<Scope>) -> (ClaimId, Records) {
        let Some(cache) = &self.0 else { return (Claims::NONE, Vec::new()) };
        let claim = cache.gate.write().begin(&scope);
        // Whoever inserted before has done so, and nobody inserts any more what may change.
        let mut taken = cache.take_out(|key, record| {
            scope.covers(key, record.expires()) && !seeded_bug!("claim-takes-nothing-out")
        });
        cache.let_go(|key, record| {
            scope.covers(key, record.expires()) && !seeded_bug!("claim-leaves-what-is-frozen")
        });
        taken.sort_by(|(a, _), (b, _)| a.cmp(b));
        (claim, taken)
    }

    /// Makes all it holds immutable, for a promotion by flush, which no compaction that writes the slow tier may begin beside; in key order. Until
    /// [`Self::thaw`] that answers readers, while its room is for what they find meanwhile. (For a moment, on its way, it does not answer.)
    pub fn freeze(&self) -> Arc<Records> {
        let Some(cache) = &self.0 else { return Arc::default() };
        let mut all: Records =
            cache.shards.iter().flat_map(|shard| std::mem::take(&mut *shard.write())).collect();
        all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        cache.room.give(all.iter().map(|(key, record)| bytes_of(key, record)).sum());
        let all = Arc::new(all);
        let before = cache.frozen.swap(Some(Arc::clone(&all)));
        debug_assert!(before.is_none(), "one promotion at a time");
        all
    }

    /// Ends what [`Self::freeze`] began: `back` is mutable again, but for what a claim took out meanwhile, the rest is let go. How many came back.
    pub fn thaw(&self, back: Records) -> usize {
        let Some(cache) = &self.0 else { return 0 };
        // No claim comes into force before it is seen where the claim takes it out.
        let claims = cache.gate.read();
        let stays = |(key, record): &(Bytes, Promoted)| {
            let is_left = cache.frozen(key).is_some() || seeded_bug!("thaw-of-what-a-claim-took");
            is_left && !claims.keep_out(key, record.expires()) && cache.room.take(bytes_of(key, record))
        };
        let count = cache.put_in(back.into_iter().filter(stays));
        cache.let_go(|_, _| true);
        count
    }

    /// Collects what a compaction hands up; `None` if the cache is switched off.
    pub fn lifting(&self) -> Option<Lifted> {
        self.0.as_ref().map(|cache| Lifted::new(&cache.room))
    }

    /// Ends a claim, after the install of its compaction or after its failure.
    pub fn release(&self, claim: ClaimId) {
        if let Some(cache) = &self.0 {
            cache.gate.write().end(claim);
        }
    }

    /// Puts back what the claim of a compaction took that has failed and installed nothing; to be called before the claim
    /// is released. Records whose keys another claim covered meanwhile are dropped: what that one's compaction brought down
    /// is not known here. How many came back.
    pub fn put_back(&self, taken: Vec<(Bytes, Promoted)>) -> usize {
        let Some(cache) = &self.0 else { return 0 };
        let fits = |(key, record): &(Bytes, Promoted)| cache.room.take(bytes_of(key, record));
        cache.put(taken.into_iter().filter(fits))
    }

    /// Puts in what a compaction that is installed handed up, as [`Self::put_back`] does; its room was taken before.
    pub fn put_lifted(&self, lifted: &Lifted) {
        if let Some(cache) = &self.0 {
            cache.put(lifted.take_out().into_iter());
        }
    }

    /// True if a claim would have to wait.
    #[cfg(test)]
    pub(super) fn gate_is_held(&self) -> bool {
        self.0.as_ref().is_some_and(|cache| cache.gate.try_write().is_none())
    }

    /// Runs `then` while a claim is being made.
    #[cfg(test)]
    pub(super) fn with_gate_taken(&self, then: impl FnOnce()) {
        let _taken = self.0.as_ref().map(|cache| cache.gate.write());
        then();
    }

    /// Runs `then` while others change every shard.
    #[cfg(test)]
    pub(super) fn with_shards_taken(&self, then: impl FnOnce()) {
        let _taken: Vec<_> = self.0.iter().flat_map(|cache| &cache.shards).map(RwLock::write).collect();
        then();
    }

    /// Everything it holds, for audits.
    pub(crate) fn contents(&self) -> Vec<(Bytes, Promoted)> {
        let Some(cache) = &self.0 else { return Vec::new() };
        let frozen = cache.frozen.load_full().map(Arc::unwrap_or_clone).unwrap_or_default();
        cache.shards.iter().flat_map(|shard| shard.read().clone()).chain(frozen).collect()
    }

    /// Empties it for good: its keyspace was dropped.
    pub fn close(&self) {
        if let Some(cache) = &self.0 {
            cache.gate.write().close();
            drop(cache.take_out(|_, _| true));
            cache.let_go(|_, _| true);
        }
    }
}

impl Cache {
    fn shard(&self, hash: u64) -> &Shard {
        // The maps hash the key again, so any bits will do.
        &self.shards[usize::from(hash.to_le_bytes()[0]) % SHARDS]
    }

    /// The record of `key` that is being promoted by flush.
    fn frozen(&self, key: &[u8]) -> Option<Promoted> {
        let frozen = self.frozen.load();
        let records = frozen.as_ref()?;
        let at = records.binary_search_by(|(other, _)| other.as_ref().cmp(key)).ok()?;
        records.get(at).map(|(_, record)| record.clone())
    }

    /// Takes out of what is frozen what `goes`.
    fn let_go(&self, goes: impl Fn(&[u8], &Promoted) -> bool) {
        let stays = |(key, record): &&(Bytes, Promoted)| !goes(key, record);
        let count = |records: &Option<Arc<Records>>| records.as_ref().map_or(0, |records| records.len());
        let mut after = 0;
        let before = self.frozen.update(|records| {
            let rest: Option<Records> =
                records.as_ref().map(|all| all.iter().filter(stays).cloned().collect());
            let rest = rest.filter(|rest| !rest.is_empty()).map(Arc::new);
            after = count(&rest);
            rest
        });
        self.records.fetch_sub(count(&before) - after, Ordering::Relaxed);
    }

    /// Puts in `records`, whose room is taken, as far as one claim covers their keys, no other did meanwhile, and no reader has found them again. How
    /// many.
    fn put(&self, records: impl Iterator<Item = (Bytes, Promoted)>) -> usize {
        let claims = self.gate.read();
        self.put_in(records.filter(|(key, record)| {
            let fits = claims.cover_once(key, record.expires()) || seeded_bug!("put-back-without-the-check");
            if !fits {
                self.room.give(bytes_of(key, record));
            }
            fits
        }))
    }

    /// Puts in `records`, whose room is taken, but for those that readers have found again. How many.
    fn put_in(&self, records: impl Iterator<Item = (Bytes, Promoted)>) -> usize {
        let mut count = 0;
        for (key, record) in records {
            match self.shard(hash64(&key)).write().entry(key) {
                Entry::Vacant(free) => free.insert(record),
                Entry::Occupied(present) => {
                    debug_assert_eq!(present.get().sequence, record.sequence, "the slow part has one answer");
                    self.room.give(bytes_of(present.key(), &record));
                    continue;
                }
            };
            self.records.fetch_add(1, Ordering::Relaxed);
            count += 1;
        }
        count
    }

    /// Takes out the records that are `wanted`. Readers wait only while records leave, not for the search.
    fn take_out(&self, wanted: impl Fn(&[u8], &Promoted) -> bool) -> Vec<(Bytes, Promoted)> {
        let mut taken = Vec::new();
        for shard in &self.shards {
            let is_wanted = |(key, record): &(&Bytes, &Promoted)| wanted(key, record);
            let keys: Vec<Bytes> =
                shard.read().iter().filter(is_wanted).map(|(key, _)| key.clone()).collect();
            if !keys.is_empty() {
                let mut shard = shard.write();
                taken.extend(keys.iter().filter_map(|key| shard.remove_entry(key)));
            }
        }
        self.records.fetch_sub(taken.len(), Ordering::Relaxed);
        if !seeded_bug!("room-is-not-given-back") {
            self.room.give(taken.iter().map(|(key, record)| bytes_of(key, record)).sum());
        }
        taken
    }
}

/// What a record takes of the room.
pub(super) fn bytes_of(key: &[u8], record: &Promoted) -> u64 {
    key.len() as u64 + record.stored.len() as u64 + RECORD_BYTES
}

impl fmt::Debug for PromotionCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PromotionCache").field("on", &self.is_on()).field("records", &self.records()).finish()
    }
}
