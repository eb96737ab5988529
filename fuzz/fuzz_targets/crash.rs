//! See `kelvin_fuzzing`: target `crash`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (kelvin_fuzzing::targets::CRASH.run)(data);
});
