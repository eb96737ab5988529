//! Tables against a sorted list of their entries: every length of key and value, every way of moving.

use std::collections::HashMap;
use std::sync::Arc;

use crate::common::{Entries, Numbers, entry, internal, open, open_file, rest, write};
use kelvin_base::key::{compare_internal, split_internal, trailer_kind_byte};
use kelvin_base::{InternalIterator, hash64};
use kelvin_table::fuzz::BytesFile;
use kelvin_table::{Block, BlockCache, Compression, LookupKey, ReadIo, ScanOptions, Table, TableOptions};
use parking_lot::Mutex;

/// Keeps every other block: hits and misses alternate.
#[derive(Debug, Default)]
struct HalfCache(Mutex<HashMap<(u64, u64), Block>>);

impl BlockCache for HalfCache {
    fn get(&self, file: u64, offset: u64) -> Option<Block> {
        self.0.lock().get(&(file, offset)).cloned()
    }
    fn insert(&self, file: u64, offset: u64, block: Block) {
        if offset.is_multiple_of(2) {
            self.0.lock().insert((file, offset), block);
        }
    }
}

/// `keys` keys that share prefixes, some with many versions.
fn random_entries(seed: u64, keys: usize, key_max: usize, value_max: usize) -> Entries {
    let mut numbers = Numbers(seed);
    let mut names: Vec<Vec<u8>> = vec![Vec::new()];
    while names.len() < keys {
        let mut key = names[numbers.index(names.len())].clone();
        key.truncate(numbers.index(key.len() + 1));
        let more = numbers.index(12) + if numbers.below(50) == 0 { key_max } else { 0 };
        key.extend((0..more).map(|_| [0, 1, b'a', b'b', 0xff][numbers.index(5)]));
        key.truncate(key_max);
        names.push(key);
    }
    names.sort();
    names.dedup();
    let mut entries = Entries::new();
    for key in &names {
        let versions = if numbers.below(20) == 0 { 60 } else { numbers.below(3) + 1 };
        let mut sequence = versions * 5 + numbers.below(1000);
        for _ in 0..versions {
            let len = if numbers.below(40) == 0 { numbers.index(value_max) } else { numbers.index(40) };
            entries.push(entry(&mut numbers, key, sequence, len));
            sequence -= numbers.below(4) + 1;
        }
    }
    assert!(entries.is_sorted_by(|a, b| compare_internal(&a.0, &b.0).is_lt()));
    entries
}

/// What a reader at `at` should find of `key`.
fn newest(entries: &Entries, key: &[u8], at: u64) -> Option<(u64, u8, Vec<u8>)> {
    let target = internal(key, at, 0xff);
    let index = entries.partition_point(|(internal, _)| compare_internal(internal, &target).is_lt());
    let (found, value) = entries.get(index)?;
    let (user_key, trailer) = split_internal(found)?;
    (user_key == key).then(|| (trailer >> 8, trailer_kind_byte(trailer), value.clone()))
}

fn lookup(table: &Table, key: &[u8], at: u64) -> Option<(u64, u8, Vec<u8>)> {
    let key = LookupKey { user_key: key, hash: hash64(key), at };
    let found = table.get(&key, &mut ReadIo::default()).unwrap();
    found.map(|entry| (entry.sequence, entry.kind_byte, entry.value.to_vec()))
}

fn check_lookups(table: &Table, entries: &Entries, numbers: &mut Numbers) {
    for (internal, _) in entries {
        let (key, trailer) = split_internal(internal).unwrap();
        for at in [trailer >> 8, (trailer >> 8) + 1, (trailer >> 8).saturating_sub(1), numbers.below(2000)] {
            assert_eq!(lookup(table, key, at), newest(entries, key, at));
        }
        let mut other = key.to_vec();
        other.push(u8::try_from(numbers.below(256)).unwrap());
        assert_eq!(lookup(table, &other, 5000), newest(entries, &other, 5000));
    }
}

fn check_moves(table: &Arc<Table>, entries: &Entries, scan: ScanOptions, numbers: &mut Numbers) {
    let mut iter = table.iter(scan);
    // Where the cursor should stand; `None` is nowhere.
    let mut place: Option<usize> = None;
    for _ in 0..600 {
        match numbers.below(12) {
            0 => {
                iter.seek_to_first().unwrap();
                place = Some(0);
            }
            1 => {
                iter.seek_to_last().unwrap();
                place = entries.len().checked_sub(1);
            }
            choice @ 2..=4 => {
                let (mut target, _) = entries[numbers.index(entries.len())].clone();
                if choice == 3 {
                    let at = numbers.index(target.len());
                    target[at] = target[at].wrapping_add(1);
                }
                let index = entries.partition_point(|(key, _)| compare_internal(key, &target).is_lt());
                if choice == 4 {
                    iter.seek_before(&target).unwrap();
                    place = index.checked_sub(1);
                } else {
                    iter.seek(&target).unwrap();
                    place = Some(index);
                }
            }
            choice => {
                for _ in 0..numbers.below(80) {
                    let Some(at) = place.filter(|_| iter.valid()) else { break };
                    if choice < 9 {
                        iter.next().unwrap();
                        place = Some(at + 1);
                    } else {
                        iter.prev().unwrap();
                        place = at.checked_sub(1);
                    }
                }
            }
        }
        let want = place.and_then(|at| entries.get(at));
        assert_eq!(iter.valid(), want.is_some());
        if let Some((key, value)) = want {
            assert_eq!((iter.key(), iter.value()), (key.as_slice(), value.as_slice()));
        } else {
            place = None;
        }
    }
}

#[test]
fn random_tables_answer_as_their_sorted_entries_do() {
    let scans = [
        ScanOptions::default(),
        ScanOptions {
            readahead_bytes: 1 << 16,
            fill_cache: true,
            expected_bytes: 9000,
            ..ScanOptions::default()
        },
        ScanOptions { readahead_bytes: 3000, sequential: true, ..ScanOptions::default() },
    ];
    let mut seed = 0;
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        for (block_size_bytes, restart_interval) in [(1, 16), (200, 1), (700, 16), (4096, 3), (16 << 10, 16)]
        {
            seed += 1;
            let entries = random_entries(seed, 150, 300, 3000);
            let options = TableOptions {
                block_size_bytes,
                restart_interval,
                compression,
                filter_bits_per_key: if seed % 4 == 0 { 0 } else { 10 },
            };
            let (bytes, properties) = write(&entries, &[], options);
            let cache: Option<Arc<dyn BlockCache>> =
                if seed % 2 == 0 { Some(Arc::new(HalfCache::default())) } else { None };
            let table = open_file(Arc::new(BytesFile(bytes)), properties.tail_bytes, cache).unwrap();
            assert_eq!(table.properties(), &properties);
            assert!(table.verify().is_empty(), "{:?}", table.verify());
            let mut numbers = Numbers(seed);
            check_lookups(&table, &entries, &mut numbers);
            for scan in scans {
                check_moves(&table, &entries, scan, &mut numbers);
            }
        }
    }
}

#[test]
fn the_longest_keys_and_values_of_megabytes_round_trip() {
    let mut numbers = Numbers(3);
    let long = vec![b'k'; 64 * 1024];
    let longer = [&long[..64 * 1024 - 1], b"l"].concat();
    let keys: [&[u8]; 6] = [b"", b"\0", b"a", &long, &longer, b"\xff\xff"];
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let mut entries = Entries::new();
        for (number, key) in keys.iter().enumerate() {
            for (sequence, len) in [(9, 3 << 20), (8, 0), (7, 1 << 20), (2, 17)] {
                let len = if number % 2 == 0 { len } else { len / 1000 };
                entries.push(entry(&mut numbers, key, sequence, len));
            }
        }
        let (bytes, _) = write(&entries, &[], TableOptions { compression, ..TableOptions::default() });
        let table = open(&bytes).unwrap();
        assert!(table.verify().is_empty());
        for key in keys {
            for at in [1, 2, 7, 8, 9] {
                assert_eq!(lookup(&table, key, at), newest(&entries, key, at));
            }
        }
        let mut iter = table.iter(ScanOptions { readahead_bytes: 1 << 20, ..ScanOptions::default() });
        iter.seek_to_first().unwrap();
        assert!(rest(&mut iter).unwrap() == entries);
    }
}

#[test]
fn the_filter_spares_reads_and_counts_each_key_once() {
    let mut entries = Entries::new();
    for number in 0..5000u64 {
        for sequence in [3, 2, 1] {
            entries.push((internal(format!("key{number:06}").as_bytes(), sequence, 3), vec![1; 10]));
        }
    }
    let (bytes, _) = write(&entries, &[], TableOptions::default());
    let table = open(&bytes).unwrap();
    let mut io = ReadIo::default();
    for number in 0..20_000u64 {
        let key = format!("key{:06}x{number}", number % 4999).into_bytes();
        let key = LookupKey { user_key: &key, hash: hash64(&key), at: 9 };
        assert_eq!(table.get(&key, &mut io).unwrap(), None);
    }
    assert!(io.reads < 20_000 * 13 / 1000, "{} reads", io.reads);
    assert_eq!(io.reads + io.filter_negatives, 20_000);
    let bits = table.memory_bytes() * 8 / 5000;
    assert!(bits < 25, "{bits} bits of memory a key");
}
