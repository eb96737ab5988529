//! A process that writes is killed at any moment, and what it acknowledged is there.

use kelvin_sim::kills::{Killer, Place, Tally};

#[test]
fn what_was_acknowledged_outlives_the_process() {
    let temporary = tempfile::tempdir().unwrap();
    let temporary = temporary.path();
    let mut all = Tally::default();
    for variant in 0..4 {
        let name = format!("store-{variant}");
        let place = Place {
            fast: temporary.join("fast").join(&name),
            slow: temporary.join("slow").join(&name),
            variant,
        };
        let mut killer = Killer::new(&[env!("CARGO_BIN_EXE_killed").into()], place.clone(), 1);
        for _ in 0..6 {
            if let Err(what) = killer.kill() {
                panic!("{what}");
            }
        }
        all.add(killer.tally);
        place.remove();
    }
    assert!(all.kills == 24 && all.acknowledged > 1_000 && all.copies > 0, "{all:?}");
}
