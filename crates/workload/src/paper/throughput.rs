//! Throughput and tail latencies (HotRAP Figures 6, 7 and 8): every contender on every workload.
//!
//! Beside the throughput stands what is possible at all: a read of a cold record waits for the slow disk, so with the hit rate `h`
//! nobody makes more than its reads a second over `1 − h`. Who learns which records are hot has as many operations as the
//! paper's; what the others do, they do from the first second, and fewer show it. Tests stand below, and in `tests.rs`.

use kelvin_base::Result;
use serde_json::Value;

use super::cells::{NONE, figure, percent, rate, ratio, ratio_of};
use super::plan::{Choice, Contender, RunSpec};
use super::scale::{KEY_SIZE, VALUE_SIZE};
use super::{Paper, Plots, Table};
use crate::generate::keys::{HOTSPOT_5, KeyDistribution};
use crate::options::{BenchOptions, System, Workload};
use crate::plot::BarPlot;

/// Zipf's law as the paper has it.
const ZIPF: KeyDistribution = KeyDistribution::Zipf { exponent: 0.99 };
/// Values of records of 200 B.
const SMALL_VALUE: usize = 200 - KEY_SIZE;

/// A workload on keys and records of a kind.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    workload: Workload,
    keys: KeyDistribution,
    value_size: usize,
}

const fn row(workload: Workload, keys: KeyDistribution, value_size: usize) -> Row {
    Row { workload, keys, value_size }
}

/// Records of 1 KiB.
pub const FIGURE_6: [Row; 12] = [
    row(Workload::Ro, HOTSPOT_5, VALUE_SIZE),
    row(Workload::Rw, HOTSPOT_5, VALUE_SIZE),
    row(Workload::Wh, HOTSPOT_5, VALUE_SIZE),
    row(Workload::Uh, HOTSPOT_5, VALUE_SIZE),
    row(Workload::Ro, ZIPF, VALUE_SIZE),
    row(Workload::Rw, ZIPF, VALUE_SIZE),
    row(Workload::Wh, ZIPF, VALUE_SIZE),
    row(Workload::Uh, ZIPF, VALUE_SIZE),
    row(Workload::Ro, KeyDistribution::Uniform, VALUE_SIZE),
    row(Workload::Rw, KeyDistribution::Uniform, VALUE_SIZE),
    row(Workload::Wh, KeyDistribution::Uniform, VALUE_SIZE),
    row(Workload::Uh, KeyDistribution::Uniform, VALUE_SIZE),
];

/// Records of 200 B: the paper, too, shows a part only.
pub const FIGURE_7: [Row; 5] = [
    row(Workload::Ro, HOTSPOT_5, SMALL_VALUE),
    row(Workload::Rw, HOTSPOT_5, SMALL_VALUE),
    row(Workload::Wh, HOTSPOT_5, SMALL_VALUE),
    row(Workload::Ro, KeyDistribution::Uniform, SMALL_VALUE),
    row(Workload::Wh, KeyDistribution::Uniform, SMALL_VALUE),
];

/// The rows of Figure 8: the first four of Figure 6.
pub const HOTSPOTS: [Row; 4] = [FIGURE_6[0], FIGURE_6[1], FIGURE_6[2], FIGURE_6[3]];

impl Row {
    /// What it is called.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} {}", self.workload, self.keys_name())
    }

    fn keys_name(&self) -> &'static str {
        match self.keys {
            KeyDistribution::Uniform => "uniform",
            KeyDistribution::Zipf { .. } => "Zipf 0.99",
            _ => "hotspot-5 %",
        }
    }

    /// What the names of its runs begin with.
    #[must_use]
    pub fn base(&self) -> String {
        let keys = match self.keys {
            KeyDistribution::Uniform => "uniform",
            KeyDistribution::Zipf { .. } => "zipf",
            _ => "hotspot5",
        };
        let size = if self.value_size == VALUE_SIZE { "" } else { "200b-" };
        format!("{size}{}-{keys}", self.workload.name().to_lowercase())
    }

    /// How many times as many records, and operations of those who learn, as of 1 KiB (paper §4.2: as many bytes).
    const fn times(&self) -> u64 {
        (KEY_SIZE + VALUE_SIZE) as u64 / (KEY_SIZE + self.value_size) as u64
    }

    /// The run of `one`.
    fn run(&self, choice: &Choice, one: &Contender) -> RunSpec {
        let (learns, is_fast) = (one.system.learns(), !one.system.is_tiered());
        // Of uniform keys nothing can be learnt, and nearly each read waits; Table 4 has a quarter of the operations.
        let is_table_4 = self.base() == "ro-uniform" && one.system == System::Kelvin;
        let parts = match (self.keys, learns) {
            _ if is_fast => 4 * self.times(),
            (KeyDistribution::Uniform, _) if is_table_4 => 4,
            (KeyDistribution::Uniform, _) => 8 * self.times(),
            (KeyDistribution::Zipf { .. }, true) => 2,
            (KeyDistribution::Zipf { .. }, false) => 10 * self.times(),
            // Five times as many records are five times as many to learn.
            (_, true) if choice.scale.is_short() && self.times() > 1 => 2,
            (_, true) => 1,
            (_, false) => 5 * self.times(),
        };
        let ops = choice.scale.operations() * self.times() / parts;
        one.run(choice.scale, &self.base(), self.workload, ops).with(|options| {
            options.keys = self.keys;
            options.records *= self.times();
            options.value_size = self.value_size;
        })
    }

    /// The paper's throughput over the second best system's, where it says so.
    fn printed(&self) -> Option<f64> {
        match (self.keys, self.workload) {
            (KeyDistribution::Hotspot { .. }, Workload::Ro) => Some(5.6),
            (KeyDistribution::Hotspot { .. }, Workload::Rw) => Some(3.7),
            (KeyDistribution::Uniform, _) => Some(0.984),
            _ => None,
        }
    }

    /// The paper's hit rate, where it says so.
    fn printed_hits(&self) -> Option<f64> {
        match (self.keys, self.workload) {
            (KeyDistribution::Hotspot { .. }, Workload::Ro) => Some(0.95),
            (KeyDistribution::Zipf { .. }, Workload::Ro) => Some(0.79),
            _ => None,
        }
    }

    /// A figure of the run of `one`.
    fn figure(&self, paper: &Paper, one: &Contender, pointer: &str) -> Option<f64> {
        figure(paper.report(&one.run_name(&self.base()))?, pointer)
    }
}

/// The runs of `rows`.
pub(super) fn runs(choice: &Choice, rows: &[Row]) -> Vec<RunSpec> {
    rows.iter().flat_map(|row| choice.contenders.iter().map(|one| row.run(choice, one))).collect()
}

/// Operations a second beyond which the slow disk cannot serve the reads that miss at best; `None` for a disk without a limit.
fn physical_limit(options: &BenchOptions, best_hit_rate: f64) -> Option<f64> {
    let mix = options.workload.mix();
    let reads = f64::from(mix.read + mix.scan + mix.modify) / 100.0;
    let misses = reads * (1.0 - best_hit_rate);
    options.limits.slow_read_iops.filter(|_| misses > 0.0).map(|iops| iops as f64 / misses)
}

const FINAL: &str = "/ops_per_s_last10";

/// The table of Figure 6 or 7.
pub(super) fn table(paper: &Paper, rows: &[Row]) -> Table {
    let is_small = rows.iter().all(|row| row.value_size != VALUE_SIZE);
    let (title, size) = if is_small { ("Figure 7", "200 B") } else { ("Figure 6", "1 KiB") };
    let mut table = Table::new(
        &format!("{title}: throughput, records of {size}"),
        "Operations a second of the final tenth. 'Slow disk' is what that allows with the best possible hit rate: its reads a second over \
         the part of the operations that must miss. 'Of what is possible' is over the lower of that and of fast-only. The paper's \
         factors are over the second best of its systems, on uniform keys over RocksDB-fat.",
        &["workload"],
    );
    table.header.extend(paper.choice.contenders.iter().map(Contender::label));
    let more = ["hit rate", "paper", "best", "over fat", "paper", "slow disk", "of what is possible"];
    table.header.extend(more.map(String::from));
    for row in rows {
        let of = |system: System, pointer: &str| row.figure(paper, &Contender::whole(system), pointer);
        let kelvin = of(System::Kelvin, FINAL);
        let best = of(System::Kelvin, "/best_possible_hit_rate");
        let run = paper.run(&Contender::whole(System::Kelvin).run_name(&row.base()));
        let limit = run.zip(best).and_then(|(run, best)| physical_limit(&run.options, best));
        let possible = of(System::FastOnly, FINAL).map(|fast| limit.map_or(fast, |limit| limit.min(fast)));
        let rates = paper.choice.contenders.iter().map(|one| rate(row.figure(paper, one, FINAL)));
        table.row(std::iter::once(row.name()).chain(rates).chain([
            percent(of(System::Kelvin, "/fast_hit_rate_last10")),
            percent(row.printed_hits()),
            percent(best),
            ratio(kelvin, of(System::Fat, FINAL)),
            row.printed().map_or_else(|| NONE.into(), |factor| format!("{factor:.2}x")),
            rate(limit),
            percent(ratio_of(kelvin, possible)),
        ]));
    }
    table
}

/// One plot for each kind of keys: bars by workload and contender.
pub(super) fn plots(paper: &Paper, rows: &[Row]) -> Result<Plots> {
    let mut kinds: Vec<KeyDistribution> = Vec::new();
    rows.iter().for_each(|row| {
        if !kinds.contains(&row.keys) {
            kinds.push(row.keys);
        }
    });
    let plot = |keys: KeyDistribution| {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.keys == keys).collect();
        let caption = match keys {
            KeyDistribution::Uniform => {
                "Uniform keys: nothing is hot, and kelvin should stand where fat stands."
            }
            KeyDistribution::Zipf { .. } => {
                "Zipf 0.99: the fast disk holds a part of what is read often, and kelvin stands between fat and fast-only."
            }
            _ => {
                "Hotspot of 5 %: kelvin should stand near fast-only, as far as the slow disk lets it, and fat far below."
            }
        };
        let groups = rows.iter().map(|row| row.name()).collect();
        let heights = |one: &Contender| rows.iter().map(|row| row.figure(paper, one, FINAL)).collect();
        let series = paper.choice.contenders.iter().map(|one| (one.label(), heights(one))).collect();
        let y = "operations a second, final tenth".to_string();
        Ok((caption.to_string(), BarPlot { y, groups, series }.draw()?))
    };
    kinds.into_iter().map(plot).collect()
}

/// The quantiles of Figure 8, and where they stand in a report.
const TAILS: [(&str, &str); 2] =
    [("p99", "/latency_us_last10/read/p99"), ("p99.9", "/latency_us_last10/read/p999")];

/// The table of Figure 8.
pub(super) fn tails(paper: &Paper) -> Table {
    let mut table = Table::new(
        "Figure 8: tail latency of reads, hotspot-5 %, 1 KiB",
        "Milliseconds of the final tenth. A read of a cold record waits for the slow disk: the more reads are fast, the further out the tail \
         begins. The paper shows bars and no figures.",
        &["workload, quantile"],
    );
    table.header.extend(paper.choice.contenders.iter().map(Contender::label));
    for row in &HOTSPOTS {
        for (name, pointer) in TAILS {
            let times = paper.choice.contenders.iter().map(|one| millis(row.figure(paper, one, pointer)));
            table.row(std::iter::once(format!("{}, {name}", row.name())).chain(times));
        }
    }
    table
}

fn millis(us: Option<f64>) -> String {
    us.map_or_else(|| NONE.into(), |us| format!("{:.2}", us / 1000.0))
}

/// A plot for each quantile.
pub(super) fn tail_plots(paper: &Paper) -> Result<Plots> {
    let plot = |(name, pointer): (&str, &str)| {
        let heights = |one: &Contender| -> Vec<Option<f64>> {
            HOTSPOTS.iter().map(|row| row.figure(paper, one, pointer).map(|us| us / 1000.0)).collect()
        };
        let series = paper.choice.contenders.iter().map(|one| (one.label(), heights(one))).collect();
        let groups = HOTSPOTS.iter().map(Row::name).collect();
        let y = format!("milliseconds, {name} of the reads");
        let caption = format!(
            "{name} of the reads of the final tenth: lower is better; kelvin should stand between fat and fast-only."
        );
        Ok((caption, BarPlot { y, groups, series }.draw()?))
    };
    TAILS.into_iter().map(plot).collect()
}

/// All that a run wrote to both disks, bytes.
pub(super) fn written(report: &Value) -> Option<f64> {
    Some(figure(report, "/bytes/fast_written")? + figure(report, "/bytes/slow_written")?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::paper::tests::choice;

    #[test]
    fn small_records_are_as_many_bytes_and_more_operations() {
        let choice = choice("1/100");
        let runs = [runs(&choice, &FIGURE_6), runs(&choice, &FIGURE_7)].concat();
        let of = |name: &str| &runs.iter().find(|run| run.name == name).unwrap().options;
        let (large, small) = (of("ro-hotspot5-kelvin"), of("200b-ro-hotspot5-kelvin"));
        assert_eq!((large.records, small.records), (1_100_000, 5_500_000));
        assert_eq!((large.ops, small.ops), (Some(2_200_000), Some(11_000_000)));
        assert_eq!(of("200b-rw-hotspot5-fat").ops, of("rw-hotspot5-fat").ops);
        assert!(of("ro-hotspot5-fast-only").limits.is_none() && !of("ro-hotspot5-fat").limits.is_none());
    }

    #[test]
    fn what_is_possible_is_the_lower_of_the_slow_disk_and_of_fast_only() {
        let choice = choice("1/1000");
        let mut runs_made: Vec<(RunSpec, Value)> = Vec::new();
        for mut run in runs(&choice, &FIGURE_6) {
            run.options.limits.slow_read_iops = Some(1000);
            let (rate, hits) = match run.options.system {
                System::Kelvin => (16_000, 0.95),
                System::Fat => (1_000, 0.09),
                _ => (30_000, 1.0),
            };
            runs_made.push((run, json!({"ops_per_s_last10": rate, "fast_hit_rate_last10": hits, "best_possible_hit_rate": 0.95})));
        }
        let paper = Paper::of(choice, runs_made);
        let table = table(&paper, &FIGURE_6);
        // 1000 over 5 % is 20 k; of RW three of four are reads.
        let expected = "RO hotspot-5 % | 16.0 k | 1000 | 30.0 k | 95.0 % | 95.0 % | 95.0 % | 16.00x | 5.60x | 20.0 k | 80.0 %";
        assert_eq!(table.rows[0].join(" | "), expected);
        assert_eq!((table.rows[1][9].as_str(), table.rows[1][10].as_str()), ("26.7 k", "60.0 %"));
        assert_eq!(plots(&paper, &FIGURE_6).unwrap().len(), 3, "one for each kind of keys");
    }
}
