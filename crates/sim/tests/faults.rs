//! Every I/O of the scripts fails in turn, in every manner, on either tier.

use kelvin_sim::faults::{Failure, Victim, every_io_fails, scripts};

/// One of so many I/Os fails: every one, unless `KELVIN_FAULT_STRIDE` says otherwise.
fn stride() -> u64 {
    std::env::var("KELVIN_FAULT_STRIDE").ok().and_then(|stride| stride.parse().ok()).unwrap_or(1)
}

#[test]
fn whatever_io_fails_no_answer_is_wrong_and_nothing_acknowledged_is_lost() {
    let mut failures = Vec::new();
    let mut runs = 0;
    for (number, script) in scripts().iter().enumerate() {
        for (kind, failure) in Failure::ALL.into_iter().enumerate() {
            for victim in [Victim::Fast, Victim::Slow] {
                let offset = (number * 9 + kind * 2) as u64;
                match every_io_fails(script, victim, failure, stride(), offset) {
                    Ok(count) => runs += count,
                    Err(what) => failures.push(what),
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} kinds fail:\n{}", failures.len(), failures.join("\n"));
    assert!(runs > 50, "{runs} runs");
}
