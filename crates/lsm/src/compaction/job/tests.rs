//! Jobs against a model, on failing storage, cut into parts, cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use kelvin_base::key::{Kind, split_internal, trailer_kind_byte, trailer_sequence};
use kelvin_base::sync::Mutex;
use kelvin_base::{
    ErrorKind, Executor, Lane, ManualExecutor, RangeTombstone, Sequence, Signal, ThreadPool, Tier,
};
use kelvin_storage::Storage;
use kelvin_storage::fault::FaultStorage;
use kelvin_storage::memory::MemoryStorage;
use kelvin_table::{Compression, Fragments};

use super::testing::{Entry, TestFiles, Tree, entries_of};
use super::{JobContext, Limiter, flush, run};
use crate::compaction::pick::{Plan, Reason};
use crate::iter::testing::{Dice, History, VecIter, internal, value};
use crate::iter::{DbIter, Sight};
use crate::tiers::Purpose;
use crate::version::TableFile;

pub(super) const LEVELS: usize = 4;
pub(super) const KEYS: u64 = 24;

pub(super) fn plan(inputs: Vec<(usize, Vec<Arc<TableFile>>)>, output_level: usize) -> Plan {
    Plan {
        inputs,
        target_file_bytes: 1 << 20,
        overlap_bytes_max: 10 << 20,
        ..Plan::new(0, Reason::Size, output_level, Tier::Fast)
    }
}

pub(super) fn sequence_of(entry: &Entry) -> Sequence {
    trailer_sequence(split_internal(&entry.0).unwrap().1)
}

/// Sorted disjoint tables of a layer, cut at random keys, range tombstones clipped.
pub(super) fn random_run(
    files: &Arc<TestFiles>,
    dice: &mut Dice,
    entries: &[Entry],
    stones: &[RangeTombstone],
) -> Vec<Arc<TableFile>> {
    let mut cuts: Vec<Option<Vec<u8>>> =
        (0..dice.below(4)).map(|_| Some(History::key(dice.below(KEYS)))).collect();
    cuts.sort();
    cuts.dedup();
    let fragments = Fragments::build(stones.to_vec());
    let mut run = Vec::new();
    let mut lower = None;
    for upper in cuts.into_iter().chain([None]) {
        let inside = |key: &[u8]| {
            lower.as_deref().is_none_or(|lower: &[u8]| lower <= key)
                && upper.as_deref().is_none_or(|upper| key < upper)
        };
        let own: Vec<Entry> =
            entries.iter().filter(|entry| inside(split_internal(&entry.0).unwrap().0)).cloned().collect();
        let clipped: Vec<_> = fragments.clip(lower.as_deref(), upper.as_deref()).tombstones().collect();
        if !own.is_empty() || !clipped.is_empty() {
            run.push(files.table(Tier::Fast, own, &clipped));
        }
        lower = upper;
    }
    run
}

/// Copies, for an upper layer, of the versions that are newest below it.
fn copies(dice: &mut Dice, history: &History, before: Sequence) -> Vec<Entry> {
    let mut copies = Vec::new();
    for index in 0..KEYS {
        let key = History::key(index);
        let older = history.entries.iter().filter(|entry| {
            split_internal(&entry.0).unwrap().0 == key.as_slice() && sequence_of(entry) <= before
        });
        let Some(newest) = older.max_by_key(|entry| sequence_of(entry)) else { continue };
        let sequence = sequence_of(newest);
        let kind_byte = trailer_kind_byte(split_internal(&newest.0).unwrap().1);
        let covered = history.tombstones.iter().any(|t| t.sequence <= before && t.covers(&key, sequence));
        if Kind::from_byte(kind_byte).unwrap().has_value() && !covered && dice.one_in(4) {
            copies.push((internal(&key, sequence, kind_byte + 1), newest.1.clone()));
        }
    }
    copies
}

/// A history laid out as a tree: newer writes higher, some with copies above them.
pub(super) fn random_tree(files: &Arc<TestFiles>, dice: &mut Dice, history: &History) -> Tree {
    let mut edges: Vec<Sequence> = (0..LEVELS + 1).map(|_| dice.below(history.last_sequence)).collect();
    edges.sort_unstable();
    edges.push(history.last_sequence);
    let mut tree = Tree { levels: vec![Vec::new(); LEVELS] };
    let mut before = 0;
    for (layer, &end) in edges.iter().enumerate() {
        let newer = |sequence: Sequence| before < sequence && sequence <= end;
        let mut entries: Vec<Entry> =
            history.entries.iter().filter(|entry| newer(sequence_of(entry))).cloned().collect();
        entries.extend(copies(dice, history, before));
        let stones: Vec<_> =
            history.tombstones.iter().filter(|stone| newer(stone.sequence)).cloned().collect();
        // Layers from the bottom: the deepest level first, at last several L0 tables.
        let level = (LEVELS - 1).saturating_sub(layer);
        if level > 0 {
            tree.levels[level] = random_run(files, dice, &entries, &stones);
        } else if !entries.is_empty() || !stones.is_empty() {
            tree.levels[0].insert(0, files.table(Tier::Fast, entries, &stones));
        }
        before = end;
    }
    tree
}

/// Inputs from `level` and all they meet one level deeper; `None` if there are none.
fn random_inputs(dice: &mut Dice, tree: &Tree, level: usize) -> Option<Vec<(usize, Vec<Arc<TableFile>>)>> {
    let files = &tree.levels[level];
    if files.is_empty() {
        return None;
    }
    let (from, to) = if level == 0 {
        (0, files.len())
    } else {
        let from = dice.index(files.len());
        (from, from + 1 + dice.index(files.len() - from))
    };
    let chosen = files[from..to].to_vec();
    let smallest = chosen.iter().map(|file| file.meta.smallest.clone()).min()?;
    let ends = |file: &&Arc<TableFile>| (file.meta.largest.clone(), !file.meta.largest_exclusive);
    let last = chosen.iter().max_by_key(ends)?;
    let meets =
        |file: &&Arc<TableFile>| file.meta.reaches(&smallest) && last.meta.reaches(&file.meta.smallest);
    let deeper = tree.levels[level + 1].iter().filter(meets).map(Arc::clone).collect();
    Some(vec![(level, chosen), (level + 1, deeper)])
}

pub(super) fn compacted(
    files: &Arc<TestFiles>,
    dice: &mut Dice,
    tree: &Tree,
    level: usize,
    snapshots: &[Sequence],
) -> Option<Tree> {
    let inputs = random_inputs(dice, tree, level)?;
    let mut ctx = files.context(snapshots.to_vec());
    ctx.deeper = tree.levels[level + 2..].to_vec();
    let mut plan = plan(inputs, level + 1);
    plan.bottommost = ctx.deeper.iter().all(Vec::is_empty) && dice.one_in(2);
    plan.target_file_bytes = [1, 150, 1 << 20][dice.index(3)];
    plan.overlap_bytes_max = 10 * plan.target_file_bytes;
    plan.boundaries = (0..dice.below(4)).map(|_| History::key(dice.below(KEYS)).into()).collect();
    plan.grandparents = tree.levels.get(level + 2).cloned().unwrap_or_default();
    if dice.one_in(3) {
        plan.output_tier = Tier::Slow;
    }
    let output = run(&plan, &ctx).unwrap();
    let mut after = tree.clone();
    for (level, used) in &plan.inputs {
        after.levels[*level].retain(|file| used.iter().all(|used| used.meta.number != file.meta.number));
    }
    for table in &output.tables {
        assert_eq!(table.tier, plan.output_tier);
        after.levels[level + 1].push(files.file(table));
    }
    after.levels[level + 1].sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
    for pair in after.levels[level + 1].windows(2) {
        assert!(!pair[0].meta.reaches(&pair[1].meta.smallest), "output tables overlap: {pair:?}");
    }
    Some(after)
}

pub(super) fn check_reads(tree: &Tree, history: &History, snapshots: &[Sequence], what: &str) {
    for &at in snapshots {
        let wanted: Vec<_> = history.seen(at).into_iter().map(|(key, (_, value))| (key, value)).collect();
        assert_eq!(tree.read(at), wanted, "{what}, at {at}");
        assert_eq!(read_without_copies(tree, at), wanted, "{what}, at {at}, copies left out");
    }
}

/// What a reader sees when every copy is gone: dropping copies must always be safe.
fn read_without_copies(tree: &Tree, at: Sequence) -> Vec<(Vec<u8>, Vec<u8>)> {
    let is_copy = |key: &[u8]| {
        Kind::from_byte(trailer_kind_byte(split_internal(key).unwrap().1)).unwrap() == Kind::Copy
    };
    let entries = tree.tables().flat_map(entries_of).filter(|entry| !is_copy(&entry.0)).collect();
    let sight = Sight { at, now_ms: crate::iter::testing::NOW_MS, lower: None, upper: None };
    let mut iter = DbIter::new(vec![VecIter::new(entries)], tree.tombstones(), sight);
    let mut seen = Vec::new();
    iter.seek_to_last().unwrap();
    while iter.valid() {
        seen.push((iter.key().to_vec(), iter.value().to_vec()));
        iter.prev().unwrap();
    }
    seen.reverse();
    seen
}

#[test]
fn compactions_change_nothing_that_a_live_snapshot_or_the_latest_reader_sees() {
    for seed in 0..400 {
        let mut dice = Dice::new(seed);
        let files = TestFiles::new();
        let history = History::random(&mut dice, 90, KEYS);
        let mut tree = random_tree(&files, &mut dice, &history);
        let mut snapshots: Vec<Sequence> = (0..dice.below(4))
            .map(|_| dice.below(history.last_sequence))
            .chain([history.last_sequence])
            .collect();
        snapshots.sort_unstable();
        snapshots.dedup();
        check_reads(&tree, &history, &snapshots, &format!("seed {seed}, before"));
        for step in 0..6 {
            let level = dice.index(LEVELS - 1);
            if let Some(after) = compacted(&files, &mut dice, &tree, level, &snapshots) {
                tree = after;
                check_reads(&tree, &history, &snapshots, &format!("seed {seed}, step {step} from L{level}"));
            }
            // Snapshots end while others live on.
            if snapshots.len() > 1 && dice.one_in(3) {
                let gone = dice.index(snapshots.len() - 1);
                snapshots.remove(gone);
            }
        }
    }
}

#[test]
fn a_full_compaction_without_snapshots_leaves_exactly_what_is_live() {
    for seed in 0..100 {
        let mut dice = Dice::new(seed);
        let files = TestFiles::new();
        let history = History::random(&mut dice, 90, KEYS);
        let tree = random_tree(&files, &mut dice, &history);
        let inputs = tree.levels.iter().cloned().enumerate().collect();
        let output = run(&plan(inputs, LEVELS), &files.context(vec![history.last_sequence])).unwrap();
        let entries: Vec<Entry> =
            output.tables.iter().flat_map(|table| entries_of(&files.file(table))).collect();
        assert_eq!(entries.len(), history.seen(history.last_sequence).len());
        assert!(output.tables.iter().all(|table| table.properties.range_tombstones == 0));
        assert_eq!(output.stats.entries_out, entries.len() as u64);
        let dropped = output.stats.dropped;
        let gone = dropped.shadowed + dropped.covered + dropped.deletions + dropped.expired + dropped.copies;
        assert_eq!(output.stats.entries_in, output.stats.entries_out + gone);
        assert_eq!(
            output.stats.written_bytes[0],
            output.tables.iter().map(|t| t.properties.size_bytes).sum::<u64>()
        );
    }
}

#[test]
fn a_flush_writes_one_table_that_reads_like_its_memtables() {
    for seed in 0..200 {
        let mut dice = Dice::new(seed);
        let files = TestFiles::new();
        let history = History::random(&mut dice, 60, KEYS);
        let mut sources = vec![Vec::new(); 3];
        for entry in &history.entries {
            sources[dice.index(3)].push(entry.clone());
        }
        let sources: Vec<VecIter> = sources.into_iter().map(VecIter::new).collect();
        let snapshots = vec![dice.below(30), 30 + dice.below(30), history.last_sequence];
        let stones = Arc::new(Fragments::build(history.tombstones.clone()));
        let output = flush(sources, &[stones], &files.context(snapshots.clone())).unwrap();
        assert_eq!(output.tables.len(), 1);
        assert_eq!(output.tables[0].tier, Tier::Fast);
        let tree = Tree { levels: vec![vec![files.file(&output.tables[0])]] };
        check_reads(&tree, &history, &snapshots, &format!("seed {seed}"));
    }
}

#[test]
fn a_flush_keeps_deletions_and_makes_no_empty_table() {
    let files = TestFiles::new();
    let deletion = crate::iter::testing::deletion("a", 3);
    let sources = vec![VecIter::new(vec![deletion.clone(), value("a", 2, "x")])];
    let output = flush(sources, &[], &files.context(vec![9])).unwrap();
    assert_eq!(entries_of(&files.file(&output.tables[0])), [deletion]);
    let output = flush(Vec::<VecIter>::new(), &[], &files.context(vec![9])).unwrap();
    assert!(output.tables.is_empty());
    assert_eq!(files.names().len(), 1);
}

fn some_inputs(files: &Arc<TestFiles>, count: usize) -> Vec<(usize, Vec<Arc<TableFile>>)> {
    let entries = |from: usize, sequence| {
        (from..from + count).map(|i| value(&format!("k{i:05}"), sequence, "some value")).collect::<Vec<_>>()
    };
    let stone = RangeTombstone { start: "k00003".into(), end: "k00005".into(), sequence: 2 };
    let upper = files.table(Tier::Fast, entries(count / 2, 3), &[stone]);
    let lower =
        vec![files.table(Tier::Slow, entries(0, 1), &[]), files.table(Tier::Slow, entries(count, 1), &[])];
    vec![(0, vec![upper]), (1, lower)]
}

#[test]
fn whichever_operation_fails_the_job_fails_and_leaves_no_file() {
    let mut failures = 0;
    for nth in 1.. {
        let storage = Arc::new(FaultStorage::new(Arc::new(MemoryStorage::new()), 1));
        let files = TestFiles::on(Arc::clone(&storage) as Arc<dyn Storage>);
        let inputs = some_inputs(&files, 60);
        let before = files.names();
        let mut plan = plan(inputs, 1);
        plan.output_tier = Tier::Slow;
        plan.target_file_bytes = 500;
        plan.overlap_bytes_max = 10 * plan.target_file_bytes;
        plan.boundaries = vec!["k00020".into(), "k00070".into()];
        storage.fail_nth(nth, 5);
        let outcome = run(&plan, &files.context(Vec::new()));
        let failed = storage.injected() > 0;
        storage.clear();
        assert_eq!(outcome.is_err(), failed, "operation {nth}");
        if !failed {
            break;
        }
        failures += 1;
        assert_eq!(files.names(), before, "operation {nth}");
    }
    assert!(failures > 20, "{failures}");
}

#[test]
fn parts_give_the_same_table_contents_wherever_they_run() {
    let mut wanted = None;
    let pool: Arc<dyn Executor> = Arc::new(ThreadPool::new(1, 3, 1).unwrap());
    let manual = Arc::new(ManualExecutor::new());
    for executor in [pool, Arc::clone(&manual) as Arc<dyn Executor>] {
        for cuts in [vec![], vec!["k00100", "k00050", "k00050"], vec!["k00001", "k00120", "k00200"]] {
            let files = TestFiles::new();
            let mut plan = plan(some_inputs(&files, 100), 1);
            plan.boundaries = cuts.into_iter().map(Bytes::from).collect();
            files.purposes.lock().clear();
            let purpose = Purpose::Compaction.enter();
            let output = run(&plan, &files.context_on(vec![9], Arc::clone(&executor))).unwrap();
            drop(purpose);
            assert!(files.purposes.lock().iter().all(|purpose| *purpose == Purpose::Compaction));
            let entries: Vec<_> =
                output.tables.iter().flat_map(|table| entries_of(&files.file(table))).collect();
            assert_eq!(entries.len(), 198);
            assert_eq!(*wanted.get_or_insert_with(|| entries.clone()), entries);
        }
    }
    manual.run_all();
}

#[test]
fn a_job_on_the_only_thread_of_its_lane_runs_its_parts_itself() {
    let pool: Arc<dyn Executor> = Arc::new(ThreadPool::new(1, 1, 1).unwrap());
    let files = TestFiles::new();
    let mut plan = plan(some_inputs(&files, 100), 1);
    plan.boundaries = vec!["k00050".into(), "k00100".into(), "k00150".into()];
    let (done, raised) = (Arc::new(Mutex::new(None)), Arc::new(Signal::new()));
    let (their_done, their_signal, their_pool) = (Arc::clone(&done), Arc::clone(&raised), Arc::clone(&pool));
    pool.spawn(
        Lane::Compaction,
        Box::new(move || {
            *their_done.lock() = Some(run(&plan, &files.context_on(vec![9], their_pool)));
            their_signal.raise();
        }),
    );
    let output = raised.wait_for(&*pool, || done.lock().take()).unwrap();
    assert_eq!(output.tables.len(), 4);
}

struct CancelAtFirstWrite(Arc<AtomicBool>);

impl Limiter for CancelAtFirstWrite {
    fn wrote(&self, _tier: Tier, bytes: u64) {
        assert!(bytes > 0);
        self.0.store(true, Ordering::Release);
    }
}

fn cancelling(ctx: &mut JobContext) {
    ctx.limiter = Some(Arc::new(CancelAtFirstWrite(Arc::clone(&ctx.cancel))));
}

#[test]
fn a_cancelled_job_stops_in_the_middle_and_leaves_no_file() {
    let files = TestFiles::new();
    let plan = plan(some_inputs(&files, 5_000), 1);
    let before = files.names();
    let mut ctx = files.context(vec![9]);
    cancelling(&mut ctx);
    assert_eq!(run(&plan, &ctx).unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(files.names(), before);
    let seen = ctx.progress.entries_in.load(Ordering::Relaxed);
    assert!((1_000..6_000).contains(&seen), "{seen} of 15000 entries");
    let sources = vec![VecIter::new((0..5_000).map(|i| value(&format!("{i:05}"), 1, "x")).collect())];
    assert_eq!(flush(sources, &[], &ctx).unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(files.names(), before);
}

#[test]
fn outputs_are_cut_where_they_would_overlap_too_much_below() {
    let files = TestFiles::new();
    let entries = (0..100).map(|i| value(&format!("k{i:05}"), 3, "some value")).collect();
    let below = (0..100).map(|i| files.table(Tier::Fast, vec![value(&format!("k{i:05}"), 1, "x")], &[]));
    let mut plan = plan(vec![(1, vec![files.table(Tier::Fast, entries, &[])])], 2);
    plan.grandparents = below.collect();
    let one = plan.grandparents[0].meta.size_bytes;
    plan.target_file_bytes = 2 * one;
    plan.overlap_bytes_max = 10 * plan.target_file_bytes;
    let sizes = run(&plan, &files.context(vec![9])).unwrap().tables;
    let overlaps: Vec<u64> = sizes.iter().map(|table| table.properties.entries).collect();
    assert!(overlaps.iter().all(|&entries| entries <= 22), "{overlaps:?}");
    assert_eq!(overlaps.iter().sum::<u64>(), 100);
}

#[test]
fn outputs_end_where_a_table_below_ends_if_they_are_half_full_there() {
    let files = TestFiles::new();
    let key = |index: u64| format!("k{index:04}").into_bytes();
    let entries = |range: std::ops::Range<u64>, sequence| -> Vec<Entry> {
        range.map(|index| (internal(&key(index), sequence, Kind::Value as u8), vec![7; 100])).collect()
    };
    let below = |range: std::ops::Range<u64>| files.table(Tier::Slow, entries(range, 1), &[]);
    for (span, target_entries) in [(30, 100), (60, 100), (90, 100), (130, 100)] {
        let mut plan = plan(vec![(1, vec![files.table(Tier::Fast, entries(0..1000, 9), &[])])], 2);
        plan.target_file_bytes = plan.inputs[0].1[0].meta.size_bytes / 1000 * target_entries;
        plan.grandparents = (0..1000 / span).map(|at| below(at * span..(at + 1) * span)).collect();
        let output = run(&plan, &files.context(Vec::new())).unwrap();
        let ends = plan.grandparents.iter().map(|file| file.meta.largest.clone());
        let ends: std::collections::BTreeSet<Bytes> = ends.collect();
        let tables: Vec<_> = output.tables.iter().map(|table| table.meta()).collect();
        let aligned = tables.iter().filter(|table| ends.contains(&table.largest)).count();
        // Two of 30, one of 60 or 90 fill a table; of 130 every end is met by one half full, or passed by one that is not.
        let expected = if span < target_entries { tables.len() - 1 } else { 3 };
        assert!(aligned >= expected, "span {span}: {aligned} of {}", tables.len());
        let full = plan.target_file_bytes + plan.target_file_bytes / 10;
        let sizes: Vec<u64> = tables.iter().map(|table| table.size_bytes).collect();
        let whole = &sizes[..sizes.len() - 1];
        assert!(whole.iter().all(|bytes| (plan.target_file_bytes / 2..full).contains(bytes)), "{sizes:?}");
    }
}

#[test]
fn a_table_that_seems_smaller_once_its_block_is_compressed_is_measured_all_the_same() {
    let mut files = TestFiles::new();
    Arc::get_mut(&mut files).unwrap().options.compression = Compression::Lz4;
    let key = |index: u64| format!("k{index:04}").into_bytes();
    let entries = |range: std::ops::Range<u64>, sequence| -> Vec<Entry> {
        range.map(|index| (internal(&key(index), sequence, Kind::Value as u8), vec![7; 100])).collect()
    };
    let mut plan = plan(vec![(1, vec![files.table(Tier::Fast, entries(0..1000, 9), &[])])], 2);
    // Tables below end in every block, before it is full and after.
    let below = |at: u64| files.table(Tier::Slow, entries(at * 5..(at + 1) * 5, 1), &[]);
    plan.grandparents = (0..200).map(below).collect();
    plan.target_file_bytes = plan.inputs[0].1[0].meta.size_bytes / 2;
    plan.overlap_bytes_max = u64::MAX;
    let output = run(&plan, &files.context(Vec::new())).unwrap();
    let sizes: Vec<u64> = output.tables.iter().map(|table| table.properties.size_bytes).collect();
    assert!(sizes.len() <= 4, "each is at least half full when it ends: {sizes:?}");
    assert_eq!(output.tables.iter().map(|table| table.properties.entries).sum::<u64>(), 1000);
}
