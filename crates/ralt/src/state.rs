//! The state file: what RALT needs to go on after a restart (docs/formats/ralt.md).
//!
//! It is written anew at each install, beside the old one, and renamed. Nothing waits for it to be durable: whatever is in
//! doubt at an opening (another owner, a newer format, a checksum, a run that is missing or damaged) empties RALT, which costs
//! speed and nothing else (DESIGN: advisory state is advisory). Tests: `tests.rs`.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kelvin_base::coding::{get_bytes, get_u32, get_u64, get_varint, put_bytes, put_varint};
use kelvin_base::hash::hash64_seeded;
use kelvin_base::{Error, Result, seeded_bug};
use kelvin_storage::{AlignedBuf, Create, IoMode, Storage};

use crate::core::{Core, Work};
use crate::limits::Limits;
use crate::options::Options;
use crate::run::{Run, Shelf};
use crate::score::{Now, Scoring};
use crate::version::{LEVELS, Placed, Version};

const MAGIC: &[u8; 8] = b"KLVNRALT";
const FORMAT: u32 = 4;
/// The checksum's seed.
const SEED: u64 = 0x5a17_5a17;
/// No count or size is larger, so that sums of them fit.
pub const NUMBER_MAX: u64 = 1 << 56;
/// A larger state file is not believed.
const STATE_BYTES_MAX: u64 = 16 << 20;

fn state_path(dir: &Path) -> PathBuf {
    dir.join("STATE")
}

/// A number for each way of scoring, as records of one say nothing to another, and its parameter's bits.
const fn scoring_code(scoring: Scoring) -> (u8, u64) {
    match scoring {
        Scoring::Exponential { alpha } => (1, alpha.to_bits()),
        Scoring::Lru => (2, 0),
        Scoring::Clock { max } => (3, max as u64),
    }
}

/// The reverse of [`scoring_code`]; `None` if there is none of this code, or the parameter is none it can have.
fn scoring_of(code: u8, parameter: u64) -> Option<Scoring> {
    let scoring = match code {
        1 => Scoring::Exponential { alpha: f64::from_bits(parameter) },
        2 => Scoring::Lru,
        3 => Scoring::Clock { max: u32::try_from(parameter).ok()? },
        _ => return None,
    };
    let is_sound = match scoring {
        Scoring::Exponential { alpha } => alpha > 0.0 && alpha < 1.0,
        Scoring::Lru => parameter == 0,
        Scoring::Clock { max } => max > 0,
    };
    is_sound.then_some(scoring)
}

/// The state file of `owner` with this body.
pub fn sign(owner: &[u8; 16], body: &[u8]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&FORMAT.to_le_bytes());
    out.extend_from_slice(owner);
    out.extend_from_slice(body);
    let sum = hash64_seeded(SEED, &out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

fn encode(options: &Options, work: &Work, version: &Version) -> Vec<u8> {
    let mut out = Vec::new();
    let (code, parameter) = scoring_code(options.scoring);
    out.push(code);
    out.extend_from_slice(&parameter.to_le_bytes());
    out.extend_from_slice(&version.hot_score.to_bits().to_le_bytes());
    let Now { slice, accesses, turns, lowered_halves } = work.now;
    let limits = version.limits;
    for number in [
        work.accessed_bytes,
        u64::from(slice),
        accesses,
        u64::from(turns),
        u64::from(lowered_halves),
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
    sign(&options.owner, &out)
}

/// A run as the state file names it: number, length, and the key from which on it counts.
type Named = (u64, u64, Vec<u8>);

/// What a state file says.
#[derive(Debug, PartialEq)]
pub struct State {
    scoring: Scoring,
    hot_score: f64,
    accessed_bytes: u64,
    now: Now,
    limits: Limits,
    next_number: u64,
    levels: [Vec<Named>; LEVELS],
}

/// Why what lies there is not gone on with.
#[derive(Clone, Debug, PartialEq)]
pub enum Doubt {
    /// There is no state file, and there are no runs: nothing is lost.
    Empty,
    /// Something is missing, or is not as it was written.
    Damaged,
    /// Another version of the program wrote it.
    Format(u32),
    /// It is of another owner's keys.
    Owner,
    /// It was kept with this scoring.
    Scoring(Scoring),
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the hot-key tracker begins anew: its files ")?;
        match self {
            Self::Empty => f.write_str("are not there"),
            Self::Damaged => f.write_str("are damaged, or some are missing"),
            Self::Format(format) => write!(f, "are of format {format}, and this version writes {FORMAT}"),
            Self::Owner => f.write_str("are of another store"),
            Self::Scoring(scoring) => write!(f, "were kept with {}", scoring.name()),
        }
    }
}

/// Reads a state file's bytes.
///
/// # Errors
/// If they are not what this version of the program wrote for this owner, with a scoring that is wanted.
pub fn decode(options: &Options, bytes: &[u8]) -> Result<State, Doubt> {
    let (body, sum) = bytes.split_last_chunk::<8>().ok_or(Doubt::Damaged)?;
    let is_whole = hash64_seeded(SEED, body) == u64::from_le_bytes(*sum);
    if !is_whole && !seeded_bug!("damaged-tracker-is-believed") {
        return Err(Doubt::Damaged);
    }
    let mut rest = body.strip_prefix(MAGIC).ok_or(Doubt::Damaged)?;
    let input = &mut rest;
    let format = get_u32(input).ok_or(Doubt::Damaged)?;
    if format != FORMAT && !seeded_bug!("tracker-of-the-future-is-believed") {
        return Err(Doubt::Format(format));
    }
    let (owner, mut rest) = input.split_first_chunk::<16>().ok_or(Doubt::Damaged)?;
    if *owner != options.owner && !seeded_bug!("foreign-tracker-is-believed") {
        return Err(Doubt::Owner);
    }
    let state = decode_rest(&mut rest).ok_or(Doubt::Damaged)?;
    let is_same = scoring_code(state.scoring).0 == scoring_code(options.scoring).0;
    if is_same || options.keeps_scoring { Ok(state) } else { Err(Doubt::Scoring(state.scoring)) }
}

/// What stands behind the owner.
fn decode_rest(input: &mut &[u8]) -> Option<State> {
    let (&code, tail) = input.split_first()?;
    *input = tail;
    let scoring = scoring_of(code, get_u64(input)?)?;
    let hot_score = f64::from_bits(get_u64(input)?);
    let mut numbers = [0; 8];
    for number in &mut numbers {
        *number = get_varint(input)?;
    }
    let [accessed_bytes, slice, accesses, turns, lowered_halves, hot_bytes, physical_bytes, next_number] =
        numbers;
    let mut levels: [Vec<Named>; LEVELS] = Default::default();
    for level in &mut levels {
        for _ in 0..get_varint(input)? {
            level.push((get_varint(input)?, get_varint(input)?, get_bytes(input)?.to_vec()));
        }
    }
    let [slice, turns, lowered_halves] = [slice, turns, lowered_halves].map(u32::try_from);
    let now = Now { slice: slice.ok()?, accesses, turns: turns.ok()?, lowered_halves: lowered_halves.ok()? };
    let limits = Limits { hot_bytes, physical_bytes };
    let is_sound =
        input.is_empty() && !hot_score.is_nan() && numbers.iter().all(|&number| number <= NUMBER_MAX);
    is_sound.then_some(State { scoring, hot_score, accessed_bytes, now, limits, next_number, levels })
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

/// Reads the state file.
fn read(options: &Options, storage: &dyn Storage, dir: &Path) -> Result<State, Doubt> {
    let path = state_path(dir);
    if storage.exists(&path).is_ok_and(|exists| !exists) {
        return Err(Doubt::Empty);
    }
    let mut buf = AlignedBuf::new();
    let range = read_whole(storage, &path, &mut buf).ok_or(Doubt::Damaged)?;
    decode(options, buf.as_slice().get(range).ok_or(Doubt::Damaged)?)
}

/// Reads a file into `buf`, and says where; `None` if it cannot be read or is too large to be believed.
fn read_whole(storage: &dyn Storage, path: &Path, buf: &mut AlignedBuf) -> Option<Range<usize>> {
    let file = storage.open(path, IoMode::Buffered).ok()?;
    let len = file.len().ok().filter(|&len| len <= STATE_BYTES_MAX)?;
    file.read_at(0, usize::try_from(len).ok()?, buf).ok()
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
    let is_sorted = |level: &Vec<Placed>| level.windows(2).all(|pair| pair[0].run.last() < pair[1].first());
    version.levels[1..].iter().all(is_sorted).then_some(version)
}

/// What a RALT begins with.
#[derive(Debug)]
pub struct Restored {
    pub work: Work,
    pub version: Version,
    /// The scoring that it goes on with.
    pub scoring: Scoring,
    /// Why it begins anew, if it does.
    pub doubt: Option<Doubt>,
}

/// What was there before, or nothing. Files that belong to nothing are removed.
pub fn restore(options: &Options, shelf: &Shelf) -> Restored {
    let first = Work {
        accessed_bytes: 0,
        seen_bytes: 0,
        now: Now::default(),
        next_number: 0,
        evicted_at_bytes: 0,
        compacted_to: Default::default(),
        counted_to: None,
    };
    let state = read(options, &*shelf.storage, &shelf.dir);
    let opened = state.and_then(|state| match open_runs(shelf, &state) {
        Some(version) => Ok((state, version)),
        None => Err(Doubt::Damaged),
    });
    let mut restored = match opened {
        Ok((state, mut version)) => {
            let State { accessed_bytes, now, next_number, scoring, .. } = state;
            // Limits that stay are those of the options, also for what was kept under others.
            if !options.has_auto_tuning {
                version.limits = options.first;
            }
            let work = Work { accessed_bytes, now, next_number, ..first };
            Restored { work, version, scoring, doubt: None }
        }
        Err(doubt) => {
            let version = Version { limits: options.first, ..Version::default() };
            Restored { work: first, version, scoring: options.scoring, doubt: Some(doubt) }
        }
    };
    let named: BTreeSet<u64> = restored.version.placed().map(|placed| placed.run.number()).collect();
    let highest = remove_strays(shelf, &named);
    restored.work.next_number = restored.work.next_number.max(highest);
    if restored.doubt == Some(Doubt::Empty) && highest > 0 {
        // Runs without a state are what is left of one.
        restored.doubt = Some(Doubt::Damaged);
    }
    restored
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A state file's bytes after `change`, its checksum made anew.
    fn changed(bytes: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut body = bytes[..bytes.len() - 8].to_vec();
        change(&mut body);
        let sum = hash64_seeded(SEED, &body);
        body.extend_from_slice(&sum.to_le_bytes());
        body
    }

    fn state() -> (Options, Vec<u8>) {
        let options = Options::of_fast(1 << 20, [7; 16]);
        let work = Work {
            accessed_bytes: 5,
            seen_bytes: 0,
            now: Now::default(),
            next_number: 3,
            evicted_at_bytes: 0,
            compacted_to: Default::default(),
            counted_to: None,
        };
        let bytes = encode(&options, &work, &Version::default());
        (options, bytes)
    }

    #[test]
    fn a_state_with_any_byte_changed_is_not_read() {
        let (options, good) = state();
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 0x10;
            assert_eq!(decode(&options, &bytes), Err(Doubt::Damaged), "byte {at}");
            assert_eq!(decode(&options, &good[..at]), Err(Doubt::Damaged), "cut off at {at}");
        }
    }

    #[test]
    fn a_state_of_another_format_is_not_read() {
        let (options, bytes) = state();
        assert_eq!(decode(&options, &bytes).map(|state| state.next_number), Ok(3));
        assert!(decode(&options, &changed(&bytes, |_| {})).is_ok());
        for format in [0, FORMAT + 1, u32::MAX] {
            let other = changed(&bytes, |body| body[8..12].copy_from_slice(&format.to_le_bytes()));
            assert_eq!(decode(&options, &other), Err(Doubt::Format(format)));
        }
        assert_eq!(decode(&options, &changed(&bytes, |body| body[12] ^= 1)), Err(Doubt::Owner));
        assert_eq!(decode(&options, &changed(&bytes, |body| body.push(0))), Err(Doubt::Damaged));
    }
}
