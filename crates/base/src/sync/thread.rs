//! Starting threads and waiting for their end.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Result;

use super::{Condvar, Mutex, Work, current_number, turns};

/// What a simulated thread leaves when it ends.
#[derive(Debug)]
struct Ended<T> {
    outcome: Mutex<Option<Result<T>>>,
    changed: Condvar,
    /// The scope that it is of, if it is of one.
    of: Option<Arc<InScope>>,
}

impl<T> Drop for Ended<T> {
    fn drop(&mut self) {
        let is_panic = matches!(self.outcome.get_mut(), Some(Err(_)));
        if let Some(scope) = self.of.as_ref().filter(|_| is_panic) {
            scope.has_lost_a_panic.store(true, Ordering::Relaxed);
        }
    }
}

/// The simulated threads of a scope.
#[derive(Debug, Default)]
struct InScope {
    /// Those that have not ended.
    running: AtomicUsize,
    /// One panicked, and nobody has joined it.
    has_lost_a_panic: AtomicBool,
}

impl<T> Ended<T> {
    fn end(&self, outcome: Result<T>) {
        *self.outcome.lock() = Some(outcome);
        self.changed.notify_all();
    }

    fn wait(&self) -> Result<T> {
        let mut outcome = self.outcome.lock();
        loop {
            match outcome.take() {
                Some(outcome) => return outcome,
                None => self.changed.wait(&mut outcome),
            }
        }
    }
}

/// Where a started thread is seen to end: the operating system's, or a simulation's with its number.
#[derive(Debug)]
enum Started<H, T> {
    Thread(H),
    Simulated(Arc<Ended<T>>, u64),
}

/// What a simulated thread does that is asked to do `work`, and where that is seen to end.
fn told<'a, T: Send + 'a>(
    work: impl FnOnce() -> T + Send + 'a,
    of: Option<Arc<InScope>>,
) -> (Box<dyn FnOnce() + Send + 'a>, Arc<Ended<T>>) {
    let ended = Arc::new(Ended { outcome: Mutex::new(None), changed: Condvar::new(), of });
    let told = Arc::clone(&ended);
    (Box::new(move || told.end(catch_unwind(AssertUnwindSafe(work)))), ended)
}

/// A thread that was started.
#[derive(Debug)]
pub struct JoinHandle<T>(Started<std::thread::JoinHandle<T>, T>);

impl<T> JoinHandle<T> {
    /// Waits for the thread's end.
    ///
    /// # Errors
    /// What the thread panicked with.
    pub fn join(self) -> Result<T> {
        match self.0 {
            Started::Thread(thread) => thread.join(),
            Started::Simulated(ended, _) => ended.wait(),
        }
    }

    /// True on the thread itself, which cannot wait for its own end.
    pub fn is_current(&self) -> bool {
        match &self.0 {
            Started::Thread(thread) => thread.thread().id() == std::thread::current().id(),
            Started::Simulated(_, number) => *number == current_number(),
        }
    }
}

/// Starts a thread; in a simulation it is one of its threads.
///
/// # Errors
/// The operating system's if it cannot be started.
pub fn spawn<T: Send + 'static>(
    name: String,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let Some(turns) = turns() else {
        return Ok(JoinHandle(Started::Thread(std::thread::Builder::new().name(name).spawn(work)?)));
    };
    let (work, ended) = told(work, None);
    Ok(JoinHandle(Started::Simulated(ended, turns.start(work))))
}

/// Starts threads that may borrow; see [`scope`].
#[derive(Clone, Debug)]
pub struct Scope<'scope, 'env> {
    scope: &'scope std::thread::Scope<'scope, 'env>,
    simulated: Arc<InScope>,
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread of this scope; in a simulation it is one of its threads.
    pub fn spawn<T: Send + 'scope>(
        &self,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, T> {
        let Some(turns) = turns() else {
            return ScopedJoinHandle(Started::Thread(self.scope.spawn(work)));
        };
        let (work, ended) = told(work, Some(Arc::clone(&self.simulated)));
        let simulated = Arc::clone(&self.simulated);
        simulated.running.fetch_add(1, Ordering::Relaxed);
        let work: Box<dyn FnOnce() + Send + 'scope> = Box::new(move || {
            // When it returns nothing is left of it that borrows.
            work();
            simulated.running.fetch_sub(1, Ordering::Release);
        });
        // SAFETY: only the lifetime is another one. The scope does not end before `running` says that all of these have returned, or with the
        // process; what was not begun by then is not counted down and keeps it from ending.
        let work = unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + 'scope>, Work>(work) };
        ScopedJoinHandle(Started::Simulated(ended, turns.start(work)))
    }
}

/// A thread of a [`Scope`].
#[derive(Debug)]
pub struct ScopedJoinHandle<'scope, T>(Started<std::thread::ScopedJoinHandle<'scope, T>, T>);

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits for the thread's end.
    ///
    /// # Errors
    /// What the thread panicked with.
    pub fn join(self) -> Result<T> {
        match self.0 {
            Started::Thread(thread) => thread.join(),
            Started::Simulated(ended, _) => ended.wait(),
        }
    }
}

/// Waits for the simulated threads of a scope when it is dropped: what they borrow goes next.
struct WaitsForAll(Arc<InScope>);

impl Drop for WaitsForAll {
    fn drop(&mut self) {
        let are_left = || self.0.running.load(Ordering::Acquire) > 0;
        while are_left() {
            let others_go_on = || turns().into_iter().for_each(|turns| turns.give_way(false));
            if catch_unwind(AssertUnwindSafe(others_go_on)).is_err() && are_left() {
                // They wait for ever, and would find what they borrow gone.
                std::process::abort();
            }
        }
    }
}

/// Runs `work`, whose threads may borrow what outlives it. In a simulation it should join them all: what else they wait for may not come.
///
/// # Panics
/// If a thread panicked that was not joined.
pub fn scope<'env, T>(work: impl for<'scope> FnOnce(Scope<'scope, 'env>) -> T) -> T {
    std::thread::scope(|scope| {
        let simulated = Arc::<InScope>::default();
        let waits = WaitsForAll(Arc::clone(&simulated));
        let outcome = work(Scope { scope, simulated: Arc::clone(&simulated) });
        drop(waits);
        assert!(!simulated.has_lost_a_panic.load(Ordering::Relaxed), "a thread of the scope panicked");
        outcome
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Own, Turns, take_part};
    use super::*;

    #[test]
    fn ordinary_threads_run_and_are_joined() {
        let handle = spawn("one".to_string(), || std::thread::current().name().map(str::to_owned)).unwrap();
        assert_eq!(handle.join().unwrap().as_deref(), Some("one"));
        let base = 40;
        let sum = scope(|scope| {
            let threads: Vec<_> = (0..2).map(|_| scope.spawn(|| base + 1)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<i32>()
        });
        assert_eq!(sum, 82);
    }

    #[test]
    fn a_panic_is_the_joiners() {
        let handle = spawn("one".to_string(), || panic!("expected by the test")).unwrap();
        assert!(handle.join().is_err());
    }

    /// A simulation whose threads do all their work while somebody else waits, the last one first.
    #[derive(Debug, Default)]
    struct Nested(parking_lot::Mutex<Vec<(u64, Pending)>>);

    struct Pending(Option<Work>);

    impl std::fmt::Debug for Pending {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_tuple("Pending").field(&self.0.is_some()).finish()
        }
    }

    impl Nested {
        fn others_go_on(&self) {
            let next =
                self.0.lock().iter_mut().rev().find_map(|(number, work)| Some((*number, work.0.take()?)));
            if let Some((number, work)) = next {
                let me = Own::of(number).swap();
                work();
                let _its = me.swap();
            }
        }
    }

    impl Turns for Nested {
        fn start(self: Arc<Self>, work: Work) -> u64 {
            let mut threads = self.0.lock();
            let number = threads.len() as u64 + 1;
            threads.push((number, Pending(Some(work))));
            number
        }

        fn wait(&self, _place: usize, _at_most: Option<std::time::Duration>) {
            self.others_go_on();
        }

        fn wake(&self, _place: usize, _all: bool) {}

        fn give_way(&self, _has_acted: bool) {
            self.others_go_on();
        }
    }

    #[test]
    fn simulated_threads_are_joined_and_have_numbers_of_their_own() {
        let numbers = take_part(Arc::new(Nested::default()), || {
            let threads = [(); 2].map(|()| spawn("one".to_string(), current_number).unwrap());
            assert!(threads.iter().all(|thread| !thread.is_current()));
            threads.map(|thread| thread.join().unwrap())
        });
        assert_eq!(numbers, [1, 2]);
        let panics = || spawn("one".to_string(), || panic!("expected by the test")).unwrap().join();
        assert!(take_part(Arc::new(Nested::default()), panics).is_err());
    }

    #[test]
    fn a_scope_ends_after_all_simulated_threads_that_borrow_joined_or_not_and_after_a_panic() {
        let borrowed = parking_lot::Mutex::new(Vec::new());
        let one_of = |number: usize| borrowed.lock().push(number);
        take_part(Arc::new(Nested::default()), || {
            let sum = scope(|scope| {
                let _not_joined = scope.spawn(|| one_of(1));
                scope.spawn(|| one_of(2)).join().unwrap();
                scope.spawn(|| 3).join().unwrap()
            });
            assert_eq!(sum, 3);
            let own = [4, 5];
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                scope(|scope| {
                    own.iter().for_each(|number| drop(scope.spawn(|| one_of(*number))));
                    panic!("expected by the test");
                });
            }));
            assert!(panicked.is_err());
            let joins = |is_joined: bool| {
                let thread = || panic!("expected by the test");
                scope(|scope| {
                    drop(Some(scope.spawn(thread)).filter(|_| is_joined).map(ScopedJoinHandle::join))
                });
            };
            joins(true);
            assert!(catch_unwind(|| joins(false)).is_err(), "nobody else would hear of it");
        });
        let mut all = borrowed.into_inner();
        all.sort_unstable();
        assert_eq!(all, [1, 2, 4, 5]);
    }

    #[test]
    fn threads_have_numbers_of_their_own() {
        let mine = current_number();
        assert_eq!(current_number(), mine);
        let other = spawn("one".to_string(), current_number).unwrap().join().unwrap();
        assert_ne!(other, mine);
    }
}
