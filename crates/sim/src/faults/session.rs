//! A store under a script: what may come of each act while a device fails, and what must hold once it is well again.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use kelvin::salvage::{How, salvage};
use kelvin::{CheckReport, Db, Durability, Error, ErrorKind, IterOptions, Tier};
use kelvin_storage::Storage;
use kelvin_storage::fault::Rule;

use super::Victim;
use super::scripts::{Act, Missing};
use super::world::World;
use crate::crash::{try_batch, try_bulk_load};
use crate::oracle::{Oracle, Write};

type Pair = (Vec<u8>, Vec<u8>);
type Pairs = Vec<Pair>;

fn wrong(what: impl fmt::Display) -> impl FnOnce(Error) -> String {
    move |error| format!("{what} failed though the devices are well: {error}")
}

/// A run of a script.
pub(super) struct Session<'a> {
    world: &'a World,
    db: Option<Db>,
    pub(super) oracle: Oracle,
    /// What a reopening may find instead: commits of unknown outcome since the last acknowledged one.
    doubtful: Vec<Oracle>,
    /// There is a store.
    was_open: bool,
    /// Checkpoints and salvages so far: each needs directories of its own.
    copies: usize,
    /// Why acts were refused.
    pub(super) refused: Vec<String>,
}

impl<'a> Session<'a> {
    /// A run on the devices of `world`, where a store holds what `oracle` says.
    pub(super) fn of(world: &'a World, oracle: Oracle) -> Self {
        Self {
            world,
            db: None,
            oracle,
            doubtful: Vec::new(),
            was_open: false,
            copies: 0,
            refused: Vec::new(),
        }
    }

    /// Does `acts`; the store's errors are kept, wrong answers are not forgiven.
    pub(super) fn act_all(&mut self, acts: &[Act]) -> Result<(), String> {
        for (index, act) in acts.iter().enumerate() {
            match self.act(act) {
                Ok(()) => {}
                Err(Outcome::Refused(error)) if error.kind() == ErrorKind::InvalidArgument => {
                    return Err(format!("act {index}, {act:?}: a device's failure was told as {error}"));
                }
                Err(Outcome::Refused(error)) => self.refused.push(format!("act {index}: {error}")),
                Err(Outcome::Wrong(what)) => return Err(format!("act {index}, {act:?}: {what}")),
            }
        }
        Ok(())
    }

    fn open(&mut self) -> Result<Db, Outcome> {
        if let Some(db) = &self.db {
            return Ok(db.clone());
        }
        let db = Db::open(self.world.options()).map_err(Outcome::Refused)?;
        self.db = Some(db.clone());
        self.was_open = true;
        let settled = self.settle_doubt(&db);
        if settled.is_err() {
            // What could not be read is found out at the next opening.
            let _told = self.close();
        }
        settled.map(|()| db)
    }

    /// Finds out which of the refused writes a store just opened holds, if any.
    fn settle_doubt(&mut self, db: &Db) -> Result<(), Outcome> {
        let state = scan(db, false).map_err(Outcome::Refused)?;
        let allowed = std::iter::once(&self.oracle).chain(&self.doubtful).find(|one| pairs_of(one) == state);
        let Some(allowed) = allowed.cloned() else {
            let held = state.len();
            return Err(Outcome::Wrong(format!("reopened it holds {held} records, acknowledged are others")));
        };
        (self.oracle, self.doubtful) = (allowed, Vec::new());
        Ok(())
    }

    fn act(&mut self, act: &Act) -> Result<(), Outcome> {
        match act {
            Act::Reopen => return self.close().map_err(Outcome::Refused),
            Act::CheckClosed => return self.check_closed(),
            Act::Salvage(how) => return self.salvage(*how),
            Act::Without(what, acts) => return self.without(*what, acts),
            Act::Fail(victim, rule, acts) => return self.fail(*victim, rule, acts),
            Act::Track(hotness) => {
                self.world.hotness.set(Some(*hotness));
                return self.close().map_err(Outcome::Refused);
            }
            Act::LoseCopies => return self.lose_copies(),
            _ => {}
        }
        let db = self.open()?;
        match act {
            Act::Commit(writes, durability) => self.commit(writes, || try_batch(&db, writes, *durability))?,
            Act::BulkLoad(writes) => self.commit(writes, || try_bulk_load(&db, writes))?,
            Act::Flush => db.flush().map_err(Outcome::Refused)?,
            Act::Compact => db.compact_range(None, None).map_err(Outcome::Refused)?,
            Act::Checkpoint => self.checkpoint(&db)?,
            Act::Read => self.read(&db)?,
            Act::Get(count) => self.get(&db, *count)?,
            Act::Check => self.judged(|| Ok(db.check()))?,
            Act::Background => self.world.executor.run_all(),
            Act::Advance(seconds) => self.world.clock.advance(Duration::from_secs(*seconds)),
            Act::Force(what) => {
                // Whether there was anything to begin, and room for it, is no matter.
                let _begun = db.force(*what, 0);
                self.world.executor.run_all();
            }
            Act::Reopen
            | Act::CheckClosed
            | Act::Salvage(_)
            | Act::Without(..)
            | Act::Fail(..)
            | Act::Track(_)
            | Act::LoseCopies => {}
        }
        Ok(())
    }

    /// Has `writes` made by `make`, all of them or none.
    fn commit(&mut self, writes: &[Write], make: impl FnOnce() -> kelvin::Result<()>) -> Result<(), Outcome> {
        let mut next = self.oracle.clone();
        next.commit(writes);
        match make() {
            Ok(()) => {
                self.oracle = next;
                // What failed before is now behind the acknowledged one, so it did not happen.
                self.doubtful.clear();
                Ok(())
            }
            Err(error) => {
                self.doubtful.push(next);
                Err(Outcome::Refused(error))
            }
        }
    }

    /// Directories that nothing lies in.
    fn new_dirs(&mut self) -> [PathBuf; 2] {
        self.copies += 1;
        ["fast", "slow"].map(|tier| PathBuf::from(format!("/copies/{}-{tier}", self.copies)))
    }

    fn checkpoint(&mut self, db: &Db) -> Result<(), Outcome> {
        let [fast, slow] = self.new_dirs();
        let slow = self.world.setup.tiered.then_some(slow);
        db.checkpoint(&fast, slow.as_deref()).map_err(Outcome::Refused)
    }

    /// What `check` reports: damage only where something failed just now.
    fn judged(&self, check: impl FnOnce() -> Result<CheckReport, Error>) -> Result<(), Outcome> {
        let before = self.world.injected();
        let report = check().map_err(Outcome::Refused)?;
        match report.damaged_files().first() {
            Some(file) if self.world.injected() == before => {
                Err(Outcome::Wrong(format!("check finds damage where nothing failed: {:?}", file.damage)))
            }
            _ => Ok(()),
        }
    }

    /// Closes the store; where none was ever made, one is first.
    fn close_what_there_is(&mut self) -> Result<(), Outcome> {
        if !self.was_open {
            self.open()?;
        }
        self.close().map_err(Outcome::Refused)
    }

    fn check_closed(&mut self) -> Result<(), Outcome> {
        self.close_what_there_is()?;
        self.judged(|| kelvin::check(self.world.options(), &mut |_, _| {}))
    }

    /// What is salvaged is right, and all of it is there unless something was told as lost.
    fn salvage(&mut self, how: How) -> Result<(), Outcome> {
        self.close_what_there_is()?;
        let [fast, slow] = self.new_dirs();
        let new = || self.world.options_in(&fast, &slow);
        let salvaged = salvage(self.world.options(), new(), how, &mut |_| {}).map_err(Outcome::Refused)?;
        let db = Db::open(new()).map_err(Outcome::Refused)?;
        let sound = scan(&db, false).map_err(Outcome::Refused)?;
        let mut moments = std::iter::once(&self.oracle).chain(&self.doubtful).map(pairs_of);
        let is_right = moments.any(|pairs| {
            if salvaged.is_whole() && !how.without_manifest {
                pairs == sound
            } else {
                sound.iter().all(|pair| pairs.contains(pair))
            }
        });
        if !is_right {
            let (count, lost) = (sound.len(), &salvaged.lost);
            return Err(Outcome::Wrong(format!(
                "{count} records are given for sound; told as lost: {lost:?}"
            )));
        }
        let closed = db.close();
        self.world.executor.run_all();
        closed.map_err(Outcome::Refused)
    }

    /// Does `acts` with a closed store that lacks something of its slow tier, if it has records there. Nothing is read then.
    fn without(&mut self, what: Missing, acts: &[Act]) -> Result<(), Outcome> {
        let db = self.open()?;
        if !db.levels().iter().any(|level| level.tier == Tier::Slow && level.tables > 0) {
            return Ok(());
        }
        drop(db);
        self.close().map_err(Outcome::Refused)?;
        let moved = |error| Outcome::Wrong(format!("moving files on a device in memory: {error}"));
        self.world.take_away(what, false).map_err(moved)?;
        let done = acts.iter().try_for_each(|act| match (act, self.act(act)) {
            (Act::Read, Ok(())) => Err(Outcome::Wrong(format!("everything was read without {what:?}"))),
            (_, Ok(()) | Err(Outcome::Refused(_))) => Ok(()),
            (_, wrong) => wrong,
        });
        // What could be opened may hold what is missing.
        let _told = self.close();
        self.world.take_away(what, true).map_err(moved)?;
        done
    }

    /// Does `acts` with a fault of the script's own; whether they are refused is no matter.
    fn fail(&mut self, victim: Victim, rule: &Rule, acts: &[Act]) -> Result<(), Outcome> {
        let device = &self.world.scripted[victim as usize];
        device.add(rule.clone());
        let done = acts.iter().try_for_each(|act| match self.act(act) {
            Err(Outcome::Refused(error)) if error.kind() == ErrorKind::InvalidArgument => {
                Err(Outcome::Refused(error))
            }
            Ok(()) | Err(Outcome::Refused(_)) => Ok(()),
            wrong => wrong,
        });
        device.clear();
        done
    }

    /// Takes the tables of the hot level away while the store is closed.
    fn lose_copies(&mut self) -> Result<(), Outcome> {
        let db = self.open()?;
        let copies = db.audit().map_err(Outcome::Refused)?.run_files;
        drop(db);
        self.close().map_err(Outcome::Refused)?;
        for path in copies {
            // Closing may have removed it.
            let _removed = self.world.well[0].remove(&path);
        }
        Ok(())
    }

    /// Reads the first records, `count` times one.
    fn get(&self, db: &Db, count: usize) -> Result<(), Outcome> {
        let pairs = pairs_of(&self.oracle);
        pairs.iter().cycle().take(if pairs.is_empty() { 0 } else { count }).try_for_each(|pair| got(db, pair))
    }

    fn read(&self, db: &Db) -> Result<(), Outcome> {
        let expected = pairs_of(&self.oracle);
        expected.iter().try_for_each(|pair| got(db, pair))?;
        for backward in [false, true] {
            if scan(db, backward).map_err(Outcome::Refused)? != expected {
                return Err(Outcome::Wrong("a scan that met no error misses or adds records".into()));
            }
        }
        Ok(())
    }

    pub(super) fn close(&mut self) -> Result<(), Error> {
        let closed = self.db.take().map_or(Ok(()), Db::close);
        self.world.executor.run_all();
        closed
    }

    /// With every device well again: the open store goes on; reopened it holds what was acknowledged.
    pub(super) fn verify(&mut self) -> Result<(), String> {
        self.world.devices.iter().for_each(|device| device.clear());
        self.world.executor.settle();
        if self.db.is_some() {
            self.resumes()?;
        }
        // What keeps a read-only store from being closed well is told already.
        let _told = self.close();
        let db = self.open().map_err(|outcome| format!("reopening: {outcome}"))?;
        self.resumes().map_err(|what| format!("reopened: {what}"))?;
        let report = db.check();
        if let Some(file) = report.damaged_files().first() {
            return Err(format!("check finds damage: {:?}", file.damage));
        }
        drop(db);
        self.close().map_err(wrong("closing"))
    }

    /// The open store reads everything, and writes unless it is read-only.
    fn resumes(&mut self) -> Result<(), String> {
        let db = self.open().map_err(|outcome| format!("opening: {outcome}"))?;
        self.read(&db).map_err(|outcome| format!("reading with well devices: {outcome}"))?;
        let write = Write::Put {
            keyspace: "default".into(),
            key: b"resumed".to_vec(),
            value: vec![b'r'; 10],
            expiry_ms: None,
        };
        let writes = [write];
        match self.commit(&writes, || try_batch(&db, &writes, Durability::Sync)) {
            Ok(()) => {}
            Err(Outcome::Refused(error)) if error.kind() == ErrorKind::ReadOnly => return Ok(()),
            Err(outcome) => return Err(format!("a write with well devices: {outcome}")),
        }
        db.flush().map_err(wrong("flush"))?;
        db.wait_idle().map_err(wrong("wait_idle"))?;
        self.read(&db).map_err(|outcome| format!("reading after a flush with well devices: {outcome}"))
    }
}

/// What an act came to, if not to its end.
enum Outcome {
    Refused(Error),
    Wrong(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => write!(f, "refused with {error}"),
            Self::Wrong(what) => f.write_str(what),
        }
    }
}

fn pairs_of(oracle: &Oracle) -> Pairs {
    let history = oracle.keyspace("default");
    history.map(|history| history.scan(None, None, oracle.moment(), 0)).unwrap_or_default()
}

/// A get of the key answers the value.
fn got(db: &Db, (key, value): &Pair) -> Result<(), Outcome> {
    let got = db.get(key).map_err(Outcome::Refused)?;
    if got.as_deref() == Some(value.as_slice()) {
        return Ok(());
    }
    Err(Outcome::Wrong(format!("get of {} answers {got:?}", key.escape_ascii())))
}

fn scan(db: &Db, backward: bool) -> Result<Pairs, Error> {
    let mut iter = db.iter(IterOptions::default())?;
    let mut pairs = Vec::new();
    if backward {
        iter.seek_to_last()?
    } else {
        iter.seek_to_first()?
    }
    while iter.valid() {
        pairs.push((iter.key().to_vec(), iter.value().to_vec()));
        if backward { iter.prev()? } else { iter.next()? }
    }
    if backward {
        pairs.reverse();
    }
    Ok(pairs)
}
