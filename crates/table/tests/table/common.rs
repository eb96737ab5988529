//! Tables made for tests: entries from a seed, a file in memory, and what reading them should give.

use std::path::Path;
use std::sync::Arc;

use kelvin_base::key::{EXPIRES, Kind, append_internal, trailer};
use kelvin_base::{InternalIterator, RangeTombstone, Result};
use kelvin_storage::ReadFile;
use kelvin_table::fuzz::{BytesFile, BytesSink};
use kelvin_table::{BlockCache, Properties, Table, TableIter, TableOptions, TableWriter};

pub const NUMBER: u64 = kelvin_table::fuzz::FILE_NUMBER;
pub const PATH: &str = "000007.tbl";

/// A repeatable sequence of numbers.
#[derive(Clone, Debug)]
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound.max(1)
    }

    pub fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).unwrap()
    }

    /// Half of the bytes are alike, so that compression has something to do.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| if self.below(2) == 0 { b'x' } else { self.below(256).to_le_bytes()[0] }).collect()
    }
}

/// Internal keys and stored values, in order.
pub type Entries = Vec<(Vec<u8>, Vec<u8>)>;

pub fn internal(key: &[u8], sequence: u64, kind_byte: u8) -> Vec<u8> {
    let mut out = Vec::new();
    append_internal(&mut out, key, trailer(sequence, kind_byte));
    out
}

/// An entry of a random kind at `sequence`; the value is as long as `len`, or longer by an expiry.
pub fn entry(numbers: &mut Numbers, key: &[u8], sequence: u64, len: usize) -> (Vec<u8>, Vec<u8>) {
    let (kind_byte, value) = match numbers.below(8) {
        0 => (Kind::Deletion as u8, Vec::new()),
        1 => (Kind::Copy as u8, numbers.bytes(len)),
        2 => (Kind::Value as u8 | EXPIRES, [&(sequence * 1000).to_le_bytes(), &*numbers.bytes(len)].concat()),
        _ => (Kind::Value as u8, numbers.bytes(len)),
    };
    (internal(key, sequence, kind_byte), value)
}

pub fn write(entries: &Entries, stones: &[RangeTombstone], options: TableOptions) -> (Vec<u8>, Properties) {
    let sink = BytesSink::default();
    let mut writer = TableWriter::new(Box::new(sink.clone()), Path::new(PATH), NUMBER, options);
    for (key, value) in entries {
        writer.add(key, value).unwrap();
    }
    for stone in stones {
        writer.add_tombstone(stone.clone());
    }
    let properties = writer.finish().unwrap();
    (sink.take(), properties)
}

pub fn open_file(
    file: Arc<dyn ReadFile>,
    tail_bytes: u64,
    cache: Option<Arc<dyn BlockCache>>,
) -> Result<Arc<Table>> {
    let size = file.len().unwrap();
    Table::open(file, Path::new(PATH), NUMBER, size, tail_bytes, cache).map(Arc::new)
}

pub fn open(bytes: &[u8]) -> Result<Arc<Table>> {
    open_file(Arc::new(BytesFile(bytes.to_vec())), 0, None)
}

/// Everything from where the cursor stands.
pub fn rest(iter: &mut TableIter) -> Result<Entries> {
    let mut all = Entries::new();
    while iter.valid() {
        all.push((iter.key().to_vec(), iter.value().to_vec()));
        iter.next()?;
    }
    Ok(all)
}
