//! The iterator users hold: a pinned view, its sources, and the merge over them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use kelvin_base::{KeyRange, Result, Sequence, Tier};
use kelvin_table::{Fragments, ScanOptions};

use crate::db::Keyspace;
use crate::db::engine::Engine;
use crate::db::scanned::Scanned;
use crate::iter::{DbIter, LevelIter, Sight, Source};
use crate::options::{Config, SHORT_SCAN_RECORDS_MAX};
use crate::snapshot::Pin;
use crate::version::{Level, is_hot_run};
use crate::view::View;

/// Less would cost more reads than it saves memory.
const READAHEAD_BYTES_MIN: usize = 32 << 10;

/// What an iterator may see and how it reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IterOptions {
    /// First key to see; `None` for no bound.
    pub lower: Option<Bytes>,
    /// First key not to see any more; `None` for no bound.
    pub upper: Option<Bytes>,
    /// About how many records will be read, forward, from where the iterator is first put, if that is known: what they
    /// take on disk is then read at once and not block by block.
    pub expected_records: Option<u64>,
    /// Leave the block cache as it is: for scans of much that will not be read again.
    pub bypass_cache: bool,
}

/// A cursor over a keyspace as of one moment. It keeps what it reads on disk until it is dropped.
pub struct DbIterator {
    iter: DbIter<Source>,
    /// Pins the tables and memtables, and with them the versions this moment needs.
    _view: Arc<View>,
    _pin: Pin,
    keyspace: Keyspace,
    scanned: Scanned,
}

impl DbIterator {
    pub(crate) fn new(keyspace: Keyspace, pin: Pin, options: IterOptions) -> Result<Self> {
        keyspace.check_alive()?;
        // The pin is older than the view, so no compaction that the view shows has dropped what the pin needs.
        let view = keyspace.state.view();
        let engine = &keyspace.engine;
        engine.counters.iterators.add(1);
        let open = engine.counters.iterators_open.load(Ordering::Relaxed);
        let ahead = Ahead::new(&engine.config, &view, open, &options);
        let scanned = Scanned::new(scan_accesses(engine, &options));
        let sight = Sight {
            at: pin.at(),
            now_ms: engine.env.clock.unix_millis(),
            lower: options.lower,
            upper: options.upper,
        };
        let iter = DbIter::new(sources(&view, &ahead, &sight), tombstones(&view)?, sight);
        engine.counters.iterators_open.fetch_add(1, Ordering::Relaxed);
        Ok(Self { iter, _view: view, _pin: pin, keyspace, scanned })
    }

    /// Tells the tracker of what was read since the iterator was last put somewhere.
    fn tell_scanned(&mut self) {
        self.scanned.tell(&self.keyspace.engine.hotness.of_keyspace(self.keyspace.id()));
    }

    fn put(&mut self, there: impl FnOnce(&mut DbIter<Source>) -> Result<()>) -> Result<()> {
        self.tell_scanned();
        self.moved(there)
    }

    fn moved(&mut self, there: impl FnOnce(&mut DbIter<Source>) -> Result<()>) -> Result<()> {
        there(&mut self.iter)?;
        if self.scanned.is_open() && self.iter.valid() {
            self.scanned.note(self.iter.key(), self.iter.value().len());
        }
        Ok(())
    }

    /// Moves to the first pair.
    ///
    /// # Errors
    /// If a place that could hold a pair cannot be read; the iterator is then invalid for good.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.put(DbIter::seek_to_first)
    }

    /// Moves to the last pair.
    ///
    /// # Errors
    /// As [`Self::seek_to_first`].
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.put(DbIter::seek_to_last)
    }

    /// Moves to the first pair at or behind `key`.
    ///
    /// # Errors
    /// As [`Self::seek_to_first`].
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.put(|iter| iter.seek(key))
    }

    /// Moves to the last pair at or before `key`.
    ///
    /// # Errors
    /// As [`Self::seek_to_first`].
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.put(|iter| iter.seek_for_prev(key))
    }

    /// Moves on. The iterator must be valid.
    ///
    /// # Errors
    /// As [`Self::seek_to_first`].
    #[expect(clippy::should_implement_trait, reason = "a cursor: next moves it, key and value read it")]
    pub fn next(&mut self) -> Result<()> {
        self.moved(DbIter::next)
    }

    /// Moves back. The iterator must be valid.
    ///
    /// # Errors
    /// As [`Self::seek_to_first`].
    pub fn prev(&mut self) -> Result<()> {
        self.moved(DbIter::prev)
    }

    /// True if the iterator stands on a pair.
    #[must_use]
    pub fn valid(&self) -> bool {
        self.iter.valid()
    }

    /// The key under the iterator; empty if it is not valid.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.iter.key()
    }

    /// The value under the iterator; empty if it is not valid.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        self.iter.value()
    }

    /// When the record under the iterator expires, Unix milliseconds.
    #[must_use]
    pub fn expiry_ms(&self) -> Option<u64> {
        self.iter.expiry_ms()
    }

    /// Sequence number of the record under the iterator.
    #[must_use]
    pub fn sequence(&self) -> Sequence {
        self.iter.sequence()
    }
}

impl Drop for DbIterator {
    fn drop(&mut self) {
        self.tell_scanned();
        let counters = &self.keyspace.engine.counters;
        let mut has_read_slow = false;
        for (tier, io) in self.iter.sources().flat_map(|source| source.take_io().into_iter().enumerate()) {
            counters.scan_ios[tier].add(io.reads);
            counters.scan_bytes[tier].add(io.bytes);
            counters.reads.cache_hits.add(io.cache_hits);
            has_read_slow |= tier == Tier::Slow.index() && io.reads > 0;
        }
        counters.iterators_slow.add(u64::from(has_read_slow));
        counters.iterators_open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many records of a scan count as accessed; 0 if it is known to be long.
fn scan_accesses(engine: &Engine, options: &IterOptions) -> u32 {
    let is_long = options.expected_records.is_some_and(|wanted| wanted > u64::from(SHORT_SCAN_RECORDS_MAX));
    let is_wanted = engine.hotness.is_on() && !options.bypass_cache && !is_long;
    if is_wanted { engine.config.hot_parts.scan_accesses } else { 0 }
}

/// How the sources of a new iterator read: each gets the part of all that it holds of the data.
struct Ahead {
    /// What they may read ahead together: all open iterators share one part of memory.
    budget_bytes: u64,
    readahead_bytes_max: usize,
    expected_records: u64,
    fill_cache: bool,
    /// Bytes of all tables, and entries; at least 1.
    bytes: u64,
    entries: u64,
}

impl Ahead {
    fn new(config: &Config, view: &View, open: usize, options: &IterOptions) -> Self {
        let levels = &view.version.levels;
        Self {
            // A source holds what it read ahead, and for a moment the bytes it is made of.
            budget_bytes: config.scans_bytes / (2 * (open as u64 + 1)),
            readahead_bytes_max: config.scan_readahead_bytes,
            expected_records: options.expected_records.unwrap_or(0),
            fill_cache: !options.bypass_cache,
            bytes: levels.iter().map(Level::size_bytes).sum::<u64>().max(1),
            entries: levels.iter().map(Level::entries).sum::<u64>().max(1),
        }
    }

    /// How a source reads that has `bytes` of the tables.
    fn scan(&self, bytes: u64) -> ScanOptions {
        let part = |of: u64, all: u64| {
            let part = u128::from(of) * u128::from(bytes) / u128::from(all);
            usize::try_from(part).unwrap_or(usize::MAX)
        };
        let least = self.readahead_bytes_max.min(READAHEAD_BYTES_MIN);
        ScanOptions {
            readahead_bytes: part(self.budget_bytes, self.bytes).clamp(least, self.readahead_bytes_max),
            sequential: false,
            // Records of the mean size, spread over the sources as the data are.
            expected_bytes: part(self.expected_records, self.entries),
            fill_cache: self.fill_cache,
        }
    }
}

/// Memtables, L0 tables and deeper levels that can hold keys inside the bounds, newest first. Runs of the hot level are left
/// out: all their entries are copies of what a deeper level has, which is read anyway, or of what something above hides.
fn sources(view: &View, ahead: &Ahead, sight: &Sight) -> Vec<Source> {
    let (lower, upper) = (sight.lower.as_deref(), sight.upper.as_deref());
    let mut sources: Vec<Source> =
        view.memtables().filter(|mem| !mem.is_empty()).map(|mem| Source::Mem(mem.iter())).collect();
    for file in view.version.overlapping(0, KeyRange::half_open(lower, upper)) {
        let scan = ahead.scan(file.meta.size_bytes);
        sources.push(Source::Level(LevelIter::of_files(vec![Arc::clone(file)], scan)));
    }
    let sorted = view.version.levels.iter().enumerate().skip(1);
    for (index, level) in sorted.filter(|(index, _)| !is_hot_run(*index)) {
        if view.version.meets(index, lower, upper) {
            let scan = ahead.scan(level.size_bytes());
            let level = LevelIter::of_level(Arc::clone(&view.version), index, scan);
            sources.push(Source::Level(level.bounded(sight.lower.clone(), sight.upper.clone())));
        }
    }
    sources
}

fn tombstones(view: &View) -> Result<Vec<Arc<Fragments>>> {
    let mut all: Vec<Arc<Fragments>> = view.memtables().flat_map(|mem| mem.tombstones()).collect();
    if view.version.has_range_tombstones() {
        all.push(Arc::clone(view.version.tombstones()?));
    }
    Ok(all)
}
