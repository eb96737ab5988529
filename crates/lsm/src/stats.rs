//! What the store counts while it runs, and the snapshot of it that users see.
//!
//! Counters are relaxed atomics of this store alone (no process-wide registry). [`Stats`] is a plain struct; its
//! fields are listed once, in [`Stats::rows`], for the command line, JSON and metrics.

mod rows;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use kelvin_base::{Lane, Tier, process};

use crate::compaction::job::Routed;
use crate::db::engine::Engine;
use crate::hotness::HotnessStats;
use crate::memory::MemoryPart;
use crate::promotion::Insertion;
use crate::tiers::{IoCount, Purpose, TierHandle};
use crate::version::{LEVELS, Version, is_hot_run};
use crate::view::KeyspaceState;
use crate::write::stall::Reason;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `amount`.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// The sum so far.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Point lookups.
#[derive(Debug, Default)]
pub struct ReadCounters {
    /// Lookups answered by a memtable.
    pub memtable: Counter,
    /// Lookups answered by a promotion cache.
    pub promotion: Counter,
    levels: [Counter; LEVELS],
    /// Lookups of keys without any entry.
    pub absent: Counter,
    /// Lookups that read the slow tier.
    pub slow_touched: Counter,
    /// Device reads by tier.
    pub ios: [Counter; 2],
    /// Bytes read by tier.
    pub bytes: [Counter; 2],
    /// Blocks served from memory.
    pub cache_hits: Counter,
}

impl ReadCounters {
    /// Lookups answered by a table of `level`.
    #[must_use]
    pub fn level(&self, level: usize) -> &Counter {
        &self.levels[level.min(LEVELS - 1)]
    }
}

/// Background work.
#[derive(Debug, Default)]
pub struct WorkCounters {
    /// Flushes done.
    pub flushes: Counter,
    /// Bytes of tables written by flushes.
    pub flushed_bytes: Counter,
    /// Compactions done, trivial moves not counted.
    pub compactions: Counter,
    /// Tables moved to another level without being read.
    pub trivial_moves: Counter,
    /// Bytes read by compactions, by tier.
    pub compaction_read_bytes: [Counter; 2],
    /// Bytes written by compactions, by tier.
    pub compaction_written_bytes: [Counter; 2],
    /// Compactions across the boundary of the tiers that could keep what is hot.
    pub boundary: BoundaryCounters,
    /// Background jobs that failed.
    pub failures: Counter,
}

/// Compactions across the boundary of the tiers that could keep what is hot.
#[derive(Debug, Default)]
pub struct BoundaryCounters {
    /// How many.
    pub compactions: Counter,
    /// Bytes of hot records that they left on the fast tier.
    pub retained_bytes: Counter,
    /// Bytes of entries that are not hot and that they left there above what may be a copy of an older version.
    pub guarded_bytes: Counter,
    /// Bytes of hot records of which they left a copy to the promotion cache.
    pub lifted_bytes: Counter,
    /// Bytes of records of the promotion cache that they wrote to the fast tier.
    pub promoted_bytes: Counter,
    /// Bytes of records of the promotion cache that became runs of the hot level.
    pub flushed_bytes: Counter,
    /// Bytes of copies and of records of the promotion cache that were found no longer hot, or no hotter than what would have given way.
    pub not_hot_bytes: Counter,
    /// Tables of the hot level given up because their files were damaged or gone.
    pub damaged_tables: Counter,
}

impl BoundaryCounters {
    /// One more was done.
    pub fn add(&self, routed: &Routed) {
        self.compactions.add(1);
        self.retained_bytes.add(routed.retained_bytes);
        self.guarded_bytes.add(routed.guarded_bytes);
        self.lifted_bytes.add(routed.lifted_bytes);
        self.promoted_bytes.add(routed.promoted_bytes);
        self.not_hot_bytes.add(routed.not_hot_bytes);
    }

    fn get(&self) -> BoundaryStats {
        BoundaryStats {
            compactions: self.compactions.get(),
            retained_bytes: self.retained_bytes.get(),
            guarded_bytes: self.guarded_bytes.get(),
            lifted_bytes: self.lifted_bytes.get(),
            promoted_bytes: self.promoted_bytes.get(),
            flushed_bytes: self.flushed_bytes.get(),
            not_hot_bytes: self.not_hot_bytes.get(),
            damaged_tables: self.damaged_tables.get(),
        }
    }
}

/// See [`BoundaryCounters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BoundaryStats {
    /// How many compactions across the boundary of the tiers could keep what is hot.
    pub compactions: u64,
    /// Bytes of hot records that they left on the fast tier.
    pub retained_bytes: u64,
    /// Bytes of entries that are not hot and that they left there, since the hot level may hold a copy of an older version.
    pub guarded_bytes: u64,
    /// Bytes of hot records that nobody had written anew for long, which went on and left a copy to the promotion cache.
    pub lifted_bytes: u64,
    /// Bytes of records read from the slow tier that they wrote to the fast one.
    pub promoted_bytes: u64,
    /// Bytes of records read from the slow tier that became runs of the hot level.
    pub flushed_bytes: u64,
    /// Bytes of copies, and of records that could have been promoted, that were found no longer hot, or no hotter than what would have given way.
    pub not_hot_bytes: u64,
    /// Tables of copies given up because their files were damaged or gone. Nothing was lost with them.
    pub damaged_tables: u64,
}

/// Writes.
#[derive(Debug, Default)]
pub struct WriteCounters {
    /// Operations committed.
    pub operations: Counter,
    /// Groups committed (one WAL write each).
    pub groups: Counter,
    /// Bytes of batches committed.
    pub bytes: Counter,
    /// WAL syncs.
    pub syncs: Counter,
    /// Microseconds writers were delayed, by reason.
    pub delayed_us: [Counter; Reason::ALL.len()],
    /// Microseconds writers were stopped, by reason.
    pub stopped_us: [Counter; Reason::ALL.len()],
    /// Transactions that met a conflict.
    pub conflicts: Counter,
}

/// What became of records on their way through promotion caches.
#[derive(Debug, Default)]
pub struct PromotionCounters {
    /// Reads answered by the slow tier whose keys were hot before.
    pub known: Counter,
    /// Records inserted.
    pub inserted: Counter,
    /// Insertions given up because a lock was busy.
    pub abandoned_lock: Counter,
    /// Insertions given up because a compaction changes the key's tables on the slow tier, or just has.
    pub abandoned_compacted: Counter,
    /// Insertions refused for want of memory.
    pub refused_full: Counter,
    /// Records taken out by compactions that write the slow tier.
    pub claimed: Counter,
    /// Promotions that found no room, or no free run of the hot level, and are tried again.
    pub postponed: Counter,
}

impl PromotionCounters {
    /// Counts an insertion.
    pub fn count(&self, insertion: Insertion) {
        match insertion {
            Insertion::Present => {}
            Insertion::Inserted => self.inserted.add(1),
            Insertion::AbandonedLock => self.abandoned_lock.add(1),
            Insertion::AbandonedCompacted => self.abandoned_compacted.add(1),
            Insertion::RefusedFull => self.refused_full.add(1),
        }
    }
}

/// Everything counted.
#[derive(Debug, Default)]
pub struct Counters {
    /// Point lookups.
    pub reads: ReadCounters,
    /// Promotion caches.
    pub promotion: PromotionCounters,
    /// Iterators opened.
    pub iterators: Counter,
    /// Of these, that read the slow tier; counted when they are dropped.
    pub iterators_slow: Counter,
    /// Iterators that are open now.
    pub iterators_open: AtomicUsize,
    /// Device reads of iterators, by tier.
    pub scan_ios: [Counter; 2],
    /// Bytes read by iterators, by tier.
    pub scan_bytes: [Counter; 2],
    /// Writes.
    pub writes: WriteCounters,
    /// Background work.
    pub work: WorkCounters,
}

/// What [`crate::db::Db::stats`] answers. Bytes, microseconds and counts since the store was opened, unless said
/// otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Point lookups.
    pub gets: u64,
    /// Of these, answered by a memtable.
    pub gets_memtable: u64,
    /// Of these, answered by a promotion cache.
    pub gets_promotion: u64,
    /// Of these, answered by each level.
    pub gets_level: Vec<u64>,
    /// Of these, answered by the hot level.
    pub gets_hot: u64,
    /// Of these, without any entry.
    pub gets_absent: u64,
    /// Of these, answered without reading the slow tier.
    pub gets_fast: u64,
    /// Of these, that read the slow tier.
    pub gets_slow: u64,
    /// Device reads of lookups and iterators, by tier (fast, slow).
    pub read_ios: [u64; 2],
    /// Bytes of these.
    pub read_bytes: [u64; 2],
    /// Blocks served from the block cache.
    pub cache_hits: u64,
    /// Blocks not in the block cache.
    pub cache_misses: u64,
    /// Promotion caches: `inserted`, `abandoned_lock`, `abandoned_compacted`, `refused_full`, `claimed`, promotions `postponed` for want of room, and the `records` they
    /// hold now.
    pub promotion: Vec<(&'static str, u64)>,
    /// Iterators opened.
    pub iterators: u64,
    /// Of these, that read the slow tier; counted when they are dropped.
    pub iterators_slow: u64,
    /// Operations committed.
    pub writes: u64,
    /// Groups they were committed in.
    pub write_groups: u64,
    /// Bytes of their batches.
    pub write_bytes: u64,
    /// WAL syncs.
    pub wal_syncs: u64,
    /// Transactions that met a conflict.
    pub conflicts: u64,
    /// Microseconds writers were delayed, by reason.
    pub delayed_us: Vec<(&'static str, u64)>,
    /// Microseconds writers were stopped, by reason.
    pub stopped_us: Vec<(&'static str, u64)>,
    /// What slows or stops writers now: "none", "delayed: REASON" or "stopped: REASON".
    pub pressure: String,
    /// Flushes done.
    pub flushes: u64,
    /// Bytes they wrote.
    pub flushed_bytes: u64,
    /// Compactions done.
    pub compactions: u64,
    /// Tables moved without being read.
    pub trivial_moves: u64,
    /// Bytes read by compactions, by tier.
    pub compaction_read_bytes: [u64; 2],
    /// Bytes written by compactions, by tier.
    pub compaction_written_bytes: [u64; 2],
    /// Compactions across the boundary of the tiers.
    pub boundary: BoundaryStats,
    /// Background jobs that failed.
    pub background_failures: u64,
    /// The error that stops background work or writes, if one does.
    pub background_error: Option<String>,
    /// Bytes all files take now, by tier.
    pub used_bytes: [u64; 2],
    /// Set aside for work under way, by tier; what the tracker always keeps free for its next step is not counted.
    pub reserved_bytes: [u64; 2],
    /// The most they took, by tier.
    pub used_bytes_max: [u64; 2],
    /// The capacities, by tier; `None` for as much as the disk has.
    pub capacity_bytes: [Option<u64>; 2],
    /// Bytes read from and written to each tier's device, all purposes.
    pub device_read_bytes: [u64; 2],
    /// See `device_read_bytes`.
    pub device_written_bytes: [u64; 2],
    /// Device reads, all purposes.
    pub device_reads: [u64; 2],
    /// What both tiers' devices read and wrote, by [`Purpose`]: calls and bytes.
    pub io: Vec<(Purpose, [IoCount; 2])>,
    /// Processor time of background jobs that are over, microseconds, by lane of the executor; zero for an executor that does
    /// not count it. The tracker's own figure has the same work as lane `tracking`.
    pub background_cpu_us: Vec<(&'static str, u64)>,
    /// Memory by part, bytes.
    pub memory: Vec<(&'static str, u64)>,
    /// The limit on memory, bytes.
    pub memory_limit_bytes: u64,
    /// The most that all parts had together, bytes.
    pub memory_used_bytes_max: u64,
    /// Memory of the process that is resident now, bytes.
    pub resident_bytes: u64,
    /// The most that was resident since the process began, bytes.
    pub resident_bytes_max: u64,
    /// Live snapshots.
    pub snapshots: u64,
    /// Last visible sequence number.
    pub sequence: u64,
    /// Entries in tables and memtables, deletions and older versions included.
    pub entries: u64,
    /// WAL bytes on disk now.
    pub wal_bytes: u64,
    /// The hot level now, over all keyspaces.
    pub hot_level: HotLevelStats,
    /// Events that the listener was told of.
    pub events: u64,
    /// Events that it was not told of, as it was busy for too long or has panicked.
    pub events_lost: u64,
    /// The hot-key tracker; `None` if there is none.
    pub hotness: Option<HotnessStats>,
}

impl ReadCounters {
    /// Lookups answered by each level of the tree down to `deepest`, and by the runs of the hot level together.
    fn by_level(&self, deepest: usize) -> (Vec<u64>, u64) {
        let (hot, tree): (Vec<usize>, Vec<usize>) = (0..=deepest).partition(|level| is_hot_run(*level));
        let gets = |level: usize| self.level(level).get();
        (tree.into_iter().map(gets).collect(), hot.into_iter().map(gets).sum())
    }
}

impl Engine {
    /// Processor time of the background jobs that are over, by lane.
    fn background_cpu_us(&self) -> Vec<(&'static str, u64)> {
        let spent = |lane: Lane| u64::try_from(self.env.executor.cpu_time(lane).as_micros());
        Lane::ALL.map(|lane| (lane.name(), spent(lane).unwrap_or(u64::MAX))).into()
    }

    /// What was counted, and the sizes of now.
    pub(crate) fn stats(&self) -> Stats {
        let Counters { reads, writes, work, .. } = &self.counters;
        let versions = self.versions_now();
        let deepest = versions.iter().filter_map(|version| version.deepest()).max().unwrap_or(0);
        let (gets_level, gets_hot) = reads.by_level(deepest);
        let in_tree = gets_level.iter().sum::<u64>() + gets_hot;
        let gets = reads.memtable.get() + reads.promotion.get() + reads.absent.get() + in_tree;
        let both = |of: &dyn Fn(Tier) -> u64| Tier::ALL.map(of);
        let (events, events_lost) = self.events.counts();
        let with_scans = |gets: &[Counter; 2], scans: &[Counter; 2]| {
            both(&|tier| gets[tier.index()].get() + scans[tier.index()].get())
        };
        let io = Tier::ALL.map(|tier| self.files.tier(tier).map(TierHandle::io_stats).unwrap_or_default());
        let device = |of: fn(IoCount) -> u64| io.map(|io| of(io.total()));
        self.refresh_memory();
        Stats {
            gets,
            gets_memtable: reads.memtable.get(),
            gets_promotion: reads.promotion.get(),
            gets_level,
            gets_hot,
            gets_absent: reads.absent.get(),
            gets_fast: gets.saturating_sub(reads.slow_touched.get()),
            gets_slow: reads.slow_touched.get(),
            read_ios: with_scans(&reads.ios, &self.counters.scan_ios),
            read_bytes: with_scans(&reads.bytes, &self.counters.scan_bytes),
            cache_hits: reads.cache_hits.get(),
            cache_misses: reads.ios.iter().chain(&self.counters.scan_ios).map(Counter::get).sum(),
            promotion: self.promotion_stats(),
            iterators: self.counters.iterators.get(),
            iterators_slow: self.counters.iterators_slow.get(),
            writes: writes.operations.get(),
            write_groups: writes.groups.get(),
            write_bytes: writes.bytes.get(),
            wal_syncs: writes.syncs.get(),
            conflicts: writes.conflicts.get(),
            delayed_us: by_reason(&writes.delayed_us),
            stopped_us: by_reason(&writes.stopped_us),
            pressure: self.pressure_now().to_string(),
            flushes: work.flushes.get(),
            flushed_bytes: work.flushed_bytes.get(),
            compactions: work.compactions.get(),
            trivial_moves: work.trivial_moves.get(),
            compaction_read_bytes: work.compaction_read_bytes.each_ref().map(Counter::get),
            compaction_written_bytes: work.compaction_written_bytes.each_ref().map(Counter::get),
            boundary: work.boundary.get(),
            background_failures: work.failures.get(),
            background_error: self.told_error(),
            used_bytes: both(&|tier| self.space.used(tier)),
            reserved_bytes: both(&|tier| self.reserved_bytes(tier)),
            used_bytes_max: both(&|tier| self.space.stats(tier).used_max_bytes),
            capacity_bytes: Tier::ALL.map(|tier| self.space.capacity(tier)),
            device_read_bytes: device(|count| count.read_bytes),
            device_written_bytes: device(|count| count.written_bytes),
            device_reads: device(|count| count.reads),
            io: Purpose::ALL.map(|purpose| (purpose, io.map(|io| io.of(purpose)))).into(),
            background_cpu_us: self.background_cpu_us(),
            memory: MemoryPart::ALL.iter().map(|&part| (part.name(), self.files.memory.used(part))).collect(),
            memory_limit_bytes: self.files.memory.limit_bytes(),
            memory_used_bytes_max: self.files.memory.total_max(),
            resident_bytes: process::resident_bytes(),
            resident_bytes_max: process::resident_bytes_max(),
            snapshots: self.snapshots.count() as u64,
            sequence: self.visible(),
            entries: self.entries(&versions),
            wal_bytes: self.wals.bytes(),
            hotness: self.hotness.stats(),
            hot_level: hot_level(&versions),
            events,
            events_lost,
        }
    }
}

/// What the hot level holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HotLevelStats {
    /// Runs that hold tables.
    pub runs: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Records in them: copies.
    pub records: u64,
}

fn hot_level(versions: &[Arc<Version>]) -> HotLevelStats {
    let mut sum = HotLevelStats::default();
    for level in versions.iter().flat_map(|version| version.levels.iter().enumerate()) {
        if is_hot_run(level.0) {
            sum.runs += u64::from(!level.1.tables.is_empty());
            sum.bytes += level.1.size_bytes();
            sum.records += level.1.entries();
        }
    }
    sum
}

impl Engine {
    fn reserved_bytes(&self, tier: Tier) -> u64 {
        let of_tracker = if tier == Tier::Fast { self.hotness.ahead_bytes() } else { 0 };
        self.space.stats(tier).reserved_bytes.saturating_sub(of_tracker)
    }

    fn told_error(&self) -> Option<String> {
        let error = self.health.fatal().or_else(|| self.health.background_error());
        error.map(|error| error.to_string())
    }

    /// Entries in the tables of `versions` and in memtables.
    fn entries(&self, versions: &[Arc<Version>]) -> u64 {
        let in_tables =
            |version: &Arc<Version>| version.tables().map(|(_, file)| file.meta.entries).sum::<u64>();
        let in_memory =
            |one: &Arc<KeyspaceState>| one.peek().memtables().map(|mem| mem.entries()).sum::<u64>();
        versions.iter().map(in_tables).sum::<u64>() + self.keyspaces.load().iter().map(in_memory).sum::<u64>()
    }

    fn promotion_stats(&self) -> Vec<(&'static str, u64)> {
        let counters = &self.counters.promotion;
        let records = |one: &Arc<KeyspaceState>| one.promotion.records() as u64;
        vec![
            ("inserted", counters.inserted.get()),
            ("abandoned_lock", counters.abandoned_lock.get()),
            ("abandoned_compacted", counters.abandoned_compacted.get()),
            ("refused_full", counters.refused_full.get()),
            ("claimed", counters.claimed.get()),
            ("postponed", counters.postponed.get()),
            ("records", self.keyspaces.load().iter().map(records).sum()),
        ]
    }
}

fn by_reason(counters: &[Counter; Reason::ALL.len()]) -> Vec<(&'static str, u64)> {
    Reason::ALL.iter().zip(counters).map(|(reason, counter)| (reason.name(), counter.get())).collect()
}

impl Stats {
    /// Fast-tier hit rate of lookups, 0 to 1; `None` before the first.
    #[must_use]
    pub fn fast_hit_rate(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        (self.gets > 0).then(|| self.gets_fast as f64 / self.gets as f64)
    }
}
