//! What listeners are told of background work. Tests: `tests/trust/events.rs`.

use kelvin_base::events::{Compaction, Kept, What};

use crate::compaction::job::JobStats;
use crate::compaction::pick::Plan;
use crate::version::level_name;
use crate::view::KeyspaceState;

/// What `plan` is about to do to `keyspace`.
pub fn of_plan(keyspace: &KeyspaceState, plan: &Plan) -> Compaction {
    let from = plan.inputs.iter().find(|(_, files)| !files.is_empty()).map(|(level, _)| *level);
    Compaction {
        keyspace: keyspace.name.clone(),
        reason: plan.reason.name(),
        from: level_name(from.unwrap_or(plan.output_level)),
        to: level_name(plan.output_level),
        tables_in: plan.tables().count() as u64,
        ..Compaction::default()
    }
}

/// Tables of `keyspace` were moved as `plan` says.
pub fn moved(keyspace: &KeyspaceState, plan: &Plan) -> What {
    let tables_out = plan.tables().count() as u64;
    What::Compacted(Box::new(Compaction { is_move: true, tables_out, ..of_plan(keyspace, plan) }))
}

/// Tables of `keyspace` were merged as `plan` says, into `tables_out`.
pub fn merged(keyspace: &KeyspaceState, plan: &Plan, tables_out: usize, stats: &JobStats) -> What {
    done(of_plan(keyspace, plan), plan.retain_level.is_some(), tables_out, stats)
}

/// What was `planned` is done.
pub fn done(planned: Compaction, is_boundary: bool, tables_out: usize, stats: &JobStats) -> What {
    let routed = &stats.routed;
    let kept = Kept {
        retained_records: routed.retained,
        retained_bytes: routed.retained_bytes,
        guarded_records: routed.guarded,
        guarded_bytes: routed.guarded_bytes,
        lifted_records: routed.lifted,
        lifted_bytes: routed.lifted_bytes,
        promoted_records: routed.promoted,
        promoted_bytes: routed.promoted_bytes,
    };
    What::Compacted(Box::new(Compaction {
        tables_out: tables_out as u64,
        read_bytes: stats.read_bytes,
        written_bytes: stats.written_bytes,
        took_ms: u64::try_from(stats.duration.as_millis()).unwrap_or(u64::MAX),
        not_hot_bytes: routed.not_hot_bytes,
        boundary: is_boundary.then_some(kept),
        ..planned
    }))
}
