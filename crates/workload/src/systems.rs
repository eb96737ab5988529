//! Opens the systems that can be measured.
//!
//! RocksDB is there only with the cargo feature `rocksdb`.

use kelvin_base::{Error, Result};

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
    Err(not_built(options.system))
}

/// True if this program was built with `system`.
#[must_use]
pub const fn is_built(system: System) -> bool {
    cfg!(feature = "rocksdb") || !system.is_rocksdb()
}

/// Why `system` cannot be measured.
pub(crate) fn not_built(system: System) -> Error {
    Error::invalid(format!("this program was built without RocksDB, so it cannot measure {system}"))
        .advice("install librocksdb-dev and build with --features rocksdb")
}
