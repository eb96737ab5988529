//! See `kelvin_fuzzing`: target `ralt_parts`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    kelvin_fuzzing::run("ralt_parts", data);
});
