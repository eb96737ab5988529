//! What is sampled while a phase runs, and what follows from the samples: totals, the final tenth, rows of a timeline, and
//! when a figure had come up to its final height.
//!
//! Invariant: samples are in order of time, and operations never decrease. Figures between two samples are
//! interpolated. Tests stand below.

use crate::subject::Traffic;

/// What counts as the end of a phase: from this part of its operations on.
pub const FINAL_FROM: f64 = 0.9;
/// A figure is back at its final height when it has this part of it.
const HEIGHT: f64 = 0.9;
/// Over this part of the operations.
const WINDOW: f64 = 0.02;
/// Seconds that the throughput is averaged over at least: it is noisier than a hit rate.
pub const THROUGHPUT_SECONDS_MIN: f64 = 1.0;

/// How large the set of hot records is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HotSet {
    /// Keys and values of the hot records, bytes.
    pub bytes: u64,
    /// The limit of that, bytes.
    pub limit_bytes: u64,
}

/// The state of a phase at one moment, counted from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Seconds since the phase began.
    pub seconds: f64,
    /// Operations done.
    pub ops: u64,
    /// Of these, reads (gets, scans, read-modify-writes).
    pub reads: u64,
    /// Reads that touched the slow tier; `None` where the system does not say.
    pub slow_hits: Option<u64>,
    /// Processor time of the process, seconds.
    pub cpu_seconds: f64,
    /// The hot set at this moment; `None` for a system that has none.
    pub hot_set: Option<HotSet>,
    /// Bytes moved since the system was opened; `None` where it does not say.
    pub traffic: Option<Traffic>,
}

/// Figures of a stretch of a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stretch {
    /// Operations a second.
    pub ops_per_s: f64,
    /// Share of reads answered without the slow tier; `None` where unknown or nothing was read.
    pub hit_rate: Option<f64>,
    /// Processor time an operation, microseconds.
    pub cpu_us_per_op: f64,
}

/// A row of the time series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Seconds since the phase began, at the row's end.
    pub seconds: f64,
    /// Operations a second during the row.
    pub ops_per_s: f64,
    /// Hit rate during the row.
    pub hit_rate: Option<f64>,
    /// Operations done by the row's end.
    pub ops: u64,
    /// Processor time an operation during the row, microseconds.
    pub cpu_us_per_op: f64,
    /// The hot set at the row's end.
    pub hot_set: Option<HotSet>,
    /// Bytes a second moved during the row.
    pub traffic: Option<Traffic>,
}

/// The moment from which a figure had come up to its final height.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reached {
    /// Operations done before.
    pub ops: u64,
    /// Seconds until then.
    pub seconds: f64,
    /// `ops` as a part of all.
    pub share: f64,
}

#[derive(Clone, Copy)]
struct Point {
    seconds: f64,
    ops: f64,
    reads: f64,
    slow_hits: Option<f64>,
    cpu_seconds: f64,
    hot_set: Option<HotSet>,
    traffic: Option<Traffic>,
}

impl From<Sample> for Point {
    fn from(sample: Sample) -> Self {
        Self {
            seconds: sample.seconds,
            ops: sample.ops as f64,
            reads: sample.reads as f64,
            slow_hits: sample.slow_hits.map(|hits| hits as f64),
            cpu_seconds: sample.cpu_seconds,
            hot_set: sample.hot_set,
            traffic: sample.traffic,
        }
    }
}

/// Puts samples of several threads in order: each figure then never decreases.
pub fn put_in_order(samples: &mut [Sample]) {
    samples.sort_by(|a, b| a.ops.cmp(&b.ops).then(a.seconds.total_cmp(&b.seconds)));
    let mut before = Sample::default();
    for sample in samples {
        // Two threads that sample at once read the figures one by one: they may differ by a moment.
        sample.seconds = sample.seconds.max(before.seconds);
        sample.cpu_seconds = sample.cpu_seconds.max(before.cpu_seconds);
        sample.reads = sample.reads.max(before.reads);
        sample.slow_hits = sample.slow_hits.map(|hits| hits.max(before.slow_hits.unwrap_or(0)));
        before = *sample;
    }
}

/// The point where `measure`, which never decreases, reaches `goal`.
fn point_at(samples: &[Sample], measure: fn(Point) -> f64, goal: f64) -> Option<Point> {
    let (first, last) = (Point::from(*samples.first()?), Point::from(*samples.last()?));
    let next = samples.partition_point(|&sample| measure(sample.into()) < goal);
    if next == samples.len() {
        return Some(last);
    }
    let Some(before) = next.checked_sub(1) else { return Some(first) };
    let (a, b) = (Point::from(samples[before]), Point::from(samples[next]));
    let share = (goal - measure(a)) / (measure(b) - measure(a)).max(f64::MIN_POSITIVE);
    let between = |from: f64, to: f64| from + (to - from) * share;
    Some(Point {
        seconds: between(a.seconds, b.seconds),
        ops: between(a.ops, b.ops),
        reads: between(a.reads, b.reads),
        slow_hits: a.slow_hits.zip(b.slow_hits).map(|(from, to)| between(from, to)),
        cpu_seconds: between(a.cpu_seconds, b.cpu_seconds),
        hot_set: b.hot_set,
        traffic: a.traffic.zip(b.traffic).map(|(from, to)| from.with(&to, between)),
    })
}

fn stretch(from: Point, to: Point) -> Stretch {
    let (ops, reads) = (to.ops - from.ops, to.reads - from.reads);
    let slow = from.slow_hits.zip(to.slow_hits).map(|(from, to)| to - from);
    Stretch {
        ops_per_s: if to.seconds > from.seconds { ops / (to.seconds - from.seconds) } else { 0.0 },
        hit_rate: slow.filter(|_| reads > 0.0).map(|slow| (1.0 - slow / reads).clamp(0.0, 1.0)),
        cpu_us_per_op: if ops > 0.0 { (to.cpu_seconds - from.cpu_seconds) / ops * 1e6 } else { 0.0 },
    }
}

/// Figures of the operations from `share` (0 to 1) of all to the last.
#[must_use]
pub fn from_share(samples: &[Sample], share: f64) -> Stretch {
    let Some(last) = samples.last() else { return Stretch::default() };
    let start = point_at(samples, |point| point.ops, last.ops as f64 * share);
    start.map_or_else(Stretch::default, |start| stretch(start, (*last).into()))
}

/// The samples of the operations from number `from` to number `to`, counted from the first of them.
#[must_use]
pub fn part(samples: &[Sample], from: u64, to: u64) -> Vec<Sample> {
    let ends = |goal: u64| point_at(samples, |point| point.ops, goal as f64);
    let (Some(first), Some(last)) = (ends(from), ends(to)) else { return Vec::new() };
    let inside =
        samples.iter().filter(|sample| (from + 1..to).contains(&sample.ops)).copied().map(Point::from);
    let counted = |point: Point| Sample {
        seconds: point.seconds - first.seconds,
        ops: whole(point.ops - first.ops),
        reads: whole(point.reads - first.reads),
        slow_hits: point.slow_hits.zip(first.slow_hits).map(|(now, then)| whole(now - then)),
        cpu_seconds: point.cpu_seconds - first.cpu_seconds,
        hot_set: point.hot_set,
        traffic: point.traffic,
    };
    std::iter::once(first).chain(inside).chain([last]).map(counted).collect()
}

fn whole(number: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count, saturates")]
    let count = number.round() as u64;
    count
}

/// The first moment from which `figure` was at least 90 % of what it is over the final tenth of the operations, averaged
/// over the fiftieth of all operations that followed, and over `seconds_min` at least. `None` if the samples do not say.
///
/// A dip later does not count against it: stalls are seen in the timeline and in the latencies.
#[must_use]
pub fn reached(samples: &[Sample], seconds_min: f64, figure: fn(&Stretch) -> Option<f64>) -> Option<Reached> {
    let (total, end) = (samples.last()?.ops as f64, samples.last()?.seconds);
    let goal = figure(&from_share(samples, FINAL_FROM)).filter(|&last| last > 0.0)? * HEIGHT;
    let window = |start: &Sample| {
        let (ops, seconds) = (start.ops as f64 + total * WINDOW, start.seconds + seconds_min);
        if ops > total || seconds > end {
            return None;
        }
        let by_ops = point_at(samples, |point| point.ops, ops)?;
        let stop = if by_ops.seconds >= seconds {
            by_ops
        } else {
            point_at(samples, |point| point.seconds, seconds)?
        };
        figure(&stretch((*start).into(), stop))
    };
    let first = samples.iter().find(|start| window(start).is_some_and(|height| height >= goal))?;
    Some(Reached { ops: first.ops, seconds: first.seconds, share: first.ops as f64 / total })
}

/// The timeline: one row a second, four a second in a phase of less than a minute; the last one shorter.
#[must_use]
pub fn rows(samples: &[Sample]) -> Vec<Row> {
    let Some(last) = samples.last() else { return Vec::new() };
    let step = if last.seconds < 60.0 { 0.25 } else { 1.0 };
    let mut rows = Vec::new();
    let mut from = Point::from(samples[0]);
    for number in 1..=whole((last.seconds / step).ceil()) {
        let goal = (number as f64 * step).min(last.seconds);
        let Some(to) = point_at(samples, |point| point.seconds, goal) else { break };
        let figures = stretch(from, to);
        // A rest of under a tenth of a second is noise, unless it is all there is.
        if to.seconds - from.seconds > 0.1 || rows.is_empty() {
            rows.push(Row {
                seconds: to.seconds,
                ops_per_s: figures.ops_per_s,
                hit_rate: figures.hit_rate,
                ops: whole(to.ops),
                cpu_us_per_op: figures.cpu_us_per_op,
                hot_set: to.hot_set,
                traffic: from.traffic.zip(to.traffic).map(|(before, now)| {
                    let seconds = to.seconds - from.seconds;
                    now.with(&before, |now, before| (now - before).max(0.0) / seconds)
                }),
            });
        }
        from = to;
    }
    rows
}

#[cfg(test)]
mod tests {
    use kelvin::Purpose;

    use super::*;

    fn sample(seconds: f64, ops: u64, slow: u64) -> Sample {
        Sample {
            seconds,
            ops,
            reads: ops,
            slow_hits: Some(slow),
            cpu_seconds: seconds / 2.0,
            hot_set: Some(HotSet { bytes: ops, limit_bytes: 10_000 }),
            traffic: Some(Traffic([[ops as f64 * 10.0, slow as f64]; Purpose::ALL.len()])),
        }
    }

    #[test]
    fn the_final_tenth_is_of_operations_and_not_of_time() {
        // 900 operations in 9 s, all slow, then 100 in 0.1 s, a quarter of them slow.
        let samples = [sample(0.0, 0, 0), sample(9.0, 900, 900), sample(9.1, 1000, 925)];
        let last = from_share(&samples, 0.9);
        assert!((last.ops_per_s - 1000.0).abs() < 1e-6);
        assert!((last.hit_rate.unwrap() - 0.75).abs() < 1e-9);
        assert!((last.cpu_us_per_op - 500.0).abs() < 1e-6);
        let whole = from_share(&samples, 0.0);
        assert!((whole.ops_per_s - 1000.0 / 9.1).abs() < 1e-6);
    }

    #[test]
    fn samples_that_crossed_are_put_in_order() {
        let mut samples =
            [sample(0.0, 0, 0), sample(1.0, 200, 90), sample(1.1, 100, 95), sample(2.0, 300, 100)];
        put_in_order(&mut samples);
        assert!(
            samples
                .is_sorted_by(|a, b| a.seconds <= b.seconds && a.ops <= b.ops && a.slow_hits <= b.slow_hits)
        );
        assert_eq!(rows(&samples).len(), 8);
    }

    /// `seconds` of operations at a speed that follows from the second, a tenth of a second each sample; a tenth of all
    /// reads slow before `warm_at`, none after.
    fn run(seconds: u32, warm_at: f64, speed: fn(f64) -> f64) -> Vec<Sample> {
        let mut samples = vec![sample(0.0, 0, 0)];
        let (mut ops, mut slow) = (0.0, 0.0);
        for tenth in 1..=seconds * 10 {
            let at = f64::from(tenth) / 10.0;
            let done = speed(at - 0.05) / 10.0;
            ops += done;
            slow += if at <= warm_at { done * 0.9 } else { done * 0.05 };
            samples.push(sample(at, whole(ops), whole(slow)));
        }
        samples
    }

    #[test]
    fn there_is_one_row_a_second_and_more_of_a_short_phase() {
        let rates: Vec<f64> =
            rows(&run(3, 0.0, |at| at.ceil() * 100.0)).iter().map(|row| row.ops_per_s.round()).collect();
        assert_eq!(
            rates,
            [100.0, 100.0, 100.0, 100.0, 200.0, 200.0, 200.0, 200.0, 300.0, 300.0, 300.0, 300.0]
        );
        let long = rows(&run(70, 0.0, |_| 1000.0));
        assert_eq!((long.len(), long[69].ops), (70, 70_000));
        assert_eq!(long[9].hot_set, Some(HotSet { bytes: 10_000, limit_bytes: 10_000 }));
        // Ten bytes of each operation on the fast tier, one of each slow one on the other.
        let [fast, slow] = long[9].traffic.unwrap().0[0];
        assert!((fast - 10_000.0).abs() < 1.0 && (slow - 50.0).abs() < 1.0, "{fast} {slow}");
        assert_eq!(rows(&[]), []);
    }

    #[test]
    fn the_throughput_has_come_up_when_a_second_of_it_is_nine_tenths_of_the_final() {
        let speed = |samples: &[Sample]| reached(samples, THROUGHPUT_SECONDS_MIN, |one| Some(one.ops_per_s));
        // 1,000 a second for 40 s, then at once 10,000 for 60 s: 640,000 operations, a fiftieth of them takes 1.3 s.
        let step = speed(&run(100, 0.0, |at| if at < 40.0 { 1_000.0 } else { 10_000.0 })).unwrap();
        assert!((39.8..40.0).contains(&step.seconds) && step.ops < 40_000, "{step:?}");
        assert!((step.share - step.ops as f64 / 640_000.0).abs() < 1e-6);
        // A ramp up to 10,000 in 80 s, level after that: at 9,000 after 72 s.
        let ramp = speed(&run(100, 0.0, |at| (at * 125.0).min(10_000.0))).unwrap();
        assert!((71.0..72.0).contains(&ramp.seconds), "{ramp:?}");
        // A leap of half a second is not yet it.
        let leap = |at: f64| if (10.0..10.5).contains(&at) || at > 50.0 { 8_000.0 } else { 1_000.0 };
        assert!((49.0..50.0).contains(&speed(&run(100, 0.0, leap)).unwrap().seconds));
        // Level from the beginning, and too short to tell.
        assert_eq!(speed(&run(10, 0.0, |_| 500.0)).map(|one| one.ops), Some(0));
        assert_eq!(speed(&run(1, 0.0, |_| 500.0)[..5]), None);
        assert_eq!(speed(&[]), None);
    }

    #[test]
    fn the_hit_rate_has_come_up_at_a_part_of_its_stage() {
        let samples = run(100, 30.0, |_| 1_000.0);
        let hits = |samples: &[Sample]| reached(samples, 0.0, |one| one.hit_rate).unwrap();
        assert!((hits(&samples).share - 0.3).abs() < 0.005, "{:?}", hits(&samples));
        // The same, of a stage that began after 20 of the 100 s, and of one that was warm all the time.
        let stage = part(&samples, 20_000, 100_000);
        assert!((hits(&stage).share - 0.125).abs() < 0.005, "{:?}", hits(&stage));
        assert_eq!((stage[0].ops, stage[0].seconds, stage.last().unwrap().ops), (0, 0.0, 80_000));
        assert_eq!(hits(&part(&samples, 40_000, 100_000)).ops, 0);
    }
}
