//! The same seeded operations under every configuration, against the model.

use kelvin_sim::settings::{ALL, run};

/// Operations of one run; `KELVIN_MODEL_OPS` for more.
fn operations() -> u64 {
    std::env::var("KELVIN_MODEL_OPS").ok().and_then(|ops| ops.parse().ok()).unwrap_or(3_000)
}

#[test]
fn every_configuration_answers_as_the_model_does() {
    for configuration in &ALL {
        for seed in 0..2 {
            if let Err(mismatch) = run(configuration, seed, operations(), 150) {
                panic!("{mismatch}");
            }
        }
    }
}
