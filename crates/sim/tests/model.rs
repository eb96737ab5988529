//! The same seeded operations under every configuration, against the model.
//!
//! `KELVIN_MODEL_OPS`, `KELVIN_MODEL_SEED` and `KELVIN_MODEL_SEEDS` make a longer run of it.

use kelvin_sim::model::Moved;
use kelvin_sim::settings::{ALL, run};

/// A number from the environment, or its default.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[test]
fn every_configuration_answers_as_the_model_does() {
    let operations = number("KELVIN_MODEL_OPS", 3_000);
    let first = number("KELVIN_MODEL_SEED", 0);
    let mut moved = Moved::default();
    for seed in first..first + number("KELVIN_MODEL_SEEDS", 4) {
        for configuration in &ALL {
            match run(configuration, seed, operations, 150) {
                Ok(one) => moved.add(one),
                Err(mismatch) => panic!("{mismatch}"),
            }
        }
    }
    let Moved { flushed_bytes, promoted_bytes, retained_bytes, lifted_bytes, damaged_tables } = moved;
    assert!(flushed_bytes > 10_000 && promoted_bytes > 1_000 && retained_bytes > 10_000, "{moved:?}");
    assert!(lifted_bytes > 1_000 && damaged_tables > 0, "{moved:?}");
}
