//! What is sampled while a phase runs, and what follows from the samples: totals, the final tenth, one row a second.
//!
//! Invariant: samples are in order of time, and operations never decrease. Figures between two samples are
//! interpolated. Tests stand below.

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
}

#[derive(Clone, Copy)]
struct Point {
    seconds: f64,
    ops: f64,
    reads: f64,
    slow_hits: Option<f64>,
    cpu_seconds: f64,
}

impl From<Sample> for Point {
    fn from(sample: Sample) -> Self {
        Self {
            seconds: sample.seconds,
            ops: sample.ops as f64,
            reads: sample.reads as f64,
            slow_hits: sample.slow_hits.map(|hits| hits as f64),
            cpu_seconds: sample.cpu_seconds,
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
    let Some(next) = samples.iter().position(|&sample| measure(sample.into()) >= goal) else {
        return Some(last);
    };
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

/// One row a second, the last one shorter.
#[must_use]
pub fn rows(samples: &[Sample]) -> Vec<Row> {
    let Some(last) = samples.last() else { return Vec::new() };
    let mut rows = Vec::new();
    let mut from = Point::from(samples[0]);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates: 136 years of rows"
    )]
    let whole = last.seconds.ceil() as u32;
    for second in 1..=whole {
        let goal = f64::from(second).min(last.seconds);
        let Some(to) = point_at(samples, |point| point.seconds, goal) else { break };
        let figures = stretch(from, to);
        // A rest of under a tenth of a second is noise, unless it is all there is.
        if to.seconds - from.seconds > 0.1 || rows.is_empty() {
            rows.push(Row { seconds: to.seconds, ops_per_s: figures.ops_per_s, hit_rate: figures.hit_rate });
        }
        from = to;
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seconds: f64, ops: u64, slow: u64) -> Sample {
        Sample { seconds, ops, reads: ops, slow_hits: Some(slow), cpu_seconds: seconds / 2.0 }
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
        assert_eq!(rows(&samples).len(), 2);
    }

    #[test]
    fn there_is_one_row_a_second() {
        let samples = [sample(0.0, 0, 0), sample(1.5, 150, 150), sample(2.5, 350, 150)];
        let rates: Vec<f64> = rows(&samples).iter().map(|row| row.ops_per_s.round()).collect();
        assert_eq!(rates, [100.0, 150.0, 200.0]);
        assert_eq!(rows(&[]), []);
    }
}
