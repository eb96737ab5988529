//! The dynamic workload of HotRAP (§4.6, Figure 15): seven stages, one after the other, each with a hotspot of its own.
//!
//! The hotspot appears, grows twice, moves to records that were cold, and shrinks twice. A larger hotspot holds the
//! smaller one that it follows or that follows it; the two of 5 % have no record in common. Each stage has the same
//! number of operations but the first: it is uniform, each of its reads waits for the slow disk, and a quarter of the
//! operations shows what it is there for (the paper gives it as many as the others). Tests stand below.

/// A stage: which records its hotspot holds, by rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stage {
    /// What it is called in reports.
    pub name: &'static str,
    /// Where its hotspot begins, per cent of the records.
    pub from_percent: f64,
    /// How many records it holds, per cent; 100 is uniform.
    pub hot_percent: f64,
    /// Its operations, in quarters of those of the other stages.
    quarters: u64,
}

const fn stage(name: &'static str, from_percent: f64, hot_percent: f64) -> Stage {
    Stage { name, from_percent, hot_percent, quarters: 4 }
}

/// The stages in their order.
pub const STAGES: [Stage; 7] = [
    Stage { quarters: 1, ..stage("uniform", 0.0, 100.0) },
    stage("hotspot 1 %", 0.0, 1.0),
    stage("grown to 3 %", 0.0, 3.0),
    stage("grown to 5 %", 0.0, 5.0),
    stage("5 % elsewhere", 5.0, 5.0),
    stage("shrunk to 4 %", 5.0, 4.0),
    stage("shrunk to 2 %", 5.0, 2.0),
];

/// Quarters of all stages together.
const QUARTERS: u64 = 25;

/// How many operations make stages of `ops` each, the first of a quarter of that.
#[must_use]
pub const fn operations(ops: u64) -> u64 {
    ops * QUARTERS / 4
}

/// The operation at which stage `index` begins if there are `total` in all; `total` for the index behind the last.
#[must_use]
pub fn start(index: usize, total: u64) -> u64 {
    let quarters: u64 = STAGES.iter().take(index).map(|stage| stage.quarters).sum();
    let start = u128::from(total) * u128::from(quarters) / u128::from(QUARTERS);
    u64::try_from(start).unwrap_or(total)
}

/// The stage of operation `number` of `total`.
#[must_use]
pub fn at(number: u64, total: u64) -> usize {
    (1..STAGES.len()).rev().find(|&index| number >= start(index, total)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_follow_each_other_and_the_first_is_a_quarter_of_the_others() {
        assert_eq!(STAGES.iter().map(|stage| stage.quarters).sum::<u64>(), QUARTERS);
        let total = operations(400);
        assert_eq!(total, 2_500);
        let lengths: Vec<u64> = (0..7).map(|index| start(index + 1, total) - start(index, total)).collect();
        assert_eq!(lengths, [100, 400, 400, 400, 400, 400, 400]);
        for number in 0..total {
            let index = at(number, total);
            assert!((start(index, total)..start(index + 1, total)).contains(&number), "{number}: {index}");
        }
        assert_eq!(at(9, 3), 6, "of fewer operations than stages, too");
    }

    #[test]
    fn a_hotspot_holds_the_one_before_or_after_it_and_the_two_large_ones_are_apart() {
        let range = |index: usize| {
            let stage: Stage = STAGES[index];
            (stage.from_percent, stage.from_percent + stage.hot_percent)
        };
        let holds =
            |large: usize, small: usize| range(large).0 <= range(small).0 && range(small).1 <= range(large).1;
        assert!(holds(2, 1) && holds(3, 2) && holds(4, 5) && holds(5, 6));
        assert!(range(3).1 <= range(4).0);
    }
}
