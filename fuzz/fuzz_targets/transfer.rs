//! See `kelvin_fuzzing`: target `transfer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (kelvin_fuzzing::targets::TRANSFER.run)(data);
});
