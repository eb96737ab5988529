//! What a power loss leaves: chooses among the un-synced writes and entry changes of a [`Disk`].
//!
//! Invariant: synced bytes and synced entries are in every image. The same seed gives the same image.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::disk::{Disk, EntryChange, Inode};
use crate::content::Content;
use crate::seeded::Seeded;

/// Smallest piece a device writes as a whole, bytes.
const SECTOR: usize = 512;

/// How a file system orders what it was not asked to sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// Entry changes keep their order; a file grows only with its data (ext4 `data=ordered`).
    Ordered,
    /// Entry changes keep their order; data and lengths do not: files may have grown by zeros.
    Writeback,
    /// Nothing keeps its order.
    ReorderAll,
}

/// What of the un-synced changes reached the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsynced {
    /// Nothing.
    Lost,
    /// All of it.
    Kept,
    /// What the seed and the file system choose.
    Chosen,
}

/// A file system and what it kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashModel {
    /// How un-synced changes are ordered.
    pub file_system: FileSystem,
    /// Which of them are kept.
    pub unsynced: Unsynced,
}

impl CrashModel {
    /// Random images of `file_system`.
    #[must_use]
    pub const fn chosen(file_system: FileSystem) -> Self {
        Self { file_system, unsynced: Unsynced::Chosen }
    }

    /// Nothing un-synced is left.
    pub const LOST: Self = Self { file_system: FileSystem::Ordered, unsynced: Unsynced::Lost };
    /// Everything un-synced is left, as after the death of the process alone.
    pub const KEPT: Self = Self { file_system: FileSystem::Ordered, unsynced: Unsynced::Kept };
}

/// Directories and files (names of one file together) that a power loss left.
#[derive(Clone)]
pub(super) struct Image {
    pub(super) dirs: BTreeSet<PathBuf>,
    pub(super) files: Vec<(Vec<PathBuf>, Content)>,
}

pub(super) fn choose(disk: &Disk, seed: u64, model: CrashModel) -> Image {
    let mut random = Seeded::new(seed);
    let keep_per_million = [0, 100_000, 500_000, 900_000, 1_000_000][random.index(5)];
    let mut entries = disk.entries.clone();
    let prefix = random.index(disk.pending.len() + 1);
    for (index, change) in disk.pending.iter().enumerate() {
        let kept = match (model.unsynced, model.file_system) {
            (Unsynced::Lost, _) => false,
            (Unsynced::Kept, _) => true,
            (Unsynced::Chosen, FileSystem::ReorderAll) => random.chance(keep_per_million),
            (Unsynced::Chosen, _) => index < prefix,
        };
        if kept {
            change.apply(&mut entries);
        }
    }
    let reachable = |path: &PathBuf| path.ancestors().skip(1).all(|dir| is_dir(&entries, dir));
    let mut dirs = BTreeSet::new();
    let mut names: BTreeMap<u64, Vec<PathBuf>> = BTreeMap::new();
    for (path, target) in entries.iter().filter(|(path, _)| reachable(path)) {
        match target {
            None => drop(dirs.insert(path.clone())),
            Some(id) => names.entry(*id).or_default().push(path.clone()),
        }
    }
    let empty = Inode::default();
    let mut files = Vec::with_capacity(names.len());
    for (id, names) in names {
        let inode = disk.inodes.get(&id).unwrap_or(&empty);
        files.push((names, contents(inode, &mut random, keep_per_million, model)));
    }
    Image { dirs, files }
}

fn is_dir(entries: &BTreeMap<PathBuf, Option<u64>>, dir: &std::path::Path) -> bool {
    dir.parent().is_none() || dir.as_os_str().is_empty() || entries.get(dir) == Some(&None)
}

fn contents(inode: &Inode, random: &mut Seeded, keep_per_million: u32, model: CrashModel) -> Content {
    let mut content = inode.durable.clone();
    match (model.unsynced, model.file_system) {
        (Unsynced::Lost, _) => {}
        (Unsynced::Kept, _) => {
            for (offset, data) in &inode.pending {
                content.write(*offset, data);
            }
        }
        (Unsynced::Chosen, FileSystem::Ordered) => {
            keep_ordered(inode, &mut content, random, keep_per_million)
        }
        (Unsynced::Chosen, _) => keep_any(inode, &mut content, random, keep_per_million),
    }
    content
}

/// Growth is a prefix, cut at a sector; overwritten sectors are kept or not, each for itself.
fn keep_ordered(inode: &Inode, content: &mut Content, random: &mut Seeded, keep_per_million: u32) {
    let durable_len = inode.durable.len();
    let ends = inode.pending.iter().map(|(offset, data)| offset + data.len());
    let growth = ends.max().unwrap_or(0).saturating_sub(durable_len);
    // Half of the time a write's end (whole appends), else any sector: torn.
    let whole =
        inode.pending.get(random.index(inode.pending.len())).map(|(offset, data)| offset + data.len());
    let sectors = growth.div_ceil(SECTOR);
    let torn = (durable_len / SECTOR + random.index(sectors + 1)) * SECTOR;
    let end = match random.below(4) {
        0 => durable_len,
        1 => durable_len + growth,
        2 => whole.unwrap_or(durable_len),
        _ => torn,
    };
    for (offset, data) in &inode.pending {
        for (at, piece) in sectors_of(*offset, data) {
            // A sector may hold both synced bytes that are overwritten and growth: whole if chosen or before the cut.
            let reached = at.saturating_add(piece.len()).min(end.max(durable_len));
            let kept = if at >= durable_len { at < end } else { random.chance(keep_per_million) };
            if kept && reached > at {
                content.write(at, &piece[..reached - at]);
            }
        }
    }
}

/// Each write is kept, lost or torn for itself, and the length may have grown without the data.
fn keep_any(inode: &Inode, content: &mut Content, random: &mut Seeded, keep_per_million: u32) {
    let ends = inode.pending.iter().map(|(offset, data)| offset + data.len());
    let longest = ends.max().unwrap_or(0);
    for (offset, data) in &inode.pending {
        if random.chance(keep_per_million) {
            content.write(*offset, data);
        } else if random.below(3) == 0 {
            for (at, piece) in sectors_of(*offset, data) {
                if random.below(2) == 0 {
                    content.write(at, piece);
                }
            }
        }
    }
    if random.below(3) == 0 {
        content.grow(longest);
    }
}

/// The pieces of a write between sector boundaries of the file.
fn sectors_of(offset: usize, data: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done;
        let count = (SECTOR - at % SECTOR).min(data.len() - done);
        let piece = &data[done..done + count];
        done += count;
        (count > 0).then_some((at, piece))
    })
}

impl EntryChange {
    pub(super) fn apply(&self, entries: &mut BTreeMap<PathBuf, Option<u64>>) {
        for (path, target) in &self.sets {
            match target {
                Some(target) => drop(entries.insert(path.clone(), *target)),
                None => drop(entries.remove(path)),
            }
        }
    }
}
