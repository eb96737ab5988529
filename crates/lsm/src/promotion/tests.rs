//! The cache by itself: claims, what comes back of them, the locks, the room.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use kelvin_base::key::EXPIRES;
use kelvin_base::{Kind, Tier, hash64};

use super::cache::Insertion::{AbandonedCompacted, AbandonedLock, Inserted, Present, RefusedFull};
use super::claims::{ClaimId, Scope};
use super::*;
use crate::compaction::pick::{Plan, Reason};
use crate::memory::{MemoryBudget, MemoryPart, Yielding};
use crate::options::Options;
use crate::version::tests::{NoTables, meta};
use crate::version::{FIRST_SLOW, LEVELS_FAST, TableFile, TableOpener};

const LIMIT_BYTES: u64 = 1 << 20;

struct Rig {
    memory: MemoryBudget,
    room: Arc<Room>,
    cache: PromotionCache,
}

impl Rig {
    fn new() -> Self {
        let memory = MemoryBudget::new(&Options::new("/fast").memory(64 << 20).derive().unwrap());
        let room = Room::new(LIMIT_BYTES, &memory).unwrap();
        let cache = PromotionCache::new(Some(&room));
        Self { memory, room, cache }
    }

    fn with(keys: RangeInclusive<char>) -> Self {
        let rig = Self::new();
        keys.for_each(|key| assert_eq!(rig.insert(key), Inserted));
        rig
    }

    fn insert(&self, key: char) -> Insertion {
        self.cache.insert(bytes(key).as_ref(), record(key), || true)
    }

    /// Claims for a compaction that brings something down for these keys.
    fn claim(&self, first: char, last: char) -> (ClaimId, Vec<(Bytes, Promoted)>) {
        let plan = plan_of(&[(LEVELS_FAST - 1, &[(first, last)])]);
        self.cache.claim(Arc::new(Scope::of(&plan)))
    }

    /// The keys it holds.
    fn keys(&self) -> String {
        ('a'..='z').filter(|&key| self.get(key, u64::from(key)).is_some()).collect()
    }

    fn get(&self, key: char, at: u64) -> Option<Promoted> {
        self.cache.get(bytes(key).as_ref(), hash64(&bytes(key)), at)
    }

    fn charged(&self) -> u64 {
        self.memory.used(MemoryPart::Promotion)
    }
}

fn bytes(key: char) -> Bytes {
    key.to_string().into()
}

/// A plan that takes tables of these ranges from these levels, and writes the slow tier.
pub(super) fn plan_of(inputs: &[(usize, &[(char, char)])]) -> Plan {
    let opener: Arc<dyn TableOpener> = Arc::new(NoTables::default());
    let table = |&(first, last): &(char, char)| {
        let facts = meta(1, &first.to_string(), &last.to_string());
        Arc::new(TableFile::new(facts, Arc::clone(&opener)))
    };
    let inputs = inputs.iter().map(|(level, ranges)| (*level, ranges.iter().map(table).collect())).collect();
    let mut plan = Plan { inputs, ..Plan::new(0, Reason::Size, FIRST_SLOW, Tier::Slow) };
    let metas = || plan.tables().map(|(_, file)| &file.meta);
    let smallest = metas().map(|meta| meta.smallest.clone()).min().unwrap();
    let largest = metas().map(|meta| meta.largest.clone()).max().unwrap();
    (plan.smallest, plan.largest) = (smallest, largest);
    plan
}

/// A record whose sequence number is its key.
pub(super) fn record(key: char) -> Promoted {
    let stored = key.to_string().into();
    Promoted { sequence: key.into(), kind_byte: Kind::Copy as u8, stored, was_hot: true }
}

fn names(taken: &[(Bytes, Promoted)]) -> String {
    taken.iter().map(|(key, _)| std::str::from_utf8(key).unwrap()).collect()
}

#[test]
fn a_record_answers_readers_who_may_see_it() {
    let rig = Rig::with('b'..='d');
    assert_eq!(rig.keys(), "bcd");
    assert_eq!(rig.get('c', u64::from('c')), Some(record('c')));
    assert_eq!(rig.get('c', u64::from('c') - 1), None, "newer than the reader's moment");
    assert_eq!((rig.insert('c'), rig.cache.records()), (Present, 3));
}

#[test]
fn a_claim_takes_its_range_out_in_order_and_keeps_it_out_until_it_is_released() {
    let rig = Rig::with('a'..='h');
    let (claim, taken) = rig.claim('c', 'f');
    assert_eq!((names(&taken), rig.keys(), rig.cache.records()), ("cdef".into(), "abgh".into(), 4));
    assert_eq!(taken[0].1, record('c'));
    assert_eq!(['c', 'e', 'f'].map(|key| rig.insert(key)), [AbandonedCompacted; 3]);
    assert_eq!(rig.insert('i'), Inserted, "beside the range");
    rig.cache.release(claim);
    assert_eq!((rig.insert('e'), rig.keys()), (Inserted, "abeghi".into()));
}

#[test]
fn of_two_claims_that_overlap_each_keeps_its_own_range_out() {
    let rig = Rig::with('a'..='h');
    let (first, taken) = rig.claim('a', 'e');
    let (second, rest) = rig.claim('c', 'g');
    assert_eq!((names(&taken), names(&rest)), ("abcde".into(), "fg".into()));
    rig.cache.release(first);
    assert_eq!(
        ['b', 'd', 'f'].map(|key| rig.insert(key)),
        [Inserted, AbandonedCompacted, AbandonedCompacted]
    );
    rig.cache.release(second);
    assert_eq!(['d', 'f'].map(|key| rig.insert(key)), [Inserted, Inserted]);
}

#[test]
fn where_a_compaction_only_moves_records_it_claims_what_expires() {
    let rig = Rig::with('a'..='h');
    let expiring = |key: char| Promoted { kind_byte: Kind::Copy as u8 | EXPIRES, ..record(key) };
    let insert = |key: char| rig.cache.insert(&bytes(key), expiring(key), || true);
    assert_eq!(['l', 'm', 'n'].map(insert), [Inserted; 3]);
    let plan = plan_of(&[(LEVELS_FAST - 1, &[('c', 'd'), ('f', 'f')]), (FIRST_SLOW, &[('b', 'm')])]);
    let (claim, taken) = rig.cache.claim(Arc::new(Scope::of(&plan)));
    assert_eq!((names(&taken), rig.keys()), ("cdflm".into(), "abeghn".into()));
    assert_eq!(['c', 'd', 'f'].map(|key| rig.insert(key)), [AbandonedCompacted; 3]);
    assert_eq!(['e', 'k', 'b'].map(|key| rig.insert(key)), [Present, Inserted, Present]);
    assert_eq!(
        ['i', 'l', 'm', 'o'].map(insert),
        [AbandonedCompacted, AbandonedCompacted, AbandonedCompacted, Inserted]
    );
    // A compaction that moves all of it meanwhile, and no other that brings something down.
    let moves = plan_of(&[(FIRST_SLOW, &[('a', 'z')])]);
    let (other, rest) = rig.cache.claim(Arc::new(Scope::of(&moves)));
    assert_eq!(names(&rest), "no");
    assert_eq!((rig.cache.put_back(taken), rig.keys()), (3, "abcdefghk".into()), "and not what expires");
    rig.cache.release(other);
    rig.cache.release(claim);
}

#[test]
fn what_a_failed_compaction_took_comes_back() {
    let rig = Rig::with('a'..='h');
    let charged = rig.charged();
    let (claim, taken) = rig.claim('c', 'f');
    assert_eq!(rig.cache.put_back(taken), 4);
    assert_eq!(rig.insert('g'), Present);
    rig.cache.release(claim);
    assert_eq!((rig.keys(), rig.charged()), ("abcdefgh".into(), charged));
}

#[test]
fn what_another_claim_covered_meanwhile_does_not_come_back() {
    for (late, ended) in [(false, false), (false, true), (true, false), (true, true)] {
        let rig = Rig::with('a'..='h');
        let mut other = (!late).then(|| rig.claim('e', 'z').0);
        let (claim, taken) = rig.claim('a', 'f');
        let other = other.take().unwrap_or_else(|| rig.claim('e', 'z').0);
        let mut still = Some(other);
        if ended {
            rig.cache.release(still.take().unwrap());
        }
        // With the other claim first, what it shares with this one was its own.
        let wanted = if late { "abcdef" } else { "abcd" };
        assert_eq!((names(&taken), rig.cache.put_back(taken)), (wanted.into(), 4), "{late} {ended}");
        assert_eq!(rig.keys(), "abcd", "{late} {ended}");
        rig.cache.release(claim);
        still.into_iter().for_each(|other| rig.cache.release(other));
    }
    let rig = Rig::with('a'..='c');
    let (claim, taken) = rig.claim('a', 'c');
    rig.cache.release(claim);
    assert_eq!(
        (rig.cache.put_back(taken), rig.keys()),
        (0, String::new()),
        "too late: anything may have come down"
    );
}

/// A block cache that notes whether a claim would have to wait while it makes room for records.
#[derive(Debug, Default)]
struct Witness {
    cache: OnceLock<Weak<PromotionCache>>,
    gate_was_held: AtomicBool,
}

impl Yielding for Witness {
    fn set_capacity(&self, _bytes: u64) {
        let is_held = self.cache.get().and_then(Weak::upgrade).is_some_and(|cache| cache.gate_is_held());
        self.gate_was_held.store(is_held, Ordering::Relaxed);
    }

    fn used_bytes(&self) -> u64 {
        0
    }
}

#[test]
fn no_claim_comes_between_the_look_and_the_insertion() {
    let rig = Rig::new();
    let cache = Arc::new(PromotionCache::new(Some(&rig.room)));
    let witness = Arc::new(Witness::default());
    witness.cache.set(Arc::downgrade(&cache)).unwrap();
    rig.memory.yields(Arc::clone(&witness) as _);
    let insertion = cache.insert(b"k", record('k'), || {
        assert!(cache.gate_is_held(), "during the look");
        true
    });
    assert!(witness.gate_was_held.load(Ordering::Relaxed), "when memory was taken, after the look");
    assert_eq!((insertion, cache.gate_is_held()), (Inserted, false));
    assert_eq!(cache.insert(b"m", record('m'), || false), AbandonedCompacted);
    assert_eq!(cache.records(), 1);
}

#[test]
fn an_insertion_waits_for_nobody() {
    let rig = Rig::with('a'..='a');
    rig.cache.with_gate_taken(|| assert_eq!(rig.insert('b'), AbandonedLock));
    rig.cache.with_shards_taken(|| assert_eq!(rig.insert('b'), AbandonedLock));
    rig.room.with_account_taken(|| assert_eq!(rig.insert('b'), AbandonedLock));
    assert_eq!((rig.keys(), rig.insert('b')), ("a".into(), Inserted));
}

#[test]
fn its_room_has_an_end_and_is_shared_by_all_caches() {
    let rig = Rig::new();
    let other = PromotionCache::new(Some(&rig.room));
    let large = |key: char| Promoted { stored: vec![0; 100 << 10].into(), ..record(key) };
    let fits = ('a'..='z')
        .filter(|&key| {
            let cache = if u64::from(key) % 2 == 0 { &rig.cache } else { &other };
            let insertion = cache.insert(&bytes(key), large(key), || true);
            assert!(insertion == Inserted || insertion == RefusedFull);
            assert!(rig.room.used_bytes() <= rig.charged() && rig.charged() <= LIMIT_BYTES);
            insertion == Inserted
        })
        .count();
    assert_eq!((fits, rig.cache.records() + other.records()), (10, 10));
    let (claim, taken) = rig.claim('a', 'z');
    assert_eq!(taken.len(), rig.cache.put_back(taken), "its own room was free again");
    rig.cache.release(claim);
    assert_eq!(rig.insert('0'), Inserted, "a small one still fits");
    rig.cache.close();
    other.close();
    assert_eq!((rig.room.used_bytes(), rig.charged()), (0, 0));
}

#[test]
fn what_is_frozen_answers_until_it_thaws_and_keeps_nobody_out() {
    let rig = Rig::with('a'..='e');
    let frozen = rig.cache.freeze();
    assert_eq!((names(&frozen), rig.keys(), rig.cache.records()), ("abcde".into(), "abcde".into(), 5));
    assert_eq!(rig.get('c', u64::from('c') - 1), None, "newer than the reader's moment");
    assert_eq!((rig.room.used_bytes(), rig.charged()), (0, 0), "its room is for what comes now");
    assert_eq!(['c', 'f', 'f'].map(|key| rig.insert(key)), [Present, Inserted, Present]);
    assert_eq!(rig.cache.contents().len(), rig.cache.records());
    assert_eq!((rig.cache.thaw(Vec::new()), rig.keys(), rig.cache.records()), (0, "f".into(), 1));
    assert_eq!((rig.insert('c'), rig.keys()), (Inserted, "cf".into()));
}

#[test]
fn what_was_frozen_in_vain_comes_back() {
    let rig = Rig::with('a'..='e');
    let charged = rig.charged();
    let frozen = rig.cache.freeze();
    assert_eq!((rig.cache.thaw(frozen.to_vec()), rig.keys()), (5, "abcde".into()));
    assert_eq!((rig.charged(), rig.cache.records()), (charged, 5));
    let frozen = rig.cache.freeze();
    assert_eq!((rig.cache.thaw(frozen[1..3].to_vec()), rig.keys(), rig.cache.records()), (2, "bc".into(), 2));
}

#[test]
fn a_claim_takes_out_what_is_frozen_and_it_does_not_come_back() {
    let rig = Rig::with('a'..='e');
    let frozen = rig.cache.freeze();
    let (claim, taken) = rig.claim('b', 'c');
    assert_eq!((names(&taken), rig.keys(), rig.cache.records()), (String::new(), "ade".into(), 3));
    assert_eq!(rig.cache.thaw(frozen.to_vec()), 3, "while the claim is in force");
    rig.cache.release(claim);
    let frozen = rig.cache.freeze();
    let (claim, _) = rig.claim('d', 'd');
    rig.cache.release(claim);
    assert_eq!((rig.cache.thaw(frozen.to_vec()), rig.keys()), (2, "ae".into()), "after it");
    let frozen = rig.cache.freeze();
    rig.cache.close();
    assert_eq!((rig.cache.thaw(frozen.to_vec()), rig.cache.records(), rig.charged()), (0, 0, 0));
}

#[test]
fn a_closed_cache_takes_nothing_any_more() {
    let rig = Rig::with('a'..='c');
    let (claim, taken) = rig.claim('a', 'b');
    rig.cache.close();
    assert_eq!((rig.insert('x'), rig.cache.put_back(taken)), (AbandonedCompacted, 0));
    rig.cache.release(claim);
    assert_eq!((rig.insert('x'), rig.cache.records(), rig.room.used_bytes()), (AbandonedCompacted, 0, 0));
}

#[test]
fn a_cache_that_is_off_holds_nothing() {
    let cache = PromotionCache::OFF;
    assert_eq!(cache.insert(b"a", record('a'), || true), RefusedFull);
    let (claim, taken) = cache.claim(Arc::new(Scope::of(&plan_of(&[(FIRST_SLOW, &[('a', 'z')])]))));
    assert!(taken.is_empty() && cache.freeze().is_empty() && !cache.is_on());
    cache.release(claim);
    assert_eq!((cache.thaw(vec![(bytes('a'), record('a'))]), cache.records()), (0, 0));
    assert_eq!((cache.get(b"a", hash64(b"a"), u64::MAX), cache.records()), (None, 0));
}
