//! Production traces: reading, preparing, classifying, making and replaying them (HotRAP §4.3, Figures 9 to 11).
//!
//! [`reader`] reads Twitter's published form line by line, [`plan`] and [`prepare`] make a load and a run of a trace as
//! the paper does, [`classify`] says how many reads are of sunk and of hot records, [`replay`] does it all to a store and
//! checks every read, [`synthesize`] makes traces where none is at hand. `docs/benchmarks.md` says what the paper leaves open.

pub mod classify;
pub mod figures;
pub mod files;
pub mod model;
pub mod plan;
pub mod prepare;
pub mod reader;
pub mod replay;
pub mod request;
mod steps;
pub mod synthesize;
mod table;
#[cfg(test)]
mod tests;
mod turns;
mod values;

pub use classify::{Category, Classes};
pub use figures::TraceFigures;
pub use files::write_synthetic;
pub use model::{Rules, Semantics};
pub use plan::{PrepareOptions, run_ops_for};
pub use prepare::{Prepared, prepare};
pub use reader::{MalformedLines, TraceFiles};
pub use replay::{replay, replay_loaded};
pub use synthesize::Synthetic;
