//! Every figure of a configuration with its unit and the reason for it: what `kelvin explain` prints.
//!
//! Tests: `tests.rs` beside.

use std::time::Duration;

use kelvin_base::Tier;
use kelvin_storage::IoMode;

use super::units::human_bytes;
use super::{Config, Hotness, Profile};

/// One figure of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigRow {
    /// The option's or figure's name.
    pub name: &'static str,
    /// Its value with its unit.
    pub value: String,
    /// Why it is so.
    pub why: String,
}

struct Rows<'a> {
    config: &'a Config,
    rows: Vec<ConfigRow>,
}

impl Rows<'_> {
    fn add(&mut self, name: &'static str, value: impl Into<String>, why: impl Into<String>) {
        let by_hand = self.config.by_hand.contains(&name);
        let why = if by_hand { "set by hand".to_owned() } else { why.into() };
        self.rows.push(ConfigRow { name, value: value.into(), why });
    }

    fn size(&mut self, name: &'static str, bytes: u64, why: impl Into<String>) {
        self.add(name, human_bytes(bytes), why);
    }
}

fn limit(capacity: Option<u64>) -> String {
    capacity.map_or_else(|| "none: the disk".to_owned(), human_bytes)
}

impl Config {
    /// Every figure, its value with its unit, and why it is so.
    #[must_use]
    pub fn explain(&self) -> Vec<ConfigRow> {
        let mut rows = Rows { config: self, rows: Vec::new() };
        self.explain_given(&mut rows);
        self.explain_space(&mut rows);
        self.explain_memory(&mut rows);
        self.explain_tables(&mut rows);
        self.explain_pace(&mut rows);
        rows.rows
    }

    fn explain_given(&self, rows: &mut Rows<'_>) {
        rows.add("dir", self.dir.display().to_string(), "given");
        match &self.slow_dir {
            Some(dir) => rows.add("slow_dir", dir.display().to_string(), "given"),
            None => rows.add("slow_dir", "none", "a single tier: every level is in dir"),
        }
        rows.add("fast_capacity", limit(self.capacity(Tier::Fast)), "hard limit on all files in dir");
        if self.is_tiered() {
            rows.add(
                "slow_capacity",
                limit(self.capacity(Tier::Slow)),
                "hard limit on all files in slow_dir",
            );
        }
        rows.size("memory", self.memory_bytes, "one limit for everything that grows with the data");
        rows.add("durability", self.durability.name(), "what a write survives unless it says otherwise");
        rows.add("compression", self.compression.name(), "levels 0 and 1 on the fast tier stay plain");
        rows.add("profile", self.profile.name(), "shifts the figures below");
        let why = match self.hotness {
            Hotness::Off if !self.is_tiered() => "a single tier: there is nothing to choose from",
            Hotness::Off => "where a record lies follows from when it was written",
            Hotness::Oracle => "exact counts in memory without a limit: for experiments",
            _ => {
                "tells hot records by their point reads and the first of a short scan's; its files, up to a quarter of fast_capacity, are not the levels'; a store kept with lru or clock goes on with that"
            }
        };
        rows.add("hotness", self.hotness.name(), why);
        if let Some(bytes) = self.hot_set_bytes {
            rows.size("hot_set_bytes", bytes, "what may be hot at once, instead of what the workload says");
        }
    }

    fn explain_space(&self, rows: &mut Rows<'_>) {
        let keeps = "two memtables and one compaction: kept for work that must go on when the tier is full";
        rows.size("fast_reserve_bytes", self.reserve(Tier::Fast), keeps);
        if self.is_tiered() {
            let keeps = "one compaction, an eighth of the capacity at most";
            rows.size("slow_reserve_bytes", self.reserve(Tier::Slow), keeps);
        }
        if let Some(bytes) = self.fast_levels_bytes {
            let why = "fast_capacity less reserve, log and two manifests: what levels on the fast tier share";
            rows.size("fast_levels_bytes", bytes, why);
        }
        rows.size("wal_bytes_max", self.wal_bytes_max, "every memtable's log, and one recycled file");
        rows.size("manifest_bytes_max", self.manifest_bytes_max, "1/128 of fast_capacity, 8 KiB to 16 MiB");
        rows.size("level1_bytes", self.level1_bytes, "as large as level 0 when it is merged down");
        rows.add("level_ratio", self.level_ratio.to_string(), "each level over the one above");
        rows.add("levels_max", self.levels_max.to_string(), "level 0 included; levels appear as data grows");
    }

    fn explain_memory(&self, rows: &mut Rows<'_>) {
        rows.size(
            "process_bytes",
            self.process_bytes,
            "left to code, stacks and small objects; less in a memory below 19 MiB",
        );
        rows.size(
            "pinned_bytes_min",
            self.pinned_bytes_min,
            "the least for indexes and filters of open tables; they come before the cache, and what does not fit is opened when read",
        );
        if self.hotness_memory_bytes > 0 {
            let why =
                "1/16 of memory (less below 23 MiB) for the hot-key tracker; colder keys leave it beyond";
            rows.size("hotness_memory_bytes", self.hotness_memory_bytes, why);
        }
        rows.size(
            "write_buffer_bytes",
            self.write_buffer_bytes as u64,
            "1/128 of memory (less below 42 MiB), 64 KiB to 1 MiB, for each table being written",
        );
        let why = "1/32 of memory (less below 42 MiB): what all scans together read ahead";
        rows.size("scans_bytes", self.scans_bytes, why);
        let share = format!("{} memtables of memtable_bytes over all keyspaces", self.memtables_max);
        rows.size("memtable_budget_bytes", self.memtable_budget_bytes, share);
        let why = if self.capacity(Tier::Fast).is_some() {
            "the least of 1/64 of fast_capacity (1/192 where hot records fill it, from 32 MiB on), the share of memory over memtables_max, 64 MiB"
        } else {
            "the lesser of the share of memory over memtables_max and 64 MiB"
        };
        rows.size("memtable_bytes", self.memtable_bytes, why);
        rows.add("memtables_max", self.memtables_max.to_string(), "one active, the others being flushed");
        let why = "memory less memtables, indexes, filters and buffers goes to the cache, never less than this: 1/16";
        rows.size("cache_bytes_min", self.cache_bytes_min, why);
        if self.promotion_bytes_max > 0 {
            let why = "one table, 1/32 of memory at most: records read from the slow tier, asked before it";
            rows.size("promotion_bytes_max", self.promotion_bytes_max, why);
        }
        let why = "memory over 64 for each compaction, 32 KiB to 2 MiB";
        rows.size("compaction_readahead_bytes", self.compaction_readahead_bytes as u64, why);
        let why = "memory over 256, 32 KiB to 256 KiB (1 MiB for profile scans)";
        rows.size("scan_readahead_bytes", self.scan_readahead_bytes as u64, why);
    }

    fn explain_tables(&self, rows: &mut Rows<'_>) {
        let why = if self.capacity(Tier::Fast).is_some() {
            "1/64 of fast_capacity (1/128 where hot records fill it, from 32 MiB on), so that it holds some 50 tables; four memtables at most, 16 KiB to 64 MiB"
        } else {
            "four memtables, 2 MiB to 64 MiB"
        };
        rows.size("table_bytes", self.table_bytes, why);
        let why = "16 KiB, or a quarter of a small table";
        rows.size("fast_block_bytes", self.block_size(Tier::Fast) as u64, why);
        if self.is_tiered() {
            rows.size(
                "hot_block_bytes",
                self.hot_block_bytes as u64,
                "4 KiB, or as fast_block_bytes if that is less: a hot record is wanted alone",
            );
            rows.size("slow_block_bytes", self.block_size(Tier::Slow) as u64, why);
        }
        rows.add(
            "restart_interval",
            format!("{} entries", self.restart_interval),
            "between restarts in a block",
        );
        let why = match self.profile {
            Profile::Reads => "14 for profile reads: about 1 useless read in 800",
            _ => "10: about 1 useless read in 100",
        };
        rows.add("filter_bits_per_key", format!("{} bits", self.filter_bits_per_key), why);
        let io = match self.table_io {
            IoMode::Direct => "direct",
            IoMode::Buffered => "buffered",
        };
        rows.add("table_io", io, "direct keeps tables out of the page cache; buffered where it is refused");
        let checked = if self.verify_new_tables { "yes" } else { "no" };
        rows.add("verify_new_tables", checked, "read back and check tables before they are installed");
    }

    fn explain_pace(&self, rows: &mut Rows<'_>) {
        let runs = |count: usize| format!("{count} runs");
        rows.add("level0_compact_at", runs(self.level0_compact_at), "level 0 is merged down");
        rows.add("level0_delay_at", runs(self.level0_delay_at), "writes are delayed");
        rows.add("level0_stop_at", runs(self.level0_stop_at), "writes stop");
        rows.size(
            "debt_delay_bytes",
            self.debt_delay_bytes,
            "256 memtables awaiting compaction delay writes",
        );
        rows.size("debt_stop_bytes", self.debt_stop_bytes, "four times debt_delay_bytes stop writes");
        rows.add(
            "compactions_max",
            self.compactions_max.to_string(),
            "compactions and parts of one at once: 4 with a slow tier and 30 MiB of memory, else 2",
        );
        rows.add("flushes_max", self.flushes_max.to_string(), "flushes at once");
        rows.add("read_threads", self.read_threads.to_string(), "reads of one multi_get at once");
        if self.is_tiered() {
            let why = "an operation that takes longer counts as the slow tier being away";
            let none = self.slow_deadline == Duration::MAX;
            let value =
                if none { "none".to_owned() } else { format!("{} ms", self.slow_deadline.as_millis()) };
            rows.add("slow_deadline", value, why);
        }
        let seed = self.seed.map_or_else(|| "the environment's".to_owned(), |seed| seed.to_string());
        rows.add("seed", seed, "of everything random");
    }
}
