//! Benchmark workloads, the runner that drives a store with them, and its reports.
//!
//! [`options`] says what to run, [`generate`] makes keys, values and the order of operations from a seed,
//! [`subject`] is the store under test, [`runner`] loads it and drives it, [`report`] and [`html`] show what came of
//! it, [`compare`] runs two systems in turn, [`trace`] replays production traces, [`soak`] keeps a store at work for hours while its disks fail. Every value read is checked: a wrong one fails the run.
//! DESIGN section 12. Tests stand beside each module.

pub mod best;
pub mod compare;
pub mod device;
pub mod dirs;
pub mod generate;
pub mod html;
mod kelvin;
pub mod options;
pub mod paper;
#[cfg(any(feature = "rocksdb", feature = "fjall"))]
mod peer;
pub mod plot;
pub mod report;
pub mod runner;
pub mod samples;
pub mod simulate;
pub mod soak;
pub mod stages;
pub mod subject;
pub mod systems;
pub mod trace;
mod versions;

pub use compare::{Comparison, compare};
pub use generate::keys::KeyDistribution;
pub use html::html;
pub use options::{BenchOptions, DeviceLimits, Mix, System, Workload};
pub use report::Report;
pub use runner::{NoProgress, Progress, ProgressUpdate, run, run_on};
pub use subject::{ByteCounts, Counters, MemorySubject, Subject};
