//! Tests of the world: order, time, locks held while time passes, the shipped thread pool, and waits that never end.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use kelvin_base::sync::{self, Condvar, Mutex};
use kelvin_base::{Executor, Lane, Signal, ThreadPool};

use super::*;

const MS: Duration = Duration::from_millis(1);

#[test]
fn time_passes_when_all_wait_and_the_first_to_wake_goes_first() {
    let told = World::run(|world| {
        let told = Mutex::new(Vec::new());
        sync::scope(|scope| {
            let threads: Vec<_> = [3u32, 1, 2]
                .into_iter()
                .map(|millis| {
                    let told = &told;
                    scope.spawn(move || {
                        for _ in 0..2 {
                            world.sleep(MS * millis);
                            told.lock().push((world.now().as_millis(), millis));
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        told.into_inner()
    });
    // Of two that wake at one moment the one goes first that began to sleep first.
    assert_eq!(told, [(1, 1), (2, 2), (2, 1), (3, 3), (4, 2), (6, 3)]);
}

#[test]
fn a_lock_may_be_held_while_time_passes() {
    let told = World::run(|world| {
        let shared = Mutex::new(Vec::new());
        sync::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|name| {
                    let shared = &shared;
                    scope.spawn(move || {
                        let mut held = shared.lock();
                        world.sleep(MS);
                        held.push((name, world.now().as_millis()));
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        shared.into_inner()
    });
    assert_eq!(told, [(0, 1), (1, 2), (2, 3)]);
}

#[test]
fn who_waits_is_woken_in_order_or_when_its_time_is_over() {
    let told = World::run(|world| {
        let (count, changed, told) = (Mutex::new(0), Condvar::new(), Mutex::new(Vec::new()));
        sync::scope(|scope| {
            let wait = |name: &'static str, at_most: Duration| {
                let (count, changed, told) = (&count, &changed, &told);
                scope.spawn(move || {
                    let mut count = count.lock();
                    changed.wait_for(&mut count, at_most);
                    told.lock().push((name, world.now().as_millis(), *count));
                })
            };
            let threads = [wait("late", MS * 9), wait("later", MS * 8), wait("soon", MS)];
            world.sleep(MS * 2);
            for _ in 0..2 {
                *count.lock() += 1;
                changed.notify_one();
                world.sleep(MS);
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        told.into_inner()
    });
    assert_eq!(told, [("soon", 1, 0), ("late", 2, 1), ("later", 3, 2)]);
}

#[test]
fn the_shipped_pool_runs_jobs_and_delays_them() {
    let told = World::run(|world| {
        let clock = Arc::new(WorldClock::new(Arc::clone(world), 0));
        let pool: Arc<dyn Executor> = Arc::new(ThreadPool::on(clock, 1, 2, 1).unwrap());
        let (told, signal) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Signal::new()));
        let job = |name: &'static str| {
            let (world, told, signal) = (Arc::clone(world), Arc::clone(&told), Arc::clone(&signal));
            Box::new(move || {
                world.sleep(MS * 3);
                told.lock().push((name, world.now().as_millis()));
                signal.raise();
            })
        };
        pool.spawn_after(MS * 5, Lane::Flush, job("delayed"));
        ["one", "two", "three"].into_iter().for_each(|name| pool.spawn(Lane::Compaction, job(name)));
        signal.wait_for(&*pool, || (told.lock().len() == 4).then_some(()));
        std::mem::take(&mut *told.lock())
    });
    assert_eq!(told, [("one", 3), ("two", 3), ("three", 6), ("delayed", 8)]);
}

#[test]
#[should_panic(expected = "a wait that nothing will end")]
fn a_wait_that_nothing_ends_is_no_hang() {
    World::run(|_| {
        let (lock, changed) = (Mutex::new(()), Condvar::new());
        changed.wait(&mut lock.lock());
    });
}

#[test]
#[should_panic(expected = "a wait that nothing will end")]
fn nor_is_a_lock_that_nobody_lets_go() {
    World::run(|_| {
        let lock = Mutex::new(());
        let _held = lock.lock();
        drop(lock.lock());
    });
}

#[test]
fn who_waits_for_ever_panics_before_those_that_lend_him_something_go() {
    /// Says when it goes.
    struct Lent<'a>(&'a Mutex<Vec<&'static str>>, &'static str);
    impl Drop for Lent<'_> {
        fn drop(&mut self) {
            self.0.lock().push(self.1);
        }
    }
    for is_joined in [false, true] {
        let told = Mutex::new(Vec::new());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            World::run(|_| {
                let never = (Mutex::new(()), Condvar::new());
                let (never, lent) = (&never, Lent(&told, "lent"));
                sync::scope(|scope| {
                    let thread = scope.spawn(|| {
                        let _held = Lent(lent.0, "borrowed");
                        never.1.wait(&mut never.0.lock());
                    });
                    if is_joined {
                        thread.join().unwrap();
                    }
                });
            });
        }));
        assert!(panicked.is_err(), "the joiner's panic, or the scope's");
        assert_eq!(told.into_inner(), ["borrowed", "lent"]);
    }
}

#[test]
fn whoever_the_order_of_threads_lets_wait_for_a_lock_gets_it() {
    // Two take one lock and then another; one takes the second and a third, lets go of both, and takes the first.
    for seed in 0..200 {
        World::shuffled(seed, 500_000, |_| {
            let [first, second, third] = [Mutex::new(()), Mutex::new(()), Mutex::new(())];
            sync::scope(|scope| {
                let (first, second, third) = (&first, &second, &third);
                let mut threads: Vec<_> = (0..2)
                    .map(|_| {
                        scope.spawn(move || {
                            let _held = first.lock();
                            drop(second.lock());
                        })
                    })
                    .collect();
                threads.push(scope.spawn(move || {
                    let held = second.lock();
                    drop(third.lock());
                    drop(held);
                    drop(first.lock());
                }));
                threads.into_iter().for_each(|thread| thread.join().unwrap());
            });
        });
    }
}

/// The most steps of one thread between two places of another, in several orders of the two.
fn steps_between_places(order: impl Fn(u64, &dyn Fn() -> u64) -> u64) -> u64 {
    let run = || {
        let steps = AtomicU64::new(0);
        let now = || steps.load(Ordering::Relaxed);
        sync::scope(|scope| {
            let walker = scope.spawn(|| {
                (0..5_000).for_each(|_| {
                    sync::point();
                    steps.fetch_add(1, Ordering::Relaxed);
                });
            });
            let watcher = scope.spawn(|| {
                let wait = |_| {
                    let before = now();
                    sync::point();
                    now() - before
                };
                (0..20).map(wait).max().unwrap()
            });
            walker.join().unwrap();
            watcher.join().unwrap()
        })
    };
    (0..50).map(|seed| order(seed, &run)).max().unwrap()
}

#[test]
fn who_is_held_up_goes_on_when_others_have_come_far_or_cannot_go_on() {
    let switches = 100_000;
    assert!(steps_between_places(|seed, run| World::held_up(seed, switches, |_| run())) > 2_000);
    assert!(steps_between_places(|seed, run| World::shuffled(seed, switches, |_| run())) < 500);
}

#[test]
fn time_passes_while_somebody_is_held_up() {
    let slept_before_others = (0..50).any(|seed| {
        World::held_up(seed, 100_000, |world| {
            let is_held = AtomicBool::new(true);
            sync::scope(|scope| {
                let sleeper = scope.spawn(|| {
                    world.sleep(MS);
                    is_held.load(Ordering::Relaxed)
                });
                let held = scope.spawn(|| {
                    (0..100).for_each(|_| sync::point());
                    is_held.store(false, Ordering::Relaxed);
                });
                held.join().unwrap();
                sleeper.join().unwrap()
            })
        })
    });
    assert!(slept_before_others);
}

#[test]
fn what_is_done_again_and_again_while_no_time_passes_is_told() {
    let ran = std::panic::catch_unwind(|| {
        World::shuffled(1, 100_000, |_| (0..u64::MAX).for_each(|_| sync::point()));
    });
    let told = crate::checks::said_by(&*ran.unwrap_err());
    assert!(told.contains("no time passes"), "{told}");
}
