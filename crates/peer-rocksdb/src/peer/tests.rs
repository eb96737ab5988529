//! The peer does what the store traits promise, puts its levels where the settings say, and reports errors.

use kelvin_base::SystemClock;

use super::*;
use crate::settings::SlowTier;

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
        has_statistics: true,
    }
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
    let capacity = 4 << 20;
    let mut settings = settings(&fast);
    settings.level1_bytes = capacity / 10;
    settings.level_ratio = 7.0;
    settings.slow = Some(SlowTier { dir: slow.clone(), fast_capacity: capacity, levels: 4 });
    let peer = Peer::open(&settings).unwrap();
    for number in 0..40_000u32 {
        // Spread over the key space, so that every flush overlaps every level.
        peer.put(&key(number.wrapping_mul(2_654_435_761) % 40_009), &[7; 400]).unwrap();
    }
    peer.settle(&SystemClock::new()).unwrap();
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
