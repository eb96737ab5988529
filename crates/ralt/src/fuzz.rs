//! Entry points for fuzzing: any bytes as a state file, a record, or an annotation give an answer or nothing, never a panic and
//! never unbounded memory. What is accepted survives being written and read again. Tests: `crates/fuzzing`.

use crate::options::Options;
use crate::record::Record;
use crate::run::reread_annotation;
use crate::state::{decode, sign};

/// Whose files the fuzzed ones are.
pub const OWNER: [u8; 16] = *b"the fuzzed store";

/// What fuzzed files are opened with: a small RALT that goes on with whatever scoring it finds.
#[must_use]
pub fn options() -> Options {
    Options {
        keeps_scoring: true,
        buffer_bytes: 16 << 10,
        run_bytes: 16 << 10,
        ..Options::of_fast(1 << 20, OWNER)
    }
}

/// Bytes as a state file; true if they are one.
#[must_use]
pub fn state(data: &[u8]) -> bool {
    decode(&options(), data).is_ok()
}

/// A state file of a body: magic, format and owner before it, a good checksum behind it.
#[must_use]
pub fn signed_state(body: &[u8]) -> Vec<u8> {
    sign(&OWNER, body)
}

/// Bytes as an access record; true if they are one.
///
/// # Panics
/// If what was accepted is not what is written.
#[must_use]
pub fn record(data: &[u8]) -> bool {
    let Some(record) = Record::decode(data) else { return false };
    let mut again = Vec::new();
    record.encode(&mut again);
    assert_eq!(again, data, "there is one encoding");
    true
}

/// Bytes as a run's annotation; true if they are one.
///
/// # Panics
/// If what was accepted is another after it was written.
#[must_use]
pub fn annotation(data: &[u8]) -> bool {
    let Some((first, again)) = reread_annotation(data) else { return false };
    assert_eq!(Some(first), again, "what was read is written and read again");
    true
}
