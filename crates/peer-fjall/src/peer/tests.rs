//! The peer does what the store traits promise, settles, and reports errors.

use kelvin_base::SystemClock;

use super::*;

fn settings(dir: &std::path::Path) -> Settings {
    Settings {
        dir: dir.to_path_buf(),
        memtable_bytes: 256 << 10,
        cache_bytes: 1 << 20,
        block_bytes: 16 << 10,
        filter_bits_per_key: 10,
        table_bytes: 256 << 10,
        level0_tables: 4,
        level_ratio: 4.0,
        background_threads: 2,
    }
}

/// Tables of each level, from level 0 on.
fn level_tables(peer: &Peer) -> Vec<usize> {
    (0..7).map_while(|level| peer.records.tree.level_table_count(level)).collect()
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
fn settled_nothing_is_in_memory_no_level_is_too_large_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let peer = Peer::open(&settings(dir.path())).unwrap();
    for number in 0..40_000u32 {
        // Spread over the key space, so that every flush overlaps every level.
        peer.put(&key(number.wrapping_mul(2_654_435_761) % 40_009), &[7; 400]).unwrap();
    }
    peer.settle(&SystemClock::new()).unwrap();
    assert_eq!(peer.memtable_bytes(), 0);
    let tables = level_tables(&peer);
    assert!(tables[0] < 4 && tables.iter().skip(1).filter(|&&count| count > 0).count() > 1, "{tables:?}");
    peer.settle(&SystemClock::new()).unwrap();
    assert_eq!(level_tables(&peer), tables, "settled once more");
    let held = (0..40_009).filter(|&number| peer.get(&key(number)).unwrap().is_some()).count();
    let put: std::collections::HashSet<u32> =
        (0..40_000u32).map(|number| number.wrapping_mul(2_654_435_761) % 40_009).collect();
    assert_eq!(held, put.len());
}

#[test]
fn an_error_of_fjall_is_reported_in_its_words_and_bad_figures_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let _holder = Peer::open(&settings(dir.path())).unwrap();
    let error = Peer::open(&settings(dir.path())).unwrap_err();
    assert!(error.to_string().contains("fjall: FjallError: Locked"), "{error}");
    let other = tempfile::tempdir().unwrap();
    let bad = Settings { block_bytes: 100, ..settings(other.path()) };
    assert!(Peer::open(&bad).unwrap_err().to_string().contains("no blocks of 100 bytes"));
}
