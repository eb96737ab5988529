//! The two disks of a simulation: they know what a power loss leaves, and fail as the weather says.
//!
//! Invariant: nothing reaches a disk after its image was taken; what was acknowledged before [`Disks::cut`] began is in the image as the
//! model of the crash says. Tests: those of the simulation.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kelvin_base::Clock;
use kelvin_storage::crash::{CrashModel, CrashStorage};
use kelvin_storage::fault::{EIO, Effect, FaultStorage, Rule};

use crate::checks::Check;
use crate::harm::tables_in;

/// The fast disk and the slow one.
#[derive(Clone, Debug)]
pub struct Disks {
    under: [CrashStorage; 2],
    /// What the store sees.
    pub seen: [Arc<FaultStorage>; 2],
    clock: Arc<dyn Clock>,
    seed: u64,
}

impl Disks {
    /// Empty ones.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, seed: u64) -> Self {
        Self::of([CrashStorage::forgetful(), CrashStorage::forgetful()], clock, seed)
    }

    fn of(under: [CrashStorage; 2], clock: Arc<dyn Clock>, seed: u64) -> Self {
        let mut number = seed;
        let seen = under.each_ref().map(|disk| {
            number = number.wrapping_add(1);
            Arc::new(FaultStorage::new(Arc::new(disk.clone()), number))
        });
        let disks = Self { under, seen, clock, seed };
        disks.clear();
        disks
    }

    /// Both are well: an operation takes a moment now and then, and nothing fails.
    pub fn clear(&self) {
        for (disk, slowness) in self.seen.iter().zip([1, 20]) {
            disk.clear();
            disk.back();
            disk.release();
            self.slow(disk, Duration::from_micros(100) * slowness, 100_000);
            self.slow(disk, Duration::from_millis(1) * slowness, 5_000);
        }
        self.under.iter().for_each(|disk| disk.set_capacity(u64::MAX));
    }

    /// Operations of `disk` take `time`, so many of a million.
    pub fn slow(&self, disk: &FaultStorage, time: Duration, per_million: u32) {
        disk.add(Rule::any(Effect::StallFor(time, Arc::clone(&self.clock))).chance(per_million));
    }

    /// A disk takes `spare_bytes` more, then is full.
    pub fn fill(&self, disk: usize, spare_bytes: u64) {
        self.under[disk].set_capacity(self.under[disk].used_bytes() + spare_bytes);
    }

    /// The power fails, or the process dies: from now on nothing more reaches the disks.
    pub fn cut(&self) {
        self.seen.iter().rev().for_each(|disk| {
            disk.away(EIO);
            disk.release();
        });
    }

    /// What is left after [`Self::cut`], on disks that are well.
    #[must_use]
    pub fn left(&self, model: CrashModel, seed: u64) -> Self {
        let mut number = seed;
        let under = self.under.each_ref().map(|disk| {
            number = number.wrapping_add(1);
            disk.crash_image(number, model)
        });
        Self::of(under, Arc::clone(&self.clock), self.seed.wrapping_add(2))
    }

    /// The tables in the directories of the store.
    ///
    /// # Errors
    /// None: the disks are in memory.
    pub fn tables(&self, dirs: [PathBuf; 2]) -> Check<std::collections::BTreeSet<PathBuf>> {
        let [fast, slow] = dirs;
        let mut tables = tables_in(&self.under[0], &fast)?;
        tables.append(&mut tables_in(&self.under[1], &slow)?);
        Ok(tables)
    }
}
