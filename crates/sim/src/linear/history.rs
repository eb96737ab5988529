//! Concurrent clients on a store, and what each of them saw.
//!
//! Clients read, write and scan a few keys, through snapshots, too, which they keep for a while; beside them another thread pushes all data to
//! the slow tier again and again, so that reads promote, boundary compactions retain, and copies go. Each answer about a
//! key is a call of that key's history: of a snapshot, an iterator or a batch with the moments between which that was made. Then
//! the histories are checked ([`super::check`]). What such a history is like says its [`Kind`]; another is in `races.rs`.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use kelvin::{Db, DbIterator, IterOptions, Snapshot, WriteBatch, WriteOptions};
use kelvin_base::sync::{self, Condvar, Mutex};
use kelvin_lsm::compaction::pick::Forced;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Call, NONE, Op, Value, check};
use crate::checks::{Check, audit};
use crate::model::Moved;
use crate::settings::{Configuration, open};

/// Clients of a history.
pub(super) const CLIENTS: usize = 4;
/// Records written beside them at a time, to push theirs down.
const FILLERS: u64 = 60;
/// Compactions begun after them, those that find nothing to do among them.
const FORCED: usize = 8;
/// Snapshots that a client keeps at most.
const SNAPSHOTS_MAX: usize = 3;

/// What histories are like.
pub(super) struct Kind<'a> {
    /// Keys that the clients share: few, so that they meet.
    pub keys: usize,
    /// Their values are shorter.
    pub value_bytes: u64,
    /// Steps of a client for which data is pushed down once.
    pub steps_a_round: u64,
    /// Whether a client may write in a step.
    pub may_write: &'a (dyn Fn(u64, u64) -> bool + Sync),
    /// Of the 56 in a hundred steps that may not write though they would, so many read all keys at once.
    pub many_reads: u32,
    /// Of the 26 in a hundred steps that would put a record, so many delete a range instead.
    pub range_deletes: u32,
    /// Does something else beside a step.
    pub beside: &'a (dyn Fn(&Db, &mut Xoshiro256PlusPlus) -> Check + Sync),
    /// Pushes data down once.
    pub push: &'a (dyn Fn(&Db, &mut Xoshiro256PlusPlus) -> Check + Sync),
}

impl Kind<'_> {
    /// What write `number` sets: the number, and as many bytes as it says.
    fn value(&self, number: Value) -> Vec<u8> {
        value(number, self.value_bytes)
    }

    /// The write that set `bytes`.
    fn number_of(&self, bytes: Option<&[u8]>) -> Check<Value> {
        let Some(bytes) = bytes else { return Ok(NONE) };
        let number = bytes.first_chunk().map(|first| Value::from_le_bytes(*first));
        number.filter(|&number| number != NONE && self.value(number) == bytes).ok_or_else(|| {
            format!("a read answered {} bytes that nobody wrote: {}", bytes.len(), bytes.escape_ascii())
        })
    }
}

/// Many records, clients that write by turns, all that is due awaited.
pub(super) const LONG: Kind<'_> = Kind {
    keys: 10,
    value_bytes: 908,
    steps_a_round: 10,
    // What is written again and again never comes to the slow tier.
    may_write: &|_, step| (step / 10).is_multiple_of(4),
    many_reads: 0,
    range_deletes: 0,
    beside: &|_, _| Ok(()),
    push: &push_down,
};

/// What histories held.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Histories.
    pub histories: u64,
    /// What clients asked for.
    pub operations: u64,
    /// Calls of single keys in the histories.
    pub calls: u64,
    /// What moved between the tiers meanwhile.
    pub moved: Moved,
    /// Records put into the promotion cache.
    pub inserted: u64,
    /// Insertions given up because of a compaction.
    pub abandoned: u64,
    /// Records that claims took out.
    pub claimed: u64,
}

impl Tally {
    /// Adds `other`.
    pub const fn add(&mut self, other: Self) {
        self.histories += other.histories;
        self.operations += other.operations;
        self.calls += other.calls;
        self.moved.add(other.moved);
        self.inserted += other.inserted;
        self.abandoned += other.abandoned;
        self.claimed += other.claimed;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operations, calls, moved, inserted, abandoned, claimed, .. } = self;
        write!(
            f,
            "{operations} operations, {calls} calls of single keys; records promoted {inserted}, given up for a compaction {abandoned}, claimed {claimed}; {moved}"
        )
    }
}

pub(super) fn key(number: usize) -> Vec<u8> {
    format!("k{number:02}").into_bytes()
}

fn value(number: Value, limit_bytes: u64) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(8 + usize::try_from(number % (limit_bytes - 8)).unwrap_or(0), (number % 251) as u8);
    bytes
}

/// What all clients share.
struct World<'a> {
    db: &'a Db,
    kind: &'a Kind<'a>,
    /// The next moment.
    moments: AtomicU64,
    /// The number of the next write.
    numbers: AtomicU64,
    rounds: Mutex<Rounds>,
    changed: Condvar,
}

/// How far the first client is, and who pushes data down for it.
#[derive(Default)]
struct Rounds {
    /// A client has come to this one.
    begun: u64,
    /// So often data was pushed down.
    ended: u64,
}

impl World<'_> {
    fn now(&self) -> u64 {
        self.moments.fetch_add(1, Ordering::SeqCst)
    }

    fn number(&self) -> Value {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Waits until so many rounds have ended: clients are much faster than what moves below them.
    fn await_round(&self, rounds: u64) {
        let mut now = self.rounds.lock();
        now.begun = now.begun.max(rounds);
        self.changed.notify_all();
        while now.ended < rounds {
            self.changed.wait(&mut now);
        }
    }

    /// Ends a round, and waits until a client has come to the next.
    fn end_round(&self, round: u64) {
        let mut now = self.rounds.lock();
        now.ended = round;
        self.changed.notify_all();
        while now.begun < round {
            self.changed.wait(&mut now);
        }
    }

    /// Nobody waits for a client any more: one has done all its steps, or failed.
    fn end_client(&self) {
        self.rounds.lock().begun = u64::MAX;
        self.changed.notify_all();
    }
}

/// A view of the store that was made between two moments.
struct Held {
    snapshot: Snapshot,
    made: (u64, u64),
}

struct Client<'a> {
    world: &'a World<'a>,
    random: Xoshiro256PlusPlus,
    /// The last value seen of each key.
    seen: Vec<Value>,
    held: Vec<Held>,
    calls: Vec<(usize, Op)>,
}

impl Client<'_> {
    fn new<'a>(world: &'a World<'a>, seed: u64) -> Client<'a> {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let seen = vec![NONE; world.kind.keys];
        Client { world, random, seen, held: Vec::new(), calls: Vec::new() }
    }

    const fn keys(&self) -> usize {
        self.world.kind.keys
    }

    /// Does it, and tells between which moments.
    fn timed<T>(&self, what: impl FnOnce(&Db) -> kelvin::Result<T>) -> Check<(T, (u64, u64))> {
        let begun = self.world.now();
        let outcome = what(self.world.db).map_err(|error| format!("a call failed: {error}"))?;
        Ok((outcome, (begun, self.world.now())))
    }

    fn note(&mut self, key: usize, (begun, ended): (u64, u64), call: Call) {
        match call {
            Call::Read(value) | Call::Write(value) | Call::Swap { new: value, done: true, .. } => {
                self.seen[key] = value;
            }
            Call::Swap { .. } => {}
        }
        self.calls.push((key, Op { begun, ended, call }));
    }

    fn note_read(&mut self, key: usize, when: (u64, u64), answer: Option<&[u8]>) -> Check {
        self.note(key, when, Call::Read(self.world.kind.number_of(answer)?));
        Ok(())
    }

    /// One call, or several; with `only_reads` none that writes.
    fn step(&mut self, only_reads: bool) -> Check {
        let at = self.random.random_range(0..self.keys());
        let kind = match self.random.random_range(0..100) {
            kind @ 34..90 if only_reads => {
                if kind - 34 < self.world.kind.many_reads {
                    90
                } else {
                    0
                }
            }
            kind @ 34..60 if kind - 34 < self.world.kind.range_deletes => 82,
            kind => kind,
        };
        match kind {
            0..34 => {
                let (answer, when) = self.timed(|db| db.get(&key(at)))?;
                self.note_read(at, when, answer.as_deref())
            }
            34..60 => {
                let number = self.world.number();
                let value = self.world.kind.value(number);
                let ((), when) = self.timed(|db| db.put(&key(at), &value))?;
                self.note(at, when, Call::Write(number));
                Ok(())
            }
            60..68 => {
                let ((), when) = self.timed(|db| db.delete(&key(at)))?;
                self.note(at, when, Call::Write(NONE));
                Ok(())
            }
            68..82 => self.swap(at),
            82..85 => self.delete_range(at),
            85..90 => self.write_batch(at),
            90..93 => self.multi_get(),
            93..96 => self.look_back(),
            _ => self.scan(at),
        }
    }

    fn swap(&mut self, at: usize) -> Check {
        let removes = self.random.random_range(0..6) == 0;
        let new = if removes { NONE } else { self.world.number() };
        let expected = self.seen[at];
        let bytes = |number| (number != NONE).then(|| self.world.kind.value(number));
        let (before, after) = (bytes(expected), bytes(new));
        let (done, when) =
            self.timed(|db| db.compare_and_set(&key(at), before.as_deref(), after.as_deref()))?;
        self.note(at, when, Call::Swap { expected, new, done });
        if !done {
            // What it is now will be known at the next read.
            let (answer, when) = self.timed(|db| db.get(&key(at)))?;
            self.note_read(at, when, answer.as_deref())?;
        }
        Ok(())
    }

    fn delete_range(&mut self, at: usize) -> Check {
        let end = (at + 1 + self.random.random_range(0..3)).min(self.keys());
        let ((), when) = self.timed(|db| db.delete_range(&key(at), &key(end)))?;
        (at..end).for_each(|key| self.note(key, when, Call::Write(NONE)));
        Ok(())
    }

    fn write_batch(&mut self, at: usize) -> Check {
        let keyspace = self.world.db.id();
        let keys: Vec<usize> = (at..self.keys().min(at + 3)).collect();
        let numbers: Vec<Value> = keys.iter().map(|_| self.world.number()).collect();
        let mut batch = WriteBatch::new();
        for (at, number) in keys.iter().zip(&numbers) {
            let added = batch.put(keyspace, &key(*at), &self.world.kind.value(*number));
            added.map_err(|error| format!("a batch refused a record: {error}"))?;
        }
        let ((), when) = self.timed(|db| db.write(batch, &WriteOptions::default()))?;
        keys.into_iter().zip(numbers).for_each(|(key, number)| self.note(key, when, Call::Write(number)));
        Ok(())
    }

    fn multi_get(&mut self) -> Check {
        let keys: Vec<Vec<u8>> = (0..self.keys()).map(key).collect();
        let refs: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let (answers, when) =
            self.timed(|db| db.multi_get(&refs).into_iter().collect::<kelvin::Result<Vec<_>>>())?;
        for (key, answer) in answers.into_iter().enumerate() {
            self.note_read(key, when, answer.as_deref())?;
        }
        Ok(())
    }

    /// Takes a snapshot, or reads through one that was taken some time ago and lets it go.
    fn look_back(&mut self) -> Check {
        if self.held.len() < SNAPSHOTS_MAX && self.random.random() {
            let (snapshot, made) = self.timed(|db| Ok(db.snapshot()))?;
            self.held.push(Held { snapshot, made });
            return Ok(());
        }
        let Some(Held { snapshot, made }) = self.held.pop() else { return Ok(()) };
        // What it answers is older than what was seen since.
        let seen = self.seen.clone();
        for number in 0..self.keys() {
            let answer = self.timed(|_| snapshot.get(&key(number)))?.0;
            self.note_read(number, made, answer.as_deref())?;
        }
        self.seen = seen;
        Ok(())
    }

    /// Reads all keys by an iterator, forward or backward.
    fn scan(&mut self, at: usize) -> Check {
        let (upper, back) = (Some(Bytes::from(key(self.keys()))), self.random.random());
        let lower = Some(Bytes::from(key(at)));
        let options = IterOptions { lower, upper, ..IterOptions::default() };
        let (iter, made) = self.timed(|db| db.iter(options))?;
        let found = pairs(iter, back).map_err(|error| format!("an iterator failed: {error}"))?;
        if !found.is_sorted_by(|(one, _), (other, _)| if back { one > other } else { one < other }) {
            return Err(format!("an iterator's keys are in no order: {found:?}"));
        }
        for number in at..self.keys() {
            let answer = found.iter().find(|(have, _)| *have == key(number)).map(|(_, value)| &value[..]);
            self.note_read(number, made, answer)?;
        }
        Ok(())
    }
}

fn pairs(mut iter: DbIterator, back: bool) -> kelvin::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut found = Vec::new();
    if back {
        iter.seek_to_last()?
    } else {
        iter.seek_to_first()?
    }
    while iter.valid() {
        found.push((iter.key().to_vec(), iter.value().to_vec()));
        if back { iter.prev()? } else { iter.next()? }
    }
    Ok(found)
}

/// Pushes all data down: other records on both sides, flushes, compactions whether due or not.
fn push_down(db: &Db, random: &mut Xoshiro256PlusPlus) -> Check {
    let mut work = || {
        for _ in 0..FILLERS {
            let side = if random.random() { 'a' } else { 'z' };
            let number: u32 = random.random_range(0..2_000);
            let value = LONG.value(u64::from(number) + 100);
            db.put(format!("{side}{number:04}").as_bytes(), &value)?;
        }
        db.flush()?;
        db.force(Forced::Down, 0);
        db.wait_idle()?;
        for _ in 0..FORCED {
            let what = if random.random_range(0..4) == 0 { Forced::Runs } else { Forced::Boundary };
            db.force(what, random.random_range(0..64));
        }
        match random.random_range(0..8) {
            0 => db.compact_range(Some(&key(2)), Some(&key(7))),
            1 => db.compact_range(None, None),
            _ => Ok(()),
        }
    };
    work().map_err(|error| format!("background work failed: {error}"))
}

/// Pushes data down until `ends`.
fn push_rounds(world: &World<'_>, seed: u64, ends: &AtomicBool) -> Check {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let outcome = (1..).take_while(|_| !ends.load(Ordering::Acquire)).try_for_each(|round| {
        (world.kind.push)(world.db, &mut random)?;
        world.end_round(round);
        Ok(())
    });
    // Nobody waits for more.
    world.rounds.lock().ended = u64::MAX;
    world.changed.notify_all();
    outcome
}

/// Runs a history of `operations` under `configuration`, which has threads, and checks it.
///
/// # Errors
/// The key whose calls have no order, with those that cannot come next; an answer that nobody wrote; a call that failed.
pub fn run(configuration: &Configuration, seed: u64, operations: u64) -> Check<Tally> {
    let named = |what: String| format!("[{}] seed {seed}: {what}", configuration.name);
    run_on(open(configuration, seed).map_err(named)?, &LONG, seed, operations).map_err(named)
}

/// Runs a history of `operations` on `db` and checks it.
///
/// # Errors
/// As [`run`].
pub(super) fn run_on(db: Db, kind: &Kind<'_>, seed: u64, operations: u64) -> Check<Tally> {
    let world = World {
        db: &db,
        kind,
        moments: AtomicU64::new(0),
        numbers: AtomicU64::new(1),
        rounds: Mutex::default(),
        changed: Condvar::new(),
    };
    let calls = clients(&world, seed, operations)?;
    let stats = db.stats();
    let counted =
        |name: &str| stats.promotion.iter().find(|(of, _)| *of == name).map_or(0, |(_, count)| *count);
    let tally = Tally {
        histories: 1,
        operations,
        calls: calls.len() as u64,
        moved: Moved::of(&stats.boundary),
        inserted: counted("inserted"),
        abandoned: counted("abandoned_compacted"),
        claimed: counted("claimed"),
    };
    for number in 0..kind.keys {
        let ops: Vec<Op> = calls.iter().filter(|(key, _)| *key == number).map(|(_, op)| *op).collect();
        check(&ops).map_err(|stuck| {
            let rest = ops.len() - stuck.ordered;
            format!(
                "the calls of k{number:02} have no order: after {} of them and the value {}, with {rest} to come, none of these can be next: {:?}",
                stuck.ordered, stuck.value, stuck.next
            )
        })?;
    }
    audit(&db)?;
    db.close().map_err(|error| format!("closing failed: {error}"))?;
    Ok(tally)
}

/// What all clients saw, each with its part of the operations.
fn clients(world: &World<'_>, seed: u64, operations: u64) -> Check<Vec<(usize, Op)>> {
    let ends = AtomicBool::new(false);
    let run_steps = |number: u64| {
        let mut client = Client::new(world, seed.wrapping_mul(CLIENTS as u64) + number);
        for step in 0..operations / CLIENTS as u64 {
            world.await_round(step / world.kind.steps_a_round);
            client.step(!(world.kind.may_write)(number, step))?;
            (world.kind.beside)(world.db, &mut client.random)?;
        }
        Ok::<_, String>(client.calls)
    };
    let run_client = |number: u64| {
        let calls = run_steps(number);
        world.end_client();
        calls
    };
    sync::scope(|scope| {
        let pusher = scope.spawn(|| push_rounds(world, seed, &ends));
        let run_client = &run_client;
        let clients: Vec<_> =
            (0..CLIENTS as u64).map(|number| scope.spawn(move || run_client(number))).collect();
        let seen: Vec<Check<_>> = clients.into_iter().map(|one| joined(one.join())).collect();
        ends.store(true, Ordering::Release);
        joined(pusher.join())?;
        Ok(seen.into_iter().collect::<Check<Vec<_>>>()?.concat())
    })
}

fn joined<T>(ended: std::thread::Result<Check<T>>) -> Check<T> {
    ended.unwrap_or_else(|_| Err("a thread panicked".to_owned()))
}
