//! What people ask of an open store: where the data lies, and where a key is.

use std::sync::Arc;

use kelvin_base::{Heat, HotTracker, Result, Sequence, Tier};

use crate::compaction::pick::{shares, targets};
use crate::db::Keyspace;
use crate::db::engine::Engine;
use crate::read::{Moment, Source, lookup};
use crate::version::{is_hot_run, level_name};

/// One level of one keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelInfo {
    /// Keyspace.
    pub keyspace: String,
    /// Where its tables belong.
    pub tier: Tier,
    /// What it is called: `L3`, or `hot 0` for a run of the hot level.
    pub name: String,
    /// Tables.
    pub tables: usize,
    /// Bytes of these.
    pub bytes: u64,
    /// Bytes it may hold before it is compacted; 0 for level 0, which counts tables, and for levels not in use.
    pub target_bytes: u64,
    /// Point entries, deletions and older versions included.
    pub entries: u64,
    /// Point deletions.
    pub deletions: u64,
    /// Range tombstones.
    pub range_tombstones: u64,
    /// Copies of entries that live lower.
    pub copies: u64,
    /// Tables being compacted now.
    pub compacting: usize,
}

/// Levels of every keyspace that hold a table, from the top.
pub fn levels(engine: &Engine) -> Vec<LevelInfo> {
    let versions = engine.versions_now();
    let config = engine.pick_config_now();
    let shares = shares(&versions, &config);
    let mut infos = Vec::new();
    for (version, share_bytes) in versions.iter().zip(shares) {
        let targets = targets(version, share_bytes, &config);
        let keyspace = engine.keyspaces.load().by_id(version.keyspace).map(|one| one.name.clone());
        for (index, level) in version.levels.iter().enumerate().filter(|(_, level)| !level.tables.is_empty())
        {
            let sum = |of: fn(&crate::version::TableMeta) -> u64| {
                level.tables.iter().map(|file| of(&file.meta)).sum()
            };
            infos.push(LevelInfo {
                keyspace: keyspace.clone().unwrap_or_default(),
                name: level_name(index),
                tier: level.tier,
                tables: level.tables.len(),
                bytes: level.size_bytes(),
                target_bytes: targets
                    .bytes
                    .get(index)
                    .copied()
                    .filter(|bytes| *bytes < u64::MAX)
                    .unwrap_or(0),
                entries: sum(|meta| meta.entries),
                deletions: sum(|meta| meta.deletions),
                range_tombstones: sum(|meta| meta.range_tombstones),
                copies: sum(|meta| meta.copies),
                compacting: level.tables.iter().filter(|file| file.is_being_compacted()).count(),
            });
        }
    }
    infos
}

/// Where a key is and what finding it costs now.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyReport {
    /// True if it has a value.
    pub found: bool,
    /// "memtable", "promotion cache", "L3 on the slow tier", or why there is no value.
    pub place: String,
    /// Tier of the entry; `None` in memory or absent.
    pub tier: Option<Tier>,
    /// Sequence number of its newest entry.
    pub sequence: Option<Sequence>,
    /// Bytes of its value.
    pub value_bytes: Option<usize>,
    /// When it expires, Unix milliseconds.
    pub expiry_ms: Option<u64>,
    /// Device reads this lookup took, by tier.
    pub reads: [u64; 2],
    /// Tables whose range holds the key and that were asked.
    pub tables_considered: u32,
    /// Of these, excluded by their filter.
    pub filter_negatives: u64,
    /// Blocks found in memory.
    pub cache_hits: u64,
    /// Whether the key is hot; `None` where nobody keeps track of that.
    pub hot: Option<bool>,
    /// What is known of its accesses.
    pub heat: Option<Heat>,
    /// Why it lies there, and what would move it, in a sentence; empty if it has no value.
    pub why: &'static str,
}

/// Why a record lies where it does in a store with a tracker of hot keys, and what moves it.
const fn why(source: Source, is_hot: bool) -> &'static str {
    match (source, is_hot) {
        (Source::Memtable, _) => "written lately; a flush takes it to the fast tier",
        (Source::Promotion, true) => {
            "read from the slow tier lately, and hot: the next promotion takes it to the fast tier"
        }
        (Source::Promotion, false) => {
            "read from the slow tier lately; not hot yet, so the next promotion would drop it from memory"
        }
        (Source::Level(level, Tier::Fast), true) if is_hot_run(level) => {
            "promoted: a copy of a record on the slow tier, kept while it is hot"
        }
        (Source::Level(level, Tier::Fast), false) if is_hot_run(level) => {
            "promoted, and hot no more: the next merge of the hot level drops the copy"
        }
        (Source::Level(_, Tier::Fast), true) => {
            "hot: it stays on the fast tier when its table goes to the slow one"
        }
        (Source::Level(_, Tier::Fast), false) => {
            "on its way down: it goes to the slow tier with its table unless it is hot by then"
        }
        (Source::Level(_, Tier::Slow), true) => "hot: the next read of it brings it back to the fast tier",
        (Source::Level(_, Tier::Slow), false) => {
            "not hot: it stays on the slow tier until it is read often enough"
        }
    }
}

/// See [`crate::db::Db::explain_key`]. The lookup is not counted in the statistics, and is no access.
///
/// # Errors
/// As [`Keyspace::get`].
pub fn explain_key(keyspace: &Keyspace, key: &[u8]) -> Result<KeyReport> {
    keyspace.check_read(key)?;
    let view = keyspace.state.view();
    let engine: &Arc<Engine> = &keyspace.engine;
    let moment = Moment { at: engine.visible(), clock: &*engine.env.clock };
    let answer = lookup(&view, &keyspace.state.promotion, key, moment)?;
    let (place, tier) = match &answer.found {
        None => ("nowhere: no table or memtable has an entry of it".to_string(), None),
        Some(found) => {
            let (place, tier) = match found.source {
                Source::Memtable => ("memtable".to_string(), None),
                Source::Promotion => ("promotion cache".to_string(), None),
                Source::Level(level, tier) => {
                    (format!("{} on the {tier} tier", level_name(level)), Some(tier))
                }
            };
            let place = match (&found.value, found.expiry_ms) {
                (Some(_), _) => place,
                (None, Some(_)) => format!("expired, in {place}"),
                (None, None) => format!("deleted, in {place}"),
            };
            (place, tier)
        }
    };
    let found = answer.found.as_ref();
    let tracker = engine.hotness.of_keyspace(keyspace.id());
    let hot = engine.hotness.is_on().then(|| tracker.is_hot(key));
    let with_value = found.filter(|found| found.value.is_some());
    Ok(KeyReport {
        found: found.is_some_and(|found| found.value.is_some()),
        place,
        tier,
        sequence: found.map(|found| found.sequence),
        value_bytes: found.and_then(|found| found.value.as_ref()).map(bytes::Bytes::len),
        expiry_ms: found.and_then(|found| found.expiry_ms),
        reads: [answer.io[0].reads, answer.io[1].reads],
        tables_considered: answer.tables_considered,
        filter_negatives: answer.io.iter().map(|io| io.filter_negatives).sum(),
        cache_hits: answer.io.iter().map(|io| io.cache_hits).sum(),
        hot,
        heat: tracker.heat(key),
        why: hot.zip(with_value).map_or("", |(is_hot, found)| why(found.source, is_hot)),
    })
}
