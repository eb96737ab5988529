//! Which record the next operation concerns: the distributions, by name and as samplers.
//!
//! Ranks (0 is the hottest) are spread over records by a seeded permutation, except in YCSB's scrambled form, which
//! spreads by its own hash, and `latest`, whose hottest record is the newest. `dynamic` is a sequence of hotspots
//! ([`super::stages`]). Frequencies are tested against the exact probabilities by chi-square.

use std::fmt;
use std::str::FromStr;

use kelvin_base::{Error, Result};
use rand::RngExt;
use rand_distr::Distribution;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::permutation::Permutation;
use super::stages::{self, STAGES};
use super::ycsb::{YcsbZipfian, fnvhash64};

/// Share of operations that go to the hot records of a hotspot of `percent`: what that lacks of all, as in the HotRAP authors' own
/// workloads (5 % of the records have 95 % of the operations, 1 % have 99 %).
#[must_use]
pub fn hotspot_share(percent: f64) -> f64 {
    1.0 - percent / 100.0
}

/// The paper's hotspot.
pub const HOTSPOT_5: KeyDistribution = KeyDistribution::Hotspot { percent: 5.0 };
/// Exponent of `latest`, YCSB's.
pub const LATEST_EXPONENT: f64 = 0.99;

/// How operations spread over records.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeyDistribution {
    /// Each record alike.
    Uniform,
    /// `100 − percent` per cent of the operations go to `percent` per cent of the records, the others to the rest.
    Hotspot {
        /// Hot records, per cent of all.
        percent: f64,
    },
    /// Zipf's law, exact.
    Zipf {
        /// Its exponent.
        exponent: f64,
    },
    /// YCSB's approximation of Zipf's law.
    YcsbZipf {
        /// Its exponent, between 0 and 1.
        exponent: f64,
    },
    /// YCSB's scrambled Zipfian, bit for bit.
    YcsbScrambled {
        /// Its exponent, between 0 and 1.
        exponent: f64,
    },
    /// The newest records are the hottest, by exact Zipf.
    Latest,
    /// A hotspot that appears, grows, moves and shrinks: the stages of HotRAP §4.6.
    Dynamic,
}

impl fmt::Display for KeyDistribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Hotspot { percent } => write!(f, "hotspot:{percent}"),
            Self::Zipf { exponent } => write!(f, "zipf:{exponent}"),
            Self::YcsbZipf { exponent } => write!(f, "ycsb-zipf:{exponent}"),
            Self::YcsbScrambled { exponent } => write!(f, "ycsb-scrambled:{exponent}"),
            Self::Latest => f.write_str("latest"),
            Self::Dynamic => f.write_str("dynamic"),
        }
    }
}

impl FromStr for KeyDistribution {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::invalid(format!("no key distribution is called '{text}'")).advice(
                "use uniform, latest, dynamic, hotspot:PERCENT, zipf:EXPONENT, ycsb-zipf:EXPONENT or ycsb-scrambled:EXPONENT",
            )
        };
        let (name, figure) = match text.split_once(':') {
            Some((name, figure)) => (name, Some(figure.parse::<f64>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let within = |low: f64, high: f64, default: f64| {
            let figure = figure.unwrap_or(default);
            let inside = figure > low && figure < high;
            inside.then_some(figure).ok_or_else(|| {
                Error::invalid(format!("the figure of '{text}' is out of range"))
                    .expected(format!("more than {low} and less than {high}"), figure)
            })
        };
        match name {
            "uniform" if figure.is_none() => Ok(Self::Uniform),
            "latest" if figure.is_none() => Ok(Self::Latest),
            "dynamic" if figure.is_none() => Ok(Self::Dynamic),
            "hotspot" => Ok(Self::Hotspot { percent: within(0.0, 100.0, 5.0)? }),
            "zipf" => Ok(Self::Zipf { exponent: within(0.0, 20.0, 0.99)? }),
            "ycsb-zipf" => Ok(Self::YcsbZipf { exponent: within(0.0, 1.0, 0.99)? }),
            "ycsb-scrambled" => Ok(Self::YcsbScrambled { exponent: within(0.0, 1.0, 0.99)? }),
            _ => Err(wrong()),
        }
    }
}

/// How many of `records` a hotspot of `percent` holds: at least one.
#[must_use]
pub fn hot_records(records: u64, percent: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; clamped below")]
    let hot = (records as f64 * percent / 100.0).round() as u64;
    hot.clamp(1, records)
}

/// Draws records.
#[derive(Clone, Debug)]
pub struct KeySampler {
    records: u64,
    ops: u64,
    shape: Shape,
    permutation: Permutation,
}

#[derive(Clone, Debug)]
enum Shape {
    Uniform,
    Hotspot(Hotspot),
    Zipf(rand_distr::Zipf<f64>),
    Ycsb(YcsbZipfian),
    Scrambled(YcsbZipfian),
    Latest(rand_distr::Zipf<f64>),
    Dynamic(Vec<Hotspot>),
}

/// The hottest ranks: `hot` of them, from rank `from` on.
#[derive(Clone, Copy, Debug)]
struct Hotspot {
    from: u64,
    hot: u64,
    /// Part of the operations that go to them.
    share: f64,
}

impl Hotspot {
    fn of(records: u64, from_percent: f64, percent: f64) -> Self {
        let hot = hot_records(records, percent);
        let from = if from_percent > 0.0 { hot_records(records, from_percent) } else { 0 };
        Self { from: from.min(records - hot), hot, share: hotspot_share(percent) }
    }

    fn rank(self, records: u64, rng: &mut Xoshiro256PlusPlus) -> u64 {
        if self.hot == records || rng.random::<f64>() < self.share {
            return self.from + rng.random_range(0..self.hot);
        }
        let cold = rng.random_range(0..records - self.hot);
        if cold < self.from { cold } else { cold + self.hot }
    }
}

impl KeySampler {
    /// A sampler over the `records` loaded ones for `ops` operations; `seed` decides which are hot.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no record.
    pub fn new(distribution: KeyDistribution, records: u64, ops: u64, seed: u64) -> Result<Self> {
        if records == 0 {
            return Err(Error::invalid("a benchmark needs at least one record").advice("give --records"));
        }
        let zipf = |exponent: f64| {
            rand_distr::Zipf::new(records as f64, exponent).map_err(|e| Error::invalid(format!("zipf: {e}")))
        };
        let shape = match distribution {
            KeyDistribution::Uniform => Shape::Uniform,
            KeyDistribution::Hotspot { percent } => Shape::Hotspot(Hotspot::of(records, 0.0, percent)),
            KeyDistribution::Zipf { exponent } => Shape::Zipf(zipf(exponent)?),
            KeyDistribution::YcsbZipf { exponent } => Shape::Ycsb(YcsbZipfian::new(records, exponent)),
            KeyDistribution::YcsbScrambled { exponent } => {
                Shape::Scrambled(YcsbZipfian::scrambled_base(exponent))
            }
            KeyDistribution::Latest => Shape::Latest(zipf(LATEST_EXPONENT)?),
            KeyDistribution::Dynamic => {
                let hotspot =
                    |stage: &stages::Stage| Hotspot::of(records, stage.from_percent, stage.hot_percent);
                Shape::Dynamic(STAGES.iter().map(hotspot).collect())
            }
        };
        Ok(Self { records, ops, shape, permutation: Permutation::new(records, seed) })
    }

    /// The record of operation `number`. `newest` is one past the newest record known to be stored (at least the loaded ones).
    pub fn sample(&self, rng: &mut Xoshiro256PlusPlus, newest: u64, number: u64) -> u64 {
        match &self.shape {
            Shape::Uniform => rng.random_range(0..self.records),
            Shape::Hotspot(hotspot) => self.permutation.at(hotspot.rank(self.records, rng)),
            Shape::Dynamic(hotspots) => {
                let hotspot = hotspots[stages::at(number, self.ops)];
                self.permutation.at(hotspot.rank(self.records, rng))
            }
            Shape::Zipf(zipf) => self.permutation.at(self.rank(zipf, rng)),
            Shape::Ycsb(zipf) => self.permutation.at(zipf.rank(rng.random())),
            Shape::Scrambled(zipf) => fnvhash64(zipf.rank(rng.random())) % self.records,
            Shape::Latest(zipf) => newest.max(self.records) - 1 - self.rank(zipf, rng),
        }
    }

    fn rank(&self, zipf: &rand_distr::Zipf<f64>, rng: &mut Xoshiro256PlusPlus) -> u64 {
        // rand_distr 0.6 may answer n + 1 by rounding (its issue 54).
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates; clamped below"
        )]
        let rank = zipf.sample(rng) as u64;
        rank.clamp(1, self.records) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::best::probabilities;
    use rand::SeedableRng;

    /// Chi-square of `draws` samples against the exact probabilities, and its degrees of freedom.
    fn chi_square(name: &str, records: u64, draws: u32) -> (f64, f64) {
        let distribution: KeyDistribution = name.parse().unwrap();
        let sampler = KeySampler::new(distribution, records, u64::from(draws), 11).unwrap();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(42);
        let mut counts = vec![0u32; usize::try_from(records).unwrap()];
        for number in 0..u64::from(draws) {
            counts[usize::try_from(sampler.sample(&mut rng, records, number)).unwrap()] += 1;
        }
        // Both sides sorted: which record is hot is the permutation's business.
        let mut expected = probabilities(distribution, records);
        if !matches!(distribution, KeyDistribution::YcsbScrambled { .. }) {
            if distribution != KeyDistribution::Dynamic {
                expected.sort_by(|a, b| b.total_cmp(a));
            }
            counts = by_rank(&sampler, &counts, records);
        }
        let sum = expected.iter().zip(&counts).map(|(&p, &count)| {
            let mean = p * f64::from(draws);
            (f64::from(count) - mean).powi(2) / mean
        });
        (sum.sum(), records as f64 - 1.0)
    }

    fn by_rank(sampler: &KeySampler, counts: &[u32], records: u64) -> Vec<u32> {
        let place = |rank: u64| match sampler.shape {
            Shape::Uniform => rank,
            Shape::Latest(_) => records - 1 - rank,
            _ => sampler.permutation.at(rank),
        };
        (0..records).map(|rank| counts[usize::try_from(place(rank)).unwrap()]).collect()
    }

    #[test]
    fn every_distribution_draws_with_its_exact_probabilities() {
        for name in [
            "uniform",
            "latest",
            "hotspot:5",
            "hotspot:30",
            "zipf:0.99",
            "zipf:1",
            "zipf:1.3",
            "ycsb-zipf:0.8",
            "dynamic",
        ] {
            let (sum, freedom) = chi_square(name, 200, 400_000);
            // Mean = freedom, deviation = sqrt(2 freedom): four deviations are one chance in tens of thousands.
            assert!(sum < freedom + 4.0 * (2.0 * freedom).sqrt(), "{name}: chi-square {sum:.0} of {freedom}");
        }
    }

    #[test]
    fn scrambled_draws_match_the_folded_probabilities() {
        let (sum, freedom) = chi_square("ycsb-scrambled:0.99", 50, 200_000);
        assert!(sum < freedom + 4.0 * (2.0 * freedom).sqrt(), "chi-square {sum:.0} of {freedom}");
    }

    #[test]
    fn names_are_read_as_they_are_printed_and_nonsense_is_refused() {
        for name in
            ["uniform", "latest", "dynamic", "hotspot:5", "zipf:0.99", "ycsb-zipf:0.7", "ycsb-scrambled:0.99"]
        {
            assert_eq!(name.parse::<KeyDistribution>().unwrap().to_string(), name);
        }
        for wrong in ["", "zipf:", "zipf:-1", "hotspot:101", "uniform:3", "ycsb-zipf:1", "hot"] {
            assert!(wrong.parse::<KeyDistribution>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_latest_record_follows_the_inserts() {
        let sampler = KeySampler::new(KeyDistribution::Latest, 100, 1000, 1).unwrap();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let hits = (0..1000).filter(|_| sampler.sample(&mut rng, 150, 0) == 149).count();
        assert!(hits > 120, "{hits} of 1000 went to the newest");
    }

    #[test]
    fn each_stage_of_the_dynamic_workload_reads_its_own_hotspot() {
        let (records, ops) = (2_000, 25 * 4_000);
        let sampler = KeySampler::new(KeyDistribution::Dynamic, records, ops, 5).unwrap();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let rank_of: std::collections::HashMap<u64, u64> =
            (0..records).map(|rank| (sampler.permutation.at(rank), rank)).collect();
        for (index, stage) in STAGES.iter().enumerate().skip(1) {
            let numbers = stages::start(index, ops)..stages::start(index + 1, ops);
            let draws = (numbers.end - numbers.start) as f64;
            let [from, hot] =
                [stage.from_percent, stage.hot_percent].map(|percent| percent / 100.0 * records as f64);
            let ranks = numbers.map(|number| rank_of[&sampler.sample(&mut rng, records, number)] as f64);
            let hits = ranks.filter(|rank| (from..from + hot).contains(rank)).count() as f64;
            assert!(
                (hits / draws - hotspot_share(stage.hot_percent)).abs() < 0.02,
                "{}: {hits} of {draws}",
                stage.name
            );
        }
    }
}
