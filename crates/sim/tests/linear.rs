//! Concurrent histories of the store have an order, whatever moves between the tiers meanwhile.

use kelvin_sim::linear::history::{Tally, run};
use kelvin_sim::linear::schedules;
use kelvin_sim::settings::ALL;

#[test]
fn concurrent_calls_take_effect_one_after_the_other() {
    let mut tally = Tally::default();
    for configuration in ALL.iter().filter(|one| one.threads) {
        match run(configuration, 1, 2_000) {
            Ok(one) => tally.add(one),
            Err(what) => panic!("{what}"),
        }
    }
    let moved = tally.moved;
    assert!(tally.calls > 3 * tally.operations / 2 && moved.flushed_bytes > 1_000, "{tally:?}");
}

#[test]
fn so_they_do_in_any_order_of_the_threads() {
    let mut tally = Tally::default();
    for seed in 0..60 {
        match schedules::run(seed) {
            Ok(one) => tally.add(one),
            Err(what) => panic!("{what}"),
        }
    }
    let moved = tally.moved;
    assert!(tally.inserted > 100 && tally.abandoned > 50 && tally.claimed > 50, "{tally:?}");
    assert!(
        moved.flushed_bytes > 1_000 && moved.promoted_bytes > 100 && moved.retained_bytes > 500,
        "{tally:?}"
    );
}
