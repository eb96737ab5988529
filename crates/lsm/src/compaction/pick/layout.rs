//! Level targets: how many bytes each level may hold. Integers only.
//!
//! Two tiers (HotRAP section 4.1, "RocksDB-fat", and section 3.6): a keyspace's share of the fast tier is cut into levels by the
//! ratio, from the last fast level up, as long as a level is worth having; the first slow level is `ratio × cold` times
//! the last fast one, the following ones are as large as if it were `ratio` times, and the last is unbounded. A slow level with little below it may hold up to twice that, since a
//! level more is a read of the slow tier more for every scan; what it may hold falls evenly as the one below fills, so
//! that no half of a level is owed at once. One tier: from the bottom's actual size up. Tests: `tests.rs`.

use std::sync::Arc;

use kelvin_base::Tier;

use super::PickConfig;
use super::build::OVERLAP_TABLES_FAST_MAX;
use super::choose::hot_level_bytes;
use crate::version::{FIRST_SLOW, LEVELS, LEVELS_FAST, Version};

/// The runs of the hot level leave the fast levels this part of their share, whatever they hold.
const HOT_LEAVES: u64 = 8;

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
    let hot_bytes = hot_level_bytes(version);
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
    let upper_bytes: u64 = bytes[..last].iter().sum();
    bytes[last] = level_bytes.saturating_sub(upper_bytes);
    let cold_permille = config.cold_permille.clamp(1, 1000);
    let full_bytes = bytes[last].max(1).saturating_mul(ratio);
    let mut slow_bytes = (full_bytes / 1000).saturating_mul(cold_permille).max(1);
    let mut next_bytes = full_bytes.saturating_mul(ratio);
    bytes[LEVELS_FAST..FIRST_SLOW].fill(u64::MAX);
    for (level, target_bytes) in bytes.iter_mut().enumerate().skip(FIRST_SLOW) {
        let below_bytes: u64 =
            version.levels[level + 1..].iter().map(crate::version::Level::size_bytes).sum();
        *target_bytes = slow_bytes.saturating_add(slow_bytes.saturating_sub(below_bytes / ratio));
        slow_bytes = next_bytes;
        next_bytes = next_bytes.saturating_mul(ratio);
    }
    bytes[LEVELS - 1] = u64::MAX;
    Targets { bytes, base, fast_share_bytes: share_bytes }
}

fn one_tier(version: &Version, config: &PickConfig) -> Targets {
    let ratio = config.ratio_or_two();
    // The bottom is the last fast level, unless the store once had more levels.
    let deepest = (FIRST_SLOW..LEVELS).rfind(|level| !version.levels[*level].tables.is_empty());
    let bottom = deepest.unwrap_or(LEVELS_FAST - 1);
    let mut bytes = [0; LEVELS];
    let mut size_bytes =
        version.levels.iter().skip(1).map(crate::version::Level::size_bytes).max().unwrap_or(0) / ratio;
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
