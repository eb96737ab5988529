//! What the values of a replayed trace hold: traces say only how long they are.
//!
//! A value follows from its key, its version and its size, so a reader that knows these knows every byte: another key's
//! value, an older one, a cut or changed one are all told apart. Half of a long value is noise, the rest one byte over
//! and over, so that it compresses like records do. Tests: below.

use std::sync::Arc;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::steps::Content;
use crate::generate::permutation::mix64;

/// Where noise begins: one of so many places.
const PLACES: u64 = 1 << 20;
/// Longest noise of a value, bytes.
const NOISE_BYTES_MAX: usize = 64 << 10;
/// Values up to this size are all noise, bytes: half of it would tell too few apart.
const ALL_NOISE_BYTES_MAX: usize = 32;

/// Makes and checks values.
#[derive(Clone, Debug)]
pub struct Values {
    pool: Arc<[u8]>,
}

impl Values {
    /// Values that follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut pool = vec![0; usize::try_from(PLACES).unwrap_or(0) + NOISE_BYTES_MAX];
        Xoshiro256PlusPlus::seed_from_u64(seed).fill_bytes(&mut pool);
        Self { pool: pool.into() }
    }

    /// The noise of a value, its filler, and its size.
    fn parts(&self, key_hash: u64, content: Content) -> (&[u8], u8, usize) {
        let size = usize::try_from(content.size).unwrap_or(usize::MAX);
        let place = mix64(key_hash ^ mix64(content.version));
        let start = usize::try_from(place % PLACES).unwrap_or(0);
        let noise = if size <= ALL_NOISE_BYTES_MAX { size } else { (size / 2).min(NOISE_BYTES_MAX) };
        (&self.pool[start..start + noise], place.to_be_bytes()[0], size)
    }

    /// Puts the value of a key, by its hash, into `value`.
    pub fn fill(&self, key_hash: u64, content: Content, value: &mut Vec<u8>) {
        let (noise, filler, size) = self.parts(key_hash, content);
        value.clear();
        value.extend_from_slice(noise);
        value.resize(size, filler);
    }

    /// True if `value` is the value of a key, by its hash.
    #[must_use]
    pub fn is_value(&self, key_hash: u64, content: Content, value: &[u8]) -> bool {
        let (noise, filler, size) = self.parts(key_hash, content);
        let Some((found, rest)) = value.split_at_checked(noise.len()) else { return false };
        // Equal to the filler and equal to its own neighbour, everywhere: two comparisons of memory, no loop by byte.
        let is_filled =
            rest.first().is_none_or(|first| *first == filler && rest[1..] == rest[..rest.len() - 1]);
        value.len() == size && found == noise && is_filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_its_own_and_no_other() {
        let values = Values::new(5);
        let mut value = Vec::new();
        for size in [0, 1, 8, 31, 33, 200, 70_000, 300_000] {
            let content = Content { version: 7, size };
            values.fill(99, content, &mut value);
            assert_eq!(value.len(), size as usize);
            assert!(values.is_value(99, content, &value));
            if size >= 8 {
                assert!(!values.is_value(98, content, &value), "another key, {size}");
                assert!(
                    !values.is_value(99, Content { version: 8, size }, &value),
                    "another version, {size}"
                );
            }
            if size > 0 {
                assert!(!values.is_value(99, content, &value[1..]), "cut, {size}");
                let middle = value.len() / 2;
                for at in [0, middle, value.len() - 1] {
                    value[at] ^= 4;
                    assert!(!values.is_value(99, content, &value), "byte {at} of {size}");
                    value[at] ^= 4;
                }
            }
            value.push(0);
            assert!(!values.is_value(99, content, &value), "longer, {size}");
        }
    }
}
