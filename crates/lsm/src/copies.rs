//! Copies that are damaged or gone: nothing is lost with them (promise 6), so their tables leave the hot level and the store goes on.
//!
//! A table of a run that is not there at an opening, or not as long as it was, leaves then; one that cannot be read leaves when a merge
//! meets it. Until then lookups pass it by, and since its filter cannot be asked, everything above it stays above it. Each is
//! counted ([`crate::stats::BoundaryStats::damaged_tables`]) and told. Tests: `tests/trust/copies.rs`.

use std::sync::Arc;

use kelvin_base::events::What;
use kelvin_base::{Error, ErrorKind, Result, seeded_bug};

use crate::compaction::pick::Plan;
use crate::db::engine::Engine;
use crate::files::table_name;
use crate::version::{Edit, TableFile, is_hot_run};
use crate::view::KeyspaceState;

/// Tables of the hot level, with their levels.
type Tables = Vec<(usize, Arc<TableFile>)>;

impl Engine {
    /// Gives up the tables of runs whose files are not there, or not as long as they were.
    ///
    /// # Errors
    /// The manifest's.
    pub(crate) fn give_up_absent_copies(&self) -> Result<()> {
        for keyspace in self.keyspaces.load().iter() {
            let is_absent = |file: &Arc<TableFile>| {
                let len = self
                    .files
                    .tier(file.meta.tier)
                    .and_then(|tier| tier.file_len(table_name(file.meta.number)));
                match len {
                    _ if seeded_bug!("absent-copies-stay") => false,
                    Ok(bytes) => bytes != file.meta.size_bytes,
                    Err(error) => error.os().is_some_and(|os| os.kind() == std::io::ErrorKind::NotFound),
                }
            };
            let version = Arc::clone(&keyspace.peek().version);
            let runs = version.tables().filter(|(level, _)| is_hot_run(*level));
            let absent =
                runs.filter(|(_, file)| is_absent(file)).map(|(level, file)| (level, Arc::clone(file)));
            self.give_up_copies(keyspace, absent.collect())?;
        }
        Ok(())
    }

    /// Gives up the tables of runs that kept `plan` from being done, if `error` names any; true if it does. What the plan
    /// was for may be tried again.
    ///
    /// # Errors
    /// The manifest's.
    pub(crate) fn give_up_damaged_copies(
        &self,
        keyspace: &KeyspaceState,
        plan: &Plan,
        error: &Error,
    ) -> Result<bool> {
        let Some(path) = error.path().filter(|_| error.kind() != ErrorKind::Busy) else { return Ok(false) };
        if seeded_bug!("damaged-copies-stay") {
            return Ok(false);
        }
        let is_named = |file: &TableFile| path.ends_with(table_name(file.meta.number));
        let runs = plan.tables().filter(|(level, file)| is_hot_run(*level) && is_named(file));
        let damaged: Tables = runs.map(|(level, file)| (level, Arc::clone(file))).collect();
        let is_any = !damaged.is_empty();
        self.give_up_copies(keyspace, damaged)?;
        Ok(is_any)
    }

    fn give_up_copies(&self, keyspace: &KeyspaceState, tables: Tables) -> Result<()> {
        if tables.is_empty() {
            return Ok(());
        }
        let mut edit = Edit::default();
        for (level, file) in &tables {
            edit.remove(keyspace.id, *level, file.meta.number);
        }
        let files: Vec<_> = tables.into_iter().map(|(_, file)| file).collect();
        self.install(keyspace, edit, &[], &files)?;
        let (keyspace, tables) = (keyspace.name.clone(), files.len() as u64);
        self.counters.work.boundary.damaged_tables.add(tables);
        self.events.post(|| What::CopiesDropped { keyspace, tables });
        Ok(())
    }
}
