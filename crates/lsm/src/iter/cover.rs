//! A cursor over range tombstones that remembers its place, so that a scan does not search for each key.
//!
//! Invariant: `next` is the index of the first fragment that ends behind the key asked last; a key near it
//! costs two comparisons. Tests: `tests` below.

use std::sync::Arc;

use kelvin_base::Sequence;
use kelvin_table::Fragments;

/// Steps taken before a search is cheaper.
const STEPS_MAX: usize = 4;

/// A set of range tombstones and a place in it.
#[derive(Debug)]
pub struct Cover {
    fragments: Arc<Fragments>,
    next: usize,
}

impl Cover {
    /// A cursor over `fragments`.
    #[must_use]
    pub const fn new(fragments: Arc<Fragments>) -> Self {
        Self { fragments, next: 0 }
    }

    /// Moves `next` to the first fragment that ends behind `user_key`.
    fn find(&mut self, user_key: &[u8]) {
        let all = self.fragments.fragments();
        for _ in 0..STEPS_MAX {
            if self.next < all.len() && all[self.next].end.as_ref() <= user_key {
                self.next += 1;
            } else if self.next > 0 && all[self.next - 1].end.as_ref() > user_key {
                self.next -= 1;
            } else {
                return;
            }
        }
        self.next = self.fragments.first_ending_behind(user_key);
    }

    /// The newest tombstone at or before `at` that covers `user_key`; 0 if none does.
    pub fn newest(&mut self, user_key: &[u8], at: Sequence) -> Sequence {
        self.find(user_key);
        match self.fragments.fragments().get(self.next) {
            Some(fragment) if fragment.start.as_ref() <= user_key => self.fragments.newest(self.next, at),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelvin_base::RangeTombstone;

    #[test]
    fn a_cursor_answers_as_a_search_does_wherever_it_stood_before() {
        let stones = (0..30u8).filter(|i| i % 3 != 0).map(|i| RangeTombstone {
            start: vec![2 * i].into(),
            end: vec![2 * i + 2].into(),
            sequence: u64::from(i % 7) + 1,
        });
        let fragments = Arc::new(Fragments::build(stones.collect()));
        let mut cover = Cover::new(Arc::clone(&fragments));
        let mut key = 0u8;
        for step in 0..2_000u32 {
            key =
                if step % 5 == 0 { key.wrapping_mul(31).wrapping_add(17) } else { key.wrapping_add(1) } % 70;
            if step % 11 == 0 {
                key = key.saturating_sub(9);
            }
            let at = u64::from(step % 9);
            assert_eq!(cover.newest(&[key], at), fragments.max_covering(&[key], at), "key {key} at {at}");
        }
    }
}
