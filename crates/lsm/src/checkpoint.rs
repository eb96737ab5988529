//! A copy of the store as of one moment that can be opened like any other.
//!
//! The moment: with the write leader's lock held, every memtable is sealed and every view pinned, so that all keyspaces
//! are at the same place of the commit order. Then, with no lock held, tables are linked (copied where the file
//! system cannot link), sealed memtables are written as tables of the copy, and last its manifest. The copy is
//! a store of its own: it gets a new identity. Tests: `db/tests`, the model test.

use std::path::Path;
use std::sync::Arc;

use kelvin_base::{Error, Result, Sequence, Tier, seeded_bug};
use kelvin_storage::{AlignedBuf, Create, IoMode, Storage};

use crate::compaction::job::{NewTable, Outputs};
use crate::db::engine::Engine;
use crate::files::table_name;
use crate::tiers::{Purpose, StoreId, TierHandle, identity};
use crate::version::{FileNumbers, Recorded, TableMeta, is_hot_run, write_recorded};
use crate::view::View;

/// Bytes copied at once where a file cannot be linked.
const COPY_BYTES: usize = 1 << 20;

struct Moment {
    views: Vec<(u32, Arc<View>)>,
    recorded: Recorded,
    sequence: Sequence,
}

/// See [`crate::db::Db::checkpoint`].
pub fn checkpoint(engine: &Engine, dir: &Path, slow_dir: Option<&Path>) -> Result<()> {
    let _purpose = Purpose::Upkeep.enter();
    let targets = target_tiers(engine, dir, slow_dir)?;
    let moment = engine.freeze()?;
    let outcome = fill(engine, &targets, moment);
    if outcome.is_err() {
        for target in targets.iter().flatten() {
            clear(target);
        }
    }
    outcome
}

/// The copy's directories, which must be absent or empty.
fn target_tiers(engine: &Engine, dir: &Path, slow_dir: Option<&Path>) -> Result<[Option<TierHandle>; 2]> {
    let has_slow = engine.config.is_tiered();
    if has_slow != slow_dir.is_some() {
        return Err(Error::invalid(if has_slow {
            "a checkpoint of a store with a slow tier needs a directory for its slow part"
        } else {
            "the store has no slow tier, so its checkpoint has no slow part"
        }));
    }
    let clock = &engine.env.clock;
    let fast = TierHandle::new(Tier::Fast, dir, Arc::clone(&engine.env.fast), Arc::clone(clock));
    let slow =
        slow_dir.map(|dir| TierHandle::new(Tier::Slow, dir, Arc::clone(&engine.env.slow), Arc::clone(clock)));
    for target in [Some(&fast), slow.as_ref()].into_iter().flatten() {
        target.create_dir_all()?;
        if let Some(name) = target.list()?.first() {
            return Err(Error::invalid(format!(
                "the checkpoint's directory is not empty: it holds {}",
                name.display()
            ))
            .file(target.dir())
            .advice("give an absent or empty directory; nothing was changed"));
        }
    }
    Ok([Some(fast), slow])
}

fn clear(target: &TierHandle) {
    for name in target.list().unwrap_or_default() {
        // What cannot be removed stays beside the error that is reported.
        let _left = target.remove_if_there(&name);
    }
}

impl Engine {
    /// Seals every memtable and pins every view, all at one place of the commit order.
    fn freeze(&self) -> Result<Moment> {
        let mut log = self.log.lock();
        self.publisher.wait_visible(log.last_sequence);
        let keyspaces = self.keyspaces.load();
        // Logs of what needs no sealing would only pile up behind a memtable that waits to be flushed.
        if keyspaces.iter().any(|one| !one.peek().mem.is_empty()) {
            let all: Vec<u32> = keyspaces.iter().map(|one| one.id).collect();
            self.rotate(&mut log, &all)?;
        }
        let versions = self.versions.lock();
        let views = self.keyspaces.load().iter().map(|one| (one.id, one.view())).collect();
        Ok(Moment { views, recorded: versions.recorded(), sequence: log.last_sequence })
    }
}

fn fill(engine: &Engine, targets: &[Option<TierHandle>; 2], moment: Moment) -> Result<()> {
    let [Some(fast), slow] = targets else { return Ok(()) };
    let Moment { views, mut recorded, sequence } = moment;
    recorded.store =
        StoreId::generate(engine.env.seed ^ sequence, engine.env.clock.unix_millis(), fast.dir());
    recorded.last_sequence = sequence;
    recorded.warnings.clear();
    if let Some(slow) = slow {
        identity::claim(slow, recorded.store)?;
    }
    for (id, view) in &views {
        for (level, file) in view.version.tables() {
            if seeded_bug!("checkpoint-without-copies") && file.meta.copies > 0 {
                continue;
            }
            let target = targets[file.meta.tier.index()].as_ref();
            let target = target
                .ok_or_else(|| Error::invalid("a table lies on a tier the checkpoint does not have"))?;
            let linked =
                link_or_copy(engine.files.tier(file.meta.tier)?, target, &table_name(file.meta.number));
            // Copies that cannot be had are done without (promise 6).
            match (linked, recorded.keyspaces.get_mut(id)) {
                (Err(_), Some(keyspace)) if is_hot_run(level) => {
                    keyspace.tables.remove(&(level, file.meta.number));
                }
                (linked, _) => linked?,
            }
        }
        let metas = engine.write_memtables(view, fast)?;
        let Some(keyspace) = recorded.keyspaces.get_mut(id) else { continue };
        keyspace.wal_number = 0;
        for meta in metas {
            keyspace.tables.insert((0, meta.number), meta);
        }
    }
    recorded.next_file_number = engine.file_numbers.peek();
    for target in targets.iter().flatten() {
        target.sync_dir()?;
    }
    write_recorded(&**fast.storage(), fast.dir(), &recorded)?;
    if let Some(slow) = slow {
        identity::settle(slow, recorded.store)?;
    }
    Ok(())
}

impl Engine {
    /// Writes the sealed memtables of `view` as tables into the copy's directory.
    fn write_memtables(&self, view: &View, target: &TierHandle) -> Result<Vec<TableMeta>> {
        let imms: Vec<_> = view.imms.iter().filter(|imm| !imm.is_empty()).map(Arc::clone).collect();
        if imms.is_empty() {
            return Ok(Vec::new());
        }
        let outputs = Arc::new(CopyOutputs {
            target: target.clone(),
            mode: self.files.mode,
            buffer_bytes: self.files.write_buffer_bytes,
            numbers: Arc::clone(&self.file_numbers),
        });
        Self::write_level_zero(&imms, &self.job_context(outputs, 0, Tier::Fast))
    }
}

/// Makes tables in the copy's fast directory.
struct CopyOutputs {
    target: TierHandle,
    mode: IoMode,
    buffer_bytes: usize,
    numbers: Arc<FileNumbers>,
}

impl Outputs for CopyOutputs {
    fn create(&self, _tier: Tier) -> Result<NewTable> {
        let number = self.numbers.next();
        let name = table_name(number);
        let how = Create { buffer_bytes: self.buffer_bytes, ..Create::new(self.mode) };
        let file = self.target.create(&name, how, Purpose::Upkeep)?;
        Ok(NewTable { number, path: self.target.path(&name), file, buffer_bytes: self.buffer_bytes })
    }

    fn sync_dir(&self, _tier: Tier) -> Result<()> {
        self.target.sync_dir()
    }

    fn remove(&self, _tier: Tier, number: u64) {
        // What cannot be removed goes with the whole copy.
        let _cleared_with_the_copy = self.target.remove_if_there(table_name(number));
    }
}

fn link_or_copy(from: &TierHandle, to: &TierHandle, name: &str) -> Result<()> {
    let (source, target) = (from.path(name), to.path(name));
    let storage: &dyn Storage = &**to.storage();
    match storage.hard_link(&source, &target) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::StorageFull => {
            Err(from.classify(Error::io("linking a table", &target, error)))
        }
        Err(_) => copy(from, to, name),
    }
}

fn copy(from: &TierHandle, to: &TierHandle, name: &str) -> Result<()> {
    let source = from.open(name, IoMode::Buffered)?;
    let path = to.path(name);
    let failed = |error| to.classify(Error::io("copying a table", &path, error));
    let mut target = to.create(name, Create::new(IoMode::Buffered), Purpose::Upkeep)?;
    let mut buf = AlignedBuf::with_capacity(COPY_BYTES);
    let len = source.len().map_err(failed)?;
    let mut offset = 0;
    while offset < len {
        let step = usize::try_from(len - offset).unwrap_or(COPY_BYTES).min(COPY_BYTES);
        let range = source.read_at(offset, step, &mut buf).map_err(failed)?;
        target.append(buf.as_slice().get(range).unwrap_or(&[])).map_err(failed)?;
        offset += step as u64;
    }
    target.sync().map_err(failed)
}
