//! What is done while I/Os fail: scripts that together reach every call of a storage in the shipped crates
//! (`cargo xtask sites`), and random ones.

use kelvin::salvage::How;
use kelvin::{Durability, HotParts, Hotness, Options};
use kelvin_lsm::compaction::pick::Forced;
use kelvin_storage::fault::{EIO, Effect, Op, Rule};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Victim;
use crate::oracle::Write;

/// The error number of a link to another device.
const EXDEV: i32 = 18;

/// What a script does.
#[derive(Clone, Debug)]
pub enum Act {
    /// Commits a batch to "default".
    Commit(Vec<Write>, Durability),
    /// Loads puts of different keys into "default" at once; for a store that never held anything.
    BulkLoad(Vec<Write>),
    /// Flushes.
    Flush,
    /// Compacts everything, level by level.
    Compact,
    /// Makes a checkpoint.
    Checkpoint,
    /// Closes the store; the next act opens it.
    Reopen,
    /// Reads everything, by get and by iterators both ways.
    Read,
    /// Gets so many records, one after the other and from the first again.
    Get(usize),
    /// Runs the queued background work.
    Background,
    /// Begins a compaction that is not due.
    Force(Forced),
    /// Checks every file of the open store.
    Check,
    /// Checks every file of the closed store.
    CheckClosed,
    /// Rescues the closed store into a new one.
    Salvage(How),
    /// Tries acts with a closed store that lacks something of its slow tier.
    Without(Missing, Vec<Self>),
    /// Does acts while another fault happens to a device, which the script needs.
    Fail(Victim, Rule, Vec<Self>),
    /// From the next opening on hot records are told so.
    Track(Hotness),
    /// Takes the tables of the hot level away while the store is closed.
    LoseCopies,
    /// Lets seconds pass.
    Advance(u64),
}

/// What a slow tier lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Its directory.
    Dir,
    /// Everything: the disk is not mounted.
    Mount,
    /// The file that says whose it is.
    Identity,
    /// Its tables.
    Tables,
}

/// What a script begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// Empty devices.
    Empty,
    /// A power loss took the end of a log, and left the log behind it.
    BehindAGap,
}

/// Where a script runs.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// What there is before.
    pub begins: Begins,
    /// It has a slow tier.
    pub tiered: bool,
    /// Changes of the options.
    pub change: fn(Options) -> Options,
}

const ONE_TIER: Setup = Setup { begins: Begins::Empty, tiered: false, change: |options| options };
const TWO_TIERS: Setup = Setup { tiered: true, ..ONE_TIER };
const PROMOTION: Setup = Setup { change: promoting, ..TWO_TIERS };
const RALT: Setup = Setup { change: tracked, ..TWO_TIERS };
const SMALL_LOGS: Setup = Setup { change: small_logs, ..TWO_TIERS };
/// Where random scripts run.
const SETUPS: [Setup; 5] = [ONE_TIER, TWO_TIERS, PROMOTION, RALT, SMALL_LOGS];

/// What is read from the slow tier is promoted every few reads.
fn promoting(options: Options) -> Options {
    options.advanced(|a| {
        a.hotness = Some(Hotness::Oracle);
        a.hot_parts = HotParts { hotness_check: false, ..HotParts::default() };
        a.promotion_bytes = Some(2 << 10);
    })
}

fn tracked(options: Options) -> Options {
    options.advanced(|a| {
        a.hotness = Some(Hotness::Ralt);
        a.promotion_bytes = Some(2 << 10);
    })
}

fn small_logs(options: Options) -> Options {
    options.advanced(|a| {
        a.wal_bytes_max = Some(64 << 10);
        a.manifest_bytes_max = Some(4 << 10);
    })
}

/// A script and where it runs.
#[derive(Clone, Debug)]
pub struct Script {
    /// Its name: no other has it.
    pub name: String,
    /// Where it runs.
    pub setup: Setup,
    /// What it does.
    pub acts: Vec<Act>,
}

fn put(index: usize) -> Write {
    Write::Put {
        keyspace: "default".into(),
        key: format!("key{:03}", index * 7 % 40).into_bytes(),
        value: format!("value {index:05} ").repeat(if index.is_multiple_of(5) { 60 } else { 6 }).into_bytes(),
        expiry_ms: None,
    }
}

pub(super) fn puts(from: usize, count: usize, durability: Durability) -> Act {
    Act::Commit((from..from + count).map(put).collect(), durability)
}

fn delete(key: usize) -> Write {
    Write::Delete { keyspace: "default".into(), key: format!("key{key:03}").into_bytes() }
}

fn delete_range(from: usize, to: usize) -> Write {
    let key = |number| format!("key{number:03}").into_bytes();
    Write::DeleteRange { keyspace: "default".into(), start: key(from), end: key(to) }
}

/// The scripts of every run.
#[must_use]
pub fn scripts() -> Vec<Script> {
    let write = vec![
        puts(0, 3, Durability::Sync),
        puts(3, 3, Durability::Os),
        Act::Flush,
        puts(6, 3, Durability::Os),
        puts(9, 2, Durability::Os),
        Act::Read,
        Act::Reopen,
        Act::Read,
        puts(11, 2, Durability::Sync),
        Act::Read,
    ];
    let deletion = Act::Commit(vec![delete_range(10, 14)], Durability::Os);
    let mut compact = vec![puts(0, 30, Durability::Os), Act::Flush, puts(30, 30, Durability::Os), deletion];
    compact.extend([Act::Flush, Act::Compact, Act::Read, puts(60, 30, Durability::Os), Act::Background]);
    compact.extend([Act::Compact, Act::Read, Act::Reopen, Act::Read, Act::Compact, Act::Read]);
    let checkpoint = vec![
        puts(0, 20, Durability::Os),
        Act::Compact,
        puts(20, 20, Durability::Os),
        Act::Checkpoint,
        puts(40, 2, Durability::Sync),
        Act::Read,
        Act::Checkpoint,
        Act::Read,
    ];
    let fill: Vec<Act> =
        (0..24).map(|index| puts(index * 12, 12, Durability::Os)).chain([Act::Read]).collect();
    let whole = How::default();
    let mut rescue = vec![puts(0, 30, Durability::Os)];
    rescue.extend(down());
    rescue.extend([
        puts(30, 10, Durability::Os),
        Act::Flush,
        puts(40, 5, Durability::Sync),
        Act::Check,
        Act::CheckClosed,
        Act::Salvage(whole),
        Act::Salvage(How { without_manifest: true, ..whole }),
        Act::Salvage(How { without_slow: true, ..whole }),
        Act::Read,
    ]);
    let mut all = Vec::new();
    let of = |name: &str, setup, acts: &[Act]| Script { name: name.to_owned(), setup, acts: acts.to_vec() };
    for (setup, end) in [(ONE_TIER, "-on-one-tier"), (TWO_TIERS, "")] {
        for (name, acts) in [
            ("write", &write),
            ("compact", &compact),
            ("checkpoint", &checkpoint),
            ("fill", &fill),
            ("rescue", &rescue),
            ("load", &loading()),
        ] {
            all.push(of(&format!("{name}{end}"), setup, acts));
        }
    }
    all.push(of("promote", PROMOTION, &promotions()));
    all.push(of("track", RALT, &tracking()));
    all.push(of("incomplete", TWO_TIERS, &incomplete()));
    all.push(of("twice", TWO_TIERS, &twice()));
    all.push(of(
        "gap",
        Setup { begins: Begins::BehindAGap, ..ONE_TIER },
        &[Act::Read, Act::Reopen, Act::Read],
    ));
    all.push(of("rollover", SMALL_LOGS, &rollover()));
    all
}

/// The script of this name.
///
/// # Errors
/// If there is none.
pub fn named(name: &str) -> Result<Script, String> {
    if let Some(seed) = name.strip_prefix(RANDOM) {
        return seed.parse().map(random).map_err(|_| format!("{seed:?} is no seed"));
    }
    let found = scripts().into_iter().find(|script| script.name == name);
    found.ok_or_else(|| format!("there is no script {name:?}"))
}

/// A bulk load, and what is written above it.
fn loading() -> Vec<Act> {
    vec![
        Act::BulkLoad((0..40).map(put).collect()),
        Act::Read,
        puts(40, 8, Durability::Os),
        Act::Flush,
        Act::Read,
        Act::Reopen,
        Act::Read,
    ]
}

/// What takes the records of a tiered store to the slow tier.
fn down() -> [Act; 3] {
    [Act::Flush, Act::Force(Forced::Down), Act::Force(Forced::Boundary)]
}

/// Records that go to the slow tier, come back as runs and by compactions, and are overwritten and deleted above.
fn promotions() -> Vec<Act> {
    let mut acts = vec![puts(0, 40, Durability::Os)];
    acts.extend(down());
    // Read and promoted, then read again from the runs.
    acts.extend([Act::Read, Act::Background, Act::Read, Act::Background]);
    acts.extend([puts(40, 8, Durability::Os), Act::Commit(vec![delete(7)], Durability::Os)]);
    acts.extend(down());
    acts.extend([Act::Read, Act::Background, Act::Force(Forced::Runs), Act::Read, Act::Reopen, Act::Read]);
    acts.extend([Act::Background, Act::Checkpoint, Act::LoseCopies, Act::Read, Act::Background]);
    acts.extend([Act::Compact, Act::Read]);
    acts
}

/// Records of the slow tier that are read until the tracker has merged its files, which the next opening finds; then none is wanted.
fn tracking() -> Vec<Act> {
    let mut acts = vec![puts(0, 40, Durability::Os)];
    acts.extend(down());
    for _ in 0..8 {
        acts.extend([Act::Get(100), Act::Background, Act::Reopen]);
    }
    acts.extend([Act::Compact, Act::Read, Act::Background, Act::Track(Hotness::Off), Act::Read]);
    acts
}

/// A slow tier that lacks something when the store is to be opened, or salvaged.
fn incomplete() -> Vec<Act> {
    let mut acts = vec![puts(0, 20, Durability::Os)];
    acts.extend(down());
    acts.push(puts(20, 5, Durability::Sync));
    for what in [Missing::Dir, Missing::Mount, Missing::Identity, Missing::Tables] {
        acts.push(Act::Without(what, vec![Act::Read, Act::Salvage(How::default())]));
    }
    acts.push(Act::Read);
    acts
}

/// What is done after a failure fails too.
fn twice() -> Vec<Act> {
    let fails = |op, glob: &str, acts: &[Act]| {
        let rule = Rule::new(op, Effect::Error(EIO)).on(glob).times(1);
        Act::Fail(Victim::Fast, rule, acts.to_vec())
    };
    let links = Rule::new(Op::Link, Effect::Error(EXDEV));
    let put = |first| puts(first, 4, Durability::Os);
    vec![
        // The first record of a log, so that it is given up; then a later one, so that another file is synced beside it.
        fails(Op::Append, "*.wal", &[put(0)]),
        put(4),
        fails(Op::Append, "*.wal", &[put(8)]),
        puts(12, 2, Durability::Sync),
        // A table that nothing names stays until the next opening.
        Act::Flush,
        put(16),
        fails(Op::Remove, "*.tbl", &[Act::Compact, Act::Reopen]),
        Act::Read,
        // Copies where nothing can be linked, and one that is given up.
        Act::Fail(Victim::Slow, links.clone(), vec![Act::Fail(Victim::Fast, links, vec![Act::Checkpoint])]),
        fails(Op::Create, "*.manifest", &[Act::Checkpoint]),
        put(20),
        fails(Op::Create, "*.manifest", &[Act::Checkpoint]),
        Act::Read,
    ]
}

/// Logs that are given up and written over, and manifests that give way to new ones.
fn rollover() -> Vec<Act> {
    let mut acts = Vec::new();
    for round in 0..12 {
        acts.extend([puts(round * 20, 20, Durability::Os), Act::Flush, Act::Background]);
    }
    acts.extend([Act::Reopen, Act::Read, puts(300, 20, Durability::Sync), Act::Read]);
    acts
}

/// What is done seldom; `number` chooses.
fn another(number: usize, tiered: bool) -> Act {
    let ops = [Op::Create, Op::Append, Op::Sync, Op::Remove, Op::Read];
    let rule = Rule::new(ops[number % ops.len()], Effect::Error(EIO)).after(number as u64 % 3).times(1);
    let missing = [Missing::Dir, Missing::Mount, Missing::Identity, Missing::Tables][number % 4];
    match number % 5 {
        0 | 1 => Act::Fail(Victim::ALL[number % 2], rule, vec![Act::Flush, Act::Background]),
        2 | 3 => Act::Without(missing, vec![Act::Read, Act::Salvage(How::default())]),
        _ if !tiered => Act::LoseCopies,
        _ => Act::Track([Hotness::Off, Hotness::Ralt, Hotness::Oracle][number % 3]),
    }
}

/// What the names of random scripts begin with; then comes the seed.
const RANDOM: &str = "random-";
/// Acts of a random script.
const RANDOM_ACTS: usize = 16;

/// A script that `seed` chooses.
#[must_use]
pub fn random(seed: u64) -> Script {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let setup = SETUPS[random.random_range(0..SETUPS.len())];
    let mut next = random.random_range(0..1_000);
    let mut acts = vec![puts(next, 20, Durability::Os)];
    while acts.len() < RANDOM_ACTS {
        let durability = [Durability::Os, Durability::Os, Durability::Sync][random.random_range(0..3)];
        let key = random.random_range(0..40);
        acts.extend(match random.random_range(0..23) {
            0..=5 => {
                next += 40;
                vec![puts(next, random.random_range(1..30), durability)]
            }
            6 => vec![Act::Commit(vec![delete(key), put(next)], durability)],
            7 => vec![Act::Commit(vec![delete_range(key, key + random.random_range(1..20))], durability)],
            8 | 9 => vec![Act::Flush],
            10 => vec![Act::Compact],
            11 => vec![Act::Checkpoint],
            12 => vec![Act::Reopen],
            13 => vec![Act::Read],
            14 => vec![Act::Get(200), Act::Background],
            15 => vec![Act::Background],
            16 => vec![Act::Force(Forced::Down)],
            17 => down().to_vec(),
            18 => vec![Act::Force(Forced::Runs)],
            19 => vec![[Act::Check, Act::CheckClosed][key % 2].clone()],
            20 => vec![Act::Salvage(How { without_manifest: key % 3 == 0, without_slow: key % 5 == 0 })],
            21 => vec![another(key, setup.tiered)],
            _ => vec![[Act::LoseCopies, Act::Advance(100)][key % 2].clone()],
        });
    }
    acts.push(Act::Read);
    Script { name: format!("{RANDOM}{seed}"), setup, acts }
}
