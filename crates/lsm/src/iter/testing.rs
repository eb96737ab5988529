//! Sources and random choices for tests of iterators and merges.

use kelvin_base::key::{Kind, append_internal, compare_internal, trailer};
use kelvin_base::{Error, ErrorKind, InternalIterator, Result, Sequence};

/// An internal key.
pub fn internal(user_key: &[u8], sequence: Sequence, kind_byte: u8) -> Vec<u8> {
    let mut out = Vec::new();
    append_internal(&mut out, user_key, trailer(sequence, kind_byte));
    out
}

/// A value entry.
pub fn value(user_key: &str, sequence: Sequence, text: &str) -> (Vec<u8>, Vec<u8>) {
    (internal(user_key.as_bytes(), sequence, Kind::Value as u8), text.as_bytes().to_vec())
}

/// A deletion.
pub fn deletion(user_key: &str, sequence: Sequence) -> (Vec<u8>, Vec<u8>) {
    (internal(user_key.as_bytes(), sequence, Kind::Deletion as u8), Vec::new())
}

/// Entries in memory, which can be made to fail.
#[derive(Debug, Default)]
pub struct VecIter {
    entries: Vec<(Vec<u8>, Vec<u8>)>,
    at: Option<usize>,
    /// Moves made.
    pub moves: usize,
    /// Fails every move from this one on.
    pub fail_from: Option<usize>,
}

impl VecIter {
    pub fn new(mut entries: Vec<(Vec<u8>, Vec<u8>)>) -> Self {
        entries.sort_by(|a, b| compare_internal(&a.0, &b.0));
        Self { entries, ..Self::default() }
    }

    fn go(&mut self, at: Option<usize>) -> Result<()> {
        self.moves += 1;
        self.at = None;
        if self.fail_from.is_some_and(|from| self.moves > from) {
            return Err(Error::new(ErrorKind::Io, "made to fail"));
        }
        self.at = at.filter(|&at| at < self.entries.len());
        Ok(())
    }

    fn lower_bound(&self, target: &[u8]) -> usize {
        self.entries.partition_point(|entry| compare_internal(&entry.0, target).is_lt())
    }
}

impl InternalIterator for VecIter {
    fn seek_to_first(&mut self) -> Result<()> {
        self.go(Some(0))
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.go(self.entries.len().checked_sub(1))
    }

    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.go(Some(self.lower_bound(target)))
    }

    fn seek_before(&mut self, target: &[u8]) -> Result<()> {
        self.go(self.lower_bound(target).checked_sub(1))
    }

    fn next(&mut self) -> Result<()> {
        self.go(self.at.map(|at| at + 1))
    }

    fn prev(&mut self) -> Result<()> {
        self.go(self.at.and_then(|at| at.checked_sub(1)))
    }

    fn valid(&self) -> bool {
        self.at.is_some()
    }

    fn key(&self) -> &[u8] {
        self.at.map_or(&[], |at| &self.entries[at].0)
    }

    fn value(&self) -> &[u8] {
        self.at.map_or(&[], |at| &self.entries[at].1)
    }
}

/// A repeatable source of choices (splitmix64).
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    /// An index below `len`.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap()
    }

    /// True once in `n`.
    pub const fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A small history of writes: entries and range tombstones, each with a sequence number of its own.
#[derive(Debug, Default)]
pub struct History {
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
    pub tombstones: Vec<kelvin_base::RangeTombstone>,
    pub last_sequence: Sequence,
}

/// The time at which tests look; records expire around it.
pub const NOW_MS: u64 = 1_000;

impl History {
    /// `count` random writes to `keys` keys.
    pub fn random(dice: &mut Dice, count: u64, keys: u64) -> Self {
        let mut history = Self::default();
        for sequence in 1..=count {
            history.last_sequence = sequence;
            let key = Self::key(dice.below(keys));
            let text = format!("v{sequence}").into_bytes();
            match dice.below(12) {
                0 | 1 => history.entries.push((internal(&key, sequence, Kind::Deletion as u8), Vec::new())),
                2 => {
                    let end = Self::key(dice.below(keys + 1));
                    let (start, end) = if key <= end { (key, end) } else { (end, key) };
                    if start < end {
                        let (start, end) = (start.into(), end.into());
                        history.tombstones.push(kelvin_base::RangeTombstone { start, end, sequence });
                    }
                }
                3 => {
                    let mut stored = (NOW_MS - 5 + dice.below(10)).to_le_bytes().to_vec();
                    stored.extend_from_slice(&text);
                    let kind_byte = Kind::Value as u8 | kelvin_base::key::EXPIRES;
                    history.entries.push((internal(&key, sequence, kind_byte), stored));
                }
                _ => history.entries.push((internal(&key, sequence, Kind::Value as u8), text)),
            }
        }
        history
    }

    /// The `index`-th key; some are prefixes of others.
    pub fn key(index: u64) -> Vec<u8> {
        let mut key = format!("k{:02}", index / 2).into_bytes();
        if index % 2 == 1 {
            key.push(0);
        }
        key
    }

    /// What a reader at `at` sees, worked out one write at a time.
    pub fn seen(&self, at: Sequence) -> std::collections::BTreeMap<Vec<u8>, (Sequence, Vec<u8>)> {
        let mut newest: std::collections::BTreeMap<Vec<u8>, (Sequence, u8, Vec<u8>)> = Default::default();
        for (key, stored) in &self.entries {
            let (user_key, trailer) = kelvin_base::key::split_internal(key).unwrap();
            let sequence = kelvin_base::key::trailer_sequence(trailer);
            let kind_byte = kelvin_base::key::trailer_kind_byte(trailer);
            let known = newest.get(user_key).map_or(0, |known| known.0);
            if sequence <= at && sequence > known {
                newest.insert(user_key.to_vec(), (sequence, kind_byte, stored.clone()));
            }
        }
        let live = newest.into_iter().filter_map(|(key, (sequence, kind_byte, stored))| {
            let covered = self.tombstones.iter().any(|t| t.sequence <= at && t.covers(&key, sequence));
            let (expiry, text) = kelvin_base::key::split_expiry(kind_byte, &stored).unwrap();
            let kind = Kind::from_byte(kind_byte).unwrap();
            let live = kind.has_value() && !covered && expiry.is_none_or(|expiry| expiry > NOW_MS);
            live.then(|| (key, (sequence, text.to_vec())))
        });
        live.collect()
    }
}
