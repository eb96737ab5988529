//! What is done to a file: every bit, every length, every piece; and what of a log is vouched for behind it.
//!
//! All harms of a store are numbered: those of whole pieces first, then the lengths, then the bits. Tests: `tests/rot.rs`.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use kelvin_base::Sequence;
use kelvin_lsm::version::{Recorded, is_hot_run, read_recorded};
use kelvin_lsm::wal::WalReader;
use kelvin_lsm::wal::format::{BLOCK_BYTES, FILE_HEADER_BYTES, FragmentKind, Parsed, parse, synced_offset};
use kelvin_storage::{IoMode, MemoryStorage, Storage};
use kelvin_table::Table;

use super::files::{Bytes, list_all, read, replace};
use super::fixture::{Dirs, Fixture};

/// Bytes of a sector, a short and a usual one.
const SECTORS: [usize; 2] = [64, 512];
/// Sectors so far from each other change places.
const SECTORS_APART: usize = 3;
/// A piece takes the place of so many like it in other files.
const EXCHANGES: usize = 3;

/// Bytes of the mark behind the last edit of a manifest.
const MARK_BYTES: usize = 16;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A table.
    Table,
    /// A table of a run of the hot level: copies.
    Copies,
    /// A log that an opening reads.
    Log,
    /// A log whose records tables hold.
    SpareLog,
    /// The manifest, or the file that names it.
    Manifest,
    /// The identity of the slow tier.
    Identity,
    /// A file of the hot-key tracker.
    Tracker,
}

impl Kind {
    /// True if nothing is lost with it.
    pub(super) const fn is_advisory(self) -> bool {
        matches!(self, Self::Copies | Self::Tracker | Self::SpareLog)
    }
}

/// A file that is harmed.
pub(super) struct Target {
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
    pub(super) bytes: Bytes,
    /// What it is made of, where that is known.
    pieces: Vec<Range<usize>>,
    /// What it held before.
    older: Vec<Bytes>,
}

/// What is done to a file.
#[derive(Clone, Debug)]
pub(super) enum Harm {
    Gone,
    Older(usize),
    /// It holds what another file does.
    Whole(usize),
    Zero(Range<usize>),
    Swap(Range<usize>, Range<usize>),
    /// A piece of another file stands where one of its own did.
    From(Range<usize>, usize, Range<usize>),
    Cut(usize),
    Flip(usize),
}

/// All harms of a store.
pub(super) struct Harms {
    pub(super) targets: Vec<Target>,
    /// Of pieces, with the files that they are done to.
    pieces: Vec<(usize, Harm)>,
    logs: Vec<Log>,
}

/// What a log holds.
struct Log {
    target: usize,
    /// Ends of its records, and their last sequence numbers.
    records: Vec<(usize, Sequence)>,
    /// Where sync marks stand, and up to where they vouch.
    marks: Vec<(Range<usize>, u64)>,
    /// The last sequence number before its first record, if it has one.
    base: Option<Sequence>,
}

/// Classes of harms; each has its own share of a budget.
pub(super) const CLASSES: usize = 3;

impl Harms {
    pub(super) fn of(fixture: &Fixture) -> Result<Self, String> {
        let Dirs { fast, slow } = &fixture.dirs;
        let recorded = read_recorded(&fixture.device, fast).map_err(|error| error.to_string())?;
        let recorded = recorded.ok_or("there is no store to harm")?;
        let mut paths = list_all(&fixture.device, fast)?;
        if let Some(slow) = slow {
            paths.extend(list_all(&fixture.device, slow)?);
        }
        let mut targets = Vec::new();
        for path in paths {
            let bytes = read(&fixture.device, &path)?;
            let older = fixture.older.get(&path).cloned().unwrap_or_default();
            let kind = kind_of(&path, &recorded)?;
            let pieces = pieces_of(&fixture.device, &path, kind, &bytes);
            targets.push(Target { path, kind, bytes, pieces, older });
        }
        let mut logs = Vec::new();
        for (at, target) in targets.iter().enumerate().filter(|(_, target)| target.kind == Kind::Log) {
            logs.push(log_of(&fixture.device, fast, at, target)?);
        }
        let mut harms = Self { targets, pieces: Vec::new(), logs };
        harms.pieces = (0..harms.targets.len()).flat_map(|at| harms.of_pieces(at)).collect();
        Ok(harms)
    }

    /// How many there are of each class.
    pub(super) fn counts(&self) -> [u64; CLASSES] {
        let bytes: usize = self.targets.iter().map(|target| target.bytes.len()).sum();
        [self.pieces.len() as u64, bytes as u64, 8 * bytes as u64]
    }

    /// The harm of this number in its class.
    pub(super) fn nth(&self, class: usize, number: u64) -> Option<(usize, Harm)> {
        let number = usize::try_from(number).ok()?;
        if class == 0 {
            return self.pieces.get(number).cloned();
        }
        let per_byte = if class == 1 { 1 } else { 8 };
        let mut before = 0;
        for (at, target) in self.targets.iter().enumerate() {
            let count = target.bytes.len() * per_byte;
            if number < before + count {
                let within = number - before;
                return Some((at, if class == 1 { Harm::Cut(within) } else { Harm::Flip(within) }));
            }
            before += count;
        }
        None
    }

    fn of_pieces(&self, at: usize) -> Vec<(usize, Harm)> {
        let target = &self.targets[at];
        let mut harms = vec![Harm::Gone];
        harms.extend((0..target.older.len()).map(Harm::Older));
        let alike = |other: &usize| {
            *other != at
                && self.targets[*other].bytes != target.bytes
                && self.targets[*other].path.extension() == target.path.extension()
        };
        let others: Vec<usize> = (0..self.targets.len()).filter(alike).collect();
        harms.extend(others.iter().map(|other| Harm::Whole(*other)));
        let differ = |one: &Range<usize>, other: &Range<usize>| {
            one.len() == other.len() && target.bytes[one.clone()] != target.bytes[other.clone()]
        };
        for (first, one) in target.pieces.iter().enumerate() {
            let same = target.pieces[first + 1..].iter().filter(|other| differ(one, other));
            harms.extend(same.map(|other| Harm::Swap(one.clone(), other.clone())));
            let foreign = others.iter().flat_map(|other| {
                let fits = |piece: &&Range<usize>| {
                    piece.len() == one.len()
                        && self.targets[*other].bytes[(*piece).clone()] != target.bytes[one.clone()]
                };
                self.targets[*other].pieces.iter().filter(fits).map(move |piece| (*other, piece.clone()))
            });
            harms.extend(foreign.take(EXCHANGES).map(|(other, piece)| Harm::From(one.clone(), other, piece)));
        }
        for bytes in SECTORS {
            let sector = |number: usize| number * bytes..((number + 1) * bytes).min(target.bytes.len());
            for number in 0..target.bytes.len().div_ceil(bytes) {
                let one = sector(number);
                if target.bytes[one.clone()].iter().any(|byte| *byte != 0) {
                    harms.push(Harm::Zero(one.clone()));
                }
                let near = (1..=SECTORS_APART).map(|apart| sector(number + apart));
                let near = near.filter(|other| other.start < other.end && differ(&one, other));
                harms.extend(near.map(|other| Harm::Swap(one.clone(), other)));
            }
        }
        harms.into_iter().map(|harm| (at, harm)).collect()
    }

    /// Does `harm` to the file `at` of a device.
    pub(super) fn inflict(&self, device: &MemoryStorage, at: usize, harm: &Harm) -> Result<(), String> {
        let target = &self.targets[at];
        let mut bytes = target.bytes.to_vec();
        match harm {
            Harm::Gone => return replace(device, &target.path, None),
            Harm::Older(number) => bytes = target.older[*number].to_vec(),
            Harm::Whole(other) => bytes = self.targets[*other].bytes.to_vec(),
            Harm::Zero(piece) => bytes[piece.clone()].fill(0),
            Harm::Swap(one, other) => {
                let held = bytes[one.clone()].to_vec();
                bytes.copy_within(other.clone(), one.start);
                bytes[other.clone()].copy_from_slice(&held);
            }
            Harm::From(piece, other, there) => {
                bytes[piece.clone()].copy_from_slice(&self.targets[*other].bytes[there.clone()]);
            }
            Harm::Cut(len) => bytes.truncate(*len),
            Harm::Flip(bit) => bytes[bit / 8] ^= 1 << (bit % 8),
        }
        replace(device, &target.path, Some(&bytes))
    }

    /// The bytes of the file that a harm touches; one of both ranges may be empty.
    fn touched(&self, at: usize, harm: &Harm) -> [Range<usize>; 2] {
        let target = &self.targets[at];
        let len = target.bytes.len();
        let one = |range: Range<usize>| [range.clone(), range.end..range.end];
        let all_behind = |other: &[u8]| {
            one(target.bytes.iter().zip(other).take_while(|(one, other)| one == other).count()..len)
        };
        match harm {
            Harm::Gone => one(0..len),
            Harm::Older(number) => all_behind(&target.older[*number]),
            Harm::Whole(other) => all_behind(&self.targets[*other].bytes),
            Harm::Zero(piece) | Harm::From(piece, ..) => one(piece.clone()),
            Harm::Swap(first, second) => [first.clone(), second.clone()],
            Harm::Cut(to) => one(*to..len),
            Harm::Flip(bit) => one(bit / 8..bit / 8 + 1),
        }
    }

    /// The earliest moment whose state may be answered after `harm`, if no error is: the last one, unless the bytes are such as a
    /// power loss leaves (docs/formats/wal.md, docs/formats/manifest.md).
    pub(super) fn least(&self, fixture: &Fixture, at: usize, harm: &Harm) -> u64 {
        let target = &self.targets[at];
        if target.kind == Kind::Manifest && !target.path.ends_with("CURRENT") {
            // The last edit is vouched for by what stands behind it.
            let vouched = target.bytes.len().saturating_sub(MARK_BYTES);
            let is_cut = self.touched(at, harm).iter().any(|range| range.end > vouched);
            return if is_cut { 0 } else { fixture.last() };
        }
        let Some(number) = self.logs.iter().position(|log| log.target == at) else { return fixture.last() };
        let touched = self.touched(at, harm);
        let begin = touched.iter().map(|range| range.start).min().unwrap_or(0);
        let is_intact = |mark: &Range<usize>| {
            touched.iter().all(|range| range.end <= mark.start || mark.end <= range.start)
        };
        let vouches = |(mark, synced): &(Range<usize>, u64)| is_intact(mark) && *synced > begin as u64;
        let is_vouched = self.logs[number].marks.iter().any(vouches)
            || self.logs[number + 1..].iter().any(|log| !log.marks.is_empty());
        if is_vouched {
            return fixture.last();
        }
        let of_log = |log: &Log, until: usize| {
            let before = log.records.iter().take_while(|(end, _)| *end <= until).last();
            before.map(|(_, sequence)| *sequence).or(log.base)
        };
        let kept = of_log(&self.logs[number], begin)
            .or_else(|| self.logs[..number].iter().rev().find_map(|log| of_log(log, usize::MAX)));
        kept.map_or(fixture.last(), |sequence| fixture.moment_of(sequence))
    }
}

fn kind_of(path: &Path, recorded: &Recorded) -> Result<Kind, String> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let number = |ending: &str| name.strip_suffix(ending).and_then(|digits| digits.parse::<u64>().ok());
    if path.parent().is_some_and(|dir| dir.ends_with("ralt")) {
        return Ok(Kind::Tracker);
    }
    if let Some(number) = number(".tbl") {
        let mut tables = recorded.keyspaces.values().flat_map(|one| one.tables.keys());
        let level = tables.find(|(_, found)| *found == number).map(|(level, _)| *level);
        // A table that is in no version is removed when the store is opened.
        let is_needed = level.is_some_and(|level| !is_hot_run(level));
        return Ok(if is_needed { Kind::Table } else { Kind::Copies });
    }
    if let Some(number) = number(".wal") {
        let needed = recorded.keyspaces.values().map(|one| one.wal_number).min().unwrap_or(0);
        return Ok(if number < needed { Kind::SpareLog } else { Kind::Log });
    }
    match name.as_str() {
        "CURRENT" => Ok(Kind::Manifest),
        "IDENTITY" => Ok(Kind::Identity),
        _ if number(".manifest").is_some() => Ok(Kind::Manifest),
        _ => Err(format!("{} is no file that is known", path.display())),
    }
}

/// The pieces of a file.
fn pieces_of(device: &MemoryStorage, path: &Path, kind: Kind, bytes: &[u8]) -> Vec<Range<usize>> {
    let within = |start: u64, len: usize| {
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        start..start.saturating_add(len).min(bytes.len())
    };
    match kind {
        Kind::Table | Kind::Copies => {
            let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            let opened = stem.parse().ok().and_then(|number| {
                let file = device.open(path, IoMode::Buffered).ok()?;
                Table::open(file, path, number, bytes.len() as u64, 0, None).ok()
            });
            let Some(table) = opened else { return Vec::new() };
            let blocks = (0..).map_while(|number| table.block_place(number));
            blocks.map(|(handle, ..)| within(handle.offset, handle.len_with_trailer())).collect()
        }
        Kind::Log | Kind::SpareLog => fragments(path, bytes).into_iter().map(|(range, ..)| range).collect(),
        Kind::Manifest | Kind::Identity | Kind::Tracker => Vec::new(),
    }
}

/// The fragments of a log, with their kinds and what they hold.
fn fragments(path: &Path, bytes: &[u8]) -> Vec<(Range<usize>, FragmentKind, Vec<u8>)> {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let Ok(number) = stem.parse() else { return Vec::new() };
    let mut found = Vec::new();
    for (index, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
        let block_at = index * BLOCK_BYTES;
        let mut at = if index == 0 { FILE_HEADER_BYTES } else { 0 };
        while let Parsed::Fragment { kind, payload, end } = parse(number, block, block_at as u64, at) {
            found.push((block_at + at..block_at + end, kind, payload.to_vec()));
            at = end;
        }
    }
    found
}

fn log_of(device: &MemoryStorage, dir: &Path, at: usize, target: &Target) -> Result<Log, String> {
    let stem = target.path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let number = stem.parse().map_err(|_| format!("{} has no number", target.path.display()))?;
    let told = |error: kelvin::Error| error.to_string();
    let mut reader = WalReader::open(device, dir, number).map_err(told)?;
    let (mut records, mut base) = (Vec::new(), None);
    while let Some(record) = reader.next_record().map_err(told)? {
        base = base.or_else(|| record.first_sequence.checked_sub(1));
        let last = record.first_sequence + u64::from(record.operations) - 1;
        records.push((usize::try_from(reader.offset()).unwrap_or(usize::MAX), last));
    }
    let mark = |(range, kind, payload): (Range<usize>, FragmentKind, Vec<u8>)| {
        (kind == FragmentKind::Synced).then(|| synced_offset(&payload).map(|synced| (range, synced)))?
    };
    let marks = fragments(&target.path, &target.bytes).into_iter().filter_map(mark).collect();
    Ok(Log { target: at, records, marks, base })
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => write!(f, "is gone"),
            Self::Older(number) => write!(f, "holds what it held before ({number})"),
            Self::Whole(_) => write!(f, "holds what another one holds"),
            Self::Zero(piece) => write!(f, "is zero from byte {} to {}", piece.start, piece.end),
            Self::Swap(one, other) => {
                write!(f, "has {} bytes from {} and from {} on swapped", one.len(), one.start, other.start)
            }
            Self::From(piece, _, there) => {
                write!(
                    f,
                    "has {} bytes from {} on of another one's {}",
                    piece.len(),
                    piece.start,
                    there.start
                )
            }
            Self::Cut(len) => write!(f, "ends at byte {len}"),
            Self::Flip(bit) => write!(f, "has bit {} of byte {} flipped", bit % 8, bit / 8),
        }
    }
}
