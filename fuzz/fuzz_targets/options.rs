//! See `kelvin_fuzzing`: target `options`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (kelvin_fuzzing::targets::OPTIONS.run)(data);
});
