//! The best hit rates there can be: an oracle that keeps the most often requested records in the fast capacity, and one that only
//! knows what was requested before.
//!
//! Closed forms where there are some, tested against the sorted list of all probabilities.

use crate::generate::keys::{KeyDistribution, LATEST_EXPONENT, hot_records, hotspot_share};
use crate::generate::stages::{STAGES, start};
use crate::generate::ycsb::{YcsbZipfian, fnvhash64, zeta};

/// Ranks of YCSB's scrambled generator that are followed one by one; what is left is spread evenly.
const SCRAMBLED_RANKS: u64 = 4_000_000;

/// Probability of a request for each record, by rank (scrambled: by record).
#[must_use]
pub fn probabilities(distribution: KeyDistribution, records: u64) -> Vec<f64> {
    let n = records as f64;
    let zipf = |exponent: f64| {
        let sum = zeta(records, exponent);
        (1..=records).map(|rank| (rank as f64).powf(-exponent) / sum).collect()
    };
    match distribution {
        KeyDistribution::Uniform => (0..records).map(|_| 1.0 / n).collect(),
        KeyDistribution::Hotspot { percent } => {
            let hot = hot_records(records, percent);
            let share = if hot == records { 1.0 } else { hotspot_share(percent) };
            let cold = (1.0 - share) / (records - hot).max(1) as f64;
            (0..records).map(|rank| if rank < hot { share / hot as f64 } else { cold }).collect()
        }
        KeyDistribution::Zipf { exponent } => zipf(exponent),
        KeyDistribution::Latest => zipf(LATEST_EXPONENT),
        KeyDistribution::YcsbZipf { exponent } => {
            let zipf = YcsbZipfian::new(records, exponent);
            (0..records).map(|rank| zipf.below(rank + 1) - zipf.below(rank)).collect()
        }
        KeyDistribution::YcsbScrambled { exponent } => scrambled(exponent, records),
        KeyDistribution::Dynamic => dynamic(records),
    }
}

/// Over all stages, by rank.
fn dynamic(records: u64) -> Vec<f64> {
    let mut shares = vec![0.0; usize::try_from(records).unwrap_or(usize::MAX)];
    for (index, weight) in weights() {
        let stage = STAGES[index];
        let from = match stage.from_percent > 0.0 {
            true => hot_records(records, stage.from_percent),
            false => 0,
        };
        let hot = hot_records(records, stage.hot_percent);
        let one = probabilities(KeyDistribution::Hotspot { percent: stage.hot_percent }, records);
        for (rank, share) in (0..records).zip(&mut shares) {
            // The hotspot's own shares stand first in the list.
            let place = match rank.checked_sub(from) {
                Some(place) if place < hot => place,
                _ => records - 1,
            };
            *share += weight * usize::try_from(place).ok().and_then(|at| one.get(at)).unwrap_or(&0.0);
        }
    }
    shares
}

/// Each stage of the dynamic workload and its part of the operations.
fn weights() -> impl Iterator<Item = (usize, f64)> {
    const PARTS: u64 = 1_000_000;
    (0..STAGES.len())
        .map(|index| (index, (start(index + 1, PARTS) - start(index, PARTS)) as f64 / PARTS as f64))
}

fn scrambled(exponent: f64, records: u64) -> Vec<f64> {
    let zipf = YcsbZipfian::scrambled_base(exponent);
    let followed = SCRAMBLED_RANKS.max(records.saturating_mul(2).min(20_000_000));
    let left = (1.0 - zipf.below(followed)) / records as f64;
    let mut shares: Vec<f64> = (0..records).map(|_| left).collect();
    let mut below = 0.0;
    for rank in 0..followed {
        let next = zipf.below(rank + 1);
        if let Some(share) = usize::try_from(fnvhash64(rank) % records).ok().and_then(|at| shares.get_mut(at))
        {
            *share += next - below;
        }
        below = next;
    }
    shares
}

/// Share of requests that go to the `kept` most requested of `records` records: between 0 and 1.
#[must_use]
pub fn best_possible_hit_rate(distribution: KeyDistribution, records: u64, kept: u64) -> f64 {
    if kept >= records {
        return 1.0;
    }
    let (n, k) = (records as f64, kept as f64);
    match distribution {
        KeyDistribution::Uniform => k / n,
        KeyDistribution::Hotspot { percent } => {
            let (hot, share) = (hot_records(records, percent), hotspot_share(percent));
            if hot == records {
                k / n
            } else if kept <= hot {
                share * k / hot as f64
            } else {
                share + (1.0 - share) * (kept - hot) as f64 / (records - hot) as f64
            }
        }
        KeyDistribution::Zipf { exponent } => zeta(kept, exponent) / zeta(records, exponent),
        KeyDistribution::Latest => zeta(kept, LATEST_EXPONENT) / zeta(records, LATEST_EXPONENT),
        KeyDistribution::YcsbZipf { exponent } => YcsbZipfian::new(records, exponent).below(kept),
        KeyDistribution::YcsbScrambled { exponent } => {
            let mut shares = scrambled(exponent, records);
            shares.sort_unstable_by(|a, b| b.total_cmp(a));
            shares.into_iter().take(usize::try_from(kept).unwrap_or(usize::MAX)).sum()
        }
        // Each stage with an oracle of its own.
        KeyDistribution::Dynamic => weights()
            .map(|(index, weight)| {
                let percent = STAGES[index].hot_percent;
                weight * best_possible_hit_rate(KeyDistribution::Hotspot { percent }, records, kept)
            })
            .sum(),
    }
}

/// With more records than this nobody waits for [`best_learnt_hit_rate`].
const LEARNT_RECORDS_MAX: u64 = 10_000_000;

/// When the last record worth keeping was requested so often, counts tell the records apart.
const REQUESTS_KNOWN: f64 = 500.0;

/// Share of requests that go to the `kept` of `records` records that were requested most in the `requests` before, ties broken by chance: what
/// nobody can pass who begins without knowing anything. `None` for keys that change with time, and for more than ten million records.
#[must_use]
pub fn best_learnt_hit_rate(
    distribution: KeyDistribution,
    records: u64,
    kept: u64,
    requests: f64,
) -> Option<f64> {
    if matches!(distribution, KeyDistribution::Latest | KeyDistribution::Dynamic)
        || records > LEARNT_RECORDS_MAX
    {
        return None;
    }
    let shares = probabilities(distribution, records);
    let best = best_possible_hit_rate(distribution, records, kept);
    let last =
        usize::try_from(kept).ok().and_then(|kept| kept.checked_sub(1)).filter(|last| *last < shares.len());
    let Some(last) = last else { return Some(best) };
    let mut ranked = shares.clone();
    let (_, last_share, _) = ranked.select_nth_unstable_by(last, |a, b| b.total_cmp(a));
    if *last_share * requests > REQUESTS_KNOWN {
        return Some(best);
    }
    // A record is requested as often as a Poisson variable says; from the records never requested up, until the others fit.
    let mut chances: Vec<f64> = shares.iter().map(|share| (-share * requests).exp()).collect();
    let mut behind: Vec<f64> = chances.iter().map(|chance| 1.0 - chance).collect();
    let kept = kept as f64;
    let mut times = 0.0;
    loop {
        let more_often: f64 = behind.iter().sum();
        if more_often <= kept {
            let as_often: f64 = chances.iter().sum();
            let part = if as_often > 0.0 { ((kept - more_often) / as_often).min(1.0) } else { 0.0 };
            let each = shares.iter().zip(&behind).zip(&chances);
            return Some(each.map(|((share, behind), chance)| share * (behind + part * chance)).sum());
        }
        times += 1.0;
        for ((share, chance), behind) in shares.iter().zip(&mut chances).zip(&mut behind) {
            *chance *= share * requests / times;
            *behind = (*behind - *chance).max(0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn closed_forms_agree_with_the_sorted_probabilities() {
        for name in ["uniform", "latest", "hotspot:5", "hotspot:40", "zipf:0.99", "zipf:1", "ycsb-zipf:0.9"] {
            let distribution: KeyDistribution = name.parse().unwrap();
            let mut shares = probabilities(distribution, 300);
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{name}");
            shares.sort_by(|a, b| b.total_cmp(a));
            for kept in [0, 1, 2, 3, 15, 100, 120, 299, 300, 1000] {
                let slow: f64 = shares.iter().take(kept).sum();
                let fast = best_possible_hit_rate(distribution, 300, kept as u64);
                assert!((slow - fast).abs() < 2e-3, "{name}, {kept} kept: {slow} by hand, {fast}");
            }
        }
    }

    #[test]
    fn what_can_be_learnt_is_what_counting_all_requests_gives() {
        let (records, kept, requests) = (2_000, 200, 3_000);
        for name in ["uniform", "hotspot:5", "zipf:0.99", "ycsb-zipf:0.9"] {
            let distribution: KeyDistribution = name.parse().unwrap();
            let shares = probabilities(distribution, records);
            let sum_up = |sum: &mut f64, share: &f64| {
                *sum += share;
                Some(*sum)
            };
            let ends: Vec<f64> = shares.iter().scan(0.0, sum_up).collect();
            let mut rates = Vec::new();
            for seed in 0..30 {
                let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
                let mut counts: Vec<(u32, u64, f64)> =
                    shares.iter().map(|share| (0, rng.random(), *share)).collect();
                for _ in 0..requests {
                    let point: f64 = rng.random();
                    counts[ends.partition_point(|end| *end <= point).min(ends.len() - 1)].0 += 1;
                }
                counts.sort_by_key(|one| std::cmp::Reverse((one.0, one.1)));
                rates.push(counts.iter().take(kept).map(|one| one.2).sum::<f64>());
            }
            let counted = rates.iter().sum::<f64>() / rates.len() as f64;
            let learnt =
                best_learnt_hit_rate(distribution, records, kept as u64, f64::from(requests)).unwrap();
            assert!((learnt - counted).abs() < 0.01, "{name}: {learnt}, counted {counted}");
            let best = best_possible_hit_rate(distribution, records, kept as u64);
            assert!(learnt < best + 2e-3, "{name}: {learnt} of {best}");
        }
        let all =
            |requests| best_learnt_hit_rate("zipf:0.99".parse().unwrap(), 2_000, 200, requests).unwrap();
        assert!(
            all(0.0) < 0.11
                && all(1e7) > best_possible_hit_rate("zipf:0.99".parse().unwrap(), 2_000, 200) - 0.01
        );
        assert_eq!(best_learnt_hit_rate(KeyDistribution::Dynamic, 2_000, 200, 1.0), None);
    }

    #[test]
    fn the_reference_figures_of_the_project_come_out() {
        let kept = 100_000_000 / 1024;
        let rate = |name: &str| best_possible_hit_rate(name.parse().unwrap(), 1_100_000, kept);
        assert!((rate("hotspot:5") - 0.952).abs() < 5e-4);
        assert!((rate("zipf:0.99") - 0.823).abs() < 5e-4);
        assert!((rate("uniform") - 0.0888).abs() < 5e-4);
        // A twenty-fifth of the operations is uniform, the others are hotspots of 1 to 5 % that fit.
        assert!((rate("dynamic") - (0.0888 + 24.0 * 0.9684) / 25.0).abs() < 1e-3);
    }
}
