//! The rules, one sentence at a time.

use std::sync::Arc;

use kelvin_base::key::{EXPIRES, Kind};
use kelvin_base::{ErrorKind, RangeTombstone, Sequence};
use kelvin_table::Fragments;

use super::below::Below;
use super::rules::{Entry, Rules, Terms, Verdict, Why};

const NOW_MS: u64 = 1_000;
const VALUE: u8 = Kind::Value as u8;
const DELETION: u8 = Kind::Deletion as u8;
const COPY: u8 = Kind::Copy as u8;

fn terms(snapshots: &[Sequence], tombstones: &[(&str, &str, Sequence)]) -> Terms {
    let stones = tombstones.iter().map(|&(start, end, sequence)| RangeTombstone {
        start: start.to_owned().into(),
        end: end.to_owned().into(),
        sequence,
    });
    Terms {
        routes_copies: false,
        snapshots: snapshots.to_vec(),
        now_ms: NOW_MS,
        drops_copies: false,
        tombstones: Arc::new(Fragments::build(stones.collect())),
    }
}

fn bottom() -> Below {
    Below::Runs(Vec::new())
}

/// Verdicts over versions of the key "k", given as sequence number and kind byte; expiring ones expire at `NOW_MS`.
fn judge(terms: &Terms, below: Below, versions: &[(Sequence, u8)]) -> Vec<Verdict> {
    let mut rules = Rules::new(terms, below);
    let verdict = |(index, &(sequence, kind_byte)): (usize, &(Sequence, u8))| {
        let stored = if kind_byte & EXPIRES == 0 { Vec::new() } else { NOW_MS.to_le_bytes().to_vec() };
        let repeated = versions.get(index + 1).is_some_and(|next| next.0 == sequence);
        rules
            .judge(&Entry { key: b"k", sequence, kind_byte, stored: &stored, repeated, guarded: false })
            .unwrap()
    };
    versions.iter().enumerate().map(verdict).collect()
}

use Verdict::{Delete, Drop, Keep};

#[test]
fn only_the_newest_version_of_each_stripe_is_kept() {
    let versions = [(9, VALUE), (8, DELETION), (6, VALUE), (5, VALUE), (2, VALUE)];
    let shadowed = Drop(Why::Shadowed);
    let none = terms(&[], &[]);
    assert_eq!(judge(&none, bottom(), &versions), [Keep, shadowed, shadowed, shadowed, shadowed]);
    let two = terms(&[5, 8], &[]);
    assert_eq!(judge(&two, bottom(), &versions), [Keep, Keep, shadowed, Keep, shadowed]);
    let every = terms(&[2, 5, 6, 8], &[]);
    assert_eq!(judge(&every, bottom(), &versions), [Keep; 5]);
}

#[test]
fn a_deletion_goes_only_at_the_bottom_and_below_every_snapshot() {
    let versions = [(7, DELETION), (3, VALUE)];
    assert_eq!(judge(&terms(&[], &[]), Below::Anything, &versions), [Keep, Drop(Why::Shadowed)]);
    let gone = [Drop(Why::Deletion), Drop(Why::Shadowed)];
    assert_eq!(judge(&terms(&[], &[]), bottom(), &versions), gone);
    assert_eq!(judge(&terms(&[9], &[]), bottom(), &versions), gone);
    assert_eq!(judge(&terms(&[5], &[]), bottom(), &versions), [Keep, Keep], "3 would come back");
}

#[test]
fn a_range_tombstone_drops_what_no_snapshot_sees_without_it() {
    let versions = [(9, VALUE), (5, VALUE), (2, DELETION)];
    let covered = Drop(Why::Covered);
    let stones = [("a", "z", 7)];
    assert_eq!(
        judge(&terms(&[], &stones), Below::Anything, &versions),
        [Keep, Drop(Why::Shadowed), Drop(Why::Shadowed)]
    );
    assert_eq!(judge(&terms(&[8], &stones), Below::Anything, &versions), [Keep, covered, covered]);
    assert_eq!(judge(&terms(&[6, 8], &stones), bottom(), &versions), [Keep, Keep, Drop(Why::Shadowed)]);
    let own = terms(&[], &[("a", "z", 5)]);
    assert_eq!(judge(&own, bottom(), &[(5, VALUE)]), [Keep], "a tombstone spares its own sequence number");
}

#[test]
fn an_expired_value_becomes_a_deletion_and_vanishes_at_the_bottom() {
    let versions = [(7, VALUE | EXPIRES), (3, VALUE)];
    assert_eq!(judge(&terms(&[], &[]), Below::Anything, &versions), [Delete, Drop(Why::Shadowed)]);
    assert_eq!(judge(&terms(&[], &[]), bottom(), &versions), [Drop(Why::Expired), Drop(Why::Shadowed)]);
    assert_eq!(judge(&terms(&[5], &[]), bottom(), &versions), [Delete, Keep]);
}

#[test]
fn a_copy_gives_way_to_its_original_and_hides_only_while_it_is_kept() {
    let with_original = [(7, COPY), (7, COPY), (7, VALUE), (3, VALUE)];
    let copy = Drop(Why::Copy);
    assert_eq!(judge(&terms(&[], &[]), bottom(), &with_original), [copy, copy, Keep, Drop(Why::Shadowed)]);
    let alone = [(7, COPY)];
    assert_eq!(judge(&terms(&[], &[]), Below::Anything, &alone), [Keep]);
    let slow = Terms { drops_copies: true, ..terms(&[], &[]) };
    assert_eq!(judge(&slow, Below::Anything, &alone), [copy]);
    assert_eq!(judge(&terms(&[], &[]), bottom(), &[(7, COPY | EXPIRES)]), [Drop(Why::Expired)]);
    let newer = [(9, DELETION), (7, COPY)];
    assert_eq!(judge(&terms(&[], &[]), Below::Anything, &newer), [Keep, Drop(Why::Shadowed)]);
}

#[test]
fn of_range_tombstones_the_newest_of_each_stripe_stays_while_something_may_lie_below() {
    let stones = [("a", "f", 2), ("c", "f", 4), ("c", "f", 7), ("c", "f", 9)];
    let kept = |snapshots: &[Sequence], below: &Below| -> Vec<String> {
        let stones = terms(snapshots, &stones).kept_tombstones(below);
        let text = |b: &bytes::Bytes| String::from_utf8(b.to_vec()).unwrap();
        stones.iter().map(|s| format!("{}-{}#{}", text(&s.start), text(&s.end), s.sequence)).collect()
    };
    assert_eq!(kept(&[], &Below::Anything), ["a-c#2", "c-f#9"]);
    assert_eq!(kept(&[7], &Below::Anything), ["a-c#2", "c-f#9", "c-f#7"]);
    assert_eq!(kept(&[], &bottom()), [""; 0]);
    assert_eq!(kept(&[4], &bottom()), ["c-f#9"]);
}

#[test]
fn malformed_entries_are_corruption() {
    let terms = terms(&[], &[]);
    for (kind_byte, stored) in [(9, &b""[..]), (Kind::RangeDeletion as u8, b""), (VALUE | EXPIRES, b"short")]
    {
        let entry = Entry { key: b"k", sequence: 1, kind_byte, stored, repeated: false, guarded: false };
        let error = Rules::new(&terms, bottom()).judge(&entry).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
    }
}
