//! A soak of a few seconds meets each fault and does each kind of operation, and no promise is broken.

use std::collections::BTreeMap;

use kelvin_workload::soak::meter::Kind;
use kelvin_workload::soak::phase::Phase;
use kelvin_workload::soak::setup::Setup;
use kelvin_workload::soak::soak;

#[test]
fn a_store_at_work_keeps_its_promises_through_every_fault() {
    let temporary = tempfile::tempdir().unwrap();
    let dirs = ["fast", "slow"].map(|name| temporary.path().join(name));
    let soaked = soak(Setup::of(3, 1, dirs), &|_| {}).unwrap();
    assert_eq!(soaked.broken(), None, "{soaked:#?}");
    assert!(soaked.seconds >= soaked.setup.seconds, "{} s", soaked.seconds);
    let done: BTreeMap<&str, u64> = soaked.done.iter().copied().collect();
    for kind in Kind::ALL {
        assert!(soaked.count_of(*kind) > 0, "{} was never done: {done:?}", kind.name());
    }
    assert!(soaked.refused.iter().all(|count| *count > 0), "{:?}", soaked.refused);
    for phase in Phase::ROUND {
        assert!(
            soaked.spans.iter().any(|span| span.phase == phase && span.to > Some(span.from)),
            "{phase:?}"
        );
    }
    let last = soaked.samples.last().unwrap();
    assert!(last.live_bytes > soaked.setup.fast_capacity && last.used_bytes[1] > 0, "{last:?}");
    assert!(soaked.samples.iter().any(|sample| sample.reads.p99.is_some() && sample.hit_rate.is_some()));
}
