//! The same seeded operations under every configuration, against the model.
//!
//! `KELVIN_MODEL_OPS`, `KELVIN_MODEL_SEED` and `KELVIN_MODEL_SEEDS` make a longer run of it, `KELVIN_MODEL_THREADS=1` one of the
//! configurations with threads alone.

use kelvin_sim::model::Moved;
use kelvin_sim::settings::{ALL, compare};

/// A number from the environment, or its default.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[test]
fn every_configuration_answers_as_the_model_does() {
    let operations = number("KELVIN_MODEL_OPS", 3_000);
    let first = number("KELVIN_MODEL_SEED", 0);
    let has_all = number("KELVIN_MODEL_THREADS", 0) == 0;
    let mut moved = Moved::default();
    for seed in first..first + number("KELVIN_MODEL_SEEDS", 4) {
        let configurations = ALL.iter().filter(|one| has_all || one.threads);
        match compare(configurations, (seed, operations, 150), || ()) {
            Ok(one) => moved.add(one.moved),
            Err(mismatch) => panic!("{mismatch}"),
        }
    }
    let Moved { flushed_bytes, promoted_bytes, retained_bytes, lifted_bytes, damaged_tables } = moved;
    assert!(flushed_bytes > 10_000 && retained_bytes > 10_000, "{moved:?}");
    // With threads alone it depends on their turns how much is promoted.
    assert!(!has_all || promoted_bytes > 1_000 && lifted_bytes > 1_000 && damaged_tables > 0, "{moved:?}");
}
