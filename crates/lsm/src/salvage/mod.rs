//! Rescues what can be read of a damaged, closed store into a new one, and says exactly what is lost.
//!
//! Nothing of the damaged store is changed: its lock is taken, everything is read from its files. The newest version of each key
//! that can be read decides, as in any read. It is *doubtful* if what was lost could hold a newer one or a tombstone of its
//! key ([`doubt`]): a stale or deleted value is never given out for a sound one, so doubtful records go to a keyspace of their own,
//! `<name>.doubtful`.
//!
//! [`survey`] opens what is left and reads logs and tails of tables; then one merge for each keyspace reads the tables block by block
//! ([`run`]), and what it yields goes to a [`Sink`]: the new store ([`new_store`]), or whoever else wants it.
//! Where logs are damaged they are read as [`crate::wal::replay_remains`] says; copies are records like others here, and rescue an
//! original that is lost. Without a manifest the tables speak for themselves ([`unlisted`]).
//! Tests: `tests/trust/salvage.rs`, and the suite `rot` of the simulation.

mod damage;
mod doubt;
mod new_store;
mod run;
mod survey;
mod unlisted;

use std::path::PathBuf;

use bytes::Bytes;
use kelvin_base::{Error, Result, SEQUENCE_MAX, Tier};

use self::new_store::NewStore;
use self::survey::Survey;
use crate::check::FileKind;
use crate::iter::{DbIter, Sight};
use crate::options::Options;
use crate::tiers::Purpose;

/// Ranges of doubtful records that are told of a keyspace, at most; the last one reaches over what follows.
const RANGES_MAX: usize = 64;
/// Records between two reports of progress.
const RECORDS_PER_REPORT: u64 = 1024;

/// What is taken for granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct How {
    /// The manifest is not asked: of every table and log that is there the newest version of each key is taken, and all of it is
    /// doubtful.
    pub without_manifest: bool,
    /// The slow tier is lost: its tables are told as lost.
    pub without_slow: bool,
}

/// What is rescued goes there.
pub trait Sink {
    /// A keyspace that the store had.
    ///
    /// # Errors
    /// What keeps it from being made.
    fn keyspace(&mut self, name: &str) -> Result<()>;

    /// A record for the keyspace `name`; keys come in order, each once.
    ///
    /// # Errors
    /// What keeps it from being taken.
    fn record(&mut self, name: &str, record: Record<'_>) -> Result<()>;
}

/// A record that was rescued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// When it expires, Unix milliseconds; `None` if it does not.
    pub expiry_ms: Option<u64>,
}

/// What a piece of a file held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Everything in a table.
    Table,
    /// A data block of a table.
    Block,
    /// The range tombstones of a table: what they deleted is not known.
    Tombstones,
    /// Records of the log.
    LogRecords,
    /// The file that names the manifest.
    Manifest,
}

impl Part {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Block => "block",
            Self::Tombstones => "range tombstones",
            Self::LogRecords => "log records",
            Self::Manifest => "manifest",
        }
    }
}

/// A piece of a file that could not be read.
#[derive(Clone, Debug)]
pub struct Lost {
    /// What kind of file it is.
    pub kind: FileKind,
    /// What the piece held.
    pub part: Part,
    /// The file.
    pub path: PathBuf,
    /// Its tier.
    pub tier: Tier,
    /// Where in the file the piece begins, if that is known.
    pub offset: Option<u64>,
    /// Its bytes, if they are known; 0 where nothing of it is there.
    pub bytes: Option<u64>,
    /// The keyspace concerned; `None` if any may be.
    pub keyspace: Option<String>,
    /// The first and the last user key that it may have held; `None` if any key may be concerned.
    pub keys: Option<(Bytes, Bytes)>,
    /// Why it could not be read.
    pub error: Error,
}

/// What became of a keyspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keyspace {
    /// Its name.
    pub name: String,
    /// Records that are right.
    pub rescued: u64,
    /// Records that what was lost may have overwritten or deleted.
    pub doubtful: u64,
    /// The keyspace that these were put into.
    pub doubtful_name: String,
    /// First and last keys of doubtful records that follow one another, at most [`RANGES_MAX`].
    pub doubtful_ranges: Vec<(Bytes, Bytes)>,
}

/// What a salvage found.
#[derive(Clone, Debug, Default)]
pub struct Salvaged {
    /// By number, as the store had them.
    pub keyspaces: Vec<Keyspace>,
    /// What could not be read.
    pub lost: Vec<Lost>,
    /// What was odd, though nothing is lost with it.
    pub notes: Vec<String>,
}

impl Salvaged {
    /// True if nothing is lost.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.lost.is_empty()
    }

    /// Records that are right, over all keyspaces.
    #[must_use]
    pub fn rescued(&self) -> u64 {
        self.keyspaces.iter().map(|one| one.rescued).sum()
    }

    /// Doubtful records, over all keyspaces.
    #[must_use]
    pub fn doubtful(&self) -> u64 {
        self.keyspaces.iter().map(|one| one.doubtful).sum()
    }
}

/// Rescues the store that `options` name into a new one that `into` names, whose directories must be absent or empty. `progress` is told
/// the records rescued so far.
///
/// # Errors
/// `Busy` if the store is open; `InvalidArgument` for options that make no sense, if there is no store, if the new one's directories are not
/// empty, or if the slow tier is another store's; `Corruption` if the manifest cannot be read; what keeps the new store from being written, which
/// then holds what was rescued until then.
pub fn salvage(options: Options, into: Options, how: How, progress: &mut dyn FnMut(u64)) -> Result<Salvaged> {
    let survey = Survey::of(options, how)?;
    let mut new = NewStore::make(into)?;
    let salvaged = survey.rescue(&mut new, progress)?;
    new.complete()?;
    Ok(salvaged)
}

/// As [`salvage`], with the records given to `sink`.
///
/// # Errors
/// As [`salvage`], and those of `sink`.
pub fn rescue(
    options: Options,
    how: How,
    sink: &mut dyn Sink,
    progress: &mut dyn FnMut(u64),
) -> Result<Salvaged> {
    Survey::of(options, how)?.rescue(sink, progress)
}

impl Survey {
    /// Merges what is left of every keyspace into `sink`.
    fn rescue(self, sink: &mut dyn Sink, progress: &mut dyn FnMut(u64)) -> Result<Salvaged> {
        let _purpose = Purpose::Upkeep.enter();
        let ids: Vec<(u32, String)> =
            self.recorded.keyspaces.iter().map(|(id, one)| (*id, one.name.clone())).collect();
        let mut names: Vec<String> = ids.iter().map(|(_, name)| name.clone()).collect();
        let mut salvaged = Salvaged::default();
        let mut done = 0;
        for (id, name) in ids {
            if !self.how.without_manifest {
                sink.keyspace(&name)?;
            }
            let doubtful_name = doubtful_name(&name, &names);
            names.push(doubtful_name.clone());
            let mut keyspace = Keyspace { name, doubtful_name, ..Keyspace::default() };
            self.rescue_keyspace(id, &mut keyspace, sink, &mut |records| {
                if records.is_multiple_of(RECORDS_PER_REPORT) {
                    progress(done + records);
                }
            })?;
            done += keyspace.rescued + keyspace.doubtful;
            progress(done);
            salvaged.keyspaces.push(keyspace);
        }
        let mut damage = self.damage.lock();
        salvaged.lost = std::mem::take(&mut damage.lost);
        salvaged.notes = std::mem::take(&mut damage.notes);
        Ok(salvaged)
    }

    fn rescue_keyspace(
        &self,
        id: u32,
        keyspace: &mut Keyspace,
        sink: &mut dyn Sink,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let (sources, ranks) = self.sources(id);
        let sight = Sight { at: SEQUENCE_MAX, now_ms: self.now_ms, lower: None, upper: None };
        let mut iter = DbIter::new(sources, self.tombstones(id), sight);
        iter.seek_to_first()?;
        let mut was_doubtful = false;
        while iter.valid() {
            let rank = iter.source().and_then(|source| ranks.get(source)).copied().unwrap_or(usize::MAX);
            let is_doubtful = self.how.without_manifest
                || self.damage.lock().is_doubtful(id, iter.key(), iter.sequence(), rank);
            let record = Record { key: iter.key(), value: iter.value(), expiry_ms: iter.expiry_ms() };
            if is_doubtful {
                if keyspace.doubtful == 0 {
                    sink.keyspace(&keyspace.doubtful_name)?;
                }
                sink.record(&keyspace.doubtful_name, record)?;
                keyspace.note_doubtful(record.key, was_doubtful);
            } else {
                sink.record(&keyspace.name, record)?;
                keyspace.rescued += 1;
            }
            was_doubtful = is_doubtful;
            progress(keyspace.rescued + keyspace.doubtful);
            iter.next()?;
        }
        Ok(())
    }
}

impl Keyspace {
    /// Counts a doubtful record; `follows` says that the one before it was doubtful too.
    fn note_doubtful(&mut self, key: &[u8], follows: bool) {
        self.doubtful += 1;
        let key = Bytes::copy_from_slice(key);
        let is_full = self.doubtful_ranges.len() >= RANGES_MAX;
        match self.doubtful_ranges.last_mut() {
            Some((_, last)) if follows || is_full => *last = key,
            _ => self.doubtful_ranges.push((key.clone(), key)),
        }
    }
}

/// Name of the keyspace for the doubtful records of `name`, which none of `taken` has.
fn doubtful_name(name: &str, taken: &[String]) -> String {
    (1..)
        .map(|number| {
            let ending = if number == 1 { ".doubtful".to_string() } else { format!(".doubtful{number}") };
            // A name has at most 255 bytes.
            let room = 255 - ending.len();
            let cut = (0..=room.min(name.len())).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
            format!("{}{ending}", &name[..cut])
        })
        .find(|candidate| !taken.contains(candidate))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubtful_records_get_a_keyspace_that_no_other_has() {
        let taken = ["default".to_string(), "default.doubtful".to_string()];
        assert_eq!(doubtful_name("default", &taken[..1]), "default.doubtful");
        assert_eq!(doubtful_name("default", &taken), "default.doubtful2");
        let long = "\u{e9}".repeat(127);
        let name = doubtful_name(&long, &[]);
        assert!(name.len() <= 255 && name.ends_with("\u{e9}.doubtful"), "{name}");
    }

    #[test]
    fn doubtful_records_that_follow_one_another_are_one_range() {
        let mut keyspace = Keyspace::default();
        for number in 0..200u32 {
            keyspace.note_doubtful(format!("{number:03}").as_bytes(), number % 2 == 1);
        }
        assert_eq!((keyspace.doubtful, keyspace.doubtful_ranges.len()), (200, RANGES_MAX));
        assert_eq!(keyspace.doubtful_ranges[0], ("000".into(), "001".into()));
        assert_eq!(keyspace.doubtful_ranges[RANGES_MAX - 1], ("126".into(), "199".into()));
    }
}
