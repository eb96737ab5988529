//! Where lists of operations take their choices from: a seed, or the bytes of a fuzzer.
//!
//! Tests stand below.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Choices, one after the other.
#[derive(Debug)]
pub struct Choices(Source);

#[derive(Debug)]
enum Source {
    Seed(Xoshiro256PlusPlus),
    /// Bytes not yet used; zeros once they are. A fuzzer that changes one byte changes one choice.
    Bytes(std::vec::IntoIter<u8>),
}

impl Choices {
    /// Those of `seed`, without an end.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        Self(Source::Seed(Xoshiro256PlusPlus::seed_from_u64(seed)))
    }

    /// Those that `bytes` make: each takes as few of them as can make it.
    #[must_use]
    pub fn of_bytes(bytes: Vec<u8>) -> Self {
        Self(Source::Bytes(bytes.into_iter()))
    }

    /// True once there are no bytes left to choose with; a seed is never exhausted.
    #[must_use]
    pub fn are_exhausted(&self) -> bool {
        matches!(&self.0, Source::Bytes(bytes) if bytes.as_slice().is_empty())
    }

    /// A number below `bound`; 0 where that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        match &mut self.0 {
            Source::Seed(rng) => rng.random_range(0..bound.max(1)),
            Source::Bytes(bytes) => {
                let (mut number, mut reach) = (0_u64, 1_u64);
                while reach < bound {
                    number = number << 8 | u64::from(bytes.next().unwrap_or(0));
                    reach = reach.saturating_mul(256);
                }
                number % bound.max(1)
            }
        }
    }

    /// As [`Self::below`].
    pub fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).unwrap_or(0)
    }

    /// One of `these`, of which there is one at least.
    pub fn one_of<T: Copy, const COUNT: usize>(&mut self, these: [T; COUNT]) -> T {
        these[self.index(COUNT)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_makes_a_choice_of_a_few_and_two_one_of_many_until_there_are_none() {
        let mut choices = Choices::of_bytes(vec![7, 1, 2, 9]);
        assert_eq!(
            (choices.below(5), choices.below(1), choices.below(1000), choices.index(256)),
            (2, 0, 258, 9)
        );
        assert!(choices.are_exhausted());
        assert_eq!((choices.below(5), choices.below(0), choices.one_of(["a", "b"])), (0, 0, "a"));
    }

    #[test]
    fn a_seed_makes_the_same_choices_again_and_another_one_others() {
        let list = |seed| {
            let mut choices = Choices::of_seed(seed);
            (0..50).map(|_| choices.below(1 << 40)).collect::<Vec<_>>()
        };
        assert_eq!(list(1), list(1));
        assert_ne!(list(1), list(2));
        assert!(!Choices::of_seed(1).are_exhausted());
    }
}
