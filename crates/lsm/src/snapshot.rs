//! Which sequence numbers readers still need.
//!
//! Invariant: a sequence number is registered before the view it is read with is loaded, so a compaction that
//! did not see it has only dropped versions shadowed by ones the reader sees. Tests: `tests` below, and the
//! model test.

use std::collections::BTreeMap;
use std::sync::Arc;

use kelvin_base::Sequence;
use kelvin_base::sync::Mutex;

/// The live snapshots of a store.
#[derive(Debug, Default)]
pub struct Snapshots {
    live: Mutex<BTreeMap<Sequence, usize>>,
}

impl Snapshots {
    /// Registers the sequence number that `now` answers. `now` runs under the list's lock, so that no
    /// compaction can read the list between the answer and its registration.
    pub fn take(self: &Arc<Self>, now: impl FnOnce() -> Sequence) -> Pin {
        let mut live = self.live.lock();
        let at = now();
        *live.entry(at).or_insert(0) += 1;
        Pin { list: Arc::clone(self), at }
    }

    /// The registered sequence numbers, ascending, each once.
    #[must_use]
    pub fn sequences(&self) -> Vec<Sequence> {
        self.live.lock().keys().copied().collect()
    }

    /// The oldest registered sequence number.
    #[must_use]
    pub fn oldest(&self) -> Option<Sequence> {
        self.live.lock().keys().next().copied()
    }

    /// How many are held.
    #[must_use]
    pub fn count(&self) -> usize {
        self.live.lock().values().sum()
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
        if let Some(count) = live.get_mut(&self.at) {
            *count -= 1;
            if *count == 0 {
                live.remove(&self.at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
}
