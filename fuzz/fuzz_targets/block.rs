//! See `kelvin_fuzzing`: target `block`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (kelvin_fuzzing::targets::BLOCK.run)(data);
});
