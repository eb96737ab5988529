//! The bytes of a table, frozen: docs/formats/table.md takes its example from here.
//!
//! A difference means that older versions cannot read what this one writes: raise the format version instead.

use bytes::Bytes;
use kelvin_base::RangeTombstone;
use kelvin_base::key::{EXPIRES, Kind};
use kelvin_table::{Compression, Properties, TableOptions};

use crate::common::{Entries, internal, open, write};

fn hex(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (line, chunk) in bytes.chunks(16).enumerate() {
        let digits: Vec<String> = chunk.iter().map(|byte| format!("{byte:02x}")).collect();
        let text: String =
            chunk.iter().map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' }).collect();
        out += &format!("{:04x}  {:<47}  {text}\n", line * 16, digits.join(" "));
    }
    out
}

fn tiny() -> (Entries, RangeTombstone) {
    let expiring = [&1_700_000_000_000u64.to_le_bytes(), b"cold".as_slice()].concat();
    let entries = vec![
        (internal(b"apple", 9, Kind::Value as u8), b"red".to_vec()),
        (internal(b"apple", 4, Kind::Copy as u8), b"green".to_vec()),
        (internal(b"apricot", 7, Kind::Deletion as u8), Vec::new()),
        (internal(b"ice", 8, Kind::Value as u8 | EXPIRES), expiring),
    ];
    let stone =
        RangeTombstone { start: Bytes::from_static(b"m"), end: Bytes::from_static(b"n"), sequence: 11 };
    (entries, stone)
}

#[test]
fn the_bytes_of_a_small_table_never_change() {
    let (entries, stone) = tiny();
    let options = TableOptions { block_size_bytes: 80, ..TableOptions::default() };
    let (bytes, properties) = write(&entries, &[stone], options);
    let found = hex(&bytes);
    assert_eq!(found, include_str!("tiny.hex"), "the table is now:\n{found}");
    assert_eq!(
        properties,
        Properties {
            entries: 4,
            deletions: 1,
            copies: 1,
            expiring: 1,
            expiry_min_ms: 1_700_000_000_000,
            expiry_max_ms: 1_700_000_000_000,
            range_tombstones: 1,
            sequence_min: 4,
            sequence_max: 11,
            smallest: Bytes::from_static(b"apple"),
            largest: Bytes::from_static(b"n"),
            largest_exclusive: true,
            key_bytes: 20,
            value_bytes: 20,
            data_blocks: 2,
            annotation: Bytes::new(),
            size_bytes: bytes.len() as u64,
            tail_bytes: properties.tail_bytes,
        }
    );
}

#[test]
fn the_packed_blocks_of_this_version_can_always_be_read() {
    let entries: Entries =
        (0..20u64).map(|n| (internal(format!("key{n:04}").as_bytes(), n, 3), vec![b'v'; 20])).collect();
    let packed = [
        (Compression::Lz4, include_str!("lz4.hex")),
        #[cfg(feature = "zstd")]
        (Compression::Zstd, include_str!("zstd.hex")),
    ];
    for (compression, hex_bytes) in packed {
        let bytes: Vec<u8> = hex_bytes
            .lines()
            .flat_map(|line| line[6..53].split_whitespace())
            .map(|byte| u8::from_str_radix(byte, 16).unwrap())
            .collect();
        let (now, _) = write(&entries, &[], TableOptions { compression, ..TableOptions::default() });
        assert!(!bytes.is_empty(), "{} is now:\n{}", compression.name(), hex(&now));
        assert!(now.len() < 600, "a packed table of {} bytes", now.len());
        let table = open(&bytes).unwrap();
        assert_eq!(table.properties().entries, 20);
        assert!(table.verify().is_empty(), "{:?}", table.verify());
    }
}
