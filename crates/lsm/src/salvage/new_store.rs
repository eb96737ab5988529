//! The store that what is rescued goes into.
//!
//! It is a store like any other, written through the library in batches; until it is closed nothing of it is promised, so it is written
//! without waiting for the disk. Tests: `tests/trust/salvage.rs`.

use kelvin_base::{Error, Result};

use super::{Record, Sink};
use crate::batch::WriteBatch;
use crate::db::{Db, Keyspace, WriteOptions};
use crate::options::{Durability, Env, Options};
use crate::recovery::tier_handles;

/// A batch is written at this size, or at this part of a memtable's.
const BATCH_BYTES_MAX: u64 = 256 << 10;
const BATCHES_PER_MEMTABLE: u64 = 16;

/// A store being filled.
pub(super) struct NewStore {
    db: Db,
    keyspace: Option<Keyspace>,
    batch: WriteBatch,
    batch_bytes: u64,
}

impl NewStore {
    /// Makes the store that `options` name.
    ///
    /// # Errors
    /// `InvalidArgument` if one of its directories is there and not empty; else as [`Db::open`].
    pub(super) fn make(options: Options) -> Result<Self> {
        let config = options.clone().derive()?;
        let env = match &options.env {
            Some(env) => env.clone(),
            None => Env::system(&config)?,
        };
        for tier in tier_handles(&config, &env).iter().flatten() {
            let names =
                if tier.storage().exists(tier.dir()).unwrap_or(true) { tier.list()? } else { Vec::new() };
            if let Some(name) = names.first() {
                return Err(Error::invalid(format!(
                    "the new store's directory is not empty: it holds {}",
                    name.display()
                ))
                .file(tier.dir())
                .tier(tier.tier())
                .advice("give an absent or empty directory; nothing was changed"));
            }
        }
        let batch_bytes = BATCH_BYTES_MAX.min(config.memtable_bytes / BATCHES_PER_MEMTABLE);
        let db = Db::open(Options { env: Some(env), ..options })?;
        Ok(Self { db, keyspace: None, batch: WriteBatch::new(), batch_bytes })
    }

    /// The keyspace `name`; what was for another is written first.
    fn turn_to(&mut self, name: &str) -> Result<&Keyspace> {
        if self.keyspace.as_ref().is_none_or(|one| one.name() != name) {
            self.keyspace = Some(self.db.keyspace(name)?);
        }
        self.keyspace.as_ref().ok_or_else(|| Error::invalid(format!("there is no keyspace {name:?}")))
    }

    fn write(&mut self) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.batch);
        let quick = WriteOptions { durability: Some(Durability::Memory), ttl: None };
        self.db.write(batch, &quick)
    }

    /// Writes what is left and closes the store: it then survives power loss.
    ///
    /// # Errors
    /// As [`Db::write`] and [`Db::close`].
    pub(super) fn complete(mut self) -> Result<()> {
        self.write()?;
        self.keyspace = None;
        self.db.close()
    }
}

impl Sink for NewStore {
    fn keyspace(&mut self, name: &str) -> Result<()> {
        self.turn_to(name).map(drop)
    }

    fn record(&mut self, name: &str, record: Record<'_>) -> Result<()> {
        let id = self.turn_to(name)?.id();
        match record.expiry_ms {
            None => self.batch.put(id, record.key, record.value)?,
            Some(expiry_ms) => self.batch.put_expiring(id, record.key, record.value, expiry_ms)?,
        }
        if self.batch.bytes().len() as u64 >= self.batch_bytes { self.write() } else { Ok(()) }
    }
}
