//! See `kelvin_fuzzing`: target `ops`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (kelvin_fuzzing::targets::OPS.run)(data);
});
