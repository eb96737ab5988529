//! Tests of the options: defaults for every size, refusals by name, and the explanation.

use kelvin_base::ErrorKind;
use kelvin_base::Tier;

use super::*;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

fn tiered(fast_capacity: u64) -> Options {
    Options::new("/fast").slow("/slow").fast_capacity(fast_capacity)
}

fn refusal(options: &Options) -> String {
    let error = options.derive().expect_err("must be refused");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    error.to_string()
}

#[test]
fn every_size_of_store_gets_a_sound_shape_without_help() {
    for capacity in [MIB, 3 * MIB, 10 * MIB, 100 << 20, 100_000_000, GIB, 10 * GIB, TIB, 100 * TIB] {
        for memory in [MIB, 8 * MIB, 256 * MIB, 16 * GIB] {
            for profile in Profile::ALL {
                let config = tiered(capacity).memory(memory).profile(profile).derive().unwrap();
                let context = format!("{capacity} {memory} {profile:?}");
                let levels = config.fast_levels_bytes.unwrap();
                assert!(levels >= capacity / 2, "half of the fast tier is for data: {context}");
                assert!(capacity / config.table_bytes >= 50, "some 50 tables: {context}");
                let level0 = config.memtable_bytes * config.level0_stop_at as u64;
                assert!(level0 <= levels / 2, "a full level 0 leaves room below: {context}");
                assert!(config.memtable_budget_bytes <= memory / 2, "{context}");
                assert!(config.block_size(Tier::Fast) as u64 <= config.table_bytes / 4, "{context}");
                let readers = config.compaction_readahead_bytes * config.compactions_max * 6;
                assert!(readers as u64 <= memory / 2, "{context}");
            }
        }
    }
}

#[test]
fn the_standard_small_benchmark_keeps_five_sixths_of_the_fast_tier_for_data() {
    let config = tiered(100 * MIB).derive().unwrap();
    assert_eq!(config.memtable_bytes, 100 * MIB / 192);
    assert_eq!((config.table_bytes, config.slow_table_bytes), (100 * MIB / 128, 100 * MIB / 64));
    assert!(config.fast_levels_bytes.unwrap() > 100 * MIB / 6 * 5);
    let mut untracked = tiered(100 * MIB);
    untracked.advanced.hotness = Some(Hotness::Off);
    let config = untracked.derive().unwrap();
    assert_eq!((config.memtable_bytes, config.table_bytes), (100 * MIB / 64, 100 * MIB / 64));
    assert!(config.fast_levels_bytes.unwrap() > 75 * MIB);
}

/// What the parts of a store may come to at worst, with the least that the block cache and open tables are left.
fn worst_bytes(config: &Config) -> u64 {
    let jobs = (config.compactions_max + config.flushes_max) as u64;
    let job = 2 * config.write_buffer_bytes + 8 * config.compaction_readahead_bytes;
    config.process_bytes
        + config.memtable_budget_bytes
        + 2 * config.promotion_bytes_max
        + config.hotness_memory_bytes
        + config.scans_bytes
        + jobs * job as u64
        + config.cache_bytes_min
        + config.pinned_bytes_min
}

#[test]
fn what_all_parts_take_at_worst_fits_into_the_memory_however_small_it_is() {
    for mib in [16, 20, 24, 28, 32, 40, 48, 64, 128, 256, 4096] {
        for profile in Profile::ALL {
            for options in [tiered(100_000_000), tiered(TIB), Options::new("/fast")] {
                let config = options.memory(mib * MIB).profile(profile).derive().unwrap();
                let worst = worst_bytes(&config);
                assert!(worst <= mib * MIB, "{mib} MiB {profile:?}: {worst}");
            }
        }
    }
}

#[test]
fn a_small_memory_goes_to_indexes_and_filters_before_write_buffers_and_read_ahead() {
    let mut before = 0;
    for (mib, least) in [(16, 3100), (24, 6400), (32, 12_000), (48, 25_000), (64, 39_000)] {
        let config = tiered(100_000_000).memory(mib * MIB).derive().unwrap();
        // In a store that is read: a memtable that may fill, a promotion cache, RALT, the least cache.
        let taken = config.process_bytes
            + config.memtable_bytes
            + config.promotion_bytes_max
            + config.hotness_memory_bytes
            + config.cache_bytes_min;
        let left_kib = (config.memory_bytes - taken) / 1024;
        assert!(left_kib >= least, "{mib} MiB leave {left_kib} KiB to open tables");
        let ahead = config.compaction_readahead_bytes as u64 * config.compactions_max as u64;
        assert!(ahead >= before && config.compaction_readahead_bytes >= 32 << 10, "{mib} MiB");
        before = ahead;
    }
    let small = tiered(100_000_000).memory(16 * MIB).derive().unwrap();
    let large = tiered(200_000_000).memory(64 * MIB).derive().unwrap();
    assert!(small.memtable_bytes < large.memtable_bytes / 2 && small.compactions_max < large.compactions_max);
}

#[test]
fn deriving_twice_gives_the_same_figures() {
    let options = tiered(GIB).memory(64 * MIB);
    assert_eq!(options.derive().unwrap(), options.derive().unwrap());
}

#[test]
fn a_refusal_names_the_option_what_was_given_what_is_allowed_and_what_to_do() {
    assert_eq!(
        refusal(&tiered(1000)),
        "invalid argument: option fast_capacity cannot be 1000 B (1000 bytes): allowed is 1 MiB to 1 EiB; \
         capacities are in bytes; leave it out for no limit"
    );
}

#[test]
fn absurd_options_are_refused_by_name() {
    let plain = || Options::new("/fast");
    let cases: Vec<(&str, Options)> = vec![
        ("dir ", Options::new("")),
        ("slow_dir", tiered(GIB).slow("")),
        ("slow_dir", tiered(GIB).slow("/fast")),
        ("slow_dir", tiered(GIB).slow("/fast/./x/..")),
        ("slow_dir", tiered(GIB).slow("/fast/slow")),
        ("slow_dir", Options::new("/slow/fast").slow("/slow").fast_capacity(GIB)),
        ("fast_capacity", plain().slow("/slow")),
        ("fast_capacity", plain().fast_capacity(0)),
        ("fast_capacity", plain().fast_capacity(u64::MAX)),
        ("slow_capacity", plain().slow_capacity(GIB)),
        ("slow_capacity", tiered(GIB).slow_capacity(1)),
        ("memory", plain().memory(0)),
        ("memory", plain().memory(u64::MAX)),
        ("level_ratio", plain().advanced(|a| a.level_ratio = 1)),
        ("levels_max", tiered(GIB).advanced(|a| a.levels_max = 2)),
        ("levels_max", plain().advanced(|a| a.levels_max = 1000)),
        ("restart_interval", plain().advanced(|a| a.restart_interval = 0)),
        ("filter_bits_per_key", plain().advanced(|a| a.filter_bits_per_key = Some(1000))),
        ("fast_block_bytes", plain().advanced(|a| a.fast_block_bytes = Some(0))),
        ("hot_block_bytes", plain().advanced(|a| a.hot_block_bytes = Some(100))),
        ("slow_block_bytes", plain().advanced(|a| a.slow_block_bytes = Some(usize::MAX))),
        ("memtable_bytes", plain().advanced(|a| a.memtable_bytes = Some(1))),
        ("memtable_bytes", plain().advanced(|a| a.memtable_bytes = Some(GIB))),
        ("memtables_max", plain().advanced(|a| a.memtables_max = Some(1))),
        ("table_bytes", plain().advanced(|a| a.table_bytes = Some(u64::MAX))),
        ("fast_capacity", tiered(GIB).advanced(|a| a.table_bytes = Some(GIB))),
        ("level0_compact_at", plain().advanced(|a| a.level0_compact_at = Some(0))),
        ("level0_delay_at", plain().advanced(|a| a.level0_delay_at = Some(1))),
        ("level0_stop_at", plain().advanced(|a| a.level0_stop_at = Some(5))),
        ("debt_stop_bytes", plain().advanced(|a| a.debt_stop_bytes = Some(MIB))),
        ("compactions_max", plain().advanced(|a| a.compactions_max = Some(0))),
        ("flushes_max", plain().advanced(|a| a.flushes_max = 0)),
        ("read_threads", plain().advanced(|a| a.read_threads = usize::MAX)),
        ("wal_bytes_max", plain().advanced(|a| a.wal_bytes_max = Some(8 << 10))),
        ("manifest_bytes_max", plain().advanced(|a| a.manifest_bytes_max = Some(0))),
        ("slow_deadline", plain().advanced(|a| a.slow_deadline = std::time::Duration::ZERO)),
        ("scan_readahead_bytes", plain().advanced(|a| a.scan_readahead_bytes = Some(1))),
    ];
    for (name, options) in cases {
        let text = refusal(&options);
        assert!(text.contains(&format!("option {}", name.trim_end())), "{name}: {text}");
        assert!(text.contains("; "), "says what to do: {text}");
    }
}

#[test]
fn hotness_follows_from_the_tiers_and_makes_no_sense_with_one() {
    let hotness = |options: Options| options.derive().unwrap().hotness;
    assert_eq!(hotness(tiered(GIB)), Hotness::Ralt);
    assert_eq!(hotness(Options::new("/fast")), Hotness::Off);
    for kind in Hotness::ALL {
        assert_eq!(kind.to_string().to_uppercase().parse::<Hotness>().unwrap(), kind);
        let by_hand = |options: Options| options.advanced(|a| a.hotness = Some(kind));
        let config = by_hand(tiered(GIB)).derive().unwrap();
        assert_eq!((config.hotness, config.hotness_memory_bytes > 0), (kind, kind.is_on_disk()));
        let single = by_hand(Options::new("/fast"));
        if kind == Hotness::Off {
            assert_eq!(hotness(single), Hotness::Off);
        } else {
            let text = refusal(&single);
            assert!(text.contains(&format!("option hotness cannot be {kind} without slow_dir")), "{text}");
        }
    }
    assert!("warm".parse::<Hotness>().unwrap_err().to_string().contains("ralt, lru, clock, oracle, off"));
}

#[test]
fn neighbouring_directories_with_a_common_beginning_are_not_nested() {
    assert!(tiered(GIB).slow("/fast2").derive().is_ok());
}

#[test]
fn a_hot_set_of_fixed_size_is_said_and_must_fit_the_fast_tier() {
    let fixed = |bytes: u64| tiered(GIB).advanced(|a| a.hot_set_bytes = Some(bytes));
    let config = fixed(MIB).derive().unwrap();
    assert_eq!(config.hot_set_bytes, Some(MIB));
    assert!(config.explain().iter().any(|row| row.name == "hot_set_bytes" && row.value == "1 MiB"));
    assert!(fixed(2 * GIB).derive().unwrap_err().to_string().contains("hot_set_bytes"));
}

#[test]
fn what_is_set_by_hand_is_used_and_said_so() {
    let config = Options::new("/fast").advanced(|a| a.memtable_bytes = Some(MIB)).derive().unwrap();
    assert_eq!(config.memtable_bytes, MIB);
    let rows = config.explain();
    let row = rows.iter().find(|row| row.name == "memtable_bytes").unwrap();
    assert_eq!((row.value.as_str(), row.why.as_str()), ("1 MiB", "set by hand"));
    assert!(rows.iter().all(|row| !row.value.is_empty() && !row.why.is_empty()));
}

#[test]
fn the_explanation_has_a_row_for_every_figure_once() {
    let rows = tiered(GIB).derive().unwrap().explain();
    let mut names: Vec<_> = rows.iter().map(|row| row.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), rows.len());
    for name in [
        "hotness",
        "hotness_memory_bytes",
        "fast_capacity",
        "slow_capacity",
        "memory",
        "fast_reserve_bytes",
        "level1_bytes",
        "slow_deadline",
    ] {
        assert!(names.contains(&name), "{name}");
    }
}

#[test]
fn young_levels_stay_plain_and_each_tier_gets_its_codec() {
    let config = tiered(GIB).compression(CompressionChoice::ByTier).derive().unwrap();
    assert_eq!(config.compression_at(0, Tier::Fast), CompressionChoice::None);
    assert_eq!(config.compression_at(2, Tier::Fast), CompressionChoice::Lz4);
    assert_eq!(config.compression_at(3, Tier::Slow), CompressionChoice::Zstd);
    let config = tiered(GIB).compression(CompressionChoice::None).derive().unwrap();
    assert_eq!(config.compression_at(3, Tier::Slow), CompressionChoice::None);
}

#[test]
fn the_systems_world_has_as_many_threads_as_configured() {
    let config = Options::new("/fast")
        .advanced(|a| (a.compactions_max, a.seed) = (Some(3), Some(7)))
        .derive()
        .unwrap();
    let env = Env::system(&config).unwrap();
    assert_eq!(env.executor.width(kelvin_base::Lane::Compaction), 3);
    assert_eq!(env.seed, 7);
}
