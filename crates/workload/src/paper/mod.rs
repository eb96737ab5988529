//! The evaluation of the HotRAP paper by one command: which runs, in which order, and what is kept of them.
//!
//! [`item`] says what each figure or table runs, [`scale`] how large, [`store`] loads and copies the stores, [`run`] makes
//! the runs that are not there yet, [`tables`] and [`page`] show them beside the paper's own figures.
//! [`reference`] and [`pairs`] are the items that compare systems.
//! Invariant: a result is written whole or not at all, and used again only if it was made with the same settings.
//! Tests: beside each part, and `tests.rs` runs it all very small.

pub mod item;
pub mod page;
pub mod pairs;
pub mod reference;
pub mod scale;
pub mod store;
pub mod table;
pub mod tables;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use kelvin_base::{Clock, Error, Result, SystemClock};
use serde_json::{Value, json};

pub use item::{Item, RunSpec, Variant};
pub use scale::Scale;
pub use table::Table;

use crate::device::{self, Device};
use crate::dirs;
use crate::kelvin::device_limits;
use crate::options::DeviceLimits;
use crate::runner::Progress;
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
    /// Leave the loaded stores for the next time.
    pub keep_stores: bool,
    /// Make only runs whose names hold one of these; of the others show what was made before. Empty for all.
    pub only: Vec<String>,
    /// In the item `reference` Kelvin stands like this too.
    pub variant: Variant,
    /// Seconds of each measurement of the two disks; 0 for none.
    pub device_seconds: f64,
}

/// Told what happens.
pub trait Watcher: Progress {
    /// The runs, and which of them were made before.
    fn planned(&mut self, runs: &[RunSpec], is_done: &[bool]);
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
    /// How large.
    pub scale: Scale,
    /// Every run and its report.
    pub runs: Vec<(RunSpec, Value)>,
    /// What the disks do, the fast one and the slow one, measured before the runs; empty if they were not measured.
    pub devices: Vec<(&'static str, Device)>,
}

impl Order {
    /// The runs of the order, in their order, each once.
    #[must_use]
    pub fn plan(&self) -> Vec<RunSpec> {
        let change = |mut run: RunSpec| {
            run.options.threads = self.threads;
            run.options.seed = self.seed;
            // A disk that was named is as fast as it is, unless it is said how fast.
            match (self.limits.is_none(), &self.slow) {
                (false, _) => run.on_disk(self.limits),
                (true, Some(_)) => run.on_disk(DeviceLimits::default()),
                (true, None) => run,
            }
        };
        item::plan(&self.items, self.scale, &self.variant).into_iter().map(change).collect()
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
        if self.variant.suffix().is_some() && !self.items.contains(&Item::Reference) {
            return Err(Error::invalid(
                "--hotness, --no-retention and their kind are for the item 'reference'",
            )
            .advice("name it; table3, table4, table5 and scorers leave parts out by themselves"));
        }
        let plan = self.plan();
        if !plan.iter().any(|run| self.wants(run)) {
            let names: Vec<&str> = plan.iter().map(|run| run.name.as_str()).collect();
            return Err(Error::invalid(format!("no run has '{}' in its name", self.only.join("' or '")))
                .advice(format!("the runs are {}", names.join(", "))));
        }
        Ok(())
    }

    fn places(&self) -> Places {
        let beside = |name: &str| self.out.join("stores").join(name);
        Places {
            fast: self.fast.clone().unwrap_or_else(|| beside("fast")),
            slow: self.slow.clone().unwrap_or_else(|| beside("slow")),
        }
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
        let (then, now) = (kept["asked"].take(), asked(&run.options));
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
        if self.device_seconds <= 0.0 || !is_due {
            return Ok(kept.unwrap_or_default());
        }
        let limits = self.plan().first().map(|run| device_limits(&run.options.limits)).unwrap_or_default();
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
    for dir in [&order.out.join("runs"), &places.fast, &places.slow] {
        dirs::make_all(dir)?;
    }
    let kept = order.plan().into_iter().map(|run| (order.kept(&run, watcher), run));
    let (mut kept, runs): (Vec<Option<Value>>, Vec<RunSpec>) =
        kept.filter(|(kept, run)| kept.is_some() || order.wants(run)).unzip();
    let is_done: Vec<bool> = kept.iter().map(Option::is_some).collect();
    let missing: Vec<RunSpec> =
        runs.iter().zip(&is_done).filter(|(_, done)| !**done).map(|(run, _)| run.clone()).collect();
    places.check_space(&missing)?;
    watcher.planned(&runs, &is_done);
    let devices = order.devices(&places, !missing.is_empty(), watcher)?;
    let clock = SystemClock::new();
    for (index, (run, report)) in runs.iter().zip(&mut kept).enumerate() {
        if report.is_some() {
            continue;
        }
        let begun = clock.now();
        watcher.begun(index);
        let options = places.prepare(&run.options, watcher)?;
        let made = crate::runner::run(&options, watcher)?.to_json();
        let kept = json!({"asked": asked(&run.options), "report": made});
        dirs::write_whole(&result_path(&order.out, &run.name), &format!("{kept:#}\n"))?;
        places.clear(&run.options)?;
        watcher.ended(index, clock.now().saturating_sub(begun).as_secs_f64());
        *report = Some(made);
    }
    if !order.keep_stores {
        places.clear_all(&runs)?;
        if order.fast.is_none() && order.slow.is_none() {
            ["stores/fast", "stores/slow", "stores"]
                .iter()
                .for_each(|name| dirs::remove_if_empty(&order.out.join(name)));
        }
    }
    let runs = runs.into_iter().zip(kept.into_iter().flatten()).collect();
    Ok(Paper { items: order.items.clone(), scale: order.scale, runs, devices })
}

impl Paper {
    /// The report of the run `name`.
    #[must_use]
    pub fn report(&self, name: &str) -> Option<&Value> {
        self.runs.iter().find(|(run, _)| run.name == name).map(|(_, report)| report)
    }

    /// Everything for machines: the tables, and every run whole.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let table = |table: &Table| json!({"title": table.title, "caption": table.caption, "header": table.header, "rows": table.rows});
        let items: serde_json::Map<String, Value> = self
            .items
            .iter()
            .map(|item| (item.name().to_string(), table(&tables::table(self, *item))))
            .collect();
        let runs: serde_json::Map<String, Value> =
            self.runs.iter().map(|(run, report)| (run.name.clone(), report.clone())).collect();
        json!({"scale": self.scale.part(), "items": items, "runs": runs, "devices": devices_json(&self.devices)})
    }

    /// Writes `report.json`, `report.html` and a CSV file for each item into `out`.
    ///
    /// # Errors
    /// The operating system's; if a plot cannot be drawn.
    pub fn write(&self, out: &std::path::Path) -> Result<()> {
        for item in &self.items {
            dirs::write_whole(&out.join(format!("{item}.csv")), &tables::table(self, *item).csv())?;
        }
        dirs::write_whole(&out.join("report.json"), &format!("{:#}\n", self.to_json()))?;
        dirs::write_whole(&out.join("report.html"), &page::html(self)?)
    }
}
