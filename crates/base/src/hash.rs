//! The one hash for everything that lasts: XXH3, 64 bits (filters, checksums, cache shards).

/// XXH3-64 of `bytes`. The output is frozen by its specification and may be stored.
#[must_use]
pub fn hash64(bytes: &[u8]) -> u64 {
    twox_hash::XxHash3_64::oneshot(bytes)
}

/// XXH3-64 of `bytes` under `seed`: checksums bound to a place use the place as the seed.
#[must_use]
pub fn hash64_seeded(seed: u64, bytes: &[u8]) -> u64 {
    twox_hash::XxHash3_64::oneshot_with_seed(seed, bytes)
}

/// The seed that binds a checksum to a file number and a byte offset (promise 5: misdirected reads are detected).
#[must_use]
pub const fn place_seed(file_number: u64, offset: u64) -> u64 {
    // Two odd constants keep (file, offset) pairs apart: splitmix64's increment and its first multiplier.
    file_number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ offset.wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_hash_never_changes() {
        assert_eq!(hash64(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(hash64(b"kelvin"), hash64_seeded(0, b"kelvin"));
    }

    #[test]
    fn neighbouring_places_have_different_seeds() {
        let mut seeds: Vec<u64> =
            (0..64).flat_map(|file| (0..64).map(move |block| place_seed(file, block * 4096))).collect();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 64 * 64);
    }
}
