//! The atomics of the memtable: the standard library's, or loom's in its model tests.

#[cfg(all(loom, test))]
pub(super) use loom::sync::{
    Mutex,
    atomic::{AtomicPtr, AtomicUsize, Ordering},
};
#[cfg(not(all(loom, test)))]
pub(super) use parking_lot::Mutex;
#[cfg(not(all(loom, test)))]
pub(super) use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Locks `mutex`. Nothing panics while one of the memtable's locks is held.
#[cfg(not(all(loom, test)))]
pub(super) fn lock<T>(mutex: &Mutex<T>) -> parking_lot::MutexGuard<'_, T> {
    mutex.lock()
}

/// Locks `mutex` in the model.
#[cfg(all(loom, test))]
pub(super) fn lock<T>(mutex: &Mutex<T>) -> loom::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap()
}
