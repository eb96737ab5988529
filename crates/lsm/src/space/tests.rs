//! Scenarios of a tier that fills up and is freed again, and the limit under many threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kelvin_base::{ManualClock, ManualExecutor};
use kelvin_storage::MemoryStorage;

use super::*;

const BLOCK: u64 = kelvin_storage::ALIGNMENT as u64;

fn limited(capacity: u64, reserve: u64) -> Space {
    let limit = |capacity_bytes, reserve_bytes| TierLimit { capacity_bytes, reserve_bytes };
    Space::new([limit(Some(capacity), reserve), limit(None, 0)], [None, None], Arc::new(ManualClock::new(0)))
}

#[test]
fn a_reservation_counts_until_it_becomes_a_file_or_is_dropped() {
    let space = limited(1000 * BLOCK, 0);
    let mut reservation = space.reserve(Tier::Fast, 600 * BLOCK, Priority::Normal).unwrap();
    assert_eq!(space.available(Tier::Fast, Priority::Normal), Some(400 * BLOCK));
    reservation.file_written("1.tbl", 250 * BLOCK);
    assert_eq!((space.used(Tier::Fast), reservation.left_bytes()), (250 * BLOCK, 350 * BLOCK));
    assert_eq!(space.available(Tier::Fast, Priority::Normal), Some(400 * BLOCK));
    drop(reservation);
    assert_eq!(space.available(Tier::Fast, Priority::Normal), Some(750 * BLOCK));
    assert_eq!(space.file_removed(Tier::Fast, "1.tbl"), 250 * BLOCK);
    let stats = space.stats(Tier::Fast);
    assert_eq!(
        (stats.used_bytes, stats.used_max_bytes, stats.committed_max_bytes),
        (0, 250 * BLOCK, 600 * BLOCK)
    );
}

#[test]
fn a_full_tier_says_what_is_used_reserved_kept_and_asked() {
    let space = limited(1000 * BLOCK, 100 * BLOCK);
    space.file_added(Tier::Fast, "1.log", 500 * BLOCK);
    let _held = space.reserve(Tier::Fast, 300 * BLOCK, Priority::Normal).unwrap();
    let error = space.reserve(Tier::Fast, 101 * BLOCK, Priority::Normal).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no space: the fast tier's capacity of 3.9 MiB is reached: 1.9 MiB used, 1.1 MiB reserved by work in flight, \
         400 KiB kept to get out of a full tier, 404 KiB asked [fast tier]; delete data or raise fast_capacity; writing \
         resumes by itself, and reads go on"
    );
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert_eq!(space.stats(Tier::Fast).refusals, 1);
}

#[test]
fn only_essential_work_may_use_the_reserve() {
    let space = limited(1000 * BLOCK, 200 * BLOCK);
    space.file_added(Tier::Fast, "1.tbl", 800 * BLOCK);
    assert!(space.reserve(Tier::Fast, 1, Priority::Normal).is_err());
    let flush = space.reserve(Tier::Fast, 200 * BLOCK, Priority::Essential).unwrap();
    assert!(space.reserve(Tier::Fast, 1, Priority::Essential).is_err(), "the capacity is hard for all");
    drop(flush);
    assert!(space.reserve(Tier::Fast, 200 * BLOCK, Priority::Essential).is_ok());
}

#[test]
fn a_compaction_gets_a_full_tier_out_of_its_corner_and_wakes_the_writer() {
    let space = limited(1000 * BLOCK, 200 * BLOCK);
    space.file_added(Tier::Fast, "1.tbl", 500 * BLOCK);
    space.file_added(Tier::Fast, "2.tbl", 300 * BLOCK);
    let executor = ManualExecutor::new();
    let compact = {
        let space = space.clone();
        move || {
            let mut output = space.reserve(Tier::Fast, 200 * BLOCK, Priority::Essential).unwrap();
            output.file_written("3.tbl", 180 * BLOCK);
            drop(output);
            space.file_removed(Tier::Fast, "2.tbl");
        }
    };
    kelvin_base::Executor::spawn(&executor, kelvin_base::Lane::Compaction, Box::new(compact));
    let write =
        space.freed().wait_for(&executor, || space.reserve(Tier::Fast, 100 * BLOCK, Priority::Normal).ok());
    assert_eq!(write.left_bytes(), 100 * BLOCK);
    assert_eq!(space.used(Tier::Fast), 680 * BLOCK);
}

#[test]
fn lengths_told_twice_replace_each_other_and_renames_replace_their_target() {
    let space = limited(1000 * BLOCK, 0);
    for bytes in [10 * BLOCK, 400 * BLOCK, 30 * BLOCK] {
        space.file_added(Tier::Fast, "1.log", bytes);
    }
    assert_eq!(space.used(Tier::Fast), 30 * BLOCK);
    space.file_added(Tier::Fast, "MANIFEST", 500 * BLOCK);
    space.file_renamed(Tier::Fast, "1.log", "MANIFEST");
    assert_eq!((space.used(Tier::Fast), space.stats(Tier::Fast).files), (30 * BLOCK, 1));
    assert_eq!(space.file_removed(Tier::Fast, "never there"), 0);
}

#[test]
fn a_file_grows_within_its_reservation_and_beyond_it_is_counted() {
    let space = limited(1000 * BLOCK, 0);
    let mut log = space.reserve(Tier::Fast, 100 * BLOCK, Priority::Normal).unwrap();
    log.file_written("1.log", 60 * BLOCK);
    log.file_written("1.log", 90 * BLOCK);
    assert_eq!((space.used(Tier::Fast), log.left_bytes()), (90 * BLOCK, 10 * BLOCK));
    log.file_written("1.log", 150 * BLOCK);
    assert_eq!((space.used(Tier::Fast), log.left_bytes()), (150 * BLOCK, 0));
    log.grow(850 * BLOCK, Priority::Normal).unwrap();
    assert!(log.grow(1, Priority::Essential).is_err());
    assert_eq!(log.left_bytes(), 850 * BLOCK, "a refused growth changes nothing");
}

#[test]
fn a_tier_without_a_capacity_takes_everything() {
    let space = limited(1000, 0);
    assert!(space.reserve(Tier::Slow, u64::MAX / 4, Priority::Normal).is_ok());
    assert_eq!(space.available(Tier::Slow, Priority::Normal), None);
}

#[test]
fn absurd_requests_are_refused_without_overflow() {
    let space = limited(1000, 100);
    space.file_added(Tier::Fast, "1.tbl", 900);
    assert!(space.reserve(Tier::Fast, u64::MAX, Priority::Normal).is_err());
    assert!(space.reserve(Tier::Fast, u64::MAX, Priority::Essential).is_err());
}

#[test]
fn many_threads_together_never_pass_the_capacity() {
    const CAPACITY: u64 = 10_000 * BLOCK;
    let space = limited(CAPACITY, 1_000 * BLOCK);
    let (stop, granted) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (space, granted) = (&space, &granted);
            scope.spawn(move || {
                for round in 0..2_000u64 {
                    let bytes = kelvin_base::hash64(&(thread << 32 | round).to_le_bytes()) % (4_000 * BLOCK);
                    let priority = if round % 3 == 0 { Priority::Essential } else { Priority::Normal };
                    let Ok(mut reservation) = space.reserve(Tier::Fast, bytes, priority) else { continue };
                    granted.fetch_add(1, Ordering::Relaxed);
                    let name = format!("{thread}.tbl");
                    space.file_removed(Tier::Fast, &name);
                    reservation.file_written(&name, bytes / 2);
                }
                space.file_removed(Tier::Fast, &format!("{thread}.tbl"));
            });
        }
        let watcher = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let stats = space.stats(Tier::Fast);
                assert!(stats.used_bytes + stats.reserved_bytes <= CAPACITY);
            }
        });
        while granted.load(Ordering::Relaxed) < 100 {
            std::hint::spin_loop();
        }
        stop.store(true, Ordering::Relaxed);
        watcher.join().unwrap();
    });
    let stats = space.stats(Tier::Fast);
    assert_eq!((stats.used_bytes, stats.reserved_bytes, stats.files), (0, 0, 0));
    assert!(stats.committed_max_bytes <= CAPACITY);
}

/// A tier without a capacity of its own on a disk that can be filled by others.
fn on_disk(reserve_bytes: u64) -> (Space, MemoryStorage, Arc<ManualClock>) {
    let (disk, clock) = (MemoryStorage::new(), Arc::new(ManualClock::new(0)));
    let fast = TierHandle::new(Tier::Fast, "/fast", Arc::new(disk.clone()), Arc::clone(&clock) as _);
    fast.create_dir_all().unwrap();
    fast.replace_small("000001.tbl", &[1; 300]).unwrap();
    let limit = TierLimit { capacity_bytes: None, reserve_bytes };
    let space = Space::new([limit; 2], [Some(fast), None], Arc::clone(&clock) as _);
    (space, disk, clock)
}

#[test]
fn files_found_at_open_are_counted_in_whole_blocks() {
    let (space, _, _) = on_disk(0);
    assert_eq!(space.account_directory(Tier::Fast).unwrap(), BLOCK);
    assert_eq!(space.account_directory(Tier::Fast).unwrap(), BLOCK, "counted once");
    assert_eq!(space.account_directory(Tier::Slow).unwrap(), 0);
}

#[test]
fn a_directory_among_the_files_takes_nothing() {
    let (space, disk, _) = on_disk(0);
    kelvin_storage::Storage::create_dir_all(&disk, std::path::Path::new("/fast/lost+found")).unwrap();
    assert_eq!(space.account_directory(Tier::Fast).unwrap(), BLOCK);
}

#[test]
fn what_names_of_one_beginning_take_is_told() {
    let space = limited(1000 * BLOCK, 0);
    for (name, blocks) in [("rals", 1), ("ralt", 2), ("ralt/1", 4), ("ralt/9", 8), ("ralt0", 16)] {
        space.file_added(Tier::Fast, name, blocks * BLOCK);
    }
    assert_eq!(space.used_below(Tier::Fast, "ralt/"), 12 * BLOCK);
    assert_eq!(space.used_below(Tier::Slow, "ralt/"), 0);
}

#[test]
fn a_disk_that_others_filled_is_no_space_before_anything_is_written() {
    let (space, disk, clock) = on_disk(100);
    disk.set_capacity(1_000);
    assert!(space.reserve(Tier::Fast, 600, Priority::Normal).is_ok());
    let error = space.reserve(Tier::Fast, 601, Priority::Normal).unwrap_err();
    assert!(error.to_string().contains("the fast tier's disk is full: 700 B free"), "{error}");
    assert!(space.reserve(Tier::Fast, 700, Priority::Essential).is_ok());
    assert_eq!(space.stats(Tier::Fast).disk_free_bytes, Some(700));

    disk.set_capacity(400);
    clock.advance(Duration::from_secs(2));
    assert!(
        space.reserve(Tier::Fast, 200, Priority::Normal).is_err(),
        "the old answer is believed for a second only"
    );
    disk.set_capacity(2_000);
    assert!(space.reserve(Tier::Fast, 1_500, Priority::Normal).is_ok(), "no refusal hangs on an old answer");
}

#[test]
fn space_freed_by_others_wakes_waiters_at_the_next_refresh() {
    let (space, disk, _) = on_disk(0);
    disk.set_capacity(300);
    assert!(space.reserve(Tier::Fast, 1, Priority::Essential).is_err());
    disk.set_capacity(1_000);
    let executor = ManualExecutor::new();
    let refresh = {
        let space = space.clone();
        move || space.refresh()
    };
    kelvin_base::Executor::spawn(&executor, kelvin_base::Lane::Housekeeping, Box::new(refresh));
    let got = space.freed().wait_for(&executor, || space.reserve(Tier::Fast, 500, Priority::Normal).ok());
    assert_eq!(got.left_bytes(), 500);
}
