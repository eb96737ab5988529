//! How hot a key is, from when it was accessed.
//!
//! Exponential smoothing (paper §3.2): the score of a key is the sum of `α^(t − i)` over the time slices `i` in which it was
//! accessed, `t` being the present one. A record stores the slice of its last access and the score then; time passes without
//! touching it. LRU and CLOCK (paper §4.7) fit the same two numbers: what differs is which clock stamps a record, what time
//! does to it, and how two records of one key are merged.

/// How scores are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scoring {
    /// Exponential smoothing with this α, in (0, 1).
    Exponential {
        /// What is left of a score when a slice has passed.
        alpha: f64,
    },
    /// The latest access is the hottest.
    Lru,
    /// A counter that accesses raise up to `max` and each eviction lowers.
    Clock {
        /// The highest count: `2^bits − 1`.
        max: u32,
    },
}

/// The clocks that stamp records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Time slices that have passed: one for each γ of the fast disk's size that was accessed.
    pub slice: u32,
    /// Accesses that have been made.
    pub accesses: u64,
    /// Evictions that have been made.
    pub turns: u32,
    /// Halves by which evictions that found too little room for what is not stable yet have lowered all counters.
    pub lowered_halves: u32,
}

/// What a record remembers of a key's accesses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stamp {
    /// The slice (CLOCK: the turn) of the last access.
    pub tick: u32,
    /// The score at that tick.
    pub score: f64,
}

/// What is left of one after `slices`.
fn decay(alpha: f64, slices: u32) -> f64 {
    alpha.powi(i32::try_from(slices).unwrap_or(i32::MAX))
}

impl Scoring {
    /// Its name, for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exponential { .. } => "exponential smoothing",
            Self::Lru => "LRU",
            Self::Clock { .. } => "CLOCK",
        }
    }

    /// The stamp of one access.
    #[must_use]
    pub const fn stamp(self, now: Now) -> Stamp {
        match self {
            Self::Exponential { .. } => Stamp { tick: now.slice, score: 1.0 },
            Self::Lru => Stamp { tick: now.slice, score: now.accesses as f64 },
            Self::Clock { .. } => Stamp { tick: now.turns, score: 1.0 },
        }
    }

    /// The score of `stamp` as of `now`.
    #[must_use]
    pub fn score(self, stamp: Stamp, now: Now) -> f64 {
        match self {
            Self::Exponential { alpha } => stamp.score * decay(alpha, now.slice.saturating_sub(stamp.tick)),
            Self::Lru => stamp.score,
            // Below zero too: of two whose count is used up, the one that was accessed earlier is the colder.
            Self::Clock { .. } => stamp.score - f64::from(now.turns.saturating_sub(stamp.tick)),
        }
    }

    /// The stamp of a key with the stamps `older` and `newer`, of accesses that came before and after each other.
    #[must_use]
    pub fn merge(self, older: Stamp, newer: Stamp) -> Stamp {
        let tick = newer.tick.max(older.tick);
        let passed = tick - older.tick;
        let score = match self {
            // The slice of the last access of both counts once.
            Self::Exponential { .. } if older.tick >= newer.tick => older.score + newer.score - 1.0,
            Self::Exponential { alpha } => older.score * decay(alpha, passed) + newer.score,
            Self::Lru => older.score.max(newer.score),
            Self::Clock { max } => {
                ((older.score - f64::from(passed)).max(0.0) + newer.score).min(f64::from(max))
            }
        };
        Stamp { tick, score }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMOOTH: Scoring = Scoring::Exponential { alpha: 0.5 };

    fn at(slice: u32) -> Now {
        Now { slice, accesses: u64::from(slice) * 10, turns: slice, lowered_halves: 0 }
    }

    fn accessed(scoring: Scoring, slices: &[u32]) -> Stamp {
        let stamps = slices.iter().map(|&slice| scoring.stamp(at(slice)));
        stamps.reduce(|older, newer| scoring.merge(older, newer)).unwrap()
    }

    #[test]
    fn a_smoothed_score_is_the_sum_over_the_slices_with_an_access() {
        // Slices 1, 3 and 4, looked at in slice 6: α^5 + α^3 + α^2; the second access in a slice adds nothing.
        let stamp = accessed(SMOOTH, &[1, 3, 3, 4, 4]);
        let want = 0.5f64.powi(5) + 0.5f64.powi(3) + 0.5f64.powi(2);
        assert!((SMOOTH.score(stamp, at(6)) - want).abs() < 1e-12);
        assert_eq!(stamp.tick, 4);
    }

    #[test]
    fn merging_in_groups_is_merging_one_by_one() {
        for cut in 1..4 {
            let slices = [2, 5, 9, 14];
            let grouped = SMOOTH.merge(accessed(SMOOTH, &slices[..cut]), accessed(SMOOTH, &slices[cut..]));
            let single = accessed(SMOOTH, &slices);
            assert_eq!(grouped.tick, single.tick);
            assert!((grouped.score - single.score).abs() < 1e-12);
        }
    }

    #[test]
    fn lru_knows_the_last_access_only_and_clock_counts_up_and_down() {
        let often = accessed(Scoring::Lru, &[1, 2, 3]);
        let late = accessed(Scoring::Lru, &[4]);
        assert!(Scoring::Lru.score(late, at(9)) > Scoring::Lru.score(often, at(9)));
        let clock = Scoring::Clock { max: 3 };
        let stamp = accessed(clock, &[1, 1, 1, 1, 1]);
        assert_eq!([1, 3, 4, 6].map(|turn| clock.score(stamp, at(turn))), [3.0, 1.0, 0.0, -2.0]);
        assert_eq!(clock.score(accessed(clock, &[1, 9]), at(9)), 1.0, "used up, and counted anew");
    }
}
