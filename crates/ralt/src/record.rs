//! Access records: what RALT keeps of a key.
//!
//! On disk a record is the value of a table's entry whose user key is the record's key; docs/formats/ralt.md has the bytes.
//! Sizes: the *HotRAP size* of a record is that of the key and value it stands for, the *physical size* is its own, in the
//! paper's accounting (§3.2, Figure 3).

use kelvin_base::coding::{get_varint, put_varint};

use crate::score::{Now, Scoring, Stamp};

/// Counters are in tenths: Δc = 2.6 (paper §3.7).
pub const COUNTER_ONE: u8 = 10;
/// What an access adds to a key's counter.
pub const COUNTER_STEP: u8 = 26;
/// The highest counter: `c_max` = 5.
pub const COUNTER_MAX: u8 = 50;
/// Of a score's eight bytes so many are kept, the highest: 36 bits of its fraction.
const SCORE_BYTES: usize = 6;
/// The others.
const LEFT_OUT_BITS: u32 = 16;
/// Stands in the counter's byte if the tag is set.
const TAG: u8 = 0x80;
/// What the paper counts beside the key: its length, the value's, tick and score.
const PHYSICAL_BYTES: u64 = 4 + 8 * 3;

/// What RALT keeps of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// Bytes of the value, as of the last access.
    pub value_len: u32,
    /// When it was accessed.
    pub stamp: Stamp,
    /// The counter `c` of Algorithm 1 as of `epoch`, in tenths.
    pub counter: u8,
    /// The tag `t` of Algorithm 1: it was accessed again while it was tracked.
    pub is_tagged: bool,
    /// How often all counters had been lowered by one at the last access.
    pub epoch: u32,
}

impl Record {
    /// The record of a first access.
    #[must_use]
    pub const fn accessed(value_len: u32, scoring: Scoring, now: Now, epoch: u32) -> Self {
        Self { value_len, stamp: scoring.stamp(now), counter: COUNTER_STEP, is_tagged: false, epoch }
    }

    /// The record of a key that was accessed as `older` says, and then as `newer` says.
    #[must_use]
    pub fn merge(scoring: Scoring, older: &Self, newer: &Self) -> Self {
        let epoch = newer.epoch.max(older.epoch);
        let counter = older.counter_at(epoch).saturating_add(newer.counter_at(epoch)).min(COUNTER_MAX);
        Self {
            value_len: newer.value_len,
            stamp: scoring.merge(older.stamp, newer.stamp),
            counter,
            is_tagged: true,
            epoch,
        }
    }

    /// The counter when all counters have been lowered `epoch` times, in tenths.
    #[must_use]
    pub fn counter_at(&self, epoch: u32) -> u8 {
        let lowered = epoch.saturating_sub(self.epoch).saturating_mul(u32::from(COUNTER_ONE));
        self.counter.saturating_sub(u8::try_from(lowered).unwrap_or(u8::MAX))
    }

    /// Whether Algorithm 1 takes the key for a stable one.
    #[must_use]
    pub fn is_stable(&self, epoch: u32) -> bool {
        self.is_tagged && self.counter_at(epoch) > 0
    }

    /// HotRAP size: bytes of the record that it stands for.
    #[must_use]
    pub const fn hotrap_size(&self, key: &[u8]) -> u64 {
        key.len() as u64 + self.value_len as u64
    }

    /// Its bytes on disk, 10 to 22 of them.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.value_len, self.stamp.tick, self.epoch] {
            put_varint(out, u64::from(number));
        }
        out.push(self.counter | if self.is_tagged { TAG } else { 0 });
        out.extend_from_slice(&rounded(self.stamp.score).to_be_bytes()[..SCORE_BYTES]);
    }

    /// The record in `bytes`; `None` if malformed. There is one encoding of a record.
    #[must_use]
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let input = &mut bytes;
        let [value_len, tick, epoch] = [get_number(input)?, get_number(input)?, get_number(input)?];
        let (&counter, score) = input.split_first()?;
        let highest: [u8; SCORE_BYTES] = score.try_into().ok()?;
        let mut bits = [0; size_of::<u64>()];
        bits[..SCORE_BYTES].copy_from_slice(&highest);
        let (score, is_tagged) = (f64::from_bits(u64::from_be_bytes(bits)), counter & TAG != 0);
        let (counter, stamp) = (counter & !TAG, Stamp { tick, score });
        let is_sound = score.is_finite() && counter <= COUNTER_MAX;
        is_sound.then_some(Self { value_len, stamp, counter, is_tagged, epoch })
    }
}

/// The bits of `score`, to the nearest that is kept. A carry out of the fraction is the next power of two, as it should be.
const fn rounded(score: f64) -> u64 {
    score.to_bits().saturating_add(1 << (LEFT_OUT_BITS - 1)) >> LEFT_OUT_BITS << LEFT_OUT_BITS
}

/// A number in as few bytes as it takes.
fn get_number(input: &mut &[u8]) -> Option<u32> {
    let given = *input;
    let number = get_varint(input)?;
    let taken = &given[..given.len() - input.len()];
    let is_shortest = taken.len() == 1 || taken.last() != Some(&0);
    u32::try_from(number).ok().filter(|_| is_shortest)
}

/// Physical size of the record of `key`.
#[must_use]
pub const fn physical_size(key: &[u8]) -> u64 {
    key.len() as u64 + PHYSICAL_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMOOTH: Scoring = Scoring::Exponential { alpha: 0.999 };

    fn first(epoch: u32) -> Record {
        Record::accessed(200, SMOOTH, Now { slice: 12, ..Now::default() }, epoch)
    }

    #[test]
    fn algorithm_1_makes_a_key_stable_at_its_second_access_and_unstable_when_its_counter_is_used_up() {
        let once = first(7);
        assert!(!once.is_stable(7));
        let twice = Record::merge(SMOOTH, &once, &first(8));
        // 2.6 − 1 + 2.6 = 4.2, lowered by one each time.
        assert_eq!(twice.counter, 42);
        assert!(twice.is_stable(8) && twice.is_stable(12) && !twice.is_stable(13));
        let often = (0..9).fold(once, |sum, _| Record::merge(SMOOTH, &sum, &first(7)));
        assert_eq!(often.counter, COUNTER_MAX);
        assert!(often.is_stable(11) && !often.is_stable(12) && !often.is_stable(u32::MAX));
    }

    #[test]
    fn sizes_are_those_of_the_papers_figure() {
        let record = first(0);
        assert_eq!((record.hotrap_size(b"user12345"), physical_size(b"user12345")), (209, 37));
    }

    fn encoded(record: &Record) -> Vec<u8> {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        bytes
    }

    #[test]
    fn records_round_trip_and_malformed_ones_are_refused() {
        let record = Record::merge(SMOOTH, &first(3), &first(4));
        let bytes = encoded(&record);
        // 200 takes two bytes, slice and epoch one.
        assert_eq!(bytes.len(), 2 + 1 + 1 + 1 + SCORE_BYTES);
        assert_eq!(Record::decode(&bytes), Some(record));
        for cut in 0..bytes.len() {
            assert_eq!(Record::decode(&bytes[..cut]), None, "{cut} bytes");
        }
        assert_eq!(Record::decode(&[&bytes[..], &[0]].concat()), None);
        let changed = |at: usize, to: &[u8]| [&bytes[..at], to, &bytes[at + 1..]].concat();
        assert_eq!(Record::decode(&changed(2, &[13])).map(|record| record.stamp.tick), Some(13));
        assert_eq!(Record::decode(&changed(2, &[0x8d, 0])), None, "a longer encoding of 13");
        assert_eq!(Record::decode(&changed(2, &[0xff, 0xff, 0xff, 0xff, 0x7f])), None, "more than 32 bits");
        assert_eq!(Record::decode(&changed(4, &[COUNTER_MAX + 1])), None);
        assert_eq!(Record::decode(&[&bytes[..5], &[0x7f, 0xf0, 0, 0, 0, 0]].concat()), None, "no number");
    }

    #[test]
    fn of_a_score_what_is_left_out_changes_no_count_and_next_to_nothing_of_a_sum() {
        let kept = |score: f64| {
            let stamp = Stamp { tick: u32::MAX, score };
            let record = Record { value_len: u32::MAX, epoch: u32::MAX, stamp, ..first(0) };
            Record::decode(&encoded(&record)).unwrap().stamp.score
        };
        // Of LRU the number of the access, one for each microsecond of a day; of CLOCK a small count.
        for count in [0.0, 1.0, 7.0, 1e6, 86_399_999_999.0] {
            assert_eq!(kept(count), count);
        }
        let sum = (0..5000).fold(0.0, |sum, _| kept(sum * 0.999 + 1.0));
        assert!((sum - 1000.0 * (1.0 - 0.999f64.powi(5000))).abs() < 1e-6, "{sum}");
        assert_eq!(kept(1.0 - f64::EPSILON / 2.0), 1.0, "the nearest, across a power of two");
    }
}
