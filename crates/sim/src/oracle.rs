//! What the store must answer: every version of every key in a `BTreeMap`, written in one step each.
//!
//! It lives outside the storage seam and shares no code with the engine. Moments are indices into the list of
//! committed writes, so a snapshot is a number.

use std::collections::BTreeMap;
use std::ops::Bound;

/// A version: when it was written, and the value with its expiry (Unix milliseconds), or a deletion.
type Version = (u64, Option<(Vec<u8>, Option<u64>)>);

/// One keyspace's history.
#[derive(Clone, Debug, Default)]
pub struct History {
    keys: BTreeMap<Vec<u8>, Vec<Version>>,
}

impl History {
    fn push(&mut self, key: &[u8], version: Version) {
        self.keys.entry(key.to_vec()).or_default().push(version);
    }

    /// Every key that was ever written, in order.
    pub fn keys(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.keys.keys()
    }

    /// The value of `key` at `moment`, when the wall clock says `now_ms`.
    #[must_use]
    pub fn get(&self, key: &[u8], moment: u64, now_ms: u64) -> Option<&[u8]> {
        visible(self.keys.get(key)?, moment, now_ms)
    }

    /// Pairs with `lower <= key < upper` at `moment`, in order.
    #[must_use]
    pub fn scan(
        &self,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
        moment: u64,
        now_ms: u64,
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        if let (Some(lower), Some(upper)) = (lower, upper)
            && lower >= upper
        {
            return Vec::new();
        }
        let lower = lower.map_or(Bound::Unbounded, |key| Bound::Included(key.to_vec()));
        let upper = upper.map_or(Bound::Unbounded, |key| Bound::Excluded(key.to_vec()));
        self.keys
            .range((lower, upper))
            .filter_map(|(key, versions)| {
                visible(versions, moment, now_ms).map(|value| (key.clone(), value.to_vec()))
            })
            .collect()
    }
}

fn visible(versions: &[Version], moment: u64, now_ms: u64) -> Option<&[u8]> {
    let (_, newest) = versions.iter().rev().find(|(written, _)| *written <= moment)?;
    let (value, expiry) = newest.as_ref()?;
    if expiry.is_some_and(|expiry| expiry <= now_ms) { None } else { Some(value) }
}

/// One write of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Sets a key, perhaps until `expiry_ms`.
    Put {
        /// Keyspace.
        keyspace: String,
        /// Key.
        key: Vec<u8>,
        /// Value.
        value: Vec<u8>,
        /// Unix milliseconds.
        expiry_ms: Option<u64>,
    },
    /// Removes a key.
    Delete {
        /// Keyspace.
        keyspace: String,
        /// Key.
        key: Vec<u8>,
    },
    /// Removes the keys in `[start, end)`.
    DeleteRange {
        /// Keyspace.
        keyspace: String,
        /// First key.
        start: Vec<u8>,
        /// Key behind the last.
        end: Vec<u8>,
    },
}

/// The model of a store.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    keyspaces: BTreeMap<String, History>,
    moment: u64,
}

impl Oracle {
    /// That of a store just made.
    #[must_use]
    pub fn empty() -> Self {
        let mut oracle = Self::default();
        oracle.create("default");
        oracle
    }

    /// Now.
    #[must_use]
    pub const fn moment(&self) -> u64 {
        self.moment
    }

    /// Forgets what was written after `moment`.
    pub fn rewind(&mut self, moment: u64) {
        self.moment = self.moment.min(moment);
        for history in self.keyspaces.values_mut() {
            history.keys.retain(|_, versions| {
                versions.retain(|(written, _)| *written <= moment);
                !versions.is_empty()
            });
        }
    }

    /// Makes a keyspace if there is none.
    pub fn create(&mut self, keyspace: &str) {
        self.keyspaces.entry(keyspace.to_string()).or_default();
    }

    /// Drops a keyspace.
    pub fn drop_keyspace(&mut self, keyspace: &str) {
        self.keyspaces.remove(keyspace);
    }

    /// Names of the keyspaces, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.keyspaces.keys().cloned().collect()
    }

    /// The history of a keyspace.
    #[must_use]
    pub fn keyspace(&self, name: &str) -> Option<&History> {
        self.keyspaces.get(name)
    }

    /// Commits `writes` as one batch: later writes of a batch win over earlier ones.
    pub fn commit(&mut self, writes: &[Write]) {
        self.moment += 1;
        let now = self.moment;
        for write in writes {
            match write {
                Write::Put { keyspace, key, value, expiry_ms } => self
                    .keyspaces
                    .entry(keyspace.clone())
                    .or_default()
                    .push(key, (now, Some((value.clone(), *expiry_ms)))),
                Write::Delete { keyspace, key } => {
                    self.keyspaces.entry(keyspace.clone()).or_default().push(key, (now, None));
                }
                Write::DeleteRange { keyspace, start, end } => {
                    let history = self.keyspaces.entry(keyspace.clone()).or_default();
                    if start < end {
                        for versions in history.keys.range_mut(start.clone()..end.clone()).map(|(_, v)| v) {
                            versions.push((now, None));
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &[u8], value: &[u8], expiry_ms: Option<u64>) -> Write {
        Write::Put { keyspace: "a".into(), key: key.to_vec(), value: value.to_vec(), expiry_ms }
    }

    #[test]
    fn a_moment_keeps_what_was_overwritten_deleted_and_expired_since() {
        let mut oracle = Oracle::default();
        oracle.commit(&[put(b"k", b"1", None), put(b"l", b"2", Some(50))]);
        let then = oracle.moment();
        oracle.commit(&[Write::DeleteRange {
            keyspace: "a".into(),
            start: b"a".to_vec(),
            end: b"l".to_vec(),
        }]);
        let history = oracle.keyspace("a").unwrap();
        assert_eq!(history.get(b"k", then, 0), Some(b"1".as_slice()));
        assert_eq!(history.get(b"k", oracle.moment(), 0), None);
        assert_eq!(history.scan(None, None, then, 49).len(), 2);
        assert_eq!(history.scan(Some(b"k"), Some(b"l"), then, 49), vec![(b"k".to_vec(), b"1".to_vec())]);
        assert_eq!(history.get(b"l", oracle.moment(), 50), None, "it expires at its expiry time");
        oracle.rewind(then);
        assert_eq!(oracle.moment(), then);
        assert_eq!(oracle.keyspace("a").unwrap().get(b"k", then + 1, 0), Some(b"1".as_slice()));
    }
}
