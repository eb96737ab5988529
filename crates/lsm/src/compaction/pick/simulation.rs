//! Random trees compacted by real merges of small key sets, several plans at once, until nothing is due.
//!
//! After every step each key's newest entry must be the first one met from the top, and the levels must hold their
//! order ([`Version::new`] refuses overlap). At rest the fast tier is within what it may hold, and picking has ended.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use kelvin_base::{SEQUENCE_MAX, Tier};

use super::*;
use crate::version::tests::{NoTables, meta};
use crate::version::{LEVELS, TableMeta, TableOpener};

const ENTRY_BYTES: u64 = 100;

/// Key to sequence number and whether it is a deletion.
type Entries = BTreeMap<u32, (u64, bool)>;

pub(super) fn config() -> PickConfig {
    PickConfig {
        two_tiers: true,
        fast_usable_bytes: 40_000,
        memtable_bytes: 1000,
        l0_trigger_files: 4,
        ratio: 4,
        cold_permille: 1000,
        retains: true,
        hot_level_is_full: false,
        checks_hotness: true,
        above_permille: 0,
        clean_turn: 0,
        table_bytes: [1000, 2000],
        plan_bytes_max: 20_000,
        parts_max: [3; 2],
        expiry_grace_ms: 0,
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

struct World {
    config: PickConfig,
    opener: Arc<dyn TableOpener>,
    version: Arc<Version>,
    contents: HashMap<u64, Entries>,
    newest: Entries,
    running: Running,
    jobs: Vec<Plan>,
    sequence: u64,
    number: u64,
    seen: HashMap<&'static str, u32>,
}

fn key(number: u32) -> Bytes {
    Bytes::from(format!("key{number:06}"))
}

impl World {
    fn new(config: PickConfig) -> Self {
        let version = Arc::new(Version::empty(0, config.two_tiers));
        Self {
            config,
            opener: Arc::new(NoTables::default()),
            version,
            contents: HashMap::new(),
            newest: Entries::new(),
            running: Running::default(),
            jobs: Vec::new(),
            sequence: 0,
            number: 0,
            seen: HashMap::new(),
        }
    }

    fn table(&mut self, entries: Entries, tier: Tier) -> TableMeta {
        self.number += 1;
        let mut facts = meta(self.number, "", "");
        facts.tier = tier;
        facts.smallest = key(*entries.keys().next().unwrap());
        facts.largest = key(*entries.keys().last().unwrap());
        facts.sequence_min = entries.values().map(|(sequence, _)| *sequence).min().unwrap();
        facts.sequence_max = entries.values().map(|(sequence, _)| *sequence).max().unwrap();
        facts.entries = entries.len() as u64;
        facts.deletions = entries.values().filter(|(_, deletion)| *deletion).count() as u64;
        facts.size_bytes = facts.entries * ENTRY_BYTES;
        self.contents.insert(self.number, entries);
        facts
    }

    fn replace(&mut self, removed: &[u64], added: Vec<(usize, TableMeta)>) {
        let mut tables: [Vec<Arc<TableFile>>; LEVELS] = Default::default();
        for (level, file) in self.version.tables().filter(|(_, file)| !removed.contains(&file.meta.number)) {
            tables[level].push(Arc::clone(file));
        }
        for (level, facts) in added {
            tables[level].push(Arc::new(TableFile::new(facts, Arc::clone(&self.opener))));
        }
        self.version = Arc::new(Version::new(0, tables, self.config.two_tiers).unwrap());
    }

    fn flush(&mut self, random: &mut Random, first: u32, span: u32) {
        let mut entries = Entries::new();
        for _ in 0..10 {
            self.sequence += 1;
            let number = first + u32::try_from(random.below(u64::from(span))).unwrap();
            let entry = (self.sequence, random.below(8) == 0);
            entries.insert(number, entry);
            self.newest.insert(number, entry);
        }
        let facts = self.table(entries, Tier::Fast);
        self.replace(&[], vec![(0, facts)]);
    }

    fn start(&mut self) -> bool {
        self.start_with([u64::MAX; 2], false)
    }

    fn start_with(&mut self, free_bytes: [u64; 2], wants_room: bool) -> bool {
        let versions = [Arc::clone(&self.version)];
        let input = PickInput {
            versions: &versions,
            config: &self.config,
            running: &self.running,
            now_ms: 0,
            oldest_snapshot: SEQUENCE_MAX,
            free_bytes,
            kept_bytes: 0,
            frees_soon: false,
            wants_room,
            needs_room: wants_room,
            tracker: None,
            held: [false; 2],
        };
        let Some(mut plan) = pick(&input) else { return false };
        assert!(plan.tables().all(|(_, file)| !file.is_being_compacted()), "a table is claimed twice");
        *self.seen.entry(plan.reason.name()).or_default() += 1;
        self.running.begin(&mut plan);
        self.jobs.push(plan);
        true
    }

    fn finish(&mut self, index: usize) {
        let plan = self.jobs.swap_remove(index);
        let removed: Vec<u64> = plan.tables().map(|(_, file)| file.meta.number).collect();
        let mut added = Vec::new();
        if plan.trivial_move {
            added.extend(plan.tables().map(|(_, file)| (plan.output_level, file.meta.clone())));
        } else {
            let mut merged = Entries::new();
            for number in &removed {
                for (key, entry) in &self.contents[number] {
                    let slot = merged.entry(*key).or_insert(*entry);
                    *slot = (*slot).max(*entry);
                }
            }
            merged.retain(|_, (_, deletion)| !(plan.bottommost && *deletion));
            assert!(merged.len() as u64 * ENTRY_BYTES <= plan.space_bytes[plan.output_tier.index()]);
            let per_table =
                usize::try_from(plan.target_file_bytes / ENTRY_BYTES).unwrap().min(merged.len().max(1));
            let merged: Vec<_> = merged.into_iter().collect();
            for part in merged.chunks(per_table) {
                let facts = self.table(part.iter().copied().collect(), plan.output_tier);
                added.push((plan.output_level, facts));
            }
        }
        self.running.end(&plan);
        self.replace(&removed, added);
    }

    fn check(&self) {
        let mut first_met = Entries::new();
        for (_, file) in self.version.tables() {
            for (number, entry) in &self.contents[&file.meta.number] {
                first_met.entry(*number).or_insert(*entry);
            }
        }
        for (number, newest) in &self.newest {
            match first_met.get(number) {
                Some(entry) => assert_eq!(entry, newest, "key {number}"),
                None => assert!(newest.1, "key {number} is lost"),
            }
        }
    }

    fn rest(&mut self, steps_max: usize) {
        for _ in 0..steps_max {
            if !self.start() {
                if self.jobs.is_empty() {
                    return;
                }
                self.finish(0);
                self.check();
            }
        }
        panic!("picking does not end: {:?}", self.seen);
    }
}

fn run(config: PickConfig, seed: u64, rounds: u64) -> World {
    let mut random = Random(seed);
    let mut world = World::new(config);
    for round in 0..rounds {
        let sequential = seed % 3 == 1;
        let first = if sequential { u32::try_from(round * 10).unwrap() } else { 0 };
        world.flush(&mut random, first, if sequential { 12 } else { 900 });
        for _ in 0..random.below(4) {
            if world.jobs.len() < 3 {
                let short = seed.is_multiple_of(2) && random.below(2) == 0;
                let free_bytes = if short { random.below(8000) } else { u64::MAX };
                world.start_with([free_bytes, u64::MAX], short && random.below(2) == 0);
            }
        }
        while world.jobs.len() > usize::try_from(random.below(4)).unwrap() {
            let index = usize::try_from(random.below(world.jobs.len() as u64)).unwrap();
            world.finish(index);
            world.check();
        }
    }
    world.rest(5000);
    world
}

#[test]
fn every_key_keeps_its_newest_entry_and_the_fast_tier_its_bound_whatever_runs_at_once() {
    for seed in 0..9 {
        let world = run(config(), seed, 200);
        assert!(world.version.tier_bytes(Tier::Fast) <= world.config.fast_usable_bytes, "seed {seed}");
        // Nothing that stops writers is left when nothing is due.
        let owed = debt(&[Arc::clone(&world.version)], &world.config);
        assert!(owed.l0_runs < world.config.l0_trigger_files as u64, "seed {seed}: {owed:?}");
    }
}

#[test]
fn a_fast_tier_with_hardly_any_room_still_comes_to_rest_within_it() {
    for usable in [0, 500, 3000, 9000] {
        let world = run(PickConfig { fast_usable_bytes: usable, ..config() }, 2, 100);
        assert!(world.version.tier_bytes(Tier::Fast) <= usable, "{usable}");
    }
}

#[test]
fn a_fast_tier_without_any_room_can_always_be_emptied() {
    for seed in 0..6 {
        let mut world = run(config(), seed, 150);
        let mut random = Random(seed);
        for _ in 0..4 {
            world.flush(&mut random, 0, 900);
        }
        let mut steps = 0;
        while world.version.tier_bytes(Tier::Fast) > 0 {
            assert!(world.start_with([0, u64::MAX], true), "seed {seed}: stuck after {steps} steps");
            world.finish(0);
            world.check();
            steps += 1;
        }
    }
}

#[test]
fn the_fast_tier_is_filled_before_data_stays_on_the_slow_one() {
    let world = run(config(), 1, 800);
    let fast = world.version.tier_bytes(Tier::Fast);
    assert!(fast >= 40_000 * 9 / 10, "{fast} bytes of 40000");
    assert!(world.version.tier_bytes(Tier::Slow) > 300_000);
}

#[test]
fn one_tier_comes_to_rest_with_most_bytes_at_the_bottom() {
    for seed in 0..4 {
        let world = run(PickConfig { two_tiers: false, ..config() }, seed, 300);
        let bytes: Vec<u64> = world.version.levels.iter().map(crate::version::Level::size_bytes).collect();
        assert_eq!(world.version.tier_bytes(Tier::Slow), 0);
        assert!(bytes[6] * 2 > bytes.iter().sum::<u64>(), "{bytes:?}");
    }
}

#[test]
fn a_range_compaction_ends_and_leaves_no_deletion() {
    let mut world = run(config(), 3, 200);
    for level in 0..LEVELS {
        let created_before = world.number + 1;
        for step in 0.. {
            assert!(step < 500, "level {level} does not end");
            let versions = [Arc::clone(&world.version)];
            let input = PickInput {
                versions: &versions,
                config: &world.config,
                running: &world.running,
                now_ms: 0,
                oldest_snapshot: SEQUENCE_MAX,
                free_bytes: [u64::MAX; 2],
                kept_bytes: 0,
                frees_soon: false,
                wants_room: false,
                needs_room: false,
                tracker: None,
                held: [false; 2],
            };
            match pick_range(&input, 0, level, (None, None), created_before) {
                RangePick::Done => break,
                RangePick::Busy => panic!("nothing runs"),
                RangePick::Plan(mut plan) => {
                    world.running.begin(&mut plan);
                    world.jobs.push(*plan);
                    world.finish(0);
                    world.check();
                }
            }
        }
    }
    assert!(world.version.tables().all(|(_, file)| file.meta.deletions == 0));
}
