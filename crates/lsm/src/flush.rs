//! Flush and compaction as the engine runs them: reserve, act, install. The merging itself is `compaction::job`.
//!
//! A sealed memtable becomes a table of level 0; memtables sealed together become one. WAL files before it are synced
//! first when other keyspaces still need them, so that what survives a power loss is a prefix (promise 2).

use std::sync::Arc;

use bytes::Bytes;
use kelvin_base::events::What;
use kelvin_base::{Error, ErrorKind, Result, Tier, seeded_bug};
use kelvin_table::TableOptions;

use crate::compaction::job::{
    self, Cooling, JobContext, JobStats, JobTable, NewTable, Outputs, Retention, Routed,
};
use crate::compaction::pick::{Plan, RETAIN_BENEFIT, RangePick, Reason, pick_range};
use crate::db::engine::Engine;
use crate::files::Files;
use crate::hotness::means::Found;
use crate::install::dropped;
use crate::memtable::MemTable;
use crate::options::HotParts;
use crate::promotion::Exchange;
use crate::schedule::{Kind, Work};
use crate::space::{Priority, Reservation};
use crate::tiers::Purpose;
use crate::told;
use crate::version::{Edit, FileNumbers, LEVELS, LEVELS_FAST, TableFile, TableMeta, Version};
use crate::view::KeyspaceState;
use crate::write::room::flush_slack_bytes;

/// A record counts as not written anew when the fast levels were written so many times over since.
const SETTLED: u64 = 4;

/// With more logs than that a flush that runs is ended by no close: where a store is opened for moments only, each opening would find
/// one log more, and read them all.
const LOGS_UNFLUSHED_MAX: usize = 8;

impl Engine {
    /// Writes the sealed memtables of `keyspace` into level 0.
    ///
    /// # Errors
    /// What kept them from being written; they stay in memory and in the WAL.
    pub(crate) fn flush_sealed(&self, keyspace: &Arc<KeyspaceState>) -> Result<()> {
        let _purpose = Purpose::Flush.enter();
        let mut imms = keyspace.view().imms.clone();
        if imms.is_empty() || keyspace.is_dropped() {
            return Ok(());
        }
        self.settle_manifest()?;
        if self.keyspaces.load().iter().count() > 1 {
            self.sync_closed_logs()?;
        }
        let reservation = self.room_for_flush(&mut imms)?;
        let mut context = self.job_context(self.outputs(Purpose::Flush), 0, Tier::Fast);
        if self.wals.count() > LOGS_UNFLUSHED_MAX {
            context.cancel = Arc::default();
        }
        let metas = match Self::write_level_zero(&imms, &context) {
            Err(error) => {
                if seeded_bug!("failed-flush-keeps-its-room") {
                    std::mem::forget(reservation);
                }
                return Err(error);
            }
            Ok(metas) => metas,
        };
        let mut edit = Edit::default();
        let mut written = 0;
        for meta in &metas {
            written += meta.size_bytes;
            edit.add(keyspace.id, 0, meta.clone());
        }
        edit.set_wal_number(keyspace.id, keyspace.wal_number_after(&imms));
        let mut reservations = vec![reservation];
        self.account_tables(&mut reservations, &metas);
        self.install_or_remove(keyspace, edit, &imms, &metas, &[])?;
        self.counters.work.flushes.add(1);
        self.counters.work.flushed_bytes.add(written);
        self.events.post(|| What::Flushed {
            keyspace: keyspace.name.clone(),
            tables: metas.len() as u64,
            bytes: written,
        });
        self.release_logs();
        Ok(())
    }

    /// Room for the table of `imms` (newest first), or of fewer, the oldest, if there is none for all.
    fn room_for_flush(&self, imms: &mut Vec<Arc<MemTable>>) -> Result<Reservation> {
        loop {
            let bytes: u64 = imms.iter().map(|imm| imm.memory_bytes()).sum();
            let wanted = bytes + flush_slack_bytes(bytes);
            match self.space.reserve(Tier::Fast, wanted, Priority::Essential) {
                Err(error) if error.kind() == ErrorKind::NoSpace && imms.len() > 1 => drop(imms.remove(0)),
                outcome => return outcome,
            }
        }
    }

    /// Writes memtables (newest first) as a table of level 0, as `context` says.
    ///
    /// # Errors
    /// The files'; what was made is removed.
    pub(crate) fn write_level_zero(imms: &[Arc<MemTable>], context: &JobContext) -> Result<Vec<TableMeta>> {
        let sources: Vec<_> = imms.iter().map(|imm| imm.iter()).collect();
        let stones: Vec<_> = imms.iter().flat_map(|imm| imm.tombstones()).collect();
        let output = job::flush(sources, &stones, context)?;
        Ok(output.tables.iter().map(JobTable::meta).collect())
    }

    /// Tables of this store, made for `purpose`.
    pub(crate) fn outputs(&self, purpose: Purpose) -> Arc<dyn Outputs> {
        Arc::new(StoreOutputs {
            files: Arc::clone(&self.files),
            numbers: Arc::clone(&self.file_numbers),
            purpose,
        })
    }

    /// How tables of `level` on `tier` are made.
    fn table_options(&self, level: usize, tier: Tier) -> TableOptions {
        let config = &self.config;
        TableOptions {
            block_size_bytes: config.block_size_at(level, tier),
            restart_interval: config.restart_interval,
            filter_bits_per_key: config.filter_bits_per_key,
            compression: config.compression_at(level, tier).of_blocks(),
        }
    }

    /// What a job that writes `level` on `tier` works with.
    pub(crate) fn job_context(&self, outputs: Arc<dyn Outputs>, level: usize, tier: Tier) -> JobContext {
        let config = &self.config;
        let mut snapshots = self.snapshots.sequences();
        snapshots.push(self.visible());
        snapshots.dedup();
        JobContext {
            outputs,
            executor: Arc::clone(&self.env.executor),
            clock: Arc::clone(&self.env.clock),
            options: self.table_options(level, tier),
            snapshots,
            deeper: Vec::new(),
            range: (None, None),
            readahead_bytes: [config.compaction_readahead_bytes, config.slow_readahead_bytes],
            memory: Some(self.files.memory.clone()),
            cancel: Arc::clone(&self.closing),
            limiter: None,
            progress: Arc::default(),
            retention: None,
            cooling: None,
        }
    }

    /// Runs a compaction and installs its result. `exchange` says what it may take from the promotion cache and leave there.
    ///
    /// # Errors
    /// What kept it from being done; its inputs stay as they are.
    pub(crate) fn compact(
        &self,
        plan: &mut Plan,
        exchange: Exchange,
        mut reservations: Vec<Reservation>,
    ) -> Result<()> {
        let _purpose = Purpose::Compaction.enter();
        let Some(keyspace) = self.keyspaces.load().by_id(plan.keyspace).map(Arc::clone) else {
            return Ok(());
        };
        self.settle_manifest()?;
        let mut edit = Edit::default();
        for (level, file) in plan.tables().chain(plan.leaving()) {
            edit.remove(plan.keyspace, level, file.meta.number);
        }
        if plan.trivial_move {
            for (_, file) in plan.tables() {
                edit.add(plan.keyspace, plan.output_level, file.meta.clone());
            }
            self.counters.work.trivial_moves.add(plan.tables().count() as u64);
            let evicted: Vec<_> = plan.leaving().map(|(_, file)| Arc::clone(file)).collect();
            let installed = self.install(&keyspace, edit, &[], &evicted);
            if installed.is_ok() {
                self.events.post(|| told::moved(&keyspace, plan));
            }
            return self.forgive_dropped(&keyspace, installed);
        }
        if plan.step_bytes > 0 {
            self.counters.work.compactions.add(1);
            let merged = self.merge_runs(&keyspace, plan, &mut reservations);
            return merged.or_else(|error| self.after_failed_merge(&keyspace, plan, error));
        }
        let outcome = self.merge(&keyspace, plan, exchange, (None, None));
        let (metas, stats) = match outcome {
            Err(error) => return self.after_failed_merge(&keyspace, plan, error),
            Ok(output) => output,
        };
        for meta in &metas {
            let kept = plan.retain_level.filter(|_| meta.tier == Tier::Fast);
            edit.add(plan.keyspace, kept.unwrap_or(plan.output_level), meta.clone());
        }
        self.account_tables(&mut reservations, &metas);
        let consumed: Vec<_> =
            plan.tables().chain(plan.leaving()).map(|(_, file)| Arc::clone(file)).collect();
        if seeded_bug!("tiers-in-two-edits") {
            let (slow, fast) = edit.added.into_iter().partition(|(.., meta)| meta.tier == Tier::Slow);
            self.install(&keyspace, Edit { added: slow, ..edit }, &[], &consumed)?;
            edit = Edit { added: fast, ..Edit::default() };
        }
        let installed = self.install_or_remove(&keyspace, edit, &[], &metas, &consumed);
        self.counters.work.compactions.add(1);
        if installed.is_ok() {
            if plan.retain_level.is_some() {
                note_kept(&keyspace, plan, &metas);
            }
            self.events.post(|| told::merged(&keyspace, plan, metas.len(), &stats));
        }
        self.forgive_dropped(&keyspace, installed)
    }

    /// Damaged copies are given up; other damage is noted.
    fn after_failed_merge(&self, keyspace: &KeyspaceState, plan: &Plan, error: Error) -> Result<()> {
        if self.give_up_damaged_copies(keyspace, plan, &error)? {
            return Ok(());
        }
        self.note_corrupt_input(plan, &error);
        self.forgive_dropped(keyspace, Err(error))
    }

    /// Does what `plan` says with the keys of `range`; the tables it made.
    pub(crate) fn merge(
        &self,
        keyspace: &KeyspaceState,
        plan: &Plan,
        exchange: Exchange,
        range: (Option<Bytes>, Option<Bytes>),
    ) -> Result<(Vec<TableMeta>, JobStats)> {
        let mut context =
            self.job_context(self.outputs(Purpose::Compaction), plan.output_level, plan.output_tier);
        let version = Arc::clone(&keyspace.peek().version);
        context.deeper = job::deeper_runs(&version, plan);
        context.range = range;
        if let Some(level) = plan.retain_level {
            context.retention = Some(Arc::new(Retention {
                tracker: self.hotness.shared_of_keyspace(keyspace.id),
                parts: HotParts {
                    retention: self.config.hot_parts.retention && plan.keeps_hot,
                    ..self.config.hot_parts
                },
                options: self.table_options(level, Tier::Fast),
                target_bytes: self.config.table_bytes,
                guards: job::guards(&version, plan),
                promoted: exchange.promoted,
                lifted: exchange.lifted.filter(|_| plan.keeps_hot && self.takes_lifted()),
                lift_before: self.visible().saturating_sub(SETTLED * fast_entries(&version)),
            }));
        }
        if plan.reason == Reason::HotRuns {
            let tracker = plan.keeps_hot.then(|| self.hotness.shared_of_keyspace(keyspace.id));
            context.cooling = Some(Arc::new(Cooling { tracker, above: job::fast_runs(&version) }));
        }
        let output = job::run(plan, &context)?;
        let work = &self.counters.work;
        if plan.retain_level.is_some() {
            self.note_found(plan, &version, &output.stats.routed);
            work.boundary.add(&output.stats.routed);
        } else {
            work.boundary.not_hot_bytes.add(output.stats.routed.not_hot_bytes);
        }
        for tier in Tier::ALL {
            work.compaction_read_bytes[tier.index()].add(output.stats.read_bytes[tier.index()]);
            work.compaction_written_bytes[tier.index()].add(output.stats.written_bytes[tier.index()]);
        }
        Ok((output.tables.iter().map(JobTable::meta).collect(), output.stats))
    }

    /// Keeps what `plan`, of `version`, found out about the last fast level.
    fn note_found(&self, plan: &Plan, version: &Version, routed: &Routed) {
        let of_fast = |file: &&Arc<TableFile>| file.meta.tier == Tier::Fast;
        let bytes: u64 =
            plan.tables().map(|(_, file)| file).filter(of_fast).map(|file| file.meta.size_bytes).sum();
        let cold_bytes = bytes.saturating_sub(routed.retained_bytes + routed.guarded_bytes);
        let found = Found { bytes, cold_bytes, above_bytes: routed.above_bytes };
        self.means.note(found, version.levels[LEVELS_FAST - 1].size_bytes(), version.hot_level_bytes());
    }

    /// Turns what was reserved into files.
    pub(crate) fn account_tables(&self, reservations: &mut [Reservation], metas: &[TableMeta]) {
        for meta in metas {
            let name = crate::files::table_name(meta.number);
            match reservations.iter_mut().find(|reservation| reservation.tier() == meta.tier) {
                Some(reservation) => reservation.file_written(&name, meta.size_bytes),
                None => self.space.file_added(meta.tier, &name, meta.size_bytes),
            }
        }
    }

    /// Installs; if that failed for sure, removes the new tables.
    pub(crate) fn install_or_remove(
        &self,
        keyspace: &KeyspaceState,
        edit: Edit,
        flushed: &[Arc<MemTable>],
        made: &[TableMeta],
        consumed: &[Arc<crate::version::TableFile>],
    ) -> Result<()> {
        let outcome = self.install(keyspace, edit, flushed, consumed);
        // Where the outcome is unknown or in doubt the tables of both stay.
        if outcome.is_err() && self.health.fatal().is_none() {
            self.remove_unless_in_doubt(made);
        }
        outcome
    }

    /// Removes tables that were made and are not needed, but for those that an edit names which may have happened.
    pub(crate) fn remove_unless_in_doubt(&self, made: &[TableMeta]) {
        let kept = |meta: &&TableMeta| self.versions.lock().is_in_doubt(meta.tier, meta.number);
        for meta in made.iter().filter(|meta| !kept(meta)) {
            self.files.remove(meta.tier, meta.number);
        }
    }

    /// Work on a keyspace dropped meanwhile has nothing to answer for, and no writer of another waits in vain for it.
    pub(crate) fn forgive_dropped(&self, keyspace: &KeyspaceState, outcome: Result<()>) -> Result<()> {
        if keyspace.is_dropped() && self.health.fatal().is_none() { Ok(()) } else { outcome }
    }

    /// A table found corrupt is left out of further compactions; the rest goes on.
    fn note_corrupt_input(&self, plan: &Plan, error: &Error) {
        if error.kind() != ErrorKind::Corruption {
            return;
        }
        let Some(path) = error.path() else { return };
        for (_, file) in plan.tables() {
            let name = crate::files::table_name(file.meta.number);
            if path.ends_with(&name) {
                self.health.quarantine(file.meta.number);
            }
        }
    }

    /// Compacts `[lower, upper)` of `keyspace` level by level into the last one.
    ///
    /// # Errors
    /// The background error that keeps it from being done.
    pub(crate) fn compact_range(
        &self,
        keyspace: &KeyspaceState,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
    ) -> Result<()> {
        let failures = self.counters.work.failures.get();
        for level in 0..LEVELS {
            let created_before = self.file_numbers.peek();
            self.signal.wait_for(&*self.env.executor, || {
                if let Some(error) = self.stopped_by(keyspace, failures) {
                    return error;
                }
                let mut work = self.work.lock();
                let versions = self.versions_now();
                let config = self.pick_config_now();
                let step = pick_range(
                    &self.pick_input(&config, &versions, &work, 0),
                    keyspace.id,
                    level,
                    (lower, upper),
                    created_before,
                );
                match step {
                    RangePick::Done => Some(Ok(())),
                    RangePick::Plan(plan) => {
                        let begun = self.begin_compaction(&mut work, *plan);
                        begun.err().filter(|_| self.nothing_makes_way(&work)).map(Err)
                    }
                    RangePick::Busy => self.nothing_makes_way(&work).then(|| Err(self.no_way())),
                }
            })?;
        }
        Ok(())
    }

    /// True if no job runs and no file is about to be removed.
    fn nothing_makes_way(&self, work: &Work) -> bool {
        work.is_quiet() && !self.files.leaving.free_soon_and_tell()
    }

    /// Why a compaction asked for can neither start nor wait for another to end.
    fn no_way(&self) -> Error {
        match self.health.background_error() {
            Some(error) => error,
            None => {
                Error::new(ErrorKind::NoSpace, "there is no room for the tables the compaction would write")
                    .advice("raise the capacity or delete records, then try again; nothing was changed")
            }
        }
    }

    /// What ends a wait for background work on `keyspace` early, if anything does.
    fn stopped_by(&self, keyspace: &KeyspaceState, failures_before: u64) -> Option<Option<Result<()>>> {
        if keyspace.is_dropped() {
            return Some(Some(Err(dropped(keyspace))));
        }
        if let Err(error) = self.health.check_writable() {
            return Some(Some(Err(error)));
        }
        if self.counters.work.failures.get() > failures_before {
            let error = self.health.background_error_of(&[Kind::Fast, Kind::Slow]);
            return error.map(|error| Some(Err(error)));
        }
        None
    }
}

/// Entries of the fast levels.
fn fast_entries(version: &Version) -> u64 {
    version.levels[..LEVELS_FAST].iter().flat_map(|level| &level.tables).map(|file| file.meta.entries).sum()
}

/// Marks what a boundary compaction kept of a table of which next to nothing went.
fn note_kept(keyspace: &KeyspaceState, plan: &Plan, metas: &[TableMeta]) {
    let of_fast = |meta: &&TableMeta| meta.tier == Tier::Fast;
    let before: u64 =
        plan.tables().map(|(_, file)| &file.meta).filter(of_fast).map(|meta| meta.size_bytes).sum();
    let after: u64 = metas.iter().filter(of_fast).map(|meta| meta.size_bytes).sum();
    if after + before / RETAIN_BENEFIT > before {
        let version = &keyspace.peek().version;
        for meta in metas.iter().filter(of_fast) {
            let times = if plan.keeps_hot { 1 } else { 2 };
            version.find(meta.number).inspect(|(_, file)| file.set_times_kept(times));
        }
    }
}

impl KeyspaceState {
    /// The oldest WAL file still needed once `imms`, the oldest sealed memtables, are in tables.
    fn wal_number_after(&self, imms: &[Arc<MemTable>]) -> u64 {
        let view = self.peek();
        let remains = |imm: &&Arc<MemTable>| !imms.iter().any(|gone| gone.id() == imm.id());
        view.imms.iter().rfind(remains).unwrap_or(&view.mem).wal_number()
    }
}

/// Makes the tables of a job inside the store.
struct StoreOutputs {
    files: Arc<Files>,
    numbers: Arc<FileNumbers>,
    purpose: Purpose,
}

impl Outputs for StoreOutputs {
    fn create(&self, tier: Tier) -> Result<NewTable> {
        let number = self.numbers.next();
        let (path, file) = self.files.create(tier, number, self.purpose)?;
        let buffer_bytes = self.files.write_buffer_bytes;
        Ok(NewTable { number, path, file, buffer_bytes })
    }

    fn sync_dir(&self, tier: Tier) -> Result<()> {
        self.files.tier(tier)?.sync_dir()
    }

    fn remove(&self, tier: Tier, number: u64) {
        self.files.remove(tier, number);
    }
}
