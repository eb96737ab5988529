//! Derives every figure from the settings. Pure; the settings were checked before.
//!
//! The sizes follow from two figures, the fast capacity and the memory limit, so that a store of 1 MiB and one of
//! 1 TiB have the same shape: about 64 write buffers and 64 tables in the fast tier, an eighth of it at most kept
//! for work in flight. DESIGN section 8. Tests: `tests.rs` beside.

use kelvin_base::Tier;

use super::{Advanced, Config, Hotness, Options, Profile};
use crate::compaction::pick::OVERLAP_TABLES_FAST_MAX;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Fast capacity over the size of a memtable and of a table there, so that level 0 at its trigger and level 1 take a sixteenth each
/// (DESIGN section 8 asks for at least some 50 tables).
const PARTS_IN_FAST: u64 = 64;
/// The same where what is hot is to fill the fast tier: half of what must stay free for work in flight.
const PARTS_IN_FAST_TRACKED: u64 = 128;
/// And of a memtable there: level 0, its merge and the log need room that is short.
const MEMTABLES_IN_FAST_TRACKED: u64 = 192;
/// From this capacity on: below, files would be so small that what each costs counts for more.
const TRACKED_FAST_BYTES: u64 = 32 * MIB;
/// Fast capacity over manifest size.
const MANIFESTS_IN_FAST: u64 = 128;
/// What a process with a store has resident before it holds any data: 6 MiB of code, and the stacks of 20 threads, their
/// allocators' pages and small objects.
const PROCESS_BYTES: u64 = 14 * MIB;
/// What a store works well enough with, if it comes to that.
const STORE_BYTES: u64 = 5 * MIB;
/// The store's part of memory from which on it may run four compactions at once.
const STORE_BYTES_FOR_FOUR: u64 = 16 * MIB;
/// A block of the hot level: what a disk reads at once, and some records.
const HOT_BLOCK_BYTES: usize = 4 << 10;
/// Slow disks and cloud volumes count a read of up to about this as one.
const SLOW_READ_BYTES_MAX: usize = 256 << 10;
/// Memory over what all scans together read ahead.
const SCANS_IN_MEMORY: u64 = 32;
/// Memory over what the hot-key tracker may take.
const HOTNESS_IN_MEMORY: u64 = 16;
/// Memory over what the promotion caches may hold.
const PROMOTION_IN_MEMORY: u64 = 32;
/// Memory over what the block cache always has.
const CACHE_IN_MEMORY: u64 = 16;
/// The store's part of memory over what open tables always have.
const PINNED_IN_STORE: u64 = 10;
/// The store's part of memory over what write buffers have, however little else there is.
const MEMTABLES_IN_STORE: u64 = 4;
/// The store's part of memory over what the hot-key tracker may take at most.
const HOTNESS_IN_STORE: u64 = 6;
const SIZE_BYTES_MAX: u64 = 64 * MIB;
const SIZE_BYTES_MIN: u64 = 16 * KIB;

/// Takes what was set by hand, remembering its name, or what follows from the rest.
struct Choice {
    by_hand: Vec<&'static str>,
}

impl Choice {
    /// With what is set by hand within bounds that are derived.
    fn new(advanced: &Advanced) -> Self {
        Self { by_hand: advanced.promotion_bytes.map(|_| "promotion_bytes_max").into_iter().collect() }
    }

    fn of<T>(&mut self, name: &'static str, given: Option<T>, derived: T) -> T {
        match given {
            Some(value) => {
                self.by_hand.push(name);
                value
            }
            None => derived,
        }
    }
}

/// Percent of memory for write buffers.
const fn memtable_percent(profile: Profile) -> u64 {
    match profile {
        Profile::Balanced | Profile::Scans => 25,
        Profile::Reads => 12,
        Profile::Writes => 50,
    }
}

/// Runs at level 0 at which they are merged, writes are delayed, writes stop.
const fn level0_runs(profile: Profile) -> [usize; 3] {
    match profile {
        Profile::Balanced | Profile::Scans => [4, 8, 12],
        Profile::Reads => [2, 6, 10],
        Profile::Writes => [6, 12, 18],
    }
}

fn level0(options: &Options, choice: &mut Choice) -> [usize; 3] {
    let (advanced, [compact_at, delay_at, stop_at]) = (&options.advanced, level0_runs(options.profile));
    let compact_at = choice.of("level0_compact_at", advanced.level0_compact_at, compact_at);
    let delay_at = choice.of("level0_delay_at", advanced.level0_delay_at, delay_at.max(compact_at));
    let stop_at = choice.of("level0_stop_at", advanced.level0_stop_at, stop_at.max(delay_at));
    [compact_at, delay_at, stop_at]
}

/// The write buffers: how large, how many, and their bytes together.
struct Memtables {
    bytes: u64,
    count_max: usize,
    budget_bytes: u64,
}

impl Memtables {
    /// What the log of all of them takes, and of one more.
    const fn wal_bytes(&self) -> u64 {
        self.budget_bytes.saturating_add(self.bytes)
    }
}

/// What memory less the process's part leaves to the store.
fn store_bytes(options: &Options) -> u64 {
    options.memory - process_bytes(options)
}

/// What shares are shares of: the memory, or where the process takes more than a third of it, less in proportion.
fn shared_bytes(options: &Options) -> u64 {
    let store = store_bytes(options);
    options.memory.min(store.saturating_add(store / 2))
}

fn memtables(options: &Options, choice: &mut Choice) -> Memtables {
    let percent = memtable_percent(options.profile);
    // Divided first: the largest memory allowed times a percentage does not fit.
    let share_bytes = options.memory / 100 * percent + options.memory % 100 * percent / 100;
    // Where memory is small, indexes and filters come first: what is gathered before it is written saves no read.
    let left_bytes = store_bytes(options).saturating_sub(others_bytes(options));
    let share_bytes = share_bytes.min(left_bytes.max(store_bytes(options) / MEMTABLES_IN_STORE));
    let count_max = choice.of("memtables_max", options.advanced.memtables_max, 4);
    let by_memory = share_bytes / count_max as u64;
    let by_capacity = options.fast_capacity.map_or(u64::MAX, |bytes| bytes / memtables_in_fast(options));
    let derived = by_memory.min(by_capacity).clamp(SIZE_BYTES_MIN, SIZE_BYTES_MAX);
    let bytes = choice.of("memtable_bytes", options.advanced.memtable_bytes, derived);
    Memtables { bytes, count_max, budget_bytes: bytes.saturating_mul(count_max as u64) }
}

/// The most that the store takes beside its write buffers, with the least that cache and open tables are left.
fn others_bytes(options: &Options) -> u64 {
    let parts = [
        working_bytes(options),
        // What a compaction or a flush has taken out, and what comes in meanwhile.
        2 * promotion_share(options),
        shared_bytes(options) / SCANS_IN_MEMORY,
        hotness_memory_bytes(options),
        cache_bytes_min(options),
        pinned_bytes_min(options),
    ];
    parts.iter().fold(0, |sum: u64, part| sum.saturating_add(*part))
}

fn table_bytes(options: &Options, memtable_bytes: u64, choice: &mut Choice) -> u64 {
    let by_memtable = memtable_bytes.saturating_mul(4).clamp(2 * MIB, SIZE_BYTES_MAX);
    let derived = options
        .fast_capacity
        .map_or(by_memtable, |bytes| (bytes / parts_in_fast(options)).clamp(SIZE_BYTES_MIN, by_memtable));
    choice.of("table_bytes", options.advanced.table_bytes, derived)
}

/// Room for one compaction within the fast tier, no more than `most`, and two flushes.
fn fast_reserve_bytes(table_bytes: u64, memtable_bytes: u64, most: u64) -> u64 {
    let compaction = table_bytes.saturating_mul(OVERLAP_TABLES_FAST_MAX + 3).min(most);
    compaction.saturating_add(memtable_bytes.saturating_mul(2))
}

/// Tables of the slow tier need not be small where those of the fast one must.
fn slow_table_bytes(options: &Options, table_bytes: u64) -> u64 {
    let wanted = options.fast_capacity.map_or(table_bytes, |bytes| bytes / PARTS_IN_FAST);
    if options.advanced.table_bytes.is_some() {
        table_bytes
    } else {
        table_bytes.max(wanted.min(2 * table_bytes))
    }
}

fn parts_in_fast(options: &Options) -> u64 {
    if is_tracked(options) { PARTS_IN_FAST_TRACKED } else { PARTS_IN_FAST }
}

fn memtables_in_fast(options: &Options) -> u64 {
    if is_tracked(options) { MEMTABLES_IN_FAST_TRACKED } else { PARTS_IN_FAST }
}

/// True if what is hot is to fill a fast tier large enough for small files.
fn is_tracked(options: &Options) -> bool {
    let is_large = options.fast_capacity.is_some_and(|bytes| bytes >= TRACKED_FAST_BYTES);
    is_large && hotness(options) != Hotness::Off
}

/// A compaction of one table meets about `level_ratio` tables below and writes them anew before it frees any. On the
/// fast tier tables are cut so that they meet fewer, [`OVERLAP_TABLES_FAST_MAX`] and one at each end.
fn compaction_bytes(options: &Options, table_bytes: u64) -> u64 {
    table_bytes.saturating_mul(u64::from(options.advanced.level_ratio) + 2)
}

fn block_bytes(options: &Options, table_bytes: u64, choice: &mut Choice) -> [usize; 2] {
    // A table holds at least four blocks, so that its index is worth having.
    let most = usize::try_from(table_bytes / 4).unwrap_or(usize::MAX).max(4 << 10);
    let slow = if options.profile == Profile::Scans { 32 << 10 } else { 16 << 10 };
    let advanced = &options.advanced;
    [
        choice.of("fast_block_bytes", advanced.fast_block_bytes, most.min(16 << 10)),
        choice.of("slow_block_bytes", advanced.slow_block_bytes, most.min(slow)),
    ]
}

/// `bytes` within bounds, in whole disk sectors.
fn sectors(bytes: u64, least: usize, most: usize) -> usize {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).clamp(least, most);
    bytes / kelvin_storage::ALIGNMENT * kelvin_storage::ALIGNMENT
}

/// With a slow tier a compaction mostly waits for its disks; with one tier it keeps a core busy. Each takes memory.
fn compactions_max(options: &Options) -> usize {
    let is_worth_it = options.slow_dir.is_some() && store_bytes(options) >= STORE_BYTES_FOR_FOUR;
    let derived = if is_worth_it { 4 } else { 2 };
    options.advanced.compactions_max.unwrap_or(derived)
}

fn compaction_readahead_bytes(options: &Options) -> usize {
    let derived = sectors(shared_bytes(options) / (128 * compactions_max(options) as u64), 32 << 10, 2 << 20);
    options.advanced.compaction_readahead_bytes.unwrap_or(derived)
}

fn readahead_bytes(options: &Options, choice: &mut Choice) -> [usize; 2] {
    let scan_most = if options.profile == Profile::Scans { 1 << 20 } else { 256 << 10 };
    let advanced = &options.advanced;
    [
        choice.of(
            "compaction_readahead_bytes",
            advanced.compaction_readahead_bytes,
            compaction_readahead_bytes(options),
        ),
        choice.of(
            "scan_readahead_bytes",
            advanced.scan_readahead_bytes,
            sectors(shared_bytes(options) / 256, 32 << 10, scan_most),
        ),
    ]
}

fn slow_readahead_bytes(fast_bytes: usize) -> usize {
    fast_bytes.saturating_mul(4).min(SLOW_READ_BYTES_MAX).max(fast_bytes)
}

/// Bytes gathered for a table's file: most of what a write costs beside its bytes is gone at 1 MiB.
fn write_buffer_bytes(options: &Options) -> usize {
    sectors(shared_bytes(options) / 128, 64 << 10, 1 << 20)
}

/// What the buffers of all background work take together, roughly: each job writes one table, and reads some eight.
fn working_bytes(options: &Options) -> u64 {
    let jobs = (compactions_max(options) + options.advanced.flushes_max) as u64;
    let readahead_bytes = compaction_readahead_bytes(options) as u64;
    jobs.saturating_mul((2 * write_buffer_bytes(options) as u64).saturating_add(8 * readahead_bytes))
}

/// The tracker of hot keys, if it is not said: RALT where there are two tiers to choose from.
fn hotness(options: &Options) -> Hotness {
    let derived = if options.slow_dir.is_some() { Hotness::Ralt } else { Hotness::Off };
    options.advanced.hotness.unwrap_or(derived)
}

fn hotness_memory_bytes(options: &Options) -> u64 {
    let share = (options.memory / HOTNESS_IN_MEMORY).min(store_bytes(options) / HOTNESS_IN_STORE);
    if hotness(options).is_on_disk() { share } else { 0 }
}

/// What the promotion caches may hold of the memory; nothing where nothing can be hot.
fn promotion_share(options: &Options) -> u64 {
    let is_on = options.slow_dir.is_some() && hotness(options) != Hotness::Off;
    if is_on { shared_bytes(options) / PROMOTION_IN_MEMORY } else { 0 }
}

/// What they may hold: enough for a table to be written of it.
fn promotion_bytes_max(options: &Options, table_bytes: u64) -> u64 {
    let most = table_bytes.min(promotion_share(options));
    options.advanced.promotion_bytes.unwrap_or(most).min(most)
}

fn cache_bytes_min(options: &Options) -> u64 {
    shared_bytes(options) / CACHE_IN_MEMORY
}

fn pinned_bytes_min(options: &Options) -> u64 {
    store_bytes(options) / PINNED_IN_STORE
}

fn process_bytes(options: &Options) -> u64 {
    (options.memory / 2).max(options.memory.saturating_sub(STORE_BYTES)).min(PROCESS_BYTES)
}

fn filter_bits(options: &Options, choice: &mut Choice) -> u32 {
    let derived = if options.profile == Profile::Reads { 14 } else { 10 };
    choice.of("filter_bits_per_key", options.advanced.filter_bits_per_key, derived)
}

fn manifest_bytes(options: &Options, choice: &mut Choice) -> u64 {
    let derived =
        options.fast_capacity.map_or(16 * MIB, |bytes| (bytes / MANIFESTS_IN_FAST).clamp(8 * KIB, 16 * MIB));
    choice.of("manifest_bytes_max", options.advanced.manifest_bytes_max, derived)
}

fn hot_block_bytes(options: &Options, fast_bytes: usize, choice: &mut Choice) -> usize {
    choice.of("hot_block_bytes", options.advanced.hot_block_bytes, fast_bytes.min(HOT_BLOCK_BYTES))
}

/// Derives the configuration.
pub(super) fn derive(options: &Options) -> Config {
    let advanced = &options.advanced;
    let mut choice = Choice::new(advanced);
    let memtables = memtables(options, &mut choice);
    let table_bytes = table_bytes(options, memtables.bytes, &mut choice);
    let manifest_bytes_max = manifest_bytes(options, &mut choice);
    let wal_bytes_max = choice.of("wal_bytes_max", advanced.wal_bytes_max, memtables.wal_bytes());
    let slow_table_bytes = slow_table_bytes(options, table_bytes);
    let compaction = compaction_bytes(options, slow_table_bytes);
    let fast_reserve = fast_reserve_bytes(table_bytes, memtables.bytes, compaction);
    // The old manifest lives until the new one is durable.
    let beside_levels = fast_reserve.saturating_add(wal_bytes_max).saturating_add(2 * manifest_bytes_max);
    let [level0_compact_at, level0_delay_at, level0_stop_at] = level0(options, &mut choice);
    let debt = memtables.bytes.saturating_mul(256);
    let debt_delay_bytes = choice.of("debt_delay_bytes", advanced.debt_delay_bytes, debt);
    let debt_stop = debt_delay_bytes.saturating_mul(4);
    let block_bytes = block_bytes(options, table_bytes, &mut choice);
    let [compaction_readahead_bytes, scan_readahead_bytes] = readahead_bytes(options, &mut choice);
    Config {
        dir: options.dir.clone(),
        slow_dir: options.slow_dir.clone(),
        capacity_bytes: [options.fast_capacity, options.slow_capacity],
        reserve_bytes: [fast_reserve, options.slow_capacity.map_or(compaction, |b| compaction.min(b / 8))],
        fast_levels_bytes: options.fast_capacity.map(|bytes| bytes.saturating_sub(beside_levels)),
        memory_bytes: options.memory,
        memtable_budget_bytes: memtables.budget_bytes,
        process_bytes: process_bytes(options),
        pinned_bytes_min: pinned_bytes_min(options),
        hot_parts: advanced.hot_parts,
        hot_set_bytes: advanced.hot_set_bytes,
        hotness: choice.of("hotness", advanced.hotness, hotness(options)),
        keeps_hotness: advanced.hotness.is_none(),
        hotness_memory_bytes: hotness_memory_bytes(options),
        promotion_bytes_max: promotion_bytes_max(options, table_bytes),
        write_buffer_bytes: write_buffer_bytes(options),
        scans_bytes: shared_bytes(options) / SCANS_IN_MEMORY,
        cache_bytes_min: cache_bytes_min(options),
        durability: options.durability,
        compression: options.compression,
        profile: options.profile,
        block_bytes,
        hot_block_bytes: hot_block_bytes(options, block_bytes[Tier::Fast.index()], &mut choice),
        restart_interval: advanced.restart_interval,
        filter_bits_per_key: filter_bits(options, &mut choice),
        memtable_bytes: memtables.bytes,
        memtables_max: memtables.count_max,
        table_bytes,
        slow_table_bytes,
        level_ratio: advanced.level_ratio,
        levels_max: advanced.levels_max,
        level1_bytes: memtables.bytes.saturating_mul(level0_compact_at as u64),
        level0_compact_at,
        level0_delay_at,
        level0_stop_at,
        debt_delay_bytes,
        debt_stop_bytes: choice.of("debt_stop_bytes", advanced.debt_stop_bytes, debt_stop),
        compactions_max: choice.of("compactions_max", advanced.compactions_max, compactions_max(options)),
        flushes_max: advanced.flushes_max,
        read_threads: advanced.read_threads,
        table_io: advanced.table_io,
        wal_bytes_max,
        manifest_bytes_max,
        slow_deadline: advanced.slow_deadline,
        compaction_readahead_bytes,
        slow_readahead_bytes: slow_readahead_bytes(compaction_readahead_bytes),
        scan_readahead_bytes,
        verify_new_tables: advanced.verify_new_tables,
        seed: advanced.seed,
        by_hand: choice.by_hand,
    }
}
