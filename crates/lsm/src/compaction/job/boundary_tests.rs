//! Boundary compactions that keep and promote what is hot, over a hot level of copies that come and go, against a model.
//!
//! Conditions left out one by one make these fail: what [`super::route`] asks before an entry stays, the guard, the eviction.

use std::sync::Arc;

use bytes::Bytes;
use kelvin_base::key::{Kind, split_internal, trailer_kind_byte};
use kelvin_base::{SEQUENCE_MAX, Sequence, Tier};
use kelvin_table::Fragments;

use super::testing::{Entry, HashTracker, TestFiles, Tree, entries_of};
use super::tests::{KEYS, check_reads, compacted, plan, random_tree, sequence_of};
use super::{Cooling, Retention, Routed, run};
use crate::iter::testing::{Dice, History, internal};
use crate::memory::MemoryBudget;
use crate::options::{HotParts, Options};
use crate::promotion::{Lifted, Promoted, Room, entries};
use crate::version::TableFile;

/// The last fast level of the trees here. The hot level's runs lie between it and the next one.
const LAST_FAST: usize = 1;

/// What a promotion cache could hold: copies of the newest versions below the fast levels, of records that have a value.
fn promotable(dice: &mut Dice, tree: &Tree, allowed: impl Fn(&[u8]) -> bool) -> Vec<(Bytes, Bytes)> {
    let below: Vec<&Arc<TableFile>> = tree.levels[LAST_FAST + 1..].iter().flatten().collect();
    let stones = below.iter().filter_map(|file| file.table().unwrap().tombstones().cloned());
    let stones = Fragments::merge(stones.collect::<Vec<_>>().iter().map(AsRef::as_ref));
    let mut promoted = Vec::new();
    for index in 0..KEYS {
        let key = History::key(index);
        let entries = below.iter().flat_map(|file| entries_of(file));
        let versions = entries.filter(|entry| split_internal(&entry.0).unwrap().0 == key.as_slice());
        let Some(newest) = versions.max_by_key(sequence_of) else { continue };
        let sequence = sequence_of(&newest);
        let kind_byte = trailer_kind_byte(split_internal(&newest.0).unwrap().1);
        let is_value = Kind::from_byte(kind_byte) == Some(Kind::Value);
        let covered = stones.max_covering(&key, SEQUENCE_MAX) > sequence;
        if is_value && !covered && allowed(&key) && dice.one_in(2) {
            promoted.push((internal(&key, sequence, kind_byte + 1).into(), newest.1.into()));
        }
    }
    promoted
}

/// A tree and the runs of its hot level.
struct World {
    files: Arc<TestFiles>,
    /// Without the hot level's runs.
    tree: Tree,
    hot: Vec<Arc<TableFile>>,
    sum: Routed,
    evicted: usize,
    guarded: usize,
    merged: usize,
    lifted: usize,
}

impl World {
    fn new(files: Arc<TestFiles>, tree: Tree) -> Self {
        let (hot, sum) = (Vec::new(), Routed::default());
        Self { files, tree, hot, sum, evicted: 0, guarded: 0, merged: 0, lifted: 0 }
    }

    /// What readers see: the hot level between the fast and the slow levels.
    fn whole(&self) -> Tree {
        let mut levels = self.tree.levels.clone();
        for (place, run) in self.hot.iter().enumerate() {
            levels.insert(LAST_FAST + 1 + place, vec![Arc::clone(run)]);
        }
        Tree { levels }
    }

    /// Promotion by flush: a run of copies.
    fn promote(&mut self, dice: &mut Dice) {
        let copies = promotable(dice, &self.tree, |_| true);
        let entries: Vec<Entry> =
            copies.into_iter().map(|(key, stored)| (key.to_vec(), stored.to_vec())).collect();
        if !entries.is_empty() {
            self.hot.push(self.files.table(Tier::Fast, entries, &[]));
        }
    }

    /// All runs become one.
    fn merge_runs(&mut self, dice: &mut Dice, snapshots: &[Sequence]) {
        if self.hot.len() < 2 {
            return;
        }
        let inputs =
            self.hot.iter().enumerate().map(|(place, run)| (LAST_FAST + 1 + place, vec![Arc::clone(run)]));
        let plan = plan(inputs.collect(), LAST_FAST + 1);
        let mut ctx = self.files.context(snapshots.to_vec());
        ctx.deeper = self.tree.levels[LAST_FAST + 1..].to_vec();
        let mut above: Vec<Vec<Arc<TableFile>>> =
            self.tree.levels[0].iter().map(|file| vec![Arc::clone(file)]).collect();
        above.push(self.tree.levels[LAST_FAST].clone());
        let tracker = Arc::new(HashTracker { seed: dice.below(1000), hot: [100, 256][dice.index(2)] });
        let tracker = (dice.index(2) == 0).then_some(tracker as _);
        ctx.cooling = Some(Arc::new(Cooling { tracker, above }));
        let output = run(&plan, &ctx).unwrap();
        self.merged += usize::from(!output.tables.is_empty());
        self.hot = output.tables.iter().map(|table| self.files.file(table)).collect();
    }

    /// What was handed up may be lost at any time, or becomes a run of its own.
    fn lift(&mut self, dice: &mut Dice, lifted: &[(Bytes, Promoted)]) {
        self.lifted += lifted.len();
        let copies = entries(lifted).into_iter().map(|(key, stored)| (key.to_vec(), stored.to_vec()));
        let copies: Vec<Entry> = copies.collect();
        if !copies.is_empty() && !dice.one_in(4) {
            self.hot.push(self.files.table(Tier::Fast, copies, &[]));
        }
    }

    /// What keeps hot records of `chosen` above, none of them handed up.
    fn retention(&self, dice: &mut Dice, chosen: &[Arc<TableFile>], parts: HotParts) -> Retention {
        let tracker = Arc::new(HashTracker { seed: dice.below(1000), hot: [0, 100, 256][dice.index(3)] });
        let is_inside = |key: &[u8]| chosen.iter().any(|file| file.meta.contains(key));
        Retention {
            tracker,
            parts,
            options: self.files.options,
            target_bytes: 0,
            guards: self.hot.iter().map(|run| vec![Arc::clone(run)]).collect(),
            lifted: None,
            lift_before: 0,
            promoted: promotable(dice, &self.tree, is_inside),
        }
    }

    /// A compaction of one table of the last fast level.
    fn cross(&mut self, dice: &mut Dice, snapshots: &[Sequence]) {
        let tables = &self.tree.levels[LAST_FAST];
        if tables.is_empty() {
            return;
        }
        let from = dice.index(tables.len());
        let chosen = tables[from..tables.len().min(from + 1 + dice.index(3))].to_vec();
        let (first, last) = (&chosen[0].meta, &chosen[chosen.len() - 1].meta);
        // The range over all of them, the gaps between them included.
        let meets =
            |file: &&Arc<TableFile>| file.meta.reaches(&first.smallest) && last.reaches(&file.meta.smallest);
        let deeper: Vec<_> = self.tree.levels[LAST_FAST + 1].iter().filter(meets).map(Arc::clone).collect();
        let mut plan = plan(vec![(LAST_FAST, chosen.clone()), (LAST_FAST + 1, deeper)], LAST_FAST + 1);
        let mut ctx = self.files.context(snapshots.to_vec());
        ctx.deeper = self.tree.levels[LAST_FAST + 2..].to_vec();
        plan.output_tier = Tier::Slow;
        plan.target_file_bytes = [1, 150, 1 << 20][dice.index(3)];
        plan.boundaries = (0..dice.below(4)).map(|_| History::key(dice.below(KEYS)).into()).collect();
        let retains = !dice.one_in(4);
        if !retains || chosen.iter().any(|file| file.meta.range_tombstones > 0) {
            let before = self.hot.len();
            self.hot.retain(|run| !meets(&run));
            self.evicted += before - self.hot.len();
        }
        let retention = !dice.one_in(4);
        let memory = MemoryBudget::new(&Options::new("/fast").memory(64 << 20).derive().unwrap());
        let room = Room::new(dice.below(4000) + 1, &memory).unwrap();
        let lifted = dice.one_in(2).then(|| Arc::new(Lifted::new(&room)));
        if retains {
            plan.retain_level = Some(LAST_FAST);
            let lift_before = dice.below(snapshots[snapshots.len() - 1] + 2);
            let kept = self.retention(dice, &chosen, HotParts { retention, ..HotParts::default() });
            let target_bytes = plan.target_file_bytes;
            ctx.retention =
                Some(Arc::new(Retention { lifted: lifted.clone(), lift_before, target_bytes, ..kept }));
        }
        let output = run(&plan, &ctx).unwrap();
        for (level, used) in &plan.inputs {
            self.tree.levels[*level]
                .retain(|file| used.iter().all(|used| used.meta.number != file.meta.number));
        }
        for table in &output.tables {
            let kept = table.tier == Tier::Fast;
            assert!(retains || !kept);
            assert!(!kept || table.properties.range_tombstones == 0);
            assert!(kept || table.properties.copies == 0, "copies never reach the slow tier");
            self.guarded += usize::from(kept && table.properties.deletions > 0);
            self.tree.levels[LAST_FAST + usize::from(!kept)].push(self.files.file(table));
        }
        for tables in &mut self.tree.levels[LAST_FAST..=LAST_FAST + 1] {
            tables.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
            let overlap = tables.windows(2).find(|pair| pair[0].meta.reaches(&pair[1].meta.smallest));
            assert!(overlap.is_none(), "tables overlap: {overlap:?}");
        }
        let routed = output.stats.routed;
        assert!(retention || routed.retained == 0, "what is guarded is not counted as retained: {routed:?}");
        let lifted = lifted.map(|lifted| lifted.take_out()).unwrap_or_default();
        assert_eq!(lifted.len() as u64, routed.lifted);
        self.lift(dice, &lifted);
        self.sum.retained += routed.retained;
        self.sum.guarded += routed.guarded;
        self.sum.promoted += routed.promoted;
        self.sum.not_hot_bytes += routed.not_hot_bytes;
    }
}

#[test]
fn boundary_compactions_that_keep_and_promote_what_is_hot_change_nothing_that_anybody_sees() {
    let (mut sum, mut evicted, mut guarded, mut merged, mut lifted) = (Routed::default(), 0, 0, 0, 0);
    for seed in 0..600 {
        let mut dice = Dice::new(seed);
        let files = TestFiles::new();
        let history = History::random(&mut dice, 90, KEYS);
        let tree = random_tree(&files, &mut dice, &history);
        let mut snapshots: Vec<Sequence> = (0..dice.below(4))
            .map(|_| dice.below(history.last_sequence))
            .chain([history.last_sequence])
            .collect();
        snapshots.sort_unstable();
        snapshots.dedup();
        let mut world = World::new(files, tree);
        for step in 0..12 {
            let doing = dice.index(6);
            match doing {
                0 | 2 => world.promote(&mut dice),
                3 => world.merge_runs(&mut dice, &snapshots),
                1 => {
                    // Above or below the boundary, never across it.
                    let whole = world.whole();
                    let level = [0, whole.levels.len() - 2][dice.index(2)];
                    if let Some(mut after) = compacted(&world.files, &mut dice, &whole, level, &snapshots) {
                        after.levels.drain(LAST_FAST + 1..LAST_FAST + 1 + world.hot.len());
                        world.tree = after;
                    }
                }
                _ => world.cross(&mut dice, &snapshots),
            }
            check_reads(&world.whole(), &history, &snapshots, &format!("seed {seed}, step {step} ({doing})"));
            if snapshots.len() > 1 && dice.one_in(3) {
                let gone = dice.index(snapshots.len() - 1);
                snapshots.remove(gone);
            }
        }
        sum.retained += world.sum.retained;
        sum.guarded += world.sum.guarded;
        sum.promoted += world.sum.promoted;
        sum.not_hot_bytes += world.sum.not_hot_bytes;
        evicted += world.evicted;
        guarded += world.guarded;
        merged += world.merged;
        lifted += world.lifted;
    }
    assert!(
        sum.retained > 300 && sum.guarded > 100 && sum.promoted > 50 && sum.not_hot_bytes > 500,
        "{sum:?}"
    );
    assert!(evicted > 50 && guarded > 20, "{evicted} evicted, {guarded} tables with deletions stayed");
    assert!(merged > 50 && lifted > 100, "{merged} merges of runs, {lifted} records handed up");
}
