//! An input that counts what it gives and stops giving when one record takes too much.
//!
//! Invariant: between two calls of [`Bounded::next_record`] at most the limit plus one buffer is given, so no
//! parser above can be made to hold more (T1). Tests: in `tests.rs`, "an endless record is refused".

use std::cell::Cell;
use std::io::{self, BufRead, Read};
use std::rc::Rc;

use kelvin_base::{Error, ErrorKind};

/// What remains for the record being read, shared between the input and the parser that owns it.
#[derive(Clone, Debug)]
pub struct Budget {
    left: Rc<Cell<u64>>,
    max: u64,
}

impl Budget {
    /// A budget of `max` bytes a record.
    pub fn new(max: u64) -> Self {
        Self { left: Rc::new(Cell::new(max)), max }
    }

    /// Starts the next record.
    pub fn renew(&self) {
        self.left.set(self.max);
    }
}

/// An input under a budget.
#[derive(Debug)]
pub struct Bounded<R> {
    inner: R,
    budget: Budget,
}

impl<R: BufRead> Bounded<R> {
    /// `inner` under `budget`.
    pub fn new(inner: R, budget: Budget) -> Self {
        Self { inner, budget }
    }
}

impl<R: BufRead> Read for Bounded<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.budget.left.get();
        if left == 0 {
            let what = format!("a record is longer than {} bytes", self.budget.max);
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let len = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = self.inner.read(&mut buf[..len])?;
        self.budget.left.set(left - read as u64);
        Ok(read)
    }
}

/// The input's error `error`, met at `place`: what it says about the data is the data's fault, the rest the system's.
pub fn failed(place: &str, error: &io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::InvalidData => ErrorKind::InvalidArgument,
        _ => ErrorKind::Io,
    };
    Error::new(kind, format!("{place}: {error}"))
}
