//! The evaluation of the HotRAP paper by one command: which runs, in which order, and what is kept of them.
//!
//! [`item`] lists the figures and tables; each kind of them is a module that says what it runs and shows it beside the paper's own
//! figures. [`plan`] is who stands in them and what one run is, [`scale`] how large, [`store`] loads and copies the stores, [`run`]
//! makes the runs that are not there yet, [`page`] is the report.
//! Invariant: a result is written whole or not at all, and used again only if it was made with the same settings.
//! Tests: beside each part, and `tests.rs` runs it all very small.

mod ablations;
mod cells;
mod costs;
mod dynamic;
mod hdd;
pub mod item;
pub mod machine;
pub mod page;
pub mod plan;
pub mod reference;
pub mod scale;
pub mod store;
pub mod table;
#[cfg(test)]
mod tests;
mod throughput;
pub mod traces;
mod uniform;

use std::path::{Path, PathBuf};

use kelvin_base::{Clock, Error, Result, SystemClock};
use serde_json::{Value, json};

pub use item::Item;
pub use plan::{Choice, Contender, RunSpec, Variant};
pub use scale::Scale;
pub use table::Table;
pub use traces::TraceSource;

use crate::device::{self, Device};
use crate::dirs;
use crate::kelvin::device_limits;
use crate::options::{DeviceLimits, System};
use crate::runner::Progress;
use crate::systems;
use crate::trace::{MalformedLines, Prepared, TraceFiles, replay_loaded};
use store::{Places, asked, differences, result_path};

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Order {
    /// Figures and tables.
    pub items: Vec<Item>,
    /// How large.
    pub scale: Scale,
    /// Where results go.
    pub out: PathBuf,
    /// Directory on the fast disk; `None` for one beside the results.
    pub fast: Option<PathBuf>,
    /// Directory on the slow disk; `None` for one beside the results, slowed down as the scale says.
    pub slow: Option<PathBuf>,
    /// The slow disk's limits, if not the scale's.
    pub limits: DeviceLimits,
    /// Client threads.
    pub threads: usize,
    /// What random choices follow from.
    pub seed: u64,
    /// Load Kelvin's stores at once, but for what the fast disk holds ([`BenchOptions::bulk_load`](crate::BenchOptions::bulk_load)).
    pub bulk_load: bool,
    /// Leave the loaded stores for the next time.
    pub keep_stores: bool,
    /// Make only runs whose names hold one of these; of the others show what was made before. Empty for all.
    pub only: Vec<String>,
    /// Kelvin stands like this too, beside the whole.
    pub variant: Variant,
    /// The systems that stand in the figures; empty for all that this program has and the disks allow.
    pub systems: Vec<System>,
    /// The traces of Figures 9 to 11; empty for synthetic ones.
    pub traces: Vec<PathBuf>,
    /// Seconds of each measurement of the two disks; 0 for none.
    pub device_seconds: f64,
    /// In simulated time on the paper's machines ([`machine`]), and not on this one's disks.
    pub is_simulated: bool,
}

/// Told what happens.
pub trait Watcher: Progress {
    /// The runs, and which of them were made before; the reads a second of the slow disk, if they were measured.
    fn planned(&mut self, runs: &[RunSpec], is_done: &[bool], slow_reads: Option<f64>);
    /// Something worth a line.
    fn note(&mut self, text: &str);
    /// Run number `index` of the plan begins.
    fn begun(&mut self, index: usize);
    /// It is over.
    fn ended(&mut self, index: usize, seconds: f64);
}

/// The results.
#[derive(Clone, Debug)]
pub struct Paper {
    /// What was wanted.
    pub items: Vec<Item>,
    /// Who stands in the figures, and how large they are.
    pub choice: Choice,
    /// Every run and its report.
    pub runs: Vec<(RunSpec, Value)>,
    /// What the disks do, the fast one and the slow one, measured before the runs; empty if they were not measured.
    pub devices: Vec<(&'static str, Device)>,
    /// The runs were simulated.
    pub is_simulated: bool,
}

/// Caption and SVG of each plot.
type Plots = Vec<(String, String)>;

impl Order {
    /// Who stands in the figures, and how large they are.
    #[must_use]
    pub fn choice(&self) -> Choice {
        // The slow disk of a peer is what it is: an emulated one would be its fast disk.
        let is_real = self.slow.is_some() && self.limits.is_none();
        let can = |system: &System| {
            systems::is_built(*system)
                && (!system.is_peer() || !self.is_simulated && (is_real || !system.is_tiered()))
        };
        let named = |system: &System| match self.systems.is_empty() {
            true => can(system),
            false => self.systems.contains(system),
        };
        let with_variant = |system: System| {
            let has_variant = system == System::Kelvin && self.variant.suffix().is_some();
            let variant = has_variant.then_some(Contender { system, variant: self.variant });
            std::iter::once(Contender::whole(system)).chain(variant)
        };
        Choice {
            scale: self.scale,
            contenders: System::ALL.into_iter().filter(named).flat_map(with_variant).collect(),
            traces: match self.traces.is_empty() {
                true if self.is_simulated => Vec::new(),
                true => TraceSource::STAND_INS.into(),
                false => self.traces.iter().cloned().map(TraceSource::File).collect(),
            },
        }
    }

    /// The runs of the order, in their order, each once.
    #[must_use]
    pub fn plan(&self) -> Vec<RunSpec> {
        let change = |mut run: RunSpec| {
            run.options.threads = self.threads;
            run.options.seed = self.seed;
            run.options.bulk_load = self.bulk_load && !run.options.system.is_peer();
            if self.is_simulated {
                return run.on_disk(machine::GP3);
            }
            // A disk that was named is as fast as it is, unless it is said how fast.
            match (self.limits.is_none(), &self.slow) {
                (false, _) => run.on_disk(self.limits),
                (true, Some(_)) => run.on_disk(DeviceLimits::default()),
                (true, None) => run,
            }
        };
        item::plan(&self.items, &self.choice()).into_iter().map(change).collect()
    }

    /// True if the run is to be made where it is missing.
    fn wants(&self, run: &RunSpec) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| run.name.contains(part.as_str()))
    }

    /// Refuses what cannot be run, or would do nothing.
    fn check(&self) -> Result<()> {
        if self.items.is_empty() || self.threads == 0 {
            return Err(
                Error::invalid("there is nothing to run").advice("name figures or tables, and threads")
            );
        }
        self.systems.iter().try_for_each(|system| systems::check_built(*system))?;
        let choice = self.choice();
        if self.variant.suffix().is_some() && !self.items.iter().any(|item| item.shows_variants()) {
            return Err(Error::invalid(
                "--hotness, --no-retention and their kind add a row to figures and to 'reference'",
            )
            .advice("name one; table3, table4, table5 and scorers leave parts out by themselves"));
        }
        if self.is_simulated {
            self.check_simulated()?;
        }
        traces::check(&choice.traces)?;
        self.traces.iter().try_for_each(|path| {
            TraceFiles::new(std::slice::from_ref(path), MalformedLines::Refuse).map(drop)
        })?;
        let plan = self.plan();
        if let Some(run) = plan
            .iter()
            .find(|run| self.wants(run) && run.options.system.is_peer() && !run.options.limits.is_none())
        {
            return Err(Error::invalid(format!("the slow disk of {} cannot be emulated", run.options.system))
                .advice("throttle a disk with bench/tiers.sh, name it with --slow, and leave --slow-read-iops and its kind out"));
        }
        if !plan.iter().any(|run| self.wants(run)) {
            let names: Vec<&str> = plan.iter().map(|run| run.name.as_str()).collect();
            return Err(Error::invalid(format!("no run has '{}' in its name", self.only.join("' or '")))
                .advice(format!("the runs are {}", names.join(", "))));
        }
        Ok(())
    }

    /// Refuses what needs the disks of this machine.
    fn check_simulated(&self) -> Result<()> {
        if let Some(system) = self.systems.iter().find(|system| system.is_peer()) {
            return Err(Error::invalid(format!("{system} opens its own files, and cannot be simulated"))
                .advice("compare with it in `kelvin bench paper`"));
        }
        match self.items.iter().find(|item| item.replays_traces()) {
            Some(item) => {
                Err(Error::invalid(format!("{item} replays traces, which is not done in simulated time"))
                    .advice("run it with `kelvin bench paper`"))
            }
            None => Ok(()),
        }
    }

    fn places(&self) -> Places {
        if self.is_simulated {
            // Nobody else sees them.
            return Places { fast: "/simulated/fast".into(), slow: "/simulated/slow".into() };
        }
        let beside = |name: &str| self.out.join("stores").join(name);
        Places {
            fast: self.fast.clone().unwrap_or_else(|| beside("fast")),
            slow: self.slow.clone().unwrap_or_else(|| beside("slow")),
        }
    }

    /// What the result of `run` follows from.
    fn asked(&self, run: &RunSpec) -> Value {
        let mut asked = asked(run);
        if self.is_simulated {
            asked["simulated"] = json!(format!("{:?}", machine::of(run)));
        }
        asked
    }

    /// The report of a run that was made before with the same settings.
    fn kept(&self, run: &RunSpec, watcher: &mut dyn Watcher) -> Option<Value> {
        let path = result_path(&self.out, &run.name);
        if !path.exists() {
            return None;
        }
        let Some(mut kept) = dirs::read_json(&path) else {
            watcher.note(&format!("{} cannot be read: the run is made again", path.display()));
            return None;
        };
        let (then, now) = (kept["asked"].take(), self.asked(run));
        if then != now {
            let what = differences(&then, &now);
            watcher.note(&format!("{} was run with other settings ({what}): it is run again", run.name));
            return None;
        }
        Some(kept["report"].take())
    }
}

/// The file with what the disks do.
const DEVICES: &str = "devices.json";
/// Both disks, as reports call them.
const DISKS: [&str; 2] = ["fast", "slow"];
/// Bytes of the file that a disk is measured with.
const DEVICE_BYTES: u64 = 64 << 20;

fn devices_json(devices: &[(&'static str, Device)]) -> Value {
    devices
        .iter()
        .map(|(name, device)| ((*name).to_string(), device.to_json()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

impl Order {
    /// What the disks do: measured where `is_due`, or else as it was when the runs were made.
    fn devices(
        &self,
        places: &Places,
        is_due: bool,
        watcher: &mut dyn Watcher,
    ) -> Result<Vec<(&'static str, Device)>> {
        let path = self.out.join(DEVICES);
        let kept = dirs::read_json(&path).unwrap_or_default();
        let kept: Option<Vec<_>> =
            DISKS.iter().map(|name| Some((*name, Device::of_json(&kept[*name])?))).collect();
        if self.device_seconds <= 0.0 || !is_due || self.is_simulated {
            return Ok(kept.unwrap_or_default());
        }
        let plan = self.plan();
        let tiered = plan.iter().find(|run| run.options.system.is_tiered() && !run.has_own_disk);
        let limits = tiered.map(|run| device_limits(&run.options.limits)).unwrap_or_default();
        let mut devices = Vec::new();
        for ((name, dir), limits) in DISKS.into_iter().zip([&places.fast, &places.slow]).zip(limits) {
            let device = device::measure(&device::Order {
                dir: dir.clone(),
                file_bytes: DEVICE_BYTES.min(self.scale.fast_bytes()),
                seconds: self.device_seconds,
                threads: self.threads,
                limits,
            })?;
            let (reads, bytes) = (device.reads[1].per_second, device.read_bytes_per_s);
            watcher.note(&format!(
                "the {name} disk makes {reads:.0} reads a second and {:.0} MB/s",
                bytes / 1e6
            ));
            devices.push((name, device));
        }
        dirs::write_whole(&path, &format!("{:#}\n", devices_json(&devices)))?;
        Ok(devices)
    }
}

/// Makes every run that is not there yet, keeps its result, and answers all of them.
///
/// # Errors
/// `InvalidArgument` for an order that cannot be run; `NoSpace` before anything is begun; what a run reports.
pub fn run(order: &Order, watcher: &mut dyn Watcher) -> Result<Paper> {
    order.check()?;
    let places = order.places();
    dirs::make_all(&order.out.join("runs"))?;
    if !order.is_simulated {
        [&places.fast, &places.slow].into_iter().try_for_each(|dir| dirs::make_all(dir))?;
    }
    let kept = order.plan().into_iter().map(|run| (order.kept(&run, watcher), run));
    let (mut kept, runs): (Vec<Option<Value>>, Vec<RunSpec>) =
        kept.filter(|(kept, run)| kept.is_some() || order.wants(run)).unzip();
    let is_done: Vec<bool> = kept.iter().map(Option::is_some).collect();
    let missing: Vec<RunSpec> =
        runs.iter().zip(&is_done).filter(|(_, done)| !**done).map(|(run, _)| run.clone()).collect();
    if !order.is_simulated {
        places.check_space(&missing)?;
    }
    let devices = order.devices(&places, !missing.is_empty(), watcher)?;
    let slow = devices.iter().find(|(name, _)| *name == DISKS[1]);
    watcher.planned(&runs, &is_done, slow.map(|(_, device)| device.reads[1].per_second));
    let clock = SystemClock::new();
    let mut images = machine::Images::default();
    let mut traces = Traces { dir: order.out.join("traces"), ready: None };
    for (index, (run, report)) in runs.iter().zip(&mut kept).enumerate() {
        if report.is_some() {
            continue;
        }
        let begun = clock.now();
        watcher.begun(index);
        let made = match &run.trace {
            Some(trace) => {
                let prepared = traces.of(trace, watcher)?;
                replay_loaded(&places.fresh(&run.options), prepared, watcher)?
            }
            None if order.is_simulated => images.run(run, &places.load_of(&run.options), watcher)?,
            None => crate::runner::run(&places.prepare(&run.options, watcher)?, watcher)?,
        };
        let made = made.to_json();
        let kept = json!({"asked": order.asked(run), "report": made});
        dirs::write_whole(&result_path(&order.out, &run.name), &format!("{kept:#}\n"))?;
        places.clear(&run.options)?;
        watcher.ended(index, clock.now().saturating_sub(begun).as_secs_f64());
        *report = Some(made);
    }
    traces.clear()?;
    if !order.keep_stores {
        places.clear_all(&runs)?;
        if order.fast.is_none() && order.slow.is_none() {
            ["stores/fast", "stores/slow", "stores"]
                .iter()
                .for_each(|name| dirs::remove_if_empty(&order.out.join(name)));
        }
    }
    let runs = runs.into_iter().zip(kept.into_iter().flatten()).collect();
    Ok(Paper {
        items: order.items.clone(),
        choice: order.choice(),
        runs,
        devices,
        is_simulated: order.is_simulated,
    })
}

/// The trace that was made ready last: the runs of one stand together.
struct Traces {
    dir: PathBuf,
    ready: Option<(TraceSource, Prepared)>,
}

impl Traces {
    fn of(&mut self, trace: &traces::TraceRun, watcher: &mut dyn Watcher) -> Result<&Prepared> {
        if self.ready.as_ref().is_none_or(|(source, _)| *source != trace.source) {
            self.clear()?;
            let prepared = trace.prepare(&self.dir, watcher)?;
            self.ready = Some((trace.source.clone(), prepared));
        }
        match &self.ready {
            Some((_, prepared)) => Ok(prepared),
            None => Err(Error::invalid("no trace was made ready")),
        }
    }

    fn clear(&mut self) -> Result<()> {
        self.ready = None;
        dirs::remove_marked(&self.dir)
    }
}

impl Paper {
    /// What run `name` was.
    #[must_use]
    pub fn run(&self, name: &str) -> Option<&RunSpec> {
        self.runs.iter().map(|(run, _)| run).find(|run| run.name == name)
    }

    /// The report of the run `name`.
    #[must_use]
    pub fn report(&self, name: &str) -> Option<&Value> {
        self.runs.iter().find(|(run, _)| run.name == name).map(|(_, report)| report)
    }

    /// Everything for machines: the tables, and every run whole.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let table = |table: &Table| json!({"title": table.title, "caption": table.caption, "header": table.header, "rows": table.rows});
        let items: serde_json::Map<String, Value> =
            self.items.iter().map(|item| (item.name().to_string(), table(&item.table(self)))).collect();
        let runs: serde_json::Map<String, Value> =
            self.runs.iter().map(|(run, report)| (run.name.clone(), report.clone())).collect();
        json!({"scale": self.choice.scale.part(), "items": items, "runs": runs, "devices": devices_json(&self.devices)})
    }

    /// Writes `report.json`, `report.html` and a CSV file for each item into `out`.
    ///
    /// # Errors
    /// The operating system's; if a plot cannot be drawn.
    pub fn write(&self, out: &Path) -> Result<()> {
        for item in &self.items {
            dirs::write_whole(&out.join(format!("{item}.csv")), &item.table(self).csv())?;
        }
        dirs::write_whole(&out.join("report.json"), &format!("{:#}\n", self.to_json()))?;
        dirs::write_whole(&out.join("report.html"), &page::html(self)?)
    }
}
