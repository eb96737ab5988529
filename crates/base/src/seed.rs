//! Injected randomness: where a seed comes from when nobody gives one.
//!
//! Everything random in Kelvin is derived from a seed, so that a run can be repeated. Tests stand below.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A seed that differs from call to call and from process to process.
#[must_use]
pub fn system_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_seeds_differ() {
        assert_ne!(system_seed(), system_seed());
    }
}
