//! The tables of one keyspace at one moment. Immutable; shared by readers. Tests: `tests.rs`.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use kelvin_base::{Error, KeyRange, Result, Tier};
use kelvin_table::Fragments;

use super::edit::Edit;
use super::file::{TableFile, TableOpener};
use super::level::Level;
use super::{FIRST_SLOW, LEVELS, LEVELS_FAST, TableMeta};

/// What a table that is not open takes of memory, its smallest and largest key apart: its facts, its places in versions, in the
/// books of its disk and among the open tables.
const KNOWN_BYTES: u64 = 576;

/// The tables of one keyspace at one moment.
#[derive(Debug)]
pub struct Version {
    /// The keyspace's number.
    pub keyspace: u32,
    /// All [`LEVELS`] levels, empty ones included.
    pub levels: Vec<Level>,
    tombstones: OnceLock<Arc<Fragments>>,
}

impl Version {
    /// A version of `tables` by level, in any order. `two_tiers`: the deeper levels belong to the slow tier.
    ///
    /// # Errors
    /// `InvalidArgument` if tables of a sorted level overlap.
    pub fn new(keyspace: u32, tables: [Vec<Arc<TableFile>>; LEVELS], two_tiers: bool) -> Result<Self> {
        let mut levels = Vec::with_capacity(LEVELS);
        for (index, mut tables) in tables.into_iter().enumerate() {
            if index == 0 {
                tables.sort_by_key(|file| std::cmp::Reverse((file.meta.sequence_max, file.meta.number)));
            } else {
                tables.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
                check_disjoint(index, &tables)?;
            }
            let tier = if two_tiers && index >= FIRST_SLOW { Tier::Slow } else { Tier::Fast };
            levels.push(Level::new(tier, tables, index > 0));
        }
        Ok(Self { keyspace, levels, tombstones: OnceLock::new() })
    }

    /// The version without tables.
    #[must_use]
    pub fn empty(keyspace: u32, two_tiers: bool) -> Self {
        let levels = (0..LEVELS)
            .map(|index| {
                let tier = if two_tiers && index >= FIRST_SLOW { Tier::Slow } else { Tier::Fast };
                Level::new(tier, Vec::new(), index > 0)
            })
            .collect();
        Self { keyspace, levels, tombstones: OnceLock::new() }
    }

    /// What `edit` makes of this version.
    ///
    /// # Errors
    /// `InvalidArgument` if the edit removes a table that is not there, adds one that is, or breaks a level's order.
    pub(super) fn with(&self, edit: &Edit, opener: &Arc<dyn TableOpener>, two_tiers: bool) -> Result<Self> {
        let removed: BTreeSet<(usize, u64)> = edit
            .removed
            .iter()
            .filter(|(keyspace, ..)| *keyspace == self.keyspace)
            .map(|(_, level, number)| (*level, *number))
            .collect();
        let mut moved = std::collections::BTreeMap::new();
        let mut tables: [Vec<Arc<TableFile>>; LEVELS] = Default::default();
        for (index, level) in self.levels.iter().enumerate() {
            for file in &level.tables {
                if removed.contains(&(index, file.meta.number)) {
                    moved.insert(file.meta.number, Arc::clone(file));
                } else {
                    tables[index].push(Arc::clone(file));
                }
            }
        }
        if moved.len() != removed.len() {
            return Err(Error::invalid("an edit removes a table that is not in the version")
                .expected(format!("{removed:?} (level, number)"), format!("{:?}", moved.keys())));
        }
        for (_, level, meta) in edit.added.iter().filter(|(keyspace, ..)| *keyspace == self.keyspace) {
            let slot = tables.get_mut(*level).ok_or_else(|| no_such_level(*level))?;
            if self.find(meta.number).is_some() && !moved.contains_key(&meta.number) {
                return Err(Error::invalid(format!("an edit adds table {} twice", meta.number)));
            }
            // A table that only changes its level stays the same file, open and claimed as it is.
            let file = moved
                .get(&meta.number)
                .filter(|file| file.meta == *meta)
                .map_or_else(|| Arc::new(TableFile::new(meta.clone(), Arc::clone(opener))), Arc::clone);
            slot.push(file);
        }
        Self::new(self.keyspace, tables, two_tiers)
    }

    /// The only table of `level` (1 or deeper) that may hold `user_key`.
    #[must_use]
    pub fn candidate(&self, level: usize, user_key: &[u8]) -> Option<&Arc<TableFile>> {
        debug_assert!(level > 0, "L0 tables overlap");
        self.levels.get(level)?.candidate(user_key)
    }

    /// Tables of `level` that meet `range`, in the level's order.
    #[must_use]
    pub fn overlapping(&self, level: usize, range: KeyRange<'_>) -> Vec<&Arc<TableFile>> {
        let Some(tables) = self.levels.get(level) else { return Vec::new() };
        let begins_inside = |file: &&Arc<TableFile>| !range.ends_before(&file.meta.smallest);
        if level == 0 {
            let meets = |file: &&Arc<TableFile>| file.meta.reaches(range.start) && begins_inside(file);
            return tables.tables.iter().filter(meets).collect();
        }
        let after = tables.tables.get(tables.first_reaching(range.start)..).unwrap_or_default();
        after.iter().take_while(begins_inside).collect()
    }

    /// Whether a table of `level` (1 or deeper) meets `[lower, upper)`; `None` is unbounded.
    #[must_use]
    pub fn meets(&self, level: usize, lower: Option<&[u8]>, upper: Option<&[u8]>) -> bool {
        let Some(tables) = self.levels.get(level) else { return false };
        let first = tables.tables.get(lower.map_or(0, |lower| tables.first_reaching(lower)));
        first.is_some_and(|file| upper.is_none_or(|upper| file.meta.smallest.as_ref() < upper))
    }

    /// Tables of `level` whose range has a key in common with that of `meta`, in the level's order.
    #[must_use]
    pub fn overlapping_table(&self, level: usize, meta: &TableMeta) -> Vec<&Arc<TableFile>> {
        let Some(tables) = self.levels.get(level) else { return Vec::new() };
        if level == 0 {
            return tables.tables.iter().filter(|file| file.meta.overlaps(meta)).collect();
        }
        let from = tables.first_reaching(&meta.smallest);
        let after = tables.tables.get(from..).unwrap_or_default();
        after.iter().take_while(|file| meta.reaches(&file.meta.smallest)).collect()
    }

    /// Level and file of the table of this number.
    #[must_use]
    pub fn find(&self, number: u64) -> Option<(usize, &Arc<TableFile>)> {
        self.tables().find(|(_, file)| file.meta.number == number)
    }

    /// How many tables there are.
    #[must_use]
    pub fn table_count(&self) -> u64 {
        self.levels.iter().map(|level| level.tables.len() as u64).sum()
    }

    /// Memory that its tables take without being open, bytes.
    #[must_use]
    pub fn known_bytes(&self) -> u64 {
        // A sorted level has most of the largest keys once more, to search.
        let keys: u64 = self.levels.iter().map(Level::key_bytes).sum();
        self.table_count() * KNOWN_BYTES + 2 * keys
    }

    /// All tables with their levels, from the top.
    pub fn tables(&self) -> impl Iterator<Item = (usize, &Arc<TableFile>)> {
        self.levels
            .iter()
            .enumerate()
            .flat_map(|(index, level)| level.tables.iter().map(move |file| (index, file)))
    }

    /// Bytes of tables on `tier`.
    #[must_use]
    pub fn tier_bytes(&self, tier: Tier) -> u64 {
        self.levels.iter().map(|level| level.tier_bytes(tier)).sum()
    }

    /// Bytes of the runs of the hot level.
    #[must_use]
    pub fn hot_level_bytes(&self) -> u64 {
        self.levels[LEVELS_FAST..FIRST_SLOW].iter().map(|run| run.tier_bytes(Tier::Fast)).sum()
    }

    /// The deepest level that has a table.
    #[must_use]
    pub fn deepest(&self) -> Option<usize> {
        self.levels.iter().rposition(|level| !level.tables.is_empty())
    }

    /// True if some table has a range tombstone.
    #[must_use]
    pub fn has_range_tombstones(&self) -> bool {
        self.tables().any(|(_, file)| file.meta.range_tombstones > 0)
    }

    /// The range tombstones of all tables, merged. The first call opens the tables that have some.
    ///
    /// # Errors
    /// What keeps one of them from being opened; the next call tries again.
    pub fn tombstones(&self) -> Result<&Arc<Fragments>> {
        if let Some(known) = self.tombstones.get() {
            return Ok(known);
        }
        let mut all = Vec::new();
        for (_, file) in self.tables().filter(|(_, file)| file.meta.range_tombstones > 0) {
            let table = file.table()?;
            all.extend(table.tombstones().into_iter().flat_map(|own| own.tombstones()));
        }
        Ok(self.tombstones.get_or_init(|| Arc::new(Fragments::build(all))))
    }
}

fn no_such_level(level: usize) -> Error {
    Error::invalid("an edit names a level there is not").expected(format!("below {LEVELS}"), level)
}

fn check_disjoint(level: usize, tables: &[Arc<TableFile>]) -> Result<()> {
    for pair in tables.windows(2) {
        if pair[0].meta.overlaps(&pair[1].meta) || pair[0].meta.smallest == pair[1].meta.smallest {
            return Err(Error::invalid(format!(
                "tables {} and {} of level {level} overlap",
                pair[0].meta.number, pair[1].meta.number
            )));
        }
    }
    Ok(())
}
