//! Merges of the hot level's runs (DESIGN section 6), step by step.
//!
//! A step merges a range of keys of all the plan's runs into the run that is the largest of them, in place of the tables that this
//! one has there, and is installed by itself. Tables that the steps have passed leave with it.
//!
//! Invariants
//! - HM1 After each step the version is sound: the run's tables are disjoint, since a step writes only between the first keys of
//!   two of its tables. What lies in a table not passed yet is there twice, which copies may be (H1).
//! - HM2 A merge that ends early, by a failure, a crash or for want of room, leaves what it has done; nothing is undone, and the next merge of
//!   these tables begins where it ended (`pick/hot.rs`).
//! - HM3 No more room is taken than the plan says: a step, and a table of each other run.
//!
//! Tests: `promotion/flush_tests.rs`, the model test.

use std::sync::Arc;

use bytes::Bytes;
use kelvin_base::{Result, Tier, seeded_bug};

use crate::compaction::job::JobStats;
use crate::compaction::pick::Plan;
use crate::db::engine::Engine;
use crate::promotion::Exchange;
use crate::space::{Priority, Reservation};
use crate::told;
use crate::version::{CooledAt, Edit, TableFile};
use crate::view::KeyspaceState;

/// Tables that a merge has still to read, with their levels.
type Left = Vec<(usize, Arc<TableFile>)>;

impl Engine {
    /// Merges the runs of `plan` step by step, and leaves it the tables that no step has passed.
    ///
    /// # Errors
    /// What kept a step from being done; its inputs stay as they are.
    pub(crate) fn merge_runs(
        &self,
        keyspace: &KeyspaceState,
        plan: &mut Plan,
        reservations: &mut [Reservation],
    ) -> Result<()> {
        if plan.keeps_hot {
            self.hotness.tracker().catch_up();
        }
        let planned = told::of_plan(keyspace, plan);
        // HM3: the plan holds no table that the steps have passed, so that its file can go.
        let mut left: Left = plan.tables().map(|(level, file)| (level, Arc::clone(file))).collect();
        if !seeded_bug!("merge-holds-what-it-passed") {
            plan.inputs.iter_mut().for_each(|(_, files)| files.clear());
        }
        let done = self.merge_steps(keyspace, plan, &mut left, reservations);
        for (of, files) in &mut plan.inputs {
            files.extend(left.iter().filter(|(level, _)| level == of).map(|(_, file)| Arc::clone(file)));
        }
        let (tables, stats) = done?;
        self.events.post(|| told::done(planned, false, tables, &stats));
        Ok(())
    }

    /// All steps for which there is room; how many tables they made, and their figures.
    fn merge_steps(
        &self,
        keyspace: &KeyspaceState,
        plan: &Plan,
        left: &mut Left,
        reservations: &mut [Reservation],
    ) -> Result<(usize, JobStats)> {
        let (mut tables, mut stats) = (0, JobStats::default());
        for step in 0..=plan.boundaries.len() {
            let from = step.checked_sub(1).map_or(Some(&plan.smallest), |before| plan.boundaries.get(before));
            let to = plan.boundaries.get(step);
            if step > 0 && !self.grow_for_step(plan, reservations) {
                break;
            }
            let (made, done) = self.merge_step(keyspace, plan, (from, to), left, reservations)?;
            tables += made;
            stats.add(&done);
        }
        Ok((tables, stats))
    }

    /// This moment, for a table of the hot level without anything cold or stale.
    pub(crate) fn cooled_now(&self) -> CooledAt {
        CooledAt::new(self.hotness.tracker().turn(), self.means.clean_turn())
    }

    /// Sets room aside for the next step; false if there is none, which ends the merge.
    fn grow_for_step(&self, plan: &Plan, reservations: &mut [Reservation]) -> bool {
        reservations.iter_mut().all(|one| {
            let more = plan.step_bytes.saturating_sub(one.left_bytes());
            one.grow(more, Priority::Essential).is_ok()
        }) && !self.is_closing()
    }

    /// One step; how many tables it made, and its figures.
    fn merge_step(
        &self,
        keyspace: &KeyspaceState,
        plan: &Plan,
        (from, to): (Option<&Bytes>, Option<&Bytes>),
        left: &mut Left,
        reservations: &mut [Reservation],
    ) -> Result<(usize, JobStats)> {
        let inputs = plan.inputs.iter().map(|(level, _)| {
            let meets = |(of, file): &&(usize, Arc<TableFile>)| {
                of == level && file.meta.meets(from.map(Bytes::as_ref), to.map(Bytes::as_ref))
            };
            (*level, left.iter().filter(meets).map(|(_, file)| Arc::clone(file)).collect())
        });
        let step = Plan { inputs: inputs.collect(), boundaries: Vec::new(), step_bytes: 0, ..plan.clone() };
        let before = step.tables().map(|(_, file)| file.cooled_at()).min();
        let cooled_at = if plan.keeps_hot { Some(self.cooled_now()) } else { before };
        let (metas, stats) =
            self.merge(keyspace, &step, Exchange::default(), (from.cloned(), to.cloned()))?;
        let is_passed = |(_, file): &(usize, Arc<TableFile>)| {
            to.is_none_or(|to| file.meta.largest.as_ref() < to.as_ref())
        };
        let (passed, kept): (Left, Left) = left.drain(..).partition(is_passed);
        *left = kept;
        let mut edit = Edit::default();
        for (level, file) in &passed {
            edit.remove(plan.keyspace, *level, file.meta.number);
        }
        for meta in &metas {
            edit.add(plan.keyspace, plan.output_level, meta.clone());
        }
        self.account_tables(reservations, &metas);
        let consumed: Vec<_> = passed.into_iter().map(|(_, file)| file).collect();
        self.install_or_remove(keyspace, edit, &[], &metas, &consumed)?;
        if let Some(to) = to {
            let is_begun = |file: &&Arc<TableFile>| file.meta.smallest < *to;
            left.iter().map(|(_, file)| file).filter(is_begun).for_each(|file| file.set_merged_to(to));
        }
        let version = &keyspace.peek().version;
        for meta in metas.iter().filter(|meta| meta.tier == Tier::Fast) {
            let made = version.find(meta.number);
            made.zip(cooled_at).inspect(|((_, file), at)| file.set_cooled_at(*at));
        }
        Ok((metas.len(), stats))
    }
}
