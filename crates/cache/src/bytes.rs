//! A sharded cache bounded by bytes, whose capacity can be changed while it is used.
//!
//! Eviction is Clock-PRO with ghost entries (quick_cache), so a scan does not wash out what is read often.
//!
//! Invariants
//! - C1 `used_bytes() <= capacity_bytes()` at any moment: a shard makes room before it admits, under its own lock.
//! - C2 The cache's own bookkeeping is part of an entry's bytes ([`ENTRY_OVERHEAD_BYTES`]).
//! - C3 Nothing is random but the seed: one history of calls gives one content.
//!
//! Tests: `tests` below.

use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::FixedState;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

/// Bytes that a value takes in memory, apart from its own `size_of`.
pub trait Weigh {
    /// Bytes behind the value's pointers. Must not change while the value is cached.
    fn heap_bytes(&self) -> usize;
}

impl<T: ?Sized + Weigh> Weigh for std::sync::Arc<T> {
    fn heap_bytes(&self) -> usize {
        (**self).heap_bytes() + size_of_val(&**self) + 2 * size_of::<usize>()
    }
}

impl Weigh for [u8] {
    fn heap_bytes(&self) -> usize {
        0
    }
}

impl Weigh for u64 {
    fn heap_bytes(&self) -> usize {
        0
    }
}

impl<A: Weigh, B: Weigh> Weigh for (A, B) {
    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes() + self.1.heap_bytes()
    }
}

/// Links, state and counters of an entry, its slot in the hash table and the ghost that it may leave behind.
pub const ENTRY_OVERHEAD_BYTES: u64 = 64;

/// A shard smaller than this would refuse ordinary blocks.
const SHARD_BYTES_MIN: u64 = 1 << 20;
/// Enough that threads seldom meet in one shard.
const SHARDS_MAX: u64 = 64;

#[derive(Clone, Debug)]
struct Bytes;

impl<K: Weigh, V: Weigh> Weighter<K, V> for Bytes {
    fn weight(&self, key: &K, value: &V) -> u64 {
        let own = size_of::<K>() + size_of::<V>() + key.heap_bytes() + value.heap_bytes();
        own as u64 + ENTRY_OVERHEAD_BYTES
    }
}

/// What a cache has done and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Lookups that found their key.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Entries held.
    pub entries: u64,
    /// Bytes held, bookkeeping included.
    pub used_bytes: u64,
    /// Bytes that may be held.
    pub capacity_bytes: u64,
}

/// A cache of `V` by `K`, bounded by bytes.
pub struct ByteCache<K, V> {
    cache: Cache<K, V, Bytes, FixedState>,
    capacity_bytes: AtomicU64,
}

impl<K, V> fmt::Debug for ByteCache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByteCache").field("capacity_bytes", &self.capacity_bytes).finish_non_exhaustive()
    }
}

impl<K: Eq + Hash + Clone + Weigh, V: Clone + Weigh> ByteCache<K, V> {
    /// A cache of `capacity_bytes` (0 holds nothing), for entries of about `entry_bytes`; `seed` fixes the hashing.
    ///
    /// The number of shards is chosen here, from the capacity it begins with; an entry larger than a shard is not
    /// kept.
    #[must_use]
    pub fn new(capacity_bytes: u64, entry_bytes: u64, seed: u64) -> Self {
        let shards = (capacity_bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX).next_power_of_two();
        let items = (capacity_bytes / entry_bytes.max(1)).max(32);
        let shards = usize::try_from(shards).unwrap_or(1);
        let items = usize::try_from(items).unwrap_or(usize::MAX);
        let hasher = FixedState::with_seed(seed);
        let options =
            OptionsBuilder::new().shards(shards).estimated_items_capacity(items).weight_capacity(0).build();
        let cache = match options {
            Ok(options) => Cache::with_options(options, Bytes, hasher, DefaultLifecycle::default()),
            Err(_) => Cache::with(items, 0, Bytes, hasher, DefaultLifecycle::default()),
        };
        let cache = Self { cache, capacity_bytes: AtomicU64::new(0) };
        cache.set_capacity(capacity_bytes);
        cache
    }

    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<V> {
        self.cache.get(key)
    }

    /// The value of `key`, without its counting as a use.
    #[must_use]
    pub fn peek(&self, key: &K) -> Option<V> {
        self.cache.peek(key)
    }

    /// Offers an entry, replacing one of the same key. It may be refused.
    pub fn insert(&self, key: K, value: V) {
        self.cache.insert(key, value);
    }

    /// Takes an entry out.
    pub fn remove(&self, key: &K) -> Option<V> {
        self.cache.remove(key).map(|(_, value)| value)
    }

    /// Takes out every entry of which `keep` answers false. Looks at all of them.
    pub fn retain(&self, keep: impl Fn(&K, &V) -> bool) {
        self.cache.retain(keep);
    }

    /// Takes everything out.
    pub fn clear(&self) {
        self.cache.clear();
    }

    /// Changes the capacity; entries over it are evicted before this returns.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        // The cache rounds a shard's part up; rounding the whole down first keeps C1.
        let shards = self.cache.num_shards() as u64;
        self.cache.set_capacity(capacity_bytes / shards * shards);
        self.capacity_bytes.store(capacity_bytes, Ordering::Relaxed);
    }

    /// Bytes that may be held.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes.load(Ordering::Relaxed)
    }

    /// Bytes held, bookkeeping included.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.cache.weight()
    }

    /// What it has done and holds.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        CacheStats {
            hits: self.cache.hits(),
            misses: self.cache.misses(),
            entries: self.cache.len() as u64,
            used_bytes: self.used_bytes(),
            capacity_bytes: self.capacity_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    type Blocks = ByteCache<(u64, u64), Arc<[u8]>>;

    fn block(len: u64) -> Arc<[u8]> {
        vec![7u8; usize::try_from(len).unwrap()].into()
    }

    #[test]
    fn what_is_put_in_is_found_counted_and_taken_out() {
        let cache = Blocks::new(1 << 20, 4096, 1);
        assert_eq!(cache.get(&(1, 2)), None);
        cache.insert((1, 2), block(100));
        assert_eq!(cache.get(&(1, 2)), Some(block(100)));
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses, stats.entries), (1, 1, 1));
        assert_eq!(stats.used_bytes, 100 + 16 + 32 + ENTRY_OVERHEAD_BYTES);
        assert_eq!(cache.remove(&(1, 2)), Some(block(100)));
        assert_eq!(cache.used_bytes(), 0);
    }

    #[test]
    fn the_bytes_held_never_exceed_the_capacity_whatever_the_sizes() {
        for capacity in [0, 1, 5_000, 1_000_003, 10 << 20] {
            let cache = Blocks::new(capacity, 4096, 1);
            for number in 0..4000u64 {
                cache.insert((number % 700, number % 3), block((number * 7919) % 20_000));
                assert!(cache.used_bytes() <= capacity, "{} of {capacity}", cache.used_bytes());
            }
            assert!(capacity < 100_000 || cache.used_bytes() > capacity / 2);
        }
    }

    #[test]
    fn a_smaller_capacity_evicts_at_once_and_a_larger_one_is_used() {
        let cache = Blocks::new(4 << 20, 4096, 1);
        let fill = || (0..2000).for_each(|number| cache.insert((number, 0), block(4000)));
        for capacity in [4 << 20, 1 << 20, 0, 2 << 20, 6 << 20] {
            cache.set_capacity(capacity);
            assert!(cache.used_bytes() <= capacity);
            fill();
            assert!(cache.used_bytes() <= capacity);
            assert!(cache.used_bytes() >= capacity * 8 / 10, "{} of {capacity}", cache.used_bytes());
        }
        cache.retain(|key, _| key.0 % 2 == 0);
        assert_eq!(cache.peek(&(1, 0)), None);
        cache.clear();
        assert_eq!(cache.used_bytes(), 0);
    }

    #[test]
    fn what_is_read_often_survives_a_scan() {
        let cache = Blocks::new(1 << 20, 4096, 1);
        for _ in 0..5 {
            for number in 0..50 {
                if cache.get(&(number, 0)).is_none() {
                    cache.insert((number, 0), block(4096));
                }
            }
        }
        (1000..6000).for_each(|number| cache.insert((number, 0), block(4096)));
        let kept = (0..50).filter(|&number| cache.peek(&(number, 0)).is_some()).count();
        assert!(kept >= 45, "{kept} of 50");
    }

    #[test]
    fn the_bound_holds_while_threads_fill_it() {
        let cache = Blocks::new(4 << 20, 4096, 1);
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let cache = &cache;
                scope.spawn(move || {
                    (0..3000).for_each(|number| cache.insert((thread, number), block(number % 9000)));
                });
            }
            for _ in 0..500 {
                assert!(cache.used_bytes() <= (4 << 20));
            }
        });
        assert!(cache.used_bytes() <= (4 << 20));
    }

    #[test]
    fn one_seed_and_one_history_give_one_content() {
        let content = || {
            let cache = Blocks::new(3 << 20, 4096, 9);
            for number in 0..5000u64 {
                let key = (number * number % 977, 0);
                if cache.get(&key).is_none() {
                    cache.insert(key, block(number % 9000));
                }
            }
            (0..977).filter(|&number| cache.peek(&(number, 0)).is_some()).collect::<Vec<u64>>()
        };
        assert_eq!(content(), content());
    }
}
