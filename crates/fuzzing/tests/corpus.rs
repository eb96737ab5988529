//! Replays the committed corpus of every fuzz target, and seeded changes of it, without a fuzzer.
//!
//! `KELVIN_FUZZ_CHANGES` (default 3000) is the number of changed inputs for each target of cost 1; dearer ones get less.
//! A failure names the file and the number of the change, which always gives the same bytes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use kelvin_fuzzing::{TARGETS, Target, seeds};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

/// Name and bytes of every file of a target, by name.
#[expect(clippy::disallowed_methods, reason = "reads the project's own files, not a store's")]
fn read_files(dir: &Path) -> std::io::Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        files.push((entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path())?));
    }
    files.sort();
    Ok(files)
}

fn files(target: &Target) -> Vec<(String, Vec<u8>)> {
    let dir = corpus().join(target.name);
    read_files(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()))
}

fn run(target: &Target, data: &[u8], what: &str) -> bool {
    catch_unwind(AssertUnwindSafe(|| (target.run)(data)))
        .unwrap_or_else(|_| panic!("target {}, {what}, {} bytes: {data:02x?}", target.name, data.len()))
}

/// `data`, changed in one to four places as change `number`; parts of `other` may come in.
fn change(data: &[u8], other: &[u8], number: u64) -> Vec<u8> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(number);
    let mut out = data.to_vec();
    for _ in 0..rng.random_range(1..=4) {
        let at = rng.random_range(0..=out.len());
        let len = rng.random_range(0..=16.min(out.len() - at));
        match rng.random_range(0..8) {
            0 if at < out.len() => out[at] ^= 1 << rng.random_range(0..8),
            1 if at < out.len() => out[at] = [0, 1, 0x7f, 0x80, 0xff][rng.random_range(0..5)],
            2 => out[at..at + len].fill(0xff),
            3 => out.truncate(at),
            4 => drop(out.drain(at..at + len)),
            5 => {
                let copy = out[at..at + len].to_vec();
                let to = rng.random_range(0..=out.len());
                out.splice(to..to, copy);
            }
            6 if !other.is_empty() => {
                let from = rng.random_range(0..other.len());
                let part = &other[from..other.len().min(from + 40)];
                out.splice(at..at + len, part.iter().copied());
            }
            _ => out.insert(at, rng.random_range(0..=255)),
        }
    }
    out
}

#[test]
fn the_corpus_of_every_target_is_answered_and_its_valid_files_are_accepted() {
    for target in &TARGETS {
        let files = files(target);
        assert!(files.iter().any(|(name, _)| name.starts_with("valid-")), "{} has no seed", target.name);
        for (name, bytes) in files {
            let accepted = run(target, &bytes, &name);
            assert!(accepted || !name.starts_with("valid-"), "{}/{name} is refused", target.name);
        }
    }
}

#[test]
fn what_the_writers_write_today_is_accepted_too() {
    for seed in seeds::all() {
        assert!(kelvin_fuzzing::run(seed.target, &seed.bytes), "{}/{} is refused", seed.target, seed.name);
    }
}

#[test]
fn changed_files_of_the_corpus_never_make_a_target_panic() {
    let changes: u32 =
        std::env::var("KELVIN_FUZZ_CHANGES").ok().and_then(|text| text.parse().ok()).unwrap_or(3000);
    for target in &TARGETS {
        let files = files(target);
        for number in 0..(changes / target.cost).max(4) {
            let at = number as usize % files.len();
            let other = &files[(at + 1 + number as usize / files.len()) % files.len()].1;
            let changed = change(&files[at].1, other, u64::from(number));
            run(target, &changed, &format!("change {number} of {}", files[at].0));
        }
    }
}
