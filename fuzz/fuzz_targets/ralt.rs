//! See `kelvin_fuzzing`: target `ralt`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (kelvin_fuzzing::targets::RALT.run)(data);
});
