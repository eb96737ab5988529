//! Which sequence numbers readers still need.
//!
//! Invariant: a sequence number is registered before the view it is read with is loaded, so a compaction that
//! did not see it has only dropped versions shadowed by ones the reader sees. Tests: `tests` below, and the
//! model test.

use std::collections::BTreeMap;
use std::sync::Arc;

use kelvin_base::Sequence;
use kelvin_base::sync::{Condvar, Mutex};

/// The live snapshots of a store.
#[derive(Debug, Default)]
pub struct Snapshots {
    live: Mutex<Live>,
    resumed: Condvar,
}

#[derive(Debug, Default)]
struct Live {
    counts: BTreeMap<Sequence, usize>,
    /// None is to be taken now.
    paused: bool,
}

/// While it lives no snapshot does, and who takes one waits.
#[derive(Debug)]
pub struct Pause<'a>(&'a Snapshots);

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.0.live.lock().paused = false;
        self.0.resumed.notify_all();
    }
}

impl Snapshots {
    /// Registers the sequence number that `now` answers. `now` runs under the list's lock, so that no
    /// compaction can read the list between the answer and its registration.
    pub fn take(self: &Arc<Self>, now: impl FnOnce() -> Sequence) -> Pin {
        let mut live = self.live.lock();
        while live.paused {
            self.resumed.wait(&mut live);
        }
        let at = now();
        *live.counts.entry(at).or_insert(0) += 1;
        Pin { list: Arc::clone(self), at }
    }

    /// Keeps new ones from being taken; `None` if there is one, or somebody else does.
    pub fn pause(&self) -> Option<Pause<'_>> {
        let mut live = self.live.lock();
        if live.paused || !live.counts.is_empty() {
            return None;
        }
        live.paused = true;
        Some(Pause(self))
    }

    /// The registered sequence numbers, ascending, each once.
    #[must_use]
    pub fn sequences(&self) -> Vec<Sequence> {
        self.live.lock().counts.keys().copied().collect()
    }

    /// The oldest registered sequence number.
    #[must_use]
    pub fn oldest(&self) -> Option<Sequence> {
        self.live.lock().counts.keys().next().copied()
    }

    /// How many are held.
    #[must_use]
    pub fn count(&self) -> usize {
        self.live.lock().counts.values().sum()
    }
}

/// Keeps every version that a reader at [`Pin::at`] sees from being dropped.
#[derive(Debug)]
pub struct Pin {
    list: Arc<Snapshots>,
    at: Sequence,
}

impl Pin {
    /// The sequence number pinned.
    #[must_use]
    pub const fn at(&self) -> Sequence {
        self.at
    }
}

impl Clone for Pin {
    fn clone(&self) -> Self {
        self.list.take(|| self.at)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut live = self.list.live.lock();
        if let Some(count) = live.counts.get_mut(&self.at) {
            *count -= 1;
            if *count == 0 {
                live.counts.remove(&self.at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn a_sequence_is_held_until_its_last_pin_goes() {
        let list = Arc::new(Snapshots::default());
        let first = list.take(|| 7);
        let second = first.clone();
        let other = list.take(|| 3);
        assert_eq!((list.sequences(), list.count()), (vec![3, 7], 3));
        drop(first);
        assert_eq!(list.sequences(), vec![3, 7]);
        drop((second, other));
        assert!(list.sequences().is_empty());
    }

    #[test]
    fn who_takes_one_waits_for_the_end_of_a_pause_and_none_is_paused_for_that_lives() {
        let list = Arc::new(Snapshots::default());
        let one = list.take(|| 1);
        assert!(list.pause().is_none());
        drop(one);
        let pause = list.pause().expect("none lives");
        assert!(list.pause().is_none());
        let seen = AtomicU64::new(1);
        std::thread::scope(|scope| {
            let late = scope.spawn(|| list.take(|| seen.load(Ordering::SeqCst)).at());
            seen.store(2, Ordering::SeqCst);
            drop(pause);
            assert_eq!(late.join().unwrap(), 2);
        });
    }
}
