//! Damaged tables: flipped, cut, misdirected, read wrongly once, and made of random parts.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{Entries, Numbers, entry, internal, open, open_file, rest, write};
use bytes::Bytes;
use kelvin_base::coding::put_bytes;
use kelvin_base::{ErrorKind, InternalIterator, RangeTombstone, Result, hash64};
use kelvin_storage::{AlignedBuf, ReadFile};
use kelvin_table::block::{BlockBuilder, common_len};
use kelvin_table::fuzz::{self, BytesFile};
use kelvin_table::{Compression, LookupKey, ReadIo, ScanOptions, Table, TableOptions};

fn sample(compression: Compression) -> (Vec<u8>, Entries) {
    let mut numbers = Numbers(1);
    let entries: Entries = (0..40u64)
        .map(|n| entry(&mut numbers, format!("user{:04}", n / 2 * 3).as_bytes(), 9 - n % 2, 30))
        .collect();
    let stone =
        RangeTombstone { start: Bytes::from_static(b"a"), end: Bytes::from_static(b"user0009"), sequence: 4 };
    let options = TableOptions { block_size_bytes: 300, compression, ..TableOptions::default() };
    let (bytes, _) = write(&entries, &[stone], options);
    (bytes, entries)
}

fn read_everything(bytes: &[u8]) -> Result<Entries> {
    let table = open(bytes)?;
    let mut iter = table.iter(ScanOptions { readahead_bytes: 1 << 16, ..ScanOptions::default() });
    iter.seek_to_first()?;
    rest(&mut iter)
}

#[test]
fn every_flipped_bit_is_found_by_reading_and_by_verifying() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let (good, entries) = sample(compression);
        assert_eq!(read_everything(&good).unwrap(), entries);
        for byte in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[byte] ^= 1 << bit;
                let error = read_everything(&bad).expect_err("every bit is under a checksum");
                assert!(
                    matches!(error.kind(), ErrorKind::Corruption | ErrorKind::InvalidArgument),
                    "{error}"
                );
                assert!(
                    error.path().is_some() && error.at().is_some_and(|at| at < good.len() as u64)
                        || byte + 12 >= good.len(),
                    "{error}"
                );
                if let Ok(table) = open(&bad) {
                    let damage = table.verify();
                    assert_eq!(damage.len(), 1, "{damage:?}");
                    let offset = damage[0].at().unwrap();
                    let (first, last) = table.keys_of_block(offset).unwrap();
                    assert!(first <= last && offset <= byte as u64);
                }
            }
        }
    }
}

#[test]
fn a_table_cut_or_lengthened_anywhere_is_refused() {
    let (good, _) = sample(Compression::Lz4);
    for cut in 0..good.len() {
        assert_eq!(read_everything(&good[..cut]).unwrap_err().kind(), ErrorKind::Corruption, "cut at {cut}");
    }
    for more in [1, 8, 64, 4096] {
        let mut longer = good.clone();
        longer.resize(good.len() + more, 0);
        assert_eq!(read_everything(&longer).unwrap_err().kind(), ErrorKind::Corruption);
    }
}

#[test]
fn a_block_read_from_another_place_or_another_table_is_refused() {
    let options = TableOptions { block_size_bytes: 1, ..TableOptions::default() };
    let value = |byte: u8| vec![byte; 50];
    let entries: Entries = (1..=4u8).map(|n| (internal(b"k", 10 - u64::from(n), 3), value(n))).collect();
    let (good, _) = write(&entries, &[], options);
    let table = open(&good).unwrap();
    let block = usize::try_from(table.properties().size_bytes - table.properties().tail_bytes).unwrap() / 4;
    let mut swapped = good.clone();
    swapped[..block].copy_from_slice(&good[block..2 * block]);
    let error = read_everything(&swapped).unwrap_err();
    assert_eq!((error.kind(), error.at()), (ErrorKind::Corruption, Some(0)));
    assert!(error.expected_found().is_some());
}

/// Gives wrong bytes at every read of even number.
#[derive(Debug)]
struct Lying {
    file: BytesFile,
    reads: AtomicU64,
    always: bool,
}

impl ReadFile for Lying {
    fn read_at(&self, offset: u64, len: usize, buf: &mut AlignedBuf) -> std::io::Result<Range<usize>> {
        let range = self.file.read_at(offset, len, buf)?;
        if self.reads.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) || self.always {
            buf.as_mut_slice()[range.start + len / 2] ^= 0x10;
        }
        Ok(range)
    }
    fn len(&self) -> std::io::Result<u64> {
        self.file.len()
    }
}

#[test]
fn what_a_second_look_finds_in_order_is_served_and_nothing_else() {
    let (good, entries) = sample(Compression::None);
    let lying = |always| Arc::new(Lying { file: BytesFile(good.clone()), reads: AtomicU64::new(0), always });
    let tail_bytes = open(&good).unwrap().properties().tail_bytes;
    let table = open_file(lying(false), tail_bytes, None).unwrap();
    let mut io = ReadIo::default();
    let key = LookupKey { user_key: b"user0003", hash: hash64(b"user0003"), at: 9 };
    assert!(table.get(&key, &mut io).unwrap().is_some());
    assert_eq!(io.reads, 2);
    let mut iter =
        table.iter(ScanOptions { readahead_bytes: 1 << 16, sequential: true, ..ScanOptions::default() });
    iter.seek_to_first().unwrap();
    assert_eq!(rest(&mut iter).unwrap(), entries);
    assert!(table.verify().is_empty());
    let error = open_file(lying(true), tail_bytes, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
}

#[test]
fn of_a_damaged_table_every_sound_block_is_read_and_the_others_are_passed_over() {
    let (good, entries) = sample(Compression::None);
    let whole = open(&good).unwrap();
    let mut blocks = 0;
    while let Some((handle, before, last)) = whole.block_place(blocks) {
        let mut bad = good.clone();
        bad[usize::try_from(handle.offset).unwrap() + 2] ^= 1;
        let table = open(&bad).unwrap();
        let mut iter = table.iter(ScanOptions::default());
        let (mut found, mut passed) = (Entries::new(), Vec::new());
        let mut outcome = iter.seek_to_first();
        loop {
            let failed = outcome.is_err();
            let passed_before = passed.len();
            while let Some((block, error)) = iter.pass_damaged_block() {
                assert_eq!((block, error.at()), (blocks, Some(handle.offset)));
                passed.push(block);
            }
            assert_eq!(failed, passed.len() > passed_before);
            if !iter.valid() {
                break;
            }
            found.push((iter.key().to_vec(), iter.value().to_vec()));
            outcome = iter.next();
        }
        assert_eq!(passed, [blocks]);
        let is_missing = |entry: &&(Vec<u8>, Vec<u8>)| !found.contains(entry);
        let missing: Entries = entries.iter().filter(is_missing).cloned().collect();
        let is_in = |key: &[u8]| before.as_slice() <= key && key <= last.as_slice();
        assert!(!missing.is_empty() && missing.iter().all(|(key, _)| is_in(&key[..key.len() - 8])));
        assert_eq!(found.len() + missing.len(), entries.len());
        blocks += 1;
    }
    assert!(blocks > 3, "{blocks}");
}

#[test]
fn a_table_opens_without_what_is_damaged_of_its_tail_as_long_as_its_index_is_sound() {
    let (good, entries) = sample(Compression::None);
    let size = good.len() as u64;
    let tail_bytes = open(&good).unwrap().properties().tail_bytes;
    let path = std::path::Path::new(crate::common::PATH);
    let mut opened = [0; 4];
    for at in good.len() - usize::try_from(tail_bytes).unwrap()..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        let file: Arc<dyn ReadFile> = Arc::new(BytesFile(bad));
        let Ok(remains) = Table::open_remains(file, path, crate::common::NUMBER, size, tail_bytes) else {
            opened[3] += 1;
            continue;
        };
        let damaged = [&remains.filter, &remains.tombstones, &remains.properties];
        let part = damaged.iter().position(|part| part.is_some()).unwrap();
        assert_eq!(damaged.iter().filter(|part| part.is_some()).count(), 1, "byte {at}");
        assert_eq!(remains.table.tombstones().is_none(), part == 1);
        opened[part] += 1;
        let mut iter = Arc::new(remains.table).iter(ScanOptions::default());
        iter.seek_to_first().unwrap();
        assert_eq!(rest(&mut iter).unwrap(), entries, "byte {at}");
    }
    assert!(opened.iter().all(|count| *count > 8), "{opened:?}");
}

#[test]
fn a_failed_scan_stays_failed() {
    let (mut bad, _) = sample(Compression::None);
    bad[700] ^= 1;
    let table = open(&bad).unwrap();
    let mut iter = table.iter(ScanOptions::default());
    iter.seek_to_first().unwrap();
    let error = loop {
        if let Err(error) = iter.next() {
            break error;
        }
    };
    assert!(!iter.valid());
    for again in [iter.next(), iter.prev(), iter.seek_to_first(), iter.seek(&internal(b"user", 9, 3))] {
        assert_eq!(again.unwrap_err().to_string(), error.to_string());
    }
    assert!(!iter.valid());
}

#[test]
fn random_bytes_and_random_parts_are_refused_or_read_without_a_panic() {
    let (good, entries) = sample(Compression::None);
    let mut numbers = Numbers(5);
    for _ in 0..300 {
        let len = numbers.index(300);
        let bytes = numbers.bytes(len);
        fuzz::parts(&bytes);
        drop(fuzz::file(&bytes));
        drop(fuzz::signed(&bytes));
    }
    // A sound block and its separator, then changed here and there, under good checksums.
    let block = {
        let mut builder = BlockBuilder::new(4);
        let mut before: &[u8] = &[];
        for (internal, value) in &entries {
            let (key, trailer) = kelvin_base::key::split_internal(internal).unwrap();
            builder.add(key, common_len(before, key), trailer, value);
            before = key;
        }
        std::mem::take(builder.finish())
    };
    let mut input = Vec::new();
    for part in [b"".as_slice(), b"\0", b"", &block] {
        put_bytes(&mut input, part);
    }
    input.push(0);
    put_bytes(&mut input, b"v");
    input.extend_from_slice(&0u64.to_le_bytes());
    fuzz::signed(&input).unwrap();
    for _ in 0..3000 {
        let mut changed = input.clone();
        for _ in 0..=numbers.below(3) {
            let at = numbers.index(changed.len());
            changed[at] = u8::try_from(numbers.below(256)).unwrap();
        }
        fuzz::parts(&changed);
        drop(fuzz::signed(&changed));
    }
    for at in 0..good.len() {
        fuzz::parts(&good[at..]);
    }
}

#[test]
fn opening_takes_one_read_and_a_lookup_at_most_one() {
    let mut entries = Entries::new();
    for number in 0..30_000u64 {
        entries.push((internal(format!("key{number:08}").as_bytes(), 5, 3), vec![1; 30]));
    }
    let (bytes, properties) =
        write(&entries, &[], TableOptions { block_size_bytes: 512, ..TableOptions::default() });
    assert!(properties.tail_bytes > 64 * 1024, "more than a guess reads");
    let reads = |tail_bytes| {
        let file = Arc::new(Counting { file: BytesFile(bytes.clone()), reads: AtomicU64::new(0) });
        let table = open_file(Arc::clone(&file) as Arc<dyn ReadFile>, tail_bytes, None).unwrap();
        (table, file)
    };
    let (table, file) = reads(properties.tail_bytes);
    assert_eq!(file.reads.load(Ordering::Relaxed), 1);
    for (internal, _) in entries.iter().step_by(97) {
        let before = file.reads.load(Ordering::Relaxed);
        let user_key = kelvin_base::key::user_key(internal);
        let key = LookupKey { user_key, hash: hash64(user_key), at: 9 };
        assert!(table.get(&key, &mut ReadIo::default()).unwrap().is_some());
        assert_eq!(file.reads.load(Ordering::Relaxed), before + 1);
    }
    assert_eq!(reads(0).1.reads.load(Ordering::Relaxed), 2);
    for backward in [false, true] {
        let before = file.reads.load(Ordering::Relaxed);
        let mut iter = table.iter(ScanOptions { readahead_bytes: 256 * 1024, ..ScanOptions::default() });
        if backward {
            iter.seek_to_last().unwrap()
        } else {
            iter.seek_to_first().unwrap()
        }
        while iter.valid() {
            if backward { iter.prev().unwrap() } else { iter.next().unwrap() }
        }
        let reads = file.reads.load(Ordering::Relaxed) - before;
        let blocks = properties.data_blocks;
        assert!(reads < 20, "{reads} reads for {blocks} blocks");
    }
}

#[derive(Debug)]
struct Counting {
    file: BytesFile,
    reads: AtomicU64,
}

impl ReadFile for Counting {
    fn read_at(&self, offset: u64, len: usize, buf: &mut AlignedBuf) -> std::io::Result<Range<usize>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.file.read_at(offset, len, buf)
    }
    fn len(&self) -> std::io::Result<u64> {
        self.file.len()
    }
}
