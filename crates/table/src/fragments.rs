//! Range tombstones cut into fragments that do not overlap, so that a lookup is one binary search.
//!
//! Invariants: fragments are sorted by start and disjoint; each has at least one sequence number, newest first,
//! each once. Tests: `tests` below.

use std::collections::BTreeMap;

use bytes::Bytes;
use kelvin_base::{RangeTombstone, Sequence};

/// A range and the sequence numbers of the tombstones over it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// First user key.
    pub start: Bytes,
    /// First user key behind it.
    pub end: Bytes,
    /// Newest first.
    pub sequences: Vec<Sequence>,
}

/// Range tombstones, fragmented.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fragments(Vec<Fragment>);

impl Fragments {
    /// Fragments of `tombstones`; empty ranges are left out.
    #[must_use]
    pub fn build(tombstones: Vec<RangeTombstone>) -> Self {
        // At each boundary: the tombstones that end and that begin there.
        let mut boundaries: BTreeMap<Bytes, (Vec<Sequence>, Vec<Sequence>)> = BTreeMap::new();
        for stone in tombstones {
            if stone.start < stone.end {
                boundaries.entry(stone.end).or_default().0.push(stone.sequence);
                boundaries.entry(stone.start).or_default().1.push(stone.sequence);
            }
        }
        let mut open: BTreeMap<Sequence, usize> = BTreeMap::new();
        let mut fragments: Vec<Fragment> = Vec::new();
        let mut begun: Option<(Bytes, Vec<Sequence>)> = None;
        for (at, (ending, beginning)) in boundaries {
            if let Some((start, sequences)) = begun.take() {
                push(&mut fragments, Fragment { start, end: at.clone(), sequences });
            }
            for sequence in beginning {
                *open.entry(sequence).or_insert(0) += 1;
            }
            for sequence in ending {
                if let Some(count) = open.get_mut(&sequence) {
                    *count -= 1;
                    if *count == 0 {
                        open.remove(&sequence);
                    }
                }
            }
            if !open.is_empty() {
                begun = Some((at, open.keys().rev().copied().collect()));
            }
        }
        Self(fragments)
    }

    /// The fragments, by start.
    #[must_use]
    pub fn fragments(&self) -> &[Fragment] {
        &self.0
    }

    /// True if there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Index of the first fragment that ends behind `user_key`.
    #[must_use]
    pub fn first_ending_behind(&self, user_key: &[u8]) -> usize {
        self.0.partition_point(|fragment| fragment.end.as_ref() <= user_key)
    }

    /// The newest tombstone at or before `at` that covers `user_key`; 0 if none does.
    #[must_use]
    pub fn max_covering(&self, user_key: &[u8], at: Sequence) -> Sequence {
        match self.0.get(self.first_ending_behind(user_key)) {
            Some(fragment) if fragment.start.as_ref() <= user_key => fragment.newest(at),
            _ => 0,
        }
    }

    /// Every tombstone again, one for each fragment and sequence number.
    pub fn tombstones(&self) -> impl Iterator<Item = RangeTombstone> + '_ {
        self.0.iter().flat_map(|fragment| {
            fragment.sequences.iter().map(|&sequence| RangeTombstone {
                start: fragment.start.clone(),
                end: fragment.end.clone(),
                sequence,
            })
        })
    }

    /// The part inside `[lower, upper)`.
    #[must_use]
    pub fn clip(&self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Self {
        let clipped = self.0.iter().filter_map(|fragment| {
            let start = lower.filter(|lower| *lower > fragment.start.as_ref());
            let end = upper.filter(|upper| *upper < fragment.end.as_ref());
            let start = start.map_or_else(|| fragment.start.clone(), Bytes::copy_from_slice);
            let end = end.map_or_else(|| fragment.end.clone(), Bytes::copy_from_slice);
            (start < end).then(|| Fragment { start, end, sequences: fragment.sequences.clone() })
        });
        Self(clipped.collect())
    }

    /// The fragments of several sets together.
    #[must_use]
    pub fn merge<'a>(sets: impl IntoIterator<Item = &'a Self>) -> Self {
        Self::build(sets.into_iter().flat_map(Self::tombstones).collect())
    }

    /// Memory taken, bytes, roughly.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let one = |f: &Fragment| size_of::<Fragment>() + f.start.len() + f.end.len() + f.sequences.len() * 8;
        self.0.iter().map(one).sum()
    }
}

impl Fragment {
    /// Its newest sequence number at or before `at`; 0 if all are newer.
    #[must_use]
    pub fn newest(&self, at: Sequence) -> Sequence {
        self.sequences.iter().copied().find(|&sequence| sequence <= at).unwrap_or(0)
    }
}

/// Adds a fragment, joined to the last one if they touch and say the same.
fn push(fragments: &mut Vec<Fragment>, next: Fragment) {
    match fragments.last_mut() {
        Some(last) if last.end == next.start && last.sequences == next.sequences => last.end = next.end,
        _ => fragments.push(next),
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
}
