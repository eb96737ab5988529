//! Cost of the table's hot paths: lookup (cached block, uncached, excluded), next, prev, seek, write.
//!
//! `cargo bench -p kelvin-table` prints nanoseconds of processor time an operation; `cargo test` runs it at a tiny size.

use std::collections::HashMap;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use kelvin_base::key::{Kind, append_internal, trailer};
use kelvin_base::{Clock, InternalIterator, Result, SystemClock, hash64};
use kelvin_table::fuzz::{BytesFile, BytesSink};
use kelvin_table::{
    Block, BlockCache, Compression, LookupKey, ReadIo, ScanOptions, Table, TableOptions, TableWriter,
};
use parking_lot::RwLock;

/// Holds every block: what remains is the table's own cost and a hash table's.
#[derive(Debug, Default)]
struct Everything(RwLock<HashMap<u64, Block, std::hash::BuildHasherDefault<Offset>>>);

/// A cheap hash of an offset.
#[derive(Debug, Default)]
struct Offset(u64);

impl std::hash::Hasher for Offset {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {}
    fn write_u64(&mut self, value: u64) {
        self.0 = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl BlockCache for Everything {
    fn get(&self, _: u64, offset: u64) -> Option<Block> {
        self.0.read().get(&offset).cloned()
    }
    fn insert(&self, _: u64, offset: u64, block: Block) {
        self.0.write().insert(offset, block);
    }
}

struct Bench {
    clock: SystemClock,
    entries: u64,
    rounds: u64,
    value: Vec<u8>,
}

fn key(number: u64) -> Vec<u8> {
    format!("user{:020}", number.wrapping_mul(7)).into_bytes()
}

/// A permutation of `0..entries`, roughly: no two steps lie near each other.
fn shuffled(step: u64, entries: u64) -> u64 {
    step.wrapping_mul(0x9e37_79b9_7f4a_7c15) % entries
}

impl Bench {
    /// Time this thread has run, where the system tells: others on the machine do not count. Else time passed.
    fn nanos(&self) -> u128 {
        let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let ran = stat.split(' ').next().and_then(|nanos| nanos.parse().ok());
        ran.unwrap_or_else(|| self.clock.now().as_nanos())
    }

    fn report(&self, name: &str, operations: u64, run: impl FnOnce() -> Result<()>) -> Result<()> {
        let start = self.nanos();
        run()?;
        let nanos = self.nanos() - start;
        let tenths = nanos * 10 / u128::from(operations.max(1));
        println!("{name:<40} {:>8}.{} ns", tenths / 10, tenths % 10);
        Ok(())
    }

    fn write(&self, compression: Compression) -> Result<(Vec<u8>, u64)> {
        let sink = BytesSink::default();
        let options = TableOptions { compression, ..TableOptions::default() };
        let mut writer = TableWriter::new(Box::new(sink.clone()), Path::new("bench"), 1, options);
        let mut internal = Vec::new();
        for number in 0..self.entries {
            internal.clear();
            append_internal(&mut internal, &key(number), trailer(number + 1, Kind::Value as u8));
            writer.add(&internal, &self.value)?;
        }
        let properties = writer.finish()?;
        Ok((sink.take(), properties.tail_bytes))
    }

    fn lookups(&self, name: &str, table: &Table, present: bool) -> Result<()> {
        let keys: Vec<Vec<u8>> = (0..self.rounds)
            .map(|step| {
                let mut key = key(shuffled(step, self.entries));
                if !present {
                    key.push(b'x');
                }
                key
            })
            .collect();
        let mut io = ReadIo::default();
        self.report(name, self.rounds, || {
            for key in &keys {
                let key = LookupKey { user_key: key, hash: hash64(key), at: u64::MAX >> 8 };
                black_box(table.get(&key, &mut io)?);
            }
            Ok(())
        })
    }

    fn scans(&self, name: &str, table: &Arc<Table>) -> Result<()> {
        let mut iter = table.iter(ScanOptions { readahead_bytes: 1 << 20, ..ScanOptions::default() });
        let mut bytes = 0;
        let passes = (self.rounds / self.entries).max(1);
        self.report(&format!("next, {name}"), self.entries * passes, || {
            for _ in 0..passes {
                iter.seek_to_first()?;
                while iter.valid() {
                    bytes += iter.key().len() + iter.value().len();
                    iter.next()?;
                }
            }
            Ok(())
        })?;
        self.report(&format!("prev, {name}"), self.entries * passes, || {
            for _ in 0..passes {
                iter.seek_to_last()?;
                while iter.valid() {
                    bytes += iter.key().len() + iter.value().len();
                    iter.prev()?;
                }
            }
            Ok(())
        })?;
        let mut target = Vec::new();
        self.report(&format!("seek, {name}"), self.rounds, || {
            for step in 0..self.rounds {
                target.clear();
                append_internal(&mut target, &key(shuffled(step, self.entries)), u64::MAX);
                iter.seek(&target)?;
                bytes += iter.key().len();
            }
            Ok(())
        })?;
        black_box(bytes);
        Ok(())
    }

    fn all(&self) -> Result<()> {
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
            let name = compression.name();
            let mut written = (Vec::new(), 0);
            self.report(&format!("write, {name}"), self.entries, || {
                written = self.write(compression)?;
                Ok(())
            })?;
            let (bytes, tail_bytes) = written;
            let size = bytes.len() as u64;
            println!("{:<40} {size:>8} bytes", format!("size, {name}"));
            let file = Arc::new(BytesFile(bytes));
            let cache: Arc<dyn BlockCache> = Arc::new(Everything::default());
            let path = Path::new("bench");
            let cached = Arc::new(Table::open(file.clone(), path, 1, size, tail_bytes, Some(cache))?);
            let uncached = Arc::new(Table::open(file, path, 1, size, tail_bytes, None)?);
            self.lookups(&format!("get, block read, {name}"), &uncached, true)?;
            self.lookups(&format!("get, filling the cache, {name}"), &cached, true)?;
            if compression == Compression::None {
                self.lookups("get, cached block", &cached, true)?;
                self.lookups("get, cached block again", &cached, true)?;
                self.lookups("get, excluded by the filter", &cached, false)?;
                self.scans("cached", &cached)?;
            }
            self.scans(&format!("read, {name}"), &uncached)?;
        }
        Ok(())
    }
}

fn main() -> Result<()> {
    let large = std::env::args().any(|argument| argument == "--bench");
    let (entries, rounds) = if large { (500_000, 1_000_000) } else { (500, 100) };
    let value = (0..100u8).map(|n| if n % 2 == 0 { n } else { b'x' }).collect();
    let mut bench = Bench { clock: SystemClock::new(), entries, rounds, value };
    println!("{entries} entries");
    bench.all()?;
    // What fits the processor's cache shows the instructions; the large one shows the misses.
    bench.entries = entries / 20;
    println!("{} entries", bench.entries);
    bench.all()
}
