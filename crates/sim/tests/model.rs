//! The same seeded operations under every configuration, against the model.
//!
//! `KELVIN_MODEL_OPS`, `KELVIN_MODEL_SEED` and `KELVIN_MODEL_SEEDS` make a longer run of it.

use kelvin_sim::settings::{ALL, run};

/// A number from the environment, or its default.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[test]
fn every_configuration_answers_as_the_model_does() {
    let operations = number("KELVIN_MODEL_OPS", 3_000);
    let first = number("KELVIN_MODEL_SEED", 0);
    for seed in first..first + number("KELVIN_MODEL_SEEDS", 2) {
        for configuration in &ALL {
            if let Err(mismatch) = run(configuration, seed, operations, 150) {
                panic!("{mismatch}");
            }
        }
    }
}
