//! Group commit: writers queue, the first leads, takes those who queued meanwhile along, and hands on.
//!
//! The leader alone touches the WAL. It hands leadership over as soon as its group is in the WAL and inserts into
//! the memtables while the next group is being logged. Tests: `write/tests.rs`.

use std::collections::VecDeque;
use std::sync::Arc;

use kelvin_base::sync::{Condvar, Mutex};
use kelvin_base::{Result, Sequence};

use crate::batch::WriteBatch;
use crate::options::Durability;

/// Most bytes of batches that one leader takes along.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// What a writer must do next.
#[derive(Debug)]
enum State {
    Queued,
    Lead,
    Done(Result<Sequence>),
}

/// A writer's batch and what became of it.
#[derive(Debug)]
pub struct Pending {
    /// What is written.
    pub batch: WriteBatch,
    /// The level asked for.
    pub durability: Durability,
    /// Not to be grouped with others: the leader must look at the memtables before it may write.
    pub alone: bool,
    state: Mutex<State>,
    wake: Condvar,
}

impl Pending {
    /// A writer that waits for its turn.
    #[expect(clippy::missing_const_for_fn, reason = "locks of a model test are made at run time")]
    pub fn new(batch: WriteBatch, durability: Durability) -> Self {
        Self { batch, durability, alone: false, state: Mutex::new(State::Queued), wake: Condvar::new() }
    }

    /// The same, to be committed in a group of its own.
    #[expect(clippy::missing_const_for_fn, reason = "locks of a model test are made at run time")]
    pub fn alone(batch: WriteBatch, durability: Durability) -> Self {
        Self { batch, durability, alone: true, state: Mutex::new(State::Queued), wake: Condvar::new() }
    }

    /// Ends the wait of the writer: visible at its sequence number, or failed.
    pub fn finish(&self, outcome: Result<Sequence>) {
        *self.state.lock() = State::Done(outcome);
        self.wake.notify_one();
    }

    /// What became of it, if that is known.
    pub fn outcome(&self) -> Option<Result<Sequence>> {
        match &*self.state.lock() {
            State::Done(outcome) => Some(outcome.clone()),
            State::Queued | State::Lead => None,
        }
    }

    fn lead(&self) {
        *self.state.lock() = State::Lead;
        self.wake.notify_one();
    }

    /// Waits to be done, or to lead (`None`).
    fn wait_turn(&self) -> Option<Result<Sequence>> {
        let mut state = self.state.lock();
        loop {
            match &*state {
                State::Done(outcome) => return Some(outcome.clone()),
                State::Lead => return None,
                State::Queued => self.wake.wait(&mut state),
            }
        }
    }

    /// Waits to be done.
    pub fn wait_done(&self) -> Result<Sequence> {
        let mut state = self.state.lock();
        loop {
            if let State::Done(outcome) = &*state {
                return outcome.clone();
            }
            self.wake.wait(&mut state);
        }
    }
}

/// The writers' queue.
#[derive(Debug, Default)]
pub struct Queue {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    writers: VecDeque<Arc<Pending>>,
    led: bool,
}

/// What joining the queue came to.
pub enum Joined {
    /// Another leader has committed the batch, or failed to.
    Done(Result<Sequence>),
    /// The caller leads this group, itself first; it must call [`Queue::hand_over`].
    Leads(Vec<Arc<Pending>>),
}

impl Queue {
    /// Joins the queue and waits until done or leader.
    pub fn join(&self, me: &Arc<Pending>) -> Joined {
        let leads = {
            let mut waiting = self.waiting.lock();
            waiting.writers.push_back(Arc::clone(me));
            !std::mem::replace(&mut waiting.led, true)
        };
        if !leads && let Some(outcome) = me.wait_turn() {
            return Joined::Done(outcome);
        }
        Joined::Leads(self.take_group())
    }

    fn take_group(&self) -> Vec<Arc<Pending>> {
        let mut waiting = self.waiting.lock();
        let mut group: Vec<Arc<Pending>> = Vec::with_capacity(waiting.writers.len());
        let mut bytes = 0;
        while let Some(next) = waiting.writers.front() {
            bytes += next.batch.bytes().len();
            if !group.is_empty() && (next.alone || bytes > GROUP_BYTES_MAX) {
                break;
            }
            let ends = next.alone;
            group.extend(waiting.writers.pop_front());
            if ends {
                break;
            }
        }
        group
    }

    /// Ends the caller's leadership; the first of those who wait leads next.
    pub fn hand_over(&self) {
        let mut waiting = self.waiting.lock();
        match waiting.writers.front() {
            Some(next) => next.lead(),
            None => waiting.led = false,
        }
    }
}
