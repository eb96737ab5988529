//! What the tests of promotion share: reads that stop between the lookup and the insertion, and a walk that checks the
//! cache against the slow levels.

use std::sync::Arc;

use kelvin_base::{SEQUENCE_MAX, Sequence, hash64};
use kelvin_table::{LookupKey, ReadIo};

use crate::after_read::LatestRead;
use crate::db::Keyspace;
use crate::read::{Found, Moment, lookup};
use crate::version::{FIRST_SLOW, LEVELS, Version};
use crate::view::View;

/// A get that has found its answer and not yet inserted it.
pub(crate) struct HalfRead {
    pub keyspace: Keyspace,
    pub view: Arc<View>,
    pub at: Sequence,
    pub key: Vec<u8>,
    pub found: Option<Found>,
}

impl HalfRead {
    /// Reads `key` as a get does.
    pub(crate) fn begin(keyspace: &Keyspace, key: &[u8]) -> Self {
        let view = keyspace.state.view();
        Self::at(keyspace, view, keyspace.engine.visible(), key)
    }

    /// Reads `key` in `view` at `at`.
    pub(crate) fn at(keyspace: &Keyspace, view: Arc<View>, at: Sequence, key: &[u8]) -> Self {
        let moment = Moment { at, clock: &*keyspace.engine.env.clock };
        let found = lookup(&view, &keyspace.state.promotion, key, moment).unwrap().found;
        Self { keyspace: keyspace.clone(), view, at, key: key.to_vec(), found }
    }

    /// Does what follows the read.
    pub(crate) fn finish(&self) {
        let state = &self.keyspace.state;
        let read = LatestRead { keyspace: state, view: &self.view, at: self.at, key: &self.key };
        read.promote(&self.keyspace.engine, self.found.as_ref());
    }
}

/// The newest entry of `key` in the slow levels and whether it has a value; `None` if there is none or it is covered.
fn slow_answer(version: &Version, key: &[u8]) -> Option<(Sequence, u8)> {
    let at = LookupKey { user_key: key, hash: hash64(key), at: SEQUENCE_MAX };
    for level in FIRST_SLOW..LEVELS {
        let Some(file) = version.candidate(level, key) else { continue };
        let table = file.table().unwrap();
        let covering = table.tombstones().map_or(0, |stones| stones.max_covering(key, SEQUENCE_MAX));
        if let Some(entry) = table.get(&at, &mut ReadIo::default()).unwrap() {
            return (entry.sequence > covering).then_some((entry.sequence, entry.kind_byte));
        }
        if covering > 0 {
            return None;
        }
    }
    None
}

/// Checks that the slow levels answer with exactly the record for every key in the cache (invariant C6). How many there are.
pub(crate) fn walk(keyspace: &Keyspace) -> usize {
    let records = keyspace.state.promotion.contents();
    let version = &keyspace.state.view().version;
    for (key, record) in &records {
        let name = String::from_utf8_lossy(key);
        let (sequence, kind_byte) =
            slow_answer(version, key).unwrap_or_else(|| panic!("{name} is in the cache and has no original"));
        assert_eq!(sequence, record.sequence, "{name}: another version lies below");
        assert_eq!(kind_byte + 1, record.kind_byte, "{name}: a copy has the kind behind a value's");
    }
    assert_eq!(records.len(), keyspace.state.promotion.records());
    records.len()
}

/// One figure of the store's promotion statistics.
pub(crate) fn counted(keyspace: &Keyspace, name: &str) -> u64 {
    let stats = keyspace.engine.stats();
    stats.promotion.iter().find(|(of, _)| *of == name).map(|(_, count)| *count).unwrap()
}
