//! What boundary compactions find out about the last fast level, as running means: what part of it goes on, and what part lies above a copy
//! in the hot level that is stale therefore. Tests: beside each rule that uses them, and below.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Means are over about so many boundary compactions.
const MEAN_OF: u64 = 16;
/// The cold part counts as no less than that, or slow levels would be more than the rewriting they save is worth.
const COLD_PERMILLE_MIN: u64 = 100;
/// Stale copies are worth a look when they may be one byte in so many of the hot level.
const STALE: u64 = 16;

/// What one boundary compaction found, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Of its fast input.
    pub bytes: u64,
    /// Of that, what went on.
    pub cold_bytes: u64,
    /// Of that, what lies above a copy of something older.
    pub above_bytes: u64,
}

/// The means, and what follows.
#[derive(Debug)]
pub struct Means {
    cold_permille: AtomicU64,
    above_permille: AtomicU64,
    /// Compactions since stale copies were last looked for.
    since: AtomicU64,
    clean_turn: AtomicU32,
}

impl Default for Means {
    fn default() -> Self {
        let (above_permille, since) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { cold_permille: AtomicU64::new(1000), above_permille, since, clean_turn: AtomicU32::new(0) }
    }
}

impl Means {
    /// A boundary compaction of a keyspace whose last fast level has `last_bytes` and whose hot level has `hot_bytes` is done.
    pub fn note(&self, found: Found, last_bytes: u64, hot_bytes: u64) {
        let permille =
            |part: u64, none: u64| (part * 1000).checked_div(found.bytes).unwrap_or(none).min(1000);
        let cold = mean(&self.cold_permille, permille(found.cold_bytes, 1000));
        self.cold_permille.store(cold.max(COLD_PERMILLE_MIN), Ordering::Relaxed);
        let above = mean(&self.above_permille, permille(found.above_bytes, 0));
        self.above_permille.store(above, Ordering::Relaxed);
        let stale_bytes = last_bytes / 1000 * above;
        if self.since.fetch_add(1, Ordering::Relaxed) >= MEAN_OF && stale_bytes > hot_bytes / STALE {
            self.since.store(0, Ordering::Relaxed);
            self.clean_turn.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What part of a last fast level's bytes boundary compactions move on, in thousandths (p in HotRAP section 3.6).
    pub fn cold_permille(&self) -> u64 {
        self.cold_permille.load(Ordering::Relaxed)
    }

    /// What part of a last fast level's bytes lies above copies of something older, in thousandths.
    pub fn above_permille(&self) -> u64 {
        self.above_permille.load(Ordering::Relaxed)
    }

    /// How often so much of the hot level was found stale that it is to be rid of that.
    pub fn clean_turn(&self) -> u32 {
        self.clean_turn.load(Ordering::Relaxed)
    }
}

fn mean(of: &AtomicU64, permille: u64) -> u64 {
    (of.load(Ordering::Relaxed) * (MEAN_OF - 1) + permille) / MEAN_OF
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cold_part_is_a_mean_and_never_nothing() {
        let means = Means::default();
        let note = |cold_bytes| means.note(Found { bytes: 1000, cold_bytes, above_bytes: 0 }, 0, 0);
        (0..100).for_each(|_| note(300));
        assert!((300..320).contains(&means.cold_permille()), "{}", means.cold_permille());
        (0..200).for_each(|_| note(0));
        assert_eq!((means.cold_permille(), means.clean_turn()), (COLD_PERMILLE_MIN, 0));
    }

    #[test]
    fn much_that_lies_above_copies_asks_for_a_clean_hot_level_and_then_waits() {
        let means = Means::default();
        let note =
            |above_bytes| means.note(Found { bytes: 1000, cold_bytes: 0, above_bytes }, 50_000, 20_000);
        (0..100).for_each(|_| note(10));
        assert_eq!(means.clean_turn(), 0, "a hundredth of the last fast level is little");
        let rounds = (0..100).take_while(|_| means.clean_turn() == 0).map(|_| note(500)).count();
        assert!((1..10).contains(&rounds), "{rounds}: the mean follows");
        (0..MEAN_OF).for_each(|_| note(500));
        assert_eq!(means.clean_turn(), 1, "what was found before says nothing new");
        note(500);
        assert_eq!(means.clean_turn(), 2);
    }
}
