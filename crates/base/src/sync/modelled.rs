//! The same locks, atomics and places in a model test of loom: each use is one more place at which every order of the threads is tried.
//!
//! Only builds with `--cfg loom` have these; what uses them can then run inside of `loom::model` alone.

#![expect(missing_docs, reason = "what each does stands in lock.rs and published.rs")]

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use loom::sync as model;
pub use loom::sync::atomic;

/// Runs `work` in every order of its threads; says how many there were, and how long that took.
///
/// # Panics
/// Where one of them panics.
pub fn model(work: impl Fn() + Sync + Send + 'static) {
    let (began, orders) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&orders);
    loom::model(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        work();
    });
    println!("{} orders in {:.1} s", orders.load(Ordering::Relaxed), began.elapsed().as_secs_f64());
}

/// The guard of a [`Mutex`]; empty only while a [`Condvar`] has it.
#[derive(Debug)]
pub struct MutexGuard<'a, T>(Option<model::MutexGuard<'a, T>>);

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("only a condition variable takes it")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("only a condition variable takes it")
    }
}

/// See `lock.rs`.
#[derive(Debug, Default)]
pub struct Mutex<T>(model::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(model::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(self.0.lock().ok())
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok().map(|guard| MutexGuard(Some(guard)))
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect("no model goes on after a panic")
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner().expect("no model goes on after a panic")
    }
}

/// See `lock.rs`.
#[derive(Debug, Default)]
pub struct RwLock<T>(model::RwLock<T>);

impl<T> RwLock<T> {
    pub fn new(value: T) -> Self {
        Self(model::RwLock::new(value))
    }

    pub fn read(&self) -> model::RwLockReadGuard<'_, T> {
        self.0.read().expect("no model goes on after a panic")
    }

    pub fn write(&self) -> model::RwLockWriteGuard<'_, T> {
        self.0.write().expect("no model goes on after a panic")
    }

    pub fn try_read(&self) -> Option<model::RwLockReadGuard<'_, T>> {
        self.0.try_read().ok()
    }

    pub fn try_write(&self) -> Option<model::RwLockWriteGuard<'_, T>> {
        self.0.try_write().ok()
    }
}

/// See `lock.rs`. Time does not pass in a model: a wait with an end has none here.
#[derive(Debug)]
pub struct Condvar(model::Condvar);

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

impl Condvar {
    #[must_use]
    pub fn new() -> Self {
        Self(model::Condvar::new())
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.0 = guard.0.take().and_then(|held| self.0.wait(held).ok());
    }

    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _at_most: Duration) {
        self.wait(guard);
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// See `published.rs`.
#[derive(Debug)]
pub struct Published<T>(model::RwLock<T>);

impl<T: Clone> Published<T> {
    pub fn new(value: T) -> Self {
        Self(model::RwLock::new(value))
    }

    pub fn load(&self) -> Loaded<T> {
        Loaded(self.load_full())
    }

    pub fn load_full(&self) -> T {
        self.0.read().expect("no model goes on after a panic").clone()
    }

    pub fn store(&self, value: T) {
        drop(self.swap(value));
    }

    pub fn swap(&self, value: T) -> T {
        let mut now = self.0.write().expect("no model goes on after a panic");
        std::mem::replace(&mut *now, value)
    }

    pub fn update(&self, mut change: impl FnMut(&T) -> T) -> T {
        let mut now = self.0.write().expect("no model goes on after a panic");
        let next = change(&*now);
        std::mem::replace(&mut *now, next)
    }
}

/// What [`Published::load`] answers.
#[derive(Debug)]
pub struct Loaded<T>(T);

impl<T> Deref for Loaded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
