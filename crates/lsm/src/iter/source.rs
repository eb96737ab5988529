//! The kinds of sources a merge has, in one enum: the move that a scan makes most needs no virtual call.

use kelvin_base::{InternalIterator, Result};
use kelvin_table::ReadIo;

use super::level::LevelIter;
use crate::memtable::MemIter;

/// A source of a merge.
#[expect(clippy::large_enum_variant, reason = "an iterator has few sources, and boxes cost each move a hop")]
pub enum Source {
    /// A memtable.
    Mem(MemIter),
    /// A sorted level, or one table.
    Level(LevelIter),
    /// Anything else.
    Boxed(Box<dyn InternalIterator>),
}

impl Source {
    /// What was read from tables since this was last asked, by tier.
    pub fn take_io(&mut self) -> [ReadIo; 2] {
        match self {
            Self::Level(iter) => iter.take_io(),
            Self::Mem(_) | Self::Boxed(_) => <[ReadIo; 2]>::default(),
        }
    }
}

impl From<MemIter> for Source {
    fn from(iter: MemIter) -> Self {
        Self::Mem(iter)
    }
}

macro_rules! each {
    ($self:ident, $iter:ident => $call:expr) => {
        match $self {
            Self::Mem($iter) => $call,
            Self::Level($iter) => $call,
            Self::Boxed($iter) => $call,
        }
    };
}

impl InternalIterator for Source {
    fn seek_to_first(&mut self) -> Result<()> {
        each!(self, iter => iter.seek_to_first())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        each!(self, iter => iter.seek_to_last())
    }

    fn seek(&mut self, target: &[u8]) -> Result<()> {
        each!(self, iter => iter.seek(target))
    }

    fn seek_before(&mut self, target: &[u8]) -> Result<()> {
        each!(self, iter => iter.seek_before(target))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        each!(self, iter => iter.next())
    }

    fn prev(&mut self) -> Result<()> {
        each!(self, iter => iter.prev())
    }

    #[inline]
    fn valid(&self) -> bool {
        each!(self, iter => iter.valid())
    }

    #[inline]
    fn key(&self) -> &[u8] {
        each!(self, iter => iter.key())
    }

    #[inline]
    fn value(&self) -> &[u8] {
        each!(self, iter => iter.value())
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Mem(_) => "Mem",
            Self::Level(_) => "Level",
            Self::Boxed(_) => "Boxed",
        })
    }
}
