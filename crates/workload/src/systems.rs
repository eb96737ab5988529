//! Opens the systems that can be measured.
//!
//! RocksDB is there only with the cargo feature `rocksdb`.

use kelvin_base::Result;

use crate::options::{BenchOptions, System};
use crate::subject::Subject;

/// Opens the store that `options` names in its directories.
///
/// # Errors
/// What the store reports; `InvalidArgument` for a system that this build does not have.
pub fn open(options: &BenchOptions) -> Result<Box<dyn Subject>> {
    match options.system {
        System::RocksdbFat | System::RocksdbFast => rocksdb(options),
        System::Kelvin | System::Fat | System::FastOnly => crate::kelvin::open(options),
    }
}

#[cfg(feature = "rocksdb")]
fn rocksdb(options: &BenchOptions) -> Result<Box<dyn Subject>> {
    crate::peer::open(options)
}

#[cfg(not(feature = "rocksdb"))]
fn rocksdb(options: &BenchOptions) -> Result<Box<dyn Subject>> {
    Err(kelvin_base::Error::invalid(format!(
        "this program was built without RocksDB, so it cannot measure {}",
        options.system
    ))
    .advice("install librocksdb-dev and build with --features rocksdb"))
}
