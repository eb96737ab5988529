//! Targets of the sorted table, whole and in parts: the checks themselves are in `kelvin_table::fuzz`.
//!
//! Tests: `tests/corpus.rs`.

use kelvin_table::block::BlockRef;
use kelvin_table::{Compression, fuzz};

/// Largest block that a fuzzed frame is unpacked to, bytes.
const UNPACKED_BYTES_MAX: usize = 1 << 20;

/// A file with these bytes: opened, read both ways, searched, verified.
pub(crate) fn plain(data: &[u8]) -> bool {
    fuzz::file(data).is_ok()
}

/// A table of these parts under good checksums.
pub(crate) fn signed(data: &[u8]) -> bool {
    fuzz::signed(data).is_ok()
}

/// These bytes as index, filter, properties, tombstones, footer.
pub(crate) fn parts(data: &[u8]) -> bool {
    fuzz::parts(data);
    true
}

/// A data block with these bytes.
pub(crate) fn block(data: &[u8]) -> bool {
    fuzz::block(data);
    BlockRef::new(data).is_ok()
}

/// These bytes as a compressed block of each kind, and packed and unpacked.
pub(crate) fn compression(data: &[u8]) -> bool {
    let mut taken = false;
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        if let Ok((len, packed)) = compression.unpacked_len(data)
            && len <= UNPACKED_BYTES_MAX
        {
            taken |= compression.unpack(packed, &mut vec![0; len]).is_ok();
        }
        let mut packed = Vec::new();
        if compression.compress(data, &mut packed) {
            let (len, body) = compression.unpacked_len(&packed).expect("a frame just made has a length");
            let mut unpacked = vec![0; len];
            compression.unpack(body, &mut unpacked).expect("a frame just made unpacks");
            assert_eq!(unpacked, data);
        }
    }
    taken
}
