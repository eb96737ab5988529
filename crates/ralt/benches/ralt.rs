//! What an access costs RALT in the end: sorting, merging and evicting on storage in memory, and what goes to and from that.
//!
//! `cargo bench -p kelvin-ralt` does it for a hundredth of the HotRAP paper's scale (100 MB of fast disk, 1.1 million records of 1 KiB) and prints
//! processor time and bytes an access; `cargo test` runs it at a tiny size.

use std::error::Error;
use std::sync::Arc;

use kelvin_base::{Executor, HotTracker, Lane, ManualExecutor, process};
use kelvin_ralt::{Env, Options, Ralt};
use kelvin_storage::IoMode;
use kelvin_storage::memory::MemoryStorage;

/// Of so many records one is hot, and of so many accesses one goes to any of all records.
const HOT: u64 = 20;
const VALUE_BYTES: usize = 1000;
/// Of a megabyte of fast disk, memory for the tracker: a sixteenth of 48 MiB for 100 MB.
const MEMORY_PER_MB: u64 = 31_457;

/// Small pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn key(number: u64) -> [u8; 24] {
    let mut key = *b"user00000000000000000000";
    let mut left = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + u8::try_from(left % 10).unwrap_or(0);
        left /= 10;
    }
    key
}

/// `accesses` of `records`, on a fast disk of a part in eleven of them.
fn run(name: &str, records: u64, accesses: u64, hot_percent: u64) -> Result<(), Box<dyn Error>> {
    let executor = Arc::new(ManualExecutor::new());
    let fast_bytes = records * 1000 / 11;
    let env = Env {
        storage: Arc::new(MemoryStorage::new()),
        dir: "/ralt".into(),
        io: IoMode::Buffered,
        executor: Arc::<ManualExecutor>::clone(&executor),
        lane: Lane::Tracking,
        memory: None,
        evicted: None,
    };
    let memory_bytes = fast_bytes / 1_000_000 * MEMORY_PER_MB;
    let options = Options::of_fast(fast_bytes, [7; 16]).within_memory(memory_bytes.max(200_000));
    let ralt = Ralt::open(env, options);
    let mut dice = Dice(1);
    let before = process::thread_cpu_time();
    for _ in 0..accesses {
        let of = if dice.below(100) < hot_percent { records / HOT } else { records };
        ralt.access(&key(dice.below(of)), VALUE_BYTES);
        while executor.help() {}
    }
    let spent = process::thread_cpu_time().saturating_sub(before);
    let stats = ralt.stats();
    let each = |sum: u128| sum / u128::from(accesses.max(1));
    println!(
        "{name:<24} {:>6} ns an access, {} bytes written, {} read; {} evictions, {} of {} bytes hot, memory of {} bytes",
        each(spent.as_nanos()),
        each(stats.written_bytes.into()),
        each(stats.read_bytes.into()),
        stats.evictions,
        stats.hot_set_bytes,
        stats.hot_set_limit_bytes,
        ralt.memory_bytes(),
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let large = std::env::args().any(|argument| argument == "--bench");
    let (records, accesses) = if large { (1_100_000, 1_000_000) } else { (11_000, 3000) };
    for (name, hot_percent) in [("hotspot of 5 %", 95), ("uniform", 0)] {
        run(name, records, accesses, hot_percent)?;
    }
    Ok(())
}
