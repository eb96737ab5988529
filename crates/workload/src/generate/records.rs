//! Keys and values of a record, derived from its index, its version and the seed, and checked when read back.
//!
//! A key is `user` and twenty digits of the mixed index, padded with zeros to its size (short keys: the mixed index
//! itself). A value starts with index and version; its first half is noise cut from a shared pool, its second half one
//! repeated byte, so that it compresses to about half. Sparse values, those of simulations, are zeros there. Invariant: different indexes have different keys, and a value of
//! one (index, version) is never taken for another's.

use std::sync::Arc;

use kelvin_base::{Error, ErrorKind, Result};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::permutation::{mix64, unmix64};

/// Least key size, bytes: the mixed index.
pub const KEY_SIZE_MIN: usize = 8;
/// Least value size, bytes: index and version.
pub const VALUE_SIZE_MIN: usize = 16;
/// Size from which keys are readable text.
const TEXT_KEY_SIZE: usize = 24;
const POOL_BYTES: usize = 1 << 20;

/// Makes and checks the records of one benchmark.
#[derive(Clone, Debug)]
pub struct Records {
    key_size: usize,
    value_size: usize,
    noise_size: usize,
    /// Behind index and version there is nothing but zeros.
    is_sparse: bool,
    seed: u64,
    pool: Arc<[u8]>,
}

impl Records {
    /// Records with keys and values of these sizes, bytes.
    ///
    /// # Errors
    /// `InvalidArgument` if a size is below [`KEY_SIZE_MIN`] or [`VALUE_SIZE_MIN`], or a value above one MiB.
    pub fn new(key_size: usize, value_size: usize, seed: u64) -> Result<Self> {
        if !(KEY_SIZE_MIN..=kelvin_base::KEY_BYTES_MAX).contains(&key_size) {
            return Err(Error::invalid("key size out of range")
                .expected(format!("{KEY_SIZE_MIN} to {} bytes", kelvin_base::KEY_BYTES_MAX), key_size));
        }
        if !(VALUE_SIZE_MIN..=POOL_BYTES).contains(&value_size) {
            return Err(Error::invalid("value size out of range")
                .expected(format!("{VALUE_SIZE_MIN} to {POOL_BYTES} bytes"), value_size));
        }
        let noise_size = (value_size / 2).saturating_sub(VALUE_SIZE_MIN);
        let mut pool = vec![0; POOL_BYTES + noise_size];
        Xoshiro256PlusPlus::seed_from_u64(seed).fill_bytes(&mut pool);
        Ok(Self { key_size, value_size, noise_size, is_sparse: false, seed, pool: pool.into() })
    }

    /// The same with values of zeros behind index and version: files in memory keep those as little more than their length.
    #[must_use]
    pub fn sparse(self) -> Self {
        Self { noise_size: 0, is_sparse: true, ..self }
    }

    /// What they are made of takes so much memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.pool.len() as u64
    }

    /// Bytes of a key and its value.
    #[must_use]
    pub fn record_bytes(&self) -> u64 {
        (self.key_size + self.value_size) as u64
    }

    /// What the key of record `index` is made of: keys are in the order of these.
    const fn place(&self, index: u64) -> u64 {
        mix64(index.wrapping_add(mix64(self.seed)))
    }

    /// The records before `count` in the order of their keys; takes eight bytes of memory a record.
    pub fn in_key_order(&self, count: u64) -> impl Iterator<Item = u64> {
        let mut places: Vec<u64> = (0..count).map(|index| self.place(index)).collect();
        places.sort_unstable();
        let offset = mix64(self.seed);
        places.into_iter().map(move |place| unmix64(place).wrapping_sub(offset))
    }

    /// Writes the key of record `index` into `key`.
    pub fn key_into(&self, index: u64, key: &mut Vec<u8>) {
        key.clear();
        let mixed = self.place(index);
        if self.key_size < TEXT_KEY_SIZE {
            key.extend_from_slice(&mixed.to_be_bytes());
            key.resize(self.key_size, 0);
            return;
        }
        key.extend_from_slice(b"user00000000000000000000");
        let (mut rest, mut place) = (mixed, TEXT_KEY_SIZE);
        while rest > 0 {
            place -= 1;
            key[place] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
            rest /= 10;
        }
        key.resize(self.key_size, b'0');
    }

    /// Writes the value of `version` of record `index` into `value`.
    pub fn value_into(&self, index: u64, version: u64, value: &mut Vec<u8>) {
        value.clear();
        value.extend_from_slice(&index.to_le_bytes());
        value.extend_from_slice(&version.to_le_bytes());
        let (noise, filler) = self.body(index, version);
        value.extend_from_slice(noise);
        value.resize(self.value_size, filler);
    }

    fn body(&self, index: u64, version: u64) -> (&[u8], u8) {
        let place = mix64(index ^ mix64(version.wrapping_add(self.seed)));
        let start = usize::try_from(place % POOL_BYTES as u64).unwrap_or(0);
        let filler = if self.is_sparse { 0 } else { place.to_be_bytes()[0] };
        (&self.pool[start..start + self.noise_size], filler)
    }

    /// Checks every byte of `value`, read under `key`; the record's index and version.
    ///
    /// # Errors
    /// `Corruption` if it is not a value of this key.
    pub fn check(&self, key: &[u8], value: &[u8]) -> Result<(u64, u64)> {
        let wrong = |what: &str| {
            Error::new(ErrorKind::Corruption, format!("the store returned a wrong value: {what}"))
                .advice(format!("key {}", String::from_utf8_lossy(key)))
        };
        let number =
            |at: usize| value.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
        let (Some(index), Some(version)) = (number(0), number(8)) else {
            return Err(wrong("it is too short"));
        };
        if value.len() != self.value_size {
            return Err(wrong("its length is not the one written").expected(self.value_size, value.len()));
        }
        let mut own_key = Vec::with_capacity(self.key_size);
        self.key_into(index, &mut own_key);
        if own_key != key {
            return Err(wrong(&format!("it belongs to record {index}")));
        }
        let (noise, filler) = self.body(index, version);
        let (found, rest) = value[VALUE_SIZE_MIN..].split_at(self.noise_size);
        // Equal to the filler and equal to its own neighbour, everywhere: two comparisons of memory, no loop by byte.
        let is_filled =
            rest.first().is_none_or(|&first| first == filler && rest[1..] == rest[..rest.len() - 1]);
        if found != noise || !is_filled {
            return Err(wrong(&format!("bytes differ from those of record {index}, version {version}")));
        }
        Ok((index, version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_in_the_order_of_their_keys_each_once() {
        for size in [8, 23, 24, 40] {
            let records = Records::new(size, 100, 7).unwrap();
            let indexes: Vec<u64> = records.in_key_order(1000).collect();
            let mut keys = vec![Vec::new(); 1000];
            indexes.iter().zip(&mut keys).for_each(|(index, key)| records.key_into(*index, key));
            assert!(keys.is_sorted_by(|one, next| one < next), "{size}");
            assert_eq!(indexes.iter().collect::<std::collections::BTreeSet<_>>().len(), 1000);
        }
    }

    #[test]
    fn keys_have_their_size_and_differ() {
        for size in [8, 16, 23, 24, 40] {
            let records = Records::new(size, 100, 5).unwrap();
            let mut keys: Vec<Vec<u8>> = (0..2000)
                .map(|index| {
                    let mut key = Vec::new();
                    records.key_into(index, &mut key);
                    assert_eq!(key.len(), size);
                    key
                })
                .collect();
            keys.sort();
            keys.dedup();
            assert_eq!(keys.len(), 2000);
        }
    }

    #[test]
    fn a_value_checks_and_any_changed_byte_does_not() {
        for size in [16, 17, 31, 48, 176, 1000] {
            let records = Records::new(24, size, 5).unwrap();
            let (mut key, mut value) = (Vec::new(), Vec::new());
            records.key_into(3, &mut key);
            records.value_into(3, 9, &mut value);
            assert_eq!((value.len(), records.check(&key, &value).unwrap()), (size, (3, 9)));
            for at in (0..size).filter(|&at| !(8..16).contains(&at)) {
                value[at] ^= 1;
                assert!(records.check(&key, &value).is_err(), "size {size}, byte {at}");
                value[at] ^= 1;
            }
            assert!(records.check(b"user-of-somebody-else-00", &value).is_err());
            assert!(records.check(&key, &value[..size - 1]).is_err());
        }
    }

    #[test]
    fn sparse_values_are_checked_like_others() {
        let records = Records::new(24, 1000, 5).unwrap().sparse();
        let (mut key, mut value) = (Vec::new(), Vec::new());
        records.key_into(3, &mut key);
        records.value_into(3, 9, &mut value);
        assert!(value.len() == 1000 && value[16..] == [0; 984]);
        assert_eq!(records.check(&key, &value).unwrap(), (3, 9));
        value[999] = 1;
        assert!(records.check(&key, &value).is_err());
    }

    #[test]
    fn sizes_out_of_range_are_refused() {
        assert!(Records::new(7, 100, 0).is_err());
        assert!(Records::new(24, 15, 0).is_err());
        assert!(Records::new(24, 2 << 20, 0).is_err());
    }
}
