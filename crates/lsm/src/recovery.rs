//! Opens a store: lock, identity, manifest, orphans, WAL; or makes a new one.
//!
//! Order matters: nothing is written before the lock is held and the slow tier is known to be the right one; a table no
//! version names is removed only after the manifest was read whole; WAL files are read, not removed, until tables
//! hold what they hold. Tests: `db/tests`, the crash test.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use kelvin_base::events::Listener;
use kelvin_base::sync::Mutex;
use kelvin_base::{Error, ErrorKind, Events, Result, Sequence, Signal, Tier};
use kelvin_storage::FileLock;

use crate::batch::BatchOps;
use crate::compaction::pick::PickConfig;
use crate::db::DEFAULT_KEYSPACE;
use crate::db::engine::Engine;
use crate::db::keyspaces::Keyspaces;
use crate::files::{Files, table_number};
use crate::health::Health;
use crate::hotness::Tracking;
use crate::hotness::means::Means;
use crate::hotness::storage::DIR_NAME as HOTNESS_DIR;
use crate::install::account_manifest;
use crate::memory::MemoryBudget;
use crate::memtable::MemTable;
use crate::options::{Config, Env, Options};
use crate::promotion::{PromotionCache, Room};
use crate::schedule::Work;
use crate::snapshot::Snapshots;
use crate::space::Space;
use crate::stats::Counters;
use crate::tiers::identity::LOCK_NAME;
use crate::tiers::{StoreId, TierHandle, identity};
use crate::version::{CURRENT, CURRENT_NEW, Edit, TableOpener, VersionSet};
use crate::view::{KeyspaceState, View};
use crate::wal::{LogFiles, ReplayRecord, replay};
use crate::write::insert;
use crate::write::log::Log;
use crate::write::publish::Publisher;
use crate::write::stall::Gauge;

/// Held as long as the store is open.
type Locks = Vec<Box<dyn FileLock>>;

/// WAL files kept to be overwritten.
const RECYCLED_LOGS_MAX: usize = 2;

/// Opens the store that `options` name, making it if there is none.
///
/// # Errors
/// See [`crate::db::Db::open`].
pub fn open(options: Options) -> Result<Arc<Engine>> {
    let config = options.derive()?;
    let env = options.env.map_or_else(|| Env::system(&config), Ok)?;
    let events = options.listener.map_or_else(Events::default, |Listener(listener)| {
        Events::new(listener, Arc::clone(&env.clock), Arc::clone(&env.executor))
    });
    let tiers = tier_handles(&config, &env);
    tiers.iter().flatten().for_each(|tier| tier.health().tell(tier.tier(), &events));
    let mut locks = lock(&tiers)?;
    let signal = Arc::new(Signal::new());
    let space = Space::from_config(&config, tiers.clone(), Arc::clone(&env.clock));
    let memory = MemoryBudget::new(&config);
    let files = Arc::new(Files::new(tiers, &config, memory, space.clone(), &env, Arc::clone(&signal)));
    let mut versions = recover_versions(&config, &env, &files, &mut locks)?;
    versions.rotate_above(config.manifest_bytes_max);
    remove_orphans(&files, &versions)?;
    for handle in files.present() {
        space.account_directory(handle.tier())?;
    }
    account_once(&space, files.tier(Tier::Fast)?, &versions)?;
    let fast = files.tier(Tier::Fast)?;
    let wals =
        LogFiles::open(Arc::clone(fast.storage()), fast.dir(), config.memtable_bytes, RECYCLED_LOGS_MAX)?;
    let engine = assemble(Parts { config, env, events, files, space, versions, wals, signal, locks })?;
    engine.clone().start()?;
    Ok(engine)
}

pub(crate) fn tier_handles(config: &Config, env: &Env) -> [Option<TierHandle>; 2] {
    let handle = |tier, dir: &Path, storage| TierHandle::new(tier, dir, storage, Arc::clone(&env.clock));
    [
        Some(handle(Tier::Fast, &config.dir, Arc::clone(&env.fast))),
        config.slow_dir.as_ref().map(|dir| handle(Tier::Slow, dir, Arc::clone(&env.slow))),
    ]
}

/// Manifest and WAL files change under their own names all the time: each kind has one entry in the books.
fn account_once(space: &Space, fast: &TierHandle, versions: &VersionSet) -> Result<()> {
    for path in fast.list()? {
        let name = path.to_string_lossy();
        if name.ends_with(".manifest") || name.ends_with(".wal") {
            space.file_removed(Tier::Fast, &name);
        }
    }
    // While a new manifest comes into force its name has a file of its own beside `CURRENT`.
    space.file_added(Tier::Fast, CURRENT_NEW, 1);
    account_manifest(space, versions);
    Ok(())
}

/// Makes the fast directory and takes the store's lock.
fn lock(tiers: &[Option<TierHandle>; 2]) -> Result<Locks> {
    let Some(fast) = &tiers[Tier::Fast.index()] else { return Ok(Vec::new()) };
    fast.create_dir_all()?;
    Ok(vec![fast.lock(LOCK_NAME)?])
}

/// Takes the slow directory for this store, so that no copy of the fast directory, and no new store, uses it meanwhile.
/// Nothing is made in a directory that is not the store's: it may be the mount point of a disk that is not there.
fn lock_slow(slow: &TierHandle, locks: &mut Locks) -> Result<()> {
    locks.push(slow.lock(LOCK_NAME)?);
    Ok(())
}

/// Claims an empty slow directory, or one whose claim a crash cut short, for the store `id`.
fn claim_slow(slow: &TierHandle, id: StoreId, locks: &mut Locks) -> Result<()> {
    slow.create_dir_all()?;
    if identity::may_lock(slow)? {
        lock_slow(slow, locks)?;
    }
    identity::claim(slow, id)
}

/// Reads the manifest, or makes a new store; with a slow tier, checks and raises its identity.
fn recover_versions(config: &Config, env: &Env, files: &Arc<Files>, locks: &mut Locks) -> Result<VersionSet> {
    let fast = files.tier(Tier::Fast)?;
    let opener = Arc::clone(files) as Arc<dyn TableOpener>;
    let (storage, dir, tiered) = (Arc::clone(fast.storage()), fast.dir(), config.is_tiered());
    let recorded = crate::version::read_recorded(&*storage, dir)?;
    let Some(recorded) = recorded else {
        return create(config, env, files, opener, locks);
    };
    let has_slow_tables = recorded.has_tables_on(Tier::Slow);
    match &files.tiers[Tier::Slow.index()] {
        Some(slow) if has_slow_tables || slow.exists(identity::FILE_NAME)? => {
            if slow.exists(identity::FILE_NAME)? {
                lock_slow(slow, locks)?;
            }
            identity::check(slow, dir, recorded.store)?;
        }
        // A store whose records all lie on the fast tier is given a slow one.
        Some(slow) => claim_slow(slow, recorded.store, locks)?,
        None if has_slow_tables => {
            return Err(Error::invalid("the store has records on a slow tier, and none was given")
                .file(dir)
                .advice("give the directory of its slow tier; nothing was changed and nothing is lost"));
        }
        None => {}
    }
    let mut versions = VersionSet::recover(storage, dir, opener, tiered)?.ok_or_else(|| {
        Error::new(ErrorKind::Io, "the manifest vanished while the store was opened").file(dir)
    })?;
    if let Some(slow) = &files.tiers[Tier::Slow.index()] {
        let raised = versions.store().raised();
        identity::raise(slow, raised)?;
        versions.log_and_apply(&Edit { store: Some(raised), ..Edit::default() })?;
        identity::settle(slow, raised)?;
    }
    Ok(versions)
}

fn create(
    config: &Config,
    env: &Env,
    files: &Arc<Files>,
    opener: Arc<dyn TableOpener>,
    locks: &mut Locks,
) -> Result<VersionSet> {
    let fast = files.tier(Tier::Fast)?;
    refuse_foreign(fast)?;
    let id = StoreId::generate(env.seed, env.clock.unix_millis(), fast.dir());
    let slow = files.tiers[Tier::Slow.index()].as_ref();
    if let Some(slow) = slow {
        claim_slow(slow, id, locks)?;
    }
    let mut first = Edit { store: Some(id), ..Edit::default() };
    first.create_keyspace(0, DEFAULT_KEYSPACE, 0);
    let versions =
        VersionSet::create(Arc::clone(fast.storage()), fast.dir(), opener, config.is_tiered(), &first)?;
    if let Some(slow) = slow {
        identity::settle(slow, id)?;
    }
    Ok(versions)
}

/// A new store is not made among the files of something else.
fn refuse_foreign(fast: &TierHandle) -> Result<()> {
    let ours = |name: &str| {
        matches!(name, LOCK_NAME | CURRENT_NEW | HOTNESS_DIR | "lost+found")
            || name.ends_with(".manifest")
            || name.ends_with(".tmp")
    };
    if fast.exists(identity::FILE_NAME)? {
        return Err(Error::invalid(
            "the directory is the slow tier of a store, and was given as the fast one",
        )
        .file(fast.dir())
        .advice("give the store's fast directory as dir and this one as slow_dir; nothing was changed"));
    }
    for path in fast.list()? {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.ends_with(".tbl") || name.ends_with(".wal") {
            return Err(Error::new(ErrorKind::Corruption, format!("the directory holds {name} but no {CURRENT} file"))
                .file(fast.dir())
                .advice(
                    "the file that names the manifest is gone: put it back, or restore the directory; nothing was changed",
                ));
        }
        if !ours(&name) {
            return Err(Error::invalid(format!("the directory holds {name}, which is not Kelvin's"))
                .file(fast.dir())
                .advice("give an empty directory for a new store; nothing was changed"));
        }
    }
    Ok(())
}

/// Removes tables that no version names: jobs that a crash cut short made them.
fn remove_orphans(files: &Files, versions: &VersionSet) -> Result<()> {
    let live = versions.live_tables();
    for handle in files.present() {
        for path in handle.list()? {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if let Some(number) = table_number(&name) {
                versions.file_numbers().seen(number);
                if !live.contains(&(handle.tier(), number)) {
                    handle.remove_if_there(&name)?;
                }
            }
        }
    }
    Ok(())
}

struct Parts {
    config: Config,
    env: Env,
    events: Events,
    files: Arc<Files>,
    space: Space,
    versions: VersionSet,
    wals: LogFiles,
    signal: Arc<Signal>,
    locks: Locks,
}

/// Replays the WAL into memtables and puts the engine together.
fn assemble(parts: Parts) -> Result<Arc<Engine>> {
    let Parts { config, env, events, files, space, mut versions, wals, signal, locks } = parts;
    let numbers = wals.numbers();
    for &number in &numbers {
        versions.file_numbers().seen(number);
    }
    let recovered = replay_logs(&config, &files, &versions, &wals, &numbers)?;
    let last = recovered.last_sequence;
    let file_numbers = Arc::clone(versions.file_numbers());
    let writer = wals.create(file_numbers.next())?;
    let number = writer.number();
    wals.begins_behind(number, last);
    expect_log(&mut versions, &wals, number, &recovered)?;
    let promotion_room = Room::new(config.promotion_bytes_max, &files.memory);
    let mut states = Vec::new();
    for (id, name, _, version) in versions.keyspaces() {
        let imms = recovered.sealed(id);
        let view = View { mem: Arc::new(MemTable::new(number, number)), imms, version: Arc::clone(version) };
        let promotion = PromotionCache::new(promotion_room.as_ref());
        states.push(Arc::new(KeyspaceState::new(id, name.to_string(), view, promotion)));
    }
    let keyspaces = Keyspaces::new(states).ok_or_else(|| {
        Error::new(ErrorKind::Corruption, format!("the manifest has no keyspace {DEFAULT_KEYSPACE:?}"))
            .file(&config.dir)
    })?;
    let next_keyspace = versions.next_keyspace();
    let pick_config = pick_config(&config);
    let owner = versions.store().uuid;
    Ok(Arc::new_cyclic(|me: &Weak<Engine>| {
        let engine = me.clone();
        files.leaving.on_removed(Box::new(move || {
            if let Some(engine) = engine.upgrade() {
                engine.refresh_pressure();
                engine.schedule();
            }
        }));
        let hotness = Tracking::open(&config, &env, &events, &files, owner, me.clone());
        Engine {
            hotness,
            promotion_room,
            pick_config,
            means: Means::default(),
            promotion_waits: AtomicBool::new(false),
            skew: Mutex::default(),
            pressure: Gauge::default(),
            delay_owed_us: AtomicU64::new(0),
            config,
            env,
            files,
            space,
            wals,
            counters: Counters::default(),
            snapshots: Arc::new(Snapshots::default()),
            publisher: Publisher::new(last),
            queue: crate::write::group::Queue::default(),
            log: Mutex::new(Log::new(writer, last)),
            closed_logs: Mutex::default(),
            keyspaces: ArcSwap::from_pointee(keyspaces),
            versions: Mutex::new(versions),
            work: Mutex::new(Work::default()),
            signal,
            health: Health::new(events.clone()),
            events,
            file_numbers,
            keyspace_numbers: AtomicU32::new(next_keyspace),
            closing: Arc::default(),
            locks: Mutex::new(locks),
            me: me.clone(),
        }
    }))
}

/// Records that the WAL file `number`, which is durable, must be there at the next opening (see [`missing_log`]), and that
/// older ones hold nothing for the keyspaces without recovered writes. The next opening then begins with the oldest file
/// that is still needed, and goes on from the sequence number before it: the same edit says both.
fn expect_log(versions: &mut VersionSet, wals: &LogFiles, number: u64, recovered: &Recovered) -> Result<()> {
    let mut edit = Edit::default();
    let mut floor = number;
    for (id, _, needed, _) in versions.keyspaces() {
        if recovered.memtables.contains_key(&id) {
            floor = floor.min(needed);
        } else {
            edit.set_wal_number(id, number);
        }
    }
    if let Some(base) = wals.base(floor) {
        edit.set_last_sequence(base);
    }
    versions.log_and_apply(&edit).map(drop)
}

/// How long records may stay on disk after their expiry in tables that hold mostly such, milliseconds.
const EXPIRY_GRACE_MS: u64 = 60_000;

fn pick_config(config: &Config) -> PickConfig {
    PickConfig {
        two_tiers: config.is_tiered(),
        fast_usable_bytes: config.fast_levels_bytes.unwrap_or(u64::MAX),
        memtable_bytes: config.memtable_bytes,
        l0_trigger_files: config.level0_compact_at,
        ratio: u64::from(config.level_ratio),
        cold_permille: 1000,
        retains: config.hot_parts.retention,
        hot_level_is_full: false,
        checks_hotness: config.hot_parts.hotness_check,
        above_permille: 0,
        clean_turn: 0,
        table_bytes: [config.table_bytes, config.slow_table_bytes],
        plan_bytes_max: config.slow_table_bytes.saturating_mul(u64::from(config.level_ratio) + 2),
        parts_max: [config.compactions_max; 2],
        expiry_grace_ms: EXPIRY_GRACE_MS,
    }
}

/// Memtables by keyspace, oldest first.
pub(crate) type Memtables = BTreeMap<u32, Vec<Arc<MemTable>>>;

/// What the WAL held.
struct Recovered {
    last_sequence: Sequence,
    memtables: Memtables,
}

impl Recovered {
    /// The memtables of a keyspace, newest first.
    fn sealed(&self, keyspace: u32) -> Vec<Arc<MemTable>> {
        self.memtables
            .get(&keyspace)
            .map(|all| all.iter().rev().map(Arc::clone).collect())
            .unwrap_or_default()
    }
}

/// The error if no WAL file is there although the manifest says that there was one: the files are removed only
/// once a younger one is there. `needed`: the oldest file that each keyspace needs; `found`: the files there are.
pub(crate) fn missing_log(dir: &Path, needed: impl Iterator<Item = u64>, found: &[u64]) -> Option<Error> {
    let least = needed.max().filter(|&number| number > 0)?;
    let absent = found.iter().all(|&number| number < least);
    absent.then(|| {
        Error::new(ErrorKind::Corruption, "a WAL file is missing")
            .file(&dir.join(format!("{least:06}.wal")))
            .tier(Tier::Fast)
            .advice("acknowledged writes are lost unless the missing .wal files are put back; nothing was changed")
    })
}

fn replay_logs(
    config: &Config,
    files: &Files,
    versions: &VersionSet,
    wals: &LogFiles,
    numbers: &[u64],
) -> Result<Recovered> {
    let fast = files.tier(Tier::Fast)?;
    let needed: BTreeMap<u32, u64> =
        versions.keyspaces().map(|(id, _, wal_number, _)| (id, wal_number)).collect();
    let least = needed.values().copied().min().unwrap_or(0);
    let numbers: Vec<u64> = numbers.iter().copied().filter(|&number| number >= least).collect();
    if let Some(error) = missing_log(fast.dir(), needed.values().copied(), &numbers) {
        return Err(error);
    }
    let mut recovered = Recovered { last_sequence: versions.last_sequence(), memtables: BTreeMap::new() };
    let base = Some(versions.last_sequence());
    let outcome = replay(&**fast.storage(), fast.dir(), &numbers, base, &mut |record| {
        wals.begins_behind(record.log, record.first_sequence.saturating_sub(1));
        let needs = |keyspace: u32| needed.get(&keyspace).is_some_and(|&needed| record.log >= needed);
        take_record(&mut recovered.memtables, record, config.memtable_bytes, &needs)
    })?;
    wals.remove_passed_over(&outcome.dropped)?;
    // What was read may be in the system's memory only. It must not go once later writes build on it (promise 2).
    for &number in numbers.iter().filter(|number| !outcome.dropped.contains(number)) {
        wals.sync_found(number)?;
    }
    let tables = versions.keyspaces().flat_map(|(_, _, _, version)| version.tables());
    let newest = tables.map(|(_, file)| file.meta.sequence_max).max().unwrap_or(0);
    recovered.last_sequence = outcome.last_sequence.unwrap_or(0).max(newest);
    Ok(recovered)
}

/// Puts the operations of `record` into memtables, those on the keyspaces that it is needed for.
///
/// # Errors
/// `Corruption` if it is no batch.
pub(crate) fn take_record(
    memtables: &mut Memtables,
    record: ReplayRecord<'_>,
    full_bytes: u64,
    needs: &dyn Fn(u32) -> bool,
) -> Result<()> {
    for (sequence, op) in (record.first_sequence..).zip(BatchOps::new(record.batch)?) {
        let op = op?;
        let keyspace = op.keyspace();
        if needs(keyspace) {
            insert(recovered_memtable(memtables, keyspace, record.log, full_bytes), sequence, op);
        }
    }
    Ok(())
}

/// The memtable that takes the next record of `keyspace`: a new one begins with each WAL file once the last is full,
/// so that every memtable holds whole files.
fn recovered_memtable(memtables: &mut Memtables, keyspace: u32, log: u64, full_bytes: u64) -> &MemTable {
    let all = memtables.entry(keyspace).or_default();
    let begin = all.last().is_none_or(|last| last.memory_bytes() >= full_bytes && last.id() != log);
    if begin {
        all.push(Arc::new(MemTable::new(log, log)));
    }
    let last = all.len() - 1;
    &all[last]
}

impl Engine {
    /// Gives up WAL files that hold nothing any keyspace needs, and starts the work that is due.
    fn start(self: Arc<Self>) -> Result<()> {
        {
            let mut versions = self.versions.lock();
            let mut edit = Edit::default();
            if self.raise_log_floor(&versions, &mut edit) {
                versions.log_and_apply(&edit)?;
            }
        }
        self.give_up_absent_copies()?;
        self.release_logs();
        self.refresh_memory();
        self.refresh_pressure();
        self.schedule();
        Ok(())
    }

    /// Gives up the WAL files whose records tables hold.
    pub(crate) fn release_logs(&self) {
        // Under the leader's lock, and with everything logged also inserted: an empty memtable then holds no file back.
        let log = self.log.lock();
        self.publisher.wait_visible(log.last_sequence);
        let held = |one: &Arc<KeyspaceState>| {
            let view = one.peek();
            (!view.mem.is_empty() || !view.imms.is_empty()).then(|| view.wal_number_min())
        };
        let least = self.keyspaces.load().iter().filter_map(held).min().unwrap_or(u64::MAX).min(log.number());
        // Never what the manifest still asks for: recovery would miss it.
        let recorded = self.versions.lock().wal_number_min().unwrap_or(0);
        let least = least.min(recorded);
        self.closed_logs.lock().retain(|writer| writer.number() >= least);
        // A file that cannot be removed is tried again at the next release.
        let _tried_again_later = self.wals.release(least);
        self.account_logs();
    }

    /// Tells the space accounts what the WAL takes.
    pub(crate) fn account_logs(&self) {
        self.space.file_added(Tier::Fast, "*.wal", self.wals.bytes());
    }
}
