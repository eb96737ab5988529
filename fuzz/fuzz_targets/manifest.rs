//! See `kelvin_fuzzing`: target `manifest`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (kelvin_fuzzing::targets::MANIFEST.run)(data);
});
