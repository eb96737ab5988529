//! A client: reads and writes keys of its own, and knows what each answer must be.
//!
//! Nine in ten of its operations go to a hot spot, a twentieth of its keys, which moves on; the last tenth of its keys hold records that
//! expire soon. What writes do is in `writes.rs`, what is held for a while in `held.rs`. Tests: `tests/soak.rs` of this crate.

use std::sync::Arc;
use std::time::Duration;

use kelvin::{Db, WriteBatch, WriteOptions};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::held::Held;
use super::keys::{Between, Keys, Known, key};
use super::meter::Kind;
use super::phase::Asked;
use super::setup::CLIENTS;
use super::world::{Check, Watched, World};

/// The hot spot moves on by a quarter of itself after so many steps.
const HOT_STEPS: u64 = 5_000;
/// The hot spot is this part of the keys.
const HOT_PART: u32 = 20;
/// This part of the keys hold records that expire.
const EXPIRING_PART: u32 = 10;
/// Keys that are read at once.
const MULTI_GET_KEYS: usize = 8;
/// Records of a batch of the load.
const LOAD_RECORDS: u32 = 16;
/// With so many writes in doubt it does not write.
const DOUBTS_MAX: usize = 16;
/// Who is told to come again later waits so long.
const PAUSE: Duration = Duration::from_millis(1);

/// Who keeps to a pace and falls behind makes up for so much.
const BEHIND_MAX: Duration = Duration::from_millis(100);

/// What it needs for one step.
pub(super) struct Step<'a> {
    pub(super) db: &'a Db,
    pub(super) keys: &'a mut Keys,
}

/// A client.
pub(super) struct Client {
    pub(super) world: Arc<World>,
    pub(super) me: usize,
    pub(super) random: Xoshiro256PlusPlus,
    pub(super) held: Vec<Held>,
    db: Option<Db>,
    steps: u64,
    /// When its next step is due.
    due: Duration,
}

impl Client {
    /// Client number `me`.
    pub(super) fn new(world: &Arc<World>, me: usize) -> Self {
        let seed = world.setup.part_seed().wrapping_mul(CLIENTS as u64).wrapping_add(me as u64);
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self {
            world: Arc::clone(world),
            me,
            random,
            held: Vec::new(),
            db: None,
            steps: 0,
            due: Duration::ZERO,
        }
    }

    /// Loads its keys, unless an earlier part has, and works until all is over.
    pub(super) fn run(mut self) {
        let world = Arc::clone(&self.world);
        let _watched = Watched(Arc::clone(&world));
        let loaded = if world.setup.part == 0 { self.load() } else { Ok(()) };
        if let Err(what) = loaded {
            world.fail(format!("client {}: {what}", self.me));
        }
        world.wait_for_load();
        while !world.is_over() {
            if world.is_gate_closed() {
                self.held.clear();
                self.db = None;
                world.wait_at_gate();
                continue;
            }
            self.keep_pace();
            if let Err(what) = self.step() {
                world.fail(format!("client {}: {what}", self.me));
            }
        }
    }

    /// Waits until its next step is due.
    fn keep_pace(&mut self) {
        let (now, every) = (self.world.now(), self.world.setup.step_every);
        self.world.clock.sleep(self.due.saturating_sub(now));
        self.due = self.due.max(now.saturating_sub(BEHIND_MAX)) + every;
    }

    /// Does it; `None` if it failed as it may.
    ///
    /// # Errors
    /// The broken promise, if it may not fail so.
    pub(super) fn timed<T>(
        &self,
        (asked, kind): (Asked, Kind),
        what: impl FnOnce() -> kelvin::Result<T>,
    ) -> Check<Option<(T, Between)>> {
        let (world, meter) = (&self.world, &self.world.meters[self.me]);
        let (begun, from_ms) = (world.now(), world.wall_ms());
        meter.begin(kind, begun);
        let outcome = what();
        meter.end();
        match outcome {
            Ok(answer) => {
                meter.done(kind, asked, world.now().saturating_sub(begun));
                Ok(Some((answer, (from_ms, world.wall_ms()))))
            }
            Err(error) => {
                world.may_fail((asked, kind), &error, begun)?;
                meter.refused(asked);
                world.clock.sleep(PAUSE);
                Ok(None)
            }
        }
    }

    fn load(&mut self) -> Check {
        let world = Arc::clone(&self.world);
        let db = world.db()?;
        let count = world.setup.keys - world.setup.keys / EXPIRING_PART;
        for first in (0..count).step_by(LOAD_RECORDS as usize) {
            if world.is_over() {
                break;
            }
            let mut keys = world.keys[self.me].lock();
            let keys = &mut *keys;
            let version = keys.next_version();
            let (mut batch, mut changes) = (WriteBatch::new(), Vec::new());
            for number in first..count.min(first + LOAD_RECORDS) {
                let value = world.maker.value(self.me, number, version);
                batch.put(db.id(), &key(self.me, number), &value).map_err(|error| error.to_string())?;
                changes.push((number, Known::put(version)));
            }
            self.timed((Asked::Write, Kind::Load), || db.write(batch, &WriteOptions::default()))?;
            keys.wrote(&world.maker, &changes);
            world.meters[self.me].holds(keys.live_bytes);
        }
        Ok(())
    }

    fn step(&mut self) -> Check {
        let world = Arc::clone(&self.world);
        let db = match &self.db {
            Some(db) => db.clone(),
            None => self.db.insert(world.db()?).clone(),
        };
        self.steps += 1;
        let mut keys = world.keys[self.me].lock();
        world.meters[self.me].holds(keys.live_bytes);
        let mut step = Step { db: &db, keys: &mut keys };
        if !step.keys.doubts.is_empty() && self.settle(&mut step)? {
            return Ok(());
        }
        if self.look_back()? {
            return Ok(());
        }
        // Who holds an iterator does not wait for the room that only that keeps.
        let only_reads = step.keys.doubts.len() >= DOUBTS_MAX || self.holds_iterator();
        let kind = match self.random.random_range(0..1_000) {
            kind if only_reads => kind % 500,
            kind => kind,
        };
        match kind {
            0..400 => self.get(&step),
            400..440 => self.multi_get(&step),
            440..490 => self.scan(&step),
            490..500 => self.hold(&step),
            500..680 => self.put(&mut step),
            680..740 => self.insert(&mut step),
            740..770 => self.delete(&mut step),
            770..773 => self.delete_range(&mut step),
            773..880 => self.put_expiring(&mut step),
            880..940 => self.write_batch(&mut step),
            _ => self.swap(&mut step),
        }
    }

    /// Keys below this one do not expire.
    pub(super) fn lasting(&self) -> u32 {
        self.world.setup.keys - self.world.setup.keys / EXPIRING_PART
    }

    /// A key that expires.
    pub(super) fn expiring_number(&mut self) -> u32 {
        self.random.random_range(self.lasting()..self.world.setup.keys.max(self.lasting() + 1))
    }

    /// A key: most often of the hot spot.
    pub(super) fn number(&mut self) -> u32 {
        let lasting = self.lasting();
        match self.random.random_range(0..100) {
            0..5 => self.expiring_number(),
            5..15 => self.random.random_range(0..lasting),
            _ => {
                let width = (lasting / HOT_PART).max(4);
                let moved = u64::from(width / 4) * (self.steps / HOT_STEPS) % u64::from(lasting);
                let place = moved + u64::from(self.random.random_range(0..width));
                u32::try_from(place % u64::from(lasting)).unwrap_or(0)
            }
        }
    }

    /// Holds an answer against what is known.
    pub(super) fn verify(&self, number: u32, known: Known, answer: Option<&[u8]>, between: Between) -> Check {
        self.world.maker.verify((self.me, number), known, answer, between)
    }

    fn get(&mut self, step: &Step<'_>) -> Check {
        let number = self.number();
        let Some(known) = step.keys.certain(number) else { return Ok(()) };
        let name = key(self.me, number);
        let read = self.timed((Asked::Read, Kind::Get), || step.db.get(&name))?;
        read.map_or(Ok(()), |(answer, between)| self.verify(number, known, answer.as_deref(), between))
    }

    fn multi_get(&mut self, step: &Step<'_>) -> Check {
        let numbers: Vec<u32> = (0..MULTI_GET_KEYS).map(|_| self.number()).collect();
        let names: Vec<Vec<u8>> = numbers.iter().map(|number| key(self.me, *number)).collect();
        let refs: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let begun = self.world.now();
        let wanted = (Asked::Read, Kind::MultiGet);
        let Some((answers, between)) = self.timed(wanted, || Ok(step.db.multi_get(&refs)))? else {
            return Ok(());
        };
        for (number, answer) in numbers.into_iter().zip(answers) {
            match (answer, step.keys.certain(number)) {
                (Err(error), _) => self.world.may_fail(wanted, &error, begun)?,
                (Ok(answer), Some(known)) => self.verify(number, known, answer.as_deref(), between)?,
                (Ok(_), None) => {}
            }
        }
        Ok(())
    }

    /// Reads the keys of the oldest write in doubt, all at one moment; false if that is not possible now.
    fn settle(&mut self, step: &mut Step<'_>) -> Check<bool> {
        let Some(doubt) = step.keys.doubts.first().cloned() else { return Ok(false) };
        let snapshot = step.db.snapshot();
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for (number, new) in &doubt.changes {
            let name = key(self.me, *number);
            let read = self.timed((Asked::Read, Kind::Settle), || snapshot.get(&name))?;
            let Some((answer, between)) = read else { return Ok(false) };
            let old = step.keys.known.get(*number as usize).copied().unwrap_or_default();
            let is = |known| self.verify(*number, known, answer.as_deref(), between);
            match (is(old), is(*new)) {
                (Ok(()), Ok(())) => {}
                (Ok(()), Err(_)) => without.push(*number),
                (Err(_), Ok(())) => with.push(*number),
                (Err(what), Err(or)) => return Err(format!("after a write that failed {what}; {or}")),
            }
        }
        if !with.is_empty() && !without.is_empty() {
            return Err(format!("half of a write that failed is there: of {with:?}, and not of {without:?}"));
        }
        step.keys.settle(&self.world.maker, !with.is_empty());
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::setup::Setup;
    use super::*;

    #[test]
    fn who_keeps_to_a_pace_is_never_early_and_makes_up_for_a_moment_only() {
        let temporary = tempfile::tempdir().unwrap();
        let dirs = ["fast", "slow"].map(|name| temporary.path().join(name));
        let every = Duration::from_millis(1);
        let world = World::new(Setup { step_every: every, ..Setup::of(1, 1, dirs) }, None).unwrap();
        let mut client = Client::new(&world, 0);
        let begun = world.now();
        client.due = begun;
        for step in 0..20 {
            client.keep_pace();
            assert!(world.now() >= begun + every * step);
        }
        world.pause(BEHIND_MAX * 2);
        let now = world.now();
        client.keep_pace();
        assert!(client.due >= now - BEHIND_MAX);
        world.close().unwrap();
    }
}
