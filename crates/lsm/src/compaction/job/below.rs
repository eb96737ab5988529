//! Whether older data of a key may lie below the output level: a cursor over the deeper tables.
//!
//! Invariant: keys are asked in ascending order, so each deeper table is passed once. Tests: golden texts, `tests.rs`.

use std::sync::Arc;

use kelvin_base::{Error, SEQUENCE_MAX, hash64, seeded_bug};
use kelvin_table::{LookupKey, ReadIo};

use crate::version::TableFile;

/// The tables below a merge's output, as runs of disjoint tables in key order.
#[derive(Debug)]
pub enum Below {
    /// Older data may lie anywhere (flushes).
    Anything,
    /// In the range of these tables; no runs means nowhere.
    Runs(Vec<Run>),
}

/// One run and the place in it.
#[derive(Debug)]
pub struct Run {
    files: Vec<Arc<TableFile>>,
    /// The first table that reaches the key asked last.
    at: usize,
}

impl Below {
    /// The tables of `runs`.
    pub fn runs(runs: &[Vec<Arc<TableFile>>]) -> Self {
        Self::Runs(runs.iter().map(|files| Run { files: files.clone(), at: 0 }).collect())
    }

    /// True if a deeper table's range holds `user_key`.
    pub fn may_hold(&mut self, user_key: &[u8]) -> bool {
        match self {
            Self::Anything => true,
            Self::Runs(runs) => runs.iter_mut().any(|run| run.at(user_key).is_some()),
        }
    }

    /// True if a table has an entry of `user_key`: where a filter cannot exclude it, the table is read. One that cannot be read may
    /// have it.
    pub fn has(&mut self, user_key: &[u8]) -> bool {
        let Self::Runs(runs) = self else { return true };
        let key = LookupKey { user_key, hash: hash64(user_key), at: SEQUENCE_MAX };
        let found = |file: &Arc<TableFile>| {
            let table = file.table()?;
            Ok::<_, Error>(table.may_contain(key.hash) && table.get(&key, &mut ReadIo::default())?.is_some())
        };
        let unreadable = !seeded_bug!("unreadable-run-guards-nothing");
        runs.iter_mut().any(|run| run.at(user_key).is_some_and(|file| found(file).unwrap_or(unreadable)))
    }

    /// True if a deeper table's range meets `[start, end)`. Asks no cursor, so ranges may come in any order.
    pub fn may_meet(&self, start: &[u8], end: &[u8]) -> bool {
        match self {
            Self::Anything => true,
            Self::Runs(runs) => runs.iter().any(|run| {
                let first = run.files.partition_point(|file| !file.meta.reaches(start));
                run.files.get(first).is_some_and(|file| file.meta.smallest.as_ref() < end)
            }),
        }
    }
}

impl Run {
    /// The table whose range holds `user_key`.
    fn at(&mut self, user_key: &[u8]) -> Option<&Arc<TableFile>> {
        while self.files.get(self.at).is_some_and(|file| !file.meta.reaches(user_key)) {
            self.at += 1;
        }
        self.files.get(self.at).filter(|file| file.meta.smallest.as_ref() <= user_key)
    }
}
