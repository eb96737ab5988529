//! See `kelvin_fuzzing`: target `manifest_signed`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (kelvin_fuzzing::targets::MANIFEST_SIGNED.run)(data);
});
