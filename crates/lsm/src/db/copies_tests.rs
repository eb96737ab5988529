//! A store with `Copy` entries above their originals (DESIGN sections 4 and 6), written as a promotion will write them:
//! a table of them on the fast tier, put in force by one edit. Whatever is done then, the store answers as without.

use kelvin_base::key::Kind;
use kelvin_storage::fault::EIO;

use super::testing::{World, key, lay_floor, put_on_slow, value, write_table};
use super::*;
use crate::version::{FIRST_SLOW, LEVELS_FAST};

const LAST_FAST: usize = LEVELS_FAST - 1;

/// Where copies may be: what a boundary compaction leaves, and a run of the hot level.
const PLACES: [usize; 2] = [LAST_FAST, LEVELS_FAST];

/// Copies the newest versions of the keys into a table of `level`.
fn copy_up(db: &Db, numbers: impl Iterator<Item = usize>, level: usize) {
    write_table(db, numbers.map(key), Kind::Copy, level, &[]);
}

fn copies(db: &Db) -> u64 {
    db.levels().iter().map(|level| level.copies).sum()
}

/// Everything a scan shows, which must be the same in both directions and for gets.
fn scan(db: &Db) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut iter = db.iter(IterOptions::default()).unwrap();
    let mut all = Vec::new();
    iter.seek(b"key").unwrap();
    while iter.valid() && iter.key() != b"z" {
        all.push((iter.key().to_vec(), iter.value().to_vec()));
        iter.next().unwrap();
    }
    let mut back = Vec::new();
    iter.seek_for_prev(b"y").unwrap();
    while iter.valid() && iter.key() != b"a" {
        back.push((iter.key().to_vec(), iter.value().to_vec()));
        iter.prev().unwrap();
    }
    back.reverse();
    assert_eq!(all, back);
    for (key, value) in &all {
        assert_eq!(db.get(key).unwrap().as_deref(), Some(value.as_slice()));
    }
    all
}

fn pairs(numbers: impl Iterator<Item = usize>, round: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    numbers.map(|number| (key(number), value(number, round))).collect()
}

/// A store that promotes nothing by itself.
fn open(world: &World) -> Db {
    let mut options = world.options();
    options.advanced.hot_parts.promotion_by_flush = false;
    let db = Db::open(options).unwrap();
    lay_floor(&db, FIRST_SLOW);
    db
}

/// A store of 100 keys on the slow tier with every second one copied to the fast tier.
fn with_copies(world: &World, level: usize) -> Db {
    let db = open(world);
    put_on_slow(&db, 0..100, "one");
    copy_up(&db, (0..100).step_by(2), level);
    assert_eq!(copies(&db), 50);
    db
}

#[test]
fn a_copy_answers_from_the_fast_tier_and_every_key_is_seen_once() {
    for level in PLACES {
        let world = World::new();
        let db = with_copies(&world, level);
        assert_eq!(scan(&db), pairs(0..100, "one"));
        let many: Vec<Vec<u8>> = (0..100).map(key).collect();
        let answers = db.multi_get(&many.iter().map(Vec::as_slice).collect::<Vec<_>>());
        assert!(
            answers
                .into_iter()
                .zip(0..)
                .all(|(got, n)| got.unwrap().as_deref() == Some(&value(n, "one")[..]))
        );
        db.close().unwrap();
        let db = Db::open(world.options()).unwrap();
        // Nothing is in memory yet.
        world.slow.away(EIO);
        assert_eq!(db.get(&key(40)).unwrap().as_deref(), Some(&value(40, "one")[..]));
        assert!(db.get(&key(41)).is_err(), "it has no copy");
        world.slow.back();
        assert_eq!((copies(&db), scan(&db)), (50, pairs(0..100, "one")));
    }
}

#[test]
fn a_snapshot_passes_a_newer_copy_by_and_reads_the_copy_of_its_own_time() {
    for level in PLACES {
        let world = World::new();
        let db = open(&world);
        put_on_slow(&db, 0..50, "one");
        let old = db.snapshot();
        put_on_slow(&db, 0..50, "two");
        copy_up(&db, 0..50, level);
        let new = db.snapshot();
        db.put(&key(7), &value(7, "three")).unwrap();
        for compacted in [false, true] {
            for number in 0..50 {
                assert_eq!(old.get(&key(number)).unwrap().as_deref(), Some(&value(number, "one")[..]));
                assert_eq!(new.get(&key(number)).unwrap().as_deref(), Some(&value(number, "two")[..]));
            }
            let latest = if compacted { "after" } else { "before" };
            assert_eq!(db.get(&key(7)).unwrap().as_deref(), Some(&value(7, "three")[..]), "{latest}");
            db.compact_range(None, None).unwrap();
        }
        drop((old, new));
        db.compact_range(None, None).unwrap();
        assert_eq!(copies(&db), 0);
        assert_eq!(db.get(&key(8)).unwrap().as_deref(), Some(&value(8, "two")[..]));
    }
}

#[test]
fn what_is_deleted_above_a_copy_stays_deleted_on_its_way_down() {
    for level in PLACES {
        let world = World::new();
        let db = with_copies(&world, level);
        db.delete(&key(10)).unwrap();
        db.delete_range(&key(20), &key(30)).unwrap();
        db.put(&key(24), &value(24, "again")).unwrap();
        let mut wanted = pairs((0..100).filter(|n| *n != 10 && !(20..30).contains(n)), "one");
        wanted.push((key(24), value(24, "again")));
        wanted.sort();
        assert_eq!(scan(&db), wanted, "in the memtable");
        db.flush().unwrap();
        assert_eq!(scan(&db), wanted, "in level 0");
        db.compact_range(Some(&key(0)), Some(&key(25))).unwrap();
        assert_eq!(scan(&db), wanted, "half of the way");
        db.compact_range(None, None).unwrap();
        assert_eq!(scan(&db), wanted, "at the bottom");
        assert_eq!(copies(&db), 0);
    }
}

#[test]
fn a_compaction_to_the_slow_tier_drops_copies_and_keeps_their_originals() {
    let world = World::new();
    let db = with_copies(&world, LAST_FAST);
    let entries_before: u64 = db.levels().iter().map(|level| level.entries).sum();
    db.put(&key(1000), b"brings the level down with it").unwrap();
    db.delete(&key(1000)).unwrap();
    db.compact_range(None, None).unwrap();
    let entries: u64 = db.levels().iter().map(|level| level.entries).sum();
    assert_eq!((entries_before, entries, copies(&db)), (152, 102, 0));
    assert_eq!(scan(&db), pairs(0..100, "one"));
    assert!(db.check().is_well());
}

#[test]
fn check_and_checkpoint_take_copies_as_they_are() {
    let world = World::new();
    let db = with_copies(&world, LAST_FAST);
    assert!(db.check().is_well());
    db.checkpoint(Path::new("/copy-fast"), Some(Path::new("/copy-slow"))).unwrap();
    db.delete_range(&key(0), &key(100)).unwrap();
    db.close().unwrap();
    let copy = world.options_in("/copy-fast", "/copy-slow");
    assert!(crate::check::check(copy.clone(), &mut |_, _| {}).unwrap().is_well());
    let db = Db::open(copy).unwrap();
    assert_eq!((copies(&db), scan(&db)), (50, pairs(0..100, "one")));
    db.compact_range(None, None).unwrap();
    assert_eq!((copies(&db), scan(&db)), (0, pairs(0..100, "one")));
}
