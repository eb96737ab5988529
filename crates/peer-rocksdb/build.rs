//! Builds the shim of C++ where the crate links RocksDB: with the feature `rocksdb`.
//!
//! Its tests are those of the crate.

fn main() {
    println!("cargo::rerun-if-changed=src/shim.cc");
    #[cfg(feature = "rocksdb")]
    // Asserts stay on as in Debian's library: one build of the headers on both sides.
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .warnings(false)
        .file("src/shim.cc")
        .compile("kelvin_rocksdb_shim");
}
