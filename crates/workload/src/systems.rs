//! Opens the systems that can be measured.
//!
//! RocksDB is there only with the cargo feature `rocksdb`, fjall with `fjall`.

use kelvin_base::{Error, Result};

use crate::options::{BenchOptions, System};
use crate::subject::Subject;

/// Opens the store that `options` names in its directories.
///
/// # Errors
/// What the store reports; `InvalidArgument` for a system that this build does not have.
pub fn open(options: &BenchOptions) -> Result<Box<dyn Subject>> {
    check_built(options.system)?;
    match options.system {
        #[cfg(feature = "rocksdb")]
        System::RocksdbFat | System::RocksdbFast | System::RocksdbCached | System::RocksdbReput => {
            crate::peer::rocksdb::open(options)
        }
        #[cfg(feature = "fjall")]
        System::Fjall => crate::peer::fjall::open(options),
        _ => crate::kelvin::open(options),
    }
}

/// The cargo feature that `system` needs, what that builds in, and whether this program was built with it; `None` for our own.
const fn needs(system: System) -> Option<(&'static str, &'static str, bool)> {
    match system {
        System::Kelvin | System::Fat | System::FastOnly => None,
        System::RocksdbFat | System::RocksdbFast | System::RocksdbCached | System::RocksdbReput => Some((
            "RocksDB",
            "install librocksdb-dev and a C++ compiler, and build with --features rocksdb",
            cfg!(feature = "rocksdb"),
        )),
        System::Fjall => Some(("fjall", "build with --features fjall", cfg!(feature = "fjall"))),
    }
}

/// True if this program was built with `system`.
#[must_use]
pub const fn is_built(system: System) -> bool {
    match needs(system) {
        Some((.., is_built)) => is_built,
        None => true,
    }
}

/// Refuses a system that this program was not built with.
///
/// # Errors
/// `InvalidArgument` that says what to build.
pub fn check_built(system: System) -> Result<()> {
    match needs(system) {
        Some((store, advice, false)) => {
            let what = format!("this program was built without {store}, so it cannot measure {system}");
            Err(Error::invalid(what).advice(advice))
        }
        _ => Ok(()),
    }
}
