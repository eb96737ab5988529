//! The versions in force and the manifest that makes their changes last.
//!
//! Rules (RELIABILITY M1 to M5)
//! - An edit is checked against the versions before a byte of it is written.
//! - After a failed append the manifest is never appended to again: a new one with everything, the edit included, takes
//!   over at once. If that fails too (a full disk), the versions stay as they were and the edit is in doubt: a crash may
//!   find it done or not. The tables it adds stay until a new manifest without it is in force: [`VersionSet::settle`],
//!   or the next edit.
//! - An edit that drops a keyspace always begins a new manifest: such an edit is in force or it is not, so writes to
//!   a keyspace whose dropping failed cannot vanish with it.
//! - After a failed sync, or a failed switch of `CURRENT`, nothing is tried again: the error stays.
//!
//! Tests: `tests.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kelvin_base::{Error, ErrorKind, Result, Sequence, Tier, seeded_bug};
use kelvin_storage::Storage;

use super::edit::Edit;
use super::file::{TableFile, TableOpener};
use super::manifest::{self, Failure, Writer, manifest_name};
use super::replay::{Keyspace, Recorded};
use super::tree::Version;
use super::{LEVELS, StoreId};

/// A manifest above this, and above twice its first edit, gives way to a new one, unless
/// [`VersionSet::rotate_above`] says otherwise.
const ROTATE_BYTES: u64 = 4 << 20;

/// Gives every file of the store a number of its own.
#[derive(Debug)]
pub struct FileNumbers(AtomicU64);

impl FileNumbers {
    /// A number no file has.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    /// The next number, not taken.
    pub fn peek(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Says that a file of `number` was found on disk: numbers go on above it.
    pub fn seen(&self, number: u64) {
        self.0.fetch_max(number.saturating_add(1), Ordering::Relaxed);
    }
}

struct Open {
    name: String,
    wal_number: u64,
    version: Arc<Version>,
}

/// The versions in force and their manifest.
pub struct VersionSet {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    opener: Arc<dyn TableOpener>,
    two_tiers: bool,
    store: StoreId,
    numbers: Arc<FileNumbers>,
    next_keyspace: u32,
    last_sequence: Sequence,
    open: BTreeMap<u32, Open>,
    writer: Option<Writer>,
    rotate_at_bytes: u64,
    rotate_above_bytes: u64,
    failed: Option<Error>,
    /// Tables that the edit in doubt adds.
    in_doubt: Vec<(Tier, u64)>,
    /// Tables of edits that are known not to have happened.
    refuted: Vec<(Tier, u64)>,
    warnings: Vec<String>,
}

/// What the manifest in `dir` records; `None` if there is no store. Writes nothing.
///
/// # Errors
/// `Corruption` naming file and offset; `InvalidArgument` for a newer format; else `Io`.
pub fn read_recorded(storage: &dyn Storage, dir: &Path) -> Result<Option<Recorded>> {
    let Some(number) = manifest::read_current(storage, dir)? else { return Ok(None) };
    read_recorded_in(storage, dir, number).map(Some)
}

/// What manifest `number` in `dir` records, whether it is in force or not.
///
/// # Errors
/// As [`read_recorded`].
pub(crate) fn read_recorded_in(storage: &dyn Storage, dir: &Path, number: u64) -> Result<Recorded> {
    let path = dir.join(manifest_name(number));
    let read = manifest::read(storage, dir, number)?;
    let mut recorded = Recorded { manifest_number: number, ..Recorded::default() };
    for edit in &read.edits {
        recorded.apply(edit).map_err(|error| error.file(&path))?;
    }
    // The first edit of a manifest is synced before CURRENT names it.
    if read.edits.is_empty() || recorded.store.uuid != read.uuid {
        return Err(Error::corruption(
            &path,
            0,
            "the manifest's first record is missing or of another store",
        )
        .tier(Tier::Fast));
    }
    if let Some(offset) = read.torn_at {
        recorded.warnings.push(format!(
            "the last record of {} was cut off at byte {offset} and did not happen",
            manifest_name(number)
        ));
    }
    recorded.next_file_number = recorded.next_file_number.max(number.saturating_add(1));
    Ok(recorded)
}

/// Numbers of the manifests in `dir`, ascending.
///
/// # Errors
/// The storage's.
pub(crate) fn manifests_in(storage: &dyn Storage, dir: &Path) -> Result<Vec<u64>> {
    let names = storage.list(dir).map_err(|error| Error::io("cannot list", dir, error))?;
    let number = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.strip_suffix(".manifest")?.parse::<u64>().ok()
    };
    let mut numbers: Vec<u64> = names.iter().filter_map(number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Writes `recorded` as the manifest of the store in `dir` and makes `CURRENT` name it (checkpoints, repair).
///
/// # Errors
/// `Io`, `NoSpace`. The directory then holds no store, or the one it held.
pub fn write_recorded(storage: &dyn Storage, dir: &Path, recorded: &Recorded) -> Result<()> {
    let number = recorded.next_file_number;
    let mut recorded = recorded.clone();
    recorded.next_file_number = number.saturating_add(1);
    write_manifest(storage, dir, number, &recorded).map(drop).map_err(|failure| match failure {
        Failure::Append(error) | Failure::Unknown(error) => error,
    })
}

fn write_manifest(
    storage: &dyn Storage,
    dir: &Path,
    number: u64,
    recorded: &Recorded,
) -> Result<Writer, Failure> {
    let mut writer = Writer::create(storage, dir, number, recorded.store.uuid)?;
    writer.append(&recorded.snapshot())?;
    writer.sync()?;
    manifest::set_current(storage, dir, number)?;
    Ok(writer)
}

impl VersionSet {
    /// Makes the manifest of a new store in `dir` (which exists) that `first` describes: who it is and its first keyspaces.
    ///
    /// # Errors
    /// `Io`, `NoSpace`.
    pub fn create(
        storage: Arc<dyn Storage>,
        dir: &Path,
        opener: Arc<dyn TableOpener>,
        two_tiers: bool,
        first: &Edit,
    ) -> Result<Self> {
        let mut recorded = Recorded { next_file_number: 1, ..Recorded::default() };
        recorded.apply(first)?;
        Self::begin(storage, dir, opener, two_tiers, recorded)
    }

    /// Opens the manifest in `dir`; `None` if there is no store. Begins a new manifest.
    ///
    /// # Errors
    /// As [`read_recorded`], and what keeps the new manifest from being written.
    pub fn recover(
        storage: Arc<dyn Storage>,
        dir: &Path,
        opener: Arc<dyn TableOpener>,
        two_tiers: bool,
    ) -> Result<Option<Self>> {
        let Some(recorded) = read_recorded(storage.as_ref(), dir)? else { return Ok(None) };
        Self::begin(storage, dir, opener, two_tiers, recorded).map(Some)
    }

    fn begin(
        storage: Arc<dyn Storage>,
        dir: &Path,
        opener: Arc<dyn TableOpener>,
        two_tiers: bool,
        recorded: Recorded,
    ) -> Result<Self> {
        let mut open = BTreeMap::new();
        for (id, keyspace) in &recorded.keyspaces {
            let mut tables: [Vec<Arc<TableFile>>; LEVELS] = Default::default();
            for ((level, _), meta) in &keyspace.tables {
                tables[*level].push(Arc::new(TableFile::new(meta.clone(), Arc::clone(&opener))));
            }
            let version = Version::new(*id, tables, two_tiers).map_err(|error| {
                error.as_kind(ErrorKind::Corruption).file(&dir.join(manifest_name(recorded.manifest_number)))
            })?;
            let one = Open {
                name: keyspace.name.clone(),
                wal_number: keyspace.wal_number,
                version: Arc::new(version),
            };
            open.insert(*id, one);
        }
        // A manifest that never came into force keeps its number.
        let found = manifests_in(storage.as_ref(), dir)?.last().map_or(0, |number| number.saturating_add(1));
        let next = recorded.next_file_number.max(found);
        let mut set = Self {
            storage,
            dir: dir.to_path_buf(),
            opener,
            two_tiers,
            store: recorded.store,
            numbers: Arc::new(FileNumbers(AtomicU64::new(next))),
            next_keyspace: recorded.next_keyspace,
            last_sequence: recorded.last_sequence,
            open,
            writer: None,
            rotate_at_bytes: ROTATE_BYTES,
            rotate_above_bytes: ROTATE_BYTES,
            failed: None,
            in_doubt: Vec::new(),
            refuted: Vec::new(),
            warnings: recorded.warnings,
        };
        set.rotate()?;
        Ok(set)
    }

    /// A manifest above `bytes`, and above twice its first edit, gives way to a new one.
    pub fn rotate_above(&mut self, bytes: u64) {
        self.rotate_above_bytes = bytes;
        self.rotate_at_bytes = bytes.max(self.manifest_bytes().saturating_mul(2));
    }

    /// Makes `edit` durable and returns the versions it changed, for publishing.
    ///
    /// # Errors
    /// `InvalidArgument` if the edit does not fit; nothing happened then. `ReadOnly` with [`VersionSet::failed`] set if
    /// what the disk holds is unknown for good: neither what the edit adds nor what it removes may be deleted. After any
    /// other error the edit is not in force, and of the tables it adds those that are [`VersionSet::is_in_doubt`] must
    /// stay.
    pub fn log_and_apply(&mut self, edit: &Edit) -> Result<Vec<Arc<Version>>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let changed = self.build(edit)?;
        for (_, _, meta) in &edit.added {
            self.numbers.seen(meta.number);
        }
        let mut edit = edit.clone();
        edit.next_file_number = Some(self.numbers.peek());
        let appended = match &mut self.writer {
            Some(writer) if edit.dropped.is_empty() => writer.append(&edit).and_then(|()| writer.sync()),
            _ => return self.take_over(&edit, &changed).map(|()| changed),
        };
        match appended {
            Ok(()) => {
                self.apply(&edit, &changed);
                // The edit is durable. Where its mark cannot be written, nothing is: the next edit begins a new manifest.
                if !seeded_bug!("last-edit-without-a-mark")
                    && self.writer.as_mut().is_some_and(|writer| writer.mark().is_err())
                {
                    self.writer = None;
                }
            }
            Err(Failure::Unknown(error)) => return Err(self.fail(error)),
            Err(Failure::Append(_)) => {
                // Never again that manifest. The new one holds the state after the edit.
                self.writer = None;
                self.take_over(&edit, &changed).inspect_err(|_| self.doubt(&edit))?;
            }
        }
        if self.writer.as_ref().is_some_and(|writer| writer.size_bytes() > self.rotate_at_bytes) {
            self.rotate_quietly();
        }
        Ok(changed)
    }

    /// Ends the doubt that a failed edit left, if one did, by a new manifest without it. What makes files for an edit
    /// asks this first, so that a disk which takes no edits is not filled with them.
    ///
    /// # Errors
    /// What keeps the new manifest from being written.
    pub fn settle(&mut self) -> Result<()> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None if self.is_doubtful() => self.rotate(),
            None => Ok(()),
        }
    }

    /// Keeps the new tables of `edit`, which a crash may find in force or not.
    fn doubt(&mut self, edit: &Edit) {
        let live = self.live_tables();
        let new = edit.added.iter().map(|(_, _, meta)| (meta.tier, meta.number));
        self.in_doubt.extend(new.filter(|table| !live.contains(table)));
    }

    /// Puts the edit in force through a new manifest; on an error the versions are as before.
    fn take_over(&mut self, edit: &Edit, changed: &[Arc<Version>]) -> Result<()> {
        let mut recorded = self.recorded();
        recorded.apply(edit).map_err(|error| error.as_kind(ErrorKind::InvalidArgument))?;
        self.write_new(recorded)?;
        self.apply(edit, changed);
        Ok(())
    }

    fn write_new(&mut self, mut recorded: Recorded) -> Result<()> {
        let number = self.numbers.next();
        recorded.next_file_number = self.numbers.peek();
        match write_manifest(self.storage.as_ref(), &self.dir, number, &recorded) {
            Ok(writer) => {
                self.rotate_at_bytes = self.rotate_above_bytes.max(writer.size_bytes().saturating_mul(2));
                self.writer = Some(writer);
                self.refuted.append(&mut self.in_doubt);
                self.remove_manifests_but(number);
                Ok(())
            }
            Err(Failure::Append(error)) => {
                self.remove_unnamed(number);
                Err(error)
            }
            Err(Failure::Unknown(error)) => Err(self.fail(error)),
        }
    }

    fn rotate(&mut self) -> Result<()> {
        let recorded = self.recorded();
        self.write_new(recorded)
    }

    /// A rotation that fails before the switch leaves the manifest in force as it is; it is tried again later.
    fn rotate_quietly(&mut self) {
        if let Err(error) = self.rotate() {
            self.rotate_at_bytes = self.rotate_at_bytes.saturating_mul(2);
            self.warnings.push(format!("a new manifest could not be begun: {error}"));
        }
    }

    /// Old manifests are of no use once `CURRENT` durably names another. What cannot be removed is found at the next open.
    fn remove_manifests_but(&self, keep: u64) {
        let Ok(names) = self.storage.list(&self.dir) else { return };
        for path in names {
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if name.ends_with(".manifest") && name != manifest_name(keep) {
                let _found_later = self.storage.remove(&self.dir.join(name));
            }
        }
    }

    fn remove_unnamed(&self, number: u64) {
        let _found_later = self.storage.remove(&self.dir.join(manifest_name(number)));
    }

    fn fail(&mut self, error: Error) -> Error {
        let sticky = error.as_kind(ErrorKind::ReadOnly).advice(
            "what the disk holds is unknown: check the disk, then open the store again; nothing was deleted",
        );
        self.writer = None;
        self.failed = Some(sticky.clone());
        sticky
    }

    /// The versions that follow from `edit`.
    fn build(&self, edit: &Edit) -> Result<Vec<Arc<Version>>> {
        let mut changed = Vec::new();
        for entry in &edit.created {
            if self.open.contains_key(&entry.id) {
                return Err(Error::invalid(format!("keyspace {} is made twice", entry.id)));
            }
        }
        let unknown = edit.dropped.iter().chain(edit.wal_numbers.iter().map(|(keyspace, _)| keyspace));
        for id in unknown {
            if !self.open.contains_key(id) && !edit.created.iter().any(|entry| entry.id == *id) {
                return Err(Error::invalid(format!("there is no keyspace {id}")));
            }
        }
        for id in edit.keyspaces() {
            let fresh = Arc::new(Version::empty(id, self.two_tiers));
            let base = match self.open.get(&id) {
                Some(open) => &open.version,
                None if edit.created.iter().any(|entry| entry.id == id) => &fresh,
                None => return Err(Error::invalid(format!("there is no keyspace {id}"))),
            };
            changed.push(Arc::new(base.with(edit, &self.opener, self.two_tiers)?));
        }
        Ok(changed)
    }

    fn apply(&mut self, edit: &Edit, changed: &[Arc<Version>]) {
        self.store = edit.store.unwrap_or(self.store);
        self.last_sequence = self.last_sequence.max(edit.last_sequence.unwrap_or(0));
        self.next_keyspace = self.next_keyspace.max(edit.next_keyspace.unwrap_or(0));
        for id in &edit.dropped {
            self.open.remove(id);
        }
        for entry in &edit.created {
            let version = Arc::new(Version::empty(entry.id, self.two_tiers));
            let one = Open { name: entry.name.clone(), wal_number: entry.wal_number, version };
            self.open.insert(entry.id, one);
        }
        for (id, number) in &edit.wal_numbers {
            if let Some(open) = self.open.get_mut(id) {
                open.wal_number = open.wal_number.max(*number);
            }
        }
        for version in changed {
            if let Some(open) = self.open.get_mut(&version.keyspace) {
                open.version = Arc::clone(version);
            }
        }
    }

    /// Everything in force, as plain facts (checkpoints write it elsewhere with [`write_recorded`]).
    #[must_use]
    pub fn recorded(&self) -> Recorded {
        let keyspaces = self.open.iter().map(|(id, open)| {
            let tables =
                open.version.tables().map(|(level, file)| ((level, file.meta.number), file.meta.clone()));
            let facts =
                Keyspace { name: open.name.clone(), wal_number: open.wal_number, tables: tables.collect() };
            (*id, facts)
        });
        Recorded {
            store: self.store,
            manifest_number: self.manifest_number(),
            next_file_number: self.numbers.peek(),
            next_keyspace: self.next_keyspace,
            last_sequence: self.last_sequence,
            keyspaces: keyspaces.collect(),
            warnings: Vec::new(),
        }
    }

    /// Number, name, oldest WAL needed and version of every keyspace.
    pub fn keyspaces(&self) -> impl Iterator<Item = (u32, &str, u64, &Arc<Version>)> {
        self.open.iter().map(|(id, open)| (*id, open.name.as_str(), open.wal_number, &open.version))
    }

    /// The version of a keyspace.
    #[must_use]
    pub fn version(&self, keyspace: u32) -> Option<&Arc<Version>> {
        self.open.get(&keyspace).map(|open| &open.version)
    }

    /// The oldest WAL that some keyspace still needs; `None` without keyspaces.
    #[must_use]
    pub fn wal_number_min(&self) -> Option<u64> {
        self.open.values().map(|open| open.wal_number).min()
    }

    /// Numbers of the tables in force, by tier. Tables only held by readers of older versions are not among
    /// them: use it to find orphans at open, before there are any.
    #[must_use]
    pub fn live_tables(&self) -> BTreeSet<(Tier, u64)> {
        let files = self.open.values().flat_map(|open| open.version.tables());
        files.map(|(_, file)| (file.meta.tier, file.meta.number)).collect()
    }

    /// Gives out file numbers.
    #[must_use]
    pub const fn file_numbers(&self) -> &Arc<FileNumbers> {
        &self.numbers
    }

    /// A number no file has.
    pub fn new_file_number(&self) -> u64 {
        self.numbers.next()
    }

    /// A number no keyspace ever had is this or larger.
    #[must_use]
    pub const fn next_keyspace(&self) -> u32 {
        self.next_keyspace
    }

    /// The last sequence number recorded.
    #[must_use]
    pub const fn last_sequence(&self) -> Sequence {
        self.last_sequence
    }

    /// Who the store is.
    #[must_use]
    pub const fn store(&self) -> StoreId {
        self.store
    }

    /// Number of the manifest in force; 0 while it is doubtful.
    #[must_use]
    pub fn manifest_number(&self) -> u64 {
        self.writer.as_ref().map_or(0, Writer::number)
    }

    /// Bytes of manifest from which on a new one is begun.
    #[must_use]
    pub const fn rotate_at_bytes(&self) -> u64 {
        self.rotate_at_bytes
    }

    /// Bytes of the manifest in force.
    #[must_use]
    pub fn manifest_bytes(&self) -> u64 {
        self.writer.as_ref().map_or(0, Writer::size_bytes)
    }

    /// True since an edit failed that a crash may find done: until the next edit that succeeds, or
    /// [`VersionSet::settle`].
    #[must_use]
    pub const fn is_doubtful(&self) -> bool {
        self.writer.is_none()
    }

    /// True if a crash may find an edit in force that adds this table, though it is in no version.
    #[must_use]
    pub fn is_in_doubt(&self, tier: Tier, number: u64) -> bool {
        self.in_doubt.contains(&(tier, number))
    }

    /// True if any table is.
    #[must_use]
    pub const fn has_in_doubt(&self) -> bool {
        !self.in_doubt.is_empty()
    }

    /// Tables that were in doubt and are known to be in no version now, for removal. Each is told once.
    #[must_use]
    pub fn take_refuted(&mut self) -> Vec<(Tier, u64)> {
        std::mem::take(&mut self.refuted)
    }

    /// The error after which no edit can succeed any more.
    #[must_use]
    pub const fn failed(&self) -> Option<&Error> {
        self.failed.as_ref()
    }

    /// Behaves from now on as after a failed append.
    #[cfg(test)]
    pub(super) fn poison_writer_for_test(&mut self) {
        self.writer = None;
    }

    /// What was odd but is no error, in words for the user.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

impl fmt::Debug for VersionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VersionSet")
            .field("dir", &self.dir)
            .field("manifest", &self.manifest_number())
            .field("keyspaces", &self.open.len())
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}
