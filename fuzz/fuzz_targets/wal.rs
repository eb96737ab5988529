//! See `kelvin_fuzzing`: target `wal`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (kelvin_fuzzing::targets::WAL.run)(data);
});
