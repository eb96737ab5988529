//! See `kelvin_fuzzing`: target `table`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (kelvin_fuzzing::targets::TABLE.run)(data);
});
