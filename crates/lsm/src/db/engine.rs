//! The parts of an open store, and the life of the whole: keyspaces made and dropped, waiting, shutting down.
//!
//! Locks, in the order in which they may be taken: `log` (write leader) → `closed_logs` → `versions` (installs) →
//! `work` (schedule) → a keyspace's change lock, or the locks of its promotion cache. Readers take none of them but
//! the last, and those only if they are free.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use kelvin_base::sync::Mutex;
use kelvin_base::{Error, Events, HotTracker, KeyRange, Result, Sequence, Signal};
use kelvin_storage::FileLock;

use crate::compaction::pick::PickConfig;
use crate::db::DEFAULT_KEYSPACE;
use crate::db::keyspaces::Keyspaces;
use crate::files::Files;
use crate::health::Health;
use crate::hotness::Tracking;
use crate::hotness::means::Means;
use crate::memtable::MemTable;
use crate::options::{Config, Env};
use crate::promotion::{PromotionCache, Room, Skew};
use crate::schedule::{Kind, Work};
use crate::snapshot::{Pin, Snapshots};
use crate::space::Space;
use crate::stats::Counters;
use crate::version::{Edit, FileNumbers, VersionSet};
use crate::view::{KeyspaceState, View};
use crate::wal::{LogFiles, WalWriter};
use crate::write::group::Queue;
use crate::write::log::Log;
use crate::write::publish::Publisher;
use crate::write::stall::Gauge;

/// An open store.
pub struct Engine {
    /// Every figure it runs with.
    pub config: Config,
    /// Time, threads and devices.
    pub env: Env,
    /// Tables on both tiers: paths, opening, deletion, the block cache.
    pub files: Arc<Files>,
    /// Capacities and use of both tiers.
    pub space: Space,
    /// WAL files on disk.
    pub wals: LogFiles,
    /// The figures compactions are picked with.
    pub pick_config: PickConfig,
    /// The part of their fast input that boundary compactions moved on lately, in thousandths.
    pub means: Means,
    /// A promotion by flush waits for room on the fast tier.
    pub promotion_waits: AtomicBool,
    /// Whether some records are hotter than others.
    pub skew: Mutex<Skew>,
    /// What holds writers back now.
    pub pressure: Gauge,
    /// Microseconds of delay that writers owe.
    pub delay_owed_us: AtomicU64,
    /// What was counted.
    pub counters: Counters,
    /// Which keys are hot, whether that is kept, where, and what it takes.
    pub hotness: Tracking,
    /// Memory for promotion caches; `None` if nothing is promoted.
    pub promotion_room: Option<Arc<Room>>,
    /// Live snapshots.
    pub snapshots: Arc<Snapshots>,
    /// What is visible.
    pub publisher: Publisher,
    /// Waiting writers.
    pub queue: Queue,
    /// The write leader's.
    pub log: Mutex<Log>,
    /// WAL files that take no more records and are not known to be durable, oldest first.
    pub closed_logs: Mutex<Vec<WalWriter>>,
    /// Open keyspaces.
    pub keyspaces: ArcSwap<Keyspaces>,
    /// The manifest and the versions it says.
    pub versions: Mutex<VersionSet>,
    /// Background work queued and running.
    pub work: Mutex<Work>,
    /// Raised whenever background work has changed something.
    pub signal: Arc<Signal>,
    /// What is broken.
    pub health: Health,
    /// Who is told what happens.
    pub events: Events,
    /// Next number of a file.
    pub file_numbers: Arc<FileNumbers>,
    /// The next number of a keyspace.
    pub keyspace_numbers: AtomicU32,
    /// True once shutting down: jobs end early and queue nothing.
    pub closing: Arc<AtomicBool>,
    /// Held as long as the store is open.
    pub locks: Mutex<Vec<Box<dyn FileLock>>>,
    /// Itself, for jobs.
    pub me: std::sync::Weak<Engine>,
}

impl Engine {
    /// A number no file of this store has.
    pub fn new_file_number(&self) -> u64 {
        self.file_numbers.next()
    }

    /// Pins the latest visible moment.
    pub fn pin(&self) -> Pin {
        self.snapshots.take(|| self.publisher.visible())
    }

    /// True once the store is being closed.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// The keyspace `name`, made if there is none.
    ///
    /// # Errors
    /// See [`crate::db::Db::keyspace`].
    pub fn keyspace(&self, name: &str) -> Result<Arc<KeyspaceState>> {
        if let Some(found) = self.keyspaces.load().by_name(name) {
            return Ok(Arc::clone(found));
        }
        if name.is_empty() || name.len() > 255 {
            return Err(Error::invalid("a keyspace's name has a length it cannot have")
                .expected("1 to 255 bytes", format!("{} bytes", name.len())));
        }
        self.health.check_writable()?;
        // The log lock keeps rotations, and other makers, out.
        let log = self.log.lock();
        if let Some(found) = self.keyspaces.load().by_name(name) {
            return Ok(Arc::clone(found));
        }
        let id = self.keyspace_numbers.fetch_add(1, Ordering::Relaxed);
        let mut edit = Edit::default();
        edit.create_keyspace(id, name, log.number());
        let version = self.install_new_keyspace(&edit, id)?;
        let mem = Arc::new(MemTable::new(log.number(), log.number()));
        let view = View { mem, imms: Vec::new(), version };
        let promotion = PromotionCache::new(self.promotion_room.as_ref());
        let state = Arc::new(KeyspaceState::new(id, name.to_string(), view, promotion));
        self.keyspaces.store(Arc::new(self.keyspaces.load().with(Arc::clone(&state))));
        // Several memtables that take writes may come to more than one: the cache makes room before they do.
        self.refresh_memory();
        Ok(state)
    }

    /// Drops the keyspace `name`.
    ///
    /// # Errors
    /// See [`crate::db::Db::drop_keyspace`].
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        if name == DEFAULT_KEYSPACE {
            return Err(Error::invalid("the keyspace \"default\" cannot be dropped")
                .advice("delete its records with delete_range instead"));
        }
        self.health.check_writable()?;
        let log = self.log.lock();
        self.publisher.wait_visible(log.last_sequence);
        let Some(state) = self.keyspaces.load().by_name(name).map(Arc::clone) else {
            return Err(Error::invalid(format!("there is no keyspace {name:?}")));
        };
        let mut edit = Edit::default();
        edit.drop_keyspace(state.id);
        self.install_dropped_keyspace(&edit, &state)?;
        self.keyspaces.store(Arc::new(self.keyspaces.load().without(state.id)));
        drop(log);
        self.hotness.of_keyspace(state.id).forget(KeyRange::ALL);
        self.release_logs();
        self.refresh_memory();
        self.refresh_pressure();
        self.try_all_again();
        Ok(())
    }

    /// Seals and flushes what `keyspace` holds in memory.
    ///
    /// # Errors
    /// The error that keeps it from being written.
    pub fn flush_keyspace(&self, keyspace: &KeyspaceState) -> Result<()> {
        self.health.check_writable()?;
        self.seal(keyspace)?;
        let target = keyspace.peek().imms.first().map(|imm| imm.wal_number());
        let Some(target) = target else { return Ok(()) };
        // Who asks does not wait for the next try.
        self.health.note_background(Kind::Flush, None);
        self.try_again(Kind::Flush);
        self.signal.wait_for(&*self.env.executor, || {
            self.retry_waiting_flush();
            let flushed = keyspace.peek().imms.iter().all(|imm| imm.wal_number() > target);
            if flushed || keyspace.is_dropped() {
                return Some(Ok(()));
            }
            self.health.fatal().or_else(|| self.health.background_error_of(&[Kind::Flush])).map(Err)
        })
    }

    /// Waits until no flush or compaction is due or running.
    ///
    /// # Errors
    /// The background error that keeps work from being done.
    pub fn wait_idle(&self) -> Result<()> {
        self.schedule();
        self.signal.wait_for(&*self.env.executor, || {
            if let Some(error) = self.health.fatal() {
                return Some(Err(error));
            }
            self.retry_waiting_flush();
            let idle = self.is_idle();
            if idle { Some(self.health.background_error().map_or(Ok(()), Err)) } else { None }
        })
    }

    /// Stops background work and hands what is buffered to the operating system. The second call does nothing.
    ///
    /// # Errors
    /// What kept the buffer from being handed over.
    pub fn shut_down(&self) -> Result<()> {
        if self.closing.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.files.leaving.close();
        self.signal.raise();
        self.signal.wait_for(&*self.env.executor, || {
            (self.work.lock().is_quiet() && !self.files.leaving.are_removed()).then_some(())
        });
        self.hotness.close();
        let flushed = self.log.lock().flush_at_close(self);
        self.health.close();
        self.locks.lock().clear();
        self.events.settle();
        flushed
    }

    /// The last visible sequence number.
    pub fn visible(&self) -> Sequence {
        self.publisher.visible()
    }
}
