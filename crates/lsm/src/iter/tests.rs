//! Iterators against brute-force models: merges against a sort, the user iterator against a map.

use std::collections::BTreeMap;
use std::sync::Arc;

use kelvin_base::key::{Kind, compare_internal, split_internal, trailer_kind_byte, trailer_sequence};
use kelvin_base::{ErrorKind, InternalIterator, RangeTombstone, Sequence};
use kelvin_table::Fragments;

use super::testing::{Dice, History, NOW_MS, VecIter, deletion, internal, value};
use super::{DbIter, MergingIter, Sight};

type Entry = (Vec<u8>, Vec<u8>);
/// A key with its sequence number and value.
type Live = (Vec<u8>, (Sequence, Vec<u8>));

fn split_at_random(dice: &mut Dice, entries: Vec<Entry>, parts: usize) -> Vec<VecIter> {
    let mut sources = vec![Vec::new(); parts];
    for entry in entries {
        sources[dice.index(parts)].push(entry);
    }
    sources.into_iter().map(VecIter::new).collect()
}

#[test]
fn a_merge_moves_like_one_sorted_list_whatever_the_moves() {
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let mut all = History::random(&mut dice, 60, 20).entries;
        all.sort_by(|a, b| compare_internal(&a.0, &b.0));
        let parts = dice.index(7) + 1;
        let mut merge = MergingIter::new(split_at_random(&mut dice, all.clone(), parts));
        let mut model = VecIter::new(all.clone());
        for _ in 0..200 {
            let target = internal(&History::key(dice.below(21)), dice.below(62), 0xff);
            let moves = if model.valid() { 10 } else { 4 };
            match dice.below(moves) {
                0 => both(&mut merge, &mut model, |iter| iter.seek(&target)),
                1 => both(&mut merge, &mut model, |iter| iter.seek_before(&target)),
                2 => both(&mut merge, &mut model, |iter| iter.seek_to_first()),
                3 => both(&mut merge, &mut model, |iter| iter.seek_to_last()),
                4..=6 => both(&mut merge, &mut model, |iter| iter.next()),
                _ => both(&mut merge, &mut model, |iter| iter.prev()),
            }
            assert_eq!(merge.valid(), model.valid(), "seed {seed}");
            assert_eq!((merge.key(), merge.value()), (model.key(), model.value()), "seed {seed}");
        }
    }
}

fn both(
    merge: &mut dyn InternalIterator,
    model: &mut dyn InternalIterator,
    step: impl Fn(&mut dyn InternalIterator) -> kelvin_base::Result<()>,
) {
    step(merge).unwrap();
    step(model).unwrap();
}

#[test]
fn a_source_that_still_wins_is_moved_alone() {
    let long: Vec<Entry> = (0..100).map(|i| value(&format!("a{i:03}"), 1, "")).collect();
    let others = (0..8).map(|i| VecIter::new(vec![value(&format!("b{i}"), 1, "")]));
    let mut sources = vec![VecIter::new(long)];
    sources.extend(others);
    let mut merge = MergingIter::new(sources);
    merge.seek_to_first().unwrap();
    for _ in 0..99 {
        merge.next().unwrap();
    }
    assert_eq!(kelvin_base::key::user_key(merge.key()), b"a099");
    let moves: Vec<usize> = merge.sources_mut().iter().map(|source| source.moves).collect();
    assert_eq!(moves, [100, 1, 1, 1, 1, 1, 1, 1, 1]);
}

fn sight(at: Sequence) -> Sight {
    Sight { at, now_ms: NOW_MS, lower: None, upper: None }
}

/// The user's map as a cursor: the model of `DbIter`.
struct Model {
    live: Vec<Live>,
    at: Option<usize>,
}

impl Model {
    fn go(&mut self, at: Option<usize>) {
        self.at = at.filter(|&at| at < self.live.len());
    }

    fn lower_bound(&self, target: &[u8]) -> usize {
        self.live.partition_point(|(key, _)| key.as_slice() < target)
    }

    fn step(&mut self, choice: u64, target: &[u8]) {
        match choice {
            0 => self.go(Some(self.lower_bound(target))),
            1 => {
                let behind = self.live.partition_point(|(key, _)| key.as_slice() <= target);
                self.go(behind.checked_sub(1));
            }
            2 => self.go(Some(0)),
            3 => self.go(self.live.len().checked_sub(1)),
            4..=6 => self.go(self.at.map(|at| at + 1)),
            _ => self.go(self.at.and_then(|at| at.checked_sub(1))),
        }
    }
}

fn step(iter: &mut DbIter<VecIter>, choice: u64, target: &[u8]) -> kelvin_base::Result<()> {
    match choice {
        0 => iter.seek(target),
        1 => iter.seek_for_prev(target),
        2 => iter.seek_to_first(),
        3 => iter.seek_to_last(),
        4..=6 => iter.next(),
        _ => iter.prev(),
    }
}

fn random_iter(dice: &mut Dice) -> (DbIter<VecIter>, Model) {
    // Few keys and many writes make long runs of versions; many keys make gaps.
    let (count, keys) = if dice.one_in(3) { (120, 4) } else { (80, 24) };
    let history = History::random(dice, count, keys);
    let mut entries = history.entries.clone();
    // Copies: the same key, sequence number and value, of another kind.
    for (key, stored) in &history.entries {
        let (user_key, trailer) = split_internal(key).unwrap();
        let kind_byte = trailer_kind_byte(trailer);
        if Kind::from_byte(kind_byte).unwrap().has_value() && dice.one_in(5) {
            let copy = internal(user_key, trailer_sequence(trailer), kind_byte + 1);
            entries.push((copy.clone(), stored.clone()));
        }
    }
    let mut sets = vec![Vec::new(); dice.index(3) + 1];
    for stone in &history.tombstones {
        let set = dice.index(sets.len());
        sets[set].push(stone.clone());
    }
    let covers = sets.into_iter().map(|set| Arc::new(Fragments::build(set))).collect();
    let parts = dice.index(6) + 1;
    let sources = split_at_random(dice, entries, parts);
    let bound = |dice: &mut Dice| dice.one_in(2).then(|| History::key(dice.below(keys)));
    let (lower, upper) = (bound(dice), bound(dice));
    let at = dice.below(history.last_sequence + 2);
    let live: Vec<_> = history
        .seen(at)
        .into_iter()
        .filter(|(key, _)| lower.as_ref().is_none_or(|lower| lower <= key))
        .filter(|(key, _)| upper.as_ref().is_none_or(|upper| key < upper))
        .collect();
    let sight = Sight { at, now_ms: NOW_MS, lower: lower.map(Into::into), upper: upper.map(Into::into) };
    (DbIter::new(sources, covers, sight), Model { live, at: None })
}

#[test]
fn a_user_iterator_moves_like_a_map_at_every_snapshot() {
    for seed in 0..1_500 {
        let mut dice = Dice::new(seed);
        let (mut iter, mut model) = random_iter(&mut dice);
        let mut trace = Vec::new();
        for _ in 0..60 {
            let choice = if model.at.is_some() { dice.below(10) } else { dice.below(4) };
            let target = History::key(dice.below(26));
            trace.push((choice, target.clone()));
            step(&mut iter, choice, &target).unwrap();
            model.step(choice, &target);
            let found = iter.valid().then(|| (iter.key().to_vec(), (iter.sequence(), iter.value().to_vec())));
            let wanted = model.at.map(|at| model.live[at].clone());
            assert_eq!(found, wanted, "seed {seed}, {:?}, moves {trace:?}", iter.sight());
        }
    }
}

#[test]
fn an_error_in_a_source_stays_and_nothing_is_skipped() {
    for seed in 0..600 {
        let mut dice = Dice::new(seed);
        let (mut iter, mut model) = random_iter(&mut dice);
        let parts = iter.sources_mut().len();
        let fail_from = dice.index(40);
        iter.sources_mut()[dice.index(parts)].fail_from = Some(fail_from);
        let mut failed = false;
        for _ in 0..60 {
            let choice = if failed || model.at.is_some() { dice.below(10) } else { dice.below(4) };
            let target = History::key(dice.below(26));
            let outcome = step(&mut iter, choice, &target);
            assert!(!failed || outcome.is_err(), "seed {seed}: an error does not go away");
            if let Err(error) = outcome {
                assert_eq!(error.kind(), ErrorKind::Io);
                assert!(!iter.valid());
                failed = true;
                continue;
            }
            model.step(choice, &target);
            let found = iter.valid().then(|| iter.key().to_vec());
            assert_eq!(found, model.at.map(|at| model.live[at].0.clone()), "seed {seed}");
        }
    }
}

#[test]
fn a_long_run_of_versions_is_seeked_over() {
    let mut entries: Vec<Entry> = (2..10_000).map(|sequence| value("a", sequence, "a")).collect();
    entries.push(value("b", 1, "b"));
    entries.extend((10_000..20_000).map(|sequence| value("c", sequence, "c")));
    entries.push(value("c", 1, "old"));
    let mut iter = DbIter::new(vec![VecIter::new(entries)], Vec::new(), sight(9_999));
    let mut seen = BTreeMap::new();
    iter.seek_to_first().unwrap();
    while iter.valid() {
        seen.insert(iter.key().to_vec(), iter.value().to_vec());
        iter.next().unwrap();
    }
    let wanted = [("a", "a"), ("b", "b"), ("c", "old")];
    let wanted: BTreeMap<_, _> =
        wanted.iter().map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec())).collect();
    assert_eq!(seen, wanted);
    let mut back = BTreeMap::new();
    iter.seek_to_last().unwrap();
    while iter.valid() {
        back.insert(iter.key().to_vec(), iter.value().to_vec());
        iter.prev().unwrap();
    }
    assert_eq!(back, wanted);
    let moves = iter.sources_mut()[0].moves;
    assert!(moves < 100, "{moves} moves for three keys");
}

#[test]
fn an_expired_record_hides_what_is_older() {
    let kind_byte = Kind::Value as u8 | kelvin_base::key::EXPIRES;
    let expired = |at_ms: u64| [at_ms.to_le_bytes().as_slice(), b"new"].concat();
    for (at_ms, wanted) in [(NOW_MS, None), (NOW_MS + 1, Some(b"new".to_vec()))] {
        let entries = vec![(internal(b"k", 2, kind_byte), expired(at_ms)), value("k", 1, "old")];
        let mut iter = DbIter::new(vec![VecIter::new(entries)], Vec::new(), sight(9));
        iter.seek(b"k").unwrap();
        assert_eq!(iter.valid().then(|| iter.value().to_vec()), wanted);
        assert_eq!(iter.expiry_ms(), wanted.as_ref().map(|_| at_ms));
        iter.seek_for_prev(b"k").unwrap();
        assert_eq!(iter.valid().then(|| iter.value().to_vec()), wanted);
        assert_eq!(iter.expiry_ms(), wanted.as_ref().map(|_| at_ms));
    }
}

#[test]
fn a_range_tombstone_hides_only_what_is_older_and_only_from_those_who_see_it() {
    let stone = RangeTombstone { start: "b".into(), end: "d".into(), sequence: 5 };
    let cover = Arc::new(Fragments::build(vec![stone]));
    let entries = || vec![value("a", 1, ""), value("b", 4, ""), value("c", 6, ""), value("d", 1, "")];
    for (at, wanted) in [(4, "abd"), (5, "ad"), (6, "acd")] {
        let mut iter = DbIter::new(vec![VecIter::new(entries())], vec![Arc::clone(&cover)], sight(at));
        let mut keys = Vec::new();
        iter.seek_to_first().unwrap();
        while iter.valid() {
            keys.extend_from_slice(iter.key());
            iter.next().unwrap();
        }
        assert_eq!(String::from_utf8(keys).unwrap(), wanted);
    }
}

#[test]
fn malformed_entries_are_corruption_and_never_passed_over() {
    let bad_kind = vec![value("a", 1, ""), (internal(b"b", 1, 9), Vec::new()), deletion("c", 1)];
    let no_expiry = vec![(internal(b"b", 1, Kind::Value as u8 | kelvin_base::key::EXPIRES), vec![1, 2])];
    for entries in [bad_kind, no_expiry] {
        for backward in [false, true] {
            let mut iter = DbIter::new(vec![VecIter::new(entries.clone())], Vec::new(), sight(9));
            let outcome = if backward { iter.seek_to_last() } else { iter.seek(b"b") };
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Corruption);
            assert!(iter.seek_to_first().is_err() && !iter.valid());
        }
    }
}

#[test]
fn a_merge_whose_source_fails_stays_invalid_whichever_move_met_the_error() {
    for fail_from in 1..8 {
        for turns in [false, true] {
            let even = (0..10).map(|i| value(&format!("{:02}", 2 * i), 1, "")).collect();
            let odd = (0..10).map(|i| value(&format!("{:02}", 2 * i + 1), 1, "")).collect();
            let mut merge = MergingIter::new(vec![VecIter::new(even), VecIter::new(odd)]);
            merge.sources_mut()[1].fail_from = Some(fail_from);
            let mut outcome = merge.seek_to_first();
            for step in 0..100 {
                if outcome.is_err() {
                    break;
                }
                assert!(merge.valid());
                outcome = if turns && step % 3 == 2 { merge.prev() } else { merge.next() };
            }
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Io);
            assert!(!merge.valid(), "after {fail_from} moves, turning {turns}");
            for again in [merge.next(), merge.prev(), merge.seek_to_first(), merge.seek_to_last()] {
                assert_eq!(again.unwrap_err().kind(), ErrorKind::Io);
            }
        }
    }
}
