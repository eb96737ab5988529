//! See `kelvin_fuzzing`: target `edit`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (kelvin_fuzzing::targets::EDIT.run)(data);
});
