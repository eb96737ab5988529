//! Which reads of a trace are of sunk and of hot records, and which category the trace is of (HotRAP §4.3).
//!
//! A read is of a sunk record if more than 5 % of the size of the data were written since the record was: its newest
//! version has sunk to the slow disk. It is of a hot record if less than 5 % were read since the record was last read.
//! Shares are of the reads that found something. What is written by the load counts; a delete counts as its key.
//! The category goes by the share of reads among all operations of the run. Tests: `tests/classes.rs`.

use serde_json::{Value, json};

/// The part of the data that sinks or cools a record: one in so many.
pub const PART: u64 = 20;

/// True if so much written since a record was makes a read of it one of a sunk record.
#[must_use]
pub const fn is_sunk(written_since: u64, data_bytes: u64) -> bool {
    written_since as u128 * PART as u128 > data_bytes as u128
}

/// True if so much read since a record was makes a read of it one of a hot record; `None` for its first read.
#[must_use]
pub const fn is_hot(read_since: Option<u64>, data_bytes: u64) -> bool {
    match read_since {
        Some(bytes) => (bytes as u128 * PART as u128) < data_bytes as u128,
        None => false,
    }
}

/// Categories of traces by their share of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// More than 75 % reads.
    ReadHeavy,
    /// More than 50 %, at most 75 %.
    ReadWrite,
    /// At most 50 %.
    WriteHeavy,
}

impl Category {
    /// The name, as in the paper.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadHeavy => "read-heavy",
            Self::ReadWrite => "read-write",
            Self::WriteHeavy => "write-heavy",
        }
    }
}

/// What the operations of a run are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classes {
    /// Reads.
    pub reads: u64,
    /// Reads that find nothing.
    pub empty_reads: u64,
    /// Reads of sunk records.
    pub sunk: u64,
    /// Reads of hot records.
    pub hot: u64,
    /// Reads of records that are both.
    pub sunk_and_hot: u64,
    /// Writes, also those that find that they may not.
    pub writes: u64,
    /// Deletes, also of records whose time was over.
    pub deletes: u64,
}

impl Classes {
    /// Counts a read: `None` if it finds nothing, else whether the record is sunk and whether it is hot.
    pub fn count_read(&mut self, found: Option<(bool, bool)>) {
        self.reads += 1;
        match found {
            None => self.empty_reads += 1,
            Some((is_sunk, is_hot)) => {
                self.sunk += u64::from(is_sunk);
                self.hot += u64::from(is_hot);
                self.sunk_and_hot += u64::from(is_sunk && is_hot);
            }
        }
    }

    /// All operations.
    #[must_use]
    pub const fn operations(&self) -> u64 {
        self.reads + self.writes + self.deletes
    }

    fn share(part: u64, whole: u64) -> f64 {
        if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
    }

    /// Reads of sunk records among the reads that find something, from 0 to 1.
    #[must_use]
    pub fn sunk_share(&self) -> f64 {
        Self::share(self.sunk, self.reads - self.empty_reads)
    }

    /// Reads of hot records, likewise.
    #[must_use]
    pub fn hot_share(&self) -> f64 {
        Self::share(self.hot, self.reads - self.empty_reads)
    }

    /// Reads of records that are both, likewise.
    #[must_use]
    pub fn sunk_and_hot_share(&self) -> f64 {
        Self::share(self.sunk_and_hot, self.reads - self.empty_reads)
    }

    /// Reads among all operations, from 0 to 1.
    #[must_use]
    pub fn read_share(&self) -> f64 {
        Self::share(self.reads, self.operations())
    }

    /// The category by the share of reads.
    #[must_use]
    pub const fn category(&self) -> Category {
        let (reads, all) = (self.reads as u128, self.operations() as u128);
        if reads * 4 > all * 3 {
            Category::ReadHeavy
        } else if reads * 2 > all {
            Category::ReadWrite
        } else {
            Category::WriteHeavy
        }
    }

    /// For machines.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "category": self.category().name(),
            "read_share": self.read_share(),
            "sunk_share": self.sunk_share(),
            "hot_share": self.hot_share(),
            "sunk_and_hot_share": self.sunk_and_hot_share(),
            "reads": self.reads,
            "empty_reads": self.empty_reads,
            "reads_of_sunk": self.sunk,
            "reads_of_hot": self.hot,
            "writes": self.writes,
            "deletes": self.deletes,
        })
    }
}
