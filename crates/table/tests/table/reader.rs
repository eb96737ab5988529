//! Tables written, opened, searched, scanned, cut off and flipped.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kelvin_base::key::{Kind, compare_internal};
use kelvin_base::{ErrorKind, InternalIterator, RangeTombstone, Result, hash64};
use kelvin_table::fuzz::{BytesFile, BytesSink};
use kelvin_table::{Compression, LookupKey, ReadIo, ScanOptions, Table, TableOptions, TableWriter};

use crate::common::{Entries, NUMBER, PATH, internal, open, open_file, write};

/// User keys with their versions, newest first.
type Versions = BTreeMap<Vec<u8>, Vec<(u64, Vec<u8>)>>;

/// `keys` user keys, each with one to three versions; values of up to `value_max` bytes.
fn versions(keys: u64, value_max: u64) -> Versions {
    let mut all = Versions::new();
    for number in 0..keys {
        let key = format!("user{:08}", number * 7).into_bytes();
        let versions = (0..=(number % 3)).rev().map(|version| {
            let len = usize::try_from((number * 37 + version * 11) % value_max.max(1)).unwrap();
            (number + version * 1000 + 1, vec![b'a' + u8::try_from(number % 26).unwrap(); len])
        });
        all.insert(key, versions.collect());
    }
    all
}

fn entries(all: &Versions) -> Entries {
    let of_key = |(key, versions): (&Vec<u8>, &Vec<(u64, Vec<u8>)>)| {
        let entry =
            |(sequence, value): &(u64, Vec<u8>)| (internal(key, *sequence, Kind::Value as u8), value.clone());
        versions.iter().map(entry).collect::<Entries>()
    };
    all.iter().flat_map(of_key).collect()
}

fn lookup(table: &Table, key: &[u8], at: u64) -> Result<Option<(u64, Vec<u8>)>> {
    let mut io = ReadIo::default();
    let key = LookupKey { user_key: key, hash: hash64(key), at };
    Ok(table.get(&key, &mut io)?.map(|entry| (entry.sequence, entry.value.to_vec())))
}

fn options(block_size_bytes: usize, compression: Compression) -> TableOptions {
    TableOptions { block_size_bytes, compression, ..TableOptions::default() }
}

#[test]
fn every_version_is_found_at_its_moment_whatever_the_blocks_and_compression() {
    let all = versions(700, 120);
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        for block_size in [64, 1024, 16 * 1024] {
            let (bytes, properties) = write(&entries(&all), &[], options(block_size, compression));
            let table = open_file(Arc::new(BytesFile(bytes)), properties.tail_bytes, None).unwrap();
            assert_eq!(table.properties(), &properties);
            for (key, versions) in &all {
                for (sequence, value) in versions {
                    assert_eq!(lookup(&table, key, *sequence).unwrap(), Some((*sequence, value.clone())));
                }
                let oldest = versions.last().unwrap().0;
                assert_eq!(lookup(&table, key, oldest - 1).unwrap(), None);
            }
            assert_eq!(lookup(&table, b"user00000001", 9999).unwrap(), None);
            assert_eq!(lookup(&table, b"zzz", 9999).unwrap(), None);
            assert!(table.verify().is_empty());
        }
    }
}

#[test]
fn a_key_whose_versions_fill_many_blocks_is_found_at_every_moment() {
    let mut all = Versions::new();
    all.insert(b"a".to_vec(), vec![(5, vec![1; 50])]);
    all.insert(b"k".to_vec(), (1..=200).rev().map(|sequence| (sequence, vec![2; 50])).collect());
    all.insert(b"z".to_vec(), vec![(7, vec![3; 50])]);
    let (bytes, _) = write(&entries(&all), &[], options(256, Compression::None));
    let table = open(&bytes).unwrap();
    for at in 1..=210 {
        assert_eq!(lookup(&table, b"k", at).unwrap().map(|(sequence, _)| sequence), Some(at.min(200)));
    }
    assert_eq!(lookup(&table, b"z", 100).unwrap().map(|(sequence, _)| sequence), Some(7));
}

#[test]
fn a_scan_agrees_with_the_entries_in_both_directions_and_from_every_key() {
    let all = versions(300, 60);
    let flat = entries(&all);
    for scan in [
        ScanOptions::default(),
        ScanOptions { readahead_bytes: 4096, ..ScanOptions::default() },
        ScanOptions { readahead_bytes: 4096, expected_bytes: 6000, ..ScanOptions::default() },
        ScanOptions { readahead_bytes: 4096, expected_bytes: usize::MAX, ..ScanOptions::default() },
        ScanOptions { readahead_bytes: 2000, sequential: true, ..ScanOptions::default() },
    ] {
        let (bytes, _) = write(&entries(&all), &[], options(512, Compression::Lz4));
        let table = open(&bytes).unwrap();
        let mut iter = table.iter(scan);
        iter.seek_to_first().unwrap();
        for (key, value) in &flat {
            assert!(iter.valid());
            assert_eq!((iter.key(), iter.value()), (key.as_slice(), value.as_slice()));
            iter.next().unwrap();
        }
        assert!(!iter.valid());
        iter.seek_to_last().unwrap();
        for (key, value) in flat.iter().rev() {
            assert!(iter.valid());
            assert_eq!((iter.key(), iter.value()), (key.as_slice(), value.as_slice()));
            iter.prev().unwrap();
        }
        assert!(!iter.valid());
        for (index, (key, _)) in flat.iter().enumerate() {
            iter.seek(key).unwrap();
            assert_eq!(iter.key(), key);
            iter.seek_before(key).unwrap();
            assert_eq!(
                iter.valid().then(|| iter.key().to_vec()),
                index.checked_sub(1).map(|i| flat[i].0.clone())
            );
            if iter.valid() {
                iter.next().unwrap();
                assert_eq!(iter.key(), key);
            }
        }
    }
}

#[test]
fn what_a_scan_is_expected_to_want_is_read_at_once_and_what_follows_block_by_block() {
    let all = versions(300, 60);
    let (bytes, _) = write(&entries(&all), &[], options(512, Compression::None));
    let table = open(&bytes).unwrap();
    let read_sizes = |scan: ScanOptions| {
        let mut iter = table.iter(scan);
        let mut sizes = Vec::new();
        iter.seek_to_first().unwrap();
        while iter.valid() {
            let io = iter.take_io();
            assert!(io.reads < 2);
            sizes.extend((io.reads > 0).then_some(io.bytes));
            iter.next().unwrap();
        }
        sizes
    };
    let blocks = read_sizes(ScanOptions::default());
    let scan = ScanOptions { readahead_bytes: 1 << 20, expected_bytes: 5000, ..ScanOptions::default() };
    let reads = read_sizes(scan);
    let ahead = (1..blocks.len()).find(|&count| blocks[..count].iter().sum::<u64>() == reads[0]).unwrap();
    assert!((5000..6500).contains(&reads[0]), "{}", reads[0]);
    assert_eq!(reads[1], blocks[ahead], "one block: nobody knows how much more is wanted");
    assert!(reads[2] > 2 * blocks[ahead + 1], "then as the scan shows");

    let mut back = table.iter(scan);
    back.seek_to_last().unwrap();
    back.prev().unwrap();
    assert_eq!(back.take_io().reads, 1, "the last block is all there is ahead of it");
}

#[test]
fn range_tombstones_widen_the_table_and_can_stand_alone() {
    let stone = |start: &'static [u8], end: &'static [u8], sequence| RangeTombstone {
        start: Bytes::from_static(start),
        end: Bytes::from_static(end),
        sequence,
    };
    let (bytes, properties) = write(
        &entries(&versions(10, 10)),
        &[stone(b"a", b"c", 50), stone(b"x", b"zz", 60)],
        TableOptions::default(),
    );
    assert_eq!((&properties.smallest[..], &properties.largest[..]), (b"a".as_slice(), b"zz".as_slice()));
    assert!(properties.largest_exclusive);
    assert_eq!(properties.sequence_max, 2009);
    let table = open(&bytes).unwrap();
    assert_eq!(table.tombstones().unwrap().max_covering(b"b", 100), 50);
    let (bytes, _) = write(&Entries::new(), &[stone(b"a", b"c", 50)], TableOptions::default());
    let alone = open(&bytes).unwrap();
    assert_eq!(lookup(&alone, b"b", 100).unwrap(), None);
    assert!(alone.verify().is_empty());
    let mut iter = alone.iter(ScanOptions::default());
    iter.seek_to_first().unwrap();
    assert!(!iter.valid());
}

#[test]
fn no_flip_and_no_cut_gives_a_wrong_answer_or_a_panic() {
    let all = versions(60, 40);
    let (good, properties) = write(&entries(&all), &[], options(256, Compression::None));
    let read_everything = |bytes: &[u8]| -> Result<()> {
        let table = open(bytes)?;
        for (key, versions) in &all {
            for (sequence, value) in versions {
                assert_eq!(lookup(&table, key, *sequence)?, Some((*sequence, value.clone())));
            }
        }
        let mut iter = table.iter(ScanOptions::default());
        iter.seek_to_first()?;
        let mut count = 0;
        while iter.valid() {
            count += 1;
            iter.next()?;
        }
        assert_eq!(count, properties.entries);
        Ok(())
    };
    read_everything(&good).unwrap();
    for byte in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[byte] ^= 1 << bit;
            let error = read_everything(&bad).expect_err("every bit is under a checksum");
            assert!(matches!(error.kind(), ErrorKind::Corruption | ErrorKind::InvalidArgument), "{error}");
            assert!(error.path().is_some(), "{error}");
        }
    }
    for cut in 0..good.len() {
        assert_eq!(read_everything(&good[..cut]).unwrap_err().kind(), ErrorKind::Corruption, "cut at {cut}");
    }
}

#[test]
fn a_table_under_another_number_and_a_newer_format_are_refused_by_name_and_a_damaged_version_is_none() {
    let (bytes, _) = write(&entries(&versions(5, 5)), &[], TableOptions::default());
    let file = Arc::new(BytesFile(bytes.clone()));
    let other = Table::open(file, Path::new(PATH), NUMBER + 1, bytes.len() as u64, 0, None).unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Corruption);
    // The footer ends: checksum, version, magic.
    let mut newer = bytes;
    let at = newer.len() - 12;
    newer[at] = 2;
    let damaged = open(&newer).unwrap_err();
    assert_eq!(damaged.kind(), ErrorKind::Corruption, "all else says that it is of this format: {damaged}");
    newer[at - 8] ^= 1;
    let error = open(&newer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("newer format"), "{error}");
}

#[test]
fn entries_out_of_order_are_refused() {
    let mut writer =
        TableWriter::new(Box::new(BytesSink::default()), Path::new(PATH), NUMBER, TableOptions::default());
    let internal = |key: &[u8], sequence| internal(key, sequence, Kind::Value as u8);
    writer.add(&internal(b"b", 5), b"").unwrap();
    assert!(writer.add(&internal(b"b", 5), b"").is_err());
    assert!(writer.add(&internal(b"b", 6), b"").is_err());
    assert!(writer.add(&internal(b"a", 9), b"").is_err());
    writer.add(&internal(b"b", 4), b"").unwrap();
    assert!(compare_internal(&internal(b"b", 5), &internal(b"b", 4)).is_lt());
}
