//! What the keys of a client must hold.
//!
//! Each client writes keys of its own alone, so it knows what they hold: of each key the last version and until when that is there,
//! eight bytes; the value follows from key and version. A write that failed may have happened or not: it stays in doubt, as a whole, until all of its
//! keys have been read, and nothing else is done to them meanwhile.
//!
//! Invariant: versions of a client's writes only grow, so what a key held between two moments lies between its versions then.
//! Tests stand below.

use std::collections::HashSet;

use kelvin::Result;
use serde::{Deserialize, Serialize};

use crate::generate::permutation::mix64;
use crate::generate::records::Records;

/// Bytes of a key.
const KEY_BYTES: usize = 12;
/// Bytes of values, and how many in ten are so long.
const VALUE_BYTES: [(usize, u64); 2] = [(400, 6), (1_600, 4)];
/// A clock may be set back or on by so much while records expire, milliseconds.
const CLOCK_SLACK_MS: u64 = 100;

/// Never written, or deleted.
const GONE: u32 = 0;
/// For ever.
const EVER: u32 = u32::MAX;

/// Bytes of a record, on average.
pub const fn record_bytes_mean() -> u64 {
    let [(short, often), (long, seldom)] = VALUE_BYTES;
    KEY_BYTES as u64 + (short as u64 * often + long as u64 * seldom) / 10
}

/// What a key holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "(u32, u32)", from = "(u32, u32)")]
pub struct Known {
    /// The last write of it; 0 for none.
    pub version: u32,
    /// [`GONE`], [`EVER`], or milliseconds since the run began.
    until: u32,
}

impl From<Known> for (u32, u32) {
    fn from(known: Known) -> Self {
        (known.version, known.until)
    }
}

impl From<(u32, u32)> for Known {
    fn from((version, until): (u32, u32)) -> Self {
        Self { version, until }
    }
}

impl Known {
    /// A value that stays.
    pub const fn put(version: u32) -> Self {
        Self { version, until: EVER }
    }

    /// A value until then, milliseconds since the run began.
    pub fn expiring(version: u32, until_ms: u64) -> Self {
        Self { version, until: u32::try_from(until_ms).unwrap_or(EVER).clamp(1, EVER - 1) }
    }

    /// Nothing.
    pub const fn deleted(version: u32) -> Self {
        Self { version, until: GONE }
    }

    /// There is a value, though it may have expired.
    pub const fn is_written(self) -> bool {
        self.until != GONE
    }

    /// It does not expire.
    pub const fn is_lasting(self) -> bool {
        matches!(self.until, GONE | EVER)
    }

    /// There may be a value at one of the moments.
    fn may_be_there(self, from_ms: u64) -> bool {
        self.until == EVER || self.until != GONE && u64::from(self.until) + CLOCK_SLACK_MS > from_ms
    }

    /// There may be none at one of the moments.
    fn may_be_gone(self, to_ms: u64) -> bool {
        self.until != EVER && u64::from(self.until) <= to_ms + CLOCK_SLACK_MS
    }
}

/// When an answer was given: between two moments, milliseconds since the run began.
pub type Between = (u64, u64);

/// Makes the keys and values of all clients.
#[derive(Clone, Debug)]
pub struct Maker([Records; 2]);

impl Maker {
    /// Values that follow from `seed`.
    pub fn new(seed: u64) -> Result<Self> {
        let [(short, _), (long, _)] = VALUE_BYTES;
        Ok(Self([Records::new(24, short, seed)?, Records::new(24, long, seed)?]))
    }

    /// What it takes, bytes.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(Records::bytes).sum()
    }

    fn records(&self, number: u32) -> &Records {
        &self.0[usize::from(mix64(u64::from(number)) % 10 >= VALUE_BYTES[0].1)]
    }

    /// The value of `version` of a client's key.
    pub fn value(&self, client: usize, number: u32, version: u32) -> Vec<u8> {
        let mut value = Vec::new();
        self.records(number).value_into(index(client, number), u64::from(version), &mut value);
        value
    }

    /// Bytes of the record of a key.
    pub fn record_bytes(&self, number: u32) -> u64 {
        self.records(number).record_bytes() - 24 + KEY_BYTES as u64
    }

    /// The version that `value` is of this key, if it is one.
    pub fn version_of(&self, client: usize, number: u32, value: &[u8]) -> std::result::Result<u32, String> {
        let version = value.get(8..16).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
        let version = version.and_then(|version| u32::try_from(version).ok());
        version.filter(|version| self.value(client, number, *version) == value).ok_or_else(|| {
            let start = value[..value.len().min(32)].escape_ascii();
            let len = value.len();
            format!("{} answers {len} bytes that nobody wrote there: {start}", name(client, number))
        })
    }

    /// Holds an answer against what is known.
    pub fn verify(
        &self,
        (client, number): (usize, u32),
        known: Known,
        answer: Option<&[u8]>,
        (from_ms, to_ms): Between,
    ) -> std::result::Result<(), String> {
        let name = name(client, number);
        match answer {
            None if known.may_be_gone(to_ms) => Ok(()),
            None => Err(format!("{name} answers nothing where version {} must be", known.version)),
            Some(value) => {
                let version = self.version_of(client, number, value)?;
                if version != known.version {
                    return Err(format!("{name} answers version {version}, and not {known:?}"));
                }
                if !known.may_be_there(from_ms) {
                    return Err(format!(
                        "{name} answers version {version}, which is gone: {known:?}, read from {from_ms} to {to_ms}"
                    ));
                }
                Ok(())
            }
        }
    }
}

fn index(client: usize, number: u32) -> u64 {
    (client as u64) << 32 | u64::from(number)
}

fn name(client: usize, number: u32) -> String {
    String::from_utf8_lossy(&key(client, number)).into_owned()
}

/// A client's key: in order of the numbers.
pub fn key(client: usize, number: u32) -> Vec<u8> {
    format!("c{client}-{number:09}").into_bytes()
}

/// The number of a client's key.
pub fn number_of(key: &[u8]) -> std::result::Result<u32, String> {
    let digits = key.get(3..).and_then(|digits| std::str::from_utf8(digits).ok());
    let number = digits.and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| format!("the key {} is nobody's", key.escape_ascii()))
}

/// A write that may have happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// What its keys hold if it has.
    pub changes: Vec<(u32, Known)>,
}

/// What all keys of a client hold.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// By number.
    pub known: Vec<Known>,
    /// Writes that may have happened, oldest first.
    pub doubts: Vec<Doubt>,
    doubtful: HashSet<u32>,
    version: u32,
    /// Bytes of the records that were neither deleted nor overwritten.
    pub live_bytes: u64,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys")
            .field("count", &self.known.len())
            .field("doubts", &self.doubts)
            .field("version", &self.version)
            .field("live_bytes", &self.live_bytes)
            .finish_non_exhaustive()
    }
}

impl Keys {
    /// Keys that hold nothing.
    pub fn new(count: u32) -> Self {
        let known = (0..count).map(|_| Known::default()).collect();
        Self { known, doubts: Vec::new(), doubtful: HashSet::new(), version: 0, live_bytes: 0 }
    }

    /// The version of the next write.
    pub const fn next_version(&mut self) -> u32 {
        self.version += 1;
        self.version
    }

    /// What a key holds; `None` while that is in doubt.
    pub fn certain(&self, number: u32) -> Option<Known> {
        let known = self.known.get(number as usize).copied()?;
        (!self.doubtful.contains(&number)).then_some(known)
    }

    /// A write has happened.
    pub fn wrote(&mut self, maker: &Maker, changes: &[(u32, Known)]) {
        for (number, new) in changes {
            let Some(known) = self.known.get_mut(*number as usize) else { continue };
            let bytes = maker.record_bytes(*number);
            self.live_bytes -= if known.is_written() { bytes } else { 0 };
            self.live_bytes += if new.is_written() { bytes } else { 0 };
            *known = *new;
        }
    }

    /// A write may have happened.
    pub fn doubt(&mut self, changes: Vec<(u32, Known)>) {
        self.doubtful.extend(changes.iter().map(|(number, _)| *number));
        self.doubts.push(Doubt { changes });
    }

    /// The oldest write in doubt has happened, or not.
    pub fn settle(&mut self, maker: &Maker, has_happened: bool) {
        if self.doubts.is_empty() {
            return;
        }
        let doubt = self.doubts.remove(0);
        doubt.changes.iter().for_each(|(number, _)| {
            self.doubtful.remove(number);
        });
        if has_happened {
            self.wrote(maker, &doubt.changes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_right_at_its_version_and_within_its_time() {
        let maker = Maker::new(3).unwrap();
        let (at, value) = ((1, 7), |version| maker.value(1, 7, version));
        let holds = |known, answer: Option<Vec<u8>>, between| {
            maker.verify(at, known, answer.as_deref(), between).is_ok()
        };
        let now = (5_000, 5_010);
        assert!(holds(Known::put(4), Some(value(4)), now));
        assert!(!holds(Known::put(4), Some(value(3)), now) && !holds(Known::put(4), None, now));
        assert!(!holds(Known::put(4), Some(maker.value(2, 7, 4)), now), "another's");
        assert!(!holds(Known::put(4), Some(value(4)[1..].to_vec()), now));
        assert!(holds(Known::deleted(5), None, now) && !holds(Known::deleted(5), Some(value(5)), now));
        for (until, is_there, is_gone) in [(4_000, false, true), (5_005, true, true), (6_000, true, false)] {
            let known = Known::expiring(6, until);
            assert_eq!(holds(known, Some(value(6)), now), is_there, "{until}");
            assert_eq!(holds(known, None, now), is_gone, "{until}");
        }
    }

    #[test]
    fn a_write_in_doubt_is_settled_as_a_whole() {
        let maker = Maker::new(3).unwrap();
        let mut keys = Keys::new(10);
        let version = keys.next_version();
        keys.wrote(&maker, &[(2, Known::put(version))]);
        assert_eq!(keys.live_bytes, maker.record_bytes(2));
        let version = keys.next_version();
        keys.doubt(vec![(2, Known::deleted(version)), (3, Known::put(version))]);
        assert_eq!((keys.certain(2), keys.certain(4)), (None, Some(Known::default())));
        keys.settle(&maker, true);
        assert_eq!((keys.certain(2), keys.certain(3)), (Some(Known::deleted(2)), Some(Known::put(2))));
        assert_eq!(keys.live_bytes, maker.record_bytes(3));
        assert_eq!(number_of(&key(3, 77)), Ok(77));
        assert!(number_of(b"c").is_err() && keys.certain(99).is_none());
    }
}
