//! Iterators: [`LevelIter`] walks the tables of a level, [`MergingIter`] merges sorted sources, [`DbIter`] makes of them what a user sees.
//!
//! Tests: `tests.rs`, `level_tests.rs`.

mod cover;
mod level;
#[cfg(test)]
mod level_tests;
mod merging;
mod source;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod user;

pub use cover::Cover;
pub use level::LevelIter;
pub use merging::MergingIter;
pub use source::Source;
pub use user::{DbIter, Sight};
