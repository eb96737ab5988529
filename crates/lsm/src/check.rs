//! Reads every byte of every file of a store, checks it, and says what is lost.
//!
//! Works on an open store and on one that cannot be opened: everything is read from the files, nothing is written.
//! Tests: `db/tests`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kelvin_base::{Error, ErrorKind, Result, Sequence, Tier};
use kelvin_table::Table;

use crate::db::engine::Engine;
use crate::files::table_name;
use crate::options::{Env, Options};
use crate::recovery::{missing_log, tier_handles};
use crate::tiers::{Purpose, TierHandle, identity};
use crate::version::{Recorded, TableMeta, is_hot_run, read_recorded};
use crate::wal::{LogFiles, Tail, WalReader, replay};

/// What a file of a store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A sorted table.
    Table,
    /// A write-ahead log.
    Wal,
    /// The manifest and the file that names it.
    Manifest,
    /// The slow tier's identity.
    Identity,
}

impl FileKind {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Wal => "wal",
            Self::Manifest => "manifest",
            Self::Identity => "identity",
        }
    }
}

/// A file and what is wrong with it.
#[derive(Clone, Debug)]
pub struct FileCheck {
    /// The file.
    pub path: PathBuf,
    /// Its tier.
    pub tier: Tier,
    /// What it is.
    pub kind: FileKind,
    /// Bytes read.
    pub bytes: u64,
    /// What was found damaged; empty if all is well.
    pub damage: Vec<Error>,
    /// What is lost with the damage, for people.
    pub lost: Vec<String>,
    /// What is unusual but no damage (the torn end of a log).
    pub notes: Vec<String>,
}

/// Every file of a store.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// By tier and number.
    pub files: Vec<FileCheck>,
}

impl CheckReport {
    /// True if nothing is damaged.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.files.iter().all(|file| file.damage.is_empty())
    }

    /// The damaged files.
    #[must_use]
    pub fn damaged_files(&self) -> Vec<&FileCheck> {
        self.files.iter().filter(|file| !file.damage.is_empty()).collect()
    }

    /// Bytes read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// Checks an open store. Its tables stay while they are read.
pub fn check_open(engine: &Engine) -> CheckReport {
    let pinned: Vec<_> = engine.keyspaces.load().iter().map(|one| one.view()).collect();
    let recorded = engine.versions.lock().recorded();
    let report = check_files(&engine.files.tiers, Ok(Some(recorded)), Use::Open, &mut |_, _| {});
    drop(pinned);
    report
}

/// Checks the store that `options` name without opening it. `progress` is told bytes done and bytes in all.
///
/// # Errors
/// `InvalidArgument` for options that make no sense, or if there is no store.
pub fn check(options: Options, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
    let config = options.derive()?;
    let env = options.env.map_or_else(|| Env::system(&config), Ok)?;
    let tiers = tier_handles(&config, &env);
    let Some(fast) = &tiers[Tier::Fast.index()] else {
        return Err(Error::invalid("a store needs a fast tier"));
    };
    let recorded = read_recorded(&**fast.storage(), fast.dir());
    if let Ok(None) = recorded {
        return Err(Error::invalid("there is no store in this directory").file(fast.dir()));
    }
    Ok(check_files(&tiers, recorded, Use::Closed, progress))
}

/// Whether a store is open while it is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Open,
    Closed,
}

fn check_files(
    tiers: &[Option<TierHandle>; 2],
    recorded: Result<Option<Recorded>>,
    used: Use,
    progress: &mut dyn FnMut(u64, u64),
) -> CheckReport {
    let _purpose = Purpose::Upkeep.enter();
    let mut report = CheckReport::default();
    let Some(fast) = &tiers[Tier::Fast.index()] else { return report };
    report.files.push(check_manifest(fast, &recorded));
    let recorded = recorded.ok().flatten().unwrap_or_default();
    if let Some(slow) = &tiers[Tier::Slow.index()] {
        report.files.push(check_identity(slow, fast.dir(), &recorded));
    }
    let tables: Vec<(&str, usize, &TableMeta)> = recorded
        .keyspaces
        .values()
        .flat_map(|one| one.tables.iter().map(|((level, _), meta)| (one.name.as_str(), *level, meta)))
        .collect();
    let total: u64 = tables.iter().map(|(.., meta)| meta.size_bytes).sum();
    let mut done = 0;
    for (keyspace, level, meta) in tables {
        let mut check = check_table(tiers[meta.tier.index()].as_ref(), keyspace, meta);
        if is_hot_run(level) && !check.lost.is_empty() {
            check.lost.clear();
            check.notes.push("holds copies of records that lie deeper: nothing is lost with it".to_string());
        }
        report.files.push(check);
        done += meta.size_bytes;
        progress(done, total);
    }
    report.files.extend(check_logs(fast, &recorded, used));
    report
}

fn check_manifest(fast: &TierHandle, recorded: &Result<Option<Recorded>>) -> FileCheck {
    let mut check = FileCheck {
        path: fast.path(crate::version::CURRENT),
        tier: Tier::Fast,
        kind: FileKind::Manifest,
        bytes: 0,
        damage: Vec::new(),
        lost: Vec::new(),
        notes: Vec::new(),
    };
    match recorded {
        Ok(Some(recorded)) => {
            check.path = fast.path(crate::version::manifest_name(recorded.manifest_number));
            check.bytes = fast.file_len(crate::version::manifest_name(recorded.manifest_number)).unwrap_or(0);
            check.notes.clone_from(&recorded.warnings);
        }
        Ok(None) => {}
        Err(error) => {
            check.path = error.path().map_or(check.path, Path::to_path_buf);
            check.lost.push(
                "which tables belong to the store: it cannot be opened without its manifest".to_string(),
            );
            check.damage.push(error.clone());
        }
    }
    check
}

fn check_identity(slow: &TierHandle, fast_dir: &Path, recorded: &Recorded) -> FileCheck {
    let damage = identity::check(slow, fast_dir, recorded.store).err();
    FileCheck {
        path: slow.path(identity::FILE_NAME),
        tier: Tier::Slow,
        kind: FileKind::Identity,
        bytes: slow.file_len(identity::FILE_NAME).unwrap_or(0),
        damage: damage.into_iter().collect(),
        lost: Vec::new(),
        notes: Vec::new(),
    }
}

fn check_table(handle: Option<&TierHandle>, keyspace: &str, meta: &TableMeta) -> FileCheck {
    let name = table_name(meta.number);
    let mut check = FileCheck {
        path: handle.map_or_else(|| PathBuf::from(&name), |handle| handle.path(&name)),
        tier: meta.tier,
        kind: FileKind::Table,
        bytes: meta.size_bytes,
        damage: Vec::new(),
        lost: Vec::new(),
        notes: Vec::new(),
    };
    let whole = || {
        let (from, to) = (meta.smallest.escape_ascii(), meta.largest.escape_ascii());
        format!("keyspace {keyspace:?}: up to {} records from \"{from}\" to \"{to}\"", meta.entries)
    };
    let opened = handle
        .ok_or_else(|| {
            Error::new(ErrorKind::TierUnavailable, format!("the {} tier was not given", meta.tier))
        })
        .and_then(|handle| {
            let file = handle.open(&name, kelvin_storage::IoMode::Buffered)?;
            Table::open(file, &check.path, meta.number, meta.size_bytes, meta.tail_bytes, None)
        });
    match opened {
        Err(error) => {
            check.lost.push(whole());
            check.damage.push(error);
        }
        Ok(table) => {
            check.damage = table.verify();
            for error in &check.damage {
                let keys = error.at().and_then(|offset| table.keys_of_block(offset));
                check.lost.push(match keys {
                    Some((from, to)) => format!(
                        "keyspace {keyspace:?}: records behind \"{}\" up to \"{}\"",
                        from.escape_ascii(),
                        to.escape_ascii()
                    ),
                    None => whole(),
                });
            }
        }
    }
    check
}

fn check_logs(fast: &TierHandle, recorded: &Recorded, used: Use) -> Vec<FileCheck> {
    let needed = recorded.keyspaces.values().map(|one| one.wal_number).min().unwrap_or(0);
    let logs = match LogFiles::open(Arc::clone(fast.storage()), fast.dir(), 0, 0) {
        Ok(logs) => logs,
        Err(error) => return vec![log_check(fast.dir().to_path_buf(), 0, Some(error), None)],
    };
    let mut checks = Vec::new();
    let expected = recorded.keyspaces.values().map(|one| one.wal_number);
    if let Some(error) = missing_log(fast.dir(), expected, &logs.numbers()) {
        let path = error.path().unwrap_or(fast.dir()).to_path_buf();
        checks.push(log_check(path, 0, Some(error), None));
    }
    for number in logs.numbers().into_iter().filter(|number| *number >= needed) {
        let path = fast.path(format!("{number:06}.wal"));
        let bytes = fast.file_len(format!("{number:06}.wal")).unwrap_or(0);
        let outcome = WalReader::open(&**fast.storage(), fast.dir(), number).and_then(|mut reader| {
            while reader.next_record()?.is_some() {}
            Ok(reader.tail())
        });
        checks.push(match outcome {
            Ok(Some(Tail::Torn { offset, .. })) => log_check(path, bytes, None, Some(offset)),
            Ok(_) => log_check(path, bytes, None, None),
            Err(error) => log_check(path, bytes, Some(error), None),
        });
    }
    if checks.iter().all(|check| check.damage.is_empty()) {
        // The logs of an open store come and go meanwhile.
        let base = (used == Use::Closed).then_some(recorded.last_sequence);
        check_together(fast, needed, base, &logs, &mut checks);
    }
    checks
}

/// A log that ends early, or is gone, is damage if a later one vouches for what it held: only the logs together tell. The first record
/// must stand right behind `base`, if that is known.
fn check_together(
    fast: &TierHandle,
    needed: u64,
    base: Option<Sequence>,
    logs: &LogFiles,
    checks: &mut Vec<FileCheck>,
) {
    let numbers: Vec<u64> = logs.numbers().into_iter().filter(|number| *number >= needed).collect();
    let Err(error) = replay(&**fast.storage(), fast.dir(), &numbers, base, &mut |_| Ok(())) else { return };
    let path = error.path().unwrap_or(fast.dir()).to_path_buf();
    let bytes = checks.iter().find(|check| check.path == path).map_or(0, |check| check.bytes);
    checks.retain(|check| check.path != path);
    checks.push(log_check(path, bytes, Some(error), None));
}

fn log_check(path: PathBuf, bytes: u64, damage: Option<Error>, torn_at: Option<u64>) -> FileCheck {
    FileCheck {
        path,
        tier: Tier::Fast,
        kind: FileKind::Wal,
        bytes,
        lost: damage.iter().map(|_| "acknowledged writes logged behind the damage".to_string()).collect(),
        damage: damage.into_iter().collect(),
        notes: torn_at
            .map(|at| format!("ends at byte {at} in the middle of a write that was not made durable"))
            .into_iter()
            .collect(),
    }
}
