//! What is crashed: every short sequence of state-changing operations, and longer lives.
//!
//! Sequences that begin alike share their beginning: of each only the points of its last operation (and of the
//! closing behind it) are looked at, so every point of every sequence is looked at once.

use kelvin::{Durability, HotParts, Hotness, Options};
use kelvin_lsm::compaction::pick::Forced;

use super::{Cut, START_MS, Scenario, Setup, Step};
use crate::choices::Choices;
use crate::oracle::Write;

/// Operations sequences are made of.
pub const OPERATIONS: usize = 15;
/// Those that a store that promotes has besides.
const PROMOTIONS: usize = 2;
/// Longer scenarios.
pub const LONG: u64 = 30;

/// A life that bytes choose has at most so many stretches of steps.
const STRETCHES_MAX: usize = 60;

/// Where scenarios run; sequences on the first three.
pub const SETUPS: [Setup; 6] = [
    Setup { name: "one tier", tiered: false, change: |options| options },
    Setup { name: "two tiers", tiered: true, change: |options| options },
    Setup { name: "two tiers, promotion", tiered: true, change: promoting },
    Setup {
        name: "two tiers, promotion, small logs",
        tiered: true,
        change: |options| small_logs(promoting(options)),
    },
    Setup { name: "one tier, small logs", tiered: false, change: small_logs },
    Setup { name: "two tiers, level 0 of one table", tiered: true, change: eager },
];

fn small_logs(options: Options) -> Options {
    options.advanced(|a| {
        a.wal_bytes_max = Some(64 << 10);
        a.manifest_bytes_max = Some(4 << 10);
    })
}

/// What is read from the slow tier is promoted every few reads, hot or not, and what was read once is retained.
fn promoting(options: Options) -> Options {
    options.advanced(|a| {
        a.hotness = Some(Hotness::Oracle);
        a.hot_parts = HotParts { hotness_check: false, ..HotParts::default() };
        a.promotion_bytes = Some(2 << 10);
    })
}

fn eager(options: Options) -> Options {
    options.advanced(|a| {
        a.level0_compact_at = Some(1);
        a.manifest_bytes_max = Some(4 << 10);
    })
}

/// The keyspace of bulk loads.
const LOADED: &str = "loaded";

fn key(index: usize) -> Vec<u8> {
    format!("key{}", index % 4).into_bytes()
}

/// A value nothing else has; every third is longer than a sector.
fn value(index: usize) -> Vec<u8> {
    let mut value = format!("value {index:04} ").into_bytes();
    value.resize(if index.is_multiple_of(3) { 1300 } else { 60 }, b'.');
    value
}

fn put(keyspace: &str, index: usize) -> Write {
    Write::Put { keyspace: keyspace.into(), key: key(index), value: value(index), expiry_ms: None }
}

/// A record before or behind all others.
fn end(key: &str, index: usize) -> Write {
    Write::Put { keyspace: "default".into(), key: key.into(), value: value(index + 1), expiry_ms: None }
}

/// The steps of operation `which`, the `index`-th of its scenario.
fn operation(which: usize, index: usize) -> Vec<Step> {
    let default = "default".to_string();
    match which {
        0 => vec![Step::Commit(vec![put("default", index)], Durability::Sync)],
        1 => vec![Step::Commit(vec![put("default", index)], Durability::Os)],
        2 => {
            vec![Step::Commit(vec![Write::Delete { keyspace: default, key: key(index + 3) }], Durability::Os)]
        }
        3 => vec![Step::Commit(
            vec![Write::DeleteRange { keyspace: default, start: b"key1".to_vec(), end: b"key3".to_vec() }],
            Durability::Sync,
        )],
        4 => vec![Step::Commit(vec![put("two", index), put("default", index + 1)], Durability::Os)],
        5 => vec![Step::Flush],
        6 => vec![Step::CompactAll],
        7 => vec![Step::Checkpoint],
        8 => vec![Step::Reopen],
        9 => vec![Step::CreateKeyspace("three".into())],
        10 => vec![Step::DropKeyspace("two".into())],
        11 => {
            let expiry_ms = Some(START_MS + 500);
            let write = Write::Put { keyspace: default, key: key(index), value: value(index), expiry_ms };
            vec![Step::Commit(vec![write], Durability::Os), Step::Advance(300)]
        }
        12 => vec![Step::Background(2)],
        13 => vec![Step::Commit(vec![put("two", index)], Durability::Memory)],
        14 => vec![
            Step::DropKeyspace(LOADED.into()),
            Step::BulkLoad((0..4).map(|at| put(LOADED, index * 4 + at)).collect()),
        ],
        // Promotion by flush.
        15 => vec![Step::Read(2), Step::Background(2)],
        // A boundary compaction, which retains what was read and promotes what lies between the ends of its table.
        _ => vec![
            Step::Commit(vec![end("key", index), end("keyz", index)], Durability::Os),
            Step::Flush,
            Step::Force(Forced::Down),
            Step::Background(2),
            Step::Force(Forced::Boundary),
            Step::Background(2),
        ],
    }
}

/// A store with a table of each tier, a table at level 0, and records in the log; if it promotes, with copies on the fast tier too.
fn prelude(setup: Setup) -> Vec<Step> {
    let commit = |writes, durability| Step::Commit(writes, durability);
    let mut steps = vec![commit((0..4).map(|index| put("default", 100 + index)).collect(), Durability::Os)];
    if is_promoting(setup) {
        steps.extend([operation(OPERATIONS + 1, 0), operation(OPERATIONS, 0)].concat());
    } else {
        steps.push(Step::CompactAll);
    }
    steps.extend([
        commit(vec![put("default", 104), put("two", 105)], Durability::Sync),
        Step::Flush,
        commit(vec![put("two", 106)], Durability::Os),
    ]);
    steps
}

fn is_promoting(setup: Setup) -> bool {
    setup.name.contains("promotion")
}

/// How many operations a store has.
fn operations_of(setup: Setup) -> usize {
    OPERATIONS + if is_promoting(setup) { PROMOTIONS } else { 0 }
}

/// Every sequence of at most `longest` operations, from an empty store and from one with data.
pub fn sequences(longest: u32) -> impl Iterator<Item = Scenario> {
    let of_length = |length: u32| {
        SETUPS[..3].iter().flat_map(move |&setup| {
            (0..operations_of(setup).pow(length)).flat_map(move |code| {
                [false, true].into_iter().map(move |filled| sequence(setup, filled, length, code))
            })
        })
    };
    (1..=longest).flat_map(of_length)
}

fn sequence(setup: Setup, filled: bool, length: u32, mut code: usize) -> Scenario {
    let mut steps = if filled { prelude(setup) } else { Vec::new() };
    let mut name = format!("{}, {}", setup.name, if filled { "filled" } else { "empty" });
    let mut from_step = 0;
    for index in 0..length {
        let which = code % operations_of(setup);
        code /= operations_of(setup);
        if index > 0 || filled {
            from_step = steps.len();
        }
        name.push_str(&format!(", {which}"));
        steps.extend(operation(which, usize::try_from(index).unwrap_or(0) * 2));
    }
    Scenario { name, setup, steps, from_step }
}

/// Longer lives: many operations with much background work between them, on every setup.
pub fn long(seed: u64) -> impl Iterator<Item = Scenario> {
    (0..LONG).map(move |number| {
        let setup = SETUPS[usize::try_from(number).unwrap_or(0) % SETUPS.len()];
        let mut choices = Choices::of_seed(seed.wrapping_mul(LONG) + number);
        let length = 20 + choices.index(40);
        let steps = (0..length).flat_map(|index| stretch(&mut choices, setup, index)).collect();
        Scenario { name: format!("{}, long {number}", setup.name), setup, steps, from_step: 0 }
    })
}

/// A life that `bytes` choose, of a fuzzer's, until they are used up, and where the power fails in it.
#[must_use]
pub fn of_bytes(bytes: &[u8]) -> (Scenario, Cut) {
    let mut choices = Choices::of_bytes(bytes.to_vec());
    let setup = choices.one_of(SETUPS);
    let cut = Cut {
        point: choices.index(1 << 16),
        image: choices.below(5),
        seed: choices.below(1 << 16),
        again: choices.below(2) == 1,
    };
    let mut steps = Vec::new();
    for index in 0..STRETCHES_MAX {
        if choices.are_exhausted() {
            break;
        }
        steps.extend(stretch(&mut choices, setup, index));
    }
    (Scenario { name: format!("{}, of bytes", setup.name), setup, steps, from_step: 0 }, cut)
}

/// A few steps that belong together.
fn stretch(choices: &mut Choices, setup: Setup, index: usize) -> Vec<Step> {
    match choices.below(36) {
        0..=2 => vec![bulk(choices, index)],
        3..=4 => vec![Step::Sync],
        5..=7 => vec![Step::Background(1 + choices.index(3))],
        8..=9 => vec![Step::Flush],
        10..=11 => vec![Step::Read(10 + choices.index(190)), Step::Background(1)],
        12..=17 if setup.tiered => vec![
            Step::Read(1 + choices.index(3)),
            Step::Force(choices.one_of([Forced::Down, Forced::Boundary, Forced::Boundary, Forced::Runs])),
            Step::Background(1 + choices.index(3)),
        ],
        18..=20 if is_promoting(setup) => {
            [vec![Step::Read(1)], operation(OPERATIONS + 1, index * 2)].concat()
        }
        which => operation(usize::try_from(which).unwrap_or(0) % OPERATIONS, index * 2),
    }
}

/// A batch that fills most of a memtable.
fn bulk(choices: &mut Choices, index: usize) -> Step {
    let keyspace = choices.one_of(["default", "default", "two"]);
    let count = 2 + choices.index(12);
    let writes = (0..count).map(|at| Write::Put {
        keyspace: keyspace.into(),
        key: format!("bulk{:03}", choices.below(40)).into_bytes(),
        value: value(1000 * (index + 1) + at * 3),
        expiry_ms: None,
    });
    let writes = writes.collect();
    Step::Commit(writes, choices.one_of([Durability::Memory, Durability::Os, Durability::Sync]))
}
