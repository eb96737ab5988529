//! Model tests of the hand-over of accesses (`cargo xtask loom`).

use std::sync::Arc;

use kelvin_base::sync::atomic::Ordering;
use kelvin_base::sync::model;
use loom::thread;

use super::{AccessBuffer, Accesses, Taken};

/// A key with which a shard of the smallest size is full.
fn key(number: u8) -> Vec<u8> {
    vec![number; 1 << 10]
}

/// First bytes of the keys that were taken.
fn numbers(taken: &Taken) -> Vec<u8> {
    taken.each().filter_map(|(key, _)| key.first().copied()).collect()
}

/// Each access was taken once, or is counted as lost, and what waits is known.
fn check(buffer: &AccessBuffer, mut seen: Vec<u8>, all: u64) {
    let waiting: usize = buffer.full.lock().iter().map(Accesses::bytes).sum();
    assert_eq!(buffer.waiting_bytes.load(Ordering::Relaxed), waiting, "bytes that wait");
    seen.extend(numbers(&buffer.take_all()));
    let count = seen.len() as u64;
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len() as u64, count, "twice: {seen:?}");
    assert_eq!(count + buffer.lost(), all);
}

#[test]
fn loom_each_access_is_handed_over_once_while_others_take_what_is_full() {
    model(|| {
        let buffer = Arc::new(AccessBuffer::new(0));
        let other = Arc::clone(&buffer);
        let reader = thread::spawn(move || {
            other.push_from(0, &key(1), 1);
            other.push_from(0, &key(2), 1);
        });
        let seen = numbers(&buffer.take_full());
        reader.join().unwrap();
        check(&buffer, seen, 2);
    });
}

#[test]
fn loom_so_it_is_where_two_fill_one_shard_and_all_is_taken() {
    model(|| {
        let buffer = Arc::new(AccessBuffer::new(0));
        let readers = [1, 2].map(|number| {
            let buffer = Arc::clone(&buffer);
            thread::spawn(move || {
                buffer.push_from(0, &key(number), 1);
            })
        });
        let seen = numbers(&buffer.take_all());
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        check(&buffer, seen, 2);
    });
}
