//! From the unsorted buffer to a run of level 0 (paper §3.2).

use std::sync::atomic::Ordering;

use kelvin_base::{ErrorKind, KEY_BYTES_MAX, Result};

use crate::buffer::Accesses;
use crate::core::{Core, Outputs, Work};
use crate::record::Record;
use crate::version::{Placed, Version};

impl Core {
    /// Sorts `taken`, merges the accesses of each key, and installs them as the newest runs of level 0.
    pub fn flush(&self, work: &mut Work, taken: &[Accesses]) -> Result<()> {
        let mut accesses: Vec<(&[u8], u32)> = taken.iter().flat_map(Accesses::iter).collect();
        accesses.retain(|(key, _)| key.len() <= KEY_BYTES_MAX);
        if accesses.is_empty() {
            return Ok(());
        }
        self.tick(work, &accesses);
        // Stable: of one key, the access noted later stays behind.
        accesses.sort_by_key(|(key, _)| *key);
        let version = self.version.load_full();
        let (now, epoch, scoring) = (work.now, self.epoch(work), self.options.scoring);
        let knows = |key: &[u8]| version.is_hot(key);
        let mut outputs = Outputs::new(self, &knows);
        for same in accesses.chunk_by(|a, b| a.0 == b.0) {
            let each = same.iter().map(|&(_, value_len)| Record::accessed(value_len, scoring, now, epoch));
            let Some(record) = each.reduce(|older, newer| Record::merge(scoring, &older, &newer)) else {
                continue;
            };
            let key = same[0].0;
            outputs.add(work, key, &record, self.is_hot(&version, now, key, &record))?;
        }
        let runs = outputs.finish()?;
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        let mut next = Version { now, ..Version::clone(&version) };
        next.levels[0].splice(0..0, runs.into_iter().map(Placed::whole));
        drop(version);
        self.install(work, next);
        Ok(())
    }

    /// Moves the clocks on by `accesses`.
    fn tick(&self, work: &mut Work, accesses: &[(&[u8], u32)]) {
        let bytes: u64 = accesses.iter().map(|(key, len)| key.len() as u64 + u64::from(*len)).sum();
        work.accessed_bytes = work.accessed_bytes.saturating_add(bytes);
        work.now.accesses += accesses.len() as u64;
        work.now.slice =
            u32::try_from(work.accessed_bytes / self.options.slice_bytes.max(1)).unwrap_or(u32::MAX);
        self.counters.accesses.fetch_add(accesses.len() as u64, Ordering::Relaxed);
    }

    /// Flushes `taken`, and keeps the levels in shape.
    pub fn tidy(&self, work: &mut Work, taken: &[Accesses]) -> Result<()> {
        self.flush(work, taken)?;
        while self.compact(work)? {}
        Ok(())
    }

    /// Does what is due: flushes what waits (`all`: everything), keeps the levels in shape, forgets, evicts.
    pub fn maintain(&self, work: &mut Work, all: bool) -> Result<()> {
        let forgotten = std::mem::take(&mut *self.forgotten.lock());
        // Accesses of keys to be forgotten wait there too.
        let all = all || !forgotten.is_empty();
        let taken = if all { self.buffer.take_all() } else { self.buffer.take_full() };
        let tidied = self.tidy(work, &taken);
        drop(taken);
        match &tidied {
            Ok(()) => forgotten.iter().try_for_each(|range| self.forget(work, range))?,
            // What keeps a full disk from taking accesses may be what an eviction is to drop.
            Err(error) if error.kind() == ErrorKind::NoSpace => self.forgotten.lock().extend(forgotten),
            Err(_) => return tidied,
        }
        if self.is_over_limit() {
            self.evict(work)?;
        }
        tidied
    }
}
