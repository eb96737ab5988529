//! Target of the options: whatever is set, `derive` answers or refuses, and its figures keep to the limits given.
//!
//! Tests: `tests/corpus.rs`.

use std::path::PathBuf;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use kelvin::{CompressionChoice, Durability, Options, Profile};

/// Settings chosen by the bytes.
pub(crate) fn derive(data: &[u8]) -> bool {
    let Ok(options) = choose(&mut Unstructured::new(data)) else { return false };
    let Ok(config) = options.derive() else { return false };
    assert!(config.explain().iter().all(|row| !row.value.is_empty() && !row.why.is_empty()));
    assert!(config.memtable_budget_bytes <= options.memory);
    if let (Some(levels), Some(capacity)) = (config.fast_levels_bytes, options.fast_capacity) {
        assert!(levels <= capacity);
    }
    let again = options.derive().map(|config| format!("{config:?}"));
    assert_eq!(again.ok(), Some(format!("{config:?}")), "O1: derive is pure");
    true
}

/// A size: near a power of two more often than not, since that is where the limits are.
fn size(u: &mut Unstructured<'_>) -> Result<u64> {
    if u.ratio(1_u8, 8_u8)? {
        return u.arbitrary();
    }
    let near = 1_u64 << u.int_in_range(0..=63_u32)?;
    Ok(near.wrapping_add_signed(i64::from(u.arbitrary::<i8>()?)))
}

fn maybe<T>(u: &mut Unstructured<'_>, choose: fn(&mut Unstructured<'_>) -> Result<T>) -> Result<Option<T>> {
    if u.arbitrary()? { choose(u).map(Some) } else { Ok(None) }
}

fn count(u: &mut Unstructured<'_>) -> Result<usize> {
    Ok(usize::try_from(if u.ratio(7_u8, 8_u8)? { u64::from(u.arbitrary::<u8>()?) } else { size(u)? })
        .unwrap_or(0))
}

fn bytes(u: &mut Unstructured<'_>) -> Result<usize> {
    size(u).map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
}

fn dir(u: &mut Unstructured<'_>) -> Result<PathBuf> {
    u.choose(&["/fast", "/slow", "/fast/below", "", ".", "/fast/../slow", "fast/./"]).map(PathBuf::from)
}

fn choose(u: &mut Unstructured<'_>) -> Result<Options> {
    let mut options = Options::new(dir(u)?);
    options.slow_dir = maybe(u, dir)?;
    options.fast_capacity = maybe(u, size)?;
    options.slow_capacity = maybe(u, size)?;
    if u.arbitrary()? {
        options.memory = size(u)?;
    }
    options.durability = *u.choose(&Durability::ALL)?;
    options.compression = *u.choose(&CompressionChoice::ALL)?;
    options.profile = *u.choose(&Profile::ALL)?;
    let advanced = &mut options.advanced;
    advanced.fast_block_bytes = maybe(u, bytes)?;
    advanced.hot_block_bytes = maybe(u, bytes)?;
    advanced.slow_block_bytes = maybe(u, bytes)?;
    advanced.restart_interval = maybe(u, count)?.unwrap_or(advanced.restart_interval);
    advanced.filter_bits_per_key = maybe(u, |u| u.arbitrary())?;
    advanced.memtable_bytes = maybe(u, size)?;
    advanced.memtables_max = maybe(u, count)?;
    advanced.table_bytes = maybe(u, size)?;
    advanced.level_ratio = maybe(u, |u| u.arbitrary())?.unwrap_or(advanced.level_ratio);
    advanced.levels_max = maybe(u, count)?.unwrap_or(advanced.levels_max);
    advanced.level0_compact_at = maybe(u, count)?;
    advanced.level0_delay_at = maybe(u, count)?;
    advanced.level0_stop_at = maybe(u, count)?;
    advanced.debt_delay_bytes = maybe(u, size)?;
    advanced.debt_stop_bytes = maybe(u, size)?;
    advanced.compactions_max = maybe(u, count)?;
    advanced.flushes_max = maybe(u, count)?.unwrap_or(advanced.flushes_max);
    advanced.read_threads = maybe(u, count)?.unwrap_or(advanced.read_threads);
    advanced.wal_bytes_max = maybe(u, size)?;
    advanced.manifest_bytes_max = maybe(u, size)?;
    advanced.slow_deadline = maybe(u, size)?.map_or(advanced.slow_deadline, Duration::from_millis);
    advanced.compaction_readahead_bytes = maybe(u, bytes)?;
    advanced.scan_readahead_bytes = maybe(u, bytes)?;
    Ok(options)
}
