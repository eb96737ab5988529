//! How large a soak is: the store, its data, and how often what happens, all of it from the seconds it takes.
//!
//! Tests stand below, and in `tests/soak.rs` of this crate.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kelvin::{Hotness, Options, Result};

use super::keys;

/// Client threads.
pub const CLIENTS: usize = 4;
/// From so many seconds on the memory is large enough for the promise of what is resident.
const RESIDENT_JUDGED_S: u64 = 60;
/// From so many seconds on what grows without end is told from what fills up.
const GROWTH_JUDGED_S: u64 = 600;
/// From so many seconds on times of the first and the last quarter are compared.
const DRIFT_JUDGED_S: u64 = 3_600;
/// Clients whose times are compared keep to a pace: what a store at its limit takes for an operation says how many wait for it.
const PACE: Duration = Duration::from_millis(2);
/// The data is this many times the fast capacity.
const DATA_OVER_FAST: u64 = 10;

/// What is run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How long, once the data is loaded; a round of all faults is finished in any case.
    pub seconds: u64,
    /// The seconds of the parts before this one, of a soak in parts.
    pub seconds_before: u64,
    /// Parts before this one.
    pub part: u32,
    /// Seed of what is done.
    pub seed: u64,
    /// Directories of its own for the store, on the fast disk and on the slow one.
    pub dirs: [PathBuf; 2],
    /// Bytes of the fast disk that the store may take.
    pub fast_capacity: u64,
    /// Bytes of memory that it may take.
    pub memory: u64,
    /// Keys of each client.
    pub keys: u32,
    /// A round of all faults takes so long.
    pub round: Duration,
    /// From one operation of a client to its next, at least.
    pub step_every: Duration,
    /// The longest that an operation on the slow disk may take.
    pub deadline: Duration,
    /// From one sample to the next.
    pub sample_every: Duration,
    /// Snapshots are held for so long at most, iterators for a quarter of that.
    pub held: Duration,
}

impl Setup {
    /// A soak of so many seconds.
    #[must_use]
    pub fn of(seconds: u64, seed: u64, dirs: [PathBuf; 2]) -> Self {
        let fast_capacity = (seconds * (320 << 10)).clamp(2 << 20, 64 << 20);
        let memory_min: u64 = if seconds < RESIDENT_JUDGED_S { 8 << 20 } else { 32 << 20 };
        let records = fast_capacity * DATA_OVER_FAST / keys::record_bytes_mean();
        let round = Duration::from_secs(seconds / 6).clamp(Duration::from_secs(3), Duration::from_secs(600));
        Self {
            seconds,
            seconds_before: 0,
            part: 0,
            seed,
            dirs,
            fast_capacity,
            memory: (fast_capacity / 2).max(memory_min),
            keys: u32::try_from(records / CLIENTS as u64).unwrap_or(u32::MAX),
            round,
            step_every: if seconds < DRIFT_JUDGED_S { Duration::ZERO } else { PACE },
            deadline: (round / 60).clamp(Duration::from_secs(1), Duration::from_secs(5)),
            sample_every: Duration::from_millis((seconds * 1_000 / 600).max(1_000)),
            held: (round / 20).clamp(Duration::from_millis(200), Duration::from_secs(10)),
        }
    }

    /// The store's options, but for its environment.
    pub(super) fn options(&self) -> Options {
        Self::options_in(&self.dirs[0].join("store"), &self.dirs[1].join("store"))
            .fast_capacity(self.fast_capacity)
            .memory(self.memory)
    }

    /// A store of two tiers with the tracker of hot records.
    pub(super) fn options_in(fast: &Path, slow: &Path) -> Options {
        Options::new(fast).slow(slow).advanced(|a| a.hotness = Some(Hotness::Ralt))
    }

    /// A seed for what this part does: no other part does the same.
    pub(super) fn part_seed(&self) -> u64 {
        self.seed ^ u64::from(self.part) << 40
    }

    /// With the parts before it.
    fn seconds_in_all(&self) -> u64 {
        self.seconds_before + self.seconds
    }

    /// What is resident at most, by what the option `memory` promises: a tenth over it.
    #[must_use]
    pub fn resident_limit_bytes(&self) -> u64 {
        self.memory + self.memory / 10
    }

    /// What is resident is held against its limit.
    #[must_use]
    pub fn judges_resident(&self) -> bool {
        self.seconds_in_all() >= RESIDENT_JUDGED_S
    }

    /// What must not grow is compared over the run.
    #[must_use]
    pub fn judges_growth(&self) -> bool {
        self.seconds_in_all() >= GROWTH_JUDGED_S
    }

    /// Times are compared over the run.
    #[must_use]
    pub fn judges_drift(&self) -> bool {
        self.seconds_in_all() >= DRIFT_JUDGED_S
    }

    /// Checks that a store can be made so.
    ///
    /// # Errors
    /// What the options refuse.
    pub fn check(&self) -> Result<()> {
        self.options().derive().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_makes_a_store_that_can_be_opened_and_longer_ones_are_judged_by_more() {
        let setup = |seconds| Setup::of(seconds, 1, ["/fast".into(), "/slow".into()]);
        for seconds in [1, 5, 20, 60, 900, 3_600, 21_600, 604_800] {
            setup(seconds).check().unwrap();
            let data = u64::from(setup(seconds).keys) * CLIENTS as u64 * keys::record_bytes_mean();
            assert!(data > 9 * setup(seconds).fast_capacity, "{seconds}");
        }
        assert!(!setup(20).judges_resident() && setup(900).judges_resident());
        assert!(setup(900).judges_growth() && !setup(900).judges_drift() && setup(3_600).judges_drift());
        assert_eq!(setup(900).sample_every, Duration::from_millis(1_500));
        assert!(setup(900).step_every.is_zero() && setup(3_600).step_every > Duration::ZERO);
    }
}
