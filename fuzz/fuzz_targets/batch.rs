//! See `kelvin_fuzzing`: target `batch`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (kelvin_fuzzing::targets::BATCH.run)(data);
});
