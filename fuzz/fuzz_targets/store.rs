//! See `kelvin_fuzzing`: target `store`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (kelvin_fuzzing::targets::STORE.run)(data);
});
