//! YCSB's own generators, bit for bit: Gray's approximation of Zipf, and its scrambled form.
//!
//! Given the same uniform number they answer what the Java code answers (`ZipfianGenerator`,
//! `ScrambledZipfianGenerator`, `Utils.fnvhash64`). They are kept beside the exact Zipf because published figures use
//! them: ranks 2 to 10 get some 8 % too much, and the scrambled form draws from 10^10 items whatever the record count.

/// Items the scrambled generator draws from.
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;
/// YCSB's stored zeta of [`SCRAMBLED_ITEMS`] at exponent 0.99.
const SCRAMBLED_ZETA_099: f64 = 26.469_028_201_783_02;

/// Sum of `i^-exponent` for `i` from 1 to `n`: the first million terms one by one, the rest by Euler and Maclaurin.
#[must_use]
pub fn zeta(n: u64, exponent: f64) -> f64 {
    const EXACT: u64 = 1_000_000;
    // Smallest terms first, so that they are not lost beside the sum.
    let head: f64 = (1..=n.min(EXACT)).rev().map(|i| (i as f64).powf(-exponent)).sum();
    if n <= EXACT {
        return head;
    }
    let (a, b) = (EXACT as f64, n as f64);
    let integral = if (exponent - 1.0).abs() < 1e-9 {
        (b / a).ln()
    } else {
        (b.powf(1.0 - exponent) - a.powf(1.0 - exponent)) / (1.0 - exponent)
    };
    let ends = (b.powf(-exponent) - a.powf(-exponent)) / 2.0;
    let slopes = exponent * (a.powf(-exponent - 1.0) - b.powf(-exponent - 1.0)) / 12.0;
    head + integral + ends + slopes
}

/// YCSB's `fnvhash64`: FNV-1a over the eight bytes, low byte first, then `Math.abs`.
#[must_use]
pub fn fnvhash64(value: u64) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for octet in value.to_le_bytes() {
        hash = (hash ^ u64::from(octet)).wrapping_mul(1_099_511_628_211);
    }
    hash.cast_signed().unsigned_abs()
}

/// YCSB's `ZipfianGenerator`: ranks from 0, the most popular first.
#[derive(Clone, Debug)]
pub struct YcsbZipfian {
    items: u64,
    theta: f64,
    zetan: f64,
    alpha: f64,
    eta: f64,
}

impl YcsbZipfian {
    /// Ranks `0..items` with exponent `theta` (between 0 and 1, ends excluded).
    #[must_use]
    pub fn new(items: u64, theta: f64) -> Self {
        Self::with_zeta(items, theta, zeta(items, theta))
    }

    fn with_zeta(items: u64, theta: f64, zetan: f64) -> Self {
        let zeta2 = zeta(2, theta);
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - theta)) / (1.0 - zeta2 / zetan);
        Self { items, theta, zetan, alpha: 1.0 / (1.0 - theta), eta }
    }

    /// The generator under the scrambled one, whose zeta YCSB stores for exponent 0.99.
    #[must_use]
    pub fn scrambled_base(theta: f64) -> Self {
        let items = SCRAMBLED_ITEMS + 1;
        if (theta - 0.99).abs() < 1e-12 {
            Self::with_zeta(items, theta, SCRAMBLED_ZETA_099)
        } else {
            Self::new(items, theta)
        }
    }

    /// The rank that the uniform number `u` of [0, 1) stands for.
    #[must_use]
    pub fn rank(&self, u: f64) -> u64 {
        let uz = u * self.zetan;
        if uz < 1.0 {
            return 0;
        }
        if uz < 1.0 + 0.5_f64.powf(self.theta) {
            return 1;
        }
        let rank = self.items as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        // A rounding up to `items` is possible and YCSB lets it pass; a record of that rank does not exist.
        truncate(rank).min(self.items - 1)
    }

    /// The probability of a rank below `rank`: [`Self::rank`] turned round.
    #[must_use]
    pub fn below(&self, rank: u64) -> f64 {
        let second = (1.0 + 0.5_f64.powf(self.theta)) / self.zetan;
        let curve = ((rank as f64 / self.items as f64).powf(1.0 / self.alpha) - 1.0 + self.eta) / self.eta;
        match rank {
            0 => 0.0,
            1 => 1.0 / self.zetan,
            // The curve also yields ranks 0 and 1 where the two special cases end too early.
            _ if rank >= self.items => 1.0,
            _ => curve.max(second).min(1.0),
        }
    }
}

/// The whole part of a number that is not negative.
fn truncate(number: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, as meant")]
    let whole = number as u64;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_and_ranks_are_those_of_ycsb() {
        // FNV-1a of eight zero bytes is a8c7f832281a39c5, negative as a Java long.
        assert_eq!(fnvhash64(0), 0xa8c7_f832_281a_39c5_u64.wrapping_neg());
        assert_eq!(fnvhash64(1), 8_517_097_267_634_966_620);
        assert_eq!(fnvhash64(123_456_789), 2_350_796_791_908_741_607);
        let zipf = YcsbZipfian::scrambled_base(0.99);
        let found: Vec<u64> = [0.0, 0.05, 0.25, 0.5, 0.75, 0.999].iter().map(|&u| zipf.rank(u)).collect();
        assert_eq!(found, [0, 1, 296, 134_552, 42_924_421, 9_790_013_524]);
    }

    #[test]
    fn the_long_sum_agrees_with_the_stored_zeta() {
        assert!((zeta(SCRAMBLED_ITEMS, 0.99) - SCRAMBLED_ZETA_099).abs() < 1e-6);
        let direct: f64 = (1..=2_000_000u64).rev().map(|i| (i as f64).powf(-0.8)).sum();
        assert!((zeta(2_000_000, 0.8) - direct).abs() < 1e-6);
    }

    #[test]
    fn the_distribution_function_is_the_generator_turned_round() {
        let zipf = YcsbZipfian::new(1000, 0.9);
        for rank in 2..1000 {
            let u = zipf.below(rank);
            assert!(zipf.rank((u - 1e-9).max(0.0)) < rank || u <= zipf.below(2), "rank {rank}");
            assert!(zipf.rank(u + 1e-9) >= rank, "rank {rank}");
        }
    }
}
