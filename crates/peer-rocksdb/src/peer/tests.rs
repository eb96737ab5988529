//! The peer does what the store traits promise, puts its levels where the settings say, and reports errors.

use std::sync::atomic::{AtomicUsize, Ordering};

use kelvin_base::{HotKeys, HotTracker, KeyRange, NoTracker, SystemClock};

use super::*;
use crate::settings::{FlashSettings, SlowTier};
use crate::shim::slow_reads;

fn settings(dir: &std::path::Path) -> Settings {
    Settings {
        dir: dir.to_path_buf(),
        slow: None,
        write_buffer_bytes: 256 << 10,
        write_buffers: 3,
        cache_bytes: 1 << 20,
        block_bytes: 16 << 10,
        filter_bits_per_key: 10,
        table_bytes: 256 << 10,
        level1_bytes: 512 << 10,
        level_ratio: 4.0,
        level0_delay_stop: [8, 12],
        debt_delay_stop_bytes: Some([1 << 20, 2 << 20]),
        background_jobs: 2,
        flash: None,
        reput: None,
        has_statistics: true,
    }
}

/// Figures of a peer with two tiers in `dir`.
fn tiered(dir: &std::path::Path) -> Settings {
    let capacity = 4 << 20;
    let slow = SlowTier { dir: dir.join("slow"), fast_capacity: capacity, levels: 4 };
    Settings {
        level1_bytes: capacity / 10,
        level_ratio: 7.0,
        slow: Some(slow),
        ..settings(&dir.join("fast"))
    }
}

fn value(key: &[u8]) -> Vec<u8> {
    key.repeat(40)
}

/// 16 MB, each flush of which overlaps every level. Of the first `but` records none is written.
fn fill_but(peer: &Peer, but: u32) {
    let scrambled = (0..40_009).map(|number| number * 2_654_435_761 % 40_009);
    for number in scrambled.map(|number: u64| u32::try_from(number).unwrap()).filter(|&number| number >= but)
    {
        let key = key(number);
        peer.put(&key, &value(&key)).unwrap();
    }
    peer.settle(&SystemClock::new()).unwrap();
}

fn fill(peer: &Peer) {
    fill_but(peer, 0);
}

fn key(number: u32) -> Vec<u8> {
    format!("key{number:08}").into_bytes()
}

#[test]
fn what_was_put_is_got_scanned_updated_deleted_and_there_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let peer = Peer::open(&settings(dir.path())).unwrap();
    for number in 0..100 {
        peer.put(&key(number), &[1; 50]).unwrap();
    }
    peer.delete(&key(3)).unwrap();
    peer.update(&key(4), &mut |old| Some([old.unwrap_or_default(), b"+"].concat())).unwrap();
    peer.update(&key(5), &mut |_| None).unwrap();
    drop(peer);

    let peer = Peer::open(&settings(dir.path())).unwrap();
    assert_eq!(peer.get(&key(2)).unwrap().as_deref(), Some(&[1; 50][..]));
    assert_eq!(peer.get(&key(3)).unwrap(), None);
    assert_eq!(peer.get(&key(4)).unwrap().map(|value| value.len()), Some(51));
    let mut found = Vec::new();
    peer.scan(&key(1), 4, &mut |key, _| {
        found.push(key.to_vec());
        true
    })
    .unwrap();
    assert_eq!(found, [key(1), key(2), key(4), key(6)]);
}

#[test]
fn with_two_tiers_the_last_level_lies_on_the_slow_one_and_its_reads_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (fast, slow) = (dir.path().join("fast"), dir.path().join("slow"));
    let peer = Peer::open(&tiered(dir.path())).unwrap();
    fill(&peer);
    let tables = |dir: &std::path::Path| {
        #[expect(clippy::disallowed_methods, reason = "RocksDB's files")]
        let entries = std::fs::read_dir(dir).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|e| e == "sst")).count()
    };
    assert!(tables(&fast) > 0 && tables(&slow) > 20, "{} fast, {} slow", tables(&fast), tables(&slow));

    let before = peer.counters();
    for number in 0..40_009 {
        peer.get(&key(number)).unwrap();
    }
    let after = peer.counters();
    assert!(after.last_level_reads > before.last_level_reads, "{before:?} {after:?}");
    assert!(after.flush_bytes > Some(10 << 20) && after.compaction_write_bytes > Some(10 << 20), "{after:?}");
}

#[test]
fn an_error_of_rocksdb_is_reported_in_its_words() {
    let dir = tempfile::tempdir().unwrap();
    let _holder = Peer::open(&settings(dir.path())).unwrap();
    let error = Peer::open(&settings(dir.path())).unwrap_err();
    assert!(error.to_string().contains("RocksDB: IO error"), "{error}");
}

/// Calls what is hot what one says is.
#[derive(Debug)]
struct Said(std::ops::Range<Vec<u8>>);

impl HotTracker for Said {
    fn access(&self, _key: &[u8], _value_len: usize) {}
    fn is_hot(&self, key: &[u8]) -> bool {
        self.0.contains(&key.to_vec())
    }
    fn hot_size(&self, _range: KeyRange<'_>) -> u64 {
        0
    }
    fn hot_keys(&self, range: KeyRange<'_>) -> Box<dyn HotKeys + '_> {
        NO_TRACKER.hot_keys(range)
    }
    fn catch_up(&self) {}
    fn turn(&self) -> u64 {
        0
    }
}

static NO_TRACKER: NoTracker = NoTracker;

#[test]
fn a_read_of_the_slow_tier_is_told_from_others_and_only_hot_records_are_put_again() {
    let dir = tempfile::tempdir().unwrap();
    let reput: Option<Arc<dyn HotTracker>> = Some(Arc::new(Said(key(1_000)..key(1_400))));
    let peer = Peer::open(&Settings { reput, cache_bytes: 0, ..tiered(dir.path()) }).unwrap();
    fill(&peer);
    peer.put(&key(50_000), b"in the memtable").unwrap();
    let reads_of = |number: u32| {
        let before = slow_reads();
        assert!(peer.get(&key(number)).unwrap().is_some());
        slow_reads() - before
    };
    assert_eq!(reads_of(50_000), 0);
    let slow = (2_000..3_000).filter(|&number| reads_of(number) > 0).count();
    assert!(slow > 500 && slow < 1_000, "{slow} of 1000, the others lie on the fast tier");
    assert_eq!(peer.counters().reput, Some([0, 0]));

    let slow: Vec<u32> = (1_000..1_400).filter(|&number| reads_of(number) > 0).collect();
    let [records, bytes] = peer.counters().reput.unwrap();
    assert_eq!([records, bytes], [slow.len() as u64, slow.len() as u64 * (11 + 440)]);
    assert!(slow.iter().all(|&number| reads_of(number) == 0), "they have come to the top");
    assert_eq!(peer.counters().reput, Some([records, bytes]), "once is enough");
    peer.settle(&SystemClock::new()).unwrap();
    for number in 0..40_009 {
        assert_eq!(peer.get(&key(number)).unwrap().as_deref(), Some(&*value(&key(number))));
    }
}

#[test]
fn putting_again_never_hides_a_newer_write() {
    const KEYS: u32 = 512;
    const ROUNDS: u64 = 3;
    const STEPS: u64 = 3;
    const FIRST: u64 = 32;
    let dir = tempfile::tempdir().unwrap();
    let reput: Option<Arc<dyn HotTracker>> = Some(Arc::new(Said(key(0)..key(KEYS))));
    let settings = Settings { reput, cache_bytes: 0, has_statistics: false, ..tiered(dir.path()) };
    let peer = Peer::open(&settings).unwrap();
    fill(&peer);
    // What was filled in is shorter, and counts as version 0.
    let version = |number: u32| {
        let value = peer.get(&key(number)).unwrap().unwrap();
        value.get(..8).filter(|_| value.len() == 500).map_or(0, |n| u64::from_be_bytes(n.try_into().unwrap()))
    };
    for round in 1..=ROUNDS {
        // What was written before sinks, so that reads find it on the slow tier.
        fill_but(&peer, KEYS);
        let put_again = || peer.counters().reput.unwrap()[0];
        let (before, readers_done) = (put_again(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for reader in 0..4 {
                let readers_done = &readers_done;
                scope.spawn(move || {
                    let mut seen = [0; KEYS as usize];
                    for number in (0..KEYS).cycle().skip(reader * 128).take(4 * KEYS as usize) {
                        let read = version(number);
                        let known = seen[number as usize];
                        assert!(read >= known, "{number}: {read} after {known}");
                        seen[number as usize] = read;
                    }
                    readers_done.fetch_add(1, Ordering::Relaxed);
                });
            }
            scope.spawn(|| {
                // Into the midst of records being put again.
                while put_again() < before + FIRST && readers_done.load(Ordering::Relaxed) < 4 {
                    std::thread::yield_now();
                }
                for step in 1..=STEPS {
                    for number in 0..KEYS {
                        let mut value = vec![0; 500];
                        value[..8].copy_from_slice(&(round * 100 + step).to_be_bytes());
                        peer.put(&key(number), &value).unwrap();
                    }
                }
            });
        });
        let latest = (0..KEYS).filter(|&number| version(number) == round * 100 + STEPS).count();
        assert_eq!(latest, KEYS as usize, "round {round}");
    }
    let [records, _] = peer.counters().reput.unwrap();
    assert!(records >= ROUNDS * FIRST, "{records}");
}

#[test]
fn blocks_of_the_slow_tier_are_served_from_the_cache_on_the_fast_disk() {
    let dir = tempfile::tempdir().unwrap();
    let flash = Some(FlashSettings { dir: dir.path().join("fast/flash"), bytes: 2 << 20 });
    let peer = Peer::open(&Settings { flash, cache_bytes: 0, ..tiered(dir.path()) }).unwrap();
    fill(&peer);
    let read_all = || {
        let before = slow_reads();
        for number in 2_000..3_000 {
            assert_eq!(peer.get(&key(number)).unwrap().as_deref(), Some(&*value(&key(number))));
        }
        slow_reads() - before
    };
    let first = read_all();
    let counted = peer.counters();
    assert_eq!(read_all(), 0, "{first} before, {counted:?}");
    let flash = peer.counters().flash.unwrap();
    assert!(first > 20 && flash.hits > 500 && flash.failures == 0, "{first} slow, {flash:?}");
    assert_eq!(peer.counters().last_level_reads, counted.last_level_reads);
    // More than it can hold: it stays within its bytes, and all that is read is right.
    for number in (0..40_009).rev() {
        assert_eq!(peer.get(&key(number)).unwrap().as_deref(), Some(&*value(&key(number))));
    }
    let written = peer.counters().flash.unwrap().written_bytes;
    assert!(written > 4 << 20, "{written}");
    #[expect(clippy::disallowed_methods, reason = "the cache's files")]
    let entries = std::fs::read_dir(dir.path().join("fast/flash")).unwrap();
    let bytes: u64 = entries.map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes <= 2 << 20, "{bytes}");
}

#[test]
fn what_needs_a_slow_tier_is_refused_without_one() {
    let dir = tempfile::tempdir().unwrap();
    let reput: Option<Arc<dyn HotTracker>> = Some(Arc::new(NoTracker));
    let error = Peer::open(&Settings { reput, ..settings(dir.path()) }).unwrap_err();
    assert!(error.to_string().contains("no slow tier"), "{error}");
}
