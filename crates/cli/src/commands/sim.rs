//! `kelvin sim`: one system under one workload, in simulated time. What is run is the crate `kelvin-workload`'s.

use std::path::Path;
use std::time::Duration;

use kelvin_storage::throttle::Limits;
use kelvin_workload::simulate::{Machine, simulate};
use kelvin_workload::{BenchOptions, System};

use super::bench::{Bar, json_of, listener, options_of, tell};
use crate::args::sim::{Sim, SimCommand};
use crate::exit::Outcome;

/// Where the simulated store is: nobody else sees it.
const DIR: &str = "/simulated";

/// Simulates, prints, and writes what was asked for.
///
/// # Errors
/// `InvalidArgument` for options that cannot be run; the store's; the output's.
pub fn run(args: &Sim) -> Outcome {
    if let Some(SimCommand::Paper(paper)) = &args.command {
        return super::paper::simulate(paper);
    }
    let system: System = args.work.system.parse()?;
    let dir = Path::new(DIR);
    let options = BenchOptions {
        slow: system.is_tiered().then(|| dir.join("slow")),
        listener: listener(&args.results, 1)?,
        ..options_of(&args.work, system, true, &dir.join("fast"), args.fast_capacity, args.memory)?
    };
    let mut bar = Bar::default();
    let report = simulate(&options, &machine(args), None, &mut bar)?;
    bar.finish();
    let reports = [report];
    tell(&args.results, &reports[0].table(), &json_of(&reports), &reports)
}

/// The machine that is simulated.
fn machine(args: &Sim) -> Machine {
    let micros = Duration::from_micros;
    let fast = Limits {
        read_iops: Some(args.fast_read_iops),
        read_bandwidth: Some(args.fast_bandwidth),
        write_bandwidth: Some(args.fast_bandwidth),
        latency: micros(args.fast_latency_us),
        ..Limits::default()
    };
    let slow = Limits {
        read_iops: Some(args.slow_read_iops),
        write_iops: args.slow_write_iops,
        read_bandwidth: Some(args.slow_bandwidth),
        write_bandwidth: Some(args.slow_bandwidth),
        latency: micros(args.slow_latency_us),
        ..Limits::default()
    };
    Machine {
        cores: args.cores,
        operation: micros(args.operation_us),
        megabyte: micros(args.megabyte_us),
        disks: [fast, slow],
    }
}
