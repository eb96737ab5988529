//! Makes traces in the published form with given shares of reads of sunk and of hot records, where none is at hand.
//!
//! First a `set` for each record, then the operations. The generator counts what is read and written as the
//! classification does ([`classify`](super::classify)), draws for each read whether it is to be of a sunk and of a hot
//! record, and takes a key of that class. Hot reads go to two small sets: one that is never written again, and one that
//! is written again before it sinks; together they hold a quarter of what may be read before a record cools. What a
//! class lacks for a moment is made up for later. It holds 16 bytes for each record. Tests: `tests/synthetic.rs`.

use std::collections::VecDeque;

use kelvin_base::{Error, Result};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::classify::{Classes, PART, is_hot, is_sunk};
use super::plan::run_ops_for;
use super::request::{Kind, Request};
use crate::generate::records::Records;

/// The hot sets hold this part of what may be read before a record cools.
const HOT_SET_PART: f64 = 0.25;
/// Fewer records make classes too small to choose from.
const RECORDS_MIN: u64 = 1_000;
/// Keys of this many digits and more are text.
const KEY_SIZE_MIN: usize = 24;
/// Records looked at before another class is taken.
const TRIES: usize = 64;
/// Reads over which a share that lags is made up for.
const CATCH_UP: f64 = 64.0;
/// Operations a second of the trace.
const OPERATIONS_PER_SECOND: u64 = 1_000;
/// How far a share may be from the one asked for.
const TOLERANCE: f64 = 0.02;

/// What a synthetic trace is to be like. Shares go from 0 to 1.
#[derive(Clone, Debug)]
pub struct Synthetic {
    /// Bytes of all keys and values.
    pub data: u64,
    /// Operations behind the load; `None` is the paper's part of the data.
    pub ops: Option<u64>,
    /// Bytes of a key.
    pub key_size: usize,
    /// Bytes of a value.
    pub value_size: u32,
    /// Reads among the operations.
    pub reads: f64,
    /// Reads of sunk records among the reads.
    pub sunk: f64,
    /// Reads of hot records among the reads.
    pub hot: f64,
    /// What all choices follow from.
    pub seed: u64,
}

impl Default for Synthetic {
    fn default() -> Self {
        Self {
            data: 110_000_000,
            ops: None,
            key_size: 40,
            value_size: 400,
            reads: 0.9,
            sunk: 0.9,
            hot: 0.8,
            seed: 1,
        }
    }
}

impl Synthetic {
    const fn record_bytes(&self) -> u64 {
        self.key_size as u64 + self.value_size as u64
    }

    /// How many records there are.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.data / self.record_bytes().max(1)
    }

    /// Operations behind the load.
    #[must_use]
    pub fn run_ops(&self) -> u64 {
        self.ops.unwrap_or(run_ops_for(self.records() * self.record_bytes()))
    }

    fn check(&self) -> Result<()> {
        for (name, share) in [("--reads", self.reads), ("--sunk", self.sunk), ("--hot", self.hot)] {
            if !(0.0..=1.0).contains(&share) {
                return Err(Error::invalid(format!("{name} is a share, in per cent"))
                    .expected("0 to 100", share * 100.0));
            }
        }
        let records = self.records();
        if records < RECORDS_MIN || records > u64::from(u32::MAX) {
            return Err(Error::invalid("a synthetic trace of that size has too few or too many records")
                .expected(format!("{RECORDS_MIN} to {}", u32::MAX), records)
                .advice("change --data or --value-size"));
        }
        if self.key_size < KEY_SIZE_MIN {
            return Err(Error::invalid("keys of a synthetic trace are text of some length")
                .expected(format!("at least {KEY_SIZE_MIN} bytes"), self.key_size));
        }
        Ok(())
    }
}

/// Writes the trace line by line to `write`; what its operations are.
///
/// # Errors
/// `InvalidArgument` for shares or sizes that cannot be; what `write` reports.
pub fn synthesize(order: &Synthetic, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<Classes> {
    order.check()?;
    let mut maker = Maker::new(order);
    let keys = Records::new(order.key_size, 16, order.seed)?;
    let (mut key, mut line) = (Vec::new(), Vec::new());
    let load = order.records();
    for number in 0..load + order.run_ops() {
        let (kind, record) = match number.checked_sub(load) {
            None => (Kind::Set, maker.load(number)),
            Some(_) => maker.operation(),
        };
        keys.key_into(record, &mut key);
        line.clear();
        let request = Request {
            timestamp: number.saturating_sub(load) / OPERATIONS_PER_SECOND,
            key: &key,
            value_size: order.value_size,
            client: if record.is_multiple_of(2) { b"1" } else { b"2" },
            kind,
            ttl: 0,
        };
        request.write_to(&mut line);
        write(&line)?;
    }
    let classes = maker.classes;
    let (sunk, hot) = (classes.sunk_share(), classes.hot_share());
    let is_near = |found: f64, wanted: f64| (found - wanted).abs() <= TOLERANCE || classes.reads == 0;
    if is_near(sunk, order.sunk) && is_near(hot, order.hot) {
        return Ok(classes);
    }
    let said = |sunk: f64, hot: f64| format!("{:.1} % sunk, {:.1} % hot", sunk * 100.0, hot * 100.0);
    Err(Error::invalid("these shares cannot be had together with so few operations or writes")
        .expected(said(order.sunk, order.hot), said(sunk, hot))
        .advice("ask for more operations, more data, or shares nearer to those reached"))
}

/// A set of records that hot reads go to.
#[derive(Debug, Default)]
struct HotRecords {
    members: Vec<u64>,
    /// Members that have cooled, found in passing: the next cold reads of their class.
    cooled: Vec<u64>,
    /// The member to be written next, so the one written longest ago.
    next: usize,
}

/// The state of a synthetic trace.
struct Maker<'a> {
    order: &'a Synthetic,
    rng: Xoshiro256PlusPlus,
    data_bytes: u64,
    /// For each record where it was last written and last read; 0 is never.
    written_at: Vec<u64>,
    read_at: Vec<u64>,
    written: u64,
    read: u64,
    /// What was written last, oldest first: whatever has not sunk is in it.
    recent: VecDeque<u32>,
    /// Never written again.
    sunk: HotRecords,
    /// Written again before they sink.
    fresh: HotRecords,
    is_member: Vec<bool>,
    classes: Classes,
}

fn place(record: u64) -> usize {
    usize::try_from(record).unwrap_or(usize::MAX)
}

impl<'a> Maker<'a> {
    fn new(order: &'a Synthetic) -> Self {
        let records = order.records();
        let mut maker = Self {
            order,
            rng: Xoshiro256PlusPlus::seed_from_u64(order.seed),
            data_bytes: records * order.record_bytes(),
            written_at: vec![0; place(records)],
            read_at: vec![0; place(records)],
            written: 0,
            read: 0,
            recent: VecDeque::new(),
            sunk: HotRecords::default(),
            fresh: HotRecords::default(),
            is_member: vec![false; place(records)],
            classes: Classes::default(),
        };
        let part = HOT_SET_PART * order.hot * (records / PART) as f64;
        let size = |share: f64| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
            let whole = (part * share).ceil() as usize;
            whole
        };
        // The last twentieth of the load is fresh when the run begins.
        let (old, new) = (0..records - records / 10, records - records / 25..records);
        maker.sunk.members = maker.choose(size(order.sunk), old);
        maker.fresh.members = maker.choose(size(1.0 - order.sunk), new);
        // Those written longest ago come first.
        maker.fresh.members.sort_unstable();
        maker
    }

    /// Chooses `count` different records of `range`.
    fn choose(&mut self, count: usize, range: std::ops::Range<u64>) -> Vec<u64> {
        let mut chosen = Vec::with_capacity(count);
        while chosen.len() < count {
            let record = self.rng.random_range(range.clone());
            if !std::mem::replace(&mut self.is_member[place(record)], true) {
                chosen.push(record);
            }
        }
        chosen
    }

    fn load(&mut self, record: u64) -> u64 {
        self.note_write(record);
        record
    }

    fn note_write(&mut self, record: u64) {
        self.written += self.order.record_bytes();
        self.written_at[place(record)] = self.written;
        self.recent.push_back(u32::try_from(record).unwrap_or(u32::MAX));
        // As many as are written until one has sunk, each once.
        while self.recent.len() as u64 > self.order.records() / PART {
            self.recent.pop_front();
        }
    }

    fn is_sunk(&self, record: u64) -> bool {
        is_sunk(self.written - self.written_at[place(record)], self.data_bytes)
    }

    fn is_hot(&self, record: u64) -> bool {
        let at = self.read_at[place(record)];
        is_hot((at > 0).then(|| self.read - at), self.data_bytes)
    }

    /// The next operation of the run.
    fn operation(&mut self) -> (Kind, u64) {
        let lag = self.order.reads * self.classes.operations() as f64 - self.classes.reads as f64;
        if self.draw(self.order.reads, lag) {
            let record = self.pick_read();
            let class = (self.is_sunk(record), self.is_hot(record));
            self.classes.count_read(Some(class));
            self.read += self.order.record_bytes();
            self.read_at[place(record)] = self.read;
            return (Kind::Get, record);
        }
        let record = self.pick_write();
        self.note_write(record);
        self.classes.writes += 1;
        (Kind::Set, record)
    }

    /// True with the probability `share`, and more often while the share lags behind by `lag`.
    fn draw(&mut self, share: f64, lag: f64) -> bool {
        self.rng.random::<f64>() < (share + lag / CATCH_UP).clamp(0.0, 1.0)
    }

    fn pick_read(&mut self) -> u64 {
        let reads = self.classes.reads as f64;
        let sunk_lag = self.order.sunk * reads - self.classes.sunk as f64;
        let wants_sunk = self.draw(self.order.sunk, sunk_lag);
        let hot_lag = self.order.hot * reads - self.classes.hot as f64;
        let wants_hot = self.draw(self.order.hot, hot_lag);
        let wanted = [
            (wants_sunk, wants_hot),
            (wants_sunk, !wants_hot),
            (!wants_sunk, wants_hot),
            (!wants_sunk, !wants_hot),
        ];
        let found = wanted.into_iter().find_map(
            |(sunk, hot)| {
                if hot { self.pick_hot(sunk) } else { self.pick_cold(sunk) }
            },
        );
        found.unwrap_or_else(|| self.rng.random_range(0..self.order.records()))
    }

    fn hot_records(&mut self, is_sunk: bool) -> &mut HotRecords {
        if is_sunk { &mut self.sunk } else { &mut self.fresh }
    }

    fn pick_hot(&mut self, wants_sunk: bool) -> Option<u64> {
        for _ in 0..TRIES {
            let count = self.hot_records(wants_sunk).members.len();
            if count == 0 {
                return None;
            }
            let index = self.rng.random_range(0..count);
            let record = self.hot_records(wants_sunk).members[index];
            if self.is_sunk(record) == wants_sunk {
                if self.is_hot(record) {
                    return Some(record);
                }
                self.hot_records(wants_sunk).cooled.push(record);
            }
        }
        None
    }

    fn pick_cold(&mut self, wants_sunk: bool) -> Option<u64> {
        while let Some(record) = self.hot_records(wants_sunk).cooled.pop() {
            if self.is_sunk(record) == wants_sunk && !self.is_hot(record) {
                return Some(record);
            }
        }
        for _ in 0..TRIES {
            let record = if wants_sunk {
                self.rng.random_range(0..self.order.records())
            } else {
                let index = self.rng.random_range(0..self.recent.len().max(1));
                u64::from(*self.recent.get(index)?)
            };
            let is_free = !wants_sunk || !self.is_member[place(record)];
            if is_free && self.is_sunk(record) == wants_sunk && !self.is_hot(record) {
                return Some(record);
            }
        }
        None
    }

    /// The fresh record that is nearest to sinking, when it is half way there; else any that is in no set.
    fn pick_write(&mut self) -> u64 {
        let fresh = &mut self.fresh;
        if let Some(record) = fresh.members.get(fresh.next) {
            let age = self.written - self.written_at[place(*record)];
            if age * PART * 2 > self.data_bytes {
                fresh.next = (fresh.next + 1) % fresh.members.len();
                return *record;
            }
        }
        loop {
            let record = self.rng.random_range(0..self.order.records());
            if !self.is_member[place(record)] {
                return record;
            }
        }
    }
}
