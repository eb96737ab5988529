//! Background work begun though it is not due, for simulations: it runs as if the schedule had begun it.

use crate::compaction::pick::{Forced, pick_forced};
use crate::db::Keyspace;

impl Keyspace {
    /// Begins a compaction of this kind if there is anything for it to do and room for it; `nth` chooses among tables. True if
    /// one was begun.
    #[doc(hidden)]
    pub fn force(&self, what: Forced, nth: usize) -> bool {
        let engine = &self.engine;
        if engine.is_closing() || engine.health.fatal().is_some() {
            return false;
        }
        let mut work = engine.work.lock();
        let versions = engine.versions_now();
        let config = engine.pick_config_now();
        let plan = pick_forced(&engine.pick_input(&config, &versions, &work, 0), self.state.id, what, nth);
        plan.is_some_and(|plan| engine.begin_compaction(&mut work, plan).is_ok())
    }
}
