//! Several point lookups at one moment, the reads of tables in parallel.
//!
//! Keys that memtables answer cost no hand-over. The rest are shared out to the executor's read lane; the caller
//! works too, so that it never waits for a lane that is busy. Tests: `db/tests`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use kelvin_base::sync::Mutex;
use kelvin_base::{Clock, Error, ErrorKind, Lane, Result, Sequence, Signal};

use crate::after_read::{LatestRead, after_read};
use crate::db::Keyspace;
use crate::read::{Lookup, Moment, in_memtables, lookup};
use crate::view::{KeyspaceState, View};

/// With fewer keys than this left for the tables, the caller reads them alone.
const PARALLEL_KEYS_MIN: usize = 2;

struct Shared {
    keyspace: Arc<KeyspaceState>,
    view: Arc<View>,
    at: Sequence,
    clock: Arc<dyn Clock>,
    keys: Vec<(usize, Bytes)>,
    next: AtomicUsize,
    done: AtomicUsize,
    answers: Mutex<Vec<(usize, Result<Lookup>)>>,
    signal: Signal,
}

impl Shared {
    fn work(&self) {
        while let Some((index, key)) = self.keys.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let moment = Moment { at: self.at, clock: &*self.clock };
            let answer = lookup(&self.view, &self.keyspace.promotion, key, moment);
            self.answers.lock().push((*index, answer));
            if self.done.fetch_add(1, Ordering::AcqRel) + 1 == self.keys.len() {
                self.signal.raise();
            }
        }
    }
}

/// See [`Keyspace::multi_get`].
pub fn multi_get(keyspace: &Keyspace, keys: &[&[u8]]) -> Vec<Result<Option<Bytes>>> {
    let engine = &keyspace.engine;
    let pin = engine.pin();
    let view = keyspace.state.view();
    let clock = Arc::clone(&engine.env.clock);
    let mut answers: Vec<Option<Result<Lookup>>> = Vec::with_capacity(keys.len());
    let mut rest = Vec::new();
    for (index, key) in keys.iter().enumerate() {
        let known = match keyspace.check_read(key) {
            Err(error) => Some(Err(error)),
            Ok(()) => match in_memtables(view.memtables(), key, Moment { at: pin.at(), clock: &*clock }) {
                Err(error) => Some(Err(error)),
                Ok(Some(found)) => Some(Ok(Lookup { found: Some(found), ..Lookup::default() })),
                Ok(None) => None,
            },
        };
        if known.is_none() {
            rest.push((index, Bytes::copy_from_slice(key)));
        }
        answers.push(known);
    }
    if !rest.is_empty() {
        for (index, answer) in in_parallel(keyspace, Arc::clone(&view), pin.at(), rest) {
            answers[index] = Some(answer);
        }
    }
    let missing = || Error::new(ErrorKind::Io, "a parallel read ended without an answer");
    answers
        .into_iter()
        .zip(keys)
        .map(|(answer, key)| {
            let answer = answer.unwrap_or_else(|| Err(missing()))?;
            after_read(engine, &keyspace.state, key, &answer);
            let read = LatestRead { keyspace: &keyspace.state, view: &view, at: pin.at(), key };
            read.promote(engine, answer.found.as_ref());
            Ok(answer.into_value())
        })
        .collect()
}

fn in_parallel(
    keyspace: &Keyspace,
    view: Arc<View>,
    at: Sequence,
    keys: Vec<(usize, Bytes)>,
) -> Vec<(usize, Result<Lookup>)> {
    let executor = &keyspace.engine.env.executor;
    let helpers =
        if keys.len() < PARALLEL_KEYS_MIN { 0 } else { executor.width(Lane::Read).min(keys.len() - 1) };
    let shared = Arc::new(Shared {
        keyspace: Arc::clone(&keyspace.state),
        view,
        at,
        clock: Arc::clone(&keyspace.engine.env.clock),
        next: AtomicUsize::new(0),
        done: AtomicUsize::new(0),
        answers: Mutex::new(Vec::with_capacity(keys.len())),
        signal: Signal::new(),
        keys,
    });
    for _ in 0..helpers {
        let shared = Arc::clone(&shared);
        executor.spawn(Lane::Read, Box::new(move || shared.work()));
    }
    shared.work();
    let all = shared.keys.len();
    shared.signal.wait_for(&**executor, || (shared.done.load(Ordering::Acquire) == all).then_some(()));
    std::mem::take(&mut *shared.answers.lock())
}
