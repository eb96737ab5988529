//! Seeded randomness of the fault and crash storages: the same seed gives the same faults and images.

/// `SplitMix64`: small, fast, and good enough to choose faults.
#[derive(Clone, Debug)]
pub(crate) struct Seeded(u64);

impl Seeded {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    /// An index below `bound`; 0 if `bound` is 0.
    pub(crate) fn index(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX);
        usize::try_from(self.below(bound)).unwrap_or(0)
    }

    /// True in `per_million` of a million cases.
    pub(crate) const fn chance(&mut self, per_million: u32) -> bool {
        self.below(1_000_000) < per_million as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_choices_and_bounds_hold() {
        let (mut left, mut right) = (Seeded::new(7), Seeded::new(7));
        for _ in 0..100 {
            assert_eq!(left.below(10), right.below(10));
            assert!(left.index(3) < 3);
            right.next();
        }
        assert_eq!(left.below(0), 0);
        assert!(left.chance(1_000_000) && !left.chance(0));
    }
}
