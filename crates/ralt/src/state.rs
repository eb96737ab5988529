//! The state file: what RALT needs to go on after a restart (docs/formats/ralt.md).
//!
//! It is written anew at each install, beside the old one, and renamed. Nothing waits for it to be durable: whatever is in
//! doubt at an opening (another owner, a newer format, a checksum, a run that is missing or damaged) empties RALT, which costs
//! speed and nothing else (DESIGN: advisory state is advisory). Tests: `tests.rs`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kelvin_base::coding::{get_bytes, get_u32, get_u64, get_varint, put_bytes, put_varint};
use kelvin_base::hash::hash64_seeded;
use kelvin_base::{Error, Result};
use kelvin_storage::{AlignedBuf, Create, IoMode, Storage};

use crate::core::{Core, Work};
use crate::limits::Limits;
use crate::options::Options;
use crate::run::{Run, Shelf};
use crate::score::{Now, Scoring};
use crate::version::{LEVELS, Placed, Version};

const MAGIC: &[u8; 8] = b"KLVNRALT";
const FORMAT: u32 = 1;
/// The checksum's seed.
const SEED: u64 = 0x5a17_5a17;
/// A larger state file is not believed.
const STATE_BYTES_MAX: u64 = 16 << 20;

fn state_path(dir: &Path) -> PathBuf {
    dir.join("STATE")
}

/// A number for each way of scoring: records of one say nothing to another.
const fn scoring_code(scoring: Scoring) -> u8 {
    match scoring {
        Scoring::Exponential { .. } => 1,
        Scoring::Lru => 2,
        Scoring::Clock { .. } => 3,
    }
}

fn encode(options: &Options, work: &Work, version: &Version) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&FORMAT.to_le_bytes());
    out.extend_from_slice(&options.owner);
    out.push(scoring_code(options.scoring));
    out.extend_from_slice(&version.hot_score.to_bits().to_le_bytes());
    let Now { slice, accesses, turns } = work.now;
    let limits = version.limits;
    for number in [
        work.accessed_bytes,
        u64::from(slice),
        accesses,
        u64::from(turns),
        limits.hot_bytes,
        limits.physical_bytes,
        work.next_number,
    ] {
        put_varint(&mut out, number);
    }
    for level in &version.levels {
        put_varint(&mut out, level.len() as u64);
        for placed in level {
            put_varint(&mut out, placed.run.number());
            put_varint(&mut out, placed.run.file_bytes());
            put_bytes(&mut out, placed.from.as_deref().unwrap_or_default());
        }
    }
    let sum = hash64_seeded(SEED, &out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// A run as the state file names it: number, length, and the key from which on it counts.
type Named = (u64, u64, Vec<u8>);

/// What a state file says.
#[derive(Debug, PartialEq)]
pub struct State {
    hot_score: f64,
    accessed_bytes: u64,
    now: Now,
    limits: Limits,
    next_number: u64,
    levels: [Vec<Named>; LEVELS],
}

/// Reads a state file's bytes; `None` if they are not what this version of the program wrote for this owner.
#[must_use]
pub fn decode(options: &Options, bytes: &[u8]) -> Option<State> {
    let (body, sum) = bytes.split_last_chunk::<8>()?;
    if hash64_seeded(SEED, body) != u64::from_le_bytes(*sum) {
        return None;
    }
    let mut rest = body.strip_prefix(MAGIC)?;
    let input = &mut rest;
    let format = get_u32(input)?;
    let (owner, tail) = input.split_first_chunk::<16>()?;
    *input = tail;
    let (&code, tail) = input.split_first()?;
    *input = tail;
    if format != FORMAT || *owner != options.owner || code != scoring_code(options.scoring) {
        return None;
    }
    let hot_score = f64::from_bits(get_u64(input)?);
    let mut numbers = [0; 7];
    for number in &mut numbers {
        *number = get_varint(input)?;
    }
    let [accessed_bytes, slice, accesses, turns, hot_bytes, physical_bytes, next_number] = numbers;
    let mut levels: [Vec<Named>; LEVELS] = Default::default();
    for level in &mut levels {
        for _ in 0..get_varint(input)? {
            level.push((get_varint(input)?, get_varint(input)?, get_bytes(input)?.to_vec()));
        }
    }
    let now = Now { slice: u32::try_from(slice).ok()?, accesses, turns: u32::try_from(turns).ok()? };
    let limits = Limits { hot_bytes, physical_bytes };
    let is_sound = input.is_empty() && !hot_score.is_nan();
    is_sound.then_some(State { hot_score, accessed_bytes, now, limits, next_number, levels })
}

impl Core {
    /// Writes the state file.
    pub fn save_state(&self, work: &Work, version: &Version) -> Result<()> {
        let (storage, dir) = (&self.shelf.storage, &self.shelf.dir);
        let new = dir.join("STATE.new");
        let failed = |source| Error::io("writing the state of the hot-key tracker", &new, source);
        // One that a crash left behind.
        let _absent = storage.remove(&new);
        let mut file = storage
            .create(&new, Create { buffer_bytes: 4096, ..Create::new(IoMode::Buffered) })
            .map_err(failed)?;
        file.append(&encode(&self.options, work, version)).map_err(failed)?;
        file.flush().map_err(failed)?;
        drop(file);
        storage.rename(&new, &state_path(dir)).map_err(failed)
    }
}

/// Reads the state file; `None` if there is none or it is in doubt.
fn read(options: &Options, storage: &dyn Storage, dir: &Path) -> Option<State> {
    let file = storage.open(&state_path(dir), IoMode::Buffered).ok()?;
    let len = file.len().ok().filter(|&len| len <= STATE_BYTES_MAX)?;
    let len = usize::try_from(len).ok()?;
    let mut buf = AlignedBuf::new();
    let range = file.read_at(0, len, &mut buf).ok()?;
    decode(options, buf.as_slice().get(range)?)
}

/// The version that the state file names, with all its runs open; `None` if any of it is in doubt.
fn open_runs(shelf: &Shelf, state: &State) -> Option<Version> {
    let State { hot_score, now, limits, .. } = *state;
    let mut version = Version { hot_score, now, limits, ..Version::default() };
    for (level, named) in version.levels.iter_mut().zip(&state.levels) {
        for (number, file_bytes, from) in named {
            let run = Run::open(shelf, *number, *file_bytes).ok().filter(|_| *number <= state.next_number)?;
            let from = (!from.is_empty()).then(|| Arc::from(from.as_slice()));
            level.push(Placed { run: Arc::new(run), from });
        }
    }
    let is_sorted =
        |level: &Vec<Placed>| level.windows(2).all(|pair| pair[0].run.last() < pair[1].run.first());
    version.levels[1..].iter().all(is_sorted).then_some(version)
}

/// What was there before, or nothing. Files that belong to nothing are removed.
pub fn restore(options: &Options, shelf: &Shelf) -> (Work, Version) {
    let first =
        Work { accessed_bytes: 0, now: Now::default(), next_number: 0, compacted_to: Default::default() };
    let state = read(options, &*shelf.storage, &shelf.dir);
    let opened = state.as_ref().and_then(|state| open_runs(shelf, state));
    let (work, version) = match state.zip(opened) {
        Some((state, version)) => {
            let State { accessed_bytes, now, next_number, .. } = state;
            (Work { accessed_bytes, now, next_number, ..first }, version)
        }
        None => {
            let limits = Limits::first(options.fast_bytes);
            (first, Version { limits, ..Version::default() })
        }
    };
    let named: BTreeSet<u64> = version.placed().map(|placed| placed.run.number()).collect();
    let highest = remove_strays(shelf, &named);
    let next_number = work.next_number.max(highest);
    (Work { next_number, ..work }, version)
}

/// Removes runs that nobody names; the highest number of any file there was.
fn remove_strays(shelf: &Shelf, named: &BTreeSet<u64>) -> u64 {
    let names = shelf.storage.list(&shelf.dir).unwrap_or_default();
    let number = |name: &Path| {
        let is_run = name.extension().is_some_and(|extension| extension == "ralt");
        name.file_stem()?.to_str().filter(|_| is_run)?.parse::<u64>().ok()
    };
    let numbers: Vec<u64> = names.iter().filter_map(|name| number(name)).collect();
    numbers.iter().filter(|number| !named.contains(number)).for_each(|&number| shelf.remove(number));
    numbers.into_iter().max().unwrap_or(0)
}
