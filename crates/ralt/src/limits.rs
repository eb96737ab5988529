//! How large the hot set and RALT itself may be, and how these limits follow the workload (paper §3.7, Algorithm 1).
//!
//! After each eviction the hot set may be as large as the stable records are, and `D_hs` larger, within `L_hs` and `R_hs`.
//! Tests stand below.

use crate::score::Now;

/// An eviction follows the one before soon if less than such a part of `R` was accessed between.
const SOON: u64 = 4;

/// What is hot is changing where less than such a part of `R` was accessed between two evictions, and until `R` was after them.
const UNSETTLED: u64 = 2;

/// The bounds that follow from the fast disk's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// `L_hs`: the hot set may always be so large, bytes.
    pub hot_bytes_min: u64,
    /// `R_hs`: and never larger than this, bytes.
    pub hot_bytes_max: u64,
    /// `R`: counters are lowered each time so much has been accessed, bytes.
    pub round_bytes: u64,
    /// `D_hs`: HotRAP size that unstable records may have, bytes.
    pub unstable_bytes_max: u64,
}

impl Bounds {
    /// The paper's, for a fast disk of `fast_bytes`; of the two values it names for `R`, `R_hs` and the size of the fast disk, the latter. With
    /// `R_hs`, of a hotspot that fills it about one key in a hundred would by chance not be accessed until its counter is used up.
    #[must_use]
    pub const fn of_fast(fast_bytes: u64) -> Self {
        let hot_bytes_max = fast_bytes / 10 * 7;
        let unstable_bytes_max = hot_bytes_max / 10;
        Self { hot_bytes_min: fast_bytes / 20, hot_bytes_max, round_bytes: fast_bytes, unstable_bytes_max }
    }

    /// How many times counters have been lowered by one after `accessed_bytes`: once for each `R`, and by what evictions have lowered them.
    #[must_use]
    pub(crate) fn epoch(&self, accessed_bytes: u64, now: Now) -> u32 {
        let halves = accessed_bytes / (self.round_bytes / 2).max(1);
        u32::try_from(halves.saturating_add(u64::from(now.lowered_halves)) / 2).unwrap_or(u32::MAX)
    }

    /// By how many halves an eviction lowers all counters `since_bytes` were accessed after the one before: by one where `limits` leave less than half of `D_hs` beside
    /// stable records of `stable_bytes`, by two if it follows soon. When a hotspot moves, these follow each other quickly, and those of before need
    /// not wait for `R`.
    pub(crate) const fn lowered_halves(&self, limits: &Limits, stable_bytes: u64, since_bytes: u64) -> u32 {
        let is_pressed = limits.hot_bytes.saturating_sub(stable_bytes) < self.unstable_bytes_max / 2;
        match (is_pressed, since_bytes < self.round_bytes / SOON) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => 2,
        }
    }

    /// For so many bytes accessed after an eviction what is hot may be changing: counters may be lowered faster than they are used up. `since_bytes` were accessed
    /// after the eviction before.
    pub(crate) const fn unsettled_bytes(&self, since_bytes: u64) -> u64 {
        if since_bytes < self.round_bytes / UNSETTLED { self.round_bytes } else { 0 }
    }

    /// The same where hot records can have no more than `bytes`, and half of that may be unstable: five times the paper's `D_hs`, so
    /// that more of a new hot set is remembered until it is accessed again.
    #[must_use]
    pub fn within(self, bytes: u64) -> Self {
        let hot_bytes_max = self.hot_bytes_max.min(bytes);
        let hot_bytes_min = self.hot_bytes_min.min(hot_bytes_max);
        Self { hot_bytes_min, hot_bytes_max, unstable_bytes_max: hot_bytes_max / 2, ..self }
    }
}

/// The two limits, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// HotRAP size of the hot records.
    pub hot_bytes: u64,
    /// Physical size of all records.
    pub physical_bytes: u64,
}

impl Limits {
    /// Those that a new RALT begins with: half of the fast disk, and 15 % of it (paper §4.1).
    #[must_use]
    pub const fn first(fast_bytes: u64) -> Self {
        Self { hot_bytes: fast_bytes / 2, physical_bytes: fast_bytes / 20 * 3 }
    }

    /// Those for stable records of these HotRAP and physical sizes.
    #[must_use]
    pub fn for_stable(stable_bytes: u64, stable_physical_bytes: u64, bounds: &Bounds) -> Self {
        let wanted = stable_bytes.saturating_add(bounds.unstable_bytes_max);
        let hot_bytes = wanted.min(bounds.hot_bytes_max).max(bounds.hot_bytes_min);
        // r, the mean ratio of the two sizes; of nothing it is taken to be 1, which is more than any record's.
        let unstable = u128::from(bounds.unstable_bytes_max);
        let unstable_physical =
            unstable * u128::from(stable_physical_bytes.max(1)) / u128::from(stable_bytes.max(1));
        let unstable_physical = u64::try_from(unstable_physical.min(unstable)).unwrap_or(u64::MAX);
        Self { hot_bytes, physical_bytes: stable_physical_bytes.saturating_add(unstable_physical) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_limit_is_the_stable_records_and_room_for_unstable_ones_within_bounds() {
        let bounds = Bounds::of_fast(1000 * MIB);
        assert_eq!(bounds.hot_bytes_max, 700 * MIB);
        let hot = |stable: u64| Limits::for_stable(stable * MIB, stable * MIB / 20, &bounds).hot_bytes / MIB;
        assert_eq!([0, 10, 300, 630, 650, 5000].map(hot), [70, 80, 370, 700, 700, 700]);
        let small = Bounds { hot_bytes_min: 90 * MIB, ..bounds };
        assert_eq!(Limits::for_stable(MIB, 1, &small).hot_bytes, 90 * MIB);
    }

    #[test]
    fn an_eviction_lowers_counters_where_little_room_is_left_and_more_if_it_follows_soon() {
        let bounds = Bounds::of_fast(1000 * MIB);
        let halves = |stable: u64, since: u64| {
            let limits = Limits::for_stable(stable * MIB, MIB, &bounds);
            bounds.lowered_halves(&limits, stable * MIB, since * MIB)
        };
        // `D_hs` is 70 MiB of at most 700, and `R` 1,000.
        assert_eq!([300, 665, 666, 700].map(|stable| halves(stable, 250)), [0, 0, 1, 1]);
        assert_eq!([300, 665, 666, 700].map(|stable| halves(stable, 249)), [0, 0, 2, 2]);
    }

    #[test]
    fn the_physical_limit_keeps_the_ratio_of_the_stable_records() {
        let bounds = Bounds::of_fast(1000 * MIB);
        let limits = Limits::for_stable(200 * MIB, 10 * MIB, &bounds);
        assert_eq!(limits.physical_bytes, 10 * MIB + 70 * MIB / 20);
        let none = Limits::for_stable(0, 0, &bounds);
        assert_eq!(none.physical_bytes, 70 * MIB, "of no record nothing is known");
    }
}
