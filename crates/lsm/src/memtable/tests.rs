//! Tests of the memtable against ordered-map oracles, alone and with many threads. Small under Miri.

use std::collections::BTreeMap;

use bytes::Bytes;
use kelvin_base::InternalIterator;
use kelvin_base::key::{append_internal, compare_internal};

use super::*;

const VALUE: u8 = Kind::Value as u8;

fn scaled(full: usize, miri: usize) -> usize {
    if cfg!(miri) { miri } else { full }
}

/// A small generator of its own: the same keys every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A key of 1 to 12 bytes from a small alphabet with a zero byte, so prefixes, paddings and repeats are common.
    fn key(&mut self) -> Vec<u8> {
        let len = self.next() % 12 + 1;
        (0..len).map(|_| b"\0ab"[usize::try_from(self.next() % 3).unwrap()]).collect()
    }
}

fn internal(key: &[u8], trailer: u64) -> Vec<u8> {
    let mut out = Vec::new();
    append_internal(&mut out, key, trailer);
    out
}

/// The oracle's order: user key ascending, sequence descending.
type Oracle = BTreeMap<(Vec<u8>, std::cmp::Reverse<u64>), Vec<u8>>;

fn filled(count: usize, seed: u64) -> (Arc<MemTable>, Oracle) {
    let (memtable, mut oracle, mut random) = (Arc::new(MemTable::new(1, 1)), Oracle::new(), Random(seed));
    for sequence in 1..=count as u64 {
        let (key, value) = (random.key(), sequence.to_le_bytes().repeat(3));
        memtable.insert(&key, sequence, VALUE, &value);
        oracle.insert((key, std::cmp::Reverse(trailer(sequence, VALUE))), value);
    }
    (memtable, oracle)
}

fn entry(iter: &MemIter) -> Option<(Vec<u8>, Vec<u8>)> {
    iter.valid().then(|| (iter.key().to_vec(), iter.value().to_vec()))
}

fn flat(oracle: &Oracle) -> Vec<(Vec<u8>, Vec<u8>)> {
    oracle.iter().map(|((key, trailer), value)| (internal(key, trailer.0), value.clone())).collect()
}

#[test]
fn a_new_memtable_is_empty_in_every_way() {
    let memtable = Arc::new(MemTable::new(7, 3));
    assert!(memtable.is_empty());
    assert_eq!((memtable.id(), memtable.wal_number(), memtable.sequences()), (7, 3, None));
    assert!(memtable.get(b"k", u64::MAX >> 8).is_none());
    assert_eq!(memtable.tombstones().count(), 0);
    let mut iter = memtable.iter();
    for turn in 0..4 {
        match turn {
            0 => iter.seek_to_first().unwrap(),
            1 => iter.seek_to_last().unwrap(),
            2 => iter.seek(&internal(b"", u64::MAX)).unwrap(),
            _ => iter.seek_before(&internal(b"zzz", 0)).unwrap(),
        }
        assert!(!iter.valid());
    }
}

#[test]
fn a_reader_sees_the_newest_entry_at_or_before_its_sequence() {
    let memtable = MemTable::new(1, 1);
    memtable.insert(b"k", 5, VALUE, b"five");
    memtable.insert(b"k", 9, Kind::Deletion as u8, b"");
    memtable.insert(b"k\0", 7, VALUE, b"other");
    assert_eq!(memtable.get(b"k", 4), None);
    assert_eq!(memtable.get(b"k", 5), Some(MemEntry { sequence: 5, kind_byte: VALUE, stored: b"five" }));
    assert_eq!(memtable.get(b"k", 8).unwrap().sequence, 5);
    assert_eq!(memtable.get(b"k", 9).unwrap().kind_byte, Kind::Deletion as u8);
    assert_eq!(memtable.get(b"k\0", 100).unwrap().stored, b"other");
    assert_eq!(memtable.get(b"k\0\0", 100), None);
    assert_eq!((memtable.entries(), memtable.deletions(), memtable.sequences()), (3, 1, Some((5, 9))));
}

#[test]
fn the_same_internal_key_is_inserted_once() {
    let memtable = MemTable::new(1, 1);
    memtable.insert(b"k", 5, VALUE, b"first");
    memtable.insert(b"k", 5, VALUE, b"second");
    assert_eq!(memtable.entries(), 1);
    assert_eq!(memtable.get(b"k", 5).unwrap().stored, b"first");
}

#[test]
fn scans_both_ways_agree_with_an_ordered_map() {
    let (memtable, oracle) = filled(scaled(5000, 60), 0x5eed);
    let expected = flat(&oracle);
    assert!(expected.is_sorted_by(|a, b| compare_internal(&a.0, &b.0).is_lt()));
    let mut iter = memtable.iter();
    iter.seek_to_first().unwrap();
    for wanted in &expected {
        assert_eq!(entry(&iter).as_ref(), Some(wanted));
        iter.next().unwrap();
    }
    assert!(!iter.valid());
    iter.seek_to_last().unwrap();
    for wanted in expected.iter().rev() {
        assert_eq!(entry(&iter).as_ref(), Some(wanted));
        iter.prev().unwrap();
    }
    assert!(!iter.valid());
}

#[test]
fn seeks_and_gets_agree_with_an_ordered_map() {
    let count = scaled(3000, 50);
    let (memtable, oracle) = filled(count, 0xfeed);
    let expected = flat(&oracle);
    let mut random = Random(0xbeef);
    let mut iter = memtable.iter();
    for _ in 0..scaled(5000, 60) {
        let (key, at) = (random.key(), random.next() % (count as u64 + 2));
        let target = internal(&key, seek_trailer(at));
        let split = expected.partition_point(|(other, _)| compare_internal(other, &target).is_lt());
        iter.seek(&target).unwrap();
        assert_eq!(entry(&iter).as_ref(), expected.get(split));
        iter.seek_before(&target).unwrap();
        assert_eq!(entry(&iter).as_ref(), split.checked_sub(1).map(|index| &expected[index]));
        let found = memtable.get(&key, at).map(|entry| entry.stored.to_vec());
        let wanted = expected.get(split).filter(|(other, _)| kelvin_base::key::user_key(other) == key);
        assert_eq!(found, wanted.map(|(_, value)| value.clone()));
    }
}

#[test]
fn one_inserter_takes_keys_in_any_order() {
    let orders: [fn(u64) -> u64; 4] =
        [|i| i, |i| u64::MAX - i, |i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15), |i| i % 7];
    for order in orders {
        let (memtable, mut oracle) = (Arc::new(MemTable::new(1, 1)), Oracle::new());
        let mut inserter = memtable.inserter();
        for sequence in 1..=scaled(2000, 60) as u64 {
            let key = order(sequence).to_be_bytes();
            inserter.insert(&key, sequence, VALUE, &key);
            oracle.insert((key.to_vec(), std::cmp::Reverse(trailer(sequence, VALUE))), key.to_vec());
        }
        drop(inserter);
        assert_eq!(memtable.entries(), oracle.len() as u64);
        let mut iter = memtable.iter();
        iter.seek_to_first().unwrap();
        for wanted in flat(&oracle) {
            assert_eq!(entry(&iter), Some(wanted));
            iter.next().unwrap();
        }
        assert!(!iter.valid());
    }
}

#[test]
fn eight_threads_insert_while_others_read_and_nothing_is_lost_or_out_of_order() {
    let (threads, each) = (scaled(8, 3) as u64, scaled(5000, 30) as u64);
    let memtable = Arc::new(MemTable::new(1, 1));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let memtable = &memtable;
            scope.spawn(move || {
                let mut random = Random(thread + 1);
                let mut inserter = memtable.inserter();
                for index in 0..each {
                    let sequence = index * threads + thread + 1;
                    // Half of the keys ascend (the hint's case, contended), half are random.
                    let key = if index % 2 == 0 { sequence.to_be_bytes().to_vec() } else { random.key() };
                    inserter.insert(&key, sequence, VALUE, &sequence.to_le_bytes());
                    let seen = memtable.get(&key, sequence).expect("a thread reads its own insert");
                    assert_eq!(seen.stored, sequence.to_le_bytes());
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..scaled(5, 2) {
                    check_order(&memtable);
                }
            });
        }
    });
    assert_eq!(memtable.entries(), threads * each);
    assert_eq!(memtable.sequences(), Some((1, threads * each)));
    assert_eq!(check_order(&memtable), threads * each);
}

/// Scans: keys ascend strictly and every value names its entry's sequence. Answers how many there were.
fn check_order(memtable: &Arc<MemTable>) -> u64 {
    let (mut iter, mut before, mut count) = (memtable.iter(), Vec::new(), 0);
    iter.seek_to_first().unwrap();
    while iter.valid() {
        assert!(before.is_empty() || compare_internal(&before, iter.key()).is_lt());
        let (_, trailer) = kelvin_base::key::split_internal(iter.key()).unwrap();
        assert_eq!(iter.value(), trailer_sequence(trailer).to_le_bytes());
        before = iter.key().to_vec();
        count += 1;
        iter.next().unwrap();
    }
    count
}

#[test]
fn an_iterator_outlives_every_other_handle() {
    let memtable = Arc::new(MemTable::new(1, 1));
    memtable.insert(b"k", 1, VALUE, b"v");
    let mut iter = memtable.iter();
    iter.seek_to_first().unwrap();
    drop(memtable);
    assert_eq!((iter.key().len(), iter.value()), (9, b"v".as_slice()));
}

#[test]
fn range_tombstones_are_found_and_counted() {
    let memtable = MemTable::new(1, 1);
    let stone = |start: &'static str, end: &'static str, sequence| RangeTombstone {
        start: Bytes::from_static(start.as_bytes()),
        end: Bytes::from_static(end.as_bytes()),
        sequence,
    };
    memtable.insert_tombstone(stone("a", "m", 5));
    assert_eq!(memtable.covering(b"b", 100), 5);
    memtable.insert_tombstone(stone("k", "z", 8));
    assert_eq!((memtable.covering(b"l", 100), memtable.covering(b"l", 6)), (8, 5));
    let all: Vec<_> = memtable.tombstones().flat_map(|set| set.tombstones().collect::<Vec<_>>()).collect();
    assert_eq!(all, [stone("a", "m", 5), stone("k", "z", 8)]);
    assert_eq!(
        (memtable.range_tombstones(), memtable.is_empty(), memtable.sequences()),
        (2, false, Some((5, 8)))
    );
    assert!(memtable.memory_bytes() >= 4);
}

#[test]
fn memory_is_counted_with_little_overhead() {
    let memtable = MemTable::new(1, 1);
    let count = scaled(20_000, 20) as u64;
    for sequence in 1..=count {
        memtable.insert(&sequence.to_be_bytes().repeat(3), sequence, VALUE, &[0; 200]);
    }
    let payload = count * (24 + 8 + 200);
    assert!(memtable.memory_bytes() > payload);
    assert!(
        cfg!(miri) || memtable.memory_bytes() < payload * 6 / 5,
        "{} for {payload}",
        memtable.memory_bytes()
    );
}
