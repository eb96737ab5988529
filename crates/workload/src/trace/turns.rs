//! Keeps the order of the steps of one key while several threads take segments.
//!
//! Invariant: segments are taken in their order, and segment `n` begins after segment `n - PARTITIONS`, which has the
//! same keys, has ended. So steps of one key are done one after the other, as in the trace; steps of different keys are
//! at most a lap, and the segments that the threads hold, apart from their order there. Whoever waits, waits for a
//! segment that was taken before and whose taker waits for earlier ones only, so somebody always goes on.
//! Tests: `tests/replay.rs`.

use parking_lot::{Condvar, Mutex};

use super::steps::PARTITIONS;

#[derive(Debug)]
struct State {
    /// For each partition, one past the last of its segments that has ended.
    ended: [u64; PARTITIONS],
    is_closed: bool,
}

/// Who may go on.
#[derive(Debug)]
pub struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

/// A segment being worked on. Dropped before [`Turn::end`] it lets nobody else begin one.
#[derive(Debug)]
pub struct Turn<'a> {
    turns: &'a Turns,
    segment: u64,
    is_over: bool,
}

impl Turns {
    /// Before the first segment.
    #[must_use]
    pub fn new() -> Self {
        let state = State { ended: [0; PARTITIONS], is_closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Waits until `segment` may begin; `None` if somebody gave up.
    pub fn begin(&self, segment: u64) -> Option<Turn<'_>> {
        let before = (segment + 1).saturating_sub(PARTITIONS as u64);
        let mut state = self.state.lock();
        while !state.is_closed && state.ended[partition(segment)] < before {
            self.changed.wait(&mut state);
        }
        // Not `then_some`: a turn made and dropped here would wait for the lock that is held here.
        (!state.is_closed).then(|| Turn { turns: self, segment, is_over: false })
    }
}

fn partition(segment: u64) -> usize {
    usize::try_from(segment % PARTITIONS as u64).unwrap_or(0)
}

impl Turn<'_> {
    /// Says that the segment has ended.
    pub fn end(mut self) {
        self.is_over = true;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state.lock();
        if self.is_over {
            state.ended[partition(self.segment)] = self.segment + 1;
        } else {
            state.is_closed = true;
        }
        drop(state);
        self.turns.changed.notify_all();
    }
}
