//! RALT as a whole: against an exact model, under skew, over restarts, with damage and failing devices.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::path::Path;
use std::sync::Arc;

use kelvin_base::{Executor, HotTracker, KeyRange, Lane, ManualExecutor, ThreadPool};
use kelvin_storage::fault::FaultStorage;
use kelvin_storage::memory::MemoryStorage;
use kelvin_storage::{AlignedBuf, Create, IoMode, Storage};

use crate::record::Record;
use crate::score::Now;
use crate::{Env, Options, Ralt, Scoring};

mod failing;
mod shape;

const DIR: &str = "/ralt";
const OWNER: [u8; 16] = *b"the tests' store";
const SCORINGS: [Scoring; 4] = [
    Scoring::Exponential { alpha: 0.999 },
    Scoring::Lru,
    Scoring::Clock { max: 3 },
    Scoring::Clock { max: 7 },
];

fn env(storage: &Arc<dyn Storage>) -> Env {
    let executor: Arc<dyn Executor> = Arc::new(ManualExecutor::new());
    Env {
        storage: Arc::clone(storage),
        dir: DIR.into(),
        io: IoMode::Buffered,
        executor,
        lane: Lane::Tracking,
        memory: None,
        evicted: None,
    }
}

fn memory() -> Arc<dyn Storage> {
    Arc::new(MemoryStorage::new())
}

/// A RALT small enough for every mechanism to run within some thousand accesses.
fn small(fast_bytes: u64) -> Options {
    let options = Options::of_fast(fast_bytes, OWNER);
    let level0_runs_max = options.level0_runs;
    Options { buffer_bytes: 32 << 10, run_bytes: 16 << 10, level_ratio: 4, level0_runs_max, ..options }
}

/// One whose levels are so small that some thousand keys lie in four of them.
fn deep(fast_bytes: u64) -> Options {
    let (buffer_bytes, run_bytes) = (8 << 10, 4 << 10);
    Options {
        buffer_bytes,
        run_bytes,
        level_ratio: 2,
        level0_runs: 1,
        level0_runs_max: 1,
        repeats_bytes: 0,
        ..small(fast_bytes)
    }
}

fn key(number: u64) -> Vec<u8> {
    // Spread, so that neighbours in number are none in order.
    format!("user{:010}", number.wrapping_mul(0x9e37_79b9) % 10_000_000_000).into_bytes()
}

/// Small pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn hot_keys(ralt: &Ralt, range: KeyRange<'_>) -> Vec<Vec<u8>> {
    let mut found = ralt.hot_keys(range);
    std::iter::from_fn(|| found.next().map(<[u8]>::to_vec)).collect()
}

fn files(storage: &dyn Storage) -> usize {
    storage
        .list(Path::new(DIR))
        .unwrap()
        .iter()
        .filter(|name| name.to_string_lossy().ends_with(".ralt"))
        .count()
}

#[test]
fn without_eviction_the_runs_hold_exactly_what_was_accessed() {
    let exponential = Scoring::Exponential { alpha: 0.9 };
    // Deep levels merge what is newer first, and where two records of a key both have one slice smoothing counts it twice then.
    let [wide, deep] = [small(1 << 30), deep(1 << 30)];
    let counting = [Scoring::Lru, Scoring::Clock { max: 7 }];
    let both = counting.into_iter().flat_map(|one| [(one, &wide), (one, &deep)]);
    for (scoring, shape) in both.chain([(exponential, &wide)]) {
        let storage = memory();
        let options = Options { scoring, slice_bytes: 50_000, repeats_bytes: 0, ..shape.clone() };
        let ralt = Ralt::open(env(&storage), options.clone());
        let (mut dice, mut model, mut accessed) = (Dice(5), BTreeMap::<Vec<u8>, Record>::new(), 0u64);
        let mut now = Now::default();
        for round in 0..60u64 {
            let keys: Vec<Vec<u8>> = (0..200).map(|_| key(dice.below(1500))).collect();
            keys.iter().for_each(|key| ralt.access(key, 100));
            ralt.settle();
            accessed += keys.iter().map(|key| key.len() as u64 + 100).sum::<u64>();
            now = Now {
                accesses: 200 * (round + 1),
                slice: u32::try_from(accessed / 50_000).unwrap(),
                ..Now::default()
            };
            for key in keys {
                let newer = Record::accessed(100, scoring, now, 0);
                let merged = model.get(&key).map_or(newer, |older| Record::merge(scoring, older, &newer));
                model.insert(key, merged);
            }
        }
        let stats = ralt.stats();
        assert_eq!((stats.accesses, stats.lost, stats.evictions, stats.resets), (12_000, 0, 0, 0));
        assert!(stats.compactions > 5 && stats.runs.iter().skip(1).sum::<usize>() > 1, "{stats:?}");
        let version = ralt.0.version.load_full();
        assert_eq!(version.deepest() > 1, options.level_ratio == 2, "{stats:?}");
        let all = version.placed().cloned().collect();
        let mut merged = crate::merge::Merged::new(all, KeyRange::ALL, scoring, true).unwrap();
        for (key, want) in &model {
            let (found, record) = merged.next().unwrap().unwrap();
            assert_eq!(
                (found, record.counter, record.is_tagged),
                (key.as_slice(), want.counter, want.is_tagged)
            );
            let scores = [record, *want].map(|one| scoring.score(one.stamp, now));
            assert!((scores[0] - scores[1]).abs() < 1e-6, "{scores:?}");
        }
        assert!(merged.next().unwrap().is_none());
        assert_eq!(hot_keys(&ralt, KeyRange::ALL), model.keys().cloned().collect::<Vec<_>>());
        let part = KeyRange { start: b"user2", end: Bound::Excluded(b"user7") };
        let want: Vec<_> = model.keys().filter(|key| part.contains(key)).cloned().collect();
        assert_eq!(hot_keys(&ralt, part), want);
        assert!(model.keys().all(|key| ralt.is_hot(key)));
        let wrong = (0..10_000).filter(|number| ralt.is_hot(format!("nobody{number}").as_bytes())).count();
        assert_eq!(wrong, 0, "keys outside of every run");
        let wrong = (0..10_000).filter(|number| ralt.is_hot(format!("user5{number}x").as_bytes())).count();
        assert!(wrong < 60, "{wrong} of 10,000 wrongly hot");
        assert_eq!(files(&*storage), version.placed().count());
    }
}

#[test]
fn the_hot_size_of_a_range_is_about_that_of_its_hot_keys() {
    let ralt = Ralt::open(env(&memory()), small(1 << 30));
    for number in 0..20_000 {
        ralt.access(&key(number), 186);
        if number % 200 == 199 {
            ralt.settle();
        }
    }
    // A filter's wrong answer makes a key known that is not.
    assert!((19_950 * 200..=20_000 * 200).contains(&ralt.hot_size(KeyRange::ALL)));
    for (start, end) in
        [("user0", "user3"), ("user25", "user75"), ("user9", "user99"), ("a", "user5"), ("x", "y")]
    {
        let range = KeyRange { start: start.as_bytes(), end: Bound::Excluded(end.as_bytes()) };
        let exact = hot_keys(&ralt, range).len() as u64 * 200;
        let found = ralt.hot_size(range);
        assert!(found.abs_diff(exact) < 20_000 * 200 / 20, "{start} to {end}: {exact}, found {found}");
    }
}

/// Accesses `count` keys as `draw` says, settling as a job would.
fn drive(ralt: &Ralt, count: u64, mut draw: impl FnMut() -> u64) {
    for number in 0..count {
        ralt.access(&key(draw()), 986);
        if number % 200 == 199 {
            ralt.settle();
        }
    }
}

/// 95 % of the accesses to `hot` keys from `from` on, the rest to 20,000.
fn hotspot(seed: u64, from: u64, hot: u64) -> impl FnMut() -> u64 {
    let mut dice = Dice(seed);
    move || if dice.below(100) < 95 { from + dice.below(hot) } else { dice.below(20_000) }
}

#[test]
fn under_a_hotspot_the_hot_set_becomes_the_hotspot_and_follows_it() {
    // 20 MB of records, 2 MB of fast disk, a hotspot of 1 MB: what the paper's default workload has.
    let fast_bytes = 2_000_000;
    // Its disk holds what it may take and not a block more: whatever did not fit would be an error.
    let storage: Arc<dyn Storage> =
        Arc::new(MemoryStorage::with_capacity(small(fast_bytes).disk_bytes_max()));
    let told = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let listener = Arc::clone(&told);
    let evicted = move |before, after| listener.lock().push((before, after));
    let ralt = Ralt::open(Env { evicted: Some(Arc::new(evicted)), ..env(&storage) }, small(fast_bytes));
    for (round, from) in [(1, 3_000), (2, 15_000)] {
        drive(&ralt, 60_000, hotspot(round, from, 1_000));
        let stats = ralt.stats();
        let known = (from..from + 1_000).filter(|&number| ralt.is_hot(&key(number))).count();
        assert!(known >= 950, "round {round}: {known} of the 1,000 are hot; {stats:?}");
        let outside = (0..20_000).filter(|number| !(from..from + 1_000).contains(number));
        let wrong = outside.filter(|&number| ralt.is_hot(&key(number))).count();
        assert!(wrong < 500, "round {round}: {wrong} others are hot");
        assert!(stats.evictions > 3 && stats.hot_set_bytes <= stats.hot_set_limit_bytes, "{stats:?}");
        assert!((1_000_000..1_400_000).contains(&stats.hot_set_limit_bytes), "{stats:?}");
        assert_eq!(stats.history.last().unwrap().limits.hot_bytes, stats.hot_set_limit_bytes);
    }
    let (stats, told) = (ralt.stats(), told.lock());
    assert_eq!(told.len() as u64, stats.evictions);
    for (pair, history) in told.windows(2).zip(&stats.history) {
        let ((_, after), (before, _)) = (pair[0], pair[1]);
        assert_eq!(after.hot_set_limit_bytes, history.limits.hot_bytes);
        assert_eq!(before.hot_set_limit_bytes, after.hot_set_limit_bytes, "limits change at evictions only");
        assert!(after.hot_set_bytes <= after.hot_set_limit_bytes);
    }
    assert_eq!(stats.last_error, None);
    assert_eq!(files(&*storage), stats.runs.iter().sum::<usize>());
}

#[test]
fn an_eviction_leaves_what_fits_however_records_are_scored() {
    for scoring in SCORINGS {
        let storage = memory();
        let told = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let listener = Arc::clone(&told);
        let evicted = move |_, after| listener.lock().push(after);
        // The hotspot is a half more than fits, and most of it is counted as far as counters go.
        let options = Options { scoring, ..small(2_000_000).with_fixed_hot_set(1_000_000) };
        let ralt = Ralt::open(Env { evicted: Some(Arc::new(evicted)), ..env(&storage) }, options);
        drive(&ralt, 40_000, hotspot(3, 500, 1_500));
        let told = told.lock();
        assert!(told.len() > 3, "{scoring:?}: {} evictions", told.len());
        for after in told.iter() {
            // A tenth goes; which score that is is found by sampling.
            let kept = 850_000..=1_000_000;
            assert!(kept.contains(&after.hot_set_bytes), "{scoring:?}: {after:?}");
        }
    }
}

#[test]
fn after_a_close_no_job_writes_any_more() {
    let (storage, executor) = (memory(), Arc::new(ManualExecutor::new()));
    let at = || Env { executor: Arc::<ManualExecutor>::clone(&executor), ..env(&storage) };
    let ralt = Ralt::open(at(), small(2_000_000));
    let mut number = 0;
    while executor.queued() == 0 {
        number += 1;
        ralt.access(&key(number), 100);
    }
    ralt.close();
    let listed = || storage.list(Path::new(DIR)).unwrap();
    let before = listed();
    (0..100_000).for_each(|number| ralt.access(&key(number), 100));
    executor.run_all();
    assert_eq!(listed(), before);
    drop(ralt);
    let again = Ralt::open(at(), small(2_000_000));
    assert!(
        (1..=number).all(|number| again.is_hot(&key(number))),
        "what was noted before the close is known"
    );
}

#[test]
fn it_goes_on_after_a_restart_and_starts_anew_for_another_owner_or_another_way_of_scoring() {
    let storage = memory();
    let ralt = Ralt::open(env(&storage), small(2_000_000));
    drive(&ralt, 30_000, hotspot(3, 500, 1_000));
    ralt.close();
    let (hot, before) = (hot_keys(&ralt, KeyRange::ALL), ralt.stats());
    assert!(hot.len() > 900);
    drop(ralt);
    let again = Ralt::open(env(&storage), small(2_000_000));
    let after = again.stats();
    assert_eq!(hot_keys(&again, KeyRange::ALL), hot);
    assert_eq!(
        (after.hot_set_limit_bytes, after.runs, after.records),
        (before.hot_set_limit_bytes, before.runs, before.records)
    );
    assert_eq!((after.resets, after.last_error), (0, None));
    drop(again);
    for (other, why) in [
        (Options { owner: [7; 16], ..small(2_000_000) }, "are of another store"),
        (Options { scoring: Scoring::Lru, ..small(2_000_000) }, "were kept with exponential smoothing"),
    ] {
        let storage = copy_of(&*storage);
        let other = Ralt::open(env(&storage), other);
        assert_eq!((hot_keys(&other, KeyRange::ALL).len(), files(&*storage)), (0, 0));
        let stats = other.stats();
        assert!(stats.resets == 1 && stats.last_error.as_ref().is_some_and(|told| told.ends_with(why)));
        other.access(b"user", 5);
        other.settle();
        assert!(other.is_hot(b"user"));
    }
}

#[test]
fn it_goes_on_with_the_scoring_it_was_kept_with_if_that_is_asked_for() {
    for scoring in SCORINGS {
        let storage = memory();
        let ralt = Ralt::open(env(&storage), Options { scoring, keeps_scoring: true, ..small(2_000_000) });
        assert_eq!(ralt.scoring(), scoring, "there is nothing to go on with");
        drive(&ralt, 3_000, hotspot(3, 500, 1_000));
        ralt.close();
        let hot = hot_keys(&ralt, KeyRange::ALL);
        assert!(!hot.is_empty());
        drop(ralt);
        for asked in SCORINGS {
            let options = Options { scoring: asked, keeps_scoring: true, ..small(2_000_000) };
            let again = Ralt::open(env(&storage), options);
            assert_eq!((again.scoring(), hot_keys(&again, KeyRange::ALL)), (scoring, hot.clone()));
            assert_eq!(again.stats().resets, 0);
        }
    }
}

#[test]
fn keys_that_are_forgotten_are_gone_and_the_others_are_known_as_before() {
    for settled in [0, 150, 900, 30_000] {
        let storage = memory();
        let ralt = Ralt::open(env(&storage), Options { has_auto_tuning: false, ..small(20_000_000) });
        drive(&ralt, settled, hotspot(3, 500, 1_000));
        // These wait in the buffer.
        let mut draw = hotspot(4, 500, 1_000);
        (0..100).for_each(|_| ralt.access(&key(draw()), 986));
        let before = ralt.stats();
        let range = KeyRange { start: b"user3", end: Bound::Excluded(b"user70") };
        ralt.forget(range);
        ralt.settle();
        let known = |ralt: &Ralt| {
            let version = ralt.0.version.load_full();
            let scoring = ralt.scoring();
            let runs = version.placed().cloned().collect();
            let mut merged = crate::merge::Merged::new(runs, KeyRange::ALL, scoring, true).unwrap();
            let mut known = Vec::new();
            while let Some((key, _)) = merged.next().unwrap() {
                known.push(key.to_vec());
            }
            known
        };
        let (mut drawn, mut others) = (hotspot(3, 500, 1_000), hotspot(4, 500, 1_000));
        let accessed: std::collections::BTreeSet<Vec<u8>> =
            (0..settled).map(|_| key(drawn())).chain((0..100).map(|_| key(others()))).collect();
        let expected: Vec<Vec<u8>> = accessed.into_iter().filter(|key| !range.contains(key)).collect();
        assert_eq!(known(&ralt), expected, "after {settled}");
        let after = ralt.stats();
        assert_eq!((before.evictions, after.evictions, after.last_error), (0, 0, None));
        assert!(!expected.iter().any(|key| !ralt.is_hot(key)));
        assert_eq!((ralt.hot_size(range), hot_keys(&ralt, range).len()), (0, 0));
        let exact = expected.iter().map(|key| key.len() as u64 + 986).sum::<u64>();
        assert!(ralt.hot_size(KeyRange::ALL).abs_diff(exact) <= exact / 50, "after {settled}");
        assert_eq!(files(&*storage), after.runs.iter().sum::<usize>());
        ralt.forget(KeyRange::ALL);
        ralt.close();
        drop(ralt);
        let again = Ralt::open(env(&storage), small(20_000_000));
        assert_eq!(known(&again), expected, "what was not forgotten before the close is still there");
        again.forget(KeyRange::ALL);
        again.settle();
        assert_eq!((known(&again).len(), files(&*storage)), (0, 0));
    }
}

fn read(storage: &dyn Storage, path: &Path) -> Vec<u8> {
    let len = usize::try_from(storage.file_len(path).unwrap()).unwrap();
    let mut buf = AlignedBuf::new();
    let range = storage.open(path, IoMode::Buffered).unwrap().read_at(0, len, &mut buf).unwrap();
    buf.as_slice()[range].to_vec()
}

fn write(storage: &dyn Storage, path: &Path, bytes: &[u8]) {
    let _absent = storage.remove(path);
    let mut file = storage.create(path, Create::new(IoMode::Buffered)).unwrap();
    file.append(bytes).unwrap();
    file.flush().unwrap();
}

fn copy_of(storage: &dyn Storage) -> Arc<dyn Storage> {
    let copy = memory();
    copy.create_dir_all(Path::new(DIR)).unwrap();
    for name in storage.list(Path::new(DIR)).unwrap() {
        let path = Path::new(DIR).join(name);
        write(&*copy, &path, &read(storage, &path));
    }
    copy
}

#[test]
fn whatever_lies_in_its_directory_it_opens_and_works() {
    let storage = memory();
    let ralt = Ralt::open(env(&storage), small(2_000_000));
    drive(&ralt, 4_000, hotspot(3, 500, 1_000));
    ralt.close();
    drop(ralt);
    let mut dice = Dice(77);
    for name in storage.list(Path::new(DIR)).unwrap() {
        let path = Path::new(DIR).join(name);
        let good = read(&*storage, &path);
        for round in 0..30 {
            let damaged = copy_of(&*storage);
            let at = usize::try_from(dice.below(good.len() as u64)).unwrap();
            let bad = match round % 3 {
                0 => good[..at].to_vec(),
                1 => (0..good.len()).map(|_| u8::try_from(dice.below(256)).unwrap()).collect(),
                _ => {
                    let mut bad = good.clone();
                    bad[at] ^= 1 << dice.below(8);
                    bad
                }
            };
            write(&*damaged, &path, &bad);
            let ralt = Ralt::open(env(&damaged), small(2_000_000));
            let _found_out_by_a_scan = hot_keys(&ralt, KeyRange::ALL);
            drive(&ralt, 1_000, hotspot(4, 500, 1_000));
            assert!(hot_keys(&ralt, KeyRange::ALL).len() > 100, "{} cut or flipped at {at}", path.display());
        }
    }
}

#[test]
fn any_failing_operation_costs_what_it_knows_and_nothing_else() {
    let clean = Arc::new(FaultStorage::new(memory(), 1));
    let run = |storage: &Arc<FaultStorage>| {
        let shared: Arc<dyn Storage> = Arc::<FaultStorage>::clone(storage);
        let ralt = Ralt::open(env(&shared), small(300_000));
        drive(&ralt, 3_000, hotspot(3, 500, 100));
        ralt
    };
    drop(run(&clean));
    let operations = clean.operations();
    assert!(operations > 300, "{operations}");
    for nth in (1..=operations).step_by(7) {
        let storage = Arc::new(FaultStorage::new(memory(), 1));
        storage.fail_nth(nth, 5);
        let ralt = run(&storage);
        let told = ralt.stats().last_error;
        storage.clear();
        drive(&ralt, 3_000, hotspot(3, 500, 100));
        let known = (500..600).filter(|&number| ralt.is_hot(&key(number))).count();
        assert!(known > 80, "operation {nth} failed: {known} of 100 are hot; {told:?}");
    }
}

#[test]
fn what_is_accessed_again_soon_is_left_out_and_the_same_keys_are_hot() {
    let run = |repeats_bytes: usize| {
        let ralt = Ralt::open(env(&memory()), Options { repeats_bytes, ..small(2_000_000) });
        drive(&ralt, 60_000, hotspot(1, 3_000, 1_000));
        let known = (3_000..4_000).filter(|&number| ralt.is_hot(&key(number))).count();
        (ralt.stats(), known)
    };
    let ((some, known), (all, known_of_all)) = (run(8 << 10), run(0));
    assert_eq!((some.accesses + some.left_out, all.accesses, all.left_out), (60_000, 60_000, 0));
    assert!(some.accesses < 35_000 && some.written_bytes < all.written_bytes, "{some:?}\n{all:?}");
    assert!(known >= 970 && known_of_all >= 970, "{known}, {known_of_all} where all is noted");
    // Time passes also for what is left out.
    let [some, all] = [some, all].map(|stats| stats.history.last().unwrap().accessed_bytes);
    assert!(some.abs_diff(all) < all / 5, "{some} {all}");
}

#[test]
fn of_forgotten_keys_and_after_a_reset_accesses_are_noted_again() {
    let ralt = Ralt::open(env(&memory()), small(2_000_000));
    let thrice = || {
        (0..3).for_each(|_| ralt.access(b"key", 1_000));
        ralt.settle();
        assert!(ralt.is_hot(b"key") && ralt.heat(b"key").unwrap().is_stable);
        ralt.stats().left_out
    };
    assert_eq!(thrice(), 1);
    ralt.forget(KeyRange::ALL);
    ralt.settle();
    assert!(!ralt.is_hot(b"key"));
    assert_eq!(thrice(), 2);
    ralt.0.reset(&mut ralt.0.work.lock());
    assert!(!ralt.is_hot(b"key"));
    assert_eq!(thrice(), 3);
    // Longer than a value can be: counted as 4 GiB.
    ralt.access(b"key", usize::MAX);
}

#[test]
fn readers_and_background_work_go_on_together() {
    let storage = memory();
    let executor: Arc<dyn Executor> = Arc::new(ThreadPool::new(1, 1, 1).unwrap());
    let ralt = Ralt::open(Env { executor, ..env(&storage) }, small(2_000_000));
    // Readers never wait for the worker, so that on a busy machine most accesses are lost: they go on until it has evicted.
    let pushed: u64 = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|thread| {
                let ralt = &ralt;
                scope.spawn(move || {
                    let mut draw = hotspot(thread, 2_000, 1_000);
                    for number in 0_u64..100_000_000 {
                        let key = key(draw());
                        ralt.access(&key, 986);
                        if number % 50 == 0 {
                            let _either = ralt.is_hot(&key);
                            let _about = ralt.hot_size(KeyRange::closed(&key, b"v"));
                        }
                        if number % 4_000 == 0 {
                            let keys = hot_keys(ralt, KeyRange { start: &key, end: Bound::Unbounded });
                            assert!(keys.is_sorted() && keys.iter().all(|found| *found >= key));
                            if number >= 40_000 && ralt.stats().evictions > 0 {
                                return number + 1;
                            }
                            std::thread::yield_now();
                        }
                    }
                    100_000_000
                })
            })
            .collect();
        readers.into_iter().map(|reader| reader.join().unwrap()).sum()
    });
    ralt.settle();
    let stats = ralt.stats();
    assert_eq!(stats.accesses + stats.left_out + stats.lost, pushed);
    assert_eq!((stats.resets, &stats.last_error), (0, &None));
    assert!(stats.evictions > 0, "{stats:?}");
}
