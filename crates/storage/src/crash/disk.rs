//! What is on the disk for certain, and what may be: the state that the operation log replays to.
//!
//! Invariants: `durable` of an inode and `entries` only change by a sync; `pending` lists keep the order of the
//! operations. Replaying the same operations gives the same disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::content::Content;

/// A state-changing operation; each is a persistence point.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// Bytes handed to the operating system.
    Write { id: u64, offset: usize, data: Arc<[u8]> },
    /// A file's data and length made durable.
    Sync { id: u64 },
    /// Names made, moved or removed, as one.
    Entries(EntryChange),
    /// A directory's entries made durable.
    SyncDir(PathBuf),
}

/// New targets of names: `None` removes the name, `Some(None)` is a directory, `Some(Some(id))` a file.
#[derive(Clone, Debug)]
pub(super) struct EntryChange {
    pub(super) sets: Vec<(PathBuf, Option<Option<u64>>)>,
}

/// A file's synced bytes and its writes since.
#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    pub(super) durable: Content,
    pub(super) pending: Vec<(usize, Arc<[u8]>)>,
}

/// The disk. `entries` holds the synced names: `None` for a directory, else the file's id.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    pub(super) inodes: BTreeMap<u64, Inode>,
    pub(super) entries: BTreeMap<PathBuf, Option<u64>>,
    pub(super) pending: Vec<EntryChange>,
}

impl Disk {
    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { id, offset, data } => {
                self.inodes.entry(*id).or_default().pending.push((*offset, Arc::clone(data)));
            }
            Change::Sync { id } => {
                let inode = self.inodes.entry(*id).or_default();
                for (offset, data) in inode.pending.drain(..) {
                    inode.durable.write(offset, &data);
                }
            }
            Change::Entries(change) => self.pending.push(change.clone()),
            Change::SyncDir(dir) => {
                self.sync_dir(dir);
                self.forget_unreachable();
            }
        }
    }

    /// Makes the changes of `dir` durable, with those they build on: earlier changes of the same names, and the
    /// making of `dir` and its parents, which every journalling file system commits with it.
    fn sync_dir(&mut self, dir: &Path) {
        let mut touched: BTreeSet<PathBuf> = dir.ancestors().map(Path::to_path_buf).collect();
        let mut synced = vec![false; self.pending.len()];
        for (index, change) in self.pending.iter().enumerate().rev() {
            let concerned =
                change.sets.iter().any(|(path, _)| path.parent() == Some(dir) || touched.contains(path));
            if concerned {
                synced[index] = true;
                touched.extend(change.sets.iter().map(|(path, _)| path.clone()));
            }
        }
        let mut synced = synced.into_iter();
        let entries = &mut self.entries;
        self.pending.retain(|change| {
            let now = synced.next().unwrap_or(false);
            if now {
                change.apply(entries);
            }
            !now
        });
    }

    /// Drops files that no synced or pending name reaches. Writes through a handle that is still open make an
    /// inode again, which no image can see.
    fn forget_unreachable(&mut self) {
        let synced = self.entries.values().flatten().copied();
        let pending = self.pending.iter().flat_map(|change| &change.sets);
        let named: BTreeSet<u64> = synced.chain(pending.filter_map(|(_, target)| target.flatten())).collect();
        self.inodes.retain(|id, _| named.contains(id));
    }

    /// True if the name's present target, `id`, survives a power loss.
    pub(super) fn is_entry_synced(&self, path: &Path, id: Option<u64>) -> bool {
        let changing = self.pending.iter().flat_map(|change| &change.sets).any(|(name, _)| name == path);
        !changing && id.is_some_and(|id| self.entries.get(path) == Some(&Some(id)))
    }
}
