//! See `kelvin_fuzzing`: target `ralt_parts`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (kelvin_fuzzing::targets::RALT_PARTS.run)(data);
});
