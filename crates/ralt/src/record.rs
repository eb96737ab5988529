//! Access records: what RALT keeps of a key.
//!
//! On disk a record is the value of a table's entry whose user key is the record's key; docs/formats/ralt.md has the bytes.
//! Sizes: the *HotRAP size* of a record is that of the key and value it stands for, the *physical size* is its own, in the
//! paper's accounting (§3.2, Figure 3).

use kelvin_base::coding::{get_u32, get_u64};

use crate::score::{Now, Scoring, Stamp};

/// Counters are in tenths: Δc = 2.6 (paper §3.7).
pub const COUNTER_ONE: u8 = 10;
/// What an access adds to a key's counter.
pub const COUNTER_STEP: u8 = 26;
/// The highest counter: `c_max` = 5.
pub const COUNTER_MAX: u8 = 50;
/// A record's bytes on disk beside its key.
pub const RECORD_BYTES: usize = 4 + 4 + 8 + 4 + 1 + 1;
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

    /// Its bytes on disk.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.value_len.to_le_bytes());
        out.extend_from_slice(&self.stamp.tick.to_le_bytes());
        out.extend_from_slice(&self.stamp.score.to_bits().to_le_bytes());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.push(self.counter);
        out.push(u8::from(self.is_tagged));
    }

    /// The record in `bytes`; `None` if malformed.
    #[must_use]
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        if bytes.len() != RECORD_BYTES {
            return None;
        }
        let input = &mut bytes;
        let value_len = get_u32(input)?;
        let tick = get_u32(input)?;
        let score = f64::from_bits(get_u64(input)?);
        let epoch = get_u32(input)?;
        let &[counter, tag] = *input else { return None };
        let is_sound = score.is_finite() && counter <= COUNTER_MAX && tag <= 1;
        let stamp = Stamp { tick, score };
        is_sound.then_some(Self { value_len, stamp, counter, is_tagged: tag == 1, epoch })
    }
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

    #[test]
    fn records_round_trip_and_malformed_ones_are_refused() {
        let record = Record::merge(SMOOTH, &first(3), &first(4));
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        assert_eq!(bytes.len(), RECORD_BYTES);
        assert_eq!(Record::decode(&bytes), Some(record));
        assert_eq!(Record::decode(&bytes[1..]), None);
        for (at, byte) in [(RECORD_BYTES - 1, 2), (RECORD_BYTES - 2, COUNTER_MAX + 1), (15, 0x7f)] {
            let mut bad = bytes.clone();
            bad[at] = byte;
            if at == 15 {
                bad[14] = 0xf0;
            }
            assert_eq!(Record::decode(&bad), None, "byte {at}");
        }
    }
}
