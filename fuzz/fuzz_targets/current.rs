//! See `kelvin_fuzzing`: target `current`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (kelvin_fuzzing::targets::CURRENT.run)(data);
});
