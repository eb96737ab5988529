//! The score that is to be left behind by so many bytes, found by sampling (paper §3.2, Figure 4).
//!
//! Records lie one behind the other in a space of their sizes. Positions are drawn uniformly from it before a scan; the scan
//! notes the score of the record at each. Of the scores noted, the k-th largest is about the score that the wanted part of the
//! space reaches. Nothing needs the records in the order of their scores.
//!
//! Tests stand below.

use kelvin_base::hash::hash64_seeded;

/// How many positions are drawn. The error of the part that is kept is about `0.5 / √SAMPLES`, here 0.8 %.
const SAMPLES: usize = 4096;

/// Draws positions, and notes the scores that lie there.
#[derive(Debug)]
pub struct Sampler {
    /// In order; those not passed yet from `next` on.
    positions: Vec<u64>,
    next: usize,
    /// Where in the space the scan is.
    at: u64,
    scores: Vec<f64>,
}

impl Sampler {
    /// Positions in a space of `size`, or less: what lies behind its real end is not met. `seed` chooses them.
    pub fn new(size: u64, seed: u64) -> Self {
        let position = |number: u64| {
            let drawn = hash64_seeded(seed, &number.to_le_bytes());
            // The high half of the product: uniform in 0..size.
            u64::try_from((u128::from(drawn) * u128::from(size)) >> 64).unwrap_or(0)
        };
        let mut positions: Vec<u64> = (0..SAMPLES as u64).map(position).collect();
        positions.sort_unstable();
        Self { positions, next: 0, at: 0, scores: Vec::with_capacity(SAMPLES) }
    }

    /// The next record of the scan: its size and its score.
    pub fn see(&mut self, size: u64, score: f64) {
        self.at += size;
        while self.positions.get(self.next).is_some_and(|&position| position < self.at) {
            self.scores.push(score);
            self.next += 1;
        }
    }

    /// The score that records of about `keep_bytes` have or surpass; `f64::MIN` if all may stay.
    pub fn threshold(mut self, keep_bytes: u64) -> f64 {
        if keep_bytes >= self.at || self.scores.is_empty() {
            return f64::MIN;
        }
        let (keep, seen, count) = (u128::from(keep_bytes), u128::from(self.at), self.scores.len() as u128);
        // Rounded: of a part below a half of a sample none is kept.
        let kept = usize::try_from((2 * keep * count + seen) / (2 * seen)).unwrap_or(usize::MAX);
        self.scores.sort_unstable_by(|a, b| b.total_cmp(a));
        match kept.checked_sub(1) {
            None => f64::MAX,
            Some(last) => self.scores.get(last).copied().unwrap_or(f64::MIN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records of these sizes with scores in no order.
    fn records(count: u64) -> Vec<(u64, f64)> {
        (0..count)
            .map(|number| {
                (20 + number * 37 % 200, (hash64_seeded(1, &number.to_le_bytes()) % 100_000) as f64)
            })
            .collect()
    }

    #[test]
    fn what_reaches_the_threshold_is_about_what_was_to_be_kept() {
        let records = records(50_000);
        let all: u64 = records.iter().map(|record| record.0).sum();
        for percent in [1, 10, 50, 90, 99] {
            // A guess of the size that is too high, as it is where keys lie in several levels.
            let mut sampler = Sampler::new(all + all / 10, percent);
            records.iter().for_each(|&(size, score)| sampler.see(size, score));
            let threshold = sampler.threshold(all / 100 * percent);
            let kept: u64 =
                records.iter().filter(|record| record.1 >= threshold).map(|record| record.0).sum();
            let found = kept as f64 / all as f64 * 100.0;
            assert!((found - percent as f64).abs() < 3.0, "{percent} % wanted, {found} % kept");
        }
    }

    #[test]
    fn nothing_is_left_out_where_all_fits_and_nothing_kept_where_nothing_may_be() {
        for (keep, want) in [(100, f64::MIN), (1000, f64::MIN), (0, f64::MAX)] {
            let mut sampler = Sampler::new(100, 7);
            (0..10).for_each(|number| sampler.see(10, f64::from(number)));
            assert_eq!(sampler.threshold(keep), want, "{keep}");
        }
        assert_eq!(Sampler::new(0, 1).threshold(0), f64::MIN);
    }
}
