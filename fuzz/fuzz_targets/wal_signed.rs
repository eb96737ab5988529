//! See `kelvin_fuzzing`: target `wal_signed`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (kelvin_fuzzing::targets::WAL_SIGNED.run)(data);
});
