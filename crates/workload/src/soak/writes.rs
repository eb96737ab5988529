//! How a client writes. Tests: `tests/soak.rs` of this crate.

use kelvin::{WriteBatch, WriteOptions};
use rand::RngExt;

use super::client::{Client, Step};
use super::keys::{Known, key};
use super::meter::Kind;
use super::phase::Asked;
use super::world::Check;

/// Records of a batch, at most.
const BATCH_RECORDS: usize = 8;
/// Keys of a range that is deleted, at most.
const RANGE_KEYS: u32 = 20;
/// Records expire within so many milliseconds.
const EXPIRY_MS: std::ops::Range<u64> = 50..5_000;
/// So many keys are looked at for one that holds nothing.
const GAP_KEYS: u32 = 64;

impl Client {
    /// Writes `changes` by `what`; if that fails, they are in doubt.
    fn write(
        &self,
        step: &mut Step<'_>,
        (asked, kind): (Asked, Kind),
        changes: Vec<(u32, Known)>,
        what: impl FnOnce() -> kelvin::Result<()>,
    ) -> Check {
        match self.timed((asked, kind), what)? {
            Some(_) => step.keys.wrote(&self.world.maker, &changes),
            None => step.keys.doubt(changes),
        }
        Ok(())
    }

    fn put_number(&self, step: &mut Step<'_>, kind: Kind, number: u32) -> Check {
        if step.keys.certain(number).is_none() {
            return Ok(());
        }
        let (version, db) = (step.keys.next_version(), step.db);
        let (name, value) = (key(self.me, number), self.world.maker.value(self.me, number, version));
        let changes = vec![(number, Known::put(version))];
        self.write(step, (Asked::Write, kind), changes, || db.put(&name, &value))
    }

    pub(super) fn put(&mut self, step: &mut Step<'_>) -> Check {
        let number = self.number();
        self.put_number(step, Kind::Put, number)
    }

    /// Puts a key that holds nothing, so that as many are there in the long run.
    pub(super) fn insert(&mut self, step: &mut Step<'_>) -> Check {
        let first = self.random.random_range(0..self.lasting());
        let is_gone = |number: &u32| step.keys.certain(*number).is_some_and(|known| !known.is_written());
        let gap = (first..self.lasting().min(first + GAP_KEYS)).find(is_gone);
        gap.map_or(Ok(()), |number| self.put_number(step, Kind::Insert, number))
    }

    pub(super) fn delete(&mut self, step: &mut Step<'_>) -> Check {
        let (number, db) = (self.number(), step.db);
        if step.keys.certain(number).is_none() {
            return Ok(());
        }
        let (name, version) = (key(self.me, number), step.keys.next_version());
        let changes = vec![(number, Known::deleted(version))];
        self.write(step, (Asked::Write, Kind::Delete), changes, || db.delete(&name))
    }

    pub(super) fn delete_range(&mut self, step: &mut Step<'_>) -> Check {
        let (first, db) = (self.number(), step.db);
        let end = (first + self.random.random_range(1..RANGE_KEYS)).min(self.world.setup.keys);
        if (first..end).any(|number| step.keys.certain(number).is_none()) {
            return Ok(());
        }
        let version = step.keys.next_version();
        let changes = (first..end).map(|number| (number, Known::deleted(version))).collect();
        let [first, end] = [first, end].map(|number| key(self.me, number));
        self.write(step, (Asked::Write, Kind::DeleteRange), changes, || db.delete_range(&first, &end))
    }

    /// A record that expires soon, in a batch: the version of the write, and until when.
    fn expiry(&mut self, version: u32) -> (Known, u64) {
        let until_ms = self.world.wall_ms() + self.random.random_range(EXPIRY_MS);
        (Known::expiring(version, until_ms), self.world.unix_start_ms + until_ms)
    }

    pub(super) fn put_expiring(&mut self, step: &mut Step<'_>) -> Check {
        let (number, db) = (self.expiring_number(), step.db);
        if step.keys.certain(number).is_none() {
            return Ok(());
        }
        let version = step.keys.next_version();
        let (known, expiry_ms) = self.expiry(version);
        let (name, value) = (key(self.me, number), self.world.maker.value(self.me, number, version));
        self.write(step, (Asked::Write, Kind::Expiring), vec![(number, known)], || {
            let mut batch = WriteBatch::new();
            batch.put_expiring(db.id(), &name, &value, expiry_ms)?;
            db.write(batch, &WriteOptions::default())
        })
    }

    pub(super) fn write_batch(&mut self, step: &mut Step<'_>) -> Check {
        let mut numbers: Vec<u32> =
            (0..self.random.random_range(2..=BATCH_RECORDS)).map(|_| self.number()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.retain(|number| step.keys.certain(*number).is_some());
        if numbers.is_empty() {
            return Ok(());
        }
        let (version, db) = (step.keys.next_version(), step.db);
        let (mut batch, mut changes) = (WriteBatch::new(), Vec::new());
        for number in numbers {
            let (name, value) = (key(self.me, number), self.world.maker.value(self.me, number, version));
            let (known, added) = match self.random.random_range(0..8) {
                0 => (Known::deleted(version), batch.delete(db.id(), &name)),
                1 => {
                    let (known, expiry_ms) = self.expiry(version);
                    (known, batch.put_expiring(db.id(), &name, &value, expiry_ms))
                }
                _ => (Known::put(version), batch.put(db.id(), &name, &value)),
            };
            added.map_err(|error| format!("a batch refuses a record: {error}"))?;
            changes.push((number, known));
        }
        self.write(step, (Asked::Write, Kind::Batch), changes, || db.write(batch, &WriteOptions::default()))
    }

    /// Compares and sets: what is there, or what is not and so must not be set.
    pub(super) fn swap(&mut self, step: &mut Step<'_>) -> Check {
        let (number, db) = (self.number(), step.db);
        // What may expire meanwhile may be either.
        let Some(known) = step.keys.certain(number).filter(|known| known.is_lasting()) else { return Ok(()) };
        let version = step.keys.next_version();
        let value = |version| self.world.maker.value(self.me, number, version);
        let (name, new) = (key(self.me, number), value(version));
        let present = known.is_written().then(|| value(known.version));
        if self.random.random_range(0..4) == 0 {
            // Of a version that is not there.
            let other = Some(value(known.version + 1));
            let wanted = (Asked::Swap, Kind::Refusal);
            let done = self.timed(wanted, || db.compare_and_set(&name, other.as_deref(), Some(&new)))?;
            return match done {
                Some((true, _)) => {
                    Err(format!("{} is set though it was not as expected", name.escape_ascii()))
                }
                _ => Ok(()),
            };
        }
        let mut was_expected = true;
        let changes = vec![(number, Known::put(version))];
        self.write(step, (Asked::Swap, Kind::Swap), changes, || {
            was_expected = db.compare_and_set(&name, present.as_deref(), Some(&new))?;
            Ok(())
        })?;
        if was_expected {
            Ok(())
        } else {
            Err(format!("{} is not as expected: version {}", name.escape_ascii(), known.version))
        }
    }
}
