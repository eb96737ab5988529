//! Compaction: `pick` plans (pure), `job` acts, the database installs.

pub mod job;
pub mod pick;
