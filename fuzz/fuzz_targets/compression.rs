//! See `kelvin_fuzzing`: target `compression`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (kelvin_fuzzing::targets::COMPRESSION.run)(data);
});
