//! Install: the only place where a new version is published.
//!
//! Order: files and directories are synced by the job → one manifest edit for both tiers, synced → views replaced →
//! inputs marked obsolete, so that their files go when the last reader lets go (RELIABILITY M1, M2, M4). If the
//! manifest's sync fails, the outcome is unknown: the files of both outcomes stay and the store takes no more
//! writes. If it could not be appended to (a full disk), nothing changed, and the files of both outcomes stay
//! until a new manifest could be written: every job asks for that first, and where none is due it is tried now and then.

use std::collections::BTreeSet;
use std::sync::Arc;

use kelvin_base::sync::MutexGuard;
use kelvin_base::{Error, Result, Tier, seeded_bug};

use crate::db::engine::Engine;
use crate::memory::Counted;
use crate::memtable::MemTable;
use crate::space::{Space, on_disk_bytes};
use crate::version::{Edit, TableFile, Version, VersionSet};
use crate::view::{KeyspaceState, View};

impl Engine {
    /// Makes `edit` durable and publishes the version of `keyspace` that follows. `flushed` memtables leave its view;
    /// `consumed` tables are deleted once nobody reads them.
    ///
    /// # Errors
    /// The manifest's. What the edit names must then be kept if [`crate::health::Health::fatal`] says so.
    pub(crate) fn install(
        &self,
        keyspace: &KeyspaceState,
        mut edit: Edit,
        flushed: &[Arc<MemTable>],
        consumed: &[Arc<TableFile>],
    ) -> Result<()> {
        let mut versions = self.versions.lock();
        if keyspace.is_dropped() {
            return Err(dropped(keyspace));
        }
        if !flushed.is_empty() {
            self.raise_log_floor(&versions, &mut edit);
        }
        if seeded_bug!("inputs-obsolete-before-the-edit") {
            consumed.iter().for_each(|file| file.mark_obsolete());
        }
        let installed = versions.log_and_apply(&edit);
        let changed = installed.inspect_err(|error| self.manifest_failed(&versions, error))?;
        let gone: BTreeSet<u64> = flushed.iter().map(|mem| mem.id()).collect();
        for version in changed.into_iter().filter(|version| version.keyspace == keyspace.id) {
            keyspace.change_view(|view| View {
                mem: Arc::clone(&view.mem),
                imms: view.imms.iter().filter(|imm| !gone.contains(&imm.id())).map(Arc::clone).collect(),
                version,
            });
        }
        for file in consumed {
            file.mark_obsolete();
        }
        self.manifest_written(versions);
        self.refresh_memory();
        Ok(())
    }

    /// Adds to `edit` the oldest WAL file that each keyspace still needs, idle ones included, so that recovery reads no
    /// file below, and the last sequence number before the oldest of them, which recovery goes on from. True if that
    /// file changes. Views only move on to later files, so looking without their writers' lock is careful.
    pub(crate) fn raise_log_floor(&self, versions: &VersionSet, edit: &mut Edit) -> bool {
        let planned = edit.wal_numbers.clone();
        let dropped = edit.dropped.clone();
        let mut floor = u64::MAX;
        for (id, _, before, _) in versions.keyspaces().filter(|(id, ..)| !dropped.contains(id)) {
            let mut needed = planned.iter().filter(|(of, _)| *of == id).map(|(_, number)| *number).max();
            if needed.is_none()
                && let Some(keyspace) = self.keyspaces.load().by_id(id)
            {
                let number = keyspace.peek().wal_number_min();
                needed = Some(number);
                if number > before {
                    edit.set_wal_number(id, number);
                }
            }
            floor = floor.min(needed.unwrap_or(before).max(before));
        }
        if let Some(base) = self.wals.base(floor) {
            edit.set_last_sequence(base);
        }
        versions.wal_number_min().is_some_and(|before| floor > before)
    }

    /// After a failure whose outcome cannot be known nothing may be written any more (RELIABILITY M4). What is in doubt is not for ever.
    fn manifest_failed(&self, versions: &VersionSet, error: &Error) {
        if versions.failed().is_some() {
            self.health.stop_writes(error);
        } else if versions.has_in_doubt() {
            self.settle_later();
        }
    }

    /// Ends the doubt that an edit left which a full disk did not take, if one did.
    ///
    /// # Errors
    /// What keeps the manifest from being written still; files that only an edit can name need not be made then.
    pub(crate) fn settle_manifest(&self) -> Result<()> {
        let mut versions = self.versions.lock();
        if versions.is_doubtful() {
            let settled = versions.settle();
            settled.inspect_err(|error| self.manifest_failed(&versions, error))?;
            self.manifest_written(versions);
        }
        Ok(())
    }

    /// What follows a manifest that was written: its length goes into the books, and tables of an edit that did not
    /// happen go.
    fn manifest_written(&self, mut versions: MutexGuard<'_, VersionSet>) {
        account_manifest(&self.space, &versions);
        let refuted = versions.take_refuted();
        drop(versions);
        for (tier, number) in refuted {
            self.files.remove(tier, number);
        }
    }

    /// Counts what is in memory anew, and gives the block cache what is left.
    pub(crate) fn refresh_memory(&self) {
        self.files.memory.recount(|| {
            let keyspaces = self.keyspaces.load();
            let memtables = |one: &Arc<KeyspaceState>| {
                let view = one.peek();
                // What a chunk has room for is not resident before it is used.
                view.memtables().map(|mem| mem.memory_bytes() + mem.fragment_bytes()).sum::<u64>()
            };
            let open: u64 = keyspaces.iter().map(|one| one.peek().mem.memory_bytes()).sum();
            Counted {
                memtables_bytes: keyspaces.iter().map(memtables).sum(),
                growth_bytes: self.open_memtables_bytes_max(&keyspaces).saturating_sub(open),
                tables_bytes: keyspaces.iter().map(|one| one.peek().version.known_bytes()).sum(),
            }
        });
    }

    pub(crate) fn install_new_keyspace(&self, edit: &Edit, id: u32) -> Result<Arc<Version>> {
        let mut versions = self.versions.lock();
        let changed = versions.log_and_apply(edit);
        let changed = changed.inspect_err(|error| self.manifest_failed(&versions, error))?;
        self.manifest_written(versions);
        changed
            .into_iter()
            .find(|version| version.keyspace == id)
            .ok_or_else(|| Error::invalid(format!("the manifest has no keyspace {id} after its creation")))
    }

    pub(crate) fn install_dropped_keyspace(&self, edit: &Edit, state: &KeyspaceState) -> Result<()> {
        let mut versions = self.versions.lock();
        let mut edit = edit.clone();
        self.raise_log_floor(&versions, &mut edit);
        let changed = versions.log_and_apply(&edit);
        changed.inspect_err(|error| self.manifest_failed(&versions, error))?;
        for level in &state.peek().version.levels {
            for file in &level.tables {
                file.mark_obsolete();
            }
        }
        state.mark_dropped();
        self.manifest_written(versions);
        Ok(())
    }
}

/// Counts the manifest at the length to which it will grow, and twice: a new one, which holds no more than the old, is
/// written whole before the old one goes.
pub(crate) fn account_manifest(space: &Space, versions: &VersionSet) {
    let bytes = versions.manifest_bytes().max(versions.rotate_at_bytes());
    space.file_added(Tier::Fast, "*.manifest", on_disk_bytes(bytes) * 2);
}

/// A keyspace's background work ends with this once the keyspace is dropped.
pub(crate) fn dropped(keyspace: &KeyspaceState) -> Error {
    Error::invalid(format!("the keyspace {:?} was dropped", keyspace.name))
}
