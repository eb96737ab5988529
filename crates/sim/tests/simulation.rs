//! The whole store in simulated time, with all faults at once, small; `kelvin verify simulation` runs it at any size.

use kelvin_sim::simulation::{Case, Tally, run};

const STEPS: u64 = 3_000;

fn simulate(seeds: std::ops::Range<u64>) -> Tally {
    let mut tally = Tally::default();
    for seed in seeds {
        let case = Case::new(seed, STEPS);
        tally.add(run(&case).unwrap_or_else(|failure| panic!("{case}: {}", failure.what)));
    }
    tally
}

#[test]
fn through_faults_and_crashes_answers_are_right() {
    let tally = simulate(0..8);
    eprintln!("{tally}");
    assert!(tally.refused > 0 && tally.crashes > 8 && tally.crashes_opening > 0, "{tally}");
    assert!(tally.moved.flushed_bytes > 0 && tally.moved.retained_bytes > 0, "{tally}");
}

#[test]
fn a_case_gives_the_same_trace_again_and_another_seed_another() {
    let trace = |seed| run(&Case::new(seed, STEPS)).map_err(|failure| failure.what).unwrap();
    assert_eq!(trace(3), trace(3));
    assert_ne!(trace(3).trace, trace(4).trace);
}
