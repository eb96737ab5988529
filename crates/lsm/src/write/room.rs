//! What a writer waits for before it joins the queue: see [`super::stall`] for the rule.

use std::sync::atomic::Ordering;
use std::time::Duration;

use kelvin_base::events::What;
use kelvin_base::{Error, ErrorKind, Result, Tier};

use super::stall::{Debt, Pressure, Reason, pressure};
use crate::compaction::pick;
use crate::db::engine::Engine;
use crate::options::human_bytes;
use crate::schedule::Kind;
use crate::space::Priority;

/// A delay is paid once so much is owed.
const DELAY_PAID_US: u64 = 1_000;
/// The longest single delay: what is owed beyond it is forgiven, since a stop follows if need be.
const DELAY_US_MAX: u64 = 20_000;

impl Engine {
    /// Waits until a write of `bytes` may go on.
    ///
    /// # Errors
    /// What keeps background work from making room, if nothing will.
    pub(crate) fn wait_for_room(&self, bytes: usize) -> Result<()> {
        let mut pressure = self.pressure_now();
        if let Pressure::Delay { us_per_kib, reason } = pressure {
            self.pay_delay(us_per_kib.saturating_mul(bytes as u64) / 1024, reason);
        }
        while let Some(reason) = self.stop_for(bytes as u64, pressure) {
            if reason == Reason::FastSpace {
                self.seal_overfull()?;
            }
            self.wait_stopped(bytes as u64, reason)?;
            pressure = self.pressure_now();
        }
        Ok(())
    }

    /// Why a write of `bytes` cannot go on now, if it cannot. What the pressure allows for is a memtable and its log:
    /// a batch larger than that must fit by itself.
    fn stop_for(&self, bytes: u64, pressure: Pressure) -> Option<Reason> {
        if let Pressure::Stop(reason) = pressure {
            return Some(reason);
        }
        if bytes <= self.config.memtable_bytes {
            return None;
        }
        let available = self.space.available(Tier::Fast, Priority::Essential)?;
        let batch = bytes.saturating_mul(2).saturating_add(flush_slack_bytes(bytes));
        (available < self.flush_need_bytes().saturating_add(batch)).then_some(Reason::FastSpace)
    }

    /// Seals the memtables that large batches have filled, so that their logs can go.
    fn seal_overfull(&self) -> Result<()> {
        for keyspace in self.keyspaces.load().iter() {
            if keyspace.peek().mem.memory_bytes() > self.config.memtable_bytes {
                self.seal(keyspace)?;
            }
        }
        Ok(())
    }

    /// Owes `us` more, and pays once it is worth a sleep: systems sleep no shorter than some 50 µs.
    fn pay_delay(&self, us: u64, reason: Reason) {
        let owed = self.delay_owed_us.fetch_add(us, Ordering::Relaxed) + us;
        if owed < DELAY_PAID_US {
            return;
        }
        let paid = self.delay_owed_us.swap(0, Ordering::Relaxed).min(DELAY_US_MAX);
        self.counters.writes.delayed_us[reason as usize].add(paid);
        self.env.clock.sleep(Duration::from_micros(paid));
    }

    fn wait_stopped(&self, bytes: u64, reason: Reason) -> Result<()> {
        let start = self.env.clock.now();
        self.schedule();
        let outcome = self.signal.wait_for(&*self.env.executor, || {
            // Files are removed behind the back of the jobs that ended.
            self.retry_waiting_flush();
            self.refresh_pressure();
            if self.stop_for(bytes, self.pressure_now()).is_none() {
                return Some(Ok(()));
            }
            self.why_stuck(bytes, reason).map(Err)
        });
        let us = u64::try_from((self.env.clock.now() - start).as_micros()).unwrap_or(u64::MAX);
        self.counters.writes.stopped_us[reason as usize].add(us);
        outcome
    }

    /// Why waiting for room is in vain, if it is: the store is closed or read-only, the very work that `reason` waits for
    /// has failed, or none is left to do. Failures of other work matter only then: with the slow tier away, writers
    /// still wait for flushes (promise 7).
    fn why_stuck(&self, bytes: u64, reason: Reason) -> Option<Error> {
        if let Err(error) = self.health.check_writable() {
            return Some(error);
        }
        let waits_for: &[Kind] = match reason {
            Reason::Memtables => &[Kind::Flush],
            Reason::LevelZero => &[Kind::Fast],
            Reason::CompactionDebt | Reason::FastSpace => &[],
        };
        if let Some(error) = self.health.background_error_of(waits_for) {
            return Some(error);
        }
        // Nothing is given up for want of room while files are on their way out. So they must be gone before it is asked what is due:
        // if the last one went after that, what is due now has not been asked.
        if self.files.leaving.free_soon_and_tell()
            || !self.is_idle()
            || self.files.leaving.free_soon_and_tell()
        {
            return None;
        }
        if let Some(error) = self.health.background_error() {
            return Some(error);
        }
        // The job that ended last may not have worked the pressure out anew yet.
        self.refresh_pressure();
        self.stop_for(bytes, self.pressure_now()).map(|_| {
            let wanted = bytes.max(self.config.memtable_bytes);
            let free = human_bytes(self.space.available(Tier::Fast, Priority::Essential).unwrap_or(0));
            let error = Error::new(ErrorKind::NoSpace, "the fast tier is full and nothing can be moved off it").tier(Tier::Fast);
            let room = format!("room for {} of writes, their log and their table", human_bytes(wanted));
            match self.files.leaving.held_bytes(Tier::Fast) {
                0 => error.expected(room, free)
                    .advice("raise fast_capacity or slow_capacity, give a slow tier, or drop a keyspace; writing resumes by itself"),
                held => error.expected(room, format!("{free}, and {} that iterators, or a backup, hold", human_bytes(held)))
                    .advice("close iterators that have been open for long, or raise fast_capacity; writing resumes by itself"),
            }
        })
    }

    /// What holds writers back now.
    pub(crate) fn pressure_now(&self) -> Pressure {
        self.pressure.load()
    }

    /// Works out the pressure anew: after a seal, a flush, a compaction, and when space was freed.
    pub(crate) fn refresh_pressure(&self) {
        let keyspaces = self.keyspaces.load();
        let versions: Vec<_> =
            keyspaces.iter().map(|one| std::sync::Arc::clone(&one.peek().version)).collect();
        let debt = pick::debt(&versions, &self.pick_config_now());
        let sealed = keyspaces.iter().map(|one| one.peek().imms.len()).max().unwrap_or(0);
        let config = &self.config;
        let mut debts = vec![
            Debt {
                reason: Reason::Memtables,
                // In tenths, so that the last memtable before the stop costs a little and not half the way.
                amount: (sealed as u64 * 10).max(self.sealed_together()),
                slow_at: (config.memtables_max.saturating_sub(2) as u64 * 10).saturating_sub(2),
                stop_at: config.memtables_max.saturating_sub(1).max(1) as u64 * 10,
            },
            Debt {
                reason: Reason::LevelZero,
                amount: debt.l0_runs,
                slow_at: config.level0_delay_at as u64,
                stop_at: config.level0_stop_at as u64,
            },
            Debt {
                reason: Reason::CompactionDebt,
                amount: debt.pending_bytes,
                slow_at: config.debt_delay_bytes,
                stop_at: config.debt_stop_bytes,
            },
        ];
        debts.extend(self.space_debt());
        let now = pressure(&debts);
        let [before, now] = [self.pressure.replace(now), now].map(|pressure| pressure.to_string());
        if before != now {
            self.events.post(|| What::Pressure { before, now });
        }
    }

    /// What the sealed memtables of several keyspaces, which share the write buffers' budget, come to, in tenths of those
    /// that one keyspace may have. Half of the budget is the open ones' then.
    fn sealed_together(&self) -> u64 {
        let keyspaces = self.keyspaces.load();
        if !keyspaces.are_several() {
            return 0;
        }
        let sealed_bytes: u64 = keyspaces
            .iter()
            .map(|one| one.peek().imms.iter().map(|imm| imm.memory_bytes()).sum::<u64>())
            .sum();
        let open = (self.config.memtables_max.saturating_sub(1) - self.config.memtables_max / 2) as u64 * 10;
        let sealed = sealed_bytes.saturating_mul(10) / self.config.memtable_bytes.max(1);
        if sealed == 0 { 0 } else { sealed.saturating_add(open) }
    }

    /// What the fast tier must have free for the writes let in so far to reach a table: the tables of the sealed
    /// memtables, and log and table of the active one. Compactions leave it alone, or a flush would find no room.
    pub(crate) fn flush_need_bytes(&self) -> u64 {
        let table = |bytes: u64| bytes.saturating_add(flush_slack_bytes(bytes));
        let keyspaces = self.keyspaces.load();
        let sealed: u64 = keyspaces
            .iter()
            .map(|one| one.peek().imms.iter().map(|imm| imm.memory_bytes()).sum::<u64>())
            .filter(|&bytes| bytes > 0)
            .map(table)
            .sum();
        let memtable = self.config.memtable_bytes;
        // What large batches have put into active memtables beyond their size has its log already, and no table.
        let over = keyspaces.iter().map(|one| one.peek().mem.memory_bytes().saturating_sub(memtable));
        sealed.saturating_add(table(memtable + over.sum::<u64>())).saturating_add(memtable)
    }

    /// The fast tier's want of room for another memtable's log and table.
    pub(crate) fn space_debt(&self) -> Option<Debt> {
        let available = self.space.available(Tier::Fast, Priority::Essential)?;
        let step = self.config.memtable_bytes.saturating_mul(2).max(1);
        Some(Debt {
            reason: Reason::FastSpace,
            amount: self.comfortable_bytes().saturating_sub(available),
            slow_at: 0,
            stop_at: step,
        })
    }

    /// Free bytes of the fast tier below which writers are delayed.
    pub(crate) fn comfortable_bytes(&self) -> u64 {
        self.flush_need_bytes().saturating_add(self.config.memtable_bytes.saturating_mul(2).max(1))
    }
}

/// What a table may take beyond the `bytes` of the memtables it is made of: filter, index, tail, the disk block it ends in.
pub(crate) const fn flush_slack_bytes(bytes: u64) -> u64 {
    bytes / 8 + (8 << 10)
}
