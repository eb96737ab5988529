//! Level cursors over real tables: they move like one list, and open and read no more than they must.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kelvin_base::key::{compare_internal, user_key};
use kelvin_base::{ErrorKind, InternalIterator, RangeTombstone, Tier};
use kelvin_storage::Storage;
use kelvin_storage::fault::FaultStorage;
use kelvin_storage::memory::MemoryStorage;
use kelvin_table::ScanOptions;

use super::testing::{Dice, History, VecIter, internal, value};
use super::{DbIter, LevelIter, Sight};
use crate::compaction::job::testing::{Entry, TestFiles};
use crate::version::TableFile;

/// Tables of ten keys each: k000-k009, k010-k019, …
fn tens(files: &Arc<TestFiles>, count: usize) -> Vec<Arc<TableFile>> {
    let table = |ten: usize| {
        let entries = (0..10).map(|i| value(&format!("k{:03}", 10 * ten + i), 1, "v")).collect();
        files.table(Tier::Fast, entries, &[])
    };
    (0..count).map(table).collect()
}

fn seek_key(user_key: &str) -> Vec<u8> {
    internal(user_key.as_bytes(), 1 << 40, 0xff)
}

#[test]
fn a_level_moves_like_one_sorted_list() {
    for seed in 0..150 {
        let mut dice = Dice::new(seed);
        let files = TestFiles::new();
        let mut all = History::random(&mut dice, 60, 20).entries;
        all.sort_by(|a, b| compare_internal(&a.0, &b.0));
        let mut tables = Vec::new();
        let mut rest: Vec<Entry> = all.clone();
        while !rest.is_empty() {
            let mut len = (dice.index(12) + 1).min(rest.len());
            let user = |entry: &Entry| kelvin_base::key::user_key(&entry.0).to_vec();
            while len < rest.len() && user(&rest[len]) == user(&rest[len - 1]) {
                len += 1;
            }
            let after = rest.split_off(len);
            tables.push(files.table(Tier::Fast, rest, &[]));
            rest = after;
        }
        // A table without entries stands at the end: cursors pass it.
        let stone = RangeTombstone { start: "x".into(), end: "y".into(), sequence: 9 };
        tables.push(files.table(Tier::Fast, Vec::new(), &[stone]));
        let mut level = LevelIter::of_files(tables, ScanOptions::default());
        let mut model = VecIter::new(all);
        for _ in 0..120 {
            let target = internal(&History::key(dice.below(21)), dice.below(62), 0xff);
            let choice = dice.below(if model.valid() { 10 } else { 4 });
            for iter in [&mut level as &mut dyn InternalIterator, &mut model] {
                match choice {
                    0 => iter.seek(&target).unwrap(),
                    1 => iter.seek_before(&target).unwrap(),
                    2 => iter.seek_to_first().unwrap(),
                    3 => iter.seek_to_last().unwrap(),
                    4..=6 => iter.next().unwrap(),
                    _ => iter.prev().unwrap(),
                }
            }
            assert_eq!(level.valid(), model.valid(), "seed {seed}");
            assert_eq!((level.key(), level.value()), (model.key(), model.value()), "seed {seed}");
        }
    }
}

#[test]
fn a_seek_opens_the_one_table_that_may_hold_the_key() {
    let files = TestFiles::new();
    let mut level = LevelIter::of_files(tens(&files, 50), ScanOptions::default());
    level.seek(&seek_key("k255")).unwrap();
    assert_eq!(kelvin_base::key::user_key(level.key()), b"k255");
    level.seek_before(&seek_key("k257")).unwrap();
    assert_eq!(kelvin_base::key::user_key(level.key()), b"k256");
    assert_eq!(files.opens.load(Ordering::Relaxed), 1);
    level.seek(&seek_key("k999")).unwrap();
    assert!(!level.valid());
    assert_eq!(files.opens.load(Ordering::Relaxed), 1);
}

#[test]
fn tables_outside_the_bounds_stay_closed() {
    let files = TestFiles::new();
    let level = LevelIter::of_files(tens(&files, 50), ScanOptions::default());
    let mut level = level.bounded(Some("k120".into()), Some("k130".into()));
    level.seek(&seek_key("k125")).unwrap();
    while level.valid() {
        level.next().unwrap();
    }
    level.seek_before(&seek_key("k128")).unwrap();
    while level.valid() {
        level.prev().unwrap();
    }
    assert_eq!(files.opens.load(Ordering::Relaxed), 1);
}

#[test]
fn a_short_scan_reads_one_block_of_each_level() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let files = TestFiles::with_blocks(storage, 16 * 1024);
    let levels: Vec<Vec<Arc<TableFile>>> = (0..4)
        .map(|level| {
            let entries = (0..400).map(|i| value(&format!("k{:05}", 4 * i + level), 1, "v")).collect();
            vec![files.table(Tier::Fast, entries, &[])]
        })
        .collect();
    let scan = ScanOptions { readahead_bytes: 1 << 20, ..ScanOptions::default() };
    let sources = levels.into_iter().map(|files| LevelIter::of_files(files, scan)).collect();
    let mut iter = DbIter::new(sources, Vec::new(), Sight { at: 9, ..Sight::default() });
    iter.seek(b"k00400").unwrap();
    for _ in 0..100 {
        iter.next().unwrap();
    }
    assert_eq!(iter.key(), b"k00500");
    let reads: u64 = iter.sources().map(|source| source.take_io()[0].reads).sum();
    assert_eq!(reads, 4);
}

#[test]
fn what_is_expected_of_a_level_goes_on_in_the_next_table() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let files = TestFiles::with_blocks(storage, 256);
    let table = |from: usize| {
        files.table(
            Tier::Fast,
            (from..from + 20).map(|i| value(&format!("k{i:03}"), 1, "some value")).collect(),
            &[],
        )
    };
    let scan = ScanOptions { readahead_bytes: 1 << 20, ..ScanOptions::default() };
    let reads = |expected_bytes: usize| {
        let scan = ScanOptions { expected_bytes, ..scan };
        let mut level = LevelIter::of_files(vec![table(0), table(20), table(40)], scan);
        level.seek_to_first().unwrap();
        for _ in 0..39 {
            level.next().unwrap();
        }
        assert_eq!(user_key(level.key()), b"k039");
        level.take_io()[0].reads
    };
    assert_eq!(reads(1 << 20), 2, "one read a table");
    assert_eq!(reads(0), 4, "a table at first block by block");
}

#[test]
fn a_table_that_cannot_be_read_stops_the_cursor_for_good() {
    for (nth, seek) in [(1, "k005"), (3, "k005"), (2, "k015")] {
        let storage = Arc::new(FaultStorage::new(Arc::new(MemoryStorage::new()), 1));
        let files = TestFiles::on(Arc::clone(&storage) as Arc<dyn Storage>);
        let mut level = LevelIter::of_files(tens(&files, 3), ScanOptions::default());
        storage.fail_nth(nth, 5);
        let mut outcome = level.seek(&seek_key(seek));
        let mut seen = 0;
        while outcome.is_ok() && level.valid() {
            seen += 1;
            outcome = level.next();
        }
        storage.clear();
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Io, "operation {nth}");
        assert!(!level.valid() && seen < 25);
        for again in [level.next(), level.prev(), level.seek_to_first(), level.seek(&seek_key(seek))] {
            assert_eq!(again.unwrap_err().kind(), ErrorKind::Io);
        }
    }
}
