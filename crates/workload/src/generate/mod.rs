//! Keys, values and distributions, all derived from a seed.

pub mod keys;
pub mod permutation;
pub mod records;
pub mod stages;
pub mod ycsb;
