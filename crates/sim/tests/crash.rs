//! Power lost at persistence points of short sequences and of longer lives.

use kelvin_sim::crash::scenarios::{long, sequences};
use kelvin_sim::crash::{Tally, sampling};

/// Images of the sample; `KELVIN_CRASH_IMAGES` for more.
fn images() -> u64 {
    std::env::var("KELVIN_CRASH_IMAGES").ok().and_then(|images| images.parse().ok()).unwrap_or(6_000)
}

#[test]
fn every_image_of_a_power_loss_opens_and_keeps_what_was_promised() {
    let sampling = sampling(1, Some(images()));
    let mut tally = Tally::default();
    for scenario in sequences(2).chain(long(1)) {
        match scenario.run(sampling) {
            Ok(one) => tally.add(one),
            Err(what) => panic!("{what}"),
        }
    }
    assert!(tally.images > 100, "{tally:?}");
    assert!(tally.moved_bytes.iter().all(|bytes| *bytes > 1_000), "promoted twice over, retained: {tally:?}");
}
