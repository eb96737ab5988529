//! The valid files of the corpus: small ones of every kind, made by the shipped writers.
//!
//! `cargo run -p kelvin-fuzzing --example seeds` writes them to `fuzz/corpus`; `tests/corpus.rs` checks that each is
//! accepted by its target.

use std::path::Path;

use kelvin::transfer::{Encoder, Encoding, Format, Record};
use kelvin_base::coding::put_bytes;
use kelvin_base::key::{EXPIRES, Kind, append_internal, trailer};
use kelvin_base::{RangeTombstone, Tier};
use kelvin_lsm::batch::WriteBatch;
use kelvin_lsm::tiers::identity::{Identity, Phase, encode};
use kelvin_lsm::version::{Edit, StoreId, TableMeta, current_line};
use kelvin_lsm::wal::WalWriter;
use kelvin_lsm::wal::format::log_name;
use kelvin_lsm::wal::writer::WalOptions;
use kelvin_sim::crash::scenarios::SETUPS;
use kelvin_table::block::{BlockBuilder, common_len};
use kelvin_table::{Compression, Properties, TableOptions, TableWriter, fuzz};

use crate::log::FIRST_LOG;
use crate::manifest::{NUMBER, UUID};
use crate::stream::{DIR, get_file, join, storage};

/// A valid input.
#[derive(Clone, Debug)]
pub struct Seed {
    /// The target it is for.
    pub target: &'static str,
    /// Its name among the target's.
    pub name: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

fn seed(target: &'static str, name: &str, bytes: Vec<u8>) -> Seed {
    Seed { target, name: name.to_string(), bytes }
}

/// Every seed.
#[must_use]
pub fn all() -> Vec<Seed> {
    let mut seeds = logs();
    seeds.extend(manifests());
    seeds.extend(tables());
    seeds.extend(transfers());
    for phase in [Phase::Settled, Phase::Raising] {
        let identity = encode(&Identity { id: id(), phase });
        let body = identity[..identity.len() - 8].to_vec();
        seeds.push(seed("identity", &format!("{phase:?}"), identity));
        seeds.push(seed("identity", &format!("{phase:?}-body"), body));
    }
    seeds.extend(crate::ralt::seeds().into_iter().map(|(target, name, bytes)| seed(target, &name, bytes)));
    // Too few bytes to choose much: mostly the defaults.
    seeds.push(seed("options", "defaults", vec![0; 24]));
    for (number, name) in [(1_u8, "mixed"), (4, "other"), (9, "more")] {
        let choices = (0..600_u32).map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[2] ^ number);
        seeds.push(seed("ops", name, std::iter::once(number).chain(choices).collect()));
    }
    for setup in 0..u32::try_from(SETUPS.len()).unwrap_or(0) {
        let choices = (0..80).map(|at| (at + 100 * setup).wrapping_mul(2_654_435_761).to_le_bytes()[2]);
        let first = setup.to_le_bytes()[0];
        seeds.push(seed("crash", &format!("setup-{setup}"), std::iter::once(first).chain(choices).collect()));
    }
    seeds
}

fn id() -> StoreId {
    StoreId { uuid: UUID, epoch: 3 }
}

fn batches() -> Vec<Vec<u8>> {
    let mut small = WriteBatch::new();
    let mut mixed = WriteBatch::new();
    let mut fill = || -> kelvin_base::Result<()> {
        small.put(0, b"key", b"value")?;
        mixed.put(0, b"a", b"1")?;
        mixed.put_expiring(0, b"b", b"2", 2_000_000)?;
        mixed.delete(0, b"a")?;
        mixed.delete_range(0, b"b", b"c")?;
        mixed.put(1, b"long", &[7; 300])
    };
    fill().expect("the operations are within the limits");
    vec![WriteBatch::new().bytes().to_vec(), small.bytes().to_vec(), mixed.bytes().to_vec()]
}

fn logs() -> Vec<Seed> {
    let batches = batches();
    let mut seeds: Vec<Seed> = batches
        .iter()
        .enumerate()
        .map(|(at, bytes)| seed("batch", &format!("{at}"), bytes.clone()))
        .collect();
    let storage = storage();
    let write = |finish: bool| -> kelvin_base::Result<()> {
        let number = if finish { FIRST_LOG } else { FIRST_LOG + 1 };
        let mut log = WalWriter::create(&storage, Path::new(DIR), number, WalOptions::default())?;
        log.append(1, &batches[1])?;
        log.append(2, &batches[2])?;
        log.sync()?;
        log.append(7, &batches[1])?;
        if finish { log.finish() } else { log.flush() }
    };
    write(true).and_then(|()| write(false)).expect("memory takes a log");
    seeds.push(seed("wal", "finished", get_file(&storage, &log_name(FIRST_LOG))));
    seeds.push(seed("wal_signed", "one", signed_log()));
    let mut two = signed_log();
    two.push(0);
    two.push(1);
    put_bytes(&mut two, &record(7, &batches[1]));
    two.push(6);
    put_bytes(&mut two, &[]);
    seeds.push(seed("wal_signed", "two", two));
    seeds.push(seed("store", "new", [join(&[&edits()]), signed_log()].concat()));
    seeds
}

fn record(sequence: u64, batch: &[u8]) -> Vec<u8> {
    [&sequence.to_le_bytes(), batch].concat()
}

/// Fragments of one log: a whole record, one in three parts, a sync mark.
fn signed_log() -> Vec<u8> {
    let batches = batches();
    let (small, mixed) = (record(1, &batches[1]), record(2, &batches[2]));
    let mut out = Vec::new();
    for (kind, payload) in [(1, &small[..]), (2, &mixed[..20]), (3, &mixed[20..40]), (4, &mixed[40..])] {
        out.push(kind);
        put_bytes(&mut out, payload);
    }
    out.push(5);
    put_bytes(&mut out, &64_u64.to_le_bytes());
    out
}

/// Edits of a store of two keyspaces without tables, each behind its length.
pub(crate) fn edits() -> Vec<u8> {
    let mut first = Edit { store: Some(id()), next_file_number: Some(9), ..Edit::default() };
    first.create_keyspace(0, "default", 0);
    let mut second = Edit::default();
    second.create_keyspace(1, "second", 4);
    second.set_wal_number(0, 5);
    let edits = [first, second].map(|edit| {
        let mut bytes = Vec::new();
        edit.encode(&mut bytes);
        bytes
    });
    join(&[&edits[0], &edits[1]])
}

fn meta(number: u64, tier: Tier) -> TableMeta {
    TableMeta {
        number,
        tier,
        size_bytes: 4000,
        tail_bytes: 300,
        smallest: kelvin::Bytes::from_static(b"a"),
        largest: kelvin::Bytes::from_static(b"m"),
        largest_exclusive: true,
        sequence_min: 3,
        sequence_max: 90,
        entries: 60,
        deletions: 4,
        range_tombstones: 1,
        copies: 0,
        expiring: 2,
        expiry_min_ms: 2_000_000,
        key_bytes: 600,
        value_bytes: 3000,
    }
}

fn manifests() -> Vec<Seed> {
    let mut third = Edit::default();
    third.add(0, 1, meta(10, Tier::Fast));
    third.add(1, 8, meta(11, Tier::Slow));
    third.set_last_sequence(90);
    let mut fourth = Edit::default();
    fourth.remove(0, 1, 10);
    fourth.drop_keyspace(1);
    let mut all = edits();
    for edit in [&third, &fourth] {
        let mut bytes = Vec::new();
        edit.encode(&mut bytes);
        put_bytes(&mut all, &bytes);
    }
    let mut alone = Edit { store: Some(id()), ..Edit::default() };
    alone.create_keyspace(0, "default", 0);
    alone.create_keyspace(1, "second", 0);
    alone.added = third.added;
    let mut bytes = Vec::new();
    alone.encode(&mut bytes);
    vec![
        seed("edit", "snapshot", bytes),
        seed("manifest", "four-edits", crate::manifest::sign(&all)),
        seed("manifest_signed", "four-edits", all),
        seed("manifest_signed", "two-edits", edits()),
        seed("current", "line", current_line(NUMBER).into_bytes()),
    ]
}

fn table(compression: Compression, entries: u32, tombstones: bool) -> Vec<u8> {
    let sink = fuzz::BytesSink::default();
    let options =
        TableOptions { block_size_bytes: 512, restart_interval: 4, filter_bits_per_key: 10, compression };
    let mut writer = TableWriter::new(Box::new(sink.clone()), Path::new("seed"), fuzz::FILE_NUMBER, options);
    for number in 0..entries {
        let (kind_byte, value) = match number % 5 {
            0 => (Kind::Deletion as u8, Vec::new()),
            1 => (Kind::Value as u8 | EXPIRES, [&2_000_000_u64.to_le_bytes()[..], b"ends"].concat()),
            _ => (Kind::Value as u8, vec![b'v'; 30]),
        };
        let mut key = Vec::new();
        append_internal(
            &mut key,
            format!("key{number:04}").as_bytes(),
            trailer(u64::from(number) + 1, kind_byte),
        );
        writer.add(&key, &value).expect("memory takes an entry");
    }
    if tombstones {
        writer.add_tombstone(RangeTombstone {
            start: b"b".to_vec().into(),
            end: b"key0003".to_vec().into(),
            sequence: 40,
        });
    }
    writer.finish().expect("memory takes a table");
    sink.take()
}

fn block() -> Vec<u8> {
    let mut builder = BlockBuilder::new(4);
    let mut before = String::new();
    for number in 0..12_u64 {
        let key = format!("key{number:04}");
        let alike = common_len(before.as_bytes(), key.as_bytes());
        builder.add(key.as_bytes(), alike, trailer(number + 1, Kind::Value as u8), b"value");
        before = key;
    }
    builder.finish().clone()
}

fn tables() -> Vec<Seed> {
    let block = block();
    let properties = Properties { entries: 12, sequence_max: 12, ..Properties::default() };
    // No filter, no tombstones.
    let mut signed = join(&[b"", b"\0", &properties.encode()]);
    put_bytes(&mut signed, &block);
    signed.push(0);
    put_bytes(&mut signed, b"key0011");
    signed.extend_from_slice(&0_u64.to_le_bytes());
    let mut seeds = vec![
        seed("table", "plain", table(Compression::None, 40, false)),
        seed("table", "lz4-tombstones", table(Compression::Lz4, 40, true)),
        seed("table", "zstd", table(Compression::Zstd, 60, true)),
        seed("table", "only-tombstones", table(Compression::None, 0, true)),
        seed("table_signed", "one-block", signed),
        seed("table_parts", "block", block.clone()),
        seed("block", "twelve", block.clone()),
    ];
    for compression in [Compression::Lz4, Compression::Zstd] {
        let mut packed = Vec::new();
        if compression.compress(&block, &mut packed) {
            seeds.push(seed("compression", &format!("{compression:?}"), packed.clone()));
            seeds.push(seed("table_parts", &format!("{compression:?}"), packed));
        }
    }
    seeds
}

fn transfers() -> Vec<Seed> {
    let records = [
        Record { key: b"plain".to_vec(), value: b"a value, with a comma".to_vec(), expiry_ms: None },
        Record { key: vec![0xff, 0, b'\n'], value: b"\"quoted\"\\".to_vec(), expiry_ms: Some(2_000_000) },
    ];
    let mut seeds = Vec::new();
    for (choice, format) in (0_u8..).zip(Format::ALL) {
        for encoding in [Encoding::Escape, Encoding::Base64, Encoding::Hex] {
            let mut bytes = vec![choice];
            let mut encoder = Encoder::new(format, &mut bytes, encoding);
            records.iter().try_for_each(|record| encoder.write(record)).expect("memory takes a record");
            encoder.finish().expect("memory takes the end");
            seeds.push(seed("transfer", &format!("{}-{}", format.name(), encoding.name()), bytes));
        }
    }
    let mut signed = vec![3];
    signed.extend_from_slice(&1_u32.to_le_bytes());
    put_bytes(
        &mut signed,
        &[&[1][..], &3_u32.to_le_bytes(), &2_u32.to_le_bytes(), &9_u64.to_le_bytes(), b"keyva"].concat(),
    );
    signed.extend_from_slice(&0_u32.to_le_bytes());
    put_bytes(&mut signed, &1_u64.to_le_bytes());
    seeds.push(seed("transfer", "dump-signed", signed));
    seeds
}
