//! The unsorted buffer: where accesses are written first (paper §3.2).
//!
//! Readers never wait: a thread has a shard of its own, and if that is taken it tries the others once and then lets the access
//! go. A full shard is handed over by a swap. Accesses are lost, and counted, when everything is taken or when more full shards
//! wait than may. No order is kept among shards: an access is stamped when it is sorted, and the clocks are far coarser than that.
//!
//! Tests stand below.

use std::cell::Cell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

/// An access in a shard: the key's length, the value's, then the key.
const HEADER_BYTES: usize = 4 + 4;
/// Shards: more than that many threads share them.
const SHARDS: usize = 16;

/// Accesses as they came.
#[derive(Debug, Default)]
pub struct Accesses {
    bytes: Vec<u8>,
    count: u64,
}

impl Accesses {
    fn push(&mut self, key: &[u8], value_len: u32) {
        // Longer keys are refused by whoever writes them.
        let key_len = u32::try_from(key.len()).unwrap_or(u32::MAX);
        self.bytes.extend_from_slice(&key_len.to_le_bytes());
        self.bytes.extend_from_slice(&value_len.to_le_bytes());
        self.bytes.extend_from_slice(key);
        self.count += 1;
    }

    /// How many there are.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Memory they take, bytes.
    pub const fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Each access: key and length of the value.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], u32)> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            let (header, tail) = rest.split_at_checked(HEADER_BYTES)?;
            let number = |at: usize| header.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
            let (key, next) = tail.split_at_checked(usize::try_from(number(0)?).ok()?)?;
            rest = next;
            Some((key, number(4)?))
        })
    }
}

/// The buffer. See the module's documentation.
#[derive(Debug)]
pub struct AccessBuffer {
    shards: Vec<Mutex<Accesses>>,
    shard_bytes: usize,
    full: Mutex<Vec<Accesses>>,
    /// Bytes in `full`.
    waiting_bytes: AtomicUsize,
    waiting_bytes_max: usize,
    lost: AtomicU64,
}

thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The shard of this thread: it follows from the thread's own name for itself.
fn own_shard() -> usize {
    SHARD.with(|shard| {
        if shard.get() == usize::MAX {
            let mut hasher = DefaultHasher::new();
            std::thread::current().id().hash(&mut hasher);
            shard.set(usize::try_from(hasher.finish() % SHARDS as u64).unwrap_or(0));
        }
        shard.get()
    })
}

impl AccessBuffer {
    /// A buffer that takes about `bytes`, half of them in shards that are full and wait.
    pub fn new(bytes: usize) -> Self {
        let shard_bytes = (bytes / 2 / SHARDS).max(1 << 10);
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            shard_bytes,
            full: Mutex::default(),
            waiting_bytes: AtomicUsize::new(0),
            waiting_bytes_max: (bytes / 2).max(2 * shard_bytes),
            lost: AtomicU64::new(0),
        }
    }

    /// Notes an access; true if enough waits to be sorted.
    pub fn push(&self, key: &[u8], value_len: u32) -> bool {
        let own = own_shard();
        let free = (0..SHARDS).find_map(|step| self.shards[(own + step) % SHARDS].try_lock());
        let Some(mut shard) = free else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        shard.push(key, value_len);
        if shard.bytes() < self.shard_bytes {
            return false;
        }
        // Somebody is taking the full ones at this moment: this one goes at the next access.
        let Some(mut full) = self.full.try_lock() else { return true };
        let accesses = std::mem::take(&mut *shard);
        let bytes = accesses.bytes();
        if self.waiting_bytes.load(Ordering::Relaxed) + bytes > self.waiting_bytes_max {
            self.lost.fetch_add(accesses.count(), Ordering::Relaxed);
            return true;
        }
        full.push(accesses);
        self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes >= self.waiting_bytes_max / 2
    }

    /// Takes what is full.
    pub fn take_full(&self) -> Vec<Accesses> {
        let full = std::mem::take(&mut *self.full.lock());
        self.waiting_bytes.fetch_sub(full.iter().map(Accesses::bytes).sum(), Ordering::Relaxed);
        full
    }

    /// Takes everything, also what is not full.
    pub fn take_all(&self) -> Vec<Accesses> {
        let mut all = self.take_full();
        all.extend(self.shards.iter().map(|shard| std::mem::take(&mut *shard.lock())));
        all.retain(|accesses| accesses.count() > 0);
        all
    }

    /// True if enough waits to be sorted.
    pub fn wants_sorting(&self) -> bool {
        self.waiting_bytes.load(Ordering::Relaxed) >= self.waiting_bytes_max / 2
    }

    /// Accesses that were let go.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Memory it may take, with what is being sorted, bytes: full shards wait, others were taken, and of those there is a list.
    pub const fn memory_bytes_max(&self) -> usize {
        3 * self.waiting_bytes_max + SHARDS * self.shard_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(taken: &[Accesses]) -> Vec<(Vec<u8>, u32)> {
        let mut all: Vec<_> =
            taken.iter().flat_map(|one| one.iter().map(|(key, len)| (key.to_vec(), len))).collect();
        all.sort();
        all
    }

    #[test]
    fn every_access_is_taken_once_from_whichever_thread_it_came() {
        let buffer = AccessBuffer::new(1 << 20);
        let key = |thread: u32, number: u32| format!("key-{thread}-{number}").into_bytes();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let buffer = &buffer;
                scope.spawn(move || {
                    for number in 0..500 {
                        buffer.push(&key(thread, number), number);
                    }
                });
            }
        });
        let taken = buffer.take_all();
        let mut want: Vec<_> =
            (0..4).flat_map(|thread| (0..500).map(move |number| (key(thread, number), number))).collect();
        want.sort();
        assert_eq!((all(&taken), buffer.lost()), (want, 0));
        assert!(buffer.take_all().is_empty());
    }

    #[test]
    fn what_nobody_takes_is_let_go_and_counted_and_memory_stays_bounded() {
        let buffer = AccessBuffer::new(64 << 10);
        let mut asked_for_sorting = 0;
        for number in 0..10_000u32 {
            asked_for_sorting += u32::from(buffer.push(&number.to_be_bytes(), 1));
        }
        assert!(asked_for_sorting > 0 && buffer.wants_sorting());
        let taken = buffer.take_all();
        let bytes: usize = taken.iter().map(Accesses::bytes).sum();
        assert!(bytes <= buffer.memory_bytes_max(), "{bytes}");
        assert_eq!(taken.iter().map(Accesses::count).sum::<u64>() + buffer.lost(), 10_000);
        assert!(buffer.lost() > 0 && !buffer.wants_sorting());
    }

    #[test]
    fn an_access_does_not_wait_for_a_shard_that_is_taken() {
        let buffer = AccessBuffer::new(1 << 20);
        let taken: Vec<_> = buffer.shards.iter().map(|shard| shard.lock()).collect();
        buffer.push(b"key", 1);
        assert_eq!(buffer.lost(), 1);
        drop(taken);
        buffer.push(b"key", 1);
        assert_eq!(all(&buffer.take_all()), [(b"key".to_vec(), 1)]);
    }
}
