//! One level of a version, and the flat keys by which the table that may hold a key is found.
//!
//! The fences are the tables' largest keys: what they all share is kept once, the next eight bytes as an integer, and the
//! whole keys one behind the other, so that a search touches two arrays and no table. Tests: `tests.rs`.

use std::cmp::Ordering;
use std::sync::Arc;

use kelvin_base::Tier;

use super::file::TableFile;

/// One level: L0 newest first, deeper ones disjoint and sorted.
#[derive(Clone, Debug)]
pub struct Level {
    /// Where new tables of this level belong. A table's own tier is in its facts.
    pub tier: Tier,
    /// The tables.
    pub tables: Vec<Arc<TableFile>>,
    fences: Fences,
    bytes: [u64; 2],
    entries: u64,
    key_bytes: u64,
}

impl Level {
    /// A level of `tables`, which must be in the level's order.
    pub(super) fn new(tier: Tier, tables: Vec<Arc<TableFile>>, sorted: bool) -> Self {
        let fences = if sorted { Fences::new(&tables) } else { Fences::default() };
        let mut bytes = [0; 2];
        for file in &tables {
            bytes[file.meta.tier.index()] += file.meta.size_bytes;
        }
        let entries = tables.iter().map(|file| file.meta.entries).sum();
        let keys = |file: &Arc<TableFile>| file.meta.smallest.len() + file.meta.largest.len();
        let key_bytes = tables.iter().map(|file| keys(file) as u64).sum();
        Self { tier, tables, fences, bytes, entries, key_bytes }
    }

    /// Bytes of its tables on both tiers.
    #[must_use]
    pub const fn size_bytes(&self) -> u64 {
        self.bytes[0] + self.bytes[1]
    }

    /// Point entries of its tables.
    #[must_use]
    pub const fn entries(&self) -> u64 {
        self.entries
    }

    /// Bytes of the smallest and the largest keys of its tables.
    #[must_use]
    pub const fn key_bytes(&self) -> u64 {
        self.key_bytes
    }

    /// Bytes of its tables on `tier`.
    #[must_use]
    pub const fn tier_bytes(&self, tier: Tier) -> u64 {
        self.bytes[tier.index()]
    }

    /// Index of the first table that reaches `user_key`. Sorted levels only.
    pub(super) fn first_reaching(&self, user_key: &[u8]) -> usize {
        let index = self.fences.first_not_below(user_key);
        let exclusive_hit = self
            .tables
            .get(index)
            .is_some_and(|file| file.meta.largest_exclusive && file.meta.largest.as_ref() == user_key);
        index + usize::from(exclusive_hit)
    }

    /// The only table that may hold `user_key`. Sorted levels only.
    pub(super) fn candidate(&self, user_key: &[u8]) -> Option<&Arc<TableFile>> {
        if self.tables.is_empty() {
            return None;
        }
        let file = self.tables.get(self.first_reaching(user_key))?;
        (file.meta.smallest.as_ref() <= user_key).then_some(file)
    }
}

/// Largest keys of a sorted level.
#[derive(Clone, Debug, Default)]
struct Fences {
    shared: Vec<u8>,
    heads: Vec<u64>,
    ends: Vec<usize>,
    rests: Vec<u8>,
}

impl Fences {
    fn new(tables: &[Arc<TableFile>]) -> Self {
        let (Some(first), Some(last)) = (tables.first(), tables.last()) else { return Self::default() };
        let shared_len =
            first.meta.largest.iter().zip(last.meta.largest.iter()).take_while(|(a, b)| a == b).count();
        let mut fences = Self {
            shared: first.meta.largest.slice(..shared_len).to_vec(),
            heads: Vec::with_capacity(tables.len()),
            ends: Vec::with_capacity(tables.len()),
            rests: Vec::new(),
        };
        for file in tables {
            let rest = file.meta.largest.get(shared_len..).unwrap_or_default();
            fences.heads.push(head(rest));
            fences.rests.extend_from_slice(rest);
            fences.ends.push(fences.rests.len());
        }
        fences
    }

    fn rest(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.rests[start..self.ends[index]]
    }

    /// Index of the first fence that is not below `user_key`.
    fn first_not_below(&self, user_key: &[u8]) -> usize {
        let len = self.shared.len().min(user_key.len());
        match user_key[..len].cmp(&self.shared[..len]) {
            Ordering::Greater => return self.heads.len(),
            Ordering::Equal if user_key.len() >= self.shared.len() => {}
            _ => return 0,
        }
        let rest = &user_key[len..];
        let key_head = head(rest);
        let from = self.heads.partition_point(|fence| *fence < key_head);
        let mut low = from;
        let mut high = from + self.heads[from..].partition_point(|fence| *fence == key_head);
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.rest(middle) < rest {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// The first eight bytes as an integer that orders like them (shorter keys are padded with zeros).
fn head(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let len = key.len().min(8);
    bytes[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(bytes)
}
