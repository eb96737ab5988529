//! What a suite has to run, spread over the processors.
//!
//! Tests: here.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

/// Does `work` for each of `numbers` on a thread for each processor. `take` is given what came of it in the order of the numbers, so it adds up
/// to the same on every machine.
///
/// # Errors
/// Of the first of the numbers whose work fails; those behind it may have been done or not.
pub(crate) fn spread<T: Send, E: Send>(
    numbers: Range<u64>,
    work: impl Fn(u64) -> Result<T, E> + Sync,
    mut take: impl FnMut(T),
) -> Result<(), E> {
    let next = AtomicU64::new(numbers.start);
    let (sender, receiver) = mpsc::channel();
    let worker = |sender: mpsc::Sender<(u64, Result<T, E>)>| {
        while let number = next.fetch_add(1, Ordering::Relaxed)
            && number < numbers.end
            && sender.send((number, work(number))).is_ok()
        {}
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for sender in vec![sender; threads] {
            let worker = &worker;
            scope.spawn(move || worker(sender));
        }
        let (mut due, mut early) = (numbers.start, BTreeMap::new());
        for (number, outcome) in receiver {
            early.insert(number, outcome);
            while let Some(outcome) = early.remove(&due) {
                // Nobody begins another one once nobody receives.
                take(outcome?);
                due += 1;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_of_all_is_given_in_order_whoever_is_done_first() {
        let first_is_last = (parking_lot::Mutex::new(false), parking_lot::Condvar::new());
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let work = |number: u64| {
            let (second_is_done, signal) = &first_is_last;
            match number {
                10 if threads > 1 => {
                    signal.wait_while(&mut second_is_done.lock(), |done| !*done);
                }
                11 => {
                    *second_is_done.lock() = true;
                    signal.notify_all();
                }
                _ => {}
            }
            Ok::<_, ()>(number)
        };
        let mut taken = Vec::new();
        spread(10..200, work, |number| taken.push(number)).unwrap();
        assert_eq!(taken, (10..200).collect::<Vec<_>>());
    }

    #[test]
    fn the_first_failure_is_told_and_ends_it() {
        let begun = AtomicU64::new(0);
        let work = |number| {
            begun.fetch_add(1, Ordering::Relaxed);
            if number % 7 == 6 { Err(number) } else { Ok(number) }
        };
        let mut taken = Vec::new();
        assert_eq!(spread(0..u64::MAX, work, |number| taken.push(number)), Err(6));
        assert_eq!(taken, [0, 1, 2, 3, 4, 5]);
    }
}
