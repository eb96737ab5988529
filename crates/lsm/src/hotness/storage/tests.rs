//! The books follow RALT's files, and its limits are kept.

use std::sync::Arc;

use kelvin_base::{HotTracker, Lane, ManualClock, ManualExecutor};
use kelvin_ralt::Ralt;
use kelvin_storage::MemoryStorage;

use super::*;
use crate::hotness::ralt_options;
use crate::options::{Env, Options};
use crate::space::TierLimit;

const BLOCK: u64 = kelvin_storage::ALIGNMENT as u64;

struct World {
    fast: TierHandle,
    space: Space,
}

impl World {
    fn new(capacity_bytes: u64) -> Self {
        let clock = Arc::new(ManualClock::new(0));
        let fast =
            TierHandle::new(Tier::Fast, "/fast", Arc::new(MemoryStorage::new()), Arc::clone(&clock) as _);
        fast.create_dir_all().unwrap();
        fast.storage().create_dir_all(&fast.path(DIR_NAME)).unwrap();
        let limit = TierLimit { capacity_bytes: Some(capacity_bytes), reserve_bytes: 2 * BLOCK };
        let space = Space::new([limit; 2], [Some(fast.clone()), None], clock);
        Self { fast, space }
    }

    fn storage(&self, bytes_max: u64) -> BookedStorage {
        self.storage_ahead(bytes_max, 0)
    }

    fn storage_ahead(&self, bytes_max: u64, step_bytes: u64) -> BookedStorage {
        BookedStorage::new(self.fast.clone(), self.space.clone(), bytes_max, step_bytes)
    }

    fn used(&self) -> u64 {
        self.space.used(Tier::Fast)
    }
}

fn create(storage: &BookedStorage, name: &str) -> Box<dyn WriteFile> {
    storage.create(&storage.dir().join(name), Create::new(IoMode::Buffered)).unwrap()
}

#[test]
fn a_file_is_in_the_books_from_its_first_byte_until_it_is_gone() {
    let world = World::new(100 * BLOCK);
    let storage = world.storage(50 * BLOCK);
    let mut file = create(&storage, "000001.ralt");
    file.append(&[1; 100]).unwrap();
    assert_eq!(world.used(), BLOCK);
    file.append(&[1; 9000]).unwrap();
    assert_eq!((world.used(), world.space.stats(Tier::Fast).reserved_bytes), (3 * BLOCK, 0));
    file.sync().unwrap();
    create(&storage, "STATE").append(b"old").unwrap();
    create(&storage, "STATE.new").append(b"new").unwrap();
    assert_eq!(world.used(), 5 * BLOCK);
    let dir = storage.dir();
    storage.rename(&dir.join("STATE.new"), &dir.join("STATE")).unwrap();
    assert_eq!(world.used(), 4 * BLOCK);
    storage.remove(&dir.join("000001.ralt")).unwrap();
    assert_eq!(world.used(), BLOCK);
    assert!(storage.hard_link(&dir.join("STATE"), &dir.join("again")).is_err());
    assert_eq!(world.fast.io_stats().of(Purpose::Hotness).written_bytes, 9106);
}

#[test]
fn it_gets_neither_the_reserve_nor_more_than_it_was_given_and_hears_of_a_full_disk() {
    let world = World::new(10 * BLOCK);
    let mut file = create(&world.storage(50 * BLOCK), "000001.ralt");
    file.append(&vec![1; 8 * 4096]).unwrap();
    let refused = file.append(&[1]).unwrap_err();
    assert_eq!((refused.kind(), world.used()), (io::ErrorKind::StorageFull, 8 * BLOCK));

    let world = World::new(10 * BLOCK);
    let storage = world.storage(3 * BLOCK);
    create(&storage, "000001.ralt").append(&[1; 8000]).unwrap();
    let mut second = create(&storage, "000002.ralt");
    second.append(&[1; 4096]).unwrap();
    assert_eq!(second.append(&[1]).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(second.len(), 4096, "what was refused is not written");
}

#[test]
fn the_room_for_a_step_is_there_while_others_fill_the_disk_and_comes_back_with_the_files() {
    let world = World::new(20 * BLOCK);
    let storage = world.storage_ahead(50 * BLOCK, 4 * BLOCK);
    create(&storage, "000001.ralt").append(&vec![1; 6 * 4096]).unwrap();
    assert_eq!((world.used(), storage.ahead_bytes()), (6 * BLOCK, 4 * BLOCK), "what is free is taken first");
    let others = world.space.reserve(Tier::Fast, 10 * BLOCK, Priority::Essential).unwrap();
    assert!(world.space.reserve(Tier::Fast, 1, Priority::Essential).is_err(), "the disk is full");
    let may_write = || storage.free_space(&storage.dir()).unwrap();
    assert_eq!(may_write(), 4 * BLOCK, "what is set aside is RALT's to write");
    let mut step = create(&storage, "000002.ralt");
    step.append(&vec![1; 3 * 4096]).unwrap();
    assert_eq!((world.used(), storage.ahead_bytes(), may_write()), (9 * BLOCK, BLOCK, BLOCK));
    assert!(step.append(&vec![1; 2 * 4096]).is_err(), "no more than a step");
    storage.remove(&storage.dir().join("000001.ralt")).unwrap();
    assert_eq!((world.used(), storage.ahead_bytes()), (3 * BLOCK, 4 * BLOCK));
    assert_eq!(world.space.available(Tier::Fast, Priority::Essential), Some(3 * BLOCK), "the rest is free");
    drop(others);
    step.append(&vec![1; 4 * 4096]).unwrap();
    assert_eq!(storage.ahead_bytes(), 4 * BLOCK, "with room to spare none of it is taken");
    let others = world.space.reserve(Tier::Fast, 9 * BLOCK, Priority::Essential).unwrap();
    step.append(&vec![1; 2 * 4096]).unwrap();
    assert_eq!((world.used(), storage.ahead_bytes()), (9 * BLOCK, 2 * BLOCK));
    storage.look_ahead(0);
    step.append(&vec![1; 4096]).unwrap();
    assert_eq!(
        (storage.ahead_bytes(), storage.lacking_bytes()),
        (BLOCK, 0),
        "there is none, but enough so far"
    );
    assert!(step.append(&vec![1; 2 * 4096]).is_err());
    assert_eq!((storage.ahead_bytes(), storage.lacking_bytes()), (BLOCK, BLOCK), "less than half a step");
    drop(others);
    assert_eq!((storage.ahead_bytes(), storage.lacking_bytes()), (BLOCK, 0), "there is some");
    storage.look_ahead(7 * BLOCK);
    assert_eq!(storage.ahead_bytes(), 3 * BLOCK, "what is kept for others stays");
    storage.look_ahead(0);
    assert_eq!(storage.ahead_bytes(), 4 * BLOCK);
    drop((step, storage));
    assert_eq!(world.space.stats(Tier::Fast).reserved_bytes, 0);
}

#[test]
fn files_that_are_there_are_entered_and_a_store_without_ralt_removes_its_own() {
    let world = World::new(100 * BLOCK);
    for name in ["000007.ralt", "STATE", "notes"] {
        world.fast.replace_small(&format!("{DIR_NAME}/{name}"), &[1; 5000]).unwrap();
    }
    drop(world.storage(BLOCK));
    assert_eq!(world.space.used_below(Tier::Fast, IN_BOOKS), 6 * BLOCK);
    discard(&world.fast, &world.space);
    assert_eq!(world.space.used_below(Tier::Fast, IN_BOOKS), 2 * BLOCK);
    let left = world.fast.storage().list(&world.fast.path(DIR_NAME)).unwrap();
    assert_eq!(left, [PathBuf::from("notes")], "a stranger's file is not ours to remove");
}

/// Accesses until RALT has evicted often, on a disk with room for anything; how much of it the files took at most.
fn evicting(fast_capacity: u64) -> (kelvin_ralt::Options, kelvin_ralt::Stats, u64) {
    let world = World::new(1 << 40);
    let config = Options::new("/fast").slow("/slow").fast_capacity(fast_capacity).derive().unwrap();
    let options = ralt_options(&config, &Env::system(&config).unwrap(), [7; 16]);
    let storage = Arc::new(world.storage(options.disk_bytes_max()));
    let env = kelvin_ralt::Env {
        storage: storage.clone(),
        dir: storage.dir(),
        io: IoMode::Buffered,
        executor: Arc::new(ManualExecutor::new()),
        lane: Lane::Tracking,
        memory: None,
        evicted: None,
    };
    let ralt = Ralt::open(env, options.clone());
    let mut highest = 0;
    let mut number = 0_u64;
    while ralt.stats().evictions < 6 && number < 1_000_000 {
        // Small runs, none of which fills its last block; half of the keys come again.
        for _ in 0..40 {
            number += 1;
            let key = number / 3 * (1 + number % 2);
            ralt.access(format!("user{:020}", key.wrapping_mul(0x9e37_79b9_7f4a_7c15)).as_bytes(), 100);
        }
        ralt.settle();
        highest = highest.max(world.used());
    }
    (options, ralt.stats(), highest)
}

#[test]
fn what_it_was_given_is_enough_in_whole_blocks_whatever_the_size_of_the_disk() {
    for fast_capacity in [1 << 20, 2 << 20, 8 << 20] {
        let (options, stats, highest) = evicting(fast_capacity);
        assert_eq!((stats.last_error.as_deref(), stats.evictions), (None, 6), "{fast_capacity}: {stats:?}");
        assert!(options.disk_bytes_max() <= fast_capacity / 2, "{fast_capacity}: {options:?}");
        assert!(highest <= options.disk_bytes_max(), "{fast_capacity}: {highest} of {options:?}");
        assert!(stats.hot_set_bytes <= stats.hot_set_limit_bytes, "{fast_capacity}: {stats:?}");
    }
}
