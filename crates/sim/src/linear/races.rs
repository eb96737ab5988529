//! Histories in which insertions into the promotion cache, claims, promotions by flush and installs meet all the time: a handful of keys, small
//! records, a promotion cache that is full with one or two of them, and after every few steps a flush and compactions that take what is written down.
//!
//! Some of the seeds have compactions that fail, so that what they took from the cache comes back. Beside the keys of the history
//! there are some that expire. Tests: `tests/linear.rs`, and the seeded bugs that only races show.

use std::sync::Arc;
use std::time::Duration;

use kelvin::{Db, WriteOptions};
use kelvin_base::Clock;
use kelvin_lsm::compaction::pick::Forced;
use kelvin_storage::fault::{EIO, Effect, FaultStorage, Op, Rule};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::history::{Kind, Tally, key, run_on};
use crate::checks::{Check, audit};

/// Keys that the clients share.
const KEYS: usize = 5;
/// What the clients ask for.
const OPERATIONS: u64 = 640;
/// Steps of a client in a round; those that write do so in one of them.
const STEPS_A_ROUND: u64 = 8;
/// A client flushes once in so many steps, as the one that pushes data down does: so several memtables wait.
const FLUSHES: u32 = 40;
/// Clients that write; the others only read, so that what lies on the slow tier is promoted.
const WRITERS: u64 = 2;
/// One in so many seeds has compactions that fail.
const FAILING: u64 = 3;
/// How many of a million appends to a file of the slow tier fail then.
const FAILURES_PER_MILLION: u32 = 100_000;
/// Compactions begun after a flush, some of them in a round.
const FORCED: [Forced; 7] = [
    Forced::Boundary,
    Forced::Boundary,
    Forced::Newer,
    Forced::Whole,
    Forced::Whole,
    Forced::Deeper,
    Forced::Runs,
];
/// So long a disk may take for what it is asked for, and in how many of a million cases.
const DELAYS: [(Duration, u32); 3] = [
    (Duration::from_millis(30), 20_000),
    (Duration::from_millis(5), 60_000),
    (Duration::from_millis(1), 120_000),
];
/// So long a read of the slow disk may take besides: meanwhile much goes on.
const SLOW_READ: Duration = Duration::from_millis(20);
const SLOW_READS_PER_MILLION: u32 = 150_000;
/// A record that expires does so within this time.
const TTL_MS_MAX: u64 = 400;

/// What such a history needs beside the store.
pub(super) struct Races {
    clock: Arc<dyn Clock>,
    disks: [Arc<FaultStorage>; 2],
    fails: bool,
    /// Of four rounds two are quiet: nobody writes, and what is read again and again is handed up.
    is_quiet: bool,
    /// Compactions go on to the second slow level.
    goes_deeper: bool,
}

impl Races {
    /// On a store with this clock and on these disks; what else the history is like follows from `seed`.
    pub(super) fn new(clock: Arc<dyn Clock>, disks: [Arc<FaultStorage>; 2], seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let fails = random.random_range(0..FAILING) == 0;
        Self { clock, disks, fails, is_quiet: random.random(), goes_deeper: random.random() }
    }

    /// Runs a history on `db` and checks it.
    ///
    /// # Errors
    /// As [`super::history::run`]; a record that is read after its time; what the audit finds in between.
    pub(super) fn run(&self, db: Db, seed: u64) -> Check<Tally> {
        if self.fails {
            let rule = Rule::new(Op::Append, Effect::Error(EIO));
            self.disks[1].add(rule.chance(FAILURES_PER_MILLION));
        }
        let slow_read = Effect::StallFor(SLOW_READ, Arc::clone(&self.clock));
        self.disks[1].add(Rule::new(Op::Read, slow_read).chance(SLOW_READS_PER_MILLION));
        for (disk, (time, per_million)) in
            self.disks.iter().flat_map(|disk| DELAYS.map(|delay| (disk, delay)))
        {
            let delay = Effect::StallFor(time, Arc::clone(&self.clock));
            disk.add(Rule::any(delay).chance(per_million));
        }
        let kind = Kind {
            keys: KEYS,
            value_bytes: 64,
            steps_a_round: STEPS_A_ROUND,
            may_write: &|client, step| {
                let is_quiet = self.is_quiet && (step / STEPS_A_ROUND) % 4 >= 2;
                client < WRITERS && (step + client).is_multiple_of(STEPS_A_ROUND) && !is_quiet
            },
            many_reads: 15,
            range_deletes: 10,
            beside: &|db, random| self.beside(db, random),
            push: &|db, random| self.push(db, random),
        };
        run_on(db, &kind, seed, OPERATIONS)
    }

    /// Flushes now and then, and reads a key whose record expires: what it holds says when.
    fn beside(&self, db: &Db, random: &mut Xoshiro256PlusPlus) -> Check {
        if random.random_ratio(1, FLUSHES) {
            db.flush().map_err(|error| format!("a flush failed: {error}"))?;
        }
        if random.random() {
            return Ok(());
        }
        let now_ms = self.clock.unix_millis();
        let name = expiring(random);
        let answer = db.get(&name).map_err(|error| format!("a call failed: {error}"))?;
        let expiry_ms =
            answer.as_ref().and_then(|bytes| bytes.first_chunk()).map(|ms| u64::from_le_bytes(*ms));
        match expiry_ms {
            Some(expiry_ms) if expiry_ms <= now_ms => {
                Err(format!("a record that expired at {expiry_ms} was read after {now_ms}"))
            }
            _ => Ok(()),
        }
    }

    /// Pushes data down once. What fails for the slow device's sake is tried again in the next round.
    fn push(&self, db: &Db, random: &mut Xoshiro256PlusPlus) -> Check {
        match self.work(db, random) {
            Err(error) if !self.fails => return Err(format!("background work failed: {error}")),
            _ => {}
        }
        if random.random() { audit(db) } else { Ok(()) }
    }

    fn work(&self, db: &Db, random: &mut Xoshiro256PlusPlus) -> kelvin::Result<()> {
        // Without others the tables begin and end with keys of the clients.
        for number in 0..random.random_range(0_u8..4) {
            let side = if random.random() { 'a' } else { 'z' };
            db.put(format!("{side}{number}").as_bytes(), &[number; 16])?;
        }
        if random.random() {
            let ttl_ms = random.random_range(1..TTL_MS_MAX);
            let options =
                WriteOptions { ttl: Some(Duration::from_millis(ttl_ms)), ..WriteOptions::default() };
            let expiry_ms = self.clock.unix_millis() + ttl_ms;
            db.put_with(&expiring(random), &expiry_ms.to_le_bytes(), &options)?;
        }
        db.flush()?;
        db.force(Forced::Down, 0);
        if random.random() {
            db.wait_idle()?;
        }
        for _ in 0..random.random_range(0..6) {
            let what = FORCED[random.random_range(0..FORCED.len())];
            if what != Forced::Deeper || self.goes_deeper {
                db.force(what, random.random_range(0..4));
            }
        }
        match random.random_range(0..16) {
            0 => db.compact_range(None, None),
            1 => db.compact_range(Some(&key(1)), Some(&key(3))),
            2..7 => db.wait_idle(),
            7..10 => {
                self.clock.sleep(Duration::from_millis(random.random_range(1..TTL_MS_MAX)));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// A key whose records expire, beside those of the clients.
fn expiring(random: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    format!("x{}", random.random_range(0..2_u8)).into_bytes()
}
