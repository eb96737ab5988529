//! What each stage of the dynamic workload came to (HotRAP §4.6, Figure 15). Tests stand below.

use serde_json::{Value, json};

use crate::generate::stages::{STAGES, start};
use crate::samples::{FINAL_FROM, HotSet, Reached, Sample, Stretch, from_share, part, reached};

/// A stage in figures.
#[derive(Clone, Debug, PartialEq)]
pub struct StageFigures {
    /// What it is called.
    pub name: &'static str,
    /// Its first operation.
    pub from_op: u64,
    /// Its operations.
    pub ops: u64,
    /// How long it took, seconds.
    pub seconds: f64,
    /// All of it.
    pub whole: Stretch,
    /// The final tenth of its operations.
    pub last10: Stretch,
    /// From when on the hit rate was at least 90 % of that of the final tenth.
    pub hits_reached: Option<Reached>,
    /// The hot set at its end.
    pub hot_set: Option<HotSet>,
}

/// The stages that `samples` of a run of `total` operations hold.
#[must_use]
pub fn figures(samples: &[Sample], total: u64) -> Vec<StageFigures> {
    let done = samples.last().map_or(0, |last| last.ops);
    let stage = |(index, stage): (usize, &crate::generate::stages::Stage)| {
        let (from, to) = (start(index, total), start(index + 1, total));
        let samples = (to <= done && from < to).then(|| part(samples, from, to))?;
        Some(StageFigures {
            name: stage.name,
            from_op: from,
            ops: to - from,
            seconds: samples.last()?.seconds,
            whole: from_share(&samples, 0.0),
            last10: from_share(&samples, FINAL_FROM),
            hits_reached: reached(&samples, 0.0, |one| one.hit_rate),
            hot_set: samples.last()?.hot_set,
        })
    };
    STAGES.iter().enumerate().map_while(stage).collect()
}

impl StageFigures {
    /// For machines.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "stage": self.name,
            "from_op": self.from_op,
            "ops": self.ops,
            "seconds": self.seconds,
            "ops_per_s": self.whole.ops_per_s,
            "ops_per_s_last10": self.last10.ops_per_s,
            "fast_hit_rate": self.whole.hit_rate,
            "fast_hit_rate_last10": self.last10.hit_rate,
            "hit_rate_90_percent_after": self.hits_reached.map(|reached| reached.share),
            "hot_set_bytes": self.hot_set.map(|set| set.bytes),
            "hot_set_limit_bytes": self.hot_set.map(|set| set.limit_bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_says_when_its_hit_rate_was_back() {
        // 100 operations a sample, 25,000 in all; reads are slow in the first 5 % of each stage, one of ten after.
        let (total, step) = (25_000, 100);
        let mut samples = vec![Sample { slow_hits: Some(0), ..Sample::default() }];
        let mut slow = 0;
        for number in (0..total).step_by(100) {
            let index = crate::generate::stages::at(number, total);
            let (from, to) = (start(index, total), start(index + 1, total));
            slow += if (number - from) * 20 < to - from { step } else { step / 10 };
            let ops = number + step;
            let hot_set = Some(HotSet { bytes: ops, limit_bytes: 2 * ops });
            let seconds = ops as f64 / 1000.0;
            samples.push(Sample {
                traffic: None,
                seconds,
                ops,
                reads: ops,
                slow_hits: Some(slow),
                cpu_seconds: seconds,
                hot_set,
            });
        }
        let stages = figures(&samples, total);
        assert_eq!(stages.len(), 7);
        assert_eq!(stages.iter().map(|one| one.ops).sum::<u64>(), total);
        for one in &stages {
            assert!((one.last10.hit_rate.unwrap() - 0.9).abs() < 1e-6, "{one:?}");
            let after = one.hits_reached.unwrap().share;
            assert!((0.02..0.11).contains(&after), "{}: {after}", one.name);
            assert_eq!(one.hot_set.unwrap().bytes, one.from_op + one.ops);
        }
        assert_eq!(
            figures(&samples[..100], total).len(),
            3,
            "of a run that was cut short, the stages it ended"
        );
        assert_eq!(stages[3].to_json()["stage"], "grown to 5 %");
    }
}
