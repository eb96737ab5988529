//! The compactions that run now, and what a new one must keep away from. Tests: `tests.rs`.

use bytes::Bytes;

use super::Plan;
use crate::version::FIRST_SLOW;

#[derive(Clone, Debug)]
struct Claim {
    number: u64,
    keyspace: u32,
    levels: Vec<usize>,
    output_level: usize,
    retain_level: Option<usize>,
    smallest: Bytes,
    largest: Bytes,
    input_bytes: Vec<(usize, u64)>,
}

/// The compactions that run now.
#[derive(Clone, Debug, Default)]
pub struct Running {
    claims: Vec<Claim>,
    /// Of the last claim.
    number: u64,
    /// The run of the hot level that a promotion will write: keyspace and level.
    kept_run: Option<(u32, usize)>,
}

impl Running {
    /// Claims the tables and the range of `plan`. Every `begin` needs its [`Running::end`].
    pub fn begin(&mut self, plan: &mut Plan) {
        self.number += 1;
        plan.claim = self.number;
        for (_, file) in plan.tables().chain(plan.leaving()) {
            file.set_being_compacted(true);
        }
        let bytes = |files: &Vec<std::sync::Arc<crate::version::TableFile>>| {
            files.iter().map(|file| file.meta.size_bytes).sum::<u64>()
        };
        self.claims.push(Claim {
            number: self.number,
            keyspace: plan.keyspace,
            levels: plan.inputs.iter().map(|(level, _)| *level).collect(),
            output_level: plan.output_level,
            retain_level: plan.retain_level,
            smallest: plan.smallest.clone(),
            largest: plan.largest.clone(),
            input_bytes: plan.inputs.iter().map(|(level, files)| (*level, bytes(files))).collect(),
        });
    }

    /// Lets go of what `plan` claimed, after its install or its failure.
    pub fn end(&mut self, plan: &Plan) {
        for (_, file) in plan.tables().chain(plan.leaving()) {
            file.set_being_compacted(false);
        }
        self.claims.retain(|claim| claim.number != plan.claim);
    }

    /// How many run.
    #[must_use]
    pub fn len(&self) -> usize {
        self.claims.len()
    }

    /// True if none runs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// How many compactions write slow levels.
    #[must_use]
    pub fn writing_slow(&self) -> usize {
        self.claims.iter().filter(|claim| claim.output_level >= FIRST_SLOW).count()
    }

    /// True if L0 tables of `keyspace` are being merged among themselves.
    pub(super) fn merges_l0(&self, keyspace: u32) -> bool {
        self.claims.iter().any(|claim| claim.keyspace == keyspace && claim.output_level == 0)
    }

    /// True if some compaction reads L0 of `keyspace`.
    pub(super) fn reads_l0(&self, keyspace: u32) -> bool {
        self.claims.iter().any(|claim| claim.keyspace == keyspace && claim.levels.contains(&0))
    }

    /// Bytes of `level` that running compactions take away from it.
    pub(super) fn leaving_bytes(&self, keyspace: u32, level: usize) -> u64 {
        self.claims
            .iter()
            .filter(|claim| claim.keyspace == keyspace && claim.output_level > level)
            .flat_map(|claim| &claim.input_bytes)
            .filter(|(from, _)| *from == level)
            .map(|(_, bytes)| bytes)
            .sum()
    }

    /// Bytes of levels up to `level` that running compactions take below it.
    pub(super) fn leaving_down_to(&self, keyspace: u32, level: usize) -> u64 {
        self.claims
            .iter()
            .filter(|claim| claim.keyspace == keyspace && claim.output_level > level)
            .flat_map(|claim| &claim.input_bytes)
            .filter(|(from, _)| *from <= level)
            .map(|(_, bytes)| bytes)
            .sum()
    }

    /// True if a compaction writes `level` of `keyspace`.
    pub fn outputs(&self, keyspace: u32, level: usize) -> bool {
        self.kept_run == Some((keyspace, level))
            || self.claims.iter().any(|claim| claim.keyspace == keyspace && claim.output_level == level)
    }

    /// Keeps a run of the hot level free for a promotion, in place of the one kept before.
    pub fn keep_run(&mut self, run: Option<(u32, usize)>) {
        self.kept_run = run;
    }

    /// True if a compaction that writes `level` of `keyspace` overlaps `[smallest, largest]`.
    pub(super) fn writes(&self, keyspace: u32, level: usize, smallest: &[u8], largest: &[u8]) -> bool {
        self.claims.iter().any(|claim| {
            claim.keyspace == keyspace
                && (claim.output_level == level || claim.retain_level == Some(level))
                && claim.smallest.as_ref() <= largest
                && smallest <= claim.largest.as_ref()
        })
    }
}
