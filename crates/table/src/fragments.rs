//! Range tombstones cut into fragments that do not overlap, so that a lookup is one binary search.
//!
//! A fragment lies between two keys at which the set of tombstones in force changes. Which those are is kept in a segment
//! tree over the fragments: a tombstone over many of them is noted at O(log n) nodes, and a fragment's tombstones are
//! those noted on the way from its leaf to the root. So n tombstones that overlap in whatever way cost O(n log n),
//! where a list for each fragment would cost n².
//!
//! Invariants: fragments are sorted by start and disjoint; each has at least one tombstone, and two that touch have
//! different ones. Tests: `tests` below.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use bytes::Bytes;
use kelvin_base::{RangeTombstone, Sequence};

/// A range that the same tombstones cover throughout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// First user key.
    pub start: Bytes,
    /// First user key behind it.
    pub end: Bytes,
}

/// A tombstone: the fragments that it covers, first and behind the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    from: usize,
    to: usize,
    sequence: Sequence,
}

/// Range tombstones, fragmented.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fragments {
    fragments: Vec<Fragment>,
    /// By the first fragment, then newest first.
    spans: Vec<Span>,
    /// For each node of the tree (the root is 1, fragment `i` is node `fragments.len() + i`) where its part of
    /// `noted` begins, and the end of the last.
    nodes: Vec<usize>,
    /// The sequence numbers noted at each node, newest first.
    noted: Vec<Sequence>,
}

/// Where a tombstone begins (true) or ends.
type Change = (Bytes, Sequence, bool);

impl Fragments {
    /// Fragments of `tombstones`; empty ranges are left out.
    #[must_use]
    pub fn build(tombstones: Vec<RangeTombstone>) -> Self {
        let mut changes: Vec<Change> = Vec::with_capacity(2 * tombstones.len());
        for stone in tombstones.into_iter().filter(|stone| stone.start < stone.end) {
            changes.push((stone.start, stone.sequence, true));
            changes.push((stone.end, stone.sequence, false));
        }
        changes.sort_unstable();
        let (fragments, mut spans) = sweep(&changes);
        spans.sort_unstable_by_key(|span| (span.from, Reverse(span.sequence)));
        let mut built = Self { fragments, spans, nodes: Vec::new(), noted: Vec::new() };
        built.note_spans();
        built
    }

    /// Notes every span at its nodes.
    fn note_spans(&mut self) {
        let count = self.fragments.len();
        self.nodes = vec![0; 2 * count + 1];
        for span in &self.spans {
            nodes_of(span, count, |node| self.nodes[node + 1] += 1);
        }
        for node in 1..self.nodes.len() {
            self.nodes[node] += self.nodes[node - 1];
        }
        self.noted = vec![0; self.nodes.last().copied().unwrap_or(0)];
        let mut newest_first: Vec<&Span> = self.spans.iter().collect();
        newest_first.sort_unstable_by_key(|span| Reverse(span.sequence));
        let mut next = self.nodes.clone();
        for span in newest_first {
            nodes_of(span, count, |node| {
                self.noted[next[node]] = span.sequence;
                next[node] += 1;
            });
        }
    }

    /// The fragments, by start.
    #[must_use]
    pub fn fragments(&self) -> &[Fragment] {
        &self.fragments
    }

    /// Tombstones, those of one sequence number that touch counted as one.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.spans.len()
    }

    /// True if there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Index of the first fragment that ends behind `user_key`.
    #[must_use]
    pub fn first_ending_behind(&self, user_key: &[u8]) -> usize {
        self.fragments.partition_point(|fragment| fragment.end.as_ref() <= user_key)
    }

    /// The newest tombstone at or before `at` that covers the fragment at `index`; 0 if all are newer.
    ///
    /// # Panics
    /// If there is no such fragment.
    #[must_use]
    pub fn newest(&self, index: usize, at: Sequence) -> Sequence {
        let mut newest = 0;
        let mut node = self.fragments.len() + index;
        while node > 0 {
            let noted = &self.noted[self.nodes[node]..self.nodes[node + 1]];
            if noted.first().is_some_and(|&first| first > newest) {
                let seen = noted.partition_point(|&sequence| sequence > at);
                newest = noted.get(seen).map_or(newest, |&sequence| sequence.max(newest));
            }
            node /= 2;
        }
        newest
    }

    /// The newest tombstone at or before `at` that covers `user_key`; 0 if none does.
    #[must_use]
    pub fn max_covering(&self, user_key: &[u8], at: Sequence) -> Sequence {
        let index = self.first_ending_behind(user_key);
        match self.fragments.get(index) {
            Some(fragment) if fragment.start.as_ref() <= user_key => self.newest(index, at),
            _ => 0,
        }
    }

    /// Every tombstone again, by start; those of one sequence number that touched or overlapped as one.
    pub fn tombstones(&self) -> impl Iterator<Item = RangeTombstone> + '_ {
        self.spans.iter().map(|span| RangeTombstone {
            start: self.fragments[span.from].start.clone(),
            end: self.fragments[span.to - 1].end.clone(),
            sequence: span.sequence,
        })
    }

    /// The part inside `[lower, upper)`.
    #[must_use]
    pub fn clip(&self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Self {
        let clipped = self.tombstones().map(|mut stone| {
            if let Some(lower) = lower.filter(|lower| *lower > stone.start.as_ref()) {
                stone.start = Bytes::copy_from_slice(lower);
            }
            if let Some(upper) = upper.filter(|upper| *upper < stone.end.as_ref()) {
                stone.end = Bytes::copy_from_slice(upper);
            }
            stone
        });
        Self::build(clipped.filter(|stone| stone.start < stone.end).collect())
    }

    /// The fragments of several sets together.
    #[must_use]
    pub fn merge<'a>(sets: impl IntoIterator<Item = &'a Self>) -> Self {
        Self::build(sets.into_iter().flat_map(Self::tombstones).collect())
    }

    /// Memory taken, bytes, roughly.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let keys: usize = self.fragments.iter().map(|one| one.start.len() + one.end.len()).sum();
        keys + size_of_val(self.fragments.as_slice())
            + size_of_val(self.spans.as_slice())
            + size_of_val(self.nodes.as_slice())
            + size_of_val(self.noted.as_slice())
    }
}

/// Goes through the sorted `changes`: fragments, and what each tombstone covers of them.
fn sweep(changes: &[Change]) -> (Vec<Fragment>, Vec<Span>) {
    let (mut fragments, mut spans) = (Vec::new(), Vec::new());
    // Tombstones in force: how many of that sequence number, and the first fragment under them.
    let mut open: BTreeMap<Sequence, (usize, usize)> = BTreeMap::new();
    let mut begun: Option<&Bytes> = None;
    for here in changes.chunk_by(|a, b| a.0 == b.0) {
        let key = &here[0].0;
        let in_force = |sequence: Sequence| open.get(&sequence).map_or(0, |&(count, _)| count);
        let changed: Vec<(Sequence, usize)> = here
            .chunk_by(|a, b| a.1 == b.1)
            .map(|same| {
                let beginning = same.iter().filter(|change| change.2).count();
                (same[0].1, in_force(same[0].1) + 2 * beginning - same.len())
            })
            .collect();
        if changed.iter().any(|&(sequence, count)| (count > 0) != (in_force(sequence) > 0))
            && let Some(start) = begun.replace(key)
        {
            fragments.push(Fragment { start: start.clone(), end: key.clone() });
        }
        for (sequence, count) in changed {
            if count > 0 {
                open.entry(sequence).or_insert((0, fragments.len())).0 = count;
            } else if let Some((_, from)) = open.remove(&sequence) {
                spans.push(Span { from, to: fragments.len(), sequence });
            }
        }
        if open.is_empty() {
            begun = None;
        }
    }
    (fragments, spans)
}

/// Calls `with` for the nodes at which `span` is noted in a tree over `count` fragments.
fn nodes_of(span: &Span, count: usize, mut with: impl FnMut(usize)) {
    let (mut from, mut to) = (span.from + count, span.to + count);
    while from < to {
        if from % 2 == 1 {
            with(from);
            from += 1;
        }
        if to % 2 == 1 {
            to -= 1;
            with(to);
        }
        from /= 2;
        to /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stone(start: u8, end: u8, sequence: Sequence) -> RangeTombstone {
        RangeTombstone { start: vec![start].into(), end: vec![end].into(), sequence }
    }

    fn byte(value: u64) -> u8 {
        u8::try_from(value).unwrap()
    }

    /// Small pseudo-random tombstones without a generator: every triple of a linear congruence.
    fn samples(salt: u64) -> Vec<RangeTombstone> {
        let mut state = salt;
        let mut next = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        (0..next(12))
            .map(|_| {
                let (start, end) = (byte(next(20)), byte(next(20)));
                stone(start, end, next(15) + 1)
            })
            .collect()
    }

    #[test]
    fn fragments_cover_exactly_what_the_tombstones_cover() {
        for salt in 0..500 {
            let stones = samples(salt);
            let built = Fragments::build(stones.clone());
            assert!(built.fragments().windows(2).all(|pair| pair[0].end <= pair[1].start));
            assert!((0..built.fragments().len()).all(|index| built.newest(index, Sequence::MAX) > 0));
            let (lower, upper) = ([byte(salt % 10)], [byte(salt % 10 + 7)]);
            let clipped = built.clip(Some(&lower), Some(&upper));
            for key in 0..21u8 {
                for at in 0..17 {
                    let covers = |s: &&RangeTombstone| {
                        s.start.as_ref() <= [key].as_slice() && [key].as_slice() < s.end.as_ref()
                    };
                    let want = stones
                        .iter()
                        .filter(covers)
                        .map(|s| s.sequence)
                        .filter(|&s| s <= at)
                        .max()
                        .unwrap_or(0);
                    assert_eq!(built.max_covering(&[key], at), want, "{stones:?} key {key} at {at}");
                    let inside = lower[0] <= key && key < upper[0];
                    assert_eq!(clipped.max_covering(&[key], at), if inside { want } else { 0 });
                }
            }
            assert_eq!(Fragments::merge([&built, &Fragments::default()]), built);
        }
    }

    /// The range from `number` to as far from the other end of two bytes' keys.
    fn nested(number: u16, sequence: Sequence) -> RangeTombstone {
        let key = |number: u16| Bytes::copy_from_slice(&number.to_be_bytes());
        RangeTombstone { start: key(number), end: key(u16::MAX - number), sequence }
    }

    #[test]
    fn tombstones_that_all_overlap_cost_little_more_than_those_that_do_not() {
        const COUNT: u16 = 20_000;
        // The outermost is the oldest, the newest, or neither.
        let orders: [fn(u64) -> Sequence; 3] =
            [|number| number + 1, |number| 20_000 - number, |number| number * 7919 % 20_000 + 1];
        for sequence in orders {
            let stones: Vec<_> = (0..COUNT).map(|number| nested(number, sequence(number.into()))).collect();
            let built = Fragments::build(stones);
            assert_eq!(built.fragments().len(), 2 * usize::from(COUNT) - 1);
            assert_eq!(built.len(), usize::from(COUNT));
            // Two nodes a level, of 16 levels: what is done for each of them is a push, or a step of a search.
            assert!(built.noted.len() <= usize::from(COUNT) * 2 * 16, "{}", built.noted.len());
            for number in [0, 1, 777, COUNT - 1] {
                let (key, at) = (number.to_be_bytes(), Sequence::from(COUNT / 3));
                let covering = (0..=number).map(|one| sequence(one.into()));
                let want = covering.filter(|&sequence| sequence <= at).max().unwrap_or(0);
                assert_eq!(built.max_covering(&key, at), want, "{number}");
            }
        }
    }

    #[test]
    fn tombstones_of_one_write_that_touch_are_one_again() {
        let stones = vec![stone(1, 3, 5), stone(3, 6, 5), stone(2, 4, 5), stone(3, 4, 9)];
        let built = Fragments::build(stones);
        let all: Vec<_> = built.tombstones().collect();
        assert_eq!(all, [stone(1, 6, 5), stone(3, 4, 9)]);
        let clipped: Vec<_> = built.clip(Some(&[2]), Some(&[4])).tombstones().collect();
        assert_eq!(clipped, [stone(2, 4, 5), stone(3, 4, 9)]);
        assert!(built.clip(Some(&[6]), None).is_empty());
    }
}
