//! What a thread has of its own. The threads of a simulation share one of the operating system's, and these with it: whoever hands the turn on
//! swaps them.
//!
//! Tests: in `thread.rs`, and those of the simulator's world.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// A small value of the calling thread's own, 0 at first.
#[derive(Clone, Copy, Debug)]
pub enum Local {
    /// What it reads for.
    Purpose,
    /// It is calling a listener.
    IsTelling,
}

const LOCALS: usize = Local::IsTelling as usize + 1;

/// The number of a thread that has not been asked for it.
const NO_NUMBER: u64 = u64::MAX;

/// All that a thread has of its own.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    number: u64,
    values: [u8; LOCALS],
}

impl Own {
    /// What thread `number` of a simulation begins with.
    #[must_use]
    pub const fn of(number: u64) -> Self {
        Self { number, values: [0; LOCALS] }
    }

    /// The calling thread goes on as the one that has `self`; what it had.
    #[must_use]
    pub fn swap(self) -> Self {
        OWN.replace(self)
    }
}

thread_local! {
    static OWN: Cell<Own> = const { Cell::new(Own::of(NO_NUMBER)) };
}

impl Local {
    /// The value.
    #[must_use]
    pub fn get(self) -> u8 {
        OWN.get().values[self as usize]
    }

    /// Replaces it; what it was.
    pub fn replace(self, value: u8) -> u8 {
        let mut own = OWN.get();
        let before = std::mem::replace(&mut own.values[self as usize], value);
        OWN.set(own);
        before
    }
}

/// A number of the calling thread's own: in a simulation the same each time.
pub fn current_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut own = OWN.get();
    if own.number == NO_NUMBER {
        own.number = NEXT.fetch_add(1, Ordering::Relaxed);
        OWN.set(own);
    }
    own.number
}
