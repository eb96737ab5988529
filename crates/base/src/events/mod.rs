//! What happens in a store, told to whoever wants to know: flushes, compactions, promotions, evictions, waits, outages, failures.
//!
//! A listener is given with the options of a store. It is called by one background thread of its own, for one event after the other in
//! the order in which they happened, and with no lock of the store held: it may use the store. What it cannot do is hold anybody up
//! ([`EventListener`] says what becomes of a slow one, and of one that panics).
//!
//! [`Event::fields`] lists what an event says once, for people, JSON and logs. Delivery: [`queue`]. Tests stand there.

mod queue;

use std::fmt;
use std::sync::Arc;

pub use queue::{EVENTS_WAITING_MAX, Events};

use crate::tier::Tier;

/// Is told what happens in a store.
///
/// - It is called by one thread, never by two at once, and in order.
/// - No reader, writer or background job waits for it. While it is busy up to [`EVENTS_WAITING_MAX`] events wait; those
///   that come then are lost, and it is told how many ([`What::Lost`]).
/// - One that panics is told nothing any more; the store goes on, and counts what it is not told as lost.
/// - Closing the store waits until it has been told everything that waits, unless it closes the store itself.
///
/// A closure is one too.
///
/// ```
/// use kelvin_base::events::{Event, EventListener};
///
/// let listener = |event: &Event| eprintln!("{event}");
/// # fn takes(_: impl EventListener) {}
/// # takes(listener);
/// ```
pub trait EventListener: Send + Sync {
    /// Something has happened.
    fn on_event(&self, event: &Event);
}

impl<F: Fn(&Event) + Send + Sync> EventListener for F {
    fn on_event(&self, event: &Event) {
        self(event);
    }
}

/// A listener among the options of a store.
#[derive(Clone)]
pub struct Listener(pub Arc<dyn EventListener>);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When: Unix milliseconds.
    pub unix_ms: u64,
    /// What.
    pub what: What,
}

/// What can happen. More kinds may come.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// Memtables were written to level 0.
    Flushed {
        /// Of this keyspace.
        keyspace: String,
        /// Tables made.
        tables: u64,
        /// Bytes of these.
        bytes: u64,
    },
    /// Tables were merged, or moved to another level as they are.
    Compacted(Box<Compaction>),
    /// A promotion by flush has ended (HotRAP section 3.5).
    Promoted {
        /// Of this keyspace.
        keyspace: String,
        /// Records that became a run of the hot level.
        records: u64,
        /// Bytes of these.
        bytes: u64,
        /// Hot records that were too few for a run and wait for the next one.
        back_records: u64,
        /// Records that were dropped as not hot.
        not_hot_records: u64,
        /// Bytes of these.
        not_hot_bytes: u64,
    },
    /// The tracker of hot keys let go of the coldest, and set its limits anew.
    TrackerEvicted {
        /// Before.
        before: TrackerSizes,
        /// After.
        after: TrackerSizes,
    },
    /// Writers begin to wait, wait in another way, or wait no more.
    Pressure {
        /// "none", or "delayed" or "stopped" with the reason behind a colon.
        before: String,
        /// The same, from now on.
        now: String,
    },
    /// A disk does not answer.
    TierAway {
        /// Of this tier.
        tier: Tier,
        /// What it answered instead.
        error: String,
    },
    /// It answers again.
    TierBack {
        /// Of this tier.
        tier: Tier,
        /// How long it was away.
        away_ms: u64,
    },
    /// A flush or a compaction failed. It is tried again.
    WorkFailed {
        /// "flush", "fast compaction" or "slow compaction".
        work: &'static str,
        /// Why.
        error: String,
    },
    /// Work of a kind that had failed is done, or is not wanted any more.
    WorkRecovered {
        /// As in [`What::WorkFailed`].
        work: &'static str,
    },
    /// Tables of copies were missing or damaged, and are done without: nothing is lost with them.
    CopiesDropped {
        /// Of this keyspace.
        keyspace: String,
        /// How many.
        tables: u64,
    },
    /// The store takes no more writes.
    ReadOnly {
        /// Why.
        error: String,
    },
    /// The listener was busy for too long.
    Lost {
        /// So many events it was not told of, before the one that follows.
        events: u64,
    },
}

/// A compaction that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compaction {
    /// Of this keyspace.
    pub keyspace: String,
    /// Why it ran.
    pub reason: &'static str,
    /// The uppermost level that it read.
    pub from: String,
    /// The level that it wrote.
    pub to: String,
    /// Tables read; of a move, moved.
    pub tables_in: u64,
    /// Tables made.
    pub tables_out: u64,
    /// Nothing was read or written: the tables only changed their level.
    pub is_move: bool,
    /// Bytes read, by tier.
    pub read_bytes: [u64; 2],
    /// Bytes written, by tier.
    pub written_bytes: [u64; 2],
    /// How long it took.
    pub took_ms: u64,
    /// Copies of the hot level, and records that could have been promoted, that were dropped as not hot: bytes.
    pub not_hot_bytes: u64,
    /// Of a compaction across the boundary of the tiers that could keep what is hot: what it kept.
    pub boundary: Option<Kept>,
}

/// What a boundary compaction kept on the fast tier (HotRAP section 3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Hot records of the fast tier that stayed there.
    pub retained_records: u64,
    /// Bytes of these.
    pub retained_bytes: u64,
    /// Entries of the fast tier that are not hot and stayed there, since the hot level may hold a copy of an older version.
    pub guarded_records: u64,
    /// Bytes of these.
    pub guarded_bytes: u64,
    /// Hot records that went on, or lie on the slow tier, and left a copy to the promotion cache.
    pub lifted_records: u64,
    /// Bytes of these.
    pub lifted_bytes: u64,
    /// Hot records lately read from the slow tier that were written to the fast one.
    pub promoted_records: u64,
    /// Bytes of these.
    pub promoted_bytes: u64,
}

/// How large the tracker of hot keys is, and may be: bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrackerSizes {
    /// Of the records that are hot.
    pub hot_set_bytes: u64,
    /// The limit of that.
    pub hot_set_limit_bytes: u64,
    /// Of what the tracker itself keeps of all records it knows, in the paper's accounting.
    pub physical_bytes: u64,
    /// The limit of that.
    pub physical_limit_bytes: u64,
}

/// A value in [`Event::fields`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// A name or a message.
    Text(String),
    /// A count, bytes or milliseconds.
    Number(u64),
    /// Yes or no.
    Flag(bool),
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) if text.is_empty() || text.contains([' ', '"', '=']) => write!(f, "{text:?}"),
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => write!(f, "{number}"),
            Self::Flag(flag) => write!(f, "{flag}"),
        }
    }
}

impl From<&str> for Field {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for Field {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

/// A field's name, and its value.
pub type Named = (&'static str, Field);

impl What {
    /// Its name in JSON and logs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Flushed { .. } => "flushed",
            Self::Compacted(_) => "compacted",
            Self::Promoted { .. } => "promoted",
            Self::TrackerEvicted { .. } => "tracker_evicted",
            Self::Pressure { .. } => "pressure",
            Self::TierAway { .. } => "tier_away",
            Self::TierBack { .. } => "tier_back",
            Self::WorkFailed { .. } => "work_failed",
            Self::WorkRecovered { .. } => "work_recovered",
            Self::CopiesDropped { .. } => "copies_dropped",
            Self::ReadOnly { .. } => "read_only",
            Self::Lost { .. } => "lost",
        }
    }

    fn fields(&self) -> Vec<Named> {
        let number = |number: &u64| Field::Number(*number);
        let text = |text: &str| Field::from(text);
        match self {
            Self::Flushed { keyspace, tables, bytes } => {
                vec![("keyspace", text(keyspace)), ("tables", number(tables)), ("bytes", number(bytes))]
            }
            Self::Compacted(compaction) => compaction.fields(),
            Self::Promoted { keyspace, records, bytes, back_records, not_hot_records, not_hot_bytes } => {
                vec![
                    ("keyspace", text(keyspace)),
                    ("records", number(records)),
                    ("bytes", number(bytes)),
                    ("back_records", number(back_records)),
                    ("not_hot_records", number(not_hot_records)),
                    ("not_hot_bytes", number(not_hot_bytes)),
                ]
            }
            Self::TrackerEvicted { before, after } => vec![
                ("before.hot_set_bytes", number(&before.hot_set_bytes)),
                ("before.hot_set_limit_bytes", number(&before.hot_set_limit_bytes)),
                ("before.physical_bytes", number(&before.physical_bytes)),
                ("before.physical_limit_bytes", number(&before.physical_limit_bytes)),
                ("after.hot_set_bytes", number(&after.hot_set_bytes)),
                ("after.hot_set_limit_bytes", number(&after.hot_set_limit_bytes)),
                ("after.physical_bytes", number(&after.physical_bytes)),
                ("after.physical_limit_bytes", number(&after.physical_limit_bytes)),
            ],
            Self::Pressure { before, now } => vec![("before", text(before)), ("now", text(now))],
            Self::TierAway { tier, error } => {
                vec![("tier", Field::Text(tier.to_string())), ("error", text(error))]
            }
            Self::TierBack { tier, away_ms } => {
                vec![("tier", Field::Text(tier.to_string())), ("away_ms", number(away_ms))]
            }
            Self::WorkFailed { work, error } => vec![("work", text(work)), ("error", text(error))],
            Self::WorkRecovered { work } => vec![("work", text(work))],
            Self::CopiesDropped { keyspace, tables } => {
                vec![("keyspace", text(keyspace)), ("tables", number(tables))]
            }
            Self::ReadOnly { error } => vec![("error", text(error))],
            Self::Lost { events } => vec![("events", number(events))],
        }
    }
}

impl Compaction {
    fn fields(&self) -> Vec<Named> {
        let mut fields = vec![
            ("keyspace", Field::from(self.keyspace.as_str())),
            ("reason", self.reason.into()),
            ("from", self.from.as_str().into()),
            ("to", self.to.as_str().into()),
            ("tables_in", self.tables_in.into()),
            ("tables_out", self.tables_out.into()),
            ("is_move", Field::Flag(self.is_move)),
            ("read_bytes.fast", self.read_bytes[0].into()),
            ("read_bytes.slow", self.read_bytes[1].into()),
            ("written_bytes.fast", self.written_bytes[0].into()),
            ("written_bytes.slow", self.written_bytes[1].into()),
            ("took_ms", self.took_ms.into()),
            ("not_hot_bytes", self.not_hot_bytes.into()),
        ];
        if let Some(kept) = &self.boundary {
            fields.extend([
                ("boundary.retained_records", kept.retained_records.into()),
                ("boundary.retained_bytes", kept.retained_bytes.into()),
                ("boundary.guarded_records", kept.guarded_records.into()),
                ("boundary.guarded_bytes", kept.guarded_bytes.into()),
                ("boundary.lifted_records", kept.lifted_records.into()),
                ("boundary.lifted_bytes", kept.lifted_bytes.into()),
                ("boundary.promoted_records", kept.promoted_records.into()),
                ("boundary.promoted_bytes", kept.promoted_bytes.into()),
            ]);
        }
        fields
    }
}

impl Event {
    /// Everything it says, by name; a dot stands between the names of a group and of a part. `unix_ms` and `event`, which is
    /// [`What::name`], come first.
    #[must_use]
    pub fn fields(&self) -> Vec<Named> {
        let mut fields = vec![("unix_ms", self.unix_ms.into()), ("event", self.what.name().into())];
        fields.extend(self.what.fields());
        fields
    }
}

/// One line: the name, and then each field as `name=value`.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what.name())?;
        self.what.fields().iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}
