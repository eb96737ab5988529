//! From where things happen to the listener, without a wait.
//!
//! Whoever posts takes a lock for the time of a push, and so does the listener's thread for that of a pop: never while the listener is
//! called. Posting is safe under any lock of the store.
//!
//! Invariants
//! - N1 The listener is called by one thread at a time, in the order of posting.
//! - N2 What is posted is told, or counted as lost.
//! - N3 No more than [`EVENTS_WAITING_MAX`] events wait.
//!
//! Tests stand below.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sync::{Local, Mutex};

use super::{Event, EventListener, What};
use crate::clock::Clock;
use crate::executor::{Executor, Lane};

/// Events that wait for a listener that is busy.
pub const EVENTS_WAITING_MAX: usize = 1024;

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<Event>,
    /// Posted behind them, and not kept.
    lost: u64,
    /// A job is queued and has not begun.
    is_scheduled: bool,
    /// The listener has panicked.
    is_over: bool,
}

struct Inner {
    listener: Arc<dyn EventListener>,
    clock: Arc<dyn Clock>,
    executor: Arc<dyn Executor>,
    waiting: Mutex<Waiting>,
    /// Held by whoever calls the listener.
    turn: Mutex<()>,
    told: AtomicU64,
    lost: AtomicU64,
}

/// Where events are posted. Clones are the same one. The default one has no listener, and posting there costs a branch.
#[derive(Clone, Default)]
pub struct Events(Option<Arc<Inner>>);

impl Events {
    /// Events for `listener`, which a job on `executor` calls.
    #[must_use]
    pub fn new(listener: Arc<dyn EventListener>, clock: Arc<dyn Clock>, executor: Arc<dyn Executor>) -> Self {
        let (waiting, turn) = (Mutex::default(), Mutex::default());
        let (told, lost) = (AtomicU64::new(0), AtomicU64::new(0));
        Self(Some(Arc::new(Inner { listener, clock, executor, waiting, turn, told, lost })))
    }

    /// Tells the listener, if there is one, of what `what` answers. Waits for nobody; may be called with locks held.
    pub fn post(&self, what: impl FnOnce() -> What) {
        let Some(inner) = &self.0 else { return };
        let event = Event { unix_ms: inner.clock.unix_millis(), what: what() };
        let mut waiting = inner.waiting.lock();
        if waiting.is_over || waiting.events.len() >= EVENTS_WAITING_MAX {
            waiting.lost += 1;
            inner.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        inner.push_lost(&mut waiting, event.unix_ms);
        waiting.events.push_back(event);
        if !std::mem::replace(&mut waiting.is_scheduled, true) {
            drop(waiting);
            let inner = Arc::clone(inner);
            let executor = Arc::clone(&inner.executor);
            executor.spawn(
                Lane::Events,
                Box::new(move || {
                    inner.waiting.lock().is_scheduled = false;
                    inner.tell();
                }),
            );
        }
    }

    /// Tells the listener all that waits, on this thread, and waits for a call of it that is under way; returns at once if
    /// this thread is called as a listener.
    pub fn settle(&self) {
        if let Some(inner) = self.0.as_ref().filter(|_| Local::IsTelling.get() == 0) {
            inner.tell();
        }
    }

    /// How many events the listener was told of, and how many were lost.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        let count = |of: fn(&Inner) -> &AtomicU64| {
            self.0.as_ref().map_or(0, |inner| of(inner).load(Ordering::Relaxed))
        };
        (count(|inner| &inner.told), count(|inner| &inner.lost))
    }
}

impl Inner {
    /// What was lost stands where it was lost.
    fn push_lost(&self, waiting: &mut Waiting, unix_ms: u64) {
        let events = std::mem::take(&mut waiting.lost);
        if events > 0 {
            waiting.events.push_back(Event { unix_ms, what: What::Lost { events } });
        }
    }

    /// Calls the listener until nothing waits.
    fn tell(&self) {
        let _turn = self.turn.lock();
        loop {
            let mut waiting = self.waiting.lock();
            if waiting.events.is_empty() && !waiting.is_over {
                let unix_ms = self.clock.unix_millis();
                self.push_lost(&mut waiting, unix_ms);
            }
            let Some(event) = waiting.events.pop_front() else { return };
            drop(waiting);
            Local::IsTelling.replace(1);
            let outcome = catch_unwind(AssertUnwindSafe(|| self.listener.on_event(&event)));
            Local::IsTelling.replace(0);
            self.told.fetch_add(1, Ordering::Relaxed);
            if let Err(panic) = outcome {
                // What a panic carries may panic in its turn when it goes.
                std::mem::forget(panic);
                let mut waiting = self.waiting.lock();
                waiting.is_over = true;
                let dropped = std::mem::take(&mut waiting.events);
                self.lost.fetch_add(dropped.len() as u64, Ordering::Relaxed);
                return;
            }
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (told, lost) = self.counts();
        let has_listener = self.0.is_some();
        f.debug_struct("Events")
            .field("has_listener", &has_listener)
            .field("told", &told)
            .field("lost", &lost)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::executor::{ManualExecutor, ThreadPool};
    use crate::signal::Signal;

    fn what(number: u64) -> What {
        What::Flushed { keyspace: "k".to_string(), tables: number, bytes: 0 }
    }

    /// Numbers that were told, with what was lost as negative numbers.
    type Told = Arc<Mutex<Vec<i64>>>;

    fn note(told: &Told, event: &Event) {
        told.lock().push(match &event.what {
            What::Flushed { tables, .. } => i64::try_from(*tables).unwrap(),
            What::Lost { events } => -i64::try_from(*events).unwrap(),
            other => panic!("{other:?}"),
        });
    }

    fn manual(listener: impl EventListener + 'static) -> (Events, Arc<ManualExecutor>) {
        let executor = Arc::new(ManualExecutor::new());
        let clock = Arc::new(ManualClock::new(7));
        (Events::new(Arc::new(listener), clock, Arc::clone(&executor) as _), executor)
    }

    #[test]
    fn events_are_told_in_order_by_one_job_and_not_by_who_posts() {
        let told = Told::default();
        let (events, executor) = manual({
            let told = Arc::clone(&told);
            move |event: &Event| {
                assert_eq!(event.unix_ms, 7);
                note(&told, event);
            }
        });
        (0..5).for_each(|number| events.post(|| what(number)));
        assert_eq!((told.lock().len(), executor.queued()), (0, 1));
        executor.run_all();
        assert_eq!(*told.lock(), [0, 1, 2, 3, 4]);
        events.post(|| what(5));
        assert_eq!(executor.queued(), 1);
        events.settle();
        executor.run_all();
        assert_eq!((told.lock().len(), events.counts()), (6, (6, 0)));
    }

    #[test]
    fn without_a_listener_nothing_is_even_made() {
        let events = Events::default();
        events.post(|| panic!("nobody wants it"));
        events.settle();
        assert_eq!(events.counts(), (0, 0));
    }

    #[test]
    fn what_finds_no_room_is_lost_and_counted_where_it_was_lost() {
        let told = Told::default();
        let (events, executor) = manual({
            let told = Arc::clone(&told);
            move |event: &Event| note(&told, event)
        });
        let most = i64::try_from(EVENTS_WAITING_MAX).unwrap();
        let post = |from: i64, to: i64| {
            (from..to).for_each(|number| events.post(|| what(number.unsigned_abs())));
        };
        post(0, most + 10);
        executor.run_all();
        post(most + 10, most + 12);
        executor.run_all();
        let mut expected: Vec<i64> = (0..most).collect();
        expected.extend([-10, most + 10, most + 11]);
        assert_eq!(*told.lock(), expected);
        assert_eq!(events.counts(), (most.unsigned_abs() + 3, 10));
    }

    #[test]
    fn a_listener_that_panics_is_told_nothing_any_more() {
        let told = Told::default();
        let (events, executor) = manual({
            let told = Arc::clone(&told);
            move |event: &Event| {
                note(&told, event);
                assert_ne!(event.what, what(2), "a defect of the listener's");
            }
        });
        (0..5).for_each(|number| events.post(|| what(number)));
        executor.run_all();
        events.post(|| what(5));
        events.settle();
        executor.run_all();
        assert_eq!(*told.lock(), [0, 1, 2]);
        assert_eq!((events.counts(), executor.queued()), ((3, 3), 0));
    }

    #[test]
    fn nobody_waits_for_a_listener_but_who_settles_and_it_may_post_and_settle_itself() {
        let pool: Arc<dyn Executor> = Arc::new(ThreadPool::new(1, 1, 1).unwrap());
        let (told, gate, entered) = (Told::default(), Arc::new(Signal::new()), Arc::new(Signal::new()));
        let (is_open, is_in) = (Arc::new(Mutex::new(false)), Arc::new(Mutex::new(false)));
        let own: Arc<Mutex<Events>> = Arc::default();
        let listener = {
            let (told, gate, entered) = (Arc::clone(&told), Arc::clone(&gate), Arc::clone(&entered));
            let (pool, own) = (Arc::clone(&pool), Arc::clone(&own));
            let (is_open, is_in) = (Arc::clone(&is_open), Arc::clone(&is_in));
            move |event: &Event| {
                note(&told, event);
                if event.what == what(0) {
                    *is_in.lock() = true;
                    entered.raise();
                    gate.wait_for(&*pool, || is_open.lock().then_some(()));
                    let events = own.lock().clone();
                    events.post(|| what(9));
                    events.settle();
                }
            }
        };
        let events = Events::new(Arc::new(listener), Arc::new(ManualClock::new(0)), Arc::clone(&pool));
        *own.lock() = events.clone();
        events.post(|| what(0));
        entered.wait_for(&*pool, || is_in.lock().then_some(()));
        // It is busy, and nobody is held up.
        (1..4).for_each(|number| events.post(|| what(number)));
        assert_eq!(*told.lock(), [0]);
        *is_open.lock() = true;
        gate.raise();
        events.settle();
        assert_eq!(*told.lock(), [0, 1, 2, 3, 9]);
        *own.lock() = Events::default();
    }

    #[test]
    fn an_event_says_all_in_one_line_and_by_name() {
        let error = "no \"answer\"".to_string();
        let event = Event { unix_ms: 5, what: What::TierAway { tier: crate::Tier::Slow, error } };
        assert_eq!(event.to_string(), r#"tier_away tier=slow error="no \"answer\"""#);
        let names: Vec<&str> = event.fields().iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["unix_ms", "event", "tier", "error"]);
        let boundary = Some(super::super::Kept { retained_bytes: 3, ..Default::default() });
        let compaction = super::super::Compaction { boundary, ..Default::default() };
        let told = Event { unix_ms: 0, what: What::Compacted(Box::new(compaction)) }.to_string();
        assert!(told.contains(" boundary.retained_bytes=3 ") && told.contains(" keyspace=\"\" "), "{told}");
    }
}
