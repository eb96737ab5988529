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

#[test]
fn another_edition_has_other_bytes_and_a_harm_of_it_has_a_number_of_its_own() {
    let there_are = |seed| match run(1, seed, &|_| {}) {
        Ok(tally) => tally.there_are,
        Err(found) => panic!("harm {}: {}", found.number, found.what),
    };
    // Other bytes compress to other lengths, so there are not as many harms.
    assert_ne!(there_are(17), there_are(1_000_000_017));
    match run(400, 1_000_000_000, &|_| {}) {
        Ok(tally) => assert!(tally.harms == 400 && tally.errors > 10, "{tally:?}"),
        Err(found) => panic!("harm {}: {}", found.number, found.what),
    }
}
