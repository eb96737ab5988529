//! A client of a simulation: what it asks for, and what it must be answered.
//!
//! Keys belong to one client each, those of all clients lying between each other, so each client knows what its own must hold, to the
//! write. Every batch also puts the number of the attempt, by which a store that was opened again says how far it got.
//! Tests: those of the simulation.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use kelvin::{Db, Durability, ErrorKind, IterOptions, Snapshot};
use kelvin_base::Clock;
use kelvin_lsm::compaction::pick::Forced;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::life::{Life, Stop};
use super::weather::random_of;
use crate::crash::try_batch;
use crate::oracle::{Oracle, Write};

/// The keyspace in which keys of all clients lie between each other, and the one in which those of one lie together.
pub const SPACES: [&str; 2] = ["default", "second"];
/// Keys of a client in each.
const KEYS: [u32; 2] = [60, 40];
/// Snapshots that a client keeps at most.
const SNAPSHOTS_MAX: usize = 3;

/// A batch that was tried; its number is its place from 1 on.
#[derive(Clone, Debug)]
struct Attempt {
    writes: Vec<Write>,
    durability: Durability,
    begun: Duration,
    /// When it was acknowledged, and the moment it made.
    done: Option<(Duration, u64)>,
}

/// What of the acknowledged writes must be there after an opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// All.
    All,
    /// Those handed to the operating system.
    Os,
    /// Those synced.
    Synced,
}

/// What an opening showed of a client's writes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shown {
    /// When the last that is there was begun, if it was made in the last life.
    pub begun: Option<Duration>,
    /// When the first acknowledged one that is not there was acknowledged.
    pub lost: Option<Duration>,
}

/// See the module.
#[derive(Debug)]
pub struct Client {
    number: usize,
    seed: u64,
    oracle: Oracle,
    attempts: Vec<Attempt>,
    /// Of those acknowledged the first that a crash may have lost is behind this number.
    settled: usize,
    /// Steps done.
    pub steps: u64,
    /// Of these, refused for a fault.
    pub refused: u64,
}

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

impl Client {
    /// Client `number`, which has written nothing.
    #[must_use]
    pub fn new(seed: u64, number: usize) -> Self {
        let mut oracle = Oracle::default();
        SPACES.iter().for_each(|name| oracle.create(name));
        Self { number, seed, oracle, attempts: Vec::new(), settled: 0, steps: 0, refused: 0 }
    }

    fn key(&self, space: usize, number: u32) -> Vec<u8> {
        let client = self.number;
        match space {
            0 => format!("k{number:03}c{client}"),
            _ => format!("c{client}k{number:03}"),
        }
        .into_bytes()
    }

    fn progress_key(&self) -> Vec<u8> {
        format!("p{}", self.number).into_bytes()
    }

    /// Works until `steps` are done or the life ends.
    ///
    /// # Errors
    /// The first wrong answer.
    pub fn run(&mut self, life: &Life, steps: u64) -> Result<(), String> {
        let mut snapshots = Vec::new();
        while self.steps < steps && !life.is_ending() {
            let mut random = random_of(self.seed, "client", self.steps * 16 + self.number as u64);
            let begun = life.begin(self.number);
            let outcome = self.step(life, &mut random, &mut snapshots);
            let told = match outcome {
                Ok(what) => what,
                Err(Stop::Wrong(what)) => {
                    return Err(format!("client {}, step {}: {what}", self.number, self.steps));
                }
                Err(Stop::Refused(error)) => {
                    life.permits(&error, begun)
                        .map_err(|what| format!("client {}, step {}: {what}", self.number, self.steps))?;
                    self.refused += 1;
                    life.clock.sleep(Duration::from_micros(random.random_range(1_000..500_000)));
                    error.kind().name()
                }
            };
            life.note(self.number, self.steps, told);
            self.steps += 1;
            if random.random_ratio(1, 8) {
                life.clock.sleep(Duration::from_micros(random.random_range(0..20_000)));
            }
        }
        life.leave(self.number);
        Ok(())
    }

    fn step(
        &mut self,
        life: &Life,
        random: &mut Xoshiro256PlusPlus,
        snapshots: &mut Vec<(Snapshot, u64)>,
    ) -> Result<&'static str, Stop> {
        let space = usize::from(random.random_ratio(1, 3));
        match random.random_range(0..1000) {
            0..400 => self.write(life, random).map(|()| "write"),
            400..700 => self.get(life, random, snapshots).map(|()| "get"),
            700..730 => self.multi_get(life, random).map(|()| "multi_get"),
            730..790 => {
                let snapshot = (!snapshots.is_empty() && random.random())
                    .then(|| &snapshots[random.random_range(0..snapshots.len())]);
                self.compare(life, snapshot, Some(random)).map(|()| "scan")
            }
            790..830 => {
                if snapshots.len() >= SNAPSHOTS_MAX {
                    snapshots.swap_remove(random.random_range(0..SNAPSHOTS_MAX));
                }
                snapshots.push((life.db.snapshot(), self.oracle.moment()));
                Ok("snapshot")
            }
            830..850 => {
                snapshots.pop();
                Ok("snapshot dropped")
            }
            850..880 => self.transaction(life, random).map(|()| "transaction"),
            880..890 => {
                life.db.sync()?;
                self.settled = self.settled.max(self.last_done());
                Ok("sync")
            }
            890..900 => life.db.keyspace(SPACES[space])?.flush().map(|()| "flush").map_err(Stop::from),
            900..903 => {
                match life.db.keyspace(SPACES[space])?.compact_range(None, None) {
                    // Of a small fast tier that four clients write to there may be no room for it.
                    Err(error) if error.kind() == ErrorKind::NoSpace => Ok("compact refused"),
                    outcome => outcome.map(|()| "compact").map_err(Stop::from),
                }
            }
            903..930 => {
                let what = [Forced::Down, Forced::Boundary, Forced::Runs][random.random_range(0..3)];
                // Whether there was anything to begin is no matter.
                let _begun = life.db.keyspace(SPACES[space])?.force(what, random.random_range(0..64));
                Ok("force")
            }
            930..932 => self.checkpoint(life).map(|()| "checkpoint"),
            932..990 => self.get_foreign(life, random).map(|()| "foreign"),
            _ => {
                life.clock.sleep(Duration::from_millis(random.random_range(0..500)));
                Ok("rest")
            }
        }
    }

    fn number_of(random: &mut Xoshiro256PlusPlus, space: usize) -> u32 {
        let bound = if random.random_ratio(7, 10) { 12 } else { KEYS[space] };
        random.random_range(0..bound)
    }

    fn value(&self, random: &mut Xoshiro256PlusPlus, index: usize) -> Vec<u8> {
        let len = match random.random_range(0..20) {
            0 => 2_000,
            1..5 => 300,
            _ => 24,
        };
        let mut value = format!("{}.{}.{index}.", self.number, self.attempts.len() + 1).into_bytes();
        value.resize(len.max(value.len()), b'.');
        value
    }

    fn drawn_write(&self, life: &Life, random: &mut Xoshiro256PlusPlus, index: usize) -> Write {
        let space = usize::from(random.random_ratio(1, 3));
        let keyspace = SPACES[space].to_owned();
        let number = random.random_range(0..KEYS[space]);
        let key = self.key(space, number);
        match random.random_range(0..20) {
            0 => {
                let number = random.random_range(0..KEYS[1]);
                let last = number + random.random_range(1..8);
                let (start, end) = (self.key(1, number), self.key(1, last));
                Write::DeleteRange { keyspace: SPACES[1].to_owned(), start, end }
            }
            1..4 => Write::Delete { keyspace, key },
            4..6 => {
                let expiry_ms = Some(life.clock.unix_millis() + random.random_range(0..20_000));
                Write::Put { keyspace, key, value: self.value(random, index), expiry_ms }
            }
            _ => Write::Put { keyspace, key, value: self.value(random, index), expiry_ms: None },
        }
    }

    fn write(&mut self, life: &Life, random: &mut Xoshiro256PlusPlus) -> Result<(), Stop> {
        let count = if random.random_ratio(3, 4) { 1 } else { random.random_range(1..8) };
        let writes = (0..count).map(|index| self.drawn_write(life, random, index)).collect();
        let durability = match random.random_range(0..10) {
            0 => Durability::Sync,
            1..4 => Durability::Memory,
            _ => Durability::Os,
        };
        self.attempt(life, writes, durability, |writes| try_batch(&life.db, writes, durability))
    }

    /// Tries `writes` by `commit`, with the number of the attempt beside them.
    fn attempt(
        &mut self,
        life: &Life,
        mut writes: Vec<Write>,
        durability: Durability,
        commit: impl FnOnce(&[Write]) -> kelvin::Result<()>,
    ) -> Result<(), Stop> {
        let number = self.attempts.len() + 1;
        writes.push(Write::Put {
            keyspace: SPACES[0].to_owned(),
            key: self.progress_key(),
            value: number.to_string().into_bytes(),
            expiry_ms: None,
        });
        self.attempts.push(Attempt { writes, durability, begun: life.clock.now(), done: None });
        let attempt = &self.attempts[number - 1];
        commit(&attempt.writes)?;
        if !life.is_cut() {
            self.oracle.commit(&attempt.writes);
            self.attempts[number - 1].done = Some((life.clock.now(), self.oracle.moment()));
        }
        Ok(())
    }

    fn transaction(&mut self, life: &Life, random: &mut Xoshiro256PlusPlus) -> Result<(), Stop> {
        let space = life.db.keyspace(SPACES[0])?;
        let mut transaction = space.transaction();
        let key = self.key(0, Self::number_of(random, 0));
        let now = life.clock.unix_millis();
        let read = transaction.get(&key)?;
        self.same(life, 0, &key, self.oracle.moment(), now, read.as_deref())?;
        let write =
            Write::Put { keyspace: SPACES[0].to_owned(), key, value: self.value(random, 0), expiry_ms: None };
        let durability = life.db.config().durability;
        self.attempt(life, vec![write], durability, move |writes| {
            for write in writes {
                if let Write::Put { key, value, .. } = write {
                    transaction.put(key, value);
                }
            }
            transaction.commit()
        })
    }

    fn get(
        &self,
        life: &Life,
        random: &mut Xoshiro256PlusPlus,
        snapshots: &[(Snapshot, u64)],
    ) -> Result<(), Stop> {
        let space = usize::from(random.random_ratio(1, 3));
        let key = self.key(space, Self::number_of(random, space));
        let keyspace = life.db.keyspace(SPACES[space])?;
        let now = life.clock.unix_millis();
        let at = (!snapshots.is_empty() && random.random_ratio(1, 4))
            .then(|| &snapshots[random.random_range(0..snapshots.len())]);
        let (got, moment) = match at {
            Some((snapshot, moment)) => (keyspace.get_at(&key, snapshot)?, *moment),
            None => (keyspace.get(&key)?, self.oracle.moment()),
        };
        self.same(life, space, &key, moment, now, got.as_deref())
    }

    fn multi_get(&self, life: &Life, random: &mut Xoshiro256PlusPlus) -> Result<(), Stop> {
        let keys: Vec<Vec<u8>> =
            (0..random.random_range(1..12)).map(|_| self.key(0, Self::number_of(random, 0))).collect();
        let refs: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let now = life.clock.unix_millis();
        let answers = life.db.keyspace(SPACES[0])?.multi_get(&refs);
        for (key, answer) in keys.iter().zip(answers) {
            self.same(life, 0, key, self.oracle.moment(), now, answer?.as_deref())?;
        }
        Ok(())
    }

    /// A key of any client holds nothing but a value of that client.
    fn get_foreign(&self, life: &Life, random: &mut Xoshiro256PlusPlus) -> Result<(), Stop> {
        let client = random.random_range(0..4);
        let key = format!("k{:03}c{client}", Self::number_of(random, 0)).into_bytes();
        let got = life.db.get(&key)?;
        let is_right = got.as_ref().is_none_or(|value| value.starts_with(format!("{client}.").as_bytes()));
        if is_right { Ok(()) } else { Err(Stop::Wrong(format!("{} holds {got:?}", key.escape_ascii()))) }
    }

    /// What was answered between `began_ms` and now is what the model says for a time between them.
    fn same(
        &self,
        life: &Life,
        space: usize,
        key: &[u8],
        moment: u64,
        began_ms: u64,
        got: Option<&[u8]>,
    ) -> Result<(), Stop> {
        let history = self.oracle.keyspace(SPACES[space]);
        let at = |now_ms| history.and_then(|history| history.get(key, moment, now_ms));
        let (before, after) = (at(began_ms), at(life.clock.unix_millis()));
        if got == before || got == after {
            return Ok(());
        }
        Err(Stop::Wrong(self.difference(space, key, moment, got, before)))
    }

    fn difference(
        &self,
        space: usize,
        key: &[u8],
        moment: u64,
        got: Option<&[u8]>,
        model: Option<&[u8]>,
    ) -> String {
        let show =
            |value: Option<&[u8]>| value.map(|value| value[..value.len().min(16)].escape_ascii().to_string());
        format!(
            "{} of {} at moment {moment} of {}: the store says {:?}, the model {:?}",
            key.escape_ascii(),
            SPACES[space],
            self.oracle.moment(),
            show(got),
            show(model)
        )
    }

    /// Scans all of the client's keys, with rests if there is `random`.
    fn compare(
        &self,
        life: &Life,
        snapshot: Option<&(Snapshot, u64)>,
        mut random: Option<&mut Xoshiro256PlusPlus>,
    ) -> Result<(), Stop> {
        for space in 0..SPACES.len() {
            let rest = |moved: usize| {
                if let Some(random) = random.as_mut()
                    && moved.is_multiple_of(16)
                    && random.random_ratio(1, 4)
                {
                    life.clock.sleep(Duration::from_millis(random.random_range(0..50)));
                }
            };
            self.compare_space(&life.db, &*life.clock, space, snapshot, rest)?;
        }
        Ok(())
    }

    fn compare_space(
        &self,
        db: &Db,
        clock: &dyn Clock,
        space: usize,
        snapshot: Option<&(Snapshot, u64)>,
        mut rest: impl FnMut(usize),
    ) -> Result<(), Stop> {
        let keyspace = db.keyspace(SPACES[space])?;
        let began_ms = clock.unix_millis();
        let bound = |text: String| (space == 1).then(|| Bytes::from(text));
        let options = IterOptions {
            lower: bound(format!("c{}k", self.number)),
            upper: bound(format!("c{}l", self.number)),
            ..IterOptions::default()
        };
        let (mut iter, moment) = match snapshot {
            Some((snapshot, moment)) => (keyspace.iter_at(snapshot, options)?, *moment),
            None => (keyspace.iter(options)?, self.oracle.moment()),
        };
        let suffix = format!("c{}", self.number);
        let (mut got, mut moved) = (Pairs::new(), 0);
        iter.seek_to_first()?;
        while iter.valid() {
            let key = iter.key().to_vec();
            let is_own = space == 1 || key.ends_with(suffix.as_bytes()) || key == self.progress_key();
            if is_own && got.insert(key.clone(), iter.value().to_vec()).is_some() {
                return Err(Stop::Wrong(format!("a scan yields {} twice", key.escape_ascii())));
            }
            moved += 1;
            rest(moved);
            iter.next()?;
        }
        let model = |now_ms| -> Pairs {
            let history = self.oracle.keyspace(SPACES[space]);
            history
                .map(|history| history.scan(None, None, moment, now_ms))
                .unwrap_or_default()
                .into_iter()
                .collect()
        };
        let (before, after) = (model(began_ms), model(clock.unix_millis()));
        let wrong = got.iter().find(|(key, value)| before.get(*key) != Some(value));
        let missing = after.iter().find(|(key, _)| !got.contains_key(*key));
        match wrong.or(missing) {
            None => Ok(()),
            Some((key, _)) => {
                let (got, model) = (got.get(key), before.get(key));
                let what =
                    self.difference(space, key, moment, got.map(Vec::as_slice), model.map(Vec::as_slice));
                Err(Stop::Wrong(format!("a scan: {what}")))
            }
        }
    }

    fn checkpoint(&self, life: &Life) -> Result<(), Stop> {
        let name = format!("c{}-{}", self.number, self.steps);
        let (db, dirs) = life.checkpoint(&name)?;
        let compared = (0..SPACES.len())
            .try_for_each(|space| self.compare_space(&db, &*life.clock, space, None, |_| {}));
        let closed = db.close();
        life.remove(&dirs);
        compared.map_err(|stop| stop.within("a checkpoint"))?;
        Ok(closed?)
    }

    /// The last acknowledged attempt's number; 0 for none.
    fn last_done(&self) -> usize {
        self.attempts.iter().rposition(|attempt| attempt.done.is_some()).map_or(0, |place| place + 1)
    }

    /// Finds out how far the opened store got; `kept` is what must be there.
    ///
    /// # Errors
    /// A write that is lost, one that should not be there; the store's.
    pub fn settle(&mut self, db: &Db, clock: &dyn Clock, kept: Kept) -> Result<Shown, Stop> {
        let value = db.keyspace(SPACES[0])?.get(&self.progress_key())?;
        let text = value.as_ref().map_or(Some("0"), |value| std::str::from_utf8(value).ok());
        let place: Option<usize> = text.and_then(|text| text.parse().ok());
        let wrong = |what: String| Stop::Wrong(format!("client {}: {what}", self.number));
        let Some(place) = place.filter(|place| *place <= self.attempts.len()) else {
            return Err(wrong(format!("its progress is {value:?}")));
        };
        let last = self.last_done();
        let least = self.attempts.iter().rposition(|attempt| {
            attempt.done.is_some()
                && match kept {
                    Kept::All => true,
                    Kept::Os => attempt.durability != Durability::Memory,
                    Kept::Synced => attempt.durability == Durability::Sync,
                }
        });
        let least = least.map_or(0, |place| place + 1).max(self.settled);
        if place < least {
            let level = least.checked_sub(1).map(|index| self.attempts[index].durability);
            return Err(wrong(format!(
                "write {place} is the last, {least} had been acknowledged at {level:?}, {last} is the last of all"
            )));
        }
        let done = |place: usize| place.checked_sub(1).and_then(|index| self.attempts[index].done);
        if place < last && place > 0 && done(place).is_none() {
            return Err(wrong(format!(
                "write {place} was refused, {last} acknowledged after it, and now {place} is there"
            )));
        }
        let lost = self.attempts[place..].iter().find_map(|attempt| attempt.done).map(|(when, _)| when);
        let begun = (place > self.settled).then(|| self.attempts[place - 1].begun);
        if place > last {
            let writes = self.attempts[place - 1].writes.clone();
            self.oracle.commit(&writes);
            self.attempts[place - 1].done = Some((clock.now(), self.oracle.moment()));
            // Nobody said that it was synced.
            self.attempts[place - 1].durability = Durability::Os;
        } else {
            self.oracle.rewind(done(place).map_or(0, |(_, moment)| moment));
        }
        self.attempts[place..].iter_mut().for_each(|attempt| attempt.done = None);
        if kept == Kept::All {
            // Who closes a store hands everything to the operating system.
            let in_memory =
                self.attempts[..place].iter_mut().filter(|one| one.durability == Durability::Memory);
            in_memory.for_each(|one| one.durability = Durability::Os);
        } else {
            self.settled = place;
        }
        for space in 0..SPACES.len() {
            self.compare_space(db, clock, space, None, |_| {})?;
        }
        Ok(Shown { begun, lost })
    }
}
