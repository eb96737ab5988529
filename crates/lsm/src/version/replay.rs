//! What a manifest records, as plain facts: replayed edit by edit, without opening a table.
//!
//! Used by recovery, and by `kelvin check` on a store that nobody has open. Tests: `tests.rs`.

use std::collections::BTreeMap;

use kelvin_base::{Error, ErrorKind, Result, Sequence, Tier};

use super::edit::{Edit, KeyspaceEntry};
use super::{StoreId, TableMeta};

/// A keyspace as recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keyspace {
    /// Its name.
    pub name: String,
    /// The oldest WAL that may hold a write of it that is in no table.
    pub wal_number: u64,
    /// Its tables by level and number.
    pub tables: BTreeMap<(usize, u64), TableMeta>,
}

/// Everything a manifest records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Who the store is.
    pub store: StoreId,
    /// Number of the manifest read.
    pub manifest_number: u64,
    /// No file has this number or a larger one, WALs and files begun after the last edit excepted.
    pub next_file_number: u64,
    /// No keyspace ever had this number or a larger one.
    pub next_keyspace: u32,
    /// Every sequence number in a table is at most this.
    pub last_sequence: Sequence,
    /// Keyspaces by number.
    pub keyspaces: BTreeMap<u32, Keyspace>,
    /// What was odd but is no error, in words for the user.
    pub warnings: Vec<String>,
}

impl Recorded {
    /// True if some keyspace has a table on `tier`.
    #[must_use]
    pub fn has_tables_on(&self, tier: Tier) -> bool {
        self.keyspaces.values().any(|one| one.tables.values().any(|meta| meta.tier == tier))
    }

    /// Applies one edit.
    ///
    /// # Errors
    /// `Corruption` if the edit does not fit what is recorded.
    pub fn apply(&mut self, edit: &Edit) -> Result<()> {
        let misfit = |what: String| Err(Error::new(ErrorKind::Corruption, what));
        self.store = edit.store.unwrap_or(self.store);
        self.next_file_number = self.next_file_number.max(edit.next_file_number.unwrap_or(0));
        self.next_keyspace = self.next_keyspace.max(edit.next_keyspace.unwrap_or(0));
        self.last_sequence = self.last_sequence.max(edit.last_sequence.unwrap_or(0));
        for id in &edit.dropped {
            if self.keyspaces.remove(id).is_none() {
                return misfit(format!("the manifest drops keyspace {id}, which it never made"));
            }
        }
        for KeyspaceEntry { id, name, wal_number } in &edit.created {
            let fresh = Keyspace { name: name.clone(), wal_number: *wal_number, tables: BTreeMap::new() };
            if self.keyspaces.insert(*id, fresh).is_some() {
                return misfit(format!("the manifest makes keyspace {id} twice"));
            }
            self.next_keyspace = self.next_keyspace.max(id.saturating_add(1));
        }
        for (keyspace, number) in &edit.wal_numbers {
            let Some(known) = self.keyspaces.get_mut(keyspace) else {
                return misfit(format!("the manifest names keyspace {keyspace}, which it never made"));
            };
            known.wal_number = known.wal_number.max(*number);
        }
        for (keyspace, level, number) in &edit.removed {
            let known = self.keyspaces.get_mut(keyspace);
            if known.and_then(|known| known.tables.remove(&(*level, *number))).is_none() {
                return misfit(format!(
                    "the manifest removes table {number} from level {level}, where it is not"
                ));
            }
        }
        for (keyspace, level, meta) in &edit.added {
            let known = self.keyspaces.get_mut(keyspace);
            let twice = known.map(|known| known.tables.insert((*level, meta.number), meta.clone()).is_some());
            if twice != Some(false) {
                return misfit(format!("the manifest adds table {} twice, or to no keyspace", meta.number));
            }
            self.next_file_number = self.next_file_number.max(meta.number.saturating_add(1));
        }
        Ok(())
    }

    /// Everything as one edit: the first of a new manifest, and that of a checkpoint.
    #[must_use]
    pub fn snapshot(&self) -> Edit {
        let mut edit = Edit {
            store: Some(self.store),
            next_file_number: Some(self.next_file_number),
            next_keyspace: Some(self.next_keyspace),
            last_sequence: Some(self.last_sequence),
            ..Edit::default()
        };
        for (id, keyspace) in &self.keyspaces {
            edit.created.push(KeyspaceEntry {
                id: *id,
                name: keyspace.name.clone(),
                wal_number: keyspace.wal_number,
            });
            edit.added.extend(keyspace.tables.iter().map(|((level, _), meta)| (*id, *level, meta.clone())));
        }
        edit
    }
}
