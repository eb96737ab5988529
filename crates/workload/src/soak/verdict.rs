//! What the samples of a soak say of its promises: memory, capacity, growth, times. Tests stand below.
//!
//! Growth and drift are medians of quarters of the calm samples; the first tenth of the run, in which caches fill, is left out. What a length of
//! time is too short to tell is said and not judged ([`Setup`]).

use super::phase::Phase;
use super::sample::Sample;
use super::setup::Setup;

/// What must not grow may be larger in the last quarter than in the second one by this part.
const GROWTH_MAX: f64 = 0.10;
/// Files that may be open beside that.
const FILES_SLACK: f64 = 16.0;
/// Times may be longer in the last quarter than in the first one by less than this part.
const DRIFT_MAX: f64 = 0.20;
/// Left out at the beginning.
const WARM_UP: f64 = 0.10;

/// A promise and the figures of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What is judged.
    pub name: &'static str,
    /// It holds; `None` where the run is too short to tell.
    pub holds: Option<bool>,
    /// In figures.
    pub says: String,
}

/// The middle one.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// The median of `figure` in each quarter of the calm samples.
fn quarters(samples: &[Sample], figure: impl Fn(&Sample) -> Option<f64>) -> [Option<f64>; 4] {
    let loaded = samples.iter().filter(|sample| sample.phase != Phase::Load);
    let seconds = || loaded.clone().map(|sample| sample.seconds);
    let (Some(first), Some(last)) = (seconds().next(), seconds().next_back()) else { return [None; 4] };
    let from = first + (last - first) * WARM_UP;
    let quarter = (last - from) / 4.0;
    [0.0, 1.0, 2.0, 3.0].map(|number| {
        let begins = from + quarter * number;
        let ends = if number > 2.5 { f64::INFINITY } else { begins + quarter };
        let inside = loaded.clone().filter(|sample| (begins..ends).contains(&sample.seconds));
        median(inside.filter(|sample| sample.phase == Phase::Calm).filter_map(&figure).collect())
    })
}

fn growth(from: Option<f64>, to: Option<f64>) -> Option<f64> {
    from.zip(to).filter(|(from, _)| *from > 0.0).map(|(from, to)| to / from - 1.0)
}

fn percent(part: f64) -> String {
    format!("{:+.1} %", 100.0 * part)
}

const fn judged(holds: bool, is_judged: bool) -> Option<bool> {
    if is_judged { Some(holds) } else { None }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

fn resident(setup: &Setup, samples: &[Sample], own_bytes: u64) -> Verdict {
    // Beside a checkpoint there is a store more.
    let of_one_store = samples.iter().filter(|sample| sample.phase != Phase::Checkpoint);
    let most = of_one_store.map(|sample| sample.resident_bytes).max().unwrap_or(0);
    let limit = setup.resident_limit_bytes() + own_bytes;
    let says = format!(
        "{} resident at most, of {} and a tenth, and {} of the clients' own",
        megabytes(most),
        megabytes(setup.memory),
        megabytes(own_bytes)
    );
    Verdict { name: "memory", holds: judged(most <= limit, setup.judges_resident()), says }
}

fn capacity(setup: &Setup, samples: &[Sample]) -> Verdict {
    let most = samples.iter().map(|sample| sample.used_bytes_max[0]).max().unwrap_or(0);
    let says = format!("{} of {} used at most", megabytes(most), megabytes(setup.fast_capacity));
    Verdict { name: "fast capacity", holds: Some(most <= setup.fast_capacity), says }
}

fn memory_growth(setup: &Setup, samples: &[Sample]) -> Verdict {
    let [_, second, _, last] = quarters(samples, |sample| Some(sample.resident_bytes as f64));
    let grown = growth(second, last);
    let says = grown.map_or("too short to tell".to_owned(), |grown| {
        format!("{} from the second quarter to the last", percent(grown))
    });
    let holds = judged(grown.is_some_and(|grown| grown <= GROWTH_MAX), setup.judges_growth());
    Verdict { name: "growth of memory", holds, says }
}

fn files_growth(setup: &Setup, samples: &[Sample]) -> Verdict {
    let [_, second, _, last] = quarters(samples, |sample| sample.open_files.map(|count| count as f64));
    let name = "growth of open files";
    let Some((second, last)) = second.zip(last) else {
        return Verdict {
            name,
            holds: None,
            says: "the system does not say, or too short to tell".to_owned(),
        };
    };
    let holds = judged(last <= second * (1.0 + GROWTH_MAX) + FILES_SLACK, setup.judges_growth());
    Verdict { name, holds, says: format!("{second:.0} open in the second quarter, {last:.0} in the last") }
}

fn drift(
    setup: &Setup,
    samples: &[Sample],
    name: &'static str,
    figure: fn(&Sample) -> Option<f64>,
) -> Verdict {
    let [first, .., last] = quarters(samples, figure);
    let (holds, says) = match (growth(first, last), first.zip(last)) {
        (Some(drift), Some((first, last))) => (
            judged(drift < DRIFT_MAX, setup.judges_drift()),
            format!("{first:.2} ms in the first quarter, {last:.2} in the last: {}", percent(drift)),
        ),
        _ => (None, "too short to tell".to_owned()),
    };
    Verdict { name, holds, says }
}

fn space(samples: &[Sample]) -> Verdict {
    let [first, .., last] = quarters(samples, Sample::amplification);
    let says = first.zip(last).map_or("too short to tell".to_owned(), |(first, last)| {
        format!("{first:.2} bytes stored for each that is there in the first quarter, {last:.2} in the last")
    });
    Verdict { name: "space", holds: None, says }
}

/// All of them; `own_bytes` is what the clients hold besides the store.
pub fn verdicts(setup: &Setup, samples: &[Sample], own_bytes: u64) -> Vec<Verdict> {
    vec![
        resident(setup, samples, own_bytes),
        capacity(setup, samples),
        memory_growth(setup, samples),
        files_growth(setup, samples),
        drift(setup, samples, "p99 of reads", |sample| sample.reads.p99),
        drift(setup, samples, "p99 of writes", |sample| sample.writes.p99),
        space(samples),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soak::sample::Quantiles;

    const HOUR: u64 = 3_600;

    fn setup() -> Setup {
        Setup::of(HOUR, 1, ["/fast".into(), "/slow".into()])
    }

    fn sample(seconds: u64) -> Sample {
        Sample {
            seconds: seconds as f64,
            phase: if seconds % 100 < 60 { Phase::Calm } else { Phase::SlowHangs },
            resident_bytes: 30 << 20,
            memory_bytes: 20 << 20,
            used_bytes: [60 << 20, 600 << 20],
            used_bytes_max: [64 << 20, 700 << 20],
            live_bytes: 500 << 20,
            reads: Quantiles { per_second: 1e4, p50: Some(0.1), p99: Some(2.0), p999: Some(9.0) },
            writes: Quantiles { per_second: 5e3, p50: Some(0.1), p99: Some(1.0), p999: Some(9.0) },
            refused: [0.0; 2],
            hit_rate: Some(0.9),
            compaction_bytes: 1e6,
            open_files: Some(120),
        }
    }

    fn broken(change: impl Fn(&mut Sample)) -> Vec<&'static str> {
        let samples: Vec<Sample> = (0..HOUR)
            .step_by(6)
            .map(sample)
            .map(|mut one| {
                change(&mut one);
                one
            })
            .collect();
        let verdicts = verdicts(&setup(), &samples, 5 << 20);
        verdicts.iter().filter(|verdict| verdict.holds == Some(false)).map(|verdict| verdict.name).collect()
    }

    #[test]
    fn what_stays_as_it_is_holds_and_what_grows_is_told() {
        let late = |one: &Sample| one.seconds > 3_000.0;
        assert_eq!(broken(|_| {}), Vec::<&str>::new());
        assert_eq!(
            broken(|one| if late(one) {
                one.reads.p99 = Some(2.5)
            }),
            ["p99 of reads"]
        );
        assert_eq!(
            broken(|one| if late(one) {
                one.resident_bytes += 5 << 20
            }),
            ["growth of memory"]
        );
        assert_eq!(
            broken(|one| if one.seconds > 3_500.0 {
                one.resident_bytes += 20 << 20
            }),
            ["memory"]
        );
        assert_eq!(
            broken(|one| if late(one) {
                one.open_files = Some(200)
            }),
            ["growth of open files"]
        );
        assert_eq!(broken(|one| one.used_bytes_max[0] += 1), ["fast capacity"]);
        // Times of faults are no drift.
        assert_eq!(
            broken(|one| if one.phase != Phase::Calm {
                one.reads.p99 = Some(one.seconds)
            }),
            Vec::<&str>::new()
        );
    }

    #[test]
    fn a_short_run_is_not_judged_by_what_it_cannot_tell() {
        let short = Setup::of(20, 1, ["/fast".into(), "/slow".into()]);
        let samples: Vec<Sample> = (0..20).map(sample).collect();
        let verdicts = verdicts(&short, &samples, 0);
        let judged: Vec<_> = verdicts.iter().filter(|one| one.holds.is_some()).map(|one| one.name).collect();
        assert_eq!(judged, ["fast capacity"]);
        assert!(super::verdicts(&short, &[], 0).iter().all(|one| one.holds != Some(false)));
    }
}
