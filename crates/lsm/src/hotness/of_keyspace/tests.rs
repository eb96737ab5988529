//! Keys of several keyspaces in one exact tracker.

use std::collections::BTreeSet;

use kelvin_ralt::Oracle;

use super::*;

const IDS: [u32; 5] = [0, 1, 2, 255, u32::MAX];

fn hot_keys(tracker: &dyn HotTracker, range: KeyRange<'_>) -> Vec<Vec<u8>> {
    let mut found = tracker.hot_keys(range);
    std::iter::from_fn(|| found.next().map(<[u8]>::to_vec)).collect()
}

/// Keys at the edges of the areas, and others.
fn keys() -> BTreeSet<Vec<u8>> {
    let mut keys: BTreeSet<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    for id in IDS.into_iter().chain([3]) {
        keys.extend([prefix(id).to_vec(), [&prefix(id)[..], b"a"].concat(), prefix(id)[..3].to_vec()]);
    }
    let long = [STACK_BYTES - PREFIX_BYTES, STACK_BYTES - PREFIX_BYTES + 1, 5000];
    keys.extend(long.map(|bytes| vec![b'l'; bytes]));
    keys.extend([AREA.to_vec(), vec![0xff; 3], vec![0xff; 9], b"user:17".to_vec()]);
    keys
}

#[test]
fn no_two_keyspaces_share_a_tracked_key_and_each_keeps_its_order() {
    let keys = keys();
    let all: Vec<Vec<u8>> = IDS.iter().flat_map(|&id| keys.iter().map(move |key| tracked(id, key))).collect();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), IDS.len() * keys.len());
    for of_one in all.chunks(keys.len()) {
        assert!(of_one.is_sorted());
    }
    for id in IDS {
        for key in &keys {
            assert_eq!(with_tracked(id, key, |key, _| key.to_vec()), tracked(id, key));
        }
    }
}

#[test]
fn what_is_hot_in_one_keyspace_is_not_in_another_and_sizes_are_those_of_the_records() {
    let keys: Vec<Vec<u8>> = keys().into_iter().collect();
    for mine in IDS {
        let oracle = Oracle::new(u64::MAX);
        let of = |id| OfKeyspace::new(&oracle, id);
        let record_bytes = |keys: &[Vec<u8>]| keys.iter().map(|key| key.len() as u64 + 100).sum::<u64>();
        // Twice: the first time puts in order what is not known yet.
        for key in keys.iter().chain(&keys) {
            of(mine).access(key, 100);
        }
        for id in IDS {
            let expected: &[Vec<u8>] = if id == mine { &keys } else { &[] };
            assert_eq!(hot_keys(&of(id), KeyRange::ALL), expected, "{id} of {mine}");
            assert_eq!(of(id).hot_size(KeyRange::ALL), record_bytes(expected));
            assert!(keys.iter().all(|key| of(id).is_hot(key) == (id == mine)));
        }
        for (from, to) in [(3, 90), (90, keys.len() - 1), (0, 1)] {
            let part = &keys[from..to];
            let range = KeyRange { start: &keys[from], end: Bound::Excluded(&keys[to]) };
            assert_eq!(hot_keys(&of(mine), range), part);
            assert_eq!(of(mine).hot_size(range), record_bytes(part));
            let range = KeyRange::closed(&keys[from], &keys[to - 1]);
            assert_eq!(hot_keys(&of(mine), range), part);
        }
    }
}

#[test]
fn one_keyspace_is_forgotten_and_the_others_are_not() {
    let oracle = Oracle::new(u64::MAX);
    let of = |id| OfKeyspace::new(&oracle, id);
    let keys: Vec<Vec<u8>> = keys().into_iter().collect();
    for _ in 0..2 {
        IDS.into_iter().for_each(|id| keys.iter().for_each(|key| of(id).access(key, 7)));
    }
    for (gone, id) in IDS.into_iter().enumerate() {
        of(id).forget(KeyRange::ALL);
        let left = IDS.map(|id| hot_keys(&of(id), KeyRange::ALL).len());
        assert_eq!(left, std::array::from_fn(|at| if at <= gone { 0 } else { keys.len() }));
    }
}
