//! The seeded bugs: where each stands in the code says its `seeded_bug!`; here stands the hazard it is a case of, and the test that
//! was written for that hazard. Run by `mod.rs` beside.

use super::Suite::{self, Crash, Faults, Kills, Linear, Lsm, Ralt, Rot, Soak, Trust};

/// A deliberate defect.
pub(super) struct Bug {
    /// As `seeded_bug!` names it.
    pub(super) name: &'static str,
    /// The hazard (DESIGN section 13, or an invariant).
    pub(super) hazard: &'static str,
    /// Where the test is that must find it.
    pub(super) suite: Suite,
    /// The test's name.
    pub(super) test: &'static str,
}

const fn bug(name: &'static str, hazard: &'static str, suite: Suite, test: &'static str) -> Bug {
    Bug { name, hazard, suite, test }
}

const DELETED: &str = "a deleted key read again after promotion";
const SNAPSHOTS: &str = "snapshots and the promotion cache";
const RACES: &str = "promotion racing with a compaction";
const CLAIMS: &str = "claims (C2 to C7)";
const BOUNDARY: &str = "what a boundary compaction keeps (H1, H2, H7)";
const LOST: &str = "a record lost between the tiers (H11)";
const EXPIRY: &str = "expired records";
const TRACKER: &str = "a tracker's files that are not ours";
const ADVISORY: &str = "copies are advisory";
const ACKNOWLEDGED: &str = "acknowledged at a level it has not reached";
const ATOMIC: &str = "compare-and-set beside other writers";
const LIMITS: &str = "memory and capacity are limits";
const LEFT_OVER: &str = "what a fault leaves behind adds up";
const DAMAGE: &str = "damage is told, and nothing stale is given out for it";

/// All of them, by hazard.
pub(super) const BUGS: &[Bug] = &[
    bug(
        "deletion-taken-for-absence",
        DELETED,
        Lsm,
        "promotion::hazards_tests::a_promoted_key_that_is_deleted_stays_deleted_wherever_the_deletion_is",
    ),
    bug(
        "range-tombstone-is-looked-past",
        DELETED,
        Lsm,
        "promotion::hazards_tests::a_promoted_key_that_is_deleted_stays_deleted_wherever_the_deletion_is",
    ),
    bug(
        "range-tombstone-in-memory-is-looked-past",
        DELETED,
        Lsm,
        "promotion::hazards_tests::a_promoted_key_that_is_deleted_stays_deleted_wherever_the_deletion_is",
    ),
    bug(
        "cache-asked-above-the-fast-levels",
        DELETED,
        Lsm,
        "promotion::hazards_tests::a_promoted_key_that_is_deleted_stays_deleted_wherever_the_deletion_is",
    ),
    bug(
        "table-range-without-tombstones",
        "the extents of range tombstones (H5)",
        Lsm,
        "promotion::hazards_tests::a_promoted_key_that_is_deleted_stays_deleted_wherever_the_deletion_is",
    ),
    bug(
        "snapshot-read-fills-the-cache",
        SNAPSHOTS,
        Lsm,
        "promotion::hazards_tests::snapshots_are_answered_by_records_of_their_time_and_insert_none",
    ),
    bug(
        "cache-serves-older-snapshots",
        SNAPSHOTS,
        Lsm,
        "promotion::hazards_tests::snapshots_are_answered_by_records_of_their_time_and_insert_none",
    ),
    bug(
        "insertion-above-what-was-hidden",
        SNAPSHOTS,
        Lsm,
        "promotion::hazards_tests::a_read_of_many_keys_at_a_moment_before_its_view_does_not_insert_what_is_hidden_below",
    ),
    bug(
        "insertion-from-fast-levels",
        "only what the slow levels answer is inserted (C5)",
        Lsm,
        "promotion::hazards_tests::only_values_of_slow_levels_are_inserted",
    ),
    bug(
        "insertion-under-a-claim",
        RACES,
        Lsm,
        "promotion::hazards_tests::a_read_that_pauses_until_a_newer_version_is_about_to_come_down_inserts_nothing",
    ),
    bug(
        "insertion-of-what-was-compacted",
        RACES,
        Lsm,
        "promotion::hazards_tests::a_compaction_within_the_slow_tier_leaves_what_it_moved_in_and_what_was_read_before_out",
    ),
    bug(
        "tables-marked-not-compared",
        RACES,
        Lsm,
        "promotion::hazards_tests::a_read_that_pauses_while_a_newer_version_reaches_an_empty_slow_level_inserts_nothing",
    ),
    bug(
        "gate-left-after-the-look",
        RACES,
        Lsm,
        "promotion::tests::no_claim_comes_between_the_look_and_the_insertion",
    ),
    bug(
        "claim-takes-nothing-out",
        CLAIMS,
        Lsm,
        "promotion::hazards_tests::a_newer_version_that_comes_down_takes_the_record_out",
    ),
    bug(
        "claim-leaves-what-is-frozen",
        CLAIMS,
        Lsm,
        "promotion::tests::a_claim_takes_out_what_is_frozen_and_it_does_not_come_back",
    ),
    bug(
        "thaw-of-what-a-claim-took",
        CLAIMS,
        Lsm,
        "promotion::tests::a_claim_takes_out_what_is_frozen_and_it_does_not_come_back",
    ),
    bug(
        "claim-without-its-last-key",
        CLAIMS,
        Lsm,
        "promotion::tests::a_claim_takes_its_range_out_in_order_and_keeps_it_out_until_it_is_released",
    ),
    bug(
        "claim-forgets-range-tombstones",
        CLAIMS,
        Lsm,
        "promotion::hazards_tests::a_read_inserts_nothing_where_a_range_tombstone_comes_down",
    ),
    bug(
        "claim-released-early",
        CLAIMS,
        Lsm,
        "promotion::hazards_tests::a_read_that_pauses_until_a_newer_version_is_about_to_come_down_inserts_nothing",
    ),
    bug(
        "what-expires-is-not-claimed-where-it-moves",
        CLAIMS,
        Lsm,
        "promotion::compaction_tests::a_record_that_may_have_expired_below_does_not_come_back_from_a_claim",
    ),
    bug(
        "put-back-after-the-install",
        CLAIMS,
        Lsm,
        "promotion::hazards_tests::a_newer_version_that_comes_down_takes_the_record_out",
    ),
    bug(
        "put-back-without-the-check",
        CLAIMS,
        Lsm,
        "promotion::tests::what_another_claim_covered_meanwhile_does_not_come_back",
    ),
    bug(
        "promotion-beyond-the-fast-input",
        CLAIMS,
        Lsm,
        "promotion::compaction_tests::only_what_something_newer_may_meet_is_promoted_by_a_compaction",
    ),
    bug(
        "dropped-keyspace-keeps-its-cache",
        CLAIMS,
        Lsm,
        "promotion::hazards_tests::a_dropped_keyspace_keeps_no_record_and_takes_none",
    ),
    bug(
        "slow-compaction-beside-a-promotion",
        "promotion by flush (PF1, H3)",
        Lsm,
        "promotion::flush_tests::no_compaction_of_the_slow_tier_begins_while_a_promotion_is_under_way",
    ),
    bug(
        "promotion-into-level-zero",
        "promotion racing with a flush (H2)",
        Lsm,
        "promotion::compaction_tests::a_promotion_by_flush_never_hides_what_lies_in_a_fast_level",
    ),
    bug(
        "sealed-memtable-behind-older-ones",
        "promotion racing with a memtable switch",
        Lsm,
        "promotion::compaction_tests::a_promoted_key_is_answered_by_the_newest_of_several_sealed_memtables",
    ),
    bug(
        "guarded-entry-goes-down",
        BOUNDARY,
        Lsm,
        "compaction::job::boundary_tests::boundary_compactions_that_keep_and_promote_what_is_hot_change_nothing_that_anybody_sees",
    ),
    bug(
        "lifted-over-a-run",
        BOUNDARY,
        Lsm,
        "promotion::compaction_tests::what_lies_above_an_older_copy_is_not_handed_up",
    ),
    bug(
        "lifted-value-stays-behind",
        LOST,
        Lsm,
        "compaction::job::boundary_tests::boundary_compactions_that_keep_and_promote_what_is_hot_change_nothing_that_anybody_sees",
    ),
    bug(
        "lifted-without-the-install",
        CLAIMS,
        Lsm,
        "promotion::compaction_tests::a_compaction_that_fails_hands_nothing_up",
    ),
    bug(
        "deletion-dropped-above-a-copy",
        BOUNDARY,
        Lsm,
        "compaction::job::boundary_tests::boundary_compactions_that_keep_and_promote_what_is_hot_change_nothing_that_anybody_sees",
    ),
    bug(
        "older-version-retained",
        BOUNDARY,
        Lsm,
        "compaction::job::boundary_tests::boundary_compactions_that_keep_and_promote_what_is_hot_change_nothing_that_anybody_sees",
    ),
    bug(
        "retained-beneath-a-range-tombstone",
        BOUNDARY,
        Lsm,
        "compaction::job::boundary_tests::boundary_compactions_that_keep_and_promote_what_is_hot_change_nothing_that_anybody_sees",
    ),
    bug(
        "slow-record-moves-up",
        BOUNDARY,
        Lsm,
        "compaction::job::boundary_tests::boundary_compactions_that_keep_and_promote_what_is_hot_change_nothing_that_anybody_sees",
    ),
    bug(
        "cold-copy-goes-down",
        BOUNDARY,
        Lsm,
        "compaction::job::boundary_tests::boundary_compactions_that_keep_and_promote_what_is_hot_change_nothing_that_anybody_sees",
    ),
    bug(
        "copy-hides-its-original",
        BOUNDARY,
        Lsm,
        "compaction::job::boundary_tests::boundary_compactions_that_keep_and_promote_what_is_hot_change_nothing_that_anybody_sees",
    ),
    bug(
        "range-tombstone-passes-copies",
        BOUNDARY,
        Lsm,
        "promotion::compaction_tests::a_range_deletion_that_crosses_the_boundary_takes_the_copies_it_meets_with_it",
    ),
    bug(
        "last-run-guards-nothing",
        BOUNDARY,
        Lsm,
        "promotion::compaction_tests::what_is_newer_than_a_copy_stays_above_it_when_its_table_goes_down",
    ),
    bug(
        "unreadable-run-guards-nothing",
        "an error taken for absence",
        Lsm,
        "promotion::compaction_tests::a_run_that_cannot_be_opened_guards_every_key_of_its_range",
    ),
    bug(
        "stale-copy-survives-its-merge",
        "runs merged though the fast levels hold something newer",
        Lsm,
        "promotion::compaction_tests::a_merge_of_runs_drops_the_copies_of_what_was_written_since",
    ),
    bug(
        "iterator-yields-a-copy-and-its-original",
        "an iterator that meets a copy",
        Lsm,
        "db::copies_tests::a_copy_answers_from_the_fast_tier_and_every_key_is_seen_once",
    ),
    bug(
        "error-taken-for-absence",
        "an error taken for absence",
        Lsm,
        "promotion::hazards_tests::a_lookup_that_fails_inserts_nothing",
    ),
    bug(
        "expired-record-served-by-the-cache",
        EXPIRY,
        Lsm,
        "promotion::hazards_tests::a_promoted_record_expires_in_its_time_and_uncovers_nothing",
    ),
    bug(
        "promotion-without-expiry",
        EXPIRY,
        Lsm,
        "promotion::hazards_tests::a_promoted_record_expires_in_its_time_and_uncovers_nothing",
    ),
    bug(
        "put-back-of-what-may-have-expired",
        EXPIRY,
        Lsm,
        "promotion::compaction_tests::a_record_that_may_have_expired_below_does_not_come_back_from_a_claim",
    ),
    bug(
        "expired-copy-is-kept",
        EXPIRY,
        Lsm,
        "compaction::job::golden_tests::compactions_match_their_golden_texts",
    ),
    bug("tiers-in-two-edits", LOST, Crash, "every_image_of_a_power_loss_opens_and_keeps_what_was_promised"),
    bug(
        "only-the-slow-directory-is-synced",
        LOST,
        Crash,
        "every_image_of_a_power_loss_opens_and_keeps_what_was_promised",
    ),
    bug(
        "inputs-obsolete-before-the-edit",
        LOST,
        Faults,
        "whatever_io_fails_no_answer_is_wrong_and_nothing_acknowledged_is_lost",
    ),
    bug(
        "checkpoint-without-copies",
        "a checkpoint during promotion",
        Lsm,
        "db::copies_tests::check_and_checkpoint_take_copies_as_they_are",
    ),
    bug(
        "copy-is-needed",
        ADVISORY,
        Lsm,
        "promotion::flush_tests::a_run_that_is_damaged_or_cannot_be_read_costs_speed_and_nothing_else",
    ),
    bug(
        "absent-copies-stay",
        ADVISORY,
        Trust,
        "copies::a_run_whose_file_is_missing_or_cut_off_is_given_up_at_the_opening",
    ),
    bug(
        "damaged-copies-stay",
        ADVISORY,
        Trust,
        "copies::a_damaged_run_is_given_up_by_the_merge_that_meets_it_and_the_others_stay",
    ),
    bug(
        "room-is-not-given-back",
        LIMITS,
        Lsm,
        "promotion::hazards_tests::its_memory_is_bounded_and_counted_and_comes_back",
    ),
    bug(
        "merge-holds-what-it-passed",
        LIMITS,
        Lsm,
        "promotion::flush_tests::a_merge_of_runs_that_ends_for_want_of_room_goes_on_where_it_ended",
    ),
    bug(
        "full-hot-level-stays-full",
        LIMITS,
        Lsm,
        "promotion::flush_tests::a_hotspot_that_moves_takes_the_place_of_the_old_one_though_nobody_writes",
    ),
    bug(
        "copies-go-while-a-promotion-runs",
        LIMITS,
        Lsm,
        "promotion::flush_tests::no_copy_gives_way_to_writers_while_what_would_make_room_only_waits_for_a_promotion",
    ),
    bug(
        "room-that-reads-hold-is-not-awaited",
        LIMITS,
        Lsm,
        "promotion::flush_tests::no_copy_gives_way_for_the_room_that_a_read_still_holds_unless_it_holds_it_for_long",
    ),
    bug(
        "merge-step-cuts-a-table",
        LIMITS,
        Lsm,
        "compaction::pick::hot::tests::no_step_of_a_merge_reads_more_than_is_set_aside_for_one",
    ),
    bug(
        "merge-step-forgets-what-began-before",
        LIMITS,
        Lsm,
        "compaction::pick::hot::tests::no_step_of_a_merge_reads_more_than_is_set_aside_for_one",
    ),
    bug(
        "removal-is-not-tried-again",
        LEFT_OVER,
        Trust,
        "slow_away::files_that_could_not_be_removed_while_the_slow_tier_was_away_go_once_it_is_back",
    ),
    bug(
        "failed-flush-keeps-its-room",
        LEFT_OVER,
        Soak,
        "a_store_at_work_keeps_its_promises_through_every_fault",
    ),
    bug(
        "promotion-without-room",
        LIMITS,
        Lsm,
        "promotion::storm_tests::with_the_fast_tier_full_nothing_is_promoted_and_the_capacity_holds",
    ),
    bug(
        "acknowledged-before-it-is-written",
        ACKNOWLEDGED,
        Kills,
        "what_was_acknowledged_outlives_the_process",
    ),
    bug("conflicts-are-passed-over", ATOMIC, Linear, "concurrent_calls_take_effect_one_after_the_other"),
    bug(
        "block-checksum-without-its-place",
        DAMAGE,
        Rot,
        "whatever_rots_no_answer_is_wrong_and_what_is_rescued_is_right",
    ),
    bug(
        "damaged-log-ends-torn",
        DAMAGE,
        Rot,
        "whatever_rots_no_answer_is_wrong_and_what_is_rescued_is_right",
    ),
    bug(
        "last-edit-without-a-mark",
        DAMAGE,
        Trust,
        "damage::a_flip_in_the_edit_of_the_last_flush_is_damage_and_no_flush_that_did_not_happen",
    ),
    bug(
        "salvage-ignores-doubt",
        DAMAGE,
        Rot,
        "whatever_rots_no_answer_is_wrong_and_what_is_rescued_is_right",
    ),
    bug(
        "salvage-takes-lost-tombstones-for-none",
        DAMAGE,
        Rot,
        "whatever_rots_no_answer_is_wrong_and_what_is_rescued_is_right",
    ),
    bug(
        "foreign-tracker-is-believed",
        TRACKER,
        Trust,
        "hotness::whatever_lies_in_its_directory_the_store_opens_and_answers_the_same",
    ),
    bug(
        "tracker-of-the-future-is-believed",
        TRACKER,
        Ralt,
        "state::tests::a_state_of_another_format_is_not_read",
    ),
    bug(
        "damaged-tracker-is-believed",
        TRACKER,
        Ralt,
        "state::tests::a_state_with_any_byte_changed_is_not_read",
    ),
    bug(
        "logs-behind-a-gap-stay",
        ACKNOWLEDGED,
        Trust,
        "power::openings_that_write_nothing_miss_no_log_behind_a_gap",
    ),
    bug(
        "a-close-that-loses-writes-ends-well",
        ACKNOWLEDGED,
        Trust,
        "sync_failed::a_close_says_so_if_it_loses_writes_that_were_acknowledged_in_memory",
    ),
];
