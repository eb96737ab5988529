//! What is left of a store: its manifest, the tails of its tables, its logs; and the sources that its keyspaces are merged from.
//!
//! Order: the lock, then the manifest, then the identity of the slow tier; nothing is written. Every table's tail is read before the merge,
//! so that all range tombstones are known, and all tables that are lost. Tests: `tests/trust/salvage.rs`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use kelvin_base::sync::Mutex;
use kelvin_base::{Error, ErrorKind, Result, SEQUENCE_MAX, Tier};
use kelvin_storage::{FileLock, IoMode};
use kelvin_table::{Fragments, Remains, Table};

use super::How;
use super::damage::{Damage, Place};
use super::doubt::{LOGS, rank_of};
use super::run::Run;
use super::unlisted;
use crate::files::table_name;
use crate::iter::Source;
use crate::options::{Env, Options};
use crate::recovery::{Memtables, missing_log, take_record, tier_handles};
use crate::tiers::identity::{self, LOCK_NAME};
use crate::tiers::{Purpose, TierHandle};
use crate::version::{
    CURRENT, Recorded, TableMeta, manifest_name, manifests_in, read_recorded, read_recorded_in,
};
use crate::wal::{Gap, LogFiles, Replayed, Tail, replay_remains};

/// Merged sources, and the place of each.
type Sources = (Vec<Source>, Vec<usize>);

/// Both tiers; the slow one if it is given.
pub(super) type Tiers = [Option<TierHandle>; 2];

/// What is left of a store.
pub(super) struct Survey {
    pub(super) how: How,
    pub(super) recorded: Recorded,
    pub(super) damage: Arc<Mutex<Damage>>,
    pub(super) now_ms: u64,
    tiers: Tiers,
    memtables: Memtables,
    tombstones: BTreeMap<u32, Vec<Arc<Fragments>>>,
    /// By keyspace and level, the tables that can be opened.
    tables: BTreeMap<u32, BTreeMap<usize, Vec<TableMeta>>>,
    _locks: Vec<Box<dyn FileLock>>,
}

/// The tables of a keyspace, for a [`Run`].
pub(super) struct Tables {
    pub(super) tiers: Tiers,
    pub(super) id: u32,
    pub(super) keyspace: String,
    pub(super) damage: Arc<Mutex<Damage>>,
}

/// Opens what is left of a table.
///
/// # Errors
/// What keeps its index from being read.
pub(super) fn open_remains(tiers: &Tiers, meta: &TableMeta) -> Result<Remains> {
    let Some(tier) = &tiers[meta.tier.index()] else {
        return Err(Error::new(ErrorKind::TierUnavailable, format!("the {} tier was not given", meta.tier)));
    };
    let name = table_name(meta.number);
    let file = tier.open(&name, IoMode::Buffered)?;
    Table::open_remains(file, &tier.path(&name), meta.number, meta.size_bytes, meta.tail_bytes)
}

impl Survey {
    /// Looks at the store that `options` name.
    ///
    /// # Errors
    /// As [`super::salvage`].
    pub(super) fn of(options: Options, how: How) -> Result<Self> {
        let _purpose = Purpose::Upkeep.enter();
        let config = options.derive()?;
        let env = options.env.map_or_else(|| Env::system(&config), Ok)?;
        let tiers = tier_handles(&config, &env);
        let Some(fast) = &tiers[Tier::Fast.index()] else {
            return Err(Error::invalid("a store needs a fast tier"));
        };
        let locks = lock(&tiers)?;
        let mut damage = Damage::default();
        let recorded = if how.without_manifest {
            unlisted::recorded(&tiers, &mut damage)?
        } else {
            let recorded = read_manifest(fast, &mut damage)?;
            check_slow(&tiers, &recorded, how, &mut damage)?;
            recorded
        };
        let mut survey = Self {
            how,
            recorded,
            damage: Arc::new(Mutex::new(damage)),
            now_ms: env.clock.unix_millis(),
            tiers: tiers.clone(),
            memtables: Memtables::new(),
            tombstones: BTreeMap::new(),
            tables: BTreeMap::new(),
            _locks: locks,
        };
        survey.read_tails();
        survey.read_logs(fast, config.memtable_bytes)?;
        Ok(survey)
    }

    /// Opens every table once: its range tombstones, and whether it is there.
    fn read_tails(&mut self) {
        let mut damage = self.damage.lock();
        for (id, keyspace) in &self.recorded.keyspaces {
            let (stones, levels) =
                (self.tombstones.entry(*id).or_default(), self.tables.entry(*id).or_default());
            for ((level, _), meta) in &keyspace.tables {
                let name = table_name(meta.number);
                let path = self.tiers[meta.tier.index()]
                    .as_ref()
                    .map_or_else(|| name.clone().into(), |tier| tier.path(&name));
                let place = Place { id: *id, keyspace: &keyspace.name, level: *level, meta, path: &path };
                let remains = match open_remains(&self.tiers, meta) {
                    Ok(remains) => remains,
                    Err(error) => {
                        damage.table(place, error);
                        continue;
                    }
                };
                if let Some(error) = remains.tombstones {
                    damage.tombstones(place, error);
                }
                for (error, what) in [(remains.filter, "filter"), (remains.properties, "properties")] {
                    if let Some(error) = error {
                        damage.note(place, &format!("its {what} cannot be read"), &error);
                    }
                }
                stones.extend(remains.table.tombstones().map(Arc::clone));
                levels.entry(*level).or_default().push(meta.clone());
            }
        }
    }

    /// Reads the logs into memtables, as a recovery does where it succeeds.
    fn read_logs(&mut self, fast: &TierHandle, memtable_bytes: u64) -> Result<()> {
        let (storage, dir) = (fast.storage(), fast.dir());
        let needed: BTreeMap<u32, u64> =
            self.recorded.keyspaces.iter().map(|(id, one)| (*id, one.wal_number)).collect();
        let least = needed.values().copied().min().unwrap_or(0);
        let mut numbers = LogFiles::open(Arc::clone(storage), dir, 0, 0)?.numbers();
        numbers.retain(|&number| number >= least);
        if let Some(error) = missing_log(dir, needed.values().copied(), &numbers) {
            let path = error.path().unwrap_or(dir).to_path_buf();
            self.damage.lock().log(&path, (0, 0), needed.keys().copied(), SEQUENCE_MAX, error);
        }
        let takes_all = self.how.without_manifest;
        let base = (!takes_all).then_some(self.recorded.last_sequence);
        let memtables = &mut self.memtables;
        let replayed = replay_remains(&**storage, dir, &numbers, base, &mut |record| {
            let needs = |keyspace: u32| {
                takes_all || needed.get(&keyspace).is_some_and(|&needed| record.log >= needed)
            };
            take_record(memtables, record, memtable_bytes, &needs)
        })?;
        for id in self.memtables.keys() {
            let unknown = || unlisted::keyspace(*id);
            self.recorded.keyspaces.entry(*id).or_insert_with(unknown);
        }
        self.note_logs(dir, &needed, replayed);
        Ok(())
    }

    /// Tells of what is lost of the logs, and of how they end.
    fn note_logs(&self, dir: &Path, needed: &BTreeMap<u32, u64>, replayed: Replayed) {
        let mut damage = self.damage.lock();
        for gap in replayed.gaps {
            if gap.holds_none() {
                let note = format!("no record lay in what cannot be read of a log ({})", gap.error);
                damage.notes.push(note);
                continue;
            }
            let Gap { log, bytes, error, next, .. } = gap;
            let path = crate::wal::format::log_path(dir, log);
            let ids = needed.iter().filter(|(_, needed)| log >= **needed).map(|(id, _)| *id);
            let at = (bytes.start, bytes.end - bytes.start);
            damage.log(&path, at, ids, next.unwrap_or(SEQUENCE_MAX), error);
        }
        if let Some((log, Tail::Torn { offset, .. })) = replayed.torn {
            let path = crate::wal::format::log_path(dir, log);
            damage.notes.push(format!(
                "{} ends at byte {offset} in the middle of a write that was not made durable",
                path.display()
            ));
        }
        for log in replayed.dropped {
            let path = crate::wal::format::log_path(dir, log);
            damage.notes.push(format!(
                "{} lies behind a gap, and nothing in it was made durable: an opening does not take it either",
                path.display()
            ));
        }
    }

    /// The sources that a keyspace is merged from, the newest place first.
    pub(super) fn sources(&self, id: u32) -> Sources {
        let (mut sources, mut ranks): Sources = (Vec::new(), Vec::new());
        for memtable in self.memtables.get(&id).into_iter().flatten().rev() {
            sources.push(memtable.iter().into());
            ranks.push(LOGS);
        }
        let tables = Tables {
            tiers: self.tiers.clone(),
            id,
            keyspace: self.recorded.keyspaces.get(&id).map(|one| one.name.clone()).unwrap_or_default(),
            damage: Arc::clone(&self.damage),
        };
        for (level, metas) in self.tables.get(&id).into_iter().flatten() {
            for metas in disjoint(metas.clone()) {
                sources.push(Source::Boxed(Box::new(Run::new(&tables, *level, metas))));
                ranks.push(rank_of(*level));
            }
        }
        (sources, ranks)
    }

    /// The range tombstones of a keyspace.
    pub(super) fn tombstones(&self, id: u32) -> Vec<Arc<Fragments>> {
        let of_tables = self.tombstones.get(&id).into_iter().flatten().map(Arc::clone);
        let of_logs = self.memtables.get(&id).into_iter().flatten().flat_map(|one| one.tombstones());
        vec![Arc::new(Fragments::merge(
            of_tables.chain(of_logs).collect::<Vec<_>>().iter().map(AsRef::as_ref),
        ))]
    }
}

/// The tables in as few groups as possible of which none holds tables that overlap, each in order.
fn disjoint(mut metas: Vec<TableMeta>) -> Vec<Vec<TableMeta>> {
    metas.sort_by(|a, b| a.smallest.cmp(&b.smallest));
    let mut groups: Vec<Vec<TableMeta>> = Vec::new();
    for meta in metas {
        let fits = |group: &&mut Vec<TableMeta>| {
            group.last().is_none_or(|last| !last.reaches(&meta.smallest) && last.smallest < meta.smallest)
        };
        match groups.iter_mut().find(fits) {
            Some(group) => group.push(meta),
            None => groups.push(vec![meta]),
        }
    }
    groups
}

/// Takes the store's locks, so that nobody opens it meanwhile. Where there is no lock file nobody has it open; none is made.
fn lock(tiers: &Tiers) -> Result<Vec<Box<dyn FileLock>>> {
    let mut locks = Vec::new();
    for tier in tiers.iter().flatten() {
        if !tier.exists(LOCK_NAME)? {
            continue;
        }
        match tier.lock(LOCK_NAME) {
            Ok(lock) => locks.push(lock),
            // Nobody can have it open to write.
            Err(error)
                if error.os().is_some_and(|os| os.kind() == std::io::ErrorKind::ReadOnlyFilesystem) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(locks)
}

/// What the manifest in force records. Where only the file that names it cannot be read, the one manifest there is was in force.
fn read_manifest(fast: &TierHandle, damage: &mut Damage) -> Result<Recorded> {
    let (storage, dir) = (fast.storage(), fast.dir());
    let refused = match read_recorded(&**storage, dir) {
        Ok(Some(mut recorded)) => {
            damage.notes.append(&mut recorded.warnings);
            return Ok(recorded);
        }
        Ok(None) => Error::corruption(&dir.join(CURRENT), 0, "the file that names the manifest is gone"),
        Err(error) => error,
    };
    let manifests = manifests_in(&**storage, dir)?;
    let is_about_current = refused.path().is_some_and(|path| path.ends_with(CURRENT));
    if let ([number], true) = (manifests.as_slice(), is_about_current) {
        let recorded = read_recorded_in(&**storage, dir, *number).map_err(without_manifest)?;
        damage.notes.push(format!(
            "{CURRENT} cannot be read; {} is the one manifest there is, and was taken for the one it named ({refused})",
            manifest_name(*number)
        ));
        return Ok(recorded);
    }
    if is_about_current && manifests.is_empty() && unlisted::is_empty(fast)? {
        return Err(Error::invalid("there is no store in this directory").file(dir));
    }
    Err(without_manifest(refused))
}

/// The error of a manifest that cannot be read.
fn without_manifest(error: Error) -> Error {
    error.advice(
        "restore the manifest from a copy, or run `kelvin salvage --without-manifest`: it takes the newest version of every key from all tables \
         and logs that are there, which may be stale or deleted",
    )
}

/// Refuses a slow tier of another store, and one that is not there unless it is to be done without.
fn check_slow(tiers: &Tiers, recorded: &Recorded, how: How, damage: &mut Damage) -> Result<()> {
    let [Some(fast), slow] = tiers else { return Ok(()) };
    if how.without_slow || !recorded.has_tables_on(Tier::Slow) {
        return Ok(());
    }
    let if_lost = "if it is lost, leave it out and run `kelvin salvage --without-slow`";
    let Some(slow) = slow else {
        return Err(Error::invalid("the store has records on a slow tier, and none was given")
            .file(fast.dir())
            .advice(format!("give the directory of its slow tier; {if_lost}")));
    };
    let Err(error) = identity::check(slow, fast.dir(), recorded.store) else { return Ok(()) };
    let is_there = || {
        let on_slow = |meta: &&TableMeta| meta.tier == Tier::Slow;
        let mut named = recorded.keyspaces.values().flat_map(|one| one.tables.values()).filter(on_slow);
        named.any(|meta| slow.exists(table_name(meta.number)).unwrap_or(false))
    };
    match error.kind() {
        ErrorKind::Corruption => {}
        // Its tables tell whose they are by their numbers alone, but the file that says it is gone.
        ErrorKind::InvalidArgument if !slow.exists(identity::FILE_NAME)? && is_there() => {}
        ErrorKind::TierUnavailable => {
            return Err(error.advice(format!("mount the slow disk there; {if_lost}")));
        }
        _ => return Err(error),
    }
    damage
        .notes
        .push(format!("the identity of the slow tier cannot be read; nothing is lost with it ({error})"));
    Ok(())
}
