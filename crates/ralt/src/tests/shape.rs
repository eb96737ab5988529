//! How large RALT is, what leaves it, and what keeping it in shape takes.

use std::collections::BTreeSet;

use kelvin_base::hash64;

use super::*;
use crate::compact::{STEP_RUNS, Step};
use crate::core::Fate;
use crate::limits::{Bounds, Limits};
use crate::version::Placed;

#[test]
fn a_hotspot_that_leaves_little_room_gives_way_soon_when_another_comes() {
    // Of the 1,400 records that may be hot: half of the room for unstable ones is never free. With 1,250 of them, stable ones fill more than nine tenths as
    // soon as some of the new ones are.
    for count in [1_200, 1_250] {
        let bounds = Bounds { unstable_bytes_max: 700_000, ..Bounds::of_fast(2_000_000) };
        let ralt = Ralt::open(env(&memory()), Options { bounds, ..small(2_000_000) });
        let hot = |from: u64| (from..from + count).filter(|&number| ralt.is_hot(&key(number))).count();
        drive(&ralt, 40_000, hotspot(1, 3_000, count));
        assert!(hot(3_000) > 1_150, "{} of {count} stay hot", hot(3_000));
        // Counters alone are lowered once each 2,000 accesses, and are at 4 or 5.
        drive(&ralt, 6_000, hotspot(2, 15_000, count));
        assert!(hot(3_000) < 300, "{} of {count} before are still hot", hot(3_000));
        assert!(hot(15_000) > 1_000, "{} of {count} now are hot", hot(15_000));
    }
}

#[test]
fn an_eviction_keeps_what_was_read_of_late_as_long_as_there_is_room() {
    let bounds = Bounds { unstable_bytes_max: 700_000, ..Bounds::of_fast(2_000_000) };
    let ralt = Ralt::open(env(&memory()), Options { bounds, ..small(2_000_000) });
    let mut keys = 0..800;
    drive(&ralt, 800, || keys.next().unwrap());
    assert_eq!(ralt.stats().evictions, 0);
    ralt.0.evict(&mut ralt.0.work.lock()).unwrap();
    let known = |numbers: Range<u64>| numbers.filter(|&number| ralt.is_hot(&key(number))).count();
    // Nothing is stable, and half of nine tenths of 700 kB is for what was read last.
    let [first, last] = [known(0..400), known(600..800)];
    assert!(first < 40 && last > 190, "{first} of the first 400, {last} of the last 200");
}

#[test]
fn a_limit_that_is_fixed_holds_for_what_was_kept_under_another() {
    let storage = memory();
    let ralt = Ralt::open(env(&storage), small(2_000_000));
    for _ in 0..3 {
        let mut keys = 0..300;
        drive(&ralt, 300, || keys.next().unwrap());
    }
    ralt.close();
    drop(ralt);
    let ralt = Ralt::open(env(&storage), small(2_000_000).with_fixed_hot_set(300_000));
    assert_eq!(ralt.stats().hot_set_limit_bytes, 300_000);
    assert!(ralt.stats().records > 0, "the records are those of before");
    for _ in 0..4 {
        let mut keys = 0..4_000;
        drive(&ralt, 4_000, || keys.next().unwrap());
    }
    ralt.0.evict(&mut ralt.0.work.lock()).unwrap();
    let stats = ralt.stats();
    assert!(stats.hot_set_bytes <= 300_000 && stats.hot_set_limit_bytes == 300_000, "{stats:?}");
}

#[test]
fn with_fixed_limits_an_eviction_frees_a_tenth_and_keeps_the_highest_scores() {
    let options = Options { has_auto_tuning: false, ..small(2_000_000) };
    let ralt = Ralt::open(env(&memory()), options);
    // Key n is accessed in n / 100 of the 40 rounds: the higher, the hotter.
    for round in 0..40 {
        let mut keys = round * 100..4_000;
        drive(&ralt, 4_000 - round * 100, || keys.next().unwrap());
    }
    // Since the last one keys may have become hot whose records have not met yet.
    ralt.0.evict(&mut ralt.0.work.lock()).unwrap();
    let stats = ralt.stats();
    assert!(stats.evictions > 1 && stats.hot_set_limit_bytes == 1_000_000, "{stats:?}");
    assert!(stats.hot_set_bytes <= 1_000_000);
    let hot = |numbers: Range<u64>| numbers.filter(|&number| ralt.is_hot(&key(number))).count();
    assert!(hot(3_500..4_000) > 490 && hot(0..2_000) < 400, "{} {}", hot(3_500..4_000), hot(0..2_000));
}

#[test]
fn under_uniform_access_little_is_hot() {
    let ralt = Ralt::open(env(&memory()), small(2_000_000));
    let mut dice = Dice(9);
    drive(&ralt, 80_000, || dice.below(20_000));
    let stats = ralt.stats();
    assert!(stats.evictions > 5);
    assert!(stats.hot_set_limit_bytes <= 700_000, "{stats:?}");
    let hot = (0..20_000).filter(|&number| ralt.is_hot(&key(number))).count();
    assert!(hot < 900, "{hot} of 20,000 are hot");
}

#[test]
fn a_disk_too_full_for_accesses_does_not_keep_it_from_evicting() {
    let disk = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let in_one_slice = |fast_bytes: u64| Options { slice_bytes: 1 << 30, ..small(fast_bytes) };
    let ralt = Ralt::open(env(&storage), in_one_slice(1 << 30));
    let mut numbers = 0..3_000;
    drive(&ralt, 3_000, || numbers.next().unwrap());
    ralt.close();
    drop(ralt);
    // Room for the little that may stay, and not for what comes.
    disk.set_capacity(disk.used_bytes() + (8 << 10));
    let first = Limits { hot_bytes: 20_000, physical_bytes: 2_000 };
    let ralt =
        Ralt::open(env(&storage), Options { first, has_auto_tuning: false, ..in_one_slice(2_000_000) });
    assert!(ralt.stats().physical_bytes > 100_000, "{:?}", ralt.stats());
    (5_000..5_600).for_each(|number| ralt.access(&key(number), 986));
    ralt.settle();
    let stats = ralt.stats();
    assert!(stats.last_error.unwrap().contains("no space"));
    assert_eq!(stats.evictions, 1);
    assert!(stats.physical_bytes <= first.physical_bytes, "{}", stats.physical_bytes);
    (6_000..6_600).for_each(|number| ralt.access(&key(number), 986));
    ralt.settle();
    assert!(ralt.stats().evictions > 1, "there is room for accesses again, and what they are too many of");
}

#[test]
fn a_key_that_lies_in_many_runs_counts_once() {
    let ralt = Ralt::open(env(&memory()), Options { repeats_bytes: 0, ..small(2_000_000) });
    let mut dice = Dice(4);
    // Two runs of level 0 at the end.
    drive(&ralt, 20_800, || dice.below(300));
    let (stats, exact) = (ralt.stats(), 300 * 1_001);
    assert!(
        stats.records > 500 && stats.evictions == 0,
        "several runs hold the same keys: {}",
        stats.records
    );
    for found in [stats.hot_set_bytes, ralt.hot_size(KeyRange::ALL)] {
        assert!(found.abs_diff(exact) < exact / 50, "{found} of {exact}");
    }
}

#[test]
fn level_0_waits_for_more_beside_a_large_level_1_as_long_as_there_is_room() {
    let disk = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let options = Options { level_ratio: 10, level0_runs_max: 18, ..small(1 << 30) };
    let ralt = Ralt::open(env(&storage), options.clone());
    let mut numbers = 0..42_000;
    drive(&ralt, 42_000, || numbers.next().unwrap());
    let mut dice = Dice(3);
    let mut wide = || {
        let before = ralt.stats();
        drive(&ralt, 36 * 200, || dice.below(42_000));
        let after = ralt.stats();
        assert!(after.last_error.is_none(), "{after:?}");
        (after.compactions - before.compactions, after.written_bytes - before.written_bytes)
    };
    let (with_room, with_bytes) = wide();
    assert_eq!(with_room, 2, "18 runs at a time");
    // Until level 0 has just been merged.
    let merges = ralt.stats().compactions;
    while ralt.stats().compactions == merges {
        drive(&ralt, 200, || 0);
    }
    // Keys before all others, so many that one step cannot take them all.
    for number in 0..17 {
        (0..420).for_each(|at| ralt.access(format!("first{number:04}{at:04}").as_bytes(), 10));
        ralt.settle();
    }
    let before = ralt.stats();
    assert!(before.runs[0] >= 17 && 17 * 420 * 25 > options.written_in_step(), "{before:?}");
    disk.set_capacity(disk.used_bytes() + options.step_bytes());
    let (without_room, without_bytes) = wide();
    assert!(without_room >= 5 && without_bytes > 2 * with_bytes, "{without_room} {without_bytes}");
}

#[test]
fn level_0_goes_down_in_the_room_of_a_step_and_rewrites_no_more_than_lies_under_it() {
    let disk = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let options = Options { level_ratio: 10, repeats_bytes: 0, ..small(1 << 30) };
    let ralt = Ralt::open(env(&storage), options.clone());
    // Flushes of 200 accesses: each time six of them are merged, and none is left over.
    let mut numbers = 0..42_000;
    drive(&ralt, 42_000, || numbers.next().unwrap());
    let before = ralt.stats();
    assert!(before.runs[1] > 10 * STEP_RUNS && before.evictions == 0, "{before:?}");
    disk.set_capacity(disk.used_bytes() + options.step_bytes());
    let mut dice = Dice(3);
    drive(&ralt, 12_000, || dice.below(42_000));
    let wide = ralt.stats();
    assert!(wide.compactions >= before.compactions + 10 && wide.last_error.is_none(), "{wide:?}");
    assert!(wide.runs[0] < options.level0_runs && wide.records < 44_000, "{wide:?}");
    // Some hundred keys that are neighbours.
    let mut sorted: Vec<u64> = (0..42_000).collect();
    sorted.sort_by_key(|&number| key(number));
    drive(&ralt, 12_000, || sorted[usize::try_from(dice.below(300)).unwrap()]);
    let narrow = ralt.stats();
    let [wide_bytes, narrow_bytes] =
        [wide.written_bytes - before.written_bytes, narrow.written_bytes - wide.written_bytes];
    assert!(narrow.compactions >= wide.compactions + 10, "{narrow:?}");
    assert!(narrow_bytes < wide_bytes / 20, "{narrow_bytes} of {wide_bytes}");
    // And keys before all others.
    for _ in 0..2 * options.level0_runs {
        (0..200).for_each(|number| ralt.access(format!("first{number}").as_bytes(), 10));
        ralt.settle();
    }
    let before_all = ralt.stats();
    assert!(before_all.compactions >= narrow.compactions + 2, "{before_all:?}");
    assert!(before_all.written_bytes - narrow.written_bytes < narrow_bytes, "{before_all:?}");
}

#[test]
fn what_its_runs_pin_is_told_and_has_a_limit() {
    let (storage, told) = (memory(), Arc::new(std::sync::atomic::AtomicU64::new(0)));
    let listener = Arc::clone(&told);
    let listener = move |bytes| listener.store(bytes, std::sync::atomic::Ordering::Relaxed);
    let env = Env { memory: Some(Arc::new(listener)), ..env(&storage) };
    let pinned_bytes_max = 20_000;
    let ralt = Ralt::open(env, Options { pinned_bytes_max, ..small(1 << 30) });
    let mut highest = 0;
    for round in 0..50 {
        // Twice each: what is accessed again is stable, and stays as long as there is room.
        let mut numbers = (500 * round..500 * round + 1_000).chain(500 * round..500 * round + 1_000);
        drive(&ralt, 2_000, || numbers.next().unwrap());
        let stats = ralt.stats();
        assert_eq!(told.load(std::sync::atomic::Ordering::Relaxed), stats.memory_bytes);
        highest = highest.max(ralt.0.version.load().memory_bytes() as u64);
    }
    let stats = ralt.stats();
    assert!((10..80).contains(&stats.evictions), "{} in {} flushes", stats.evictions, stats.flushes);
    assert!(highest <= pinned_bytes_max && highest > pinned_bytes_max / 2, "{highest}");
}

#[test]
fn of_a_level_that_is_full_one_run_goes_down_at_a_time_and_each_in_its_turn() {
    let storage = memory();
    let ralt = Ralt::open(env(&storage), deep(1 << 30));
    let (mut ends, mut most_bytes) = (Vec::new(), 0);
    for round in 0..30 {
        let (before, mut numbers) = (ralt.stats(), 200 * round..200 * (round + 1));
        drive(&ralt, 200, || numbers.next().unwrap());
        let after = ralt.stats();
        let steps = after.compactions - before.compactions;
        most_bytes = most_bytes.max((after.written_bytes - before.written_bytes) / (steps + 1));
        ends.push(ralt.0.work.lock().compacted_to[1].clone());
    }
    let version = ralt.0.version.load_full();
    assert!(version.deepest() >= 3, "{:?}", ralt.stats());
    let options = deep(1 << 30);
    for (level, runs) in version.levels.iter().enumerate().skip(1) {
        let bytes_max = options.level0_bytes() << level;
        assert!(version.level_bytes(level) <= bytes_max, "level {level}: {}", version.level_bytes(level));
        assert!(runs.windows(2).all(|pair| pair[0].run.last() < pair[1].first()), "level {level}");
    }
    // A run and what lies under it, which is a few runs; the whole of what is known is some forty.
    assert!(most_bytes < 8 * options.run_bytes, "{most_bytes} bytes a step");
    assert!(version.placed().count() > 30);
    let places: Vec<&[u8]> = ends.iter().map(Vec::as_slice).filter(|end| !end.is_empty()).collect();
    assert!(places.iter().any(|end| *end < &b"user3"[..]) && places.iter().any(|end| *end > &b"user7"[..]));
    let (stats, all) = (ralt.stats(), 0..6_000);
    assert_eq!((stats.records, stats.lost, stats.evictions, stats.last_error), (6_000, 0, 0, None));
    assert!(all.clone().all(|number| ralt.is_hot(&key(number))));
    assert_eq!(files(&*storage), version.placed().count());
    drop(version);
    ralt.close();
    drop(ralt);
    let ralt = Ralt::open(env(&storage), deep(1 << 30));
    assert_eq!((ralt.stats().runs, ralt.stats().records), (stats.runs, 6_000));
    ralt.0.evict(&mut ralt.0.work.lock()).unwrap();
    assert_eq!(hot_keys(&ralt, KeyRange::ALL).len(), 6_000, "there is room for all of them");
    let version = ralt.0.version.load_full();
    assert_eq!(
        version.levels[version.deepest()].len(),
        version.placed().count(),
        "and they lie in one level"
    );
}

#[test]
fn a_run_that_a_step_has_cut_stands_where_its_other_keys_are() {
    let storage = memory();
    let ralt = Ralt::open(env(&storage), deep(1 << 30));
    let mut numbers = 0..4_000;
    drive(&ralt, 4_000, || numbers.next().unwrap());
    // What an eviction that a close ends leaves behind: a step into the deepest level, in the middle of runs of those above.
    let end = {
        let mut work = ralt.0.work.lock();
        let (into, begun) = (ralt.0.version.load().deepest(), work.next_number);
        assert!(into > 2, "{:?}", ralt.stats());
        let step = Step { into, begun, from: &[], last: None };
        ralt.0.merge_step(&mut work, &step, &|_, _| Fate::Keep { is_hot: true }).unwrap().unwrap()
    };
    let mut cut = 0;
    let mut known: BTreeSet<Vec<u8>> = (0..4_000).map(key).collect();
    // Keys before the cut ones, which come down beside what is left of their run.
    let mut before: Vec<Vec<u8>> = (4_000..60_000).map(key).filter(|key| *key < end).collect();
    before.sort_unstable_by_key(|key| hash64(key));
    for some in before.chunks(100) {
        some.iter().for_each(|key| ralt.access(key, 986));
        known.extend(some.iter().cloned());
        ralt.settle();
        let version = ralt.0.version.load_full();
        let is_before = |pair: &[Placed]| pair[0].run.last() < pair[1].first();
        let is_beside = |pair: &[Placed]| pair[0].run.last() >= pair[1].run.first();
        let mut pairs = version.levels[1..].iter().flat_map(|runs| runs.windows(2));
        assert!(pairs.clone().all(is_before), "{:?}", ralt.stats());
        if pairs.any(is_beside) {
            cut += 1;
            let again = Ralt::open(env(&copy_of(&*storage)), deep(1 << 30));
            assert_eq!((again.stats().resets, again.stats().runs), (0, ralt.stats().runs));
        }
    }
    assert!(cut > 0, "no run came to lie beside the rest of one: {:?}", ralt.stats());
    assert!(hot_keys(&ralt, KeyRange::ALL).iter().eq(&known));
    assert!(known.iter().all(|key| ralt.is_hot(key)));
    let stats = ralt.stats();
    assert_eq!((stats.lost, stats.last_error), (0, None));
}
