//! See `kelvin_fuzzing`: target `identity`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (kelvin_fuzzing::targets::IDENTITY.run)(data);
});
