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

/// Every target.
pub const TARGETS: [Target; 19] = [
    target("wal", log::plain, 1),
    target("wal_signed", log::signed, 1),
    target("batch", log::batch, 1),
    target("edit", manifest::edit, 1),
    target("manifest", manifest::plain, 1),
    target("manifest_signed", manifest::signed, 1),
    target("current", manifest::current, 1),
    target("store", engine::store, 20),
    target("table", tables::plain, 5),
    target("table_signed", tables::signed, 5),
    target("table_parts", tables::parts, 1),
    target("block", tables::block, 1),
    target("compression", tables::compression, 2),
    target("options", options::derive, 1),
    target("identity", formats::identity, 1),
    target("ralt_parts", ralt::parts, 1),
    target("ralt", ralt::directory, 20),
    target("transfer", records::transfer, 2),
    target("ops", engine::ops, 50),
];

/// Runs the target `name` on `data`; true if the bytes were taken as valid.
///
/// # Panics
/// If a promise of the target is broken, or there is no such target.
pub fn run(name: &str, data: &[u8]) -> bool {
    let target = TARGETS.iter().find(|target| target.name == name);
    target.map(|target| (target.run)(data)).expect("a target of this name")
}
