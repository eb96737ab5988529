//! Refuses settings that cannot work, each with its name, what was given, what is allowed, and what to do.
//!
//! Tests: `tests.rs` beside.

use std::fmt::Display;
use std::path::{Component, Path, PathBuf};

use kelvin_base::{Error, Result};

use super::units::human_bytes;
use super::{Advanced, CAPACITY_BYTES_MIN, Config, Hotness, MEMORY_BYTES_MIN, Options};

/// Larger than any disk or memory: a size beyond is a slip of the pen.
const ABSURD_BYTES: u64 = 1 << 60;

fn refuse(name: &str, given: impl Display, allowed: impl Display, advice: &str) -> Error {
    Error::invalid(format!("option {name} cannot be {given}: allowed is {allowed}")).advice(advice)
}

fn size(name: &str, given: u64, least: u64, most: u64, advice: &str) -> Result<()> {
    if (least..=most).contains(&given) {
        return Ok(());
    }
    let allowed = format!("{} to {}", human_bytes(least), human_bytes(most));
    Err(refuse(name, format!("{} ({given} bytes)", human_bytes(given)), allowed, advice))
}

fn count(name: &str, given: usize, least: usize, most: usize) -> Result<()> {
    if (least..=most).contains(&given) {
        return Ok(());
    }
    Err(refuse(name, given, format!("{least} to {most}"), "leave it out for the default"))
}

/// `path` without `.` and with `..` resolved as far as its text tells.
fn plain(path: &Path) -> PathBuf {
    let mut parts: Vec<Component<'_>> = Vec::new();
    for part in path.components() {
        match (part, parts.last()) {
            (Component::CurDir, _) => {}
            (Component::ParentDir, Some(Component::Normal(_))) => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    parts.iter().collect()
}

fn directories(options: &Options) -> Result<()> {
    if options.dir.as_os_str().is_empty() {
        return Err(refuse("dir", "empty", "a directory", "name the directory of the store"));
    }
    let Some(slow_dir) = &options.slow_dir else { return Ok(()) };
    if slow_dir.as_os_str().is_empty() {
        return Err(refuse("slow_dir", "empty", "a directory", "name a directory on the slow disk"));
    }
    let (fast, slow) = (plain(&options.dir), plain(slow_dir));
    if fast.starts_with(&slow) || slow.starts_with(&fast) {
        let relation = if fast == slow { "the same as" } else { "nested with" };
        return Err(refuse(
            "slow_dir",
            format!("{}, {relation} dir {}", slow_dir.display(), options.dir.display()),
            "a directory apart from dir",
            "give each tier a directory of its own, on its own disk, or leave slow_dir out for a single tier",
        ));
    }
    Ok(())
}

fn capacities(options: &Options) -> Result<()> {
    if options.slow_dir.is_none() && options.slow_capacity.is_some() {
        return Err(refuse(
            "slow_capacity",
            "given without slow_dir",
            "only with a slow tier",
            "name the slow directory with slow_dir, or leave slow_capacity out",
        ));
    }
    if options.slow_dir.is_some() && options.fast_capacity.is_none() {
        return Err(refuse(
            "fast_capacity",
            "left out with slow_dir",
            "a size, when there is a slow tier",
            "say how many bytes the store may use on the fast disk: it decides what stays there",
        ));
    }
    for (name, given) in [("fast_capacity", options.fast_capacity), ("slow_capacity", options.slow_capacity)]
    {
        if let Some(bytes) = given {
            size(
                name,
                bytes,
                CAPACITY_BYTES_MIN,
                ABSURD_BYTES,
                "capacities are in bytes; leave it out for no limit",
            )?;
        }
    }
    size(
        "memory",
        options.memory,
        MEMORY_BYTES_MIN,
        ABSURD_BYTES,
        "memory is in bytes; the default is 256 MiB",
    )
}

fn sizes(advanced: &Advanced) -> Result<()> {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    let wide = |bytes: Option<usize>| bytes.map(|bytes| bytes as u64);
    let sizes = [
        ("fast_block_bytes", wide(advanced.fast_block_bytes), 512, MIB),
        ("hot_block_bytes", wide(advanced.hot_block_bytes), 512, MIB),
        ("slow_block_bytes", wide(advanced.slow_block_bytes), 512, MIB),
        ("promotion_bytes", advanced.promotion_bytes, 0, 16 * GIB),
        ("memtable_bytes", advanced.memtable_bytes, 4 * KIB, 16 * GIB),
        ("table_bytes", advanced.table_bytes, 4 * KIB, 16 * GIB),
        ("debt_delay_bytes", advanced.debt_delay_bytes, MIB, ABSURD_BYTES),
        ("debt_stop_bytes", advanced.debt_stop_bytes, MIB, ABSURD_BYTES),
        ("wal_bytes_max", advanced.wal_bytes_max, 8 * KIB, ABSURD_BYTES),
        ("manifest_bytes_max", advanced.manifest_bytes_max, 4 * KIB, GIB),
        ("compaction_readahead_bytes", wide(advanced.compaction_readahead_bytes), 4 * KIB, 64 * MIB),
        ("scan_readahead_bytes", wide(advanced.scan_readahead_bytes), 4 * KIB, 64 * MIB),
    ];
    for (name, given, least, most) in sizes {
        if let Some(bytes) = given {
            size(name, bytes, least, most, "leave it out and it is derived")?;
        }
    }
    Ok(())
}

fn counts(options: &Options) -> Result<()> {
    let advanced = &options.advanced;
    // Two tiers need level 0, a level on the fast tier and one on the slow tier.
    let levels_min = if options.slow_dir.is_some() { 3 } else { 2 };
    count("level_ratio", advanced.level_ratio as usize, 2, 100)?;
    count("levels_max", advanced.levels_max, levels_min, 32)?;
    count("restart_interval", advanced.restart_interval, 1, 1024)?;
    count("filter_bits_per_key", advanced.filter_bits_per_key.unwrap_or(0) as usize, 0, 64)?;
    count("memtables_max", advanced.memtables_max.unwrap_or(2), 2, 64)?;
    count("compactions_max", advanced.compactions_max.unwrap_or(1), 1, 256)?;
    count("flushes_max", advanced.flushes_max, 1, 64)?;
    count("read_threads", advanced.read_threads, 1, 1024)?;
    count("level0_compact_at", advanced.level0_compact_at.unwrap_or(1), 1, 1000)?;
    if advanced.slow_deadline.is_zero() {
        return Err(refuse("slow_deadline", "0", "more than 0", "the default is 10 seconds"));
    }
    Ok(())
}

fn hotness(options: &Options) -> Result<()> {
    if let (Some(bytes), Some(capacity)) = (options.advanced.hot_set_bytes, options.fast_capacity) {
        let why = "hot records are to fit the fast tier; leave it out and it follows the workload";
        size("hot_set_bytes", bytes, 1, capacity, why)?;
    }
    match options.advanced.hotness {
        Some(kind) if kind != Hotness::Off && options.slow_dir.is_none() => Err(refuse(
            "hotness",
            format!("{kind} without slow_dir"),
            "off, with a single tier",
            "it tells which records deserve the fast tier: name the slow directory with slow_dir, or leave hotness out",
        )),
        _ => Ok(()),
    }
}

/// Checks what was given.
pub(super) fn validate(options: &Options) -> Result<()> {
    directories(options)?;
    capacities(options)?;
    hotness(options)?;
    sizes(&options.advanced)?;
    counts(options)
}

fn ordered(low: (&str, u64), high: (&str, u64)) -> Result<()> {
    if low.1 <= high.1 {
        return Ok(());
    }
    let allowed = format!("at least {} ({})", low.0, low.1);
    Err(refuse(high.0, high.1, allowed, "writes are delayed before they stop, and compacted before both"))
}

/// Checks what follows from settings that were each allowed alone.
pub(super) fn validate_derived(options: &Options, config: &Config) -> Result<()> {
    ordered(
        ("level0_compact_at", config.level0_compact_at as u64),
        ("level0_delay_at", config.level0_delay_at as u64),
    )?;
    ordered(
        ("level0_delay_at", config.level0_delay_at as u64),
        ("level0_stop_at", config.level0_stop_at as u64),
    )?;
    ordered(("debt_delay_bytes", config.debt_delay_bytes), ("debt_stop_bytes", config.debt_stop_bytes))?;
    let memtables_most = options.memory / 4 * 3;
    if config.memtable_budget_bytes > memtables_most {
        return Err(refuse(
            "memtable_bytes",
            format!("{} in {} memtables", human_bytes(config.memtable_bytes), config.memtables_max),
            format!("three quarters of memory, {}, together", human_bytes(memtables_most)),
            "raise memory, or lower memtable_bytes or memtables_max",
        ));
    }
    if config.wal_bytes_max < config.memtable_bytes.saturating_mul(2) {
        return Err(refuse(
            "wal_bytes_max",
            human_bytes(config.wal_bytes_max),
            format!("at least two memtables, {}", human_bytes(config.memtable_bytes.saturating_mul(2))),
            "raise it, or lower memtable_bytes",
        ));
    }
    let (Some(capacity), Some(levels)) = (options.fast_capacity, config.fast_levels_bytes) else {
        return Ok(());
    };
    if levels < capacity / 4 {
        return Err(refuse(
            "fast_capacity",
            human_bytes(capacity),
            format!(
                "four thirds of what logs, manifest and work in flight need, {}",
                human_bytes((capacity - levels).saturating_mul(4) / 3)
            ),
            "raise it, or lower memtable_bytes, table_bytes, level_ratio, wal_bytes_max or manifest_bytes_max",
        ));
    }
    Ok(())
}
