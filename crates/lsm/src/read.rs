//! Point lookup: tells where a key's newest visible entry is; decides nothing.
//!
//! Order: memtables, L0 newest first, deeper fast levels, the promotion cache, the hot level, the slow levels (DESIGN
//! section 5; why the cache may be asked stands in `promotion/mod.rs`). Sources come newest first, so the first
//! entry found is the answer unless a range tombstone of its own or a newer source covers it; once a covering
//! tombstone is met, everything below is older and the search ends. An error is an error, never "not found"
//! (promise 4). Policies run afterwards in `after_read`. Tests: `db/tests`, and the model test.

use bytes::Bytes;
use kelvin_base::key::{Kind, split_expiry};
use kelvin_base::{Clock, Error, ErrorKind, Result, Sequence, Tier, seeded_bug};
use kelvin_table::{LookupKey, ReadIo};

use crate::memtable::MemTable;
use crate::promotion::PromotionCache;
use crate::version::{LEVELS_FAST, TableFile, is_hot_run};
use crate::view::View;

/// Where an entry was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The active or a sealed memtable.
    Memtable,
    /// A table of this level, on this tier.
    Level(usize, Tier),
    /// The promotion cache.
    Promotion,
}

/// The newest visible entry of a key.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its sequence number.
    pub sequence: Sequence,
    /// `None` if the entry deletes the key or has expired.
    pub value: Option<Bytes>,
    /// When it expires, Unix milliseconds.
    pub expiry_ms: Option<u64>,
    /// Where it lies.
    pub source: Source,
}

/// A lookup's answer and its cost.
#[derive(Debug, Default)]
pub struct Lookup {
    /// The newest visible entry, a deletion included; `None` if no source has any.
    pub found: Option<Found>,
    /// I/O by tier.
    pub io: [ReadIo; 2],
    /// Tables whose range holds the key.
    pub tables_considered: u32,
}

impl Lookup {
    /// The value, if the key has one.
    pub fn into_value(self) -> Option<Bytes> {
        self.found.and_then(|found| found.value)
    }

    /// True if the slow tier was read.
    pub fn touched_slow(&self) -> bool {
        self.io[Tier::Slow.index()].reads > 0
    }
}

/// The moment a lookup reads at.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// Newest sequence number it may see.
    pub at: Sequence,
    /// Decides what has expired; asked only for entries that expire.
    pub clock: &'a dyn Clock,
}

/// Looks `key` up in `view`, and in `promotion`, the cache of the view's keyspace. With [`PromotionCache::OFF`] the view alone
/// answers.
///
/// # Errors
/// If a source that could hold the key cannot be read.
pub fn lookup(
    view: &View,
    promotion: &PromotionCache,
    user_key: &[u8],
    moment: Moment<'_>,
) -> Result<Lookup> {
    let mut answer = Lookup::default();
    if let Some(found) = in_memtables(view.memtables(), user_key, moment)? {
        answer.found = Some(found);
        return Ok(answer);
    }
    let key = LookupKey { user_key, hash: kelvin_base::hash64(user_key), at: moment.at };
    let version = &view.version;
    for (index, level) in version.levels.iter().enumerate() {
        if index == if seeded_bug!("cache-asked-above-the-fast-levels") { 1 } else { LEVELS_FAST }
            && let Some(record) = promotion.get(user_key, key.hash, moment.at)
        {
            // Nothing above covers the key, and nothing below is newer.
            let stored = Stored::Owned(record.stored);
            let found = resolve(record.sequence, record.kind_byte, stored, 0, Source::Promotion, moment)?;
            answer.found = Some(found);
            return Ok(answer);
        }
        let found = if index == 0 {
            let tables = level.tables.iter().filter(|table| table.meta.contains(user_key));
            in_tables(tables, index, &key, moment, &mut answer)?
        } else {
            let found =
                in_tables(version.candidate(index, user_key).into_iter(), index, &key, moment, &mut answer);
            // A copy that cannot be read is as good as none: what it copies lies deeper (promise 6). Merges and checks tell of it.
            let may_fail =
                is_hot_run(index) && !seeded_bug!("copy-is-needed") || seeded_bug!("error-taken-for-absence");
            if may_fail { found.unwrap_or_default() } else { found? }
        };
        if found.is_some() {
            answer.found = found;
            return Ok(answer);
        }
    }
    Ok(answer)
}

/// Looks `key` up in memtables, newest first.
///
/// # Errors
/// `Corruption` if an entry's expiry is cut off.
pub fn in_memtables<'a>(
    memtables: impl Iterator<Item = &'a std::sync::Arc<MemTable>>,
    user_key: &[u8],
    moment: Moment<'_>,
) -> Result<Option<Found>> {
    for mem in memtables {
        let covering = mem.covering(user_key, moment.at);
        if let Some(entry) = mem.get(user_key, moment.at) {
            return resolve(
                entry.sequence,
                entry.kind_byte,
                Stored::Borrowed(entry.stored),
                covering,
                Source::Memtable,
                moment,
            )
            .map(Some);
        }
        if covering > 0 && !seeded_bug!("range-tombstone-in-memory-is-looked-past") {
            return Ok(Some(deleted(covering, Source::Memtable)));
        }
    }
    Ok(None)
}

fn in_tables<'a>(
    tables: impl Iterator<Item = &'a std::sync::Arc<TableFile>>,
    level: usize,
    key: &LookupKey<'_>,
    moment: Moment<'_>,
    answer: &mut Lookup,
) -> Result<Option<Found>> {
    for file in tables {
        answer.tables_considered += 1;
        let source = Source::Level(level, file.meta.tier);
        let table = file.table()?;
        let covering = if file.meta.range_tombstones == 0 {
            0
        } else {
            table.tombstones().map_or(0, |stones| stones.max_covering(key.user_key, key.at))
        };
        let io = &mut answer.io[file.meta.tier.index()];
        let entry = table.get(key, io).map_err(|error| file.classify(error))?;
        let is_passed_by =
            |kind_byte| kind_byte == Kind::Deletion as u8 && seeded_bug!("deletion-taken-for-absence");
        if let Some(entry) = entry.filter(|entry| !is_passed_by(entry.kind_byte)) {
            let stored = Stored::Owned(entry.value);
            return resolve(entry.sequence, entry.kind_byte, stored, covering, source, moment)
                .map(Some)
                .map_err(|error| error.file(table.path()));
        }
        if covering > 0 && !seeded_bug!("range-tombstone-is-looked-past") {
            return Ok(Some(deleted(covering, source)));
        }
    }
    Ok(None)
}

enum Stored<'a> {
    Borrowed(&'a [u8]),
    Owned(Bytes),
}

const fn deleted(sequence: Sequence, source: Source) -> Found {
    Found { sequence, value: None, expiry_ms: None, source }
}

fn resolve(
    sequence: Sequence,
    kind_byte: u8,
    stored: Stored<'_>,
    covering: Sequence,
    source: Source,
    moment: Moment<'_>,
) -> Result<Found> {
    if sequence < covering {
        return Ok(deleted(covering, source));
    }
    let kind = Kind::from_byte(kind_byte).ok_or_else(|| {
        Error::new(ErrorKind::Corruption, "an entry is of a kind this version does not know")
            .expected("a kind of docs/formats/table.md", kind_byte)
    })?;
    if !kind.has_value() {
        return Ok(deleted(sequence, source));
    }
    let bytes: &[u8] = match &stored {
        Stored::Borrowed(bytes) => bytes,
        Stored::Owned(bytes) => bytes,
    };
    let (expiry_ms, value) = split_expiry(kind_byte, bytes)
        .ok_or_else(|| Error::new(ErrorKind::Corruption, "an entry's expiry time is cut off"))?;
    let is_kept = source == Source::Promotion && seeded_bug!("expired-record-served-by-the-cache");
    if expiry_ms.is_some_and(|expiry| expiry <= moment.clock.unix_millis()) && !is_kept {
        return Ok(Found { sequence, value: None, expiry_ms, source });
    }
    let value = match &stored {
        Stored::Borrowed(_) => Bytes::copy_from_slice(value),
        Stored::Owned(owned) => owned.slice_ref(value),
    };
    Ok(Found { sequence, value: Some(value), expiry_ms, source })
}
