//! RALT by itself: a cache in front of something slow asks it which keys deserve their place.
//! Run it: `cargo run -p kelvin-ralt --example hot_keys`.

use std::io;
use std::sync::Arc;

use kelvin_base::{HotTracker, KeyRange, Lane, ThreadPool};
use kelvin_ralt::{Env, Options, Ralt};
use kelvin_storage::{IoMode, MemoryStorage, Storage};

/// What the fast place holds, bytes.
const FAST_BYTES: u64 = 2 << 20;
const KEYS: u64 = 20_000;
const VALUE_BYTES: usize = 1_000;

/// Its files are in memory here; `OsStorage` puts them on a disk.
fn open(storage: &Arc<dyn Storage>) -> io::Result<Ralt> {
    let env = Env {
        storage: Arc::clone(storage),
        dir: "/ralt".into(),
        io: IoMode::Buffered,
        executor: Arc::new(ThreadPool::new(1, 1, 1)?),
        lane: Lane::Tracking,
        memory: None,
        evicted: Some(Arc::new(|_, after| {
            println!("evicted: {} of at most {} hot bytes", after.hot_set_bytes, after.hot_set_limit_bytes);
        })),
    };
    Ok(Ralt::open(env, Options::of_fast(FAST_BYTES, *b"hot keys example")))
}

fn key(number: u64) -> Vec<u8> {
    format!("user:{number:06}").into_bytes()
}

fn main() -> io::Result<()> {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let ralt = open(&storage)?;
    // 19 of 20 accesses go to 1,000 of the keys.
    let mut random = 1_u64;
    for step in 0..100_000_u64 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = if step % 20 == 0 { (random >> 33) % KEYS } else { 5_000 + (random >> 33) % 1_000 };
        // Whoever serves a key tells of it, and waits for nobody.
        ralt.access(&key(number), VALUE_BYTES);
        if step % 500 == 0 {
            // Here everything is known at once; without it a background thread sorts what was noted.
            ralt.settle();
        }
    }
    let found = (5_000..6_000).filter(|&number| ralt.is_hot(&key(number))).count();
    println!("{found} of the 1,000 keys are hot, and so are {} bytes in all", ralt.hot_size(KeyRange::ALL));
    assert!(found > 900, "{:?}", ralt.stats());

    // Which keys of a range to keep, in order.
    let (first, last) = (key(5_000), key(5_009));
    let mut hot = ralt.hot_keys(KeyRange::closed(&first, &last));
    while let Some(key) = hot.next() {
        println!("hot: {}, {:?}", key.escape_ascii(), ralt.heat(key));
    }
    drop(hot);

    // What is known survives a restart.
    ralt.close();
    drop(ralt);
    let again = open(&storage)?;
    let known = (5_000..6_000).filter(|&number| again.is_hot(&key(number))).count();
    assert!(known > 900, "{:?}", again.stats());
    Ok(())
}

#[test]
fn it_runs() -> io::Result<()> {
    main()
}
