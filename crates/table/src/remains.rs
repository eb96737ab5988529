//! Opens what is left of a damaged table: its data blocks can be read as long as its index can.
//!
//! Nothing here is for reading a store: without its filter a table is asked in vain, and without its range tombstones it
//! says less than it should. Who uses it says what may be missing. Tests: `tests/table/damage.rs`.

use std::path::Path;
use std::sync::Arc;

use kelvin_base::{Error, Result};
use kelvin_storage::ReadFile;

use crate::filter::Filter;
use crate::format::FOOTER_BYTES;
use crate::reader::{TAIL_GUESS_BYTES, Table};

/// What is left of a table.
#[derive(Debug)]
pub struct Remains {
    /// The table. What was damaged of its tail is empty in it.
    pub table: Table,
    /// What is wrong with its filter, if it cannot be read: nothing is lost with it.
    pub filter: Option<Error>,
    /// What is wrong with its range tombstones, if they cannot be read.
    pub tombstones: Option<Error>,
    /// What is wrong with its properties, if they cannot be read: what they said is unknown.
    pub properties: Option<Error>,
}

impl Table {
    /// Opens what is left of the table `number` in `file`, which lies at `path`, had `size_bytes` and ended with `tail_bytes` of
    /// filter, index, tombstones, properties and footer (0 if unknown).
    ///
    /// # Errors
    /// As [`Table::open`], if its footer or its index cannot be read, or the file is shorter than it was.
    pub fn open_remains(
        file: Arc<dyn ReadFile>,
        path: &Path,
        number: u64,
        size_bytes: u64,
        tail_bytes: u64,
    ) -> Result<Remains> {
        let whole = Self::open(Arc::clone(&file), path, number, size_bytes, tail_bytes, None);
        let refused = match whole {
            Ok(table) => return Ok(Remains { table, filter: None, tombstones: None, properties: None }),
            Err(error) => error,
        };
        if size_bytes < FOOTER_BYTES as u64 {
            return Err(refused);
        }
        let guess = if tail_bytes == 0 { TAIL_GUESS_BYTES } else { tail_bytes.max(FOOTER_BYTES as u64) };
        // Where more than one part of the tail is wrong, the first refusal told of one of them.
        let tail =
            Self::read_tail(&file, path, number, size_bytes, guess.min(size_bytes)).map_err(|_| refused)?;
        let (stones, no_stones) = apart(tail.tombstones);
        let (facts, no_facts) = apart(tail.properties);
        let (filter, no_filter) = apart(tail.filter.map(Some));
        let parts = (tail.index, filter.unwrap_or_else(Filter::of_everything), stones, facts);
        let table = Self::of(file, path, number, size_bytes, parts);
        Ok(Remains { table, filter: no_filter, tombstones: no_stones, properties: no_facts })
    }
}

/// What was read, or nothing and why.
fn apart<T: Default>(outcome: Result<T>) -> (T, Option<Error>) {
    match outcome {
        Ok(read) => (read, None),
        Err(error) => (T::default(), Some(error)),
    }
}
