//! Starting threads and waiting for their end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Result;

use super::{Condvar, Mutex, TURNS, take_part, turns};

/// A number of the calling thread's own: in a simulation the same each time.
pub fn current_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    TURNS
        .with(|turns| turns.borrow().as_ref().map(|(_, number)| *number))
        .unwrap_or_else(|| NUMBER.with(|number| *number))
}

/// Tells a simulated thread that another has ended.
#[derive(Debug, Default)]
struct Ended {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl Ended {
    fn wait(&self) {
        let mut is_over = self.is_over.lock();
        while !*is_over {
            self.changed.wait(&mut is_over);
        }
    }
}

/// Says so when it is dropped: also where a thread panics.
struct Ends(Arc<Ended>);

impl Drop for Ends {
    fn drop(&mut self) {
        *self.0.is_over.lock() = true;
        self.0.changed.notify_all();
    }
}

/// What a thread does that starts: what it was asked to, in the simulation of its parent if that is in one. Beside it how that one sees its end.
fn of_parent<T>(work: impl FnOnce() -> T) -> (impl FnOnce() -> T, Option<Arc<Ended>>) {
    let part = turns().map(|turns| {
        let number = turns.begin();
        (turns, number, Arc::new(Ended::default()))
    });
    let ended = part.as_ref().map(|(_, _, ended)| Arc::clone(ended));
    let work = move || match part {
        None => work(),
        Some((turns, number, ended)) => take_part(turns, number, || {
            let _ends = Ends(ended);
            work()
        }),
    };
    (work, ended)
}

/// A thread that was started.
#[derive(Debug)]
pub struct JoinHandle<T> {
    thread: std::thread::JoinHandle<T>,
    ended: Option<Arc<Ended>>,
}

impl<T> JoinHandle<T> {
    /// Waits for the thread's end.
    ///
    /// # Errors
    /// What the thread panicked with.
    pub fn join(self) -> Result<T> {
        self.ended.inspect(|ended| ended.wait());
        self.thread.join()
    }

    /// The thread.
    pub fn thread(&self) -> &std::thread::Thread {
        self.thread.thread()
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
    let (work, ended) = of_parent(work);
    Ok(JoinHandle { thread: std::thread::Builder::new().name(name).spawn(work)?, ended })
}

/// Starts threads that may borrow; see [`scope`].
#[derive(Clone, Copy, Debug)]
pub struct Scope<'scope, 'env>(&'scope std::thread::Scope<'scope, 'env>);

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread of this scope; in a simulation it is one of its threads.
    pub fn spawn<T: Send + 'scope>(
        &self,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, T> {
        let (work, ended) = of_parent(work);
        ScopedJoinHandle { thread: self.0.spawn(work), ended }
    }
}

/// A thread of a [`Scope`].
#[derive(Debug)]
pub struct ScopedJoinHandle<'scope, T> {
    thread: std::thread::ScopedJoinHandle<'scope, T>,
    ended: Option<Arc<Ended>>,
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits for the thread's end.
    ///
    /// # Errors
    /// What the thread panicked with.
    pub fn join(self) -> Result<T> {
        self.ended.inspect(|ended| ended.wait());
        self.thread.join()
    }
}

/// Runs `work`, whose threads may borrow what outlives it. In a simulation it must join them all.
pub fn scope<'env, T>(work: impl for<'scope> FnOnce(Scope<'scope, 'env>) -> T) -> T {
    std::thread::scope(|scope| work(Scope(scope)))
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn threads_have_numbers_of_their_own() {
        let mine = current_number();
        assert_eq!(current_number(), mine);
        let other = spawn("one".to_string(), current_number).unwrap().join().unwrap();
        assert_ne!(other, mine);
    }
}
