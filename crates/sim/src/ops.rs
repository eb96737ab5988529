//! Seeded lists of every operation a store offers, over a small key space so that everything collides.

use kelvin_lsm::compaction::pick::Forced;

use crate::choices::Choices;

/// Keyspaces that operations name.
pub const KEYSPACES: [&str; 3] = ["default", "second", "third"];

/// A write, before its expiry is known.
#[derive(Clone, Debug)]
pub enum OpWrite {
    /// Sets a key, perhaps for `ttl_ms`.
    Put {
        /// Index into [`KEYSPACES`].
        keyspace: usize,
        /// Key.
        key: Vec<u8>,
        /// Value.
        value: Vec<u8>,
        /// Milliseconds.
        ttl_ms: Option<u64>,
    },
    /// Removes a key.
    Delete {
        /// Index into [`KEYSPACES`].
        keyspace: usize,
        /// Key.
        key: Vec<u8>,
    },
    /// Removes a range of keys.
    DeleteRange {
        /// Index into [`KEYSPACES`].
        keyspace: usize,
        /// First key.
        start: Vec<u8>,
        /// Key behind the last.
        end: Vec<u8>,
    },
}

/// A move of an iterator.
#[derive(Clone, Debug)]
pub enum Move {
    /// To the first pair.
    First,
    /// To the last pair.
    Last,
    /// To the first pair at or behind a key.
    Seek(Vec<u8>),
    /// To the last pair at or before a key.
    SeekForPrev(Vec<u8>),
    /// On.
    Next,
    /// Back.
    Prev,
}

/// One operation.
#[derive(Clone, Debug)]
pub enum Op {
    /// A batch of one or more writes.
    Write(Vec<OpWrite>),
    /// A point lookup, at the latest moment or the `snapshot`-th live snapshot (modulo).
    Get {
        /// Index into [`KEYSPACES`].
        keyspace: usize,
        /// Key.
        key: Vec<u8>,
        /// Which snapshot.
        snapshot: Option<usize>,
    },
    /// Several lookups at once.
    MultiGet {
        /// Index into [`KEYSPACES`].
        keyspace: usize,
        /// Keys.
        keys: Vec<Vec<u8>>,
    },
    /// Moves of a bounded iterator.
    Iterate {
        /// Index into [`KEYSPACES`].
        keyspace: usize,
        /// Inclusive lower bound.
        lower: Option<Vec<u8>>,
        /// Exclusive upper bound.
        upper: Option<Vec<u8>>,
        /// Which snapshot.
        snapshot: Option<usize>,
        /// What to do with it.
        moves: Vec<Move>,
        /// Keep it open and move it again later.
        keep: bool,
    },
    /// Moves of an iterator kept open earlier.
    Resume {
        /// Which (modulo).
        which: usize,
        /// What to do with it.
        moves: Vec<Move>,
    },
    /// Takes a snapshot.
    TakeSnapshot,
    /// Drops a snapshot.
    DropSnapshot(usize),
    /// A transaction that reads, perhaps meets a conflicting write, and writes.
    Transaction {
        /// Index into [`KEYSPACES`].
        keyspace: usize,
        /// Keys read.
        reads: Vec<Vec<u8>>,
        /// Key written by somebody else between read and commit.
        disturb: Option<Vec<u8>>,
        /// What it writes (`None` deletes).
        writes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    },
    /// Sets a key if it has the value it has (or, if `wrong`, another one).
    CompareAndSet {
        /// Index into [`KEYSPACES`].
        keyspace: usize,
        /// Key.
        key: Vec<u8>,
        /// Expect something else.
        wrong: bool,
        /// New value.
        new: Option<Vec<u8>>,
    },
    /// Flushes a keyspace.
    Flush(usize),
    /// Compacts a range.
    Compact {
        /// Index into [`KEYSPACES`].
        keyspace: usize,
        /// From.
        lower: Option<Vec<u8>>,
        /// To.
        upper: Option<Vec<u8>>,
    },
    /// Lets background work do this many steps (where it is stepped by hand).
    Background(usize),
    /// Lets this much wall time pass, milliseconds.
    Advance(u64),
    /// Begins a compaction that is not due.
    Force {
        /// Index into [`KEYSPACES`].
        keyspace: usize,
        /// Which kind.
        what: Forced,
        /// Of which table.
        nth: usize,
    },
    /// Closes and opens the store; what is advisory is harmed meanwhile, as the number says.
    Reopen(Option<u64>),
    /// Makes a checkpoint, opens it and compares everything.
    Checkpoint,
    /// Drops a keyspace and makes it again.
    Recreate(usize),
    /// Compares every pair of every keyspace, both directions.
    CompareAll,
    /// Looks whether everything in the store is in order, and within its limits.
    Audit,
}

/// A generator of operations.
#[derive(Debug)]
pub struct Generator {
    choices: Choices,
    keys: u64,
}

impl Generator {
    /// Operations of `seed` over about `keys` keys.
    #[must_use]
    pub fn new(seed: u64, keys: u64) -> Self {
        Self { choices: Choices::of_seed(seed), keys }
    }

    /// Operations that `bytes` choose, over about `keys` keys.
    #[must_use]
    pub fn of_bytes(bytes: Vec<u8>, keys: u64) -> Self {
        Self { choices: Choices::of_bytes(bytes), keys }
    }

    /// True once there are no bytes left to choose with; a seed is never exhausted.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.choices.are_exhausted()
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.choices.below(bound)
    }

    fn index(&mut self, bound: usize) -> usize {
        self.choices.index(bound)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn key(&mut self) -> Vec<u8> {
        let number = self.below(self.keys);
        let mut key = format!("k{number:05}").into_bytes();
        // Prefixes, extensions and odd bytes of other keys are keys too.
        match number % 7 {
            0 => key.truncate(3),
            1 => key.extend_from_slice(&[0]),
            2 => key.extend_from_slice(&[0xff; 9]),
            _ => {}
        }
        key
    }

    /// A key to read: mostly one of a few, and half of the keys seldom, so that there are hot ones and cold ones.
    fn read_key(&mut self) -> Vec<u8> {
        let keys = self.keys;
        self.keys = match self.below(10) {
            0..=4 => keys.min(16),
            5..=8 => keys.div_ceil(2),
            _ => keys,
        };
        let key = self.key();
        self.keys = keys;
        key
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.below(20) {
            0 => 0,
            1 => 3000,
            2..=5 => 300,
            _ => 24,
        };
        let mut value = self.below(u64::MAX).to_le_bytes().repeat(len / 8 + 1);
        value.truncate(len);
        value
    }

    fn keyspace(&mut self) -> usize {
        if self.chance(70) { 0 } else { self.index(KEYSPACES.len()) }
    }

    fn snapshot(&mut self) -> Option<usize> {
        self.chance(30).then(|| self.index(64))
    }

    fn range(&mut self) -> (Vec<u8>, Vec<u8>) {
        let (a, b) = (self.key(), self.key());
        if a <= b { (a, b) } else { (b, a) }
    }

    fn bound(&mut self) -> Option<Vec<u8>> {
        self.chance(50).then(|| self.key())
    }

    fn write(&mut self) -> OpWrite {
        let keyspace = self.keyspace();
        match self.below(100) {
            0..=2 => {
                let (start, mut end) = self.range();
                if self.chance(70) {
                    end = start.clone();
                    end.extend_from_slice(b"\xff\xff");
                }
                OpWrite::DeleteRange { keyspace, start, end }
            }
            3..=17 => OpWrite::Delete { keyspace, key: self.key() },
            18..=29 => {
                let ttl_ms = Some(self.below(5_000));
                OpWrite::Put { keyspace, key: self.key(), value: self.value(), ttl_ms }
            }
            _ => OpWrite::Put { keyspace, key: self.key(), value: self.value(), ttl_ms: None },
        }
    }

    fn moves(&mut self) -> Vec<Move> {
        let count = self.index(24) + 1;
        let mut moves = vec![match self.below(4) {
            0 => Move::First,
            1 => Move::Last,
            2 => Move::Seek(self.key()),
            _ => Move::SeekForPrev(self.key()),
        }];
        let forward = self.chance(50);
        for _ in 1..count {
            moves.push(match self.below(12) {
                0 => Move::Seek(self.key()),
                1 => Move::SeekForPrev(self.key()),
                2 | 3 if forward => Move::Prev,
                2 | 3 => Move::Next,
                _ if forward => Move::Next,
                _ => Move::Prev,
            });
        }
        moves
    }

    fn iterate(&mut self) -> Op {
        let keep = self.chance(15);
        Op::Iterate {
            keyspace: self.keyspace(),
            lower: self.bound(),
            upper: self.bound(),
            snapshot: self.snapshot(),
            moves: self.moves(),
            keep,
        }
    }

    fn transaction(&mut self) -> Op {
        let reads: Vec<Vec<u8>> = (0..self.index(4)).map(|_| self.key()).collect();
        let disturb = self.chance(40).then(|| match reads.first() {
            Some(read) if self.chance(60) => read.clone(),
            _ => self.key(),
        });
        let writes = (0..=self.index(4))
            .map(|_| (self.key(), if self.chance(80) { Some(self.value()) } else { None }))
            .collect();
        Op::Transaction { keyspace: self.keyspace(), reads, disturb, writes }
    }

    /// The next operation.
    pub fn next_op(&mut self) -> Op {
        match self.below(1000) {
            0..=439 => {
                let count = if self.chance(85) { 1 } else { self.index(12) + 1 };
                Op::Write((0..count).map(|_| self.write()).collect())
            }
            440..=719 => {
                Op::Get { keyspace: self.keyspace(), key: self.read_key(), snapshot: self.snapshot() }
            }
            720..=739 => {
                let keys = (0..self.index(12)).map(|_| self.read_key()).collect();
                Op::MultiGet { keyspace: self.keyspace(), keys }
            }
            740..=809 => self.iterate(),
            810..=829 => Op::Resume { which: self.index(8), moves: self.moves() },
            830..=842 => Op::TakeSnapshot,
            843..=854 => Op::DropSnapshot(self.index(64)),
            855..=884 => self.transaction(),
            885..=904 => Op::CompareAndSet {
                keyspace: self.keyspace(),
                key: self.key(),
                wrong: self.chance(30),
                new: if self.chance(80) { Some(self.value()) } else { None },
            },
            905..=914 => Op::Flush(self.keyspace()),
            915..=918 => Op::Compact { keyspace: self.keyspace(), lower: self.bound(), upper: self.bound() },
            919..=952 => Op::Background(self.index(6) + 1),
            953..=968 => Op::Force {
                keyspace: self.keyspace(),
                what: [Forced::Down, Forced::Down, Forced::Boundary, Forced::Boundary, Forced::Runs]
                    [self.index(5)],
                nth: self.index(64),
            },
            969..=988 => Op::Advance(self.below(2_000)),
            989..=992 => Op::Reopen(self.chance(50).then(|| self.below(u64::MAX))),
            993 => Op::Checkpoint,
            994 if self.chance(30) => Op::Recreate(self.index(KEYSPACES.len() - 1) + 1),
            995..=996 => Op::Audit,
            _ => Op::CompareAll,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_operations_again_and_another_seed_others() {
        let list = |seed| {
            let mut generator = Generator::new(seed, 100);
            (0..500).map(|_| format!("{:?}", generator.next_op())).collect::<Vec<_>>()
        };
        assert_eq!(list(1), list(1));
        assert_ne!(list(1), list(2));
    }
}
