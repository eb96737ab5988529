//! A store whose manifest cannot be read: its tables and logs as they lie there.
//!
//! Tables do not say whose keys they hold. What can still be read of any manifest says it of those that it names, and the names of keyspaces;
//! the others are taken for one keyspace, `unknown`. Tables that a merge had replaced, or had not put in force yet, cannot be told from
//! the others, so nothing of this is certain. Tests: `tests/trust/salvage.rs`.

use std::collections::BTreeMap;
use std::path::Path;

use kelvin_base::{Error, ErrorKind, Result, SEQUENCE_MAX, Tier};
use kelvin_storage::IoMode;
use kelvin_table::Table;

use super::damage::Damage;
use super::survey::Tiers;
use crate::db::DEFAULT_KEYSPACE;
use crate::files::{table_name, table_number};
use crate::tiers::TierHandle;
use crate::version::{
    CURRENT, Recorded, RecordedKeyspace, TableMeta, edits_that_check, manifests_in, read_recorded,
};

/// Stands for the keyspaces of tables that nothing names.
const UNKNOWN: u32 = u32::MAX;

/// What can still be read of manifests.
#[derive(Debug, Default)]
struct Hints {
    /// Names by keyspace.
    names: BTreeMap<u32, String>,
    /// Keyspaces by table.
    owners: BTreeMap<u64, u32>,
}

/// A keyspace whose name is not known.
pub(super) fn keyspace(id: u32) -> RecordedKeyspace {
    let name = match id {
        0 => DEFAULT_KEYSPACE.to_string(),
        UNKNOWN => "unknown".to_string(),
        _ => format!("keyspace-{id}"),
    };
    RecordedKeyspace { name, ..RecordedKeyspace::default() }
}

/// True if a directory holds no file with records.
pub(super) fn is_empty(tier: &TierHandle) -> Result<bool> {
    let has = |path: &Path, ending: &str| path.extension().is_some_and(|found| found == ending);
    Ok(!tier.list()?.iter().any(|path| has(path, "tbl") || has(path, "wal")))
}

/// The tables that are there, as if the manifest named them all at level 0: their sequence numbers tell which entries are newer.
pub(super) fn recorded(tiers: &Tiers, damage: &mut Damage) -> Result<Recorded> {
    let [Some(fast), _] = tiers else { return Err(Error::invalid("a store needs a fast tier")) };
    if is_empty(fast)? && tiers[Tier::Slow.index()].as_ref().map_or(Ok(true), is_empty)? {
        return Err(Error::invalid("there is no store in this directory").file(fast.dir()));
    }
    let hints = hints(fast, damage)?;
    let mut recorded = Recorded::default();
    for tier in tiers.iter().flatten() {
        for number in tier.list()?.iter().filter_map(|path| table_number(&path.to_string_lossy())) {
            let id = hints.owners.get(&number).copied().unwrap_or(UNKNOWN);
            let named = || match hints.names.get(&id) {
                Some(name) => RecordedKeyspace { name: name.clone(), ..RecordedKeyspace::default() },
                None => keyspace(id),
            };
            let owner = recorded.keyspaces.entry(id).or_insert_with(named);
            match facts(tier, number) {
                Ok(meta) => drop(owner.tables.insert((0, number), meta)),
                Err(error) => damage.unknown_table(tier.tier(), number, Some(&owner.name), error),
            }
        }
    }
    // Of a keyspace that only logs know the name may be known.
    for (id, name) in hints.names {
        let named = RecordedKeyspace { name, ..RecordedKeyspace::default() };
        recorded.keyspaces.entry(id).or_insert(named);
    }
    Ok(recorded)
}

/// What the manifests still say; what is wrong with the one in force is told.
fn hints(fast: &TierHandle, damage: &mut Damage) -> Result<Hints> {
    let (storage, dir) = (fast.storage(), fast.dir());
    let refused = match read_recorded(&**storage, dir) {
        Ok(Some(_)) => None,
        Ok(None) => Some(Error::new(ErrorKind::Corruption, "the file that names the manifest is gone")),
        Err(error) => Some(error),
    };
    match refused {
        Some(error) => {
            let path = error.path().map_or_else(|| dir.join(CURRENT), Path::to_path_buf);
            damage.manifest(&path, error);
        }
        None => damage.notes.push("the manifest can be read, and was not asked".to_string()),
    }
    let mut hints = Hints::default();
    for number in manifests_in(&**storage, dir)? {
        // One that cannot be read at all says nothing.
        for edit in edits_that_check(&**storage, dir, number).unwrap_or_default() {
            hints.names.extend(edit.created.into_iter().map(|one| (one.id, one.name)));
            hints.owners.extend(edit.added.into_iter().map(|(id, _, meta)| (meta.number, id)));
        }
    }
    Ok(hints)
}

/// What a table says of itself.
fn facts(tier: &TierHandle, number: u64) -> Result<TableMeta> {
    let name = table_name(number);
    let file = tier.open(&name, IoMode::Buffered)?;
    let path = tier.path(&name);
    let size_bytes = tier.file_len(&name)?;
    let remains = Table::open_remains(file, &path, number, size_bytes, 0)?;
    let says = remains.table.properties();
    let is_known = remains.properties.is_none();
    let last = remains.table.last_key().unwrap_or_default();
    Ok(TableMeta {
        number,
        tier: tier.tier(),
        size_bytes,
        tail_bytes: 0,
        smallest: says.smallest.clone(),
        largest: if is_known { says.largest.clone() } else { last.into() },
        largest_exclusive: says.largest_exclusive,
        sequence_min: says.sequence_min,
        sequence_max: if is_known { says.sequence_max } else { SEQUENCE_MAX },
        entries: says.entries,
        deletions: says.deletions,
        // What is not known to have none may have some.
        range_tombstones: if is_known { says.range_tombstones } else { 1 },
        copies: says.copies,
        expiring: says.expiring,
        expiry_min_ms: says.expiry_min_ms,
        key_bytes: says.key_bytes,
        value_bytes: says.value_bytes,
    })
}
