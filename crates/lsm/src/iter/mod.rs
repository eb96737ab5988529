//! Iterators: [`MergingIter`] merges sorted sources, [`DbIter`] makes of them what a user sees.
//!
//! Tests: `tests.rs`.

mod cover;
mod merging;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod user;

pub use cover::Cover;
pub use merging::MergingIter;
pub use user::{DbIter, Sight};
