//! The merge itself: entries in order from the sources, past the rules, into output tables.
//!
//! Invariant: about every 256 KiB or 1024 entries the job looks whether it should stop, tells how far it is, and
//! lets the limiter hold it. Tests: `tests.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use kelvin_base::key::{Kind, append_internal, split_internal, trailer, trailer_kind_byte, trailer_sequence};
use kelvin_base::{Error, ErrorKind, InternalIterator, Result, Tier, seeded_bug};
use kelvin_table::Fragments;

use super::below::Below;
use super::output::{OutputWriter, Shape};
use super::route::{Asked, Cooler, HotSide, Way};
use super::rules::{Entry, Rules, Terms, Verdict, Why};
use super::{JobContext, JobStats, JobTable, Made, cancelled, is_set};
use crate::iter::MergingIter;

const CHECK_BYTES: u64 = 256 * 1024;
const CHECK_ENTRIES: u64 = 1024;

/// What a part of a job reports.
pub type Merged = (Vec<JobTable>, JobStats);

/// Sees to what must happen now and then during a merge.
pub struct Watch<'a> {
    ctx: &'a JobContext,
    /// Set when another part failed.
    stop: &'a AtomicBool,
    tier: Tier,
    entries: u64,
    bytes: u64,
    told_bytes: u64,
}

impl<'a> Watch<'a> {
    pub const fn new(ctx: &'a JobContext, stop: &'a AtomicBool, tier: Tier) -> Self {
        Self { ctx, stop, tier, entries: 0, bytes: 0, told_bytes: 0 }
    }

    /// An entry of `bytes` was read. True if it is time to [`Self::tell`].
    const fn saw(&mut self, bytes: usize) -> bool {
        self.entries += 1;
        self.bytes += bytes as u64;
        self.entries >= CHECK_ENTRIES || self.bytes >= CHECK_BYTES
    }

    fn tell(&mut self, written_bytes: u64) -> Result<()> {
        let progress = &self.ctx.progress;
        progress.entries_in.fetch_add(std::mem::take(&mut self.entries), Ordering::Relaxed);
        self.bytes = 0;
        let more = written_bytes.saturating_sub(self.told_bytes);
        self.told_bytes += more;
        progress.bytes_out.fetch_add(more, Ordering::Relaxed);
        if let Some(limiter) = &self.ctx.limiter
            && more > 0
        {
            limiter.wrote(self.tier, more);
        }
        self.check()
    }

    /// `Busy` if the job should stop.
    pub fn check(&self) -> Result<()> {
        if is_set(&self.ctx.cancel) || is_set(self.stop) { Err(cancelled()) } else { Ok(()) }
    }
}

/// Entries on their way from the merge to the output.
pub struct Pass<'a> {
    pub rules: Rules<'a>,
    pub out: OutputWriter<'a>,
    /// Where hot records go instead, if they do.
    pub hot: Option<HotSide<'a>>,
    /// Drops copies that are not worth keeping.
    pub cooler: Option<Cooler<'a>>,
    pub watch: Watch<'a>,
    pub stats: JobStats,
    last_key: Vec<u8>,
    /// An entry of `last_key` was written to the output, or to the hot side.
    written: [bool; 2],
    /// `last_key` lies in the hot level too.
    guarded: bool,
    /// A copy whose successor is not known yet.
    held_key: Vec<u8>,
    held_value: Vec<u8>,
    deletion: Vec<u8>,
}

impl<'a> Pass<'a> {
    pub fn new(rules: Rules<'a>, out: OutputWriter<'a>, watch: Watch<'a>) -> Self {
        let (last_key, held_key, held_value, deletion) = Default::default();
        let stats = JobStats::default();
        let (hot, cooler, written, guarded) = (None, None, [false; 2], false);
        Self {
            rules,
            out,
            hot,
            cooler,
            watch,
            stats,
            last_key,
            written,
            guarded,
            held_key,
            held_value,
            deletion,
        }
    }

    /// Passes the entries of `merge` on, from where it stands to `upper`.
    fn drain<S: InternalIterator>(&mut self, merge: &mut MergingIter<S>, upper: Option<&[u8]>) -> Result<()> {
        while merge.valid() {
            let (user_key, trailer) = split(merge.key())?;
            if upper.is_some_and(|upper| user_key >= upper) {
                break;
            }
            let source = merge.current_source().unwrap_or(usize::MAX);
            if Kind::from_byte(trailer_kind_byte(trailer)) != Some(Kind::Copy) {
                self.take(merge.key(), merge.value(), false, source)?;
                merge.next()?;
                continue;
            }
            let mut key = std::mem::take(&mut self.held_key);
            let mut value = std::mem::take(&mut self.held_value);
            key.clear();
            key.extend_from_slice(merge.key());
            value.clear();
            value.extend_from_slice(merge.value());
            merge.next()?;
            // Where copies go to another tier than their originals, only a second copy makes one superfluous.
            let repeated = merge.valid()
                && is_same_write(&key, merge.key())?
                && (self.hot.is_none() || key == merge.key());
            self.take(&key, &value, repeated, source)?;
            (self.held_key, self.held_value) = (key, value);
        }
        Ok(())
    }

    fn take(&mut self, internal_key: &[u8], stored: &[u8], repeated: bool, source: usize) -> Result<()> {
        let (key, packed) = split(internal_key)?;
        let (sequence, kind_byte) = (trailer_sequence(packed), trailer_kind_byte(packed));
        self.stats.entries_in += 1;
        if self.last_key != key || self.stats.entries_in == 1 {
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
            self.written = [false; 2];
            self.guarded = self.hot.as_mut().is_some_and(|hot| hot.guards(key, source));
        }
        let guarded = self.guarded && self.hot.as_ref().is_some_and(|hot| hot.is_fast(source));
        let verdict = self.rules.judge(&Entry { key, sequence, kind_byte, stored, repeated, guarded })?;
        let bytes = internal_key.len() + stored.len();
        let (internal_key, stored, kind_byte) = match verdict {
            Verdict::Keep => (internal_key, stored, kind_byte),
            Verdict::Delete => {
                self.stats.expired_to_deletions += 1;
                self.deletion.clear();
                append_internal(&mut self.deletion, key, trailer(sequence, Kind::Deletion as u8));
                (&self.deletion[..], &[][..], Kind::Deletion as u8)
            }
            Verdict::Drop(why) => {
                self.count(why);
                return self.saw(bytes);
            }
        };
        let is_newest = self.written == [false; 2]
            && (!self.rules.is_covered(key, sequence) || seeded_bug!("retained-beneath-a-range-tombstone"));
        let asked = Asked { key, sequence, kind_byte, is_newest, source, guarded };
        let way = match (&self.hot, &mut self.cooler) {
            (Some(hot), _) => match hot.way(&asked) {
                Way::Lift if !hot.lift(&asked, stored, &mut self.stats.routed) => Way::Hot,
                way => way,
            },
            (None, Some(cooler)) => cooler.way(key, kind_byte),
            (None, None) => Way::Output,
        };
        match (way, &mut self.hot) {
            (Way::Hot | Way::Guarded, Some(hot)) => {
                hot.count(way, source, (key.len() + stored.len()) as u64, &mut self.stats.routed);
                self.stats.routed.above_bytes += if guarded { (key.len() + stored.len()) as u64 } else { 0 };
                hot.out.add(key, !self.written[1], internal_key, stored)?;
                self.written[1] = true;
            }
            (Way::Lift, _) if Kind::from_byte(kind_byte) == Some(Kind::Copy) => return self.saw(bytes),
            (Way::Lift, _) if seeded_bug!("lifted-value-stays-behind") => return self.saw(bytes),
            (Way::Nowhere, _) => {
                self.stats.routed.not_hot_bytes += (key.len() + stored.len()) as u64;
                self.count(Why::Copy);
                return self.saw(bytes);
            }
            _ => {
                self.out.add(key, !self.written[0], internal_key, stored)?;
                self.written[0] = true;
            }
        }
        self.stats.entries_out += 1;
        self.saw(bytes)
    }

    /// An entry of `bytes` was dealt with: now and then there is more to see to.
    fn saw(&mut self, bytes: usize) -> Result<()> {
        if !self.watch.saw(bytes) {
            return Ok(());
        }
        let mut written_bytes = 0;
        for out in std::iter::once(&mut self.out).chain(self.hot.as_mut().map(|hot| &mut hot.out)) {
            out.count_memory();
            written_bytes += out.finished_bytes() + out.open_bytes();
        }
        self.watch.tell(written_bytes)
    }

    const fn count(&mut self, why: Why) {
        let dropped = &mut self.stats.dropped;
        match why {
            Why::Shadowed => dropped.shadowed += 1,
            Why::Covered => dropped.covered += 1,
            Why::Deletion => dropped.deletions += 1,
            Why::Expired => dropped.expired += 1,
            Why::Copy => dropped.copies += 1,
        }
    }

    fn finish(mut self) -> Result<Merged> {
        let mut tables = self.out.finish()?;
        if let Some(hot) = self.hot {
            tables.extend(hot.out.finish()?);
        }
        let mut written_bytes = 0;
        for table in &tables {
            written_bytes += table.properties.size_bytes;
            self.stats.written_bytes[table.tier.index()] += table.properties.size_bytes;
        }
        self.watch.tell(written_bytes)?;
        Ok((tables, self.stats))
    }
}

/// Merges what `merge` has between `lower` and `upper` past `pass`.
///
/// # Errors
/// A source's, an output's, or `Busy` when stopped.
pub fn run<S: InternalIterator>(
    merge: &mut MergingIter<S>,
    lower: Option<&Bytes>,
    upper: Option<&Bytes>,
    mut pass: Pass<'_>,
) -> Result<Merged> {
    pass.watch.check()?;
    match lower {
        Some(lower) => {
            let mut target = Vec::with_capacity(lower.len() + 8);
            append_internal(&mut target, lower, u64::MAX);
            merge.seek(&target)?;
        }
        None => merge.seek_to_first()?,
    }
    pass.drain(merge, upper.map(Bytes::as_ref))?;
    pass.finish()
}

/// Merges memtables into at most one table on the fast tier.
///
/// # Errors
/// The output's, or `Busy` when cancelled.
pub fn flush<S: InternalIterator>(
    sources: Vec<S>,
    tombstones: &[Arc<Fragments>],
    ctx: &JobContext,
    made: &Made,
) -> Result<Merged> {
    let terms = Terms {
        snapshots: ctx.snapshots.clone(),
        now_ms: ctx.clock.unix_millis(),
        drops_copies: false,
        routes_copies: false,
        tombstones: Arc::new(Fragments::merge(tombstones.iter().map(AsRef::as_ref))),
    };
    let kept = Fragments::build(terms.kept_tombstones(&Below::Anything));
    let shape = Shape::plain(ctx.options, u64::MAX, &kept);
    let out = OutputWriter::new(shape, ctx, made);
    let never = AtomicBool::new(false);
    let watch = Watch::new(ctx, &never, Tier::Fast);
    let pass = Pass::new(Rules::new(&terms, Below::Anything), out, watch);
    run(&mut MergingIter::new(sources), None, None, pass)
}

fn split(internal: &[u8]) -> Result<(&[u8], u64)> {
    split_internal(internal)
        .ok_or_else(|| Error::new(ErrorKind::Corruption, "an internal key is shorter than its trailer"))
}

/// True if both entries have the same user key and sequence number.
fn is_same_write(a: &[u8], b: &[u8]) -> Result<bool> {
    let ((a_key, a_trailer), (b_key, b_trailer)) = (split(a)?, split(b)?);
    Ok(trailer_sequence(a_trailer) == trailer_sequence(b_trailer) && a_key == b_key)
}
