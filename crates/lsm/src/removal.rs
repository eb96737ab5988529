//! Removing the files of tables that are nobody's any more.
//!
//! A file that cannot be removed, since its disk is away, is tried again after a while, and again, so that what outages leave behind does not
//! add up while the store is open. What is still there when it is closed is an orphan that the next opening removes.
//!
//! Invariant: one timer at most, and while a disk is away one operation on it each time. Tests: `tests/trust/slow_away.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kelvin_base::sync::Mutex;
use kelvin_base::{ErrorKind, Executor, Lane, Result, Signal, Tier, seeded_bug};

use crate::files::table_name;
use crate::space::Space;
use crate::tiers::TierHandle;

/// A file that cannot be removed is tried again after so long, then after twice that, and so on.
const AGAIN_FIRST: Duration = Duration::from_millis(100);
/// But no longer than this.
const AGAIN_MAX: Duration = Duration::from_secs(10);

/// What could not be removed.
#[derive(Debug, Default)]
struct Left {
    tables: BTreeSet<(Tier, u64)>,
    /// The last wait; `None` while nothing is left.
    delay: Option<Duration>,
    /// A timer runs.
    waits: bool,
}

/// Removes files of tables.
#[derive(Debug)]
pub struct Removals {
    tiers: [Option<TierHandle>; 2],
    space: Space,
    executor: Arc<dyn Executor>,
    signal: Arc<Signal>,
    left: Mutex<Left>,
}

impl Removals {
    /// Of files in `tiers`, which are in the books of `space`; `signal` is raised when one has gone.
    #[must_use]
    pub fn new(
        tiers: [Option<TierHandle>; 2],
        space: Space,
        executor: Arc<dyn Executor>,
        signal: Arc<Signal>,
    ) -> Arc<Self> {
        Arc::new(Self { tiers, space, executor, signal, left: Mutex::default() })
    }

    /// Removes the file of table `number`, or sees to it that it is removed later.
    pub fn remove(self: &Arc<Self>, tier: Tier, number: u64) {
        if self.try_remove(tier, number).is_err() && !seeded_bug!("removal-is-not-tried-again") {
            let mut left = self.left.lock();
            left.tables.insert((tier, number));
            self.wait(&mut left);
        }
        self.signal.raise();
    }

    fn try_remove(&self, tier: Tier, number: u64) -> Result<()> {
        // A tier that the store does not have holds no file of it.
        let Some(handle) = &self.tiers[tier.index()] else { return Ok(()) };
        let name = table_name(number);
        handle.remove_if_there(&name)?;
        self.space.file_removed(tier, &name);
        Ok(())
    }

    /// Tries again after a while.
    fn wait(self: &Arc<Self>, left: &mut Left) {
        if std::mem::replace(&mut left.waits, true) {
            return;
        }
        let delay = left.delay.map_or(AGAIN_FIRST, |last| (last * 2).min(AGAIN_MAX));
        left.delay = Some(delay);
        let me = Arc::downgrade(self);
        self.executor.spawn_after(
            delay,
            Lane::Housekeeping,
            Box::new(move || {
                if let Some(me) = me.upgrade() {
                    me.again();
                }
            }),
        );
    }

    /// Tries all that is left; of a disk that is away only the first.
    fn again(self: &Arc<Self>) {
        let tables = std::mem::take(&mut self.left.lock().tables);
        let mut away = None;
        let mut rest = BTreeSet::new();
        for (tier, number) in tables {
            if away == Some(tier) {
                rest.insert((tier, number));
                continue;
            }
            if let Err(error) = self.try_remove(tier, number) {
                away = (error.kind() == ErrorKind::TierUnavailable).then_some(tier);
                rest.insert((tier, number));
            }
        }
        let mut left = self.left.lock();
        left.waits = false;
        left.tables.append(&mut rest);
        if left.tables.is_empty() {
            left.delay = None;
        } else {
            self.wait(&mut left);
        }
        drop(left);
        self.signal.raise();
    }
}
