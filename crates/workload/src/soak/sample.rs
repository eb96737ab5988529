//! A soak over time: samples of what is used, how long what takes, and what was done to the store meanwhile. Tests stand below.

use std::time::Duration;

use kelvin::{Result, Stats};
use kelvin_base::process;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::meter::Times;
use super::phase::Phase;
use super::world::World;
use crate::runner::Latency;

/// Times of one kind, milliseconds, and how many a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// How many a second.
    pub per_second: f64,
    /// Half take no longer; nothing where none was done.
    pub p50: Option<f64>,
    /// 99 in a hundred.
    pub p99: Option<f64>,
    /// 999 in a thousand.
    pub p999: Option<f64>,
}

impl Quantiles {
    fn of(times: &Latency, seconds: f64) -> Self {
        let at = |quantile| (!times.is_empty()).then(|| times.value_at_quantile(quantile) as f64 / 1e6);
        let per_second = times.len() as f64 / seconds.max(1e-9);
        Self { per_second, p50: at(0.5), p99: at(0.99), p999: at(0.999) }
    }

    fn to_json(self) -> Value {
        json!({ "per_second": self.per_second, "p50_ms": self.p50, "p99_ms": self.p99, "p999_ms": self.p999 })
    }
}

/// The state at a moment, and what was done since the sample before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the run began.
    pub seconds: f64,
    /// What was done to the store meanwhile.
    pub phase: Phase,
    /// Memory of the process, bytes.
    pub resident_bytes: u64,
    /// Memory by the store's own accounts, bytes.
    pub memory_bytes: u64,
    /// What its files take, by tier.
    pub used_bytes: [u64; 2],
    /// Most that they ever took, by tier, since it was opened.
    pub used_bytes_max: [u64; 2],
    /// Keys and values that are there.
    pub live_bytes: u64,
    /// What only reads.
    pub reads: Quantiles,
    /// What writes.
    pub writes: Quantiles,
    /// Reads and writes told to come again, a second.
    pub refused: [f64; 2],
    /// Part of the point reads that did not read the slow tier; nothing where there were none.
    pub hit_rate: Option<f64>,
    /// Bytes that compactions read and wrote, a second.
    pub compaction_bytes: f64,
    /// Files that the process has open; nothing where the system does not say.
    pub open_files: Option<u64>,
}

impl Sample {
    /// Files of both tiers over what is there.
    pub fn amplification(&self) -> Option<f64> {
        let stored: u64 = self.used_bytes.iter().sum();
        (self.live_bytes > 0).then(|| stored as f64 / self.live_bytes as f64)
    }

    /// For machines.
    pub fn to_json(&self) -> Value {
        json!({
            "seconds": self.seconds,
            "phase": self.phase.name(),
            "resident_bytes": self.resident_bytes,
            "memory_bytes": self.memory_bytes,
            "fast_used_bytes": self.used_bytes[0],
            "slow_used_bytes": self.used_bytes[1],
            "fast_used_bytes_max": self.used_bytes_max[0],
            "live_bytes": self.live_bytes,
            "space_amplification": self.amplification(),
            "reads": self.reads.to_json(),
            "writes": self.writes.to_json(),
            "refused_reads_per_second": self.refused[0],
            "refused_writes_per_second": self.refused[1],
            "fast_hit_rate": self.hit_rate,
            "compaction_bytes_per_second": self.compaction_bytes,
            "open_files": self.open_files,
        })
    }
}

/// What the store has counted since it was opened.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    gets: u64,
    gets_fast: u64,
    compaction_bytes: u64,
}

impl Counted {
    fn of(stats: &Stats) -> Self {
        let moved = [stats.compaction_read_bytes, stats.compaction_written_bytes];
        let compaction_bytes = moved.iter().flatten().sum();
        Self { gets: stats.gets, gets_fast: stats.gets_fast, compaction_bytes }
    }

    /// Since `before`; all of it if the store was opened since.
    fn since(self, before: Self) -> Self {
        if self.gets < before.gets || self.compaction_bytes < before.compaction_bytes {
            return self;
        }
        Self {
            gets: self.gets - before.gets,
            gets_fast: self.gets_fast.saturating_sub(before.gets_fast),
            compaction_bytes: self.compaction_bytes - before.compaction_bytes,
        }
    }
}

/// Takes samples.
#[derive(Debug)]
pub struct Sampler {
    at: Duration,
    counted: Counted,
    /// Those taken so far.
    pub samples: Vec<Sample>,
}

impl Sampler {
    /// After `samples`, those of earlier parts.
    pub fn new(now: Duration, samples: Vec<Sample>) -> Self {
        Self { at: now, counted: Counted::default(), samples }
    }

    /// Takes one; none while the store is closed.
    ///
    /// # Errors
    /// If times cannot be added up.
    pub fn take(&mut self, world: &World) -> Result<()> {
        let Some(stats) = world.stats() else { return Ok(()) };
        let (now, then) = (world.now(), self.at);
        let seconds = now.saturating_sub(then).as_secs_f64();
        let mut times = Times::new()?;
        for meter in &world.meters {
            times.take(&mut meter.times.lock())?;
        }
        let counted = Counted::of(&stats);
        let done = counted.since(self.counted);
        (self.at, self.counted) = (now, counted);
        let live = world.meters.iter().map(super::meter::Meter::live_bytes).sum();
        self.samples.push(Sample {
            seconds: now.as_secs_f64(),
            phase: world.phases.of_sample(then),
            resident_bytes: stats.resident_bytes,
            memory_bytes: stats.memory.iter().map(|(_, bytes)| bytes).sum(),
            used_bytes: stats.used_bytes,
            used_bytes_max: stats.used_bytes_max,
            live_bytes: live,
            reads: Quantiles::of(&times.reads, seconds),
            writes: Quantiles::of(&times.writes, seconds),
            refused: times.refused.map(|count| count as f64 / seconds.max(1e-9)),
            hit_rate: (done.gets > 0).then(|| done.gets_fast as f64 / done.gets as f64),
            compaction_bytes: done.compaction_bytes as f64 / seconds.max(1e-9),
            open_files: process::open_files(),
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_begin_anew_when_the_store_is_opened_again() {
        let counted = |gets, gets_fast| Counted { gets, gets_fast, compaction_bytes: gets };
        let since = counted(150, 90).since(counted(100, 60));
        assert_eq!((since.gets, since.gets_fast, since.compaction_bytes), (50, 30, 50));
        assert_eq!(counted(10, 5).since(counted(100, 60)).gets, 10);
        assert_eq!(Quantiles::of(&Times::new().unwrap().reads, 1.0), Quantiles::default());
    }
}
