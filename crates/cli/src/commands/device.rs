//! `kelvin bench device`: what a disk does.
//!
//! What is measured is the crate `kelvin-workload`'s; here are options and where results go. Tests: `crates/cli/tests/cli/device.rs`.

use kelvin_workload::device::{Order, measure, table};

use super::bench::write;
use crate::args::device::Device;
use crate::exit::{Exit, Outcome};
use crate::files::is_dash;
use crate::output::print;

/// Measures, prints, and compares with what is expected.
///
/// # Errors
/// The measurement's; `Io` if the disk is not what was expected; the output's.
pub fn run(args: &Device) -> Outcome {
    let device = measure(&Order {
        dir: args.dir.clone(),
        file_bytes: args.size,
        seconds: args.seconds,
        threads: args.threads,
        limits: Order::limits(args.read_iops, args.bandwidth, args.latency),
    })?;
    if !args.json.as_deref().is_some_and(is_dash) {
        let name = args.dir.display().to_string();
        print(table(&[(&name, &device)]).text().trim_end())?;
    }
    if let Some(path) = &args.json {
        write(path, &format!("{:#}\n", device.to_json()))?;
    }
    device.expect(args.expect_reads, args.expect_bandwidth, args.tolerance)?;
    Ok(Exit::Ok)
}
