//! Target of the small file that says which store a slow directory belongs to.
//!
//! Tests: `tests/corpus.rs`.

use std::path::Path;

use kelvin_base::hash::hash64_seeded;
use kelvin_lsm::tiers::identity::{decode, encode};

/// An identity file with these bytes, and one with them under a good checksum.
pub(crate) fn identity(data: &[u8]) -> bool {
    let mut signed = data.to_vec();
    signed.extend_from_slice(&hash64_seeded(u64::from_le_bytes(*b"KELVINID"), data).to_le_bytes());
    let [plain, signed] = [data, &signed].map(|bytes| {
        let identity = decode(Path::new("fuzzed"), bytes);
        if let Ok(identity) = &identity {
            assert_eq!(encode(identity), bytes, "there is one encoding");
        }
        identity.is_ok()
    });
    plain || signed
}
