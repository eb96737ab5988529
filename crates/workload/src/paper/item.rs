//! The figures and tables of HotRAP's evaluation that one command repeats: what each shows.
//!
//! An item is a list of runs, a table and plots; each kind of item is a module. A run that several items want is made once.
//! Tests stand below.

use std::fmt;
use std::str::FromStr;

use kelvin_base::{Error, Result};

use super::plan::{Choice, RunSpec};
use super::{Paper, Plots, Table, ablations, costs, dynamic, hdd, reference, throughput, traces, uniform};

/// A figure or table of the paper, or of the project's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// Throughput with records of 1 KiB.
    Figure6,
    /// Throughput with records of 200 B.
    Figure7,
    /// Tail latencies.
    Figure8,
    /// What the traces are like.
    Figure9,
    /// Speedups by trace.
    Figure10,
    /// Throughput by trace.
    Figure11,
    /// What the processor's time goes to.
    Figure12,
    /// What is read and written for what.
    Figure13,
    /// The same over time.
    Figure14,
    /// §4.6: a hotspot that grows, moves and shrinks.
    Figure15,
    /// A hard disk.
    Figure16,
    /// Retention.
    Table3,
    /// The hotness check.
    Table4,
    /// Promotion by compaction.
    Table5,
    /// §4.7: exponential smoothing, CLOCK and LRU.
    Scorers,
    /// What telling hot records costs where none is hot, in pairs of runs.
    Uniform,
    /// Kelvin beside its bounds and the authors' implementation.
    Reference,
}

impl Item {
    /// All of them, in the order of the report.
    pub const ALL: [Self; 17] = [
        Self::Figure6,
        Self::Figure7,
        Self::Figure8,
        Self::Figure9,
        Self::Figure10,
        Self::Figure11,
        Self::Figure12,
        Self::Figure13,
        Self::Figure14,
        Self::Table3,
        Self::Table4,
        Self::Table5,
        Self::Figure15,
        Self::Scorers,
        Self::Figure16,
        Self::Uniform,
        Self::Reference,
    ];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Figure6 => "figure6",
            Self::Figure7 => "figure7",
            Self::Figure8 => "figure8",
            Self::Figure9 => "figure9",
            Self::Figure10 => "figure10",
            Self::Figure11 => "figure11",
            Self::Figure12 => "figure12",
            Self::Figure13 => "figure13",
            Self::Figure14 => "figure14",
            Self::Figure15 => "figure15",
            Self::Figure16 => "figure16",
            Self::Table3 => "table3",
            Self::Table4 => "table4",
            Self::Table5 => "table5",
            Self::Scorers => "scorers",
            Self::Uniform => "uniform",
            Self::Reference => "reference",
        }
    }

    /// True for what the paper has; the others are run only if they are named.
    #[must_use]
    pub const fn is_papers(self) -> bool {
        !matches!(self, Self::Uniform | Self::Reference)
    }

    /// True for what replays traces.
    #[must_use]
    pub const fn replays_traces(self) -> bool {
        matches!(self, Self::Figure9 | Self::Figure10 | Self::Figure11)
    }

    /// True if Kelvin with parts left out has a row there; the others leave parts out by themselves, or have one run.
    #[must_use]
    pub const fn shows_variants(self) -> bool {
        !matches!(
            self,
            Self::Figure9
                | Self::Figure15
                | Self::Table3
                | Self::Table4
                | Self::Table5
                | Self::Scorers
                | Self::Uniform
        )
    }

    /// What it shows, in a line.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Figure6 => "throughput, 1 KiB: RO, RW, WH, UH on hotspot-5 %, Zipf and uniform keys (§4.2)",
            Self::Figure7 => "throughput, 200 B: RO, RW, WH on hotspot-5 %, RO and WH on uniform keys (§4.2)",
            Self::Figure8 => "tail latencies of reads at the end of the hotspot runs of figure6 (§4.2)",
            Self::Figure9 => "what the traces are like: reads of sunk and of hot records (§4.3)",
            Self::Figure10 => "speedup over fat by trace (§4.3)",
            Self::Figure11 => "throughput of every tiered system by trace (§4.3)",
            Self::Figure12 => "what the processor's time goes to, 200 B, the runs of figure7 (§4.4)",
            Self::Figure13 => "what is read and written for what, 200 B, the runs of figure7 (§4.4)",
            Self::Figure14 => "what the disks move over time for what, RW hotspot-5 % (§4.4)",
            Self::Table3 => "what retention is worth: RW hotspot-5 %, with and without (§4.5)",
            Self::Table4 => "what the hotness check is worth: RO uniform, with and without (§4.5)",
            Self::Table5 => "what promotion by compaction is worth: RW hotspot-5 %, with and without (§4.5)",
            Self::Figure15 => "a hotspot that appears, grows, moves and shrinks, in seven stages (§4.6)",
            Self::Scorers => {
                "exponential smoothing, CLOCK and LRU, and exact counts above them: WH hotspot-5 % (§4.7)"
            }
            Self::Figure16 => "a hard disk as the slow disk: RO hotspot-1 % (§4.8)",
            Self::Uniform => {
                "not by default: what hotness costs where nothing is hot, RO and RW uniform in pairs of runs"
            }
            Self::Reference => {
                "not by default: six workloads on kelvin, fat and fast-only, beside HotRAP's own code at 1/100"
            }
        }
    }

    /// The runs it is made of, in the order of its table.
    #[must_use]
    pub fn runs(self, choice: &Choice) -> Vec<RunSpec> {
        match self {
            Self::Figure6 => throughput::runs(choice, &throughput::FIGURE_6),
            Self::Figure7 | Self::Figure12 | Self::Figure13 => {
                throughput::runs(choice, &throughput::FIGURE_7)
            }
            Self::Figure8 => throughput::runs(choice, &throughput::HOTSPOTS),
            Self::Figure9 => traces::runs(choice, traces::FIGURE_9),
            Self::Figure10 => traces::runs(choice, traces::FIGURE_10),
            Self::Figure11 => traces::runs(choice, traces::FIGURE_11),
            Self::Figure14 => throughput::runs(choice, &[costs::OVER_TIME]),
            Self::Figure15 => dynamic::runs(choice),
            Self::Figure16 => hdd::runs(choice),
            Self::Table3 | Self::Table4 | Self::Table5 | Self::Scorers => ablations::runs(self, choice),
            Self::Uniform => uniform::runs(choice),
            Self::Reference => reference::runs(choice),
        }
    }

    /// Its table, from the runs of `paper` that are there.
    #[must_use]
    pub fn table(self, paper: &Paper) -> Table {
        match self {
            Self::Figure6 => throughput::table(paper, &throughput::FIGURE_6),
            Self::Figure7 => throughput::table(paper, &throughput::FIGURE_7),
            Self::Figure8 => throughput::tails(paper),
            Self::Figure9 => traces::classes(paper),
            Self::Figure10 => traces::speedups(paper),
            Self::Figure11 => traces::throughput(paper),
            Self::Figure12 => costs::cpu(paper),
            Self::Figure13 => costs::io(paper),
            Self::Figure14 => costs::over_time(paper),
            Self::Figure15 => dynamic::table(paper),
            Self::Figure16 => hdd::table(paper),
            Self::Table3 | Self::Table4 | Self::Table5 | Self::Scorers => ablations::table(self, paper),
            Self::Uniform => uniform::table(paper),
            Self::Reference => reference::table(paper),
        }
    }

    /// Its plots.
    ///
    /// # Errors
    /// If one cannot be drawn.
    pub(super) fn plots(self, paper: &Paper) -> Result<Plots> {
        match self {
            Self::Figure6 => throughput::plots(paper, &throughput::FIGURE_6),
            Self::Figure7 => throughput::plots(paper, &throughput::FIGURE_7),
            Self::Figure8 => throughput::tail_plots(paper),
            Self::Figure9 => traces::class_plots(paper),
            Self::Figure10 => traces::speedup_plots(paper),
            Self::Figure11 => traces::throughput_plots(paper),
            Self::Figure12 => costs::cpu_plots(paper),
            Self::Figure13 => costs::io_plots(paper),
            Self::Figure14 => costs::over_time_plots(paper),
            Self::Figure15 => dynamic::plots(paper),
            Self::Figure16 => hdd::plots(paper),
            Self::Table3 | Self::Table4 | Self::Table5 | Self::Scorers => ablations::plots(self, paper),
            Self::Uniform => uniform::plots(paper),
            Self::Reference => reference::plots(paper),
        }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Item {
    type Err = Error;

    /// By name; `fig6` is `figure6`.
    fn from_str(text: &str) -> Result<Self> {
        let lower = text.to_ascii_lowercase();
        let whole = match lower.strip_prefix("fig") {
            Some(number) if !number.starts_with("ure") => format!("figure{number}"),
            _ => lower,
        };
        Self::ALL.into_iter().find(|item| item.name() == whole).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|item| item.name()).collect();
            Error::invalid(format!("no figure or table is called '{text}'"))
                .advice(format!("use {}; --list says what each is", names.join(", ")))
        })
    }
}

/// The runs that `items` are made of: each once, those of the systems chosen; in the items' order, but for runs of one trace, which stand
/// together, because it is made ready only once.
#[must_use]
pub fn plan(items: &[Item], choice: &Choice) -> Vec<RunSpec> {
    let mut plan: Vec<RunSpec> = Vec::new();
    for run in items.iter().flat_map(|item| item.runs(choice)) {
        let is_chosen = choice.contenders.iter().any(|one| one.system == run.options.system);
        if !is_chosen || plan.iter().any(|known| known.name == run.name) {
            continue;
        }
        let source = |run: &RunSpec| run.trace.as_ref().map(|trace| trace.source.clone());
        let last =
            source(&run).and_then(|of| plan.iter().rposition(|known| source(known).as_ref() == Some(&of)));
        plan.insert(last.map_or(plan.len(), |last| last + 1), run);
    }
    plan
}

#[cfg(test)]
mod tests {
    use kelvin::{HotParts, Hotness};

    use super::*;
    use crate::options::{System, Workload};
    use crate::paper::plan::{Contender, Variant};
    use crate::paper::tests::choice;

    #[test]
    fn names_are_read_as_they_are_printed() {
        for item in Item::ALL {
            assert_eq!(item.name().parse::<Item>().unwrap(), item);
        }
        assert_eq!(
            ["fig6", "FIG16", "Figure14"].map(|name| name.parse::<Item>().unwrap().name()),
            ["figure6", "figure16", "figure14"]
        );
        assert!("table9".parse::<Item>().unwrap_err().to_string().contains("table3, table4"));
        assert!("fig".parse::<Item>().is_err() && "figure".parse::<Item>().is_err());
    }

    #[test]
    fn every_run_can_be_run_and_a_name_means_one_run() {
        let choice = choice("1/1000");
        let mut named = std::collections::BTreeMap::new();
        for item in Item::ALL {
            for run in item.runs(&choice) {
                let mut options = run.options.clone();
                (options.fast, options.slow) = ("f".into(), options.system.is_tiered().then(|| "s".into()));
                assert!(options.check().is_ok(), "{}", run.name);
                assert_eq!(run.trace.is_some(), options.workload == Workload::Trace, "{}", run.name);
                let text = format!("{:?} {:?}", run.options, run.trace);
                assert_eq!(
                    *named.entry(run.name.clone()).or_insert_with(|| text.clone()),
                    text,
                    "{}",
                    run.name
                );
            }
        }
        assert_eq!(plan(&Item::ALL, &choice).len(), named.len());
        assert_eq!(plan(&[Item::Table3, Item::Table5], &choice).len(), 3, "the whole system runs once");
        let alone = Choice { contenders: vec![Contender::whole(System::Fat)], ..choice };
        assert!(plan(&Item::ALL, &alone).iter().all(|run| run.options.system == System::Fat));
    }

    #[test]
    fn the_papers_figures_at_a_thousandth_are_a_quarter_of_an_hour() {
        let papers: Vec<Item> = Item::ALL.into_iter().filter(|item| item.is_papers()).collect();
        let all: f64 = plan(&papers, &choice("1/1000")).iter().map(|run| run.expected_seconds(None)).sum();
        assert!((300.0..700.0).contains(&all), "{all:.0} s of waiting and of the processor, loads left out");
        for item in papers {
            let seconds: f64 =
                item.runs(&choice("1/1000")).iter().map(|run| run.expected_seconds(None)).sum();
            assert!((10.0..300.0).contains(&seconds), "{item}: {seconds:.0} s");
        }
    }

    #[test]
    fn a_disk_that_is_named_is_as_slow_as_it_was_measured() {
        let runs = Item::Figure6.runs(&choice("1/100"));
        let fat = runs.into_iter().find(|run| run.name == "ro-hotspot5-fat").unwrap();
        let emulated = fat.expected_seconds(Some(1.0));
        let named = fat.on_disk(crate::options::DeviceLimits::default());
        let [fast, slow] = [None, Some(1_000.0)].map(|reads| named.expected_seconds(reads));
        assert!(fast < 60.0 && (300.0..600.0).contains(&slow), "{fast} {slow}");
        assert!((emulated - slow).abs() < 60.0, "a limit of its own counts first: {emulated}");
    }

    #[test]
    fn a_variant_stands_beside_the_whole_under_a_name_of_its_own() {
        let parts = HotParts { retention: false, promotion_by_flush: false, ..HotParts::default() };
        let variant = Variant { parts, hotness: Some(Hotness::Lru) };
        let mut choice = choice("1/1000");
        choice.contenders.insert(1, Contender { system: System::Kelvin, variant });
        for (item, base, runs) in [
            (Item::Reference, "reference-ro-hotspot5", 24),
            (Item::Figure6, "ro-hotspot5", 48),
            (Item::Figure10, "trace-synthetic-sunk90-hot80", 9),
        ] {
            let made = item.runs(&choice);
            assert_eq!(made.len(), runs, "{item}");
            assert_eq!(made[1].name, format!("{base}-kelvin-no-retention-no-promotion-by-flush-lru"));
            let (whole, less) = (&made[0].options, &made[1].options);
            assert!(whole.hot_parts == HotParts::default() && less.hot_parts == parts);
            assert_eq!((less.hotness, less.ops), (Some(Hotness::Lru), whole.ops));
        }
        assert_eq!(Variant::default().suffix(), None);
        assert_eq!(Item::Table3.runs(&choice).len(), 2, "tables have their own");
    }
}
