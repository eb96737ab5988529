//! Production traces (HotRAP §4.3): what they are like (Figure 9), speedups over `fat` (Figure 10), throughput of every tiered system
//! (Figure 11).
//!
//! The traces are files in the form that Twitter published, or synthetic ones with the shares of sunk and hot reads that their names say.
//! A run replays its trace on a store of its own, loaded from it. A synthetic trace has an eighth of the paper's operations: it is
//! alike from beginning to end. Tests: `tests.rs`.

use std::path::{Path, PathBuf};

use kelvin_base::{Error, Result};
use serde_json::{Value, json};

use super::cells::{NONE, figure, percent, rate, ratio, ratio_of};
use super::plan::{Choice, Contender, RunSpec};
use super::scale::Scale;
use super::{Paper, Plots, Table};
use crate::dirs;
use crate::options::{System, Workload};
use crate::plot::{BarPlot, ScatterPlot};
use crate::runner::Progress;
use crate::trace::{
    MalformedLines, PrepareOptions, Prepared, Synthetic, TraceFiles, prepare, run_ops_for, write_synthetic,
};

/// Who stands in Figure 9: the trace is the same for all.
pub(super) const FIGURE_9: fn(&Contender) -> bool =
    |one| one.system == System::Kelvin && one.variant.suffix().is_none();
/// Who stands in Figure 10.
pub(super) const FIGURE_10: fn(&Contender) -> bool = |one| matches!(one.system, System::Kelvin | System::Fat);
/// Who stands in Figure 11: whatever has two tiers.
pub(super) const FIGURE_11: fn(&Contender) -> bool = |one| one.system.is_tiered();

/// A synthetic trace has this part of the operations that the paper runs on as much data.
const SYNTHETIC_PART: u64 = 8;
/// The paper's data, bytes.
const DATA_BYTES: f64 = 110e9;
/// Key and value of a synthetic trace, bytes.
const SYNTHETIC_RECORD: [usize; 2] = [24, 1000];

/// Where the requests come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceSource {
    /// A file of a production trace.
    File(PathBuf),
    /// Made up, with so many of a hundred reads of sunk records, and of hot ones.
    Synthetic {
        /// Reads of sunk records, per cent.
        sunk: u8,
        /// Reads of hot records, per cent.
        hot: u8,
    },
}

impl TraceSource {
    /// What stands in for production traces where there is none: many, some and few reads of sunk records.
    pub const STAND_INS: [Self; 3] = [
        Self::Synthetic { sunk: 90, hot: 80 },
        Self::Synthetic { sunk: 50, hot: 80 },
        Self::Synthetic { sunk: 10, hot: 80 },
    ];

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => {
                let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
                let name = name.unwrap_or_default();
                name.split('.').next().filter(|name| !name.is_empty()).unwrap_or("trace").to_string()
            }
            Self::Synthetic { sunk, hot } => format!("synthetic-sunk{sunk}-hot{hot}"),
        }
    }
}

/// A trace, and how much of it is replayed.
#[derive(Clone, Debug)]
pub struct TraceRun {
    /// Where the requests come from.
    pub source: TraceSource,
    /// Keys and values there shall be, bytes.
    pub data_bytes: u64,
    /// Operations of the run.
    pub ops: u64,
}

impl TraceRun {
    fn of(source: &TraceSource, scale: Scale) -> Self {
        let data_bytes = scale.of(DATA_BYTES);
        let part = if matches!(source, TraceSource::File(_)) { 1 } else { SYNTHETIC_PART };
        let ops = (run_ops_for(data_bytes) / part).max(1);
        Self { source: source.clone(), data_bytes, ops }
    }

    /// What a result follows from.
    pub(super) fn asked(&self) -> Value {
        let (name, bytes) = match &self.source {
            TraceSource::File(path) => {
                (path.display().to_string(), path.metadata().ok().map(|file| file.len()))
            }
            TraceSource::Synthetic { .. } => (self.source.name(), None),
        };
        json!({"name": name, "file_bytes": bytes, "data_bytes": self.data_bytes, "ops": self.ops})
    }

    /// Makes it ready in `dir`, a directory of its own that is made anew.
    ///
    /// # Errors
    /// Those of a trace that cannot be read or made; the operating system's.
    pub(super) fn prepare(&self, dir: &Path, progress: &mut dyn Progress) -> Result<Prepared> {
        dirs::make_fresh(dir)?;
        let path = match &self.source {
            TraceSource::File(path) => path.clone(),
            TraceSource::Synthetic { sunk, hot } => {
                let [key_size, value_size] = SYNTHETIC_RECORD;
                let path = dir.join("trace.csv.zst");
                let order = Synthetic {
                    data: self.data_bytes,
                    ops: Some(self.ops),
                    key_size,
                    value_size: u32::try_from(value_size).unwrap_or(u32::MAX),
                    sunk: f64::from(*sunk) / 100.0,
                    hot: f64::from(*hot) / 100.0,
                    ..Synthetic::default()
                };
                write_synthetic(&path, &order, true)?;
                path
            }
        };
        let files = TraceFiles::new(&[path], MalformedLines::Refuse)?;
        // One that was made for it is as large as it is to be: a byte less would have it repeated.
        let data = matches!(self.source, TraceSource::File(_)).then_some(self.data_bytes);
        let wanted = PrepareOptions { data, ops: Some(self.ops), ..PrepareOptions::default() };
        prepare(&files, &wanted, dir, progress)
    }
}

fn base(source: &TraceSource) -> String {
    format!("trace-{}", source.name())
}

/// Refuses traces that would be taken for one another.
pub(super) fn check(traces: &[TraceSource]) -> Result<()> {
    for (index, one) in traces.iter().enumerate() {
        if traces[..index].iter().any(|other| other.name() == one.name()) {
            return Err(Error::invalid(format!("two traces are called '{}'", one.name()))
                .advice("results are kept by the file's name up to its first dot: rename one"));
        }
    }
    Ok(())
}

/// The runs of every trace on the systems that `stands` is true for.
pub(super) fn runs(choice: &Choice, stands: fn(&Contender) -> bool) -> Vec<RunSpec> {
    let of_trace = |source: &TraceSource| -> Vec<RunSpec> {
        let trace = TraceRun::of(source, choice.scale);
        let run = |one: &Contender| {
            let run = one.run(choice.scale, &base(source), Workload::Trace, trace.ops);
            // The store is loaded from the trace.
            let run = run.with(|options| options.reuse = false);
            RunSpec { trace: Some(trace.clone()), ..run }
        };
        choice.contenders.iter().filter(|one| stands(one)).map(run).collect()
    };
    choice.traces.iter().flat_map(of_trace).collect()
}

fn report<'a>(paper: &'a Paper, source: &TraceSource, one: &Contender) -> Option<&'a Value> {
    paper.report(&one.run_name(&base(source)))
}

fn of_kelvin(paper: &Paper, source: &TraceSource, pointer: &str) -> Option<f64> {
    figure(report(paper, source, &Contender::whole(System::Kelvin))?, pointer)
}

/// Figure 9.
pub(super) fn classes(paper: &Paper) -> Table {
    let mut table = Table::new(
        "Figure 9: what the traces are like",
        "A read is of a sunk record if more than 5 % of the data were written since it was, and of a hot one if less than 5 % were read since it \
         was read. Both together are what promotion is for.",
        &[
            "trace",
            "category",
            "operations that read",
            "reads of sunk records",
            "reads of hot records",
            "records",
            "operations",
        ],
    );
    for source in &paper.choice.traces {
        let run = report(paper, source, &Contender::whole(System::Kelvin));
        let of = |pointer: &str| figure(run?, pointer);
        let category = run.and_then(|run| run.pointer("/trace/category")?.as_str()).unwrap_or(NONE);
        table.row([
            source.name(),
            category.to_string(),
            percent(of("/trace/read_share")),
            percent(of("/trace/sunk_share")),
            percent(of("/trace/hot_share")),
            rate(of("/trace/load_records")),
            rate(of("/trace/run_ops")),
        ]);
    }
    table
}

/// The plane of sunk and hot reads.
pub(super) fn class_plots(paper: &Paper) -> Result<Plots> {
    let share = |source: &TraceSource, pointer: &str| Some(of_kelvin(paper, source, pointer)? * 100.0);
    let point = |source: &TraceSource| {
        let place = (share(source, "/trace/hot_share")?, share(source, "/trace/sunk_share")?);
        Some((source.name(), place))
    };
    let plot = ScatterPlot {
        x: "reads of hot records, per cent".into(),
        y: "reads of sunk records, per cent".into(),
        points: paper.choice.traces.iter().filter_map(point).collect(),
    };
    let caption = "Each point is a trace: the further up and to the right, the more there is to promote.";
    Ok(vec![(caption.into(), plot.draw()?)])
}

const FINAL: &str = "/ops_per_s_last10";

/// Kelvin's throughput over that of `fat`.
fn speedup(paper: &Paper, source: &TraceSource) -> Option<f64> {
    let fat = figure(report(paper, source, &Contender::whole(System::Fat))?, FINAL);
    ratio_of(of_kelvin(paper, source, FINAL), fat)
}

/// Figure 10.
pub(super) fn speedups(paper: &Paper) -> Table {
    let mut table = Table::new(
        "Figure 10: speedup over fat by trace",
        "Throughput of the final tenth, kelvin over fat. The paper has 5.59 for cluster 17, the most, and about 1 where few reads are of sunk \
         or of hot records.",
        &["trace", "reads of sunk records", "reads of hot records", "kelvin", "fat", "speedup"],
    );
    for source in &paper.choice.traces {
        let of = |pointer: &str| of_kelvin(paper, source, pointer);
        let fat = report(paper, source, &Contender::whole(System::Fat));
        let fat = fat.and_then(|report| figure(report, FINAL));
        table.row([
            source.name(),
            percent(of("/trace/sunk_share")),
            percent(of("/trace/hot_share")),
            rate(of(FINAL)),
            rate(fat),
            ratio(of(FINAL), fat),
        ]);
    }
    table
}

/// A bar for each trace.
pub(super) fn speedup_plots(paper: &Paper) -> Result<Plots> {
    let traces = &paper.choice.traces;
    let plot = BarPlot {
        y: "times the throughput of fat".into(),
        groups: traces.iter().map(TraceSource::name).collect(),
        series: vec![(
            "kelvin over fat".into(),
            traces.iter().map(|source| speedup(paper, source)).collect(),
        )],
    };
    let caption = "Throughput over that of fat: the more reads are of sunk and hot records, the higher; never far below 1.";
    Ok(vec![(caption.into(), plot.draw()?)])
}

/// Figure 11.
pub(super) fn throughput(paper: &Paper) -> Table {
    let mut table = Table::new(
        "Figure 11: throughput by trace",
        "Operations a second of the final tenth, of every system with two tiers. The paper's HotRAP has up to twice the second best's.",
        &["trace"],
    );
    let contenders: Vec<&Contender> = paper.choice.contenders.iter().filter(|one| FIGURE_11(one)).collect();
    table.header.extend(contenders.iter().map(|one| one.label()));
    table.header.push("kelvin: hit rate".into());
    for source in &paper.choice.traces {
        let of = |one: &&Contender| rate(report(paper, source, one).and_then(|report| figure(report, FINAL)));
        let hits = percent(of_kelvin(paper, source, "/fast_hit_rate_last10"));
        table.row(std::iter::once(source.name()).chain(contenders.iter().map(of)).chain([hits]));
    }
    table
}

/// Bars by trace and system.
pub(super) fn throughput_plots(paper: &Paper) -> Result<Plots> {
    let traces = &paper.choice.traces;
    let heights =
        |one: &Contender| traces.iter().map(|source| figure(report(paper, source, one)?, FINAL)).collect();
    let contenders = paper.choice.contenders.iter().filter(|one| FIGURE_11(one));
    let plot = BarPlot {
        y: "operations a second, final tenth".into(),
        groups: traces.iter().map(TraceSource::name).collect(),
        series: contenders.map(|one| (one.label(), heights(one))).collect(),
    };
    let caption = "Throughput at the end of each trace: kelvin should be the best wherever many reads are of sunk and hot records.";
    Ok(vec![(caption.into(), plot.draw()?)])
}
