//! The memory that the promotion caches of all keyspaces may take together. Tests: `tests.rs` beside.
//!
//! Invariant: what is taken was charged to the store's memory before, in steps, so that the block cache need not
//! make room for every record.

use std::sync::Arc;

use kelvin_base::sync::Mutex;

use crate::memory::{MemoryBudget, MemoryCharge, MemoryPart};

/// Steps in which memory is charged, in the whole.
const STEPS: u64 = 16;

#[derive(Debug)]
struct Account {
    charge: MemoryCharge,
    charged_bytes: u64,
    used_bytes: u64,
}

/// The memory that the promotion caches of a store may take together.
#[derive(Debug)]
pub struct Room {
    limit_bytes: u64,
    account: Mutex<Account>,
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// The limit is reached.
    Full,
    /// Somebody else counts just now.
    Busy,
}

impl Room {
    /// Room for `limit_bytes`; `None` for none at all.
    #[must_use]
    pub fn new(limit_bytes: u64, memory: &MemoryBudget) -> Option<Arc<Self>> {
        let charge = memory.charge(MemoryPart::Promotion, 0);
        let account = Mutex::new(Account { charge, charged_bytes: 0, used_bytes: 0 });
        (limit_bytes > 0).then(|| Arc::new(Self { limit_bytes, account }))
    }

    /// Takes `bytes` without waiting.
    pub(super) fn try_take(&self, bytes: u64) -> Result<(), NoRoom> {
        let mut account = self.account.try_lock().ok_or(NoRoom::Busy)?;
        self.count(&mut account, bytes)
    }

    /// Takes `bytes`; false if the limit is reached.
    pub(super) fn take(&self, bytes: u64) -> bool {
        self.count(&mut self.account.lock(), bytes).is_ok()
    }

    fn count(&self, account: &mut Account, bytes: u64) -> Result<(), NoRoom> {
        let used_bytes = account.used_bytes.saturating_add(bytes);
        if used_bytes > self.limit_bytes {
            return Err(NoRoom::Full);
        }
        if used_bytes > account.charged_bytes {
            self.charge(account, used_bytes);
        }
        account.used_bytes = used_bytes;
        Ok(())
    }

    /// Gives `bytes` back.
    pub(super) fn give(&self, bytes: u64) {
        let mut account = self.account.lock();
        let used_bytes = account.used_bytes.saturating_sub(bytes);
        account.used_bytes = used_bytes;
        self.charge(&mut account, used_bytes);
    }

    /// Charges the steps that `used_bytes` begin.
    fn charge(&self, account: &mut Account, used_bytes: u64) {
        let step_bytes = (self.limit_bytes / STEPS).max(1);
        let charged_bytes = used_bytes.next_multiple_of(step_bytes).min(self.limit_bytes);
        account.charge.resize(charged_bytes);
        account.charged_bytes = charged_bytes;
    }

    /// Runs `then` while somebody else counts.
    #[cfg(test)]
    pub(super) fn with_account_taken(&self, then: impl FnOnce()) {
        let _taken = self.account.lock();
        then();
    }

    /// Bytes taken.
    #[cfg(test)]
    pub(super) fn used_bytes(&self) -> u64 {
        self.account.lock().used_bytes
    }
}
