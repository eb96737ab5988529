//! Makes groups of writes visible in commit order although they are inserted concurrently.
//!
//! Groups are enqueued in commit order by the write leader; each is finished by whoever inserted it. The
//! visible sequence number moves over the finished groups at the head of the queue only, so a reader never sees
//! a write without every earlier one (promise 2).

use std::collections::VecDeque;
use std::sync::Arc;

use kelvin_base::Sequence;
use kelvin_base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use kelvin_base::sync::{Condvar, Mutex};

use super::group::Pending;

struct Group {
    last: Sequence,
    inserted: bool,
    members: Vec<Arc<Pending>>,
}

/// The order in which groups become visible.
#[derive(Default)]
pub struct Publisher {
    visible: AtomicU64,
    waiting: AtomicUsize,
    queue: Mutex<VecDeque<Group>>,
    moved: Condvar,
}

impl Publisher {
    /// Everything up to `visible` is visible.
    pub fn new(visible: Sequence) -> Self {
        Self { visible: AtomicU64::new(visible), ..Self::default() }
    }

    /// The last visible sequence number.
    pub fn visible(&self) -> Sequence {
        self.visible.load(Ordering::Acquire)
    }

    /// Announces a group whose last sequence number is `last`; called in commit order.
    pub fn enqueue(&self, last: Sequence, members: Vec<Arc<Pending>>) {
        self.queue.lock().push_back(Group { last, inserted: false, members });
    }

    /// Says that the group that ends at `last` is in the memtables. Members of every group that thereby
    /// becomes visible are told so.
    pub fn inserted(&self, last: Sequence) {
        let mut visible = Vec::new();
        {
            let mut queue = self.queue.lock();
            if let Some(group) = queue.iter_mut().find(|group| group.last == last) {
                group.inserted = true;
            }
            while queue.front().is_some_and(|group| group.inserted) {
                if let Some(group) = queue.pop_front() {
                    self.visible.store(group.last, Ordering::Release);
                    visible.push(group);
                }
            }
            if self.waiting.load(Ordering::Relaxed) > 0 {
                self.moved.notify_all();
            }
        }
        for group in visible {
            for member in group.members {
                member.finish(Ok(group.last));
            }
        }
    }

    /// Waits until everything up to `sequence` is visible. Only insertions already under way are waited for.
    pub fn wait_visible(&self, sequence: Sequence) {
        if self.visible() >= sequence {
            return;
        }
        let mut queue = self.queue.lock();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        while self.visible() < sequence {
            self.moved.wait(&mut queue);
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::WriteBatch;
    use crate::options::Durability;

    #[test]
    fn a_group_is_visible_only_after_every_earlier_one() {
        let publisher = Publisher::new(10);
        let first = Arc::new(Pending::new(WriteBatch::new(), Durability::Os));
        publisher.enqueue(12, vec![Arc::clone(&first)]);
        publisher.enqueue(13, vec![]);
        publisher.inserted(13);
        assert_eq!(publisher.visible(), 10);
        publisher.inserted(12);
        assert_eq!(publisher.visible(), 13);
        publisher.wait_visible(13);
        assert_eq!(first.outcome().map(Result::ok), Some(Some(12)));
    }
}
