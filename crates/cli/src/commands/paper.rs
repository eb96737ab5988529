//! `kelvin bench paper`: the evaluation of the HotRAP paper, with progress and the time left.
//!
//! What runs is the crate `kelvin-workload`'s; here are options, progress and the tables at the end. Tests: below, and
//! `crates/cli/tests/cli/paper.rs`.

use std::io::{IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kelvin_workload::paper::{Item, Order, RunSpec, Variant, Watcher, run as make};
use kelvin_workload::{DeviceLimits, Progress, ProgressUpdate};

use crate::args::paper::Paper;
use crate::args::sim::SimPaper;
use crate::exit::{Exit, Outcome};
use crate::output::print;

/// Runs what is missing, prints the tables, and writes the report.
///
/// # Errors
/// `InvalidArgument` for an unknown item or scale; `NoSpace` before anything is begun; the store's; the output's.
pub fn run(args: &Paper) -> Outcome {
    if args.list {
        for item in Item::ALL {
            print(&format!("{:<10} {}", item.name(), item.about()))?;
        }
        return Ok(Exit::Ok);
    }
    let out = args.out.clone().unwrap_or_default();
    let order = Order {
        items: items(&args.items, |item| item.is_papers())?,
        scale: args.scale.parse()?,
        out: out.clone(),
        fast: args.fast.clone(),
        slow: args.slow.clone(),
        limits: DeviceLimits {
            slow_read_iops: args.slow_read_iops,
            slow_bandwidth: args.slow_bandwidth,
            slow_latency: args.slow_latency,
            ..DeviceLimits::default()
        },
        threads: args.threads,
        seed: args.seed,
        bulk_load: args.bulk_load,
        keep_stores: args.keep_stores,
        only: args.only.clone(),
        variant: Variant {
            parts: args.ablations.parts(),
            hotness: args.hotness.as_deref().map(str::parse).transpose()?,
        },
        systems: args.systems.iter().map(|name| name.parse()).collect::<kelvin::Result<_>>()?,
        traces: args.traces.clone(),
        device_seconds: args.disk_seconds,
        is_simulated: false,
    };
    show(&order)
}

/// The same in simulated time.
///
/// # Errors
/// As [`run`].
pub fn simulate(args: &SimPaper) -> Outcome {
    let order = Order {
        items: items(&args.items, |item| item.is_papers() && !item.replays_traces())?,
        scale: args.scale.parse()?,
        out: args.out.clone(),
        fast: None,
        slow: None,
        limits: DeviceLimits::default(),
        threads: args.threads,
        seed: args.seed,
        bulk_load: args.bulk_load,
        keep_stores: false,
        only: args.only.clone(),
        variant: Variant {
            parts: args.ablations.parts(),
            hotness: args.hotness.as_deref().map(str::parse).transpose()?,
        },
        systems: args.systems.iter().map(|name| name.parse()).collect::<kelvin::Result<_>>()?,
        traces: Vec::new(),
        device_seconds: 0.0,
        is_simulated: true,
    };
    show(&order)
}

/// The items named, or if none is those that `is_default` is true for; in the report's order, each once.
fn items(names: &[String], is_default: fn(Item) -> bool) -> kelvin::Result<Vec<Item>> {
    let named = names.iter().map(|name| name.parse()).collect::<kelvin::Result<Vec<Item>>>()?;
    let is_wanted = |item: &Item| if named.is_empty() { is_default(*item) } else { named.contains(item) };
    Ok(Item::ALL.into_iter().filter(is_wanted).collect())
}

/// Makes the runs, prints the tables, and writes the report.
fn show(order: &Order) -> Outcome {
    let mut shown = Shown::new();
    let paper = make(order, &mut shown)?;
    shown.bar.finish_and_clear();
    paper.write(&order.out)?;
    for item in &paper.items {
        print(&item.table(&paper).text())?;
    }
    print(&format!("Tables and plots: {}", order.out.join("report.html").display()))?;
    Ok(Exit::Ok)
}

/// How far all runs together are.
#[derive(Debug, Default)]
struct Pace {
    /// Seconds each run was expected to take; 0 for those made before.
    expected: Vec<f64>,
    /// Expected and real seconds of those that are over.
    over: (f64, f64),
    current: usize,
}

impl Pace {
    /// Real seconds for an expected one, so far.
    fn factor(&self) -> f64 {
        if self.over.0 > 0.0 { self.over.1 / self.over.0 } else { 1.0 }
    }

    /// Seconds left, if the current run is `done` of its way (0 to 1) after `gone` seconds.
    fn left(&self, done: f64, gone: f64) -> f64 {
        let later: f64 = self.expected.iter().skip(self.current + 1).sum::<f64>() * self.factor();
        let expected = self.expected.get(self.current).copied().unwrap_or(0.0) * self.factor();
        // A run begins cold and slow: its own pace says too much at first, and is believed more and more.
        let by_pace = if done > 0.0 { gone * (1.0 - done) / done } else { expected };
        later + by_pace * done + (expected - gone).max(0.0) * (1.0 - done)
    }

    /// The part of everything that is done.
    fn share(&self, done: f64) -> f64 {
        let all: f64 = self.expected.iter().sum();
        let before: f64 = self.expected.iter().take(self.current).sum();
        let current = self.expected.get(self.current).copied().unwrap_or(0.0);
        if all > 0.0 { ((before + current * done) / all).clamp(0.0, 1.0) } else { 1.0 }
    }
}

/// A bar on a terminal, a line for each run elsewhere.
struct Shown {
    bar: ProgressBar,
    is_terminal: bool,
    names: Vec<String>,
    pace: Pace,
}

/// Steps of the bar.
const STEPS: u64 = 1000;

impl Shown {
    fn new() -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let target =
            if is_terminal { ProgressDrawTarget::stderr_with_hz(5) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(STEPS), target);
        if let Ok(style) = ProgressStyle::with_template("{bar:25} {percent:>3} %  {msg}") {
            bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
        }
        Self { bar, is_terminal, names: Vec::new(), pace: Pace::default() }
    }

    /// "[2/9] NAME" of a run.
    fn title(&self, index: usize) -> String {
        let name = self.names.get(index).map_or("", String::as_str);
        format!("[{}/{}] {name}", index + 1, self.names.len())
    }

    fn line(&self, text: &str) {
        if self.is_terminal {
            self.bar.println(text);
        } else {
            // Nobody is left to tell if stderr is closed.
            let _unheard = writeln!(std::io::stderr(), "{text}");
        }
    }
}

/// Seconds as people say them.
fn duration(seconds: f64) -> String {
    match seconds {
        long if long >= 5400.0 => format!("{:.1} h", long / 3600.0),
        some if some >= 90.0 => format!("{:.0} min", some / 60.0),
        short => format!("{short:.0} s"),
    }
}

impl Progress for Shown {
    fn update(&mut self, update: &ProgressUpdate) {
        let done = match (update.phase, update.total) {
            ("run", Some(total)) => update.done as f64 / total.max(1) as f64,
            _ => 0.0,
        };
        let gone = if update.phase == "run" { update.seconds } else { 0.0 };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and STEPS")]
        self.bar.set_position((self.pace.share(done) * STEPS as f64) as u64);
        let hits = update.hit_rate.map(|rate| format!(", {:.0} % fast", 100.0 * rate)).unwrap_or_default();
        self.bar.set_message(format!(
            "{} {}: {:.0} operations/s{hits}; about {} left",
            self.title(self.pace.current),
            update.phase,
            update.ops_per_s,
            duration(self.pace.left(done, gone))
        ));
    }
}

impl Watcher for Shown {
    fn planned(&mut self, runs: &[RunSpec], is_done: &[bool], slow_reads: Option<f64>) {
        self.names = runs.iter().map(|run| run.name.clone()).collect();
        let expected = runs.iter().zip(is_done);
        self.pace.expected =
            expected.map(|(run, done)| if *done { 0.0 } else { run.expected_seconds(slow_reads) }).collect();
        let before = is_done.iter().filter(|done| **done).count();
        let seconds = duration(self.pace.expected.iter().sum());
        self.line(&match before {
            0 => format!("{} runs, about {seconds}", runs.len()),
            _ => format!("{} runs, {before} of them made before; about {seconds} for the rest", runs.len()),
        });
    }

    fn note(&mut self, text: &str) {
        self.line(text);
    }

    fn begun(&mut self, index: usize) {
        self.pace.current = index;
    }

    fn ended(&mut self, index: usize, seconds: f64) {
        let expected = self.pace.expected.get(index).copied().unwrap_or(0.0);
        self.pace.over = (self.pace.over.0 + expected, self.pace.over.1 + seconds);
        let left = duration(self.pace.left(1.0, seconds));
        self.line(&format!("{} in {seconds:.1} s; about {left} left", self.title(index)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_the_pace_of_the_runs_before_and_of_the_current_one() {
        let mut pace = Pace { expected: vec![10.0, 0.0, 20.0, 30.0], over: (0.0, 0.0), current: 0 };
        assert!((pace.left(0.0, 0.0) - 60.0).abs() < 1e-9);
        assert!((pace.left(1.0, 15.0) - 50.0).abs() < 1e-9);
        (pace.over, pace.current) = ((10.0, 20.0), 2);
        assert!((pace.left(0.0, 0.0) - 100.0).abs() < 1e-9, "twice as long as expected");
        assert!((pace.left(0.5, 10.0) - (60.0 + 5.0 + 15.0)).abs() < 1e-9);
        assert!((pace.share(0.5) - 20.0 / 60.0).abs() < 1e-9);
        assert_eq!((Pace::default().share(0.3), Pace::default().left(0.0, 0.0)), (1.0, 0.0));
    }

    #[test]
    fn durations_are_short() {
        assert_eq!(
            [5.4, 89.0, 100.0, 3000.0, 7200.0].map(duration),
            ["5 s", "89 s", "2 min", "50 min", "2.0 h"]
        );
    }
}
