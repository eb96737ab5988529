//! From the unsorted buffer to a run of level 0 (paper §3.2).

use std::sync::atomic::Ordering;

use kelvin_base::{ErrorKind, Result};

use crate::buffer::{Place, Taken};
use crate::core::{Core, Outputs, Work};
use crate::record::Record;
use crate::version::{Placed, Version};

impl Core {
    /// Sorts `taken`, merges the accesses of each key, and installs them as the newest runs of level 0.
    pub fn flush(&self, work: &mut Work, taken: &Taken) -> Result<()> {
        if taken.count() == 0 {
            return Ok(());
        }
        self.tick(work, taken.count());
        let mut places = taken.places();
        let key = |place: &Place| taken.at(*place).map(|access| access.0);
        let order = |a: &Place, b: &Place| a.prefix.cmp(&b.prefix).then_with(|| key(a).cmp(&key(b)));
        // Of one key, the access noted later stays behind.
        places.sort_unstable_by(|a, b| order(a, b).then(a.offset.cmp(&b.offset)));
        let version = self.version.load_full();
        let (now, epoch, scoring) = (work.now, self.epoch(work), self.options.scoring);
        let knows = |key: &[u8]| version.is_hot(key);
        let mut outputs = Outputs::new(self, &knows);
        for same in places.chunk_by(|a, b| order(a, b).is_eq()) {
            let each = same.iter().filter_map(|place| taken.at(*place));
            let each = each.map(|(_, value_len)| Record::accessed(value_len, scoring, now, epoch));
            let record = each.reduce(|older, newer| Record::merge(scoring, &older, &newer));
            let Some((key, record)) = key(&same[0]).zip(record) else { continue };
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

    /// Moves the clocks on: `noted` accesses are sorted now, and so many bytes have been accessed.
    fn tick(&self, work: &mut Work, noted: usize) {
        let seen_bytes = self.repeats.accessed_bytes();
        work.accessed_bytes = work.accessed_bytes.saturating_add(seen_bytes - work.seen_bytes);
        work.seen_bytes = seen_bytes;
        work.now.accesses += noted as u64;
        work.now.slice =
            u32::try_from(work.accessed_bytes / self.options.slice_bytes.max(1)).unwrap_or(u32::MAX);
        self.counters.accesses.fetch_add(noted as u64, Ordering::Relaxed);
    }

    /// Flushes `taken`, and keeps the levels in shape, until a merge has shown that an eviction is due: where accesses come as fast as they are merged,
    /// it would go on for ever. Too much memory is no reason to merge first: that takes some more.
    pub fn tidy(&self, work: &mut Work, taken: &Taken) -> Result<()> {
        self.flush(work, taken)?;
        while !self.pins_too_much() && self.compact(work)? && !self.is_over_limit() {}
        Ok(())
    }

    /// Does what is due: flushes what waits (`all`: everything), keeps the levels in shape, forgets, evicts.
    pub fn maintain(&self, work: &mut Work, all: bool) -> Result<()> {
        let forgotten = self.forgotten.lock().len();
        // Accesses of keys to be forgotten wait there too.
        let all = all || forgotten > 0;
        let taken = if all { self.buffer.take_all() } else { self.buffer.take_full() };
        let tidied = self.tidy(work, &taken);
        drop(taken);
        match &tidied {
            Ok(()) => self.forget_first(work, forgotten)?,
            // What keeps a full disk from taking accesses may be what an eviction is to drop.
            Err(error) if error.kind() == ErrorKind::NoSpace => {}
            Err(_) => return tidied,
        }
        if self.is_over_limit() {
            self.evict(work)?;
        }
        tidied
    }

    /// Forgets the first `count` ranges that wait for it. Those that cannot be forgotten now go on waiting: nothing else would bring their keys to
    /// be forgotten before they have cooled down.
    fn forget_first(&self, work: &mut Work, count: usize) -> Result<()> {
        for _ in 0..count {
            let Some(first) = self.forgotten.lock().first().cloned() else { break };
            self.forget(work, &first)?;
            self.forgotten.lock().remove(0);
        }
        Ok(())
    }
}
