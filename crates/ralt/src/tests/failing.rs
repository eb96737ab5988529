//! A RALT at work whose device fails or whose files rot: what that costs, and what it does not.

use kelvin_storage::fault::{EIO, Effect, Op, Rule};

use super::*;

fn failing() -> (Arc<FaultStorage>, Arc<dyn Storage>) {
    let storage = Arc::new(FaultStorage::new(memory(), 1));
    let shared: Arc<dyn Storage> = Arc::<FaultStorage>::clone(&storage);
    (storage, shared)
}

/// A RALT that knows `count` keys by several runs of level 0 and more of level 1.
fn knows(shared: &Arc<dyn Storage>, count: u64) -> Ralt {
    let ralt = Ralt::open(env(shared), Options { repeats_bytes: 0, ..small(1 << 30) });
    let mut numbers = 0..count;
    drive(&ralt, count, || numbers.next().unwrap());
    let stats = ralt.stats();
    assert!(stats.runs[0] > 1 && stats.runs[1] > 1 && stats.last_error.is_none(), "{stats:?}");
    ralt
}

#[test]
fn what_cannot_be_forgotten_at_once_is_forgotten_later() {
    let (start, end) = (b"user3".to_vec(), b"user5".to_vec());
    let range = KeyRange { start: &start, end: Bound::Excluded(&end) };
    let other = KeyRange { start: b"user8", end: Bound::Unbounded };
    // The first file that is made is that of the accesses which wait, if any do; then come those of the runs that reach over an edge.
    for (waiting, made_before) in [(1, 0), (0, 0), (0, 1), (0, 2)] {
        let (storage, shared) = failing();
        let ralt = knows(&shared, 2_800);
        (0..waiting).for_each(|number| ralt.access(&key(number), 986));
        let before = hot_keys(&ralt, KeyRange::ALL);
        storage.add(Rule::new(Op::Create, Effect::Error(EIO)).on("*.ralt").after(made_before).times(1));
        ralt.forget(range);
        ralt.forget(other);
        ralt.settle();
        assert_eq!(storage.injected(), 1);
        assert_eq!(hot_keys(&ralt, KeyRange::ALL), before, "{waiting} {made_before}: all of it or nothing");
        let stats = ralt.stats();
        assert!(stats.last_error.unwrap().contains("run of the hot-key tracker") && stats.resets == 0);
        assert_eq!(files(&*shared), stats.runs.iter().sum::<usize>(), "no file stays that is in no run");
        ralt.settle();
        let left: Vec<Vec<u8>> =
            before.into_iter().filter(|key| !range.contains(key) && !other.contains(key)).collect();
        assert_eq!(hot_keys(&ralt, KeyRange::ALL), left, "{waiting} {made_before}");
        assert!(left.iter().all(|key| ralt.is_hot(key)));
        assert_eq!(files(&*shared), ralt.stats().runs.iter().sum::<usize>());
        // It is done with that: what is accessed from now on is known.
        (0..200).for_each(|number| ralt.access(format!("user4{number:04}").as_bytes(), 986));
        ralt.settle();
        assert_eq!(hot_keys(&ralt, range).len(), 200);
    }
}

#[test]
fn damage_that_a_merge_meets_costs_what_was_known_and_it_begins_anew() {
    let (storage, shared) = failing();
    let ralt = knows(&shared, 2_800);
    storage.add(Rule::new(Op::Read, Effect::FlipBit).on("*.ralt"));
    let mut number = 10_000;
    while ralt.stats().resets == 0 {
        (0..200).for_each(|more| ralt.access(&key(number + more), 986));
        ralt.settle();
        number += 200;
        assert!(number < 20_000, "{:?}", ralt.stats());
    }
    storage.clear();
    assert!(ralt.stats().last_error.unwrap().contains(".ralt"));
    assert_eq!(hot_keys(&ralt, KeyRange::ALL), Vec::<Vec<u8>>::new());
    assert!(!(0..2_800).any(|number| ralt.is_hot(&key(number))));
    assert_eq!(files(&*shared), 0, "its files are gone with it");
    drive(&ralt, 3_000, hotspot(4, 500, 100));
    assert!((500..600).filter(|&number| ralt.is_hot(&key(number))).count() > 95);
    assert_eq!(ralt.stats().resets, 1);
}

#[test]
fn damage_that_catching_up_meets_is_left_to_the_next_job_and_nothing_is_caught_up_after_a_close() {
    let (storage, shared) = failing();
    let ralt = knows(&shared, 2_800);
    // So many accesses that sorting them makes a merge due.
    let mut number = 10_000;
    storage.add(Rule::new(Op::Read, Effect::FlipBit).on("*.ralt"));
    while ralt.stats().last_error.is_none() {
        (0..200).for_each(|more| ralt.access(&key(number + more), 986));
        HotTracker::catch_up(&ralt);
        number += 200;
        assert!(number < 20_000, "{:?}", ralt.stats());
    }
    storage.clear();
    assert_eq!(ralt.stats().resets, 0, "who catches up waits for no more than that");
    assert!(ralt.is_hot(&key(1)));
    ralt.settle();
    assert!(ralt.stats().resets == 1 && !ralt.is_hot(&key(1)));
    ralt.close();
    let operations = storage.operations();
    (0..200).for_each(|number| ralt.access(&key(number), 986));
    HotTracker::catch_up(&ralt);
    assert_eq!(storage.operations(), operations);
}

#[test]
fn a_directory_that_cannot_be_made_costs_the_memory_of_a_restart_alone() {
    let (storage, shared) = failing();
    storage.away(EIO);
    let ralt = Ralt::open(env(&shared), small(2_000_000));
    assert!(ralt.stats().last_error.is_some_and(|told| told.contains("hot-key tracker")));
    drive(&ralt, 400, hotspot(4, 500, 100));
    assert_eq!(hot_keys(&ralt, KeyRange::ALL).len(), 0);
    storage.back();
    shared.create_dir_all(Path::new(DIR)).unwrap();
    drive(&ralt, 3_000, hotspot(4, 500, 100));
    assert!((500..600).filter(|&number| ralt.is_hot(&key(number))).count() > 95);
}
