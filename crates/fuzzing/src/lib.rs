//! What the fuzz targets do with their bytes, kept apart from the fuzzer so that everything else can run it too.
//!
//! In:  a target's name and any bytes. Out: whether the bytes were taken as valid.
//! Each target holds to this: any bytes give an answer or an error, never a panic, never memory or time that the bytes
//! did not pay for. What is accepted must also survive being written and read again. A target `x_signed` lays its
//! bytes out under good checksums, so that what lies behind the checksums is reached.
//!
//! `fuzz/` runs the targets under libFuzzer; `tests/corpus.rs` replays the committed corpus and seeded changes of it
//! with the stable compiler; [`seeds`] makes the corpus's valid files.

mod engine;
mod formats;
mod log;
mod manifest;
mod options;
mod ralt;
mod records;
pub mod seeds;
mod stream;
mod tables;

/// A target of fuzzing.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name: that of its program under `fuzz/fuzz_targets` and of its folder under `fuzz/corpus`.
    pub name: &'static str,
    /// What it does; true if the bytes were taken as valid.
    pub run: fn(&[u8]) -> bool,
    /// How much dearer a run is than a plain decoder's, for who must choose how many to make.
    pub cost: u32,
}

const fn target(name: &'static str, run: fn(&[u8]) -> bool, cost: u32) -> Target {
    Target { name, run, cost }
}

/// Each by itself: a program that names one holds no code of the others, which a fuzzer would look through after each run.
pub mod targets {
    use super::{Target, engine, formats, log, manifest, options, ralt, records, tables, target};

    /// One log.
    pub const WAL: Target = target("wal", log::plain, 1);
    /// Logs of fragments.
    pub const WAL_SIGNED: Target = target("wal_signed", log::signed, 1);
    /// A write batch.
    pub const BATCH: Target = target("batch", log::batch, 1);
    /// A manifest's edit.
    pub const EDIT: Target = target("edit", manifest::edit, 1);
    /// A manifest.
    pub const MANIFEST: Target = target("manifest", manifest::plain, 1);
    /// A manifest's edits.
    pub const MANIFEST_SIGNED: Target = target("manifest_signed", manifest::signed, 1);
    /// The file that names the manifest.
    pub const CURRENT: Target = target("current", manifest::current, 1);
    /// A manifest and logs, opened and used.
    pub const STORE: Target = target("store", engine::store, 20);
    /// A table.
    pub const TABLE: Target = target("table", tables::plain, 5);
    /// A table's parts.
    pub const TABLE_SIGNED: Target = target("table_signed", tables::signed, 5);
    /// Index, filter, properties, tombstones, footer.
    pub const TABLE_PARTS: Target = target("table_parts", tables::parts, 1);
    /// A data block.
    pub const BLOCK: Target = target("block", tables::block, 1);
    /// Packed blocks.
    pub const COMPRESSION: Target = target("compression", tables::compression, 2);
    /// Settings.
    pub const OPTIONS: Target = target("options", options::derive, 1);
    /// The slow directory's identity file.
    pub const IDENTITY: Target = target("identity", formats::identity, 1);
    /// The tracker's records.
    pub const RALT_PARTS: Target = target("ralt_parts", ralt::parts, 1);
    /// A directory of the tracker's.
    pub const RALT: Target = target("ralt", ralt::directory, 20);
    /// CSV, JSON lines or a dump.
    pub const TRANSFER: Target = target("transfer", records::transfer, 2);
    /// Operations, compared with a model.
    pub const OPS: Target = target("ops", engine::ops, 50);
    /// Operations, and where the power fails among them.
    pub const CRASH: Target = target("crash", engine::crash, 50);
}

/// Every target.
pub const TARGETS: [Target; 20] = [
    targets::WAL,
    targets::WAL_SIGNED,
    targets::BATCH,
    targets::EDIT,
    targets::MANIFEST,
    targets::MANIFEST_SIGNED,
    targets::CURRENT,
    targets::STORE,
    targets::TABLE,
    targets::TABLE_SIGNED,
    targets::TABLE_PARTS,
    targets::BLOCK,
    targets::COMPRESSION,
    targets::OPTIONS,
    targets::IDENTITY,
    targets::RALT_PARTS,
    targets::RALT,
    targets::TRANSFER,
    targets::OPS,
    targets::CRASH,
];

/// Runs the target `name` on `data`; true if the bytes were taken as valid.
///
/// # Panics
/// If a promise of the target is broken, or there is no such target.
pub fn run(name: &str, data: &[u8]) -> bool {
    let target = TARGETS.iter().find(|target| target.name == name);
    target.map(|target| (target.run)(data)).expect("a target of this name")
}
