//! Promise 8: with a full disk or at a capacity writes fail with `NoSpace` and do not hang, reads go on, no capacity
//! is exceeded, and freed room resumes writing without a restart.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kelvin_base::{Error, ErrorKind, Tier};
use kelvin_lsm::batch::WriteBatch;
use kelvin_lsm::db::{Db, IterOptions, WriteOptions};
use kelvin_lsm::options::Durability;

use crate::rig::{Rig, assert_filled, assert_says, fill, key, value, write_until_full};

/// Lets retries happen until a write succeeds.
fn write_in_time(rig: &Rig, db: &Db) {
    let mut last = None;
    for _ in 0..20 {
        rig.let_time_pass();
        match db.put(b"resumed", b"yes") {
            Ok(()) => {
                assert_eq!(db.get(b"resumed").unwrap().as_deref(), Some(&b"yes"[..]));
                return;
            }
            Err(error) => last = Some(error),
        }
    }
    panic!("writing did not resume: {last:?}");
}

#[test]
fn a_full_fast_disk_refuses_writes_and_room_resumes_them() {
    let rig = Rig::new();
    let options = rig.single().durability(Durability::Os);
    let db = Db::open(options.clone()).unwrap();
    fill(&db, 'a', 100);
    rig.fast_memory.set_capacity(rig.fast_memory.used_bytes() + (100 << 10));
    let (error, count) = write_until_full(&rig, &db, 'n');
    assert_says(&error, ErrorKind::NoSpace, &["free space"]);
    assert!(error.is_retryable());
    assert_eq!(error.on(), Some(Tier::Fast), "{error}");
    // A small one may still fit; neither hangs.
    let _either = db.put(b"again", b"x");
    assert!(db.put(b"again", &value(b"again").repeat(500)).is_err());
    assert_filled(&db, 'a', 100);
    assert_filled(&db, 'n', count);
    rig.fast_memory.set_capacity(u64::MAX);
    write_in_time(&rig, &db);
    db.flush().unwrap();
    db.close().unwrap();
    let db = Db::open(options).unwrap();
    assert_filled(&db, 'a', 100);
    assert_filled(&db, 'n', count);
    assert!(db.get(b"resumed").unwrap().is_some());
}

#[test]
fn a_full_fast_capacity_without_anywhere_to_go_refuses_writes_before_it_is_exceeded() {
    let rig = Rig::new();
    let capacity = 2 << 20;
    let db = Db::open(rig.single().fast_capacity(capacity)).unwrap();
    let (error, count) = write_until_full(&rig, &db, 'n');
    assert_says(&error, ErrorKind::NoSpace, &["fast tier", "fast_capacity"]);
    assert!(error.is_retryable());
    assert!(db.stats().used_bytes_max[0] <= capacity, "{}", db.stats().used_bytes_max[0]);
    assert!(rig.fast_memory.used_bytes() <= capacity, "{}", rig.fast_memory.used_bytes());
    assert_filled(&db, 'n', count);
    assert!(db.put(b"again", b"x").is_err(), "it fails again and does not hang");
    db.close().unwrap();
    // Reopened with more, it goes on.
    let db = Db::open(rig.single().fast_capacity(2 * capacity)).unwrap();
    assert_filled(&db, 'n', count);
    write_in_time(&rig, &db);
}

/// What is written again and again has room for its newest values, but not beside the ones that an iterator reads.
#[test]
fn a_writer_that_lacks_the_room_an_iterator_holds_is_told_so_after_a_while_and_goes_on_once_it_is_closed() {
    // Background work falls behind by so many writes.
    for (behind, stride) in [(1, 1), (100, 1), (500, 1), (2_000, 1), (1, 7), (100, 7), (500, 7), (2_000, 7)] {
        let rig = Rig::new();
        let db = Db::open(rig.single().fast_capacity(2 << 20)).unwrap();
        fill(&db, 'n', 1_500);
        db.compact_range(None, None).unwrap();
        let mut iterator = db.iter(IterOptions::default()).unwrap();
        let error = overwrite_until_full(&rig, &db, behind, stride);
        assert_says(
            &error,
            ErrorKind::NoSpace,
            &["fast tier", "that iterators, or a backup, hold", "close iterators"],
        );
        let mut count = 0;
        iterator.seek_to_first().unwrap();
        while iterator.valid() {
            count += 1;
            iterator.next().unwrap();
        }
        assert_eq!(count, 1_500);
        drop(iterator);
        write_in_time(&rig, &db);
        assert_filled(&db, 'n', 1_500);
        db.audit().unwrap();
    }
}

/// Puts `n0000`..`n1499` again and again, every `stride`th, until a put is refused; background work is done only when `behind`
/// more have been put since, or none can be.
fn overwrite_until_full(rig: &Rig, db: &Db, behind: usize, stride: usize) -> Error {
    let put = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let write = || {
            (0..150_000).find_map(|number| {
                let key = key('n', number * stride % 1_500);
                put.fetch_add(1, Ordering::SeqCst);
                if number % 5 > 0 {
                    return db.put(&key, &value(&key)).err();
                }
                // What is cut and merged in parts has range tombstones, too.
                let mut batch = WriteBatch::new();
                batch.delete_range(db.id(), &key, &[&key[..], b"+"].concat()).unwrap();
                batch.put(db.id(), &key, &value(&key)).unwrap();
                db.write(batch, &WriteOptions::default()).err()
            })
        };
        let writer = scope.spawn(write);
        let mut worked_at = 0;
        while !writer.is_finished() {
            let now = put.load(Ordering::SeqCst);
            if now >= worked_at + behind || db.stats().pressure.starts_with("stopped") {
                worked_at = now;
                rig.clock.advance(Duration::from_secs(2));
                rig.let_time_pass();
            }
            std::thread::yield_now();
        }
        writer.join().unwrap().expect("what the iterator holds leaves no room for as much again")
    })
}

#[test]
fn a_full_slow_capacity_is_not_exceeded_and_more_of_it_resumes_writing() {
    let rig = Rig::new();
    let capacity = 2 << 20;
    let db = Db::open(rig.tiered().slow_capacity(capacity)).unwrap();
    let (error, count) = write_until_full(&rig, &db, 'n');
    assert_says(&error, ErrorKind::NoSpace, &[]);
    assert!(rig.slow_memory.used_bytes() <= capacity, "{}", rig.slow_memory.used_bytes());
    assert!(rig.fast_memory.used_bytes() <= 1 << 20, "{}", rig.fast_memory.used_bytes());
    assert_filled(&db, 'n', count);
    db.close().unwrap();
    let db = Db::open(rig.tiered().slow_capacity(4 * capacity)).unwrap();
    write_in_time(&rig, &db);
    assert_filled(&db, 'n', count);
}

#[test]
fn compacting_by_hand_with_a_full_slow_tier_fails_and_does_not_hang() {
    let rig = Rig::new();
    let db = Db::open(rig.filled()).unwrap();
    fill(&db, 'b', 100);
    rig.slow_memory.set_capacity(rig.slow_memory.used_bytes());
    let error = db.compact_range(None, None).unwrap_err();
    assert_says(&error, ErrorKind::NoSpace, &[]);
    assert_filled(&db, 'b', 100);
    rig.slow_memory.set_capacity(u64::MAX);
    rig.clock.advance(Duration::from_secs(5));
    rig.let_time_pass();
    db.compact_range(None, None).unwrap();
    assert_filled(&db, 'b', 100);
}

#[test]
fn a_flush_that_finds_no_room_is_told_to_its_caller_and_works_when_asked_again() {
    let rig = Rig::new();
    let db = Db::open(rig.single()).unwrap();
    fill(&db, 'a', 50);
    rig.fast_memory.set_capacity(rig.fast_memory.used_bytes());
    let error = db.flush().unwrap_err();
    assert_says(&error, ErrorKind::NoSpace, &[]);
    assert_filled(&db, 'a', 50);
    rig.fast_memory.set_capacity(u64::MAX);
    // The retry's delay has not passed: who asks does not wait for it.
    db.flush().unwrap();
    assert_eq!(db.stats().background_error, None);
    assert_filled(&db, 'a', 50);
}

#[test]
fn a_store_is_not_made_on_a_full_disk_and_made_later() {
    let rig = Rig::new();
    rig.fast_memory.set_capacity(10);
    let error = crate::rig::refused(rig.tiered());
    assert_says(&error, ErrorKind::NoSpace, &["free space"]);
    rig.fast_memory.set_capacity(u64::MAX);
    fill(&Db::open(rig.tiered()).unwrap(), 'a', 10);
}

#[test]
fn the_fast_capacity_is_all_that_the_store_takes_of_a_disk_that_has_no_more() {
    for (capacity, value_bytes) in [(1 << 20, 300), (1 << 20, 3000), (2 << 20, 1000)] {
        let rig = Rig::new();
        let db = Db::open(rig.single().slow(crate::rig::SLOW).fast_capacity(capacity)).unwrap();
        rig.fast_memory.set_capacity(capacity);
        let keys = 3 * capacity / value_bytes;
        for number in 0..keys * 3 / 2 {
            // Most keys come again, in another order.
            let key = key('k', usize::try_from(number * 7919 % keys).unwrap());
            let value = vec![u8::try_from(number % 251).unwrap(); usize::try_from(value_bytes).unwrap()];
            db.put(&key, &value).unwrap_or_else(|error| panic!("{number}: {error}\n{:?}", db.levels()));
            if number % 13 == 0 {
                rig.executor.run_nth(0);
            }
        }
        rig.executor.run_all();
        let stats = db.stats();
        assert_eq!(stats.background_failures, 0, "the disk never refused anything");
        assert!(stats.used_bytes_max[0] <= capacity, "{} of {capacity}", stats.used_bytes_max[0]);
        assert!(stats.used_bytes[1] > capacity, "most lies on the slow tier");
    }
}

#[test]
fn a_batch_that_cannot_fit_the_fast_tier_is_refused_and_a_large_one_that_can_is_taken() {
    let rig = Rig::new();
    let capacity = 4 << 20;
    let db = Db::open(rig.single().slow(crate::rig::SLOW).fast_capacity(capacity)).unwrap();
    rig.fast_memory.set_capacity(capacity);
    fill(&db, 'a', 100);
    let batch = |letter: char, count: usize| {
        let mut batch = WriteBatch::new();
        for number in 0..count {
            batch.put(0, &key(letter, number), &[7; 1000]).unwrap();
        }
        batch
    };
    let error = db.write(batch('x', 3000), &WriteOptions::default()).unwrap_err();
    assert_says(&error, ErrorKind::NoSpace, &["fast tier"]);
    assert_eq!(db.get(&key('x', 0)).unwrap(), None);
    db.write(batch('y', 1000), &WriteOptions::default()).unwrap();
    rig.executor.run_all();
    db.write(batch('z', 1000), &WriteOptions::default()).unwrap();
    db.flush().unwrap();
    for letter in ['y', 'z'] {
        assert_eq!(db.get(&key(letter, 999)).unwrap().as_deref(), Some(&[7; 1000][..]));
    }
    assert_filled(&db, 'a', 100);
    assert!(db.stats().used_bytes_max[0] <= capacity);
}
