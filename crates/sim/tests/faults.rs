//! Every I/O of the scripts fails in turn, in every manner, on either tier.

use std::sync::Arc;

use kelvin_sim::faults::scripts::{random, scripts};
use kelvin_sim::faults::{Failure, Faults, Tally, Victim};

/// One of so many I/Os fails: `KELVIN_FAULT_STRIDE` says another number.
fn stride() -> u64 {
    std::env::var("KELVIN_FAULT_STRIDE").ok().and_then(|stride| stride.parse().ok()).unwrap_or(3)
}

#[test]
fn whatever_io_fails_no_answer_is_wrong_and_nothing_acknowledged_is_lost() {
    let sites = Arc::default();
    let mut broken = Vec::new();
    let mut tally = Tally::default();
    for (number, script) in scripts().into_iter().chain((0..4).map(random)).enumerate() {
        let counted = Faults::new(&script, &sites).unwrap_or_else(|what| panic!("{what}"));
        for (kind, failure) in Failure::ALL.into_iter().enumerate() {
            for victim in Victim::ALL {
                let first = (number * 9 + kind * 2) as u64 % stride();
                match counted.every(victim, failure, first, stride()) {
                    Ok(one) => tally.add(one),
                    Err((case, what)) => broken.push(format!("{case}: {what}")),
                }
            }
        }
    }
    assert!(broken.is_empty(), "{} kinds fail:\n{}", broken.len(), broken.join("\n"));
    assert!(tally.runs > 50, "{tally:?}");
    eprintln!("{tally:?}, {} calls", sites.calls());
}
