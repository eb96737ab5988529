//! Back-pressure: writers are slowed smoothly before they are stopped, and the reason can be read.
//!
//! [`pressure`] is pure: from what flushes and compactions owe to a delay per KiB, or a stop. A writer pays its delay before
//! it joins the queue, with no lock held. A stopped writer waits for background work to raise the signal, and
//! gives up with the background error if that is what stops the work. Tests: `tests` below.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Delay per KiB just before the stop: about 1 MiB/s a writer.
const DELAY_PER_KIB_MAX_US: u64 = 1000;

/// Why writers wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Sealed memtables wait for their flush.
    Memtables,
    /// Flushed tables wait for their compaction.
    LevelZero,
    /// Levels are over their targets.
    CompactionDebt,
    /// The fast tier is nearly full.
    FastSpace,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::Memtables, Self::LevelZero, Self::CompactionDebt, Self::FastSpace];

    /// The name in stats and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memtables => "memtables",
            Self::LevelZero => "level_zero",
            Self::CompactionDebt => "compaction_debt",
            Self::FastSpace => "fast_space",
        }
    }
}

/// One thing that background work owes, and how much of it slows and stops writers.
#[derive(Clone, Copy, Debug)]
pub struct Debt {
    /// What it is.
    pub reason: Reason,
    /// How much there is.
    pub amount: u64,
    /// Above this, writes are delayed.
    pub slow_at: u64,
    /// From this on, writes stop; `u64::MAX` for never.
    pub stop_at: u64,
}

/// What a writer has to do before it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// Nothing.
    None,
    /// Wait this long for each KiB.
    Delay {
        /// Microseconds a KiB.
        us_per_kib: u64,
        /// The largest debt.
        reason: Reason,
    },
    /// Wait until this debt has shrunk.
    Stop(Reason),
}

impl fmt::Display for Pressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Delay { reason, .. } => write!(f, "delayed: {}", reason.name()),
            Self::Stop(reason) => write!(f, "stopped: {}", reason.name()),
        }
    }
}

/// The pressure of the worst of `debts`. The delay grows with the square of the way from `slow_at` to `stop_at`.
#[must_use]
pub fn pressure(debts: &[Debt]) -> Pressure {
    let mut worst = Pressure::None;
    let mut worst_us = 0;
    for debt in debts {
        if debt.amount >= debt.stop_at {
            return Pressure::Stop(debt.reason);
        }
        if debt.amount > debt.slow_at {
            let way = debt.stop_at.saturating_sub(debt.slow_at).max(1);
            // In 1/1024, so that squares of byte counts do not overflow.
            let part = u64::try_from(u128::from(debt.amount - debt.slow_at) * 1024 / u128::from(way))
                .unwrap_or(1024)
                .min(1024);
            let us = (DELAY_PER_KIB_MAX_US * part * part / (1024 * 1024)).max(1);
            if us > worst_us {
                worst_us = us;
                worst = Pressure::Delay { us_per_kib: us, reason: debt.reason };
            }
        }
    }
    worst
}

/// The pressure in force, read by every writer.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// The pressure.
    pub fn load(&self) -> Pressure {
        Self::unpacked(self.0.load(Ordering::Relaxed))
    }

    fn unpacked(packed: u64) -> Pressure {
        let reason = Reason::ALL[usize::from(packed.to_le_bytes()[1] & 3)];
        match packed.to_le_bytes()[0] {
            1 => Pressure::Delay { us_per_kib: packed >> 16, reason },
            2 => Pressure::Stop(reason),
            _ => Pressure::None,
        }
    }

    /// Changes it, and answers what it was.
    pub fn replace(&self, pressure: Pressure) -> Pressure {
        let packed = match pressure {
            Pressure::None => 0,
            Pressure::Delay { us_per_kib, reason } => 1 | (reason as u64) << 8 | us_per_kib << 16,
            Pressure::Stop(reason) => 2 | (reason as u64) << 8,
        };
        Self::unpacked(self.0.swap(packed, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level_zero(amount: u64) -> Debt {
        Debt { reason: Reason::LevelZero, amount, slow_at: 10, stop_at: 20 }
    }

    #[test]
    fn delay_grows_steadily_from_nothing_to_the_stop() {
        assert_eq!(pressure(&[level_zero(10)]), Pressure::None);
        let delays: Vec<u64> = (11..20)
            .map(|amount| match pressure(&[level_zero(amount)]) {
                Pressure::Delay { us_per_kib, .. } => us_per_kib,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(delays.is_sorted(), "{delays:?}");
        assert!(delays[0] <= 10 && delays[8] >= 800, "{delays:?}");
        assert_eq!(pressure(&[level_zero(20)]), Pressure::Stop(Reason::LevelZero));
    }

    #[test]
    fn a_gauge_gives_back_what_was_stored() {
        let gauge = Gauge::default();
        assert_eq!(gauge.load(), Pressure::None);
        for reason in Reason::ALL {
            for pressure in
                [Pressure::Delay { us_per_kib: 999, reason }, Pressure::Stop(reason), Pressure::None]
            {
                let before = gauge.load();
                assert_eq!(gauge.replace(pressure), before);
                assert_eq!(gauge.load(), pressure);
            }
        }
    }

    #[test]
    fn the_worst_debt_is_named() {
        let memory = Debt { reason: Reason::Memtables, amount: 3, slow_at: 2, stop_at: 4 };
        let pressure = pressure(&[level_zero(11), memory]);
        assert!(matches!(pressure, Pressure::Delay { reason: Reason::Memtables, .. }));
    }
}
