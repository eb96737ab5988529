//! Accesses that would tell nothing new are not noted: those of a key that was noted twice within a window.
//!
//! After two accesses a key is stable and its counter (paper §3.7) as high as it gets; a third one soon after changes neither. What it would add to the score
//! tells the hottest keys from those a little less hot, which matters only where more is stable than the hot set may hold: then keys at the edge leave, and
//! these are seldom accessed within a window no larger than the hot set may be. Under skew such accesses are many, and each would be sorted, written and merged.
//!
//! What is left out counts as accessed all the same: the clocks of the whole tracker follow from the bytes that are counted here.
//!
//! A table of marks, some for each hash, of which the oldest gives way. A mark is some bits of the key's hash, whether it was noted twice, and when. A key that has
//! another's mark by chance (one in a thousand of those that meet) is noted a window later; so may be one that comes back after eight windows, when the clock of the marks has gone
//! round, if nobody took its mark. Nobody waits: of two threads that change the marks of one place at once, one does so in vain. Tests stand below.

use std::sync::atomic::{AtomicU64, Ordering};

use kelvin_base::hash64;

/// Steps of the clock in a window.
const STEPS: u16 = 4;
/// The clock's bits of a mark.
const STEP: u16 = 0x1f;
/// Set if the key was noted twice.
const TWICE: u16 = 0x20;
/// The hash's bits.
const HASH: u16 = !(STEP | TWICE);

/// The marks of one place. One that is 0 is none: a key that would have it is noted once more.
#[derive(Clone, Copy)]
struct Marks([u16; 4]);

/// The lowest bits of a number.
const fn lowest(number: u64) -> u16 {
    let [low, high, ..] = number.to_le_bytes();
    u16::from_le_bytes([low, high])
}

impl Marks {
    fn of_word(word: u64) -> Self {
        Self([0, 16, 32, 48].map(|shift| lowest(word >> shift)))
    }

    fn word(self) -> u64 {
        self.0.iter().rev().fold(0, |word, mark| word << 16 | u64::from(*mark))
    }

    /// Puts down that the key of `hash` is accessed at `step`; false if it was noted twice within a window.
    fn note(&mut self, hash: u16, step: u16) -> bool {
        let (hash, step) = (hash & HASH, step & STEP);
        let age = |mark: u16| step.wrapping_sub(mark) & STEP;
        let own = self.0.iter_mut().find(|mark| **mark != 0 && **mark & HASH == hash);
        if let Some(mark) = own {
            let is_news = *mark & TWICE == 0 || age(*mark) >= STEPS;
            if is_news {
                *mark = hash | TWICE | step;
            }
            return is_news;
        }
        if let Some(oldest) = self.0.iter_mut().max_by_key(|mark| (**mark == 0, age(**mark))) {
            *oldest = hash | step;
        }
        true
    }
}

/// Which keys were noted of late. See the module's documentation.
#[derive(Debug)]
pub struct Repeats {
    /// None where every access is to be noted.
    places: Box<[AtomicU64]>,
    step_bytes: u64,
    accessed_bytes: AtomicU64,
    left_out: AtomicU64,
    /// Until so much was accessed every access is to be noted.
    noted_until_bytes: AtomicU64,
}

impl Repeats {
    /// Marks in `bytes` of memory, for a window of `window_bytes` accessed. Without memory every access is news.
    pub fn new(bytes: usize, window_bytes: u64) -> Self {
        Self {
            places: (0..bytes / size_of::<u64>()).map(|_| AtomicU64::default()).collect(),
            step_bytes: (window_bytes / u64::from(STEPS)).max(1),
            accessed_bytes: AtomicU64::default(),
            left_out: AtomicU64::default(),
            noted_until_bytes: AtomicU64::default(),
        }
    }

    /// Counts an access of `bytes`, key and value; true if it is to be noted.
    pub fn is_news(&self, key: &[u8], bytes: u64) -> bool {
        let accessed_bytes = self.accessed_bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.places.is_empty() || accessed_bytes < self.noted_until_bytes.load(Ordering::Relaxed) {
            return true;
        }
        let hash = hash64(key);
        // The highest bits choose the place, the lowest are in the mark.
        let at = (u128::from(hash) * self.places.len() as u128) >> u64::BITS;
        let Some(place) = usize::try_from(at).ok().and_then(|at| self.places.get(at)) else { return true };
        let mut marks = Marks::of_word(place.load(Ordering::Relaxed));
        let is_news = marks.note(lowest(hash), lowest(accessed_bytes / self.step_bytes));
        if is_news {
            place.store(marks.word(), Ordering::Relaxed);
        } else {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
        is_news
    }

    /// An eviction has dropped some of what was noted. While what is hot is settled, keys noted once begin anew: one access more would not make them
    /// stable. While it is not, all counters are lowered faster than a window passes: all begin anew, after `unsettled_bytes` accessed that are all noted.
    pub fn evicted(&self, unsettled_bytes: u64) {
        let keeps = |mark: u16| mark & TWICE != 0 && unsettled_bytes == 0;
        for place in &self.places {
            let marks = Marks::of_word(place.load(Ordering::Relaxed));
            place.store(
                Marks(marks.0.map(|mark| if keeps(mark) { mark } else { 0 })).word(),
                Ordering::Relaxed,
            );
        }
        self.noted_until_bytes
            .store(self.accessed_bytes().saturating_add(unsettled_bytes), Ordering::Relaxed);
    }

    /// Forgets all marks: what was noted is known no more.
    pub fn forget(&self) {
        self.places.iter().for_each(|place| place.store(0, Ordering::Relaxed));
    }

    /// Bytes accessed since it was made, noted or not.
    pub fn accessed_bytes(&self) -> u64 {
        self.accessed_bytes.load(Ordering::Relaxed)
    }

    /// Accesses that were no news.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    /// Memory it takes, bytes.
    pub const fn memory_bytes(&self) -> usize {
        self.places.len() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = 1000;

    fn key(number: u32) -> [u8; 4] {
        number.to_be_bytes()
    }

    /// Lets `bytes` go by.
    fn pass(repeats: &Repeats, bytes: u64) {
        repeats.accessed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    #[test]
    fn a_key_is_noted_twice_and_then_once_in_a_window() {
        let repeats = Repeats::new(1 << 10, WINDOW);
        let mut is_news = |bytes: u64| repeats.is_news(&key(7), bytes);
        assert_eq!([0; 5].map(&mut is_news), [true, true, false, false, false]);
        for gone in [WINDOW, 2 * WINDOW, 7 * WINDOW] {
            pass(&repeats, gone);
            assert_eq!([0; 3].map(|bytes| repeats.is_news(&key(7), bytes)), [true, false, false], "{gone}");
        }
        pass(&repeats, WINDOW / 2);
        assert!(!repeats.is_news(&key(7), 0), "not yet");
        assert_eq!((repeats.left_out(), repeats.accessed_bytes()), (10, 10 * WINDOW + WINDOW / 2));
    }

    #[test]
    fn what_is_left_out_counts_in_the_window_too() {
        let repeats = Repeats::new(1 << 10, WINDOW);
        let noted = (0..100).filter(|_| repeats.is_news(&key(7), WINDOW / 10)).count();
        assert!((10..=14).contains(&noted), "{noted} in ten windows, by steps of a quarter");
    }

    #[test]
    fn marks_give_way_the_oldest_first_and_without_any_all_is_news() {
        let repeats = Repeats::new(8, WINDOW);
        for number in 0..4 {
            assert!(repeats.is_news(&key(number), 0) && repeats.is_news(&key(number), WINDOW / 4));
        }
        assert!(repeats.is_news(&key(4), 0), "takes the mark of the first");
        assert!(!repeats.is_news(&key(3), 0) && repeats.is_news(&key(0), 0));
        let none = Repeats::new(7, WINDOW);
        assert!((0..9).all(|_| none.is_news(&key(1), 5)));
        assert_eq!((none.accessed_bytes(), none.left_out(), none.memory_bytes()), (45, 0, 0));
    }

    #[test]
    fn few_keys_are_taken_for_others() {
        let repeats = Repeats::new(64 << 10, 1 << 40);
        let noted = (0..16_000).filter(|number| repeats.is_news(&key(*number), 1)).count();
        let again = (0..16_000).filter(|number| repeats.is_news(&key(*number), 1)).count();
        let thrice = (0..16_000).filter(|number| !repeats.is_news(&key(*number), 1)).count();
        assert!(noted > 15_950 && again > 15_850, "{noted} and {again}");
        assert!(thrice > 12_000, "{thrice} of 16,000 with 32,000 marks are known");
    }

    #[test]
    fn after_an_eviction_what_was_noted_once_begins_anew_and_while_what_is_hot_changes_all_is_news() {
        let repeats = Repeats::new(1 << 10, WINDOW);
        let thrice = |number| [0; 3].map(|bytes| repeats.is_news(&key(number), bytes));
        assert!(repeats.is_news(&key(1), 0) && repeats.is_news(&key(2), 0) && repeats.is_news(&key(2), 0));
        repeats.evicted(0);
        assert_eq!((thrice(1), thrice(2)), ([true, true, false], [false; 3]));
        repeats.forget();
        assert_eq!(thrice(2), [true, true, false]);
        pass(&repeats, 7 * WINDOW);
        repeats.evicted(WINDOW / 2);
        assert_eq!(thrice(2), [true; 3]);
        pass(&repeats, WINDOW / 2 - 1);
        assert_eq!(thrice(2), [true; 3]);
        pass(&repeats, 1);
        assert_eq!(
            (thrice(1), thrice(2)),
            ([true, true, false], [true, true, false]),
            "nothing was marked meanwhile"
        );
    }
}
