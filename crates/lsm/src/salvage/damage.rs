//! What was met that cannot be read, and what it makes doubtful. Tests: `tests/trust/salvage.rs`.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use kelvin_base::{Error, Sequence, Tier, seeded_bug};

use super::doubt::{Doubt, Doubts, LOGS, rank_of};
use super::{Lost, Part};
use crate::check::FileKind;
use crate::files::table_name;
use crate::version::{TableMeta, is_hot_run};

/// A table and where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) id: u32,
    pub(super) keyspace: &'a str,
    pub(super) level: usize,
    pub(super) meta: &'a TableMeta,
    pub(super) path: &'a Path,
}

/// What was met so far.
#[derive(Debug, Default)]
pub(super) struct Damage {
    pub(super) lost: Vec<Lost>,
    pub(super) notes: Vec<String>,
    doubts: BTreeMap<u32, Doubts>,
}

impl Damage {
    pub(super) fn is_doubtful(&mut self, id: u32, key: &[u8], sequence: Sequence, rank: usize) -> bool {
        self.doubts.entry(id).or_default().is_doubtful(key, sequence, rank)
    }

    /// Nothing of a table can be read.
    pub(super) fn table(&mut self, place: Place<'_>, error: Error) {
        let keys = (place.meta.smallest.clone(), place.meta.largest.clone());
        self.of_table(place, Part::Table, (None, Some(place.meta.size_bytes)), keys, error);
    }

    /// A block of `bytes` at `offset` of a table cannot be read, which held `keys`.
    pub(super) fn block(&mut self, place: Place<'_>, at: (u64, u64), keys: (Bytes, Bytes), error: Error) {
        self.of_table(place, Part::Block, (Some(at.0), Some(at.1)), keys, error);
    }

    /// The range tombstones of a table cannot be read.
    pub(super) fn tombstones(&mut self, place: Place<'_>, error: Error) {
        if place.meta.range_tombstones == 0 || seeded_bug!("salvage-takes-lost-tombstones-for-none") {
            self.note(place, "its range tombstones cannot be read, of which it has none", &error);
            return;
        }
        let keys = (place.meta.smallest.clone(), place.meta.largest.clone());
        self.of_table(place, Part::Tombstones, (error.at(), None), keys, error);
    }

    /// Something of a table cannot be read that holds no record.
    pub(super) fn note(&mut self, place: Place<'_>, what: &str, error: &Error) {
        self.notes.push(format!("{}: {what}; nothing is lost with it ({error})", place.path.display()));
    }

    fn of_table(
        &mut self,
        place: Place<'_>,
        part: Part,
        (offset, bytes): (Option<u64>, Option<u64>),
        keys: (Bytes, Bytes),
        error: Error,
    ) {
        let Place { id, keyspace, level, meta, path } = place;
        if is_hot_run(level) {
            self.note(place, "it holds copies of records that lie deeper", &error);
            return;
        }
        let (from, to) = keys.clone();
        let doubt = Doubt { from, to: Some(to), rank: rank_of(level), before: meta.sequence_max };
        self.doubts.entry(id).or_default().add(doubt);
        self.lost.push(Lost {
            kind: FileKind::Table,
            part,
            path: path.to_path_buf(),
            tier: meta.tier,
            offset,
            bytes,
            keyspace: Some(keyspace.to_string()),
            keys: Some(keys),
            error,
        });
    }

    /// A table that the manifest does not tell of cannot be opened: what it held is unknown.
    pub(super) fn unknown_table(&mut self, tier: Tier, number: u64, keyspace: Option<&str>, error: Error) {
        self.lost.push(Lost {
            kind: FileKind::Table,
            part: Part::Table,
            path: error.path().map_or_else(|| table_name(number).into(), Path::to_path_buf),
            tier,
            offset: None,
            bytes: None,
            keyspace: keyspace.map(str::to_string),
            keys: None,
            error,
        });
    }

    /// Records of a log are lost that any key of the keyspaces `ids` may be concerned by; theirs are sequence numbers before `before`.
    pub(super) fn log(
        &mut self,
        path: &Path,
        (offset, bytes): (u64, u64),
        ids: impl Iterator<Item = u32>,
        before: Sequence,
        error: Error,
    ) {
        for id in ids {
            let doubt = Doubt { from: Bytes::new(), to: None, rank: LOGS, before };
            self.doubts.entry(id).or_default().add(doubt);
        }
        self.lost.push(Lost {
            kind: FileKind::Wal,
            part: Part::LogRecords,
            path: path.to_path_buf(),
            tier: Tier::Fast,
            offset: Some(offset),
            bytes: Some(bytes),
            keyspace: None,
            keys: None,
            error,
        });
    }

    /// The manifest cannot be read, and was done without.
    pub(super) fn manifest(&mut self, path: &Path, error: Error) {
        self.lost.push(Lost {
            kind: FileKind::Manifest,
            part: Part::Manifest,
            path: path.to_path_buf(),
            tier: Tier::Fast,
            offset: error.at(),
            bytes: None,
            keyspace: None,
            keys: None,
            error,
        });
    }
}
