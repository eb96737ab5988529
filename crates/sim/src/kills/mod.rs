//! Real kills: a process that writes with several threads on real files is killed at any moment, and what it acknowledged must be
//! there.
//!
//! [`child`] is that process. It says of each write that it begins and that it was acknowledged, through a pipe, which
//! outlives it. [`Killer`] starts it, kills it after a number of acknowledgements (none: while it opens the store), opens what is left and
//! compares: every write acknowledged at [`Durability::Os`] or [`Durability::Sync`] is there, every batch whole or not at all, and the state
//! is a prefix of the order of commits: a write that began after another was acknowledged is not there without it.
//!
//! What a write does follows from [`Write::of`], so that nothing but its number need be told. Each sets its thread's progress, too, in the same
//! batch. Tests: below, and `tests/kills.rs`.

pub mod child;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kelvin::{Db, Durability, HotParts, Hotness, IterOptions, Options, WriteBatch};
use kelvin_base::{Clock, SystemClock, Tier};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::checks::Check;

/// Threads that write.
pub const WRITERS: u8 = 3;
/// Keys of each.
const KEYS: u32 = 60;
/// Acknowledgements before a kill, at most.
const ACKNOWLEDGED_MAX: u64 = 2_000;
/// Microseconds within which a process has opened its store.
const OPENING_US: u64 = 8_000;
/// Bytes of a value, at most.
const VALUE_MAX: u64 = 700;

/// A name, whether there is a slow tier, and changes of the options.
type Variant = (&'static str, bool, fn(Options) -> Options);

/// Options of stores that are killed. Each has promotions, retention or merges as often as may be.
const VARIANTS: [Variant; 4] = [
    ("one tier", false, |options| options),
    ("two tiers, all promoted", true, |options| {
        options.advanced(|a| {
            a.hotness = Some(Hotness::Oracle);
            a.promotion_bytes = Some(4 << 10);
            a.hot_parts = HotParts { hotness_check: false, ..HotParts::default() };
        })
    }),
    ("two tiers, promotion by RALT", true, |options| {
        options.advanced(|a| {
            a.hotness = Some(Hotness::Ralt);
            a.promotion_bytes = Some(4 << 10);
        })
    }),
    ("two tiers, small logs", true, |options| {
        options.advanced(|a| {
            a.hotness = Some(Hotness::Clock);
            a.wal_bytes_max = Some(64 << 10);
        })
    }),
];

/// Where a store lies, and which of the variants it is.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its directory on the fast disk.
    pub fast: PathBuf,
    /// Its directory on the slow one.
    pub slow: PathBuf,
    /// Index of the variant.
    pub variant: usize,
}

impl Place {
    /// The options of the store.
    #[must_use]
    pub fn options(&self) -> Options {
        let (_, is_tiered, change) = VARIANTS[self.variant % VARIANTS.len()];
        let options = Options::new(&self.fast).memory(8 << 20).advanced(|a| {
            a.memtable_bytes = Some(32 << 10);
            a.table_bytes = Some(32 << 10);
            a.slow_block_bytes = Some(1 << 10);
        });
        change(if is_tiered { options.slow(&self.slow).fast_capacity(2 << 20) } else { options })
    }

    /// Removes what lies there.
    pub fn remove(&self) {
        for dir in [&self.fast, &self.slow] {
            // What stays is in the way of nobody.
            let _left = std::fs::remove_dir_all(dir);
        }
    }

    fn name(&self) -> &'static str {
        VARIANTS[self.variant % VARIANTS.len()].0
    }
}

/// A write: what it does is a function of who makes it, in which life of the process, as which of its writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Keys of the writer from the first to before the second that it deletes first.
    range: Option<(u32, u32)>,
    /// Keys of the writer and the lengths of their new values; `None` deletes.
    changes: Vec<(u32, Option<usize>)>,
    /// The level at which it is acknowledged.
    pub durability: Durability,
    value: u64,
}

impl Write {
    /// Write `number` of `writer` in `life`.
    #[must_use]
    pub fn of(seed: u64, life: u64, writer: u8, number: u64) -> Self {
        let mut name = Vec::new();
        [seed, life, u64::from(writer), number].iter().for_each(|part| name.extend(part.to_le_bytes()));
        let value = kelvin_base::hash64(&name);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(value);
        let range = (random.random_range(0..10) == 0).then(|| {
            let first = random.random_range(0..KEYS);
            (first, KEYS.min(first + random.random_range(1..10)))
        });
        let changes = (0..random.random_range(1..5))
            .map(|_| {
                let len = usize::try_from(random.random_range(0..VALUE_MAX)).unwrap_or(0);
                (random.random_range(0..KEYS), (random.random_range(0..6) > 0).then_some(len))
            })
            .collect();
        let durability = match random.random_range(0..10) {
            0 => Durability::Sync,
            1..4 => Durability::Memory,
            _ => Durability::Os,
        };
        Self { range, changes, durability, value }
    }

    fn bytes(&self, len: usize) -> Vec<u8> {
        self.value.to_le_bytes().into_iter().cycle().take(len).collect()
    }

    /// The batch of it, for the keyspace `keyspace`.
    ///
    /// # Errors
    /// What the batch refuses.
    pub fn batch(&self, keyspace: u32, writer: u8, number: u64) -> kelvin::Result<WriteBatch> {
        let mut batch = WriteBatch::new();
        if let Some((first, end)) = self.range {
            batch.delete_range(keyspace, &key(writer, first), &key(writer, end))?;
        }
        for (at, len) in &self.changes {
            match len {
                Some(len) => batch.put(keyspace, &key(writer, *at), &self.bytes(*len))?,
                None => batch.delete(keyspace, &key(writer, *at))?,
            }
        }
        batch.put(keyspace, &progress_key(writer), &number.to_le_bytes())?;
        Ok(batch)
    }

    /// Does to `state` what the batch does to the store.
    fn apply(&self, state: &mut BTreeMap<u32, Vec<u8>>) {
        if let Some((first, end)) = self.range {
            state.retain(|key, _| !(first..end).contains(key));
        }
        for (at, len) in &self.changes {
            match len {
                Some(len) => state.insert(*at, self.bytes(*len)),
                None => state.remove(at),
            };
        }
    }
}

/// Key `number` of a writer.
#[must_use]
pub fn key(writer: u8, number: u32) -> Vec<u8> {
    format!("w{writer}-{number:04}").into_bytes()
}

/// Where a writer's last number stands.
#[must_use]
pub fn progress_key(writer: u8) -> Vec<u8> {
    format!("p{writer}").into_bytes()
}

/// The last write of `writer` that `db` holds; 0 if it holds none.
///
/// # Errors
/// The store's, and a value that is no number.
pub fn progress(db: &Db, writer: u8) -> Check<u64> {
    let value = db.get(&progress_key(writer)).map_err(|error| format!("reading progress: {error}"))?;
    let Some(value) = value else { return Ok(0) };
    let bytes = value.first_chunk().filter(|_| value.len() == 8);
    bytes.map(|bytes| u64::from_le_bytes(*bytes)).ok_or_else(|| format!("progress is {value:?}"))
}

/// What the child says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// The store is open.
    Opened,
    /// A writer begins its write of this number.
    Begins(u8, u64),
    /// It was acknowledged.
    Acknowledged(u8, u64),
}

impl Said {
    /// Bytes of it in the pipe.
    pub const BYTES: usize = 16;

    /// As it is in the pipe: written whole or not at all.
    #[must_use]
    pub fn encoded(self) -> [u8; Self::BYTES] {
        let (kind, writer, number) = match self {
            Self::Opened => (0, 0, 0),
            Self::Begins(writer, number) => (1, writer, number),
            Self::Acknowledged(writer, number) => (2, writer, number),
        };
        let mut bytes = [0; Self::BYTES];
        bytes[0] = kind;
        bytes[1] = writer;
        bytes[8..].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    /// What `bytes` say.
    #[must_use]
    pub fn decoded(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let number = u64::from_le_bytes(*bytes.last_chunk()?);
        match bytes[0] {
            0 => Some(Self::Opened),
            1 => Some(Self::Begins(bytes[1], number)),
            2 => Some(Self::Acknowledged(bytes[1], number)),
            _ => None,
        }
    }
}

/// What kills found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Kills.
    pub kills: u64,
    /// Of these before the store was open.
    pub while_opening: u64,
    /// Writes acknowledged.
    pub acknowledged: u64,
    /// Of these acknowledged at [`Durability::Memory`] and gone, as they may be.
    pub lost: u64,
    /// Writes that were there though nobody had heard so yet.
    pub unheard: u64,
    /// Records that were found on the slow tier, each time.
    pub on_slow: u64,
    /// Records that were found in the hot level, each time.
    pub copies: u64,
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kills: _, while_opening, acknowledged, lost, unheard, on_slow, copies } = self;
        write!(
            f,
            "{while_opening} before the store was open; {acknowledged} writes acknowledged, {lost} of them in memory only and gone, \
             {unheard} there before anybody heard; after each kill \
             together {on_slow} records on the slow tier, {copies} in the hot level"
        )
    }
}

impl Tally {
    /// Adds `other`.
    pub const fn add(&mut self, other: Self) {
        self.kills += other.kills;
        self.while_opening += other.while_opening;
        self.acknowledged += other.acknowledged;
        self.lost += other.lost;
        self.unheard += other.unheard;
        self.on_slow += other.on_slow;
        self.copies += other.copies;
    }
}

/// One writer: what its keys must hold.
#[derive(Clone, Debug, Default)]
struct Writer {
    done: u64,
    state: BTreeMap<u32, Vec<u8>>,
}

/// When a writer said what in one life: places in the pipe, by number of the write.
#[derive(Clone, Debug, Default)]
struct Heard {
    begun: HashMap<u64, usize>,
    acknowledged: HashMap<u64, usize>,
}

/// A store that is killed again and again.
pub struct Killer {
    command: Vec<OsString>,
    place: Place,
    seed: u64,
    life: u64,
    random: Xoshiro256PlusPlus,
    writers: Vec<Writer>,
    /// What was found so far.
    pub tally: Tally,
}

impl Killer {
    /// A new store at `place`; `command` is the program, and what comes before the arguments of [`child::run`].
    #[must_use]
    pub fn new(command: &[OsString], place: Place, seed: u64) -> Self {
        Self {
            command: command.to_vec(),
            place,
            seed,
            life: 0,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            writers: vec![Writer::default(); usize::from(WRITERS)],
            tally: Tally::default(),
        }
    }

    /// Starts the child, kills it, and compares.
    ///
    /// # Errors
    /// The promise that was broken, with seed and life.
    pub fn kill(&mut self) -> Check {
        self.life += 1;
        let named = |what: String, place: &Place, seed, life| {
            format!("[{}] seed {seed}, life {life}, {}: {what}", place.name(), place.fast.display())
        };
        let (seed, life) = (self.seed, self.life);
        let heard = self.live().map_err(|what| named(what, &self.place, seed, life))?;
        self.compare(&heard).map_err(|what| named(what, &self.place, seed, life))
    }

    /// Lets the child live until it has acknowledged a number of writes; all it said.
    fn live(&mut self) -> Check<Vec<Said>> {
        let until = match self.random.random_range(0..8) {
            0 => None,
            1 => Some(self.random.random_range(0..20)),
            _ => Some(self.random.random_range(0..ACKNOWLEDGED_MAX)),
        };
        let mut child = self.start().map_err(|error| format!("the child does not start: {error}"))?;
        let mut pipe = child.stdout.take().ok_or("the child has no pipe")?;
        let (mut heard, mut acknowledged) = (Vec::new(), 0);
        if until.is_none() {
            // At some moment of its opening, or soon after.
            SystemClock::new().sleep(Duration::from_micros(self.random.random_range(0..OPENING_US)));
        }
        while until.is_some_and(|until| acknowledged <= until) {
            let Some(said) = next(&mut pipe)? else {
                let status =
                    child.wait().map_err(|error| format!("the child cannot be waited for: {error}"))?;
                return Err(format!("the child ended by itself with {status}"));
            };
            acknowledged += u64::from(matches!(said, Said::Acknowledged(..)));
            heard.push(said);
        }
        child.kill().map_err(|error| format!("the child cannot be killed: {error}"))?;
        child.wait().map_err(|error| format!("the child cannot be waited for: {error}"))?;
        while let Some(said) = next(&mut pipe)? {
            heard.push(said);
        }
        self.tally.kills += 1;
        self.tally.while_opening += u64::from(heard.is_empty());
        Ok(heard)
    }

    fn start(&self) -> std::io::Result<Child> {
        let number = |number: u64| number.to_string();
        let (program, first) = self.command.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
        Command::new(program)
            .args(first)
            .arg("--fast")
            .arg(&self.place.fast)
            .arg("--slow")
            .arg(&self.place.slow)
            .args(["--variant", &number(self.place.variant as u64)])
            .args(["--seed", &number(self.seed), "--life", &number(self.life)])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
    }

    /// Opens what is left, and compares it with what was said.
    fn compare(&mut self, said: &[Said]) -> Check {
        let mut heard = vec![Heard::default(); self.writers.len()];
        for (at, said) in said.iter().enumerate() {
            match said {
                Said::Opened => {}
                Said::Begins(writer, number) => {
                    heard[usize::from(*writer)].begun.insert(*number, at);
                }
                Said::Acknowledged(writer, number) => {
                    heard[usize::from(*writer)].acknowledged.insert(*number, at);
                }
            }
        }
        let db =
            Db::open(self.place.options()).map_err(|error| format!("opening after the kill: {error}"))?;
        db.audit().map_err(|error| format!("the audit: {error}"))?;
        let found: Vec<u64> = (0..WRITERS).map(|writer| progress(&db, writer)).collect::<Check<_>>()?;
        for writer in 0..WRITERS {
            let at = usize::from(writer);
            self.compare_writer(&db, writer, found[at], &heard[at])?;
        }
        check_prefix(&found, &heard)?;
        for level in db.levels() {
            self.tally.on_slow += if level.tier == Tier::Slow { level.entries } else { 0 };
            self.tally.copies += level.copies;
        }
        db.close().map_err(|error| format!("closing: {error}"))
    }

    fn compare_writer(&mut self, db: &Db, writer: u8, found: u64, heard: &Heard) -> Check {
        let (seed, life) = (self.seed, self.life);
        let before = &mut self.writers[usize::from(writer)];
        let write = |number| Write::of(seed, life, writer, number);
        let last_begun = heard.begun.keys().max().copied().unwrap_or(before.done);
        if found < before.done || found > last_begun {
            let range = format!("{} to {last_begun}", before.done);
            return Err(format!("writer {writer} is at write {found}; it can be at {range}"));
        }
        let lasting = |number: &&u64| write(**number).durability != Durability::Memory;
        if let Some(lost) = heard.acknowledged.keys().filter(lasting).find(|number| **number > found) {
            let level = write(*lost).durability;
            return Err(format!(
                "write {lost} of writer {writer}, acknowledged at {level:?}, is lost: the last is {found}"
            ));
        }
        (before.done + 1..=found).for_each(|number| write(number).apply(&mut before.state));
        before.done = found;
        self.tally.acknowledged += heard.acknowledged.len() as u64;
        self.tally.lost += heard.acknowledged.keys().filter(|number| **number > found).count() as u64;
        self.tally.unheard +=
            heard.begun.keys().filter(|n| **n <= found && !heard.acknowledged.contains_key(n)).count() as u64;
        compare_keys(db, writer, &before.state)
    }
}

/// The next that the child says; `None` once it has ended.
fn next(pipe: &mut impl Read) -> Check<Option<Said>> {
    let mut bytes = [0; Said::BYTES];
    match pipe.read_exact(&mut bytes) {
        Ok(()) => Said::decoded(bytes).map(Some).ok_or_else(|| format!("the child says {bytes:?}")),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(format!("the child cannot be heard: {error}")),
    }
}

/// No write is there that began after one was acknowledged that is not.
fn check_prefix(found: &[u64], heard: &[Heard]) -> Check {
    let first_lost = found.iter().zip(heard).enumerate().filter_map(|(writer, (found, heard))| {
        let lost = heard.acknowledged.iter().filter(|(number, _)| *number > found);
        lost.map(|(number, at)| (*at, writer, *number)).min()
    });
    let Some((lost_at, loser, lost)) = first_lost.min() else { return Ok(()) };
    for (writer, (found, heard)) in found.iter().zip(heard).enumerate() {
        if heard.begun.get(found).is_some_and(|begun_at| *begun_at > lost_at) {
            return Err(format!(
                "write {found} of writer {writer} is there, and write {lost} of writer {loser}, acknowledged before that began, is not"
            ));
        }
    }
    Ok(())
}

fn compare_keys(db: &Db, writer: u8, state: &BTreeMap<u32, Vec<u8>>) -> Check {
    let failed = |error: kelvin::Error| format!("reading writer {writer}: {error}");
    let [lower, upper] = [0, u32::MAX].map(|number| Some(key(writer, number).into()));
    let mut iter = db.iter(IterOptions { lower, upper, ..IterOptions::default() }).map_err(failed)?;
    iter.seek_to_first().map_err(failed)?;
    let mut scanned = BTreeMap::new();
    while iter.valid() {
        scanned.insert(iter.key().to_vec(), iter.value().to_vec());
        iter.next().map_err(failed)?;
    }
    let wanted: BTreeMap<Vec<u8>, Vec<u8>> =
        state.iter().map(|(number, value)| (key(writer, *number), value.clone())).collect();
    for number in 0..KEYS {
        let name = key(writer, number);
        let read = db.get(&name).map_err(failed)?;
        let (read, scanned, wanted) = (read.as_deref(), scanned.get(&name), wanted.get(&name));
        if read != wanted.map(|value| &value[..]) || scanned != wanted {
            let lens = (read.map(<[u8]>::len), scanned.map(Vec::len), wanted.map(Vec::len));
            return Err(format!(
                "{}: a read, a scan and what was written have lengths {lens:?}",
                name.escape_ascii()
            ));
        }
    }
    if scanned.len() == wanted.len() {
        Ok(())
    } else {
        Err(format!("writer {writer}: keys that nobody wrote"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_comes_through_the_pipe_as_it_was() {
        for said in [Said::Opened, Said::Begins(2, 77), Said::Acknowledged(1, u64::MAX)] {
            assert_eq!(Said::decoded(said.encoded()), Some(said));
        }
        assert_eq!(Said::decoded([9; Said::BYTES]), None);
    }

    #[test]
    fn a_state_that_is_no_prefix_is_told_from_one_that_is() {
        let heard = |begun: &[(u64, usize)], acknowledged: &[(u64, usize)]| Heard {
            begun: begun.iter().copied().collect(),
            acknowledged: acknowledged.iter().copied().collect(),
        };
        // Writer 0 had write 1 acknowledged (place 1) before writer 1 began its own (place 2).
        let apart = [heard(&[(1, 0)], &[(1, 1)]), heard(&[(1, 2)], &[])];
        for (found, is_prefix) in [([0, 0], true), ([1, 0], true), ([1, 1], true), ([0, 1], false)] {
            assert_eq!(check_prefix(&found, &apart).is_ok(), is_prefix, "{found:?}");
        }
        // Beside each other any order will do.
        let beside = [heard(&[(1, 0)], &[(1, 2)]), heard(&[(1, 1)], &[(1, 3)])];
        for found in [[0, 0], [1, 0], [0, 1], [1, 1]] {
            assert_eq!(check_prefix(&found, &beside), Ok(()), "{found:?}");
        }
    }

    #[test]
    fn a_write_does_the_same_each_time_and_another_something_else() {
        let one = Write::of(1, 2, 0, 3);
        assert_eq!(one, Write::of(1, 2, 0, 3));
        assert!(
            [Write::of(2, 2, 0, 3), Write::of(1, 3, 0, 3), Write::of(1, 2, 1, 3), Write::of(1, 2, 0, 4)]
                .iter()
                .all(|other| *other != one)
        );
        let levels: Vec<_> = (0..100).map(|number| Write::of(1, 1, 0, number).durability).collect();
        for level in [Durability::Memory, Durability::Os, Durability::Sync] {
            assert!(levels.contains(&level), "{level:?}");
        }
    }
}
