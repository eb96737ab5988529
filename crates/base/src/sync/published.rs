//! What many look at and few replace.

use std::fmt;

use arc_swap::{ArcSwapAny, Guard, RefCnt};

use super::point;

/// A shared value that is looked at without a lock and replaced whole: `T` is an `Arc`, or one that may not be there.
pub struct Published<T: RefCnt>(ArcSwapAny<T>);

/// What [`Published::load`] answers: for a short look.
pub type Loaded<T> = Guard<T>;

impl<T: RefCnt> Published<T> {
    /// One that is `value`.
    pub fn new(value: T) -> Self {
        Self(ArcSwapAny::new(value))
    }

    /// The value of now, for a short look.
    #[inline]
    pub fn load(&self) -> Loaded<T> {
        point();
        self.0.load()
    }

    /// The value of now, to keep.
    #[inline]
    pub fn load_full(&self) -> T {
        point();
        self.0.load_full()
    }

    /// Replaces it.
    pub fn store(&self, value: T) {
        point();
        self.0.store(value);
    }

    /// Replaces it; what it was.
    pub fn swap(&self, value: T) -> T {
        point();
        self.0.swap(value)
    }

    /// Replaces it by what `change` makes of it, which is asked again where another has replaced it meanwhile; what it was.
    pub fn update(&self, change: impl FnMut(&T) -> T) -> T {
        point();
        self.0.rcu(change)
    }
}

impl<T: RefCnt> fmt::Debug for Published<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Published").finish_non_exhaustive()
    }
}
