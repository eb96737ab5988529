//! What is known of each key of a trace, by a fingerprint of the key: the keys themselves are not held.
//!
//! Bound: 56 bytes for each distinct key, at most twice that while half of the table is empty and three times while it
//! grows; a table that would take more than it may is refused before it is made. Two keys are taken for one with a
//! probability below `keys² / 2^97`. Tests: below.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use kelvin_base::hash::{hash64, hash64_seeded};
use kelvin_base::{Error, Result};

/// A seed apart from every other use of the hash.
const SEED: u64 = 0x7261_6365;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fingerprint([u32; 3]);

impl Fingerprint {
    fn of(key: &[u8]) -> Self {
        let first = hash64(key).to_le_bytes();
        let second = hash64_seeded(SEED, key).to_le_bytes();
        let part = |bytes: [u8; 8], at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Self([part(first, 0), part(first, 4), part(second, 0)])
    }
}

impl Hash for Fingerprint {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.0[0]) | u64::from(self.0[1]) << 32);
    }
}

/// Takes the fingerprint, which is a hash already, for its own hash.
#[derive(Debug, Default)]
struct Itself(u64);

impl Hasher for Itself {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = hash64(bytes);
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// A value for each key, within a bound.
#[derive(Debug)]
pub struct KeyTable<V> {
    values: HashMap<Fingerprint, V, BuildHasherDefault<Itself>>,
    bytes_max: u64,
}

impl<V: Default> KeyTable<V> {
    /// An empty table that never takes more than `bytes_max`.
    #[must_use]
    pub fn new(bytes_max: u64) -> Self {
        Self { values: HashMap::default(), bytes_max }
    }

    /// How many keys it knows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// The value of `key`, made if the key is new.
    ///
    /// # Errors
    /// `InvalidArgument` if the table would have to grow beyond its bound.
    pub fn at(&mut self, key: &[u8]) -> Result<&mut V> {
        let fingerprint = Fingerprint::of(key);
        if self.values.len() == self.values.capacity() && !self.values.contains_key(&fingerprint) {
            self.check_growth()?;
        }
        Ok(self.values.entry(fingerprint).or_default())
    }

    /// Forgets all values, and keeps the keys.
    pub fn reset(&mut self) {
        self.values.values_mut().for_each(|value| *value = V::default());
    }

    /// The table is full: it doubles, and both lie beside each other meanwhile.
    fn check_growth(&self) -> Result<()> {
        let places = (self.values.capacity() as u64 * 8 / 7).max(4) * 3;
        let bytes = places * (size_of::<(Fingerprint, V)>() as u64 + 1);
        if bytes <= self.bytes_max {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "the trace has more than {} distinct keys: to know them takes {bytes} bytes of memory",
            self.values.len()
        ))
        .expected(format!("at most {} bytes", self.bytes_max), bytes)
        .advice("give more with --prepare-memory (it is free again before the store is opened), or use less of the trace with --data"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_its_own_value_and_a_bound_is_kept() {
        let mut table: KeyTable<u64> = KeyTable::new(1 << 20);
        let mut known = 0;
        let error = loop {
            match table.at(format!("key{known}").as_bytes()) {
                Ok(value) => *value = known,
                Err(error) => break error,
            }
            known += 1;
        };
        assert!((5_000..40_000).contains(&known), "{known} keys in a MiB");
        assert!(error.to_string().contains("--prepare-memory"), "{error}");
        for key in 0..known {
            assert_eq!(*table.at(format!("key{key}").as_bytes()).unwrap(), key, "also of a full table");
        }
        assert_eq!(table.len() as u64, known);
        table.reset();
        assert_eq!((*table.at(b"key7").unwrap(), table.len() as u64), (0, known));
    }
}
