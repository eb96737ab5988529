//! What a client has done, how long it took, and since when it is at it. Tests: `tests/soak.rs` of this crate.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use kelvin::{Error, Result};
use kelvin_base::sync::Mutex;

use super::phase::Asked;
use crate::runner::Latency;

/// Longest time that is told apart, nanoseconds.
const TIME_NS_MAX: u64 = 600_000_000_000;

macro_rules! kinds {
    ($($kind:ident $name:literal,)*) => {
        /// A kind of what is done.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind { $(#[doc = $name] $kind,)* }

        impl Kind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// The name in reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }
        }
    };
}

kinds! {
    Load "load",
    Get "get",
    MultiGet "read of many keys",
    Scan "scan",
    Cursor "held iterator",
    Snapshot "held snapshot",
    Put "put",
    Insert "insert",
    Delete "delete",
    DeleteRange "range delete",
    Expiring "put that expires",
    Batch "batch",
    Swap "compare and set",
    Refusal "compare and set of what is not there",
    Settle "read of what is in doubt",
    SlowAway "outage of the slow disk",
    SlowHangs "hang of the slow disk",
    FastFull "full fast disk",
    SlowFull "full slow disk",
    Checkpoint "checkpoint",
    Reopen "close and open",
    Rest "look at a store at rest",
}

/// Times since the last sample.
#[derive(Clone, Debug)]
pub struct Times {
    /// Of what only reads.
    pub reads: Latency,
    /// Of what writes.
    pub writes: Latency,
    /// Reads and writes that were told to come again later.
    pub refused: [u64; 2],
}

impl Times {
    /// None yet.
    pub fn new() -> Result<Self> {
        let fresh = || {
            Latency::new_with_bounds(1, TIME_NS_MAX, 2)
                .map_err(|error| Error::invalid(format!("histogram: {error}")))
        };
        Ok(Self { reads: fresh()?, writes: fresh()?, refused: [0; 2] })
    }

    /// Adds those of another client, and empties them.
    pub fn take(&mut self, other: &mut Self) -> Result<()> {
        for (sum, part) in [(&mut self.reads, &mut other.reads), (&mut self.writes, &mut other.writes)] {
            sum.add(&*part).map_err(|error| Error::invalid(format!("histogram: {error}")))?;
            part.reset();
        }
        for (sum, part) in self.refused.iter_mut().zip(&mut other.refused) {
            *sum += std::mem::take(part);
        }
        Ok(())
    }
}

/// What one client measures.
#[derive(Debug)]
pub struct Meter {
    /// Times since the last sample.
    pub times: Mutex<Times>,
    done: Vec<AtomicU64>,
    refused: [AtomicU64; 2],
    /// When what it is at began, microseconds and one more; 0 for nothing.
    since_us: AtomicU64,
    kind: AtomicUsize,
    live_bytes: AtomicU64,
}

const fn at(asked: Asked) -> usize {
    matches!(asked, Asked::Write | Asked::Swap) as usize
}

impl Meter {
    /// Nothing yet.
    pub fn new() -> Result<Self> {
        Ok(Self {
            times: Mutex::new(Times::new()?),
            done: Kind::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
            refused: Default::default(),
            since_us: AtomicU64::new(0),
            kind: AtomicUsize::new(0),
            live_bytes: AtomicU64::new(0),
        })
    }

    /// It begins something.
    pub fn begin(&self, kind: Kind, now: Duration) {
        self.kind.store(kind as usize, Ordering::Relaxed);
        self.since_us.store(u64::try_from(now.as_micros()).unwrap_or(0) + 1, Ordering::Relaxed);
    }

    /// That has ended.
    pub fn end(&self) {
        self.since_us.store(0, Ordering::Relaxed);
    }

    /// Something was done in `spent`.
    pub fn done(&self, kind: Kind, asked: Asked, spent: Duration) {
        self.count(kind);
        let ns = u64::try_from(spent.as_nanos()).unwrap_or(TIME_NS_MAX).max(1);
        let mut times = self.times.lock();
        match asked {
            Asked::Read => times.reads.saturating_record(ns),
            Asked::Write | Asked::Swap => times.writes.saturating_record(ns),
        }
    }

    /// So many bytes of its records are there.
    pub fn holds(&self, bytes: u64) {
        self.live_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Bytes of its records that are there.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes.load(Ordering::Relaxed)
    }

    /// Something was done whose time is nobody's.
    pub fn count(&self, kind: Kind) {
        self.done[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Something was refused, as it may be.
    pub fn refused(&self, asked: Asked) {
        self.refused[at(asked)].fetch_add(1, Ordering::Relaxed);
        self.times.lock().refused[at(asked)] += 1;
    }

    /// How often this was done.
    pub fn count_of(&self, kind: Kind) -> u64 {
        self.done[kind as usize].load(Ordering::Relaxed)
    }

    /// Reads and writes refused so far.
    pub fn refusals(&self) -> [u64; 2] {
        self.refused.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// What it is at, and since when; `None` for nothing.
    pub fn is_at(&self) -> Option<(Kind, Duration)> {
        let since_us = self.since_us.load(Ordering::Relaxed).checked_sub(1)?;
        let kind = Kind::ALL.get(self.kind.load(Ordering::Relaxed))?;
        Some((*kind, Duration::from_micros(since_us)))
    }
}
