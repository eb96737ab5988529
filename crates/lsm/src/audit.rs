//! What must hold of an open store besides whole files: the order of versions, and what copies are copies of (DESIGN sections 4, 6).
//!
//! Sources are the memtables, the tables of level 0, the fast levels, the runs of the hot level taken together, and the slow levels,
//! newest first. What a source says of a key are its entries and the range tombstones that cover the key.
//!
//! - Order (H2): nothing that a source says of a key is newer than what the sources above it say. One sequence number twice
//!   is an entry and a copy of it.
//! - C1: a copy that nothing above says anything newer of has its original below, the same value, and of all that the slow levels
//!   have of the key that is the newest. It may be gone once it has expired. In the runs a copy below something newer may be stale; in a
//!   fast level it never is.
//! - H7: runs hold copies and nothing else, slow levels none.
//! - H5: a table says truly what it holds: range, numbers, counts.
//! - C6: every record of a promotion cache is what the slow levels answer.
//!
//! Reads everything into memory: for simulations and tests, which run it after random operations. Tests: `db/copies_tests.rs`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use kelvin_base::key::{Kind, split_expiry, split_internal, trailer_kind_byte, trailer_sequence};
use kelvin_base::{InternalIterator, RangeTombstone, Result, SEQUENCE_MAX, Sequence};
use kelvin_table::{Fragments, ScanOptions};

use crate::db::engine::Engine;
use crate::iter::LevelIter;
use crate::promotion::Promoted;
use crate::version::{FIRST_SLOW, LEVELS_FAST, TableFile, is_hot_run, level_name};
use crate::view::{KeyspaceState, View};

/// What an audit found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// What is not as it must be; empty if all is well.
    pub findings: Vec<String>,
    /// Entries looked at.
    pub entries: u64,
    /// Copies among them.
    pub copies: u64,
    /// Of these, that lie in runs below something newer.
    pub stale_copies: u64,
    /// Records of promotion caches looked at.
    pub promoted: u64,
    /// Files of the hot level's tables.
    pub run_files: Vec<PathBuf>,
}

/// An entry of a key.
#[derive(Clone, Debug)]
struct Item {
    sequence: Sequence,
    kind: Option<Kind>,
    kind_byte: u8,
    stored: Bytes,
}

/// A place that versions of keys lie in.
struct Source {
    name: String,
    /// By user key.
    entries: BTreeMap<Bytes, Vec<Item>>,
    stones: Fragments,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Fast,
    Runs,
    Slow,
}

/// See the module.
///
/// # Errors
/// What keeps a table from being read. Tables of the hot level that cannot be read are left out.
pub fn audit(engine: &Engine) -> Result<Audit> {
    let mut audit = Audit::default();
    let keyspaces = engine.keyspaces.load_full();
    for keyspace in keyspaces.iter() {
        let before = keyspace.view();
        let records = keyspace.promotion.contents();
        let view = keyspace.view();
        // With threads at work the records may be of another moment than the tables.
        let is_one_moment = Arc::ptr_eq(&before.version, &view.version);
        let mut walk = Walk {
            audit: &mut audit,
            keyspace,
            now_ms: engine.env.clock.unix_millis(),
            two_tiers: engine.config.is_tiered(),
        };
        walk.files(engine, &view);
        walk.keys(&view, if is_one_moment { records } else { Vec::new() })?;
    }
    Ok(audit)
}

struct Walk<'a> {
    audit: &'a mut Audit,
    keyspace: &'a KeyspaceState,
    now_ms: u64,
    two_tiers: bool,
}

impl Walk<'_> {
    fn say(&mut self, key: &[u8], what: &str) {
        let (name, key) = (&self.keyspace.name, key.escape_ascii());
        self.audit.findings.push(format!("{name}, key {key}: {what}"));
    }

    fn files(&mut self, engine: &Engine, view: &View) {
        for (_, file) in view.version.tables().filter(|(level, _)| is_hot_run(*level)) {
            if let Ok(handle) = engine.files.tier(file.meta.tier) {
                self.audit.run_files.push(handle.path(crate::files::table_name(file.meta.number)));
            }
        }
    }

    fn keys(&mut self, view: &View, records: Vec<(Bytes, Promoted)>) -> Result<()> {
        let sources = self.sources(view)?;
        let keys: std::collections::BTreeSet<&Bytes> =
            sources.iter().flat_map(|source| source.entries.keys()).collect();
        for key in keys {
            self.order(&sources, key);
            self.copies(&sources, key);
        }
        for (key, record) in records {
            self.promoted(&sources, &key, &record);
        }
        Ok(())
    }

    fn sources(&mut self, view: &View) -> Result<Vec<Source>> {
        let mut sources = Vec::new();
        for mem in view.memtables() {
            let stones: Vec<Arc<Fragments>> = mem.tombstones().collect();
            let entries = entries_of(mem.iter())?;
            let stones = Fragments::merge(stones.iter().map(AsRef::as_ref));
            sources.push(Source { name: "memtable".into(), entries, stones, place: Place::Fast });
        }
        let mut runs = empty_runs();
        for (index, level) in view.version.levels.iter().enumerate() {
            if index == FIRST_SLOW {
                sources.push(std::mem::replace(&mut runs, empty_runs()));
            }
            if is_hot_run(index) {
                for file in &level.tables {
                    // A copy that cannot be read is as good as none (promise 6).
                    let Ok(source) = self.table(index, file) else { continue };
                    source.entries.into_iter().for_each(|(key, items)| {
                        runs.entries.entry(key).or_default().extend(items);
                    });
                }
                continue;
            }
            for file in &level.tables {
                sources.push(self.table(index, file)?);
            }
        }
        self.audit.entries +=
            sources.iter().flat_map(|one| one.entries.values()).map(|items| items.len() as u64).sum::<u64>();
        Ok(sources)
    }

    /// What a table holds, held against what is known of it.
    fn table(&mut self, level: usize, file: &Arc<TableFile>) -> Result<Source> {
        let entries = entries_of(LevelIter::of_files(vec![Arc::clone(file)], ScanOptions::default()))?;
        let stones = file.table()?.tombstones().map_or_else(Fragments::default, |stones| (**stones).clone());
        let place = match level {
            _ if level < LEVELS_FAST || !self.two_tiers => Place::Fast,
            _ if is_hot_run(level) => Place::Runs,
            _ => Place::Slow,
        };
        let name = format!("table {} of {}", file.meta.number, level_name(level));
        let meta = &file.meta;
        let items = || entries.values().flatten();
        let copies = items().filter(|item| item.kind == Some(Kind::Copy)).count() as u64;
        let sequences = items().map(|item| item.sequence).chain(stones.tombstones().map(|one| one.sequence));
        let (mut least, mut most) = (SEQUENCE_MAX, 0);
        sequences.for_each(|sequence| (least, most) = (least.min(sequence), most.max(sequence)));
        let is_inside = |key: &Bytes| meta.contains(key);
        let is_stone_inside = |one: &RangeTombstone| meta.smallest <= one.start && one.end <= meta.largest;
        let checks = [
            (items().count() as u64 == meta.entries, "its count of entries"),
            (copies == meta.copies, "its count of copies"),
            (least >= meta.sequence_min && most <= meta.sequence_max, "its sequence numbers"),
            (entries.keys().all(is_inside), "its range of keys"),
            (stones.tombstones().all(|one| is_stone_inside(&one)), "its range of tombstones"),
            (
                place != Place::Runs || (copies == meta.entries && stones.is_empty()),
                "that a run holds copies alone",
            ),
            (place != Place::Slow || copies == 0, "that the slow tier holds no copies"),
        ];
        for (_, what) in checks.iter().filter(|(holds, _)| !holds) {
            self.audit.findings.push(format!("{}, {name}: {what} does not hold", self.keyspace.name));
        }
        Ok(Source { name, entries, stones, place })
    }

    /// Nothing is newer than what lies above it.
    fn order(&mut self, sources: &[Source], key: &Bytes) {
        let mut above: Option<(Sequence, bool, &str)> = None;
        for source in sources {
            let Some((newest, oldest, has_copy)) = source.says(key) else { continue };
            if let Some((floor, is_copy, name)) = above
                && (newest > floor || newest == floor && !is_copy && !has_copy)
            {
                let what = format!("{} has {newest}, above it {name} has {floor}", source.name);
                self.say(key, &what);
            }
            above = Some((oldest, has_copy, &source.name));
        }
    }

    /// Copies have their originals below.
    fn copies(&mut self, sources: &[Source], key: &Bytes) {
        let mut newest_above = 0;
        for (index, source) in sources.iter().enumerate() {
            let items = source.entries.get(key).map_or(&[][..], Vec::as_slice);
            for copy in items.iter().filter(|item| item.kind == Some(Kind::Copy)) {
                self.audit.copies += 1;
                if newest_above > copy.sequence && source.place == Place::Runs {
                    self.audit.stale_copies += 1;
                    continue;
                }
                self.original(&sources[index + 1..], key, copy, newest_above > copy.sequence);
            }
            let own = items.iter().map(|item| item.sequence).max().unwrap_or(0);
            newest_above = newest_above.max(own).max(source.stones.max_covering(key, SEQUENCE_MAX));
        }
    }

    fn original(&mut self, below: &[Source], key: &Bytes, copy: &Item, is_shadowed: bool) {
        if copy.has_expired(self.now_ms) {
            return;
        }
        let sequence = copy.sequence;
        let original = below
            .iter()
            .flat_map(|source| source.entries.get(key).into_iter().flatten())
            .find(|item| item.sequence == sequence && item.kind == Some(Kind::Value));
        match original {
            None => self.say(key, &format!("the copy {sequence} has no original")),
            Some(original) if original.stored != copy.stored => {
                self.say(key, &format!("the copy {sequence} is not like its original"));
            }
            Some(_) => {}
        }
        let newest = below.iter().filter_map(|source| source.says(key)).map(|(newest, ..)| newest).max();
        if !is_shadowed && newest != Some(sequence) {
            self.say(key, &format!("below the copy {sequence} lies {newest:?}"));
        }
    }

    /// A record of the promotion cache is what the slow levels answer.
    fn promoted(&mut self, sources: &[Source], key: &Bytes, record: &Promoted) {
        self.audit.promoted += 1;
        let slow = sources.iter().filter(|source| source.place == Place::Slow);
        let answer = slow.flat_map(|source| {
            let covering = source.stones.max_covering(key, SEQUENCE_MAX);
            let entries = source.entries.get(key).into_iter().flatten();
            let entries = entries.map(|item| (item.sequence, Some(item)));
            entries.chain((covering > 0).then_some((covering, None)))
        });
        let sequence = record.sequence;
        match answer.max_by_key(|(sequence, _)| *sequence) {
            Some((newest, Some(item)))
                if newest == sequence
                    && item.stored == record.stored
                    && item.kind_byte + 1 == record.kind_byte => {}
            answer => {
                let answer = answer.map(|(newest, item)| (newest, item.map(|item| item.kind_byte)));
                self.say(
                    key,
                    &format!("the promotion cache has {sequence}, the slow levels answer {answer:?}"),
                );
            }
        }
    }
}

impl Item {
    fn has_expired(&self, now_ms: u64) -> bool {
        split_expiry(self.kind_byte, &self.stored)
            .and_then(|(expiry_ms, _)| expiry_ms)
            .is_some_and(|expiry_ms| expiry_ms <= now_ms)
    }
}

impl Source {
    /// The newest and the oldest that it says of `key`, and whether a copy is among it.
    fn says(&self, key: &[u8]) -> Option<(Sequence, Sequence, bool)> {
        let items = self.entries.get(key).map_or(&[][..], Vec::as_slice);
        let covering = Some(self.stones.max_covering(key, SEQUENCE_MAX)).filter(|covering| *covering > 0);
        let all = || items.iter().map(|item| item.sequence).chain(covering);
        let has_copy = items.iter().any(|item| item.kind == Some(Kind::Copy));
        Some((all().max()?, all().min()?, has_copy))
    }
}

fn empty_runs() -> Source {
    let (entries, stones) = (BTreeMap::new(), Fragments::default());
    Source { name: "the hot level".into(), entries, stones, place: Place::Runs }
}

fn entries_of(mut iter: impl InternalIterator) -> Result<BTreeMap<Bytes, Vec<Item>>> {
    let mut entries: BTreeMap<Bytes, Vec<Item>> = BTreeMap::new();
    iter.seek_to_first()?;
    while iter.valid() {
        if let Some((key, trailer)) = split_internal(iter.key()) {
            let kind_byte = trailer_kind_byte(trailer);
            let item = Item {
                sequence: trailer_sequence(trailer),
                kind: Kind::from_byte(kind_byte),
                kind_byte,
                stored: Bytes::copy_from_slice(iter.value()),
            };
            entries.entry(Bytes::copy_from_slice(key)).or_default().push(item);
        }
        iter.next()?;
    }
    Ok(entries)
}
