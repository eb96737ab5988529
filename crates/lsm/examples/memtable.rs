//! Times the memtable: nanoseconds per insert, get and step. `cargo run --release -p kelvin-lsm --example memtable`.
//!
//! 64 MiB of entries with 24-byte keys; medians of five runs. Prints one line per operation and value length.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use kelvin_base::{Clock, InternalIterator, Kind, SystemClock};
use kelvin_lsm::memtable::MemTable;

const BYTES: usize = 64 << 20;
const RUNS: usize = 5;

fn key(index: u64, scrambled: bool) -> [u8; 24] {
    let number = if scrambled { index.wrapping_mul(0x9e37_79b9_7f4a_7c15) } else { index };
    let mut key = *b"user00000000000000000000";
    let digits = format!("{number:020}");
    key[4..].copy_from_slice(digits.as_bytes());
    key
}

/// Nanoseconds per one of `count` operations.
fn time(clock: &dyn Clock, count: usize, work: impl FnOnce()) -> u128 {
    let start: Duration = clock.now();
    work();
    (clock.now() - start).as_nanos() / count as u128
}

fn median(mut all: Vec<u128>) -> u128 {
    all.sort_unstable();
    all[all.len() / 2]
}

fn measure(clock: &dyn Clock, value_len: usize) {
    let count = BYTES / (24 + value_len);
    let value = vec![7; value_len];
    let random: Vec<_> = (0..count as u64).map(|index| key(index, true)).collect();
    let ordered: Vec<_> = (0..count as u64).map(|index| key(index, false)).collect();
    let kind = Kind::Value as u8;
    let mut rows: [Vec<u128>; 7] = Default::default();
    let mut overhead = 0;
    for _ in 0..RUNS {
        let memtable = Arc::new(MemTable::new(1, 1));
        rows[0].push(time(clock, count, || {
            for (key, sequence) in random.iter().zip(1..) {
                memtable.insert(key, sequence, kind, &value);
            }
        }));
        overhead = memtable.memory_bytes() / count as u64 - (24 + value_len) as u64;
        rows[1].push(time(clock, count, || {
            for key in random.iter().rev() {
                black_box(memtable.get(black_box(key), u64::MAX >> 8).is_some());
            }
        }));
        rows[2].push(time(clock, count, || {
            for index in 0..count as u64 {
                black_box(memtable.get(&key(index, true)[..23], u64::MAX >> 8).is_some());
            }
        }));
        rows[3].push(time(clock, count, || {
            let mut iter = memtable.iter();
            let _ = iter.seek_to_first();
            while iter.valid() {
                black_box(iter.key());
                let _ = iter.next();
            }
        }));
        drop(memtable);
        let memtable = MemTable::new(1, 1);
        rows[4].push(time(clock, count, || {
            let mut inserter = memtable.inserter();
            for (key, sequence) in ordered.iter().zip(1..) {
                inserter.insert(key, sequence, kind, &value);
            }
        }));
        let memtable = MemTable::new(1, 1);
        rows[5].push(time(clock, count, || {
            let mut inserter = memtable.inserter();
            for (key, sequence) in random.iter().zip(1..) {
                inserter.insert(key, sequence, kind, &value);
            }
        }));
        let memtable = MemTable::new(1, 1);
        rows[6].push(time(clock, count, || two_threads(&memtable, &random, &value)));
    }
    let names = [
        "insert, random",
        "get, present",
        "get, absent",
        "step forward",
        "insert, ordered, hinted",
        "insert, random, hinted",
        "insert, random, 2 threads",
    ];
    for (name, all) in names.iter().zip(rows) {
        println!("{value_len:>5} B values  {name:<26} {:>6} ns", median(all));
    }
    println!("{value_len:>5} B values  {:<26} {overhead:>6} B", "overhead per entry");
}

fn two_threads(memtable: &MemTable, keys: &[[u8; 24]], value: &[u8]) {
    let (low, high) = keys.split_at(keys.len() / 2);
    std::thread::scope(|scope| {
        for (half, first) in [(low, 1), (high, keys.len() as u64)] {
            scope.spawn(move || {
                for (key, sequence) in half.iter().zip(first..) {
                    memtable.insert(key, sequence, Kind::Value as u8, value);
                }
            });
        }
    });
}

fn main() {
    let clock = SystemClock::new();
    for value_len in [1000, 176] {
        measure(&clock, value_len);
    }
}
