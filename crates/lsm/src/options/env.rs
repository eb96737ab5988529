//! What the engine gets from outside: files, time, threads, randomness (DESIGN section 2, point 5).

use std::sync::Arc;

use kelvin_base::{Clock, Executor};
use kelvin_storage::Storage;

/// The injected world of a store. Clones share it; several stores may.
#[derive(Clone, Debug)]
pub struct Env {
    /// Files of the fast tier.
    pub fast: Arc<dyn Storage>,
    /// Files of the slow tier.
    pub slow: Arc<dyn Storage>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Background work.
    pub executor: Arc<dyn Executor>,
    /// Seed of everything random, where [`super::Advanced::seed`] gives none.
    pub seed: u64,
}
