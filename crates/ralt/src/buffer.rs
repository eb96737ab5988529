//! The unsorted buffer: where accesses are written first (paper §3.2).
//!
//! Readers never wait: a thread has a shard of its own, and if that is taken it tries the others once and then lets the access
//! go. A full shard is handed over by a swap. Shards are small, so that most of the memory is where all threads fill it, and what is sorted at once
//! is much: it becomes a run, and each run costs a file. Accesses are lost, and counted, when everything is taken or when more full shards
//! wait than may. No order is kept among shards: an access is stamped when it is sorted, and the clocks are far coarser than that.
//!
//! Tests stand below.

use std::cell::Cell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use kelvin_base::coding::{get_bytes, get_varint, put_bytes, put_varint};
use parking_lot::Mutex;

/// Shards: more than that many threads share them.
const SHARDS: usize = 16;

/// Accesses as they came: of each the length of the value, a varint, and the key behind its length.
#[derive(Debug, Default)]
pub struct Accesses {
    bytes: Vec<u8>,
    count: usize,
}

/// Where an access lies: in which of those taken together, and where it begins there.
pub type Place = (u32, u32);

impl Accesses {
    fn push(&mut self, key: &[u8], value_len: u32) {
        put_varint(&mut self.bytes, u64::from(value_len));
        put_bytes(&mut self.bytes, key);
        self.count += 1;
    }

    /// How many there are.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Memory they take, with their part of the list by which they are sorted, bytes.
    pub const fn bytes(&self) -> usize {
        self.bytes.len() + self.count * size_of::<Place>()
    }

    /// Where each access begins.
    pub fn places(&self) -> impl Iterator<Item = usize> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            let place = self.bytes.len() - rest.len();
            next_of(&mut rest).map(|_| place)
        })
    }

    /// The access that begins at `place`: key and length of the value.
    pub fn at(&self, place: usize) -> Option<(&[u8], u32)> {
        next_of(&mut self.bytes.get(place..)?)
    }
}

/// The first access in `bytes`.
fn next_of<'a>(bytes: &mut &'a [u8]) -> Option<(&'a [u8], u32)> {
    let value_len = u32::try_from(get_varint(bytes)?).ok()?;
    Some((get_bytes(bytes)?, value_len))
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
    /// A buffer that takes about `bytes`, four fifths of them in shards that are full and wait.
    pub fn new(bytes: usize) -> Self {
        let shard_bytes = (bytes / 5 / SHARDS).max(1 << 10);
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            shard_bytes,
            full: Mutex::default(),
            waiting_bytes: AtomicUsize::new(0),
            waiting_bytes_max: (bytes / 5 * 4).max(2 * shard_bytes),
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
            self.lost.fetch_add(accesses.count() as u64, Ordering::Relaxed);
            return true;
        }
        full.push(accesses);
        self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes >= self.sorted_bytes()
    }

    /// What waits when it is time to sort it, bytes; beyond it there is room for what comes until that is done.
    const fn sorted_bytes(&self) -> usize {
        self.waiting_bytes_max / 3 * 2
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
        self.waiting_bytes.load(Ordering::Relaxed) >= self.sorted_bytes()
    }

    /// Accesses that were let go.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Memory it may take, bytes: full shards wait, others were taken and are being sorted, and the rest is being filled.
    pub const fn memory_bytes_max(&self) -> usize {
        2 * self.waiting_bytes_max + SHARDS * self.shard_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(taken: &[Accesses]) -> Vec<(Vec<u8>, u32)> {
        let mut all: Vec<_> = taken
            .iter()
            .flat_map(|one| one.places().map(|place| one.at(place).unwrap()))
            .map(|(key, len)| (key.to_vec(), len))
            .collect();
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
        assert_eq!(taken.iter().map(Accesses::count).sum::<usize>() as u64 + buffer.lost(), 10_000);
        assert!(buffer.lost() > 0 && !buffer.wants_sorting());
    }

    #[test]
    fn what_is_being_sorted_with_its_list_and_what_comes_meanwhile_is_what_was_told() {
        for key_bytes in [1, 24, 500] {
            let buffer = AccessBuffer::new(64 << 10);
            let key = vec![7; key_bytes];
            let fill = || assert!((0..100_000).filter(|_| buffer.push(&key, 1)).count() > 0);
            fill();
            let taken = buffer.take_full();
            fill();
            let held = |one: &Accesses| one.bytes.len();
            let sorted: usize = taken.iter().map(|one| held(one) + one.count() * size_of::<Place>()).sum();
            let full: usize = buffer.full.lock().iter().map(held).sum();
            let filling: usize = buffer.shards.iter().map(|shard| held(&shard.lock())).sum();
            let all = sorted + full + filling;
            let told = buffer.memory_bytes_max();
            assert!(all <= told && all > told / 4, "{all} of {told} with keys of {key_bytes} bytes");
        }
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
