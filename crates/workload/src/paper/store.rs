//! The stores of the runs: each loaded once, copied for every run that begins with it, so that each begins cold and alike.
//!
//! In:  `fast/loaded-BYTES/bench-SYSTEM` and `slow/loaded-BYTES/bench-SYSTEM-slow`, BYTES those of a record, and beside them
//!      `SYSTEM.json` once the load is whole.
//! Out: `fast/run/...` and `slow/run/...`, removed when the run is over.
//! Space is counted before anything is written. Tests stand below, and in `tests.rs`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use kelvin_base::{Error, ErrorKind, Result};
use serde_json::{Value, json};

use super::Watcher;
use super::plan::RunSpec;
use crate::dirs;
use crate::options::{BenchOptions, DeviceLimits, Workload};

/// Bytes on disk for each byte of records in a store at rest, with what a load leaves behind.
const AT_REST: f64 = 1.4;
/// The same while it runs: what compactions write before they remove.
const AT_WORK: f64 = 1.8;

/// Where the stores lie.
#[derive(Clone, Debug)]
pub struct Places {
    /// Directory on the fast disk.
    pub fast: PathBuf,
    /// Directory on the slow disk.
    pub slow: PathBuf,
}

impl Places {
    /// The options with their directories in the part `name` of both places.
    fn within(&self, name: &str, options: &BenchOptions) -> BenchOptions {
        let slow = options.system.is_tiered().then(|| self.slow.join(name));
        BenchOptions { fast: self.fast.join(name), slow, ..options.clone() }
    }

    /// The load that `options` begin with.
    pub(super) fn load_of(&self, options: &BenchOptions) -> BenchOptions {
        let loaded = BenchOptions {
            workload: Workload::Load,
            records: options.records,
            key_size: options.key_size,
            value_size: options.value_size,
            threads: options.threads,
            fast_capacity: options.fast_capacity,
            memory: options.memory,
            seed: options.seed,
            bulk_load: options.bulk_load,
            // As fast as the machine: nobody measures it.
            limits: DeviceLimits::default(),
            ..BenchOptions::new(options.system, "")
        };
        self.within(&loaded_name(options), &loaded)
    }

    fn loaded_mark(&self, options: &BenchOptions) -> PathBuf {
        self.fast.join(loaded_name(options)).join(format!("{}.json", options.system))
    }

    /// Loads the store that `options` begin with, unless it is there.
    fn ensure_loaded(&self, options: &BenchOptions, watcher: &mut dyn Watcher) -> Result<BenchOptions> {
        let load = self.load_of(options);
        let (mark, asked) = (self.loaded_mark(&load), asked_of(&load));
        let is_there =
            [Some(load.fast_dir()), load.slow_dir()].iter().flatten().all(|dir| dirs::is_marked(dir));
        if is_there && dirs::read_json(&mark).as_ref() == Some(&asked) {
            return Ok(load);
        }
        dirs::remove_file(&mark)?;
        crate::runner::run(&load, watcher)?;
        dirs::write_whole(&mark, &format!("{asked:#}\n"))?;
        Ok(load)
    }

    /// A fresh copy of the store that `options` begin with; the options of a run on it.
    ///
    /// # Errors
    /// The load's, or the operating system's.
    pub fn prepare(&self, options: &BenchOptions, watcher: &mut dyn Watcher) -> Result<BenchOptions> {
        let load = self.ensure_loaded(options, watcher)?;
        let run = self.within("run", options);
        dirs::copy_fresh(&load.fast_dir(), &run.fast_dir())?;
        if let Some((from, to)) = load.slow_dir().zip(run.slow_dir()) {
            dirs::copy_fresh(&from, &to)?;
        }
        Ok(run)
    }

    /// Where a run goes that loads its own store.
    #[must_use]
    pub fn fresh(&self, options: &BenchOptions) -> BenchOptions {
        self.within("run", options)
    }

    /// Removes the copy of a run that is over.
    ///
    /// # Errors
    /// The operating system's.
    pub fn clear(&self, options: &BenchOptions) -> Result<()> {
        let run = self.within("run", options);
        [Some(run.fast_dir()), run.slow_dir()].iter().flatten().try_for_each(|dir| dirs::remove_marked(dir))
    }

    /// Removes every store of `runs`.
    ///
    /// # Errors
    /// The operating system's.
    pub fn clear_all(&self, runs: &[RunSpec]) -> Result<()> {
        for run in runs {
            self.clear(&run.options)?;
            if run.trace.is_some() {
                continue;
            }
            let load = self.load_of(&run.options);
            let dirs = [Some(load.fast_dir()), load.slow_dir()];
            dirs.iter().flatten().try_for_each(|dir| dirs::remove_marked(dir))?;
            dirs::remove_file(&self.loaded_mark(&run.options))?;
        }
        for place in [&self.fast, &self.slow] {
            names(runs).iter().for_each(|name| dirs::remove_if_empty(&place.join(name)));
        }
        Ok(())
    }

    /// Refuses what will not fit.
    ///
    /// # Errors
    /// `NoSpace` with what is needed and what is free; the operating system's.
    pub fn check_space(&self, runs: &[RunSpec]) -> Result<()> {
        let [fast, slow] = needed_bytes(runs);
        let is_one = dirs::device(&self.fast)? == dirs::device(&self.slow)?;
        let wanted = if is_one {
            vec![(&self.fast, fast + slow)]
        } else {
            vec![(&self.fast, fast), (&self.slow, slow)]
        };
        for (place, needed) in wanted {
            // Stores of an earlier time are there already, and are used or replaced.
            let own = names(runs).iter().map(|name| dirs::used_bytes(&place.join(name))).sum::<u64>();
            let free = dirs::free_bytes(place)? + own;
            if free < needed {
                let gigabytes = |bytes: u64| format!("{:.1} GB", bytes as f64 / 1e9);
                return Err(Error::new(
                    ErrorKind::NoSpace,
                    "the stores would not fit on this disk; nothing was begun",
                )
                .file(place)
                .expected(format!("{} free", gigabytes(needed)), gigabytes(free))
                .advice("give a smaller --scale, or --out, --fast and --slow on larger disks"));
            }
        }
        Ok(())
    }
}

/// The directory, in both places, of the loaded stores that hold records as large as those of `options`.
fn loaded_name(options: &BenchOptions) -> String {
    format!("loaded-{}", options.key_size + options.value_size)
}

/// All directories of `runs` in a place.
fn names(runs: &[RunSpec]) -> BTreeSet<String> {
    runs.iter().map(|run| loaded_name(&run.options)).chain(["run".to_string()]).collect()
}

/// What `runs` need at most on each disk, fast and slow: every loaded store, and the largest copy.
fn needed_bytes(runs: &[RunSpec]) -> [u64; 2] {
    let bytes = |records: u64, options: &BenchOptions, factor: f64| {
        let bytes = records as f64 * (options.key_size + options.value_size) as f64 * factor;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an estimate, saturates")]
        let bytes = bytes as u64;
        bytes
    };
    let on_disks = |options: &BenchOptions, records: u64, factor: f64| {
        let all = bytes(records, options, factor);
        if options.system.is_tiered() { [options.fast_capacity.unwrap_or(0), all] } else { [all, 0] }
    };
    let (mut stores, mut loaded, mut largest) = (Vec::new(), [0; 2], [0; 2]);
    for RunSpec { options, trace, .. } in runs {
        // Every other request of a trace may be a new record.
        let insert = if trace.is_some() { 50 } else { options.workload.mix().insert };
        let inserted = options.run_ops() / 100 * u64::from(insert);
        let copy = on_disks(options, options.records + inserted, AT_WORK);
        largest = [largest[0].max(copy[0]), largest[1].max(copy[1])];
        let of = (options.system, loaded_name(options));
        if trace.is_none() && !stores.contains(&of) {
            stores.push(of);
            let store = on_disks(options, options.records, AT_REST);
            loaded = [loaded[0] + store[0], loaded[1] + store[1]];
        }
    }
    [loaded[0] + largest[0], loaded[1] + largest[1]]
}

/// What a result follows from: another of these is another run.
#[must_use]
pub fn asked(run: &RunSpec) -> Value {
    let mut asked = asked_of(&run.options);
    if let Some(trace) = &run.trace {
        asked["trace"] = trace.asked();
    }
    asked
}

/// The same of a run without a trace, or of a load.
pub(super) fn asked_of(options: &BenchOptions) -> Value {
    let limits = &options.limits;
    let mut asked = json!({
        "system": options.system.name(),
        "hotness": options.hotness().map(kelvin::Hotness::name),
        "hot_set_bytes": options.hot_set_bytes,
        "retention": options.hot_parts.retention,
        "hotness_check": options.hot_parts.hotness_check,
        "promotion_by_compaction": options.hot_parts.promotion_by_compaction,
        "promotion_by_flush": options.hot_parts.promotion_by_flush,
        "scan_accesses": options.hot_parts.scan_accesses,
        "workload": options.workload.name(),
        "keys": options.keys.to_string(),
        "records": options.records,
        "key_size": options.key_size,
        "value_size": options.value_size,
        "ops": options.run_ops(),
        "threads": options.threads,
        "memory": options.memory,
        "fast_capacity": options.fast_capacity,
        "slow_read_iops": limits.slow_read_iops,
        "slow_bandwidth": limits.slow_bandwidth,
        "seed": options.seed,
    });
    if options.bulk_load {
        asked["bulk_load"] = json!(true);
    }
    if let Some(latency) = limits.slow_latency {
        asked["slow_latency_ms"] = json!(latency.as_secs_f64() * 1e3);
    }
    asked
}

/// The settings in which two of [`asked`] differ, for people.
#[must_use]
pub fn differences(then: &Value, now: &Value) -> String {
    let (Some(then), Some(now)) = (then.as_object(), now.as_object()) else { return "everything".into() };
    let other = |(name, value): (&String, &Value)| {
        let before = then.get(name).unwrap_or(&Value::Null);
        (before != value).then(|| format!("{name} {before}, now {value}"))
    };
    now.iter().filter_map(other).collect::<Vec<_>>().join("; ")
}

/// The files that results are kept in.
#[must_use]
pub fn result_path(out: &Path, name: &str) -> PathBuf {
    out.join("runs").join(format!("{name}.json"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::item::{Item, plan as plan_of};
    use crate::paper::tests::choice;

    fn plan(items: &[Item], scale: &str) -> Vec<RunSpec> {
        plan_of(items, &choice(scale))
    }

    #[test]
    fn space_is_counted_for_every_loaded_store_and_the_largest_copy() {
        let scale = "1/100";
        let data = 1_126_400_000.0;
        let [fast, slow] = needed_bytes(&plan(&[Item::Table4], scale)).map(|bytes| bytes as f64);
        assert!((fast - 2e8).abs() < 1.0, "a loaded store and a copy: {fast}");
        assert!((slow - data * 3.2).abs() < 1e3, "{slow}");
        // A writing workload, and a system that has everything on the fast disk.
        let [fast, slow] = needed_bytes(&plan(&[Item::Reference], scale)).map(|bytes| bytes as f64);
        assert!(fast > data * 3.5 && slow > data * 5.0, "{fast} {slow}");
    }

    #[test]
    fn what_differs_is_named() {
        let runs = plan(&[Item::Table3], "1/1000");
        let (with, without) = (asked(&runs[0]), asked(&runs[1]));
        assert_eq!(differences(&with, &without), "retention true, now false");
        assert_eq!(differences(&with, &with), "");
        assert_eq!(differences(&Value::Null, &with), "everything");
    }

    #[test]
    fn too_little_disk_is_said_before_anything_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let places = Places { fast: dir.path().into(), slow: dir.path().into() };
        let mut runs = plan(&[Item::Table3], "1/1000");
        assert!(places.check_space(&runs).is_ok());
        runs[0].options.records = 1 << 50;
        let error = places.check_space(&runs).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(error.to_string().contains("nothing was begun"), "{error}");
    }
}
