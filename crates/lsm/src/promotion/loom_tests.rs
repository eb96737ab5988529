//! Model tests of the promotion cache (`cargo xtask loom`): insertions, claims, compactions that install or fail, and promotions by flush
//! in every order of their steps. Each was seen to fail with the seeded bugs that its name is about.

use std::sync::Arc;

use kelvin_base::sync::{Mutex, model};
use kelvin_base::{SEQUENCE_MAX, Tier, hash64};
use loom::thread;

use super::cache::bytes_of;
use super::tests::{plan_of, record};
use super::{Claimed, Promoted, PromotionCache, Room};
use crate::after_read::LatestRead;
use crate::compaction::pick::Plan;
use crate::memory::MemoryBudget;
use crate::memtable::MemTable;
use crate::options::{Config, Options};
use crate::schedule::Work;
use crate::version::tests::{NoTables, meta};
use crate::version::{FIRST_SLOW, LEVELS_FAST, TableFile, TableMeta, TableOpener, Version};
use crate::view::{KeyspaceState, View};

const KEY: &[u8] = b"k";

/// A keyspace whose slow part is one table; what it answers for the key has the table's number as its sequence number.
struct Rig {
    memory: MemoryBudget,
    room: Arc<Room>,
    keyspace: Arc<KeyspaceState>,
}

fn version(number: u64) -> Arc<Version> {
    let opener: Arc<dyn TableOpener> = Arc::new(NoTables::default());
    let facts = TableMeta { tier: Tier::Slow, ..meta(number, "a", "z") };
    let mut tables: [Vec<_>; crate::version::LEVELS] = Default::default();
    tables[FIRST_SLOW].push(Arc::new(TableFile::new(facts, opener)));
    Arc::new(Version::new(1, tables, true).unwrap())
}

fn found(number: u64) -> Promoted {
    Promoted { sequence: number, ..record('v') }
}

impl Rig {
    fn new(config: &Config) -> Self {
        let memory = MemoryBudget::new(config);
        let room = Room::new(1 << 20, &memory).unwrap();
        let view = View { mem: Arc::new(MemTable::new(1, 1)), imms: Vec::new(), version: version(1) };
        let keyspace = KeyspaceState::new(1, "one".into(), view, PromotionCache::new(Some(&room)));
        Self { memory, room, keyspace: Arc::new(keyspace) }
    }

    /// With what the slow part answers in the cache.
    fn filled(config: &Config) -> Self {
        let rig = Self::new(config);
        rig.keyspace.promotion.insert(KEY, found(1), || true);
        assert_eq!(rig.keyspace.promotion.records(), 1);
        rig
    }

    fn plan(&self) -> Plan {
        plan_of(&[(LEVELS_FAST - 1, &[('a', 'z')])])
    }

    fn claimed(&self) -> Claimed {
        Claimed::of(&self.keyspace, &self.plan(), &self.memory).unwrap()
    }

    /// A compaction brings something newer down.
    fn compact(&self, number: u64) {
        let claimed = self.claimed();
        self.install(number);
        claimed.end(Some(true));
    }

    fn install(&self, number: u64) {
        self.keyspace.change_view(|view| View {
            mem: Arc::clone(&view.mem),
            imms: view.imms.clone(),
            version: version(number),
        });
    }

    /// What the slow part answers.
    fn newest(&self) -> u64 {
        self.keyspace.peek().version.candidate(FIRST_SLOW, KEY).unwrap().meta.number
    }

    fn cached(&self) -> Option<u64> {
        self.keyspace.promotion.get(KEY, hash64(KEY), SEQUENCE_MAX).map(|record| record.sequence)
    }

    /// Invariant C6.
    fn check(&self) {
        if let Some(cached) = self.cached() {
            assert_eq!(cached, self.newest(), "the cache hides what lies below");
        }
    }

    /// At rest: C6, and the books.
    fn check_all(&self) {
        self.check();
        let contents = self.keyspace.promotion.contents();
        assert_eq!(contents.len(), self.keyspace.promotion.records());
        let bytes: u64 = contents.iter().map(|(key, record)| bytes_of(key, record)).sum();
        assert_eq!(self.room.used_bytes(), bytes, "the room of what it holds");
    }
}

/// A read of the slow part that goes on to insert what it found.
fn read(keyspace: &KeyspaceState) {
    let view = keyspace.view();
    let number = view.version.candidate(FIRST_SLOW, KEY).unwrap().meta.number;
    let read = LatestRead { keyspace, view: &view, at: SEQUENCE_MAX, key: KEY };
    keyspace.promotion.insert(KEY, found(number), || read.is_newest_below());
}

fn compact_and_check(rig: &Rig) {
    rig.compact(2);
    rig.check();
}

fn config() -> Config {
    Options::new("/fast").memory(64 << 20).derive().unwrap()
}

/// In every order of `threads`, beside each other on one rig; then all is in order.
fn in_every_order(rig: impl Fn(&Config) -> Rig + Send + Sync + 'static, threads: [fn(&Rig); 2]) {
    let config = config();
    model(move || {
        let rig = Arc::new(rig(&config));
        let other = Arc::clone(&rig);
        let thread = thread::spawn(move || threads[1](&other));
        threads[0](&rig);
        thread.join().unwrap();
        rig.check_all();
    });
}

#[test]
fn loom_no_insertion_outlives_the_compaction_that_brings_something_newer_down() {
    in_every_order(Rig::new, [compact_and_check, |rig| read(&rig.keyspace)]);
}

#[test]
fn loom_nor_does_what_was_in_the_cache() {
    in_every_order(Rig::filled, [compact_and_check, |rig| read(&rig.keyspace)]);
}

#[test]
fn loom_what_a_failed_compaction_took_comes_back_once() {
    in_every_order(
        Rig::filled,
        [
            |rig| {
                rig.claimed().end(Some(false));
                assert_eq!(rig.cached(), Some(1));
            },
            |rig| read(&rig.keyspace),
        ],
    );
}

#[test]
fn loom_what_a_failed_compaction_took_does_not_hide_what_another_brought_down() {
    in_every_order(Rig::filled, [|rig| rig.compact(2), |rig| rig.claimed().end(Some(false))]);
}

#[test]
fn loom_what_is_frozen_and_found_again_is_there_once() {
    let promote_in_vain = |rig: &Rig| {
        let frozen = rig.keyspace.promotion.freeze();
        rig.keyspace.promotion.thaw(frozen.to_vec());
    };
    in_every_order(Rig::filled, [promote_in_vain, |rig| read(&rig.keyspace)]);
}

#[test]
fn loom_what_a_claim_takes_of_what_is_frozen_does_not_thaw() {
    let config = config();
    model(move || {
        let rig = Arc::new(Rig::filled(&config));
        let frozen = rig.keyspace.promotion.freeze();
        let other = Arc::clone(&rig);
        let thread = thread::spawn(move || other.compact(2));
        rig.keyspace.promotion.thaw(frozen.to_vec());
        thread.join().unwrap();
        rig.check_all();
    });
}

#[test]
fn loom_nothing_newer_gets_below_a_run_before_it_stands_there() {
    let config = config();
    model(move || {
        let rig = Arc::new(Rig::filled(&config));
        let work = Arc::new(Mutex::new(Work::default()));
        let (other, others_work) = (Arc::clone(&rig), Arc::clone(&work));
        let thread = thread::spawn(move || {
            let begun = others_work.lock();
            if begun.may_write_slow() {
                let claimed = other.claimed();
                drop(begun);
                other.install(2);
                claimed.end(Some(true));
            }
        });
        if work.lock().promotion.begin(std::time::Duration::ZERO) {
            let run = rig.keyspace.promotion.freeze();
            // The run stands there from here on.
            let newest = rig.newest();
            assert!(
                run.iter().all(|(_, record)| record.sequence == newest),
                "a copy of what is not the newest"
            );
            rig.keyspace.promotion.thaw(Vec::new());
            work.lock().promotion.end(std::time::Duration::ZERO);
        }
        thread.join().unwrap();
        rig.check_all();
    });
}
