//! A seeded permutation of `0..n` without a table: a four-round Feistel network walked until it lands inside.
//!
//! It spreads hot ranks over records, so that hot records were neither loaded together nor lie side by side.
//! Invariant: a bijection for every `n` and seed (tested exhaustively for small `n`).

/// The 64-bit finaliser of splitmix64: a bijection that mixes every bit into every other.
#[must_use]
pub const fn mix64(value: u64) -> u64 {
    let mut z = value;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The value that [`mix64`] makes `mixed` of.
#[must_use]
pub const fn unmix64(mixed: u64) -> u64 {
    // The inverses, modulo 2^64, of the factors of `mix64`.
    let z = (mixed ^ (mixed >> 31) ^ (mixed >> 62)).wrapping_mul(0x3196_42b2_d24d_8ec3);
    let z = (z ^ (z >> 27) ^ (z >> 54)).wrapping_mul(0x96de_1b17_3f11_9089);
    z ^ (z >> 30) ^ (z >> 60)
}

/// A bijection of `0..n`.
#[derive(Clone, Debug)]
pub struct Permutation {
    n: u64,
    half_bits: u32,
    keys: [u64; 4],
}

impl Permutation {
    /// The permutation of `0..n` that `seed` names.
    #[must_use]
    pub fn new(n: u64, seed: u64) -> Self {
        let bits = u64::BITS - n.saturating_sub(1).leading_zeros();
        let keys = std::array::from_fn(|round| mix64(seed.wrapping_add(mix64(round as u64 + 1))));
        Self { n, half_bits: bits.div_ceil(2).max(1), keys }
    }

    /// Where `index`, below `n`, goes.
    #[must_use]
    pub fn at(&self, index: u64) -> u64 {
        let mut place = index;
        loop {
            place = self.round_trip(place);
            // The network permutes a power of four that is less than four times n: walking the cycle ends inside.
            if place < self.n {
                return place;
            }
        }
    }

    fn round_trip(&self, index: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (index >> self.half_bits, index & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (mix64(right ^ key) & mask));
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_a_bijection() {
        for n in (1..70).chain([255, 256, 257, 1000]) {
            for seed in 0..3 {
                let permutation = Permutation::new(n, seed);
                let mut places: Vec<u64> = (0..n).map(|index| permutation.at(index)).collect();
                places.sort_unstable();
                assert_eq!(places, (0..n).collect::<Vec<_>>(), "n = {n}, seed = {seed}");
            }
        }
    }

    #[test]
    fn what_was_mixed_can_be_told() {
        for value in (0..1000).chain([u64::MAX, u64::MAX - 1, 1 << 63, 0x0123_4567_89ab_cdef]) {
            assert_eq!(unmix64(mix64(value)), value);
        }
    }

    #[test]
    fn neighbours_are_spread_out() {
        let permutation = Permutation::new(1_000_000, 7);
        let near = (0..1000u64).filter(|&i| permutation.at(i).abs_diff(permutation.at(i + 1)) < 1000).count();
        assert!(near < 20, "{near} of 1000 neighbours stayed near each other");
    }
}
