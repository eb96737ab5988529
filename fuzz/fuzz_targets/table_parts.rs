//! See `kelvin_fuzzing`: target `table_parts`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (kelvin_fuzzing::targets::TABLE_PARTS.run)(data);
});
