//! Bytes of files rot, and no answer is wrong.

use kelvin_sim::rot::{Tally, run};

/// Harms: a few seconds' worth, unless `KELVIN_ROT_HARMS` says otherwise.
fn budget() -> u64 {
    std::env::var("KELVIN_ROT_HARMS").ok().and_then(|harms| harms.parse().ok()).unwrap_or(4_000)
}

#[test]
fn whatever_rots_no_answer_is_wrong_and_what_is_rescued_is_right() {
    match run(budget(), 0, &|_| {}) {
        Ok(tally) => {
            let Tally { harms, refused, errors, rescued, doubtful, .. } = tally;
            assert!(
                harms == budget() && refused > 100 && errors > 100 && rescued > 1_000 && doubtful > 1_000,
                "{tally:?}"
            );
        }
        Err(found) => panic!("harm {}: {}", found.number, found.what),
    }
}
