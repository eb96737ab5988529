//! See `kelvin_fuzzing`: target `wal_signed`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    kelvin_fuzzing::run("wal_signed", data);
});
