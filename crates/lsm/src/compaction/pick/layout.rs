//! Level targets: how many bytes each level may hold. Integers only.
//!
//! Two tiers (HotRAP section 4.1, "RocksDB-fat", and section 3.6): a keyspace's share of the fast tier is cut into levels by the
//! ratio, from the last fast level up, as long as a level is worth having; two or more above the last grow alike from level 0. On the slow tier one level is enough as long as it
//! holds no more than twice the ratio times the last fast one, since a level more is a read of the slow tier more for every scan. What lies there
//! beyond that is cut into as few levels as keep each within four fifths of the ratio times the one above, and these grow alike: with a hot level
//! on it the fast tier has little room for what is on its way down, and few levels far apart would write each byte dozens of times. The first slow
//! level is smaller by the part of the last fast one that stays there, which counts for nothing in this, and the last is unbounded. A level that was the last one falls to its new
//! target evenly as the one below fills, so that no half of a level is owed at once. One tier: from the bottom's actual size up. Tests: `tests.rs`.

use std::sync::Arc;

use kelvin_base::Tier;

use super::PickConfig;
use super::build::OVERLAP_TABLES_FAST_MAX;
use crate::version::{FIRST_SLOW, LEVELS, LEVELS_FAST, Level, Version};

/// The runs of the hot level leave the fast levels this part of their share, whatever they hold.
const HOT_LEAVES: u64 = 8;

/// A slow level is at least so much larger than the one above, in thousandths.
const GROWTH_MIN: u64 = 2000;
/// And at most.
const GROWTH_MAX: u64 = 1_000_000;
/// Fast levels above the last are cut by the ratio where they would grow by less than this.
const GROWTH_FAST_MIN: u64 = 3000;

/// What each level of a keyspace may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Targets {
    /// Bytes by level; L0 is ruled by its number of tables; 0 for a level that should be empty.
    pub bytes: [u64; LEVELS],
    /// The level L0 is compacted into when all levels above it are empty.
    pub base: usize,
    /// What the keyspace may hold on the fast tier.
    pub fast_share_bytes: u64,
}

impl PickConfig {
    /// Bytes below which a level of its own is not worth having.
    const fn base_bytes_min(&self) -> u64 {
        let files = if self.l0_trigger_files == 0 { 1 } else { self.l0_trigger_files as u64 };
        self.memtable_bytes.saturating_mul(files)
    }

    const fn ratio_or_two(&self) -> u64 {
        if self.ratio < 2 { 2 } else { self.ratio }
    }
}

/// The share of the fast tier of each version, in the same order: in proportion to what they hold there and one
/// memtable each.
#[must_use]
pub fn shares(versions: &[Arc<Version>], config: &PickConfig) -> Vec<u64> {
    if !config.two_tiers {
        return vec![u64::MAX; versions.len()];
    }
    let weights: Vec<u128> = versions
        .iter()
        .map(|version| u128::from(version.tier_bytes(Tier::Fast)) + u128::from(config.memtable_bytes.max(1)))
        .collect();
    let total: u128 = weights.iter().sum::<u128>().max(1);
    let usable = u128::from(config.fast_usable_bytes);
    weights.into_iter().map(|weight| u64::try_from(usable * weight / total).unwrap_or(u64::MAX)).collect()
}

/// What each level of `version` may hold, given its share of the fast tier.
#[must_use]
pub fn targets(version: &Version, share_bytes: u64, config: &PickConfig) -> Targets {
    if config.two_tiers { two_tiers(version, share_bytes, config) } else { one_tier(version, config) }
}

fn two_tiers(version: &Version, share_bytes: u64, config: &PickConfig) -> Targets {
    let ratio = config.ratio_or_two();
    let last = LEVELS_FAST - 1;
    // L0 at its trigger is the part that is there before levels are cut, and so are the runs of the hot level.
    let cut_bytes = share_bytes.saturating_sub(config.base_bytes_min().min(share_bytes / 2));
    let hot_bytes = version.hot_level_bytes();
    let level_bytes = cut_bytes.saturating_sub(hot_bytes).max(cut_bytes / HOT_LEAVES);
    let mut base = last;
    let mut bytes = [0; LEVELS];
    // With n levels the last holds (ratio - 1) / ratio of all but a rest that the division leaves.
    let last_bytes = level_bytes / ratio * (ratio - 1);
    bytes[last] = last_bytes;
    let mut size_bytes = last_bytes / ratio;
    // With the hot level beside it, all of L0 and all of the base level must be merged in the room kept for work in flight.
    let in_flight_bytes = config.table_bytes[Tier::Fast.index()] * (OVERLAP_TABLES_FAST_MAX + 3);
    let is_large = |bytes: u64| hot_bytes > 0 && bytes + config.base_bytes_min() > in_flight_bytes;
    while base > 1 && (size_bytes >= config.base_bytes_min() || is_large(bytes[base])) {
        base -= 1;
        bytes[base] = size_bytes;
        size_bytes /= ratio;
    }
    grow_alike(config.base_bytes_min(), last_bytes, &mut bytes[base..last]);
    let upper_bytes: u64 = bytes[..last].iter().sum();
    bytes[last] = level_bytes.saturating_sub(upper_bytes);
    bytes[LEVELS_FAST..FIRST_SLOW].fill(u64::MAX);
    slow_targets(version, bytes[last].max(1), config, &mut bytes[FIRST_SLOW..]);
    Targets { bytes, base, fast_share_bytes: share_bytes }
}

/// Lets the levels between level 0, of `first_bytes`, and the last fast one grow alike where there are two or more, `bytes` of them: that writes least. What they
/// hold the last one cannot, so not where they would have to be nearly as large as it is.
fn grow_alike(first_bytes: u64, last_bytes: u64, bytes: &mut [u64]) {
    if bytes.len() < 2 {
        return;
    }
    let first_bytes = u128::from(first_bytes);
    let growth = growth(first_bytes, u128::from(last_bytes), bytes.len());
    if growth >= GROWTH_FAST_MIN {
        for (level, bytes) in bytes.iter_mut().enumerate() {
            *bytes = u64::try_from(grown(first_bytes, level, growth)).unwrap_or(u64::MAX);
        }
    }
}

/// `bytes` after growing so many times by so many thousandths.
fn grown(bytes: u128, times: usize, permille: u64) -> u128 {
    (0..times).fold(bytes, |bytes, _| bytes * u128::from(permille) / 1000)
}

/// The least growth, in thousandths, that takes `first_bytes` to `last_bytes` in so many times, within bounds.
fn growth(first_bytes: u128, last_bytes: u128, times: usize) -> u64 {
    let (mut low, mut high) = (GROWTH_MIN, GROWTH_MAX);
    while low < high {
        let middle = low.midpoint(high);
        if grown(first_bytes, times, middle) < last_bytes { low = middle + 1 } else { high = middle }
    }
    low
}

/// What the slow levels, whose targets are `bytes`, may hold below a last fast level of `last_bytes`.
fn slow_targets(version: &Version, last_bytes: u64, config: &PickConfig, bytes: &mut [u64]) {
    let ratio = config.ratio_or_two();
    let levels = &version.levels[FIRST_SLOW..];
    let total_bytes: u64 = levels.iter().map(Level::size_bytes).sum();
    let step = (ratio * 4 / 5).max(2);
    // What comes from above at a time, spread over all keys.
    let first_bytes = u128::from(last_bytes) * u128::from(config.cold_permille.clamp(1, 1000)) / 1000;
    // What the first `count` levels may hold before there is another one.
    let most = |count: usize| {
        let times = if count == 1 {
            2 * ratio
        } else {
            step.saturating_pow(u32::try_from(count).unwrap_or(u32::MAX))
        };
        u64::try_from(first_bytes * u128::from(times)).unwrap_or(u64::MAX)
    };
    let wanted = (1..levels.len()).find(|count| total_bytes <= most(*count));
    let used = levels.iter().rposition(|level| !level.tables.is_empty()).map_or(0, |last| last + 1);
    let count = wanted.unwrap_or(levels.len()).max(used);
    bytes.fill(u64::MAX);
    // The last one is to hold all.
    let growth = growth(first_bytes, u128::from(total_bytes), count);
    for level in 0..count - 1 {
        let below_bytes: u64 = levels[level + 1..].iter().map(Level::size_bytes).sum();
        let target_bytes = u64::try_from(grown(first_bytes, level + 1, growth)).unwrap_or(u64::MAX);
        bytes[level] = target_bytes.max(most(level + 1).saturating_sub(below_bytes / 2)).max(1);
    }
}

fn one_tier(version: &Version, config: &PickConfig) -> Targets {
    let ratio = config.ratio_or_two();
    // The bottom is the last fast level, unless the store once had more levels.
    let deepest = (FIRST_SLOW..LEVELS).rfind(|level| !version.levels[*level].tables.is_empty());
    let bottom = deepest.unwrap_or(LEVELS_FAST - 1);
    let mut bytes = [0; LEVELS];
    let mut size_bytes = version.levels.iter().skip(1).map(Level::size_bytes).max().unwrap_or(0) / ratio;
    bytes[LEVELS_FAST..FIRST_SLOW].fill(u64::MAX);
    bytes[bottom..].fill(u64::MAX);
    let mut base = bottom;
    while base > 1 && size_bytes >= config.base_bytes_min() {
        base = if base == FIRST_SLOW { LEVELS_FAST - 1 } else { base - 1 };
        bytes[base] = size_bytes;
        size_bytes /= ratio;
    }
    Targets { bytes, base, fast_share_bytes: u64::MAX }
}
