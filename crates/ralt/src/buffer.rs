//! The unsorted buffer: where accesses are written first (paper §3.2).
//!
//! Readers never wait: a thread has a shard of its own, and if that is taken it tries the others once and then lets the access
//! go. A full shard is handed over by a swap. Shards are small, so that most of the memory is where all threads fill it, and what is sorted at once
//! is much: it becomes a run, and each run costs a file. Accesses are lost, and counted, when everything is taken or when more full shards
//! wait than may. No order is kept among shards: an access is stamped when it is sorted, and the clocks are far coarser than that.
//!
//! Tests stand below, model tests in `buffer/loom_tests.rs`.

use kelvin_base::KEY_BYTES_MAX;
use kelvin_base::coding::{get_bytes, get_varint, put_bytes, put_varint};
use kelvin_base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use kelvin_base::sync::{self, Mutex};

#[cfg(all(loom, test))]
mod loom_tests;

/// Shards: more than that many threads share them. A model, which tries every order of their locks, has few.
const SHARDS: usize = if cfg!(loom) { 2 } else { 16 };

/// More than this is never gathered, bytes: what was taken together is counted in 32 bits.
const BYTES_MAX: usize = 1 << 30;

/// Accesses as they came: of each the length of the value, a varint, and the key behind its length.
#[derive(Debug, Default)]
struct Accesses {
    bytes: Vec<u8>,
    count: usize,
}

impl Accesses {
    fn push(&mut self, key: &[u8], value_len: u32) {
        put_varint(&mut self.bytes, u64::from(value_len));
        put_bytes(&mut self.bytes, key);
        self.count += 1;
    }

    /// Memory they take, with their part of the list by which they are sorted, bytes.
    const fn bytes(&self) -> usize {
        self.bytes.len() + self.count * size_of::<Place>()
    }

    /// Where each access begins, its key and the length of its value.
    fn each(&self) -> impl Iterator<Item = (usize, &[u8], u32)> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            let begin = self.bytes.len() - rest.len();
            next_of(&mut rest).map(|(key, value_len)| (begin, key, value_len))
        })
    }
}

/// An access among those that were taken together, for sorting: the first bytes of its key that not all keys have alike, and where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Keys that differ here are in this order; of keys that do not, nothing is known.
    pub prefix: u32,
    /// The number of what it was taken with, and where it begins in that. Of two accesses the one noted later by a thread lies behind.
    pub offset: u32,
}

/// What was taken together.
#[derive(Debug)]
pub struct Taken {
    all: Vec<Accesses>,
    /// In an offset these lowest bits are where an access begins.
    offset_bits: u32,
}

impl Taken {
    fn new(mut all: Vec<Accesses>) -> Self {
        all.retain(|accesses| accesses.count > 0);
        let longest = all.iter().map(|accesses| accesses.bytes.len()).max().unwrap_or(0);
        Self { all, offset_bits: longest.max(1).ilog2() + 1 }
    }

    /// How many accesses there are.
    pub fn count(&self) -> usize {
        self.all.iter().map(|accesses| accesses.count).sum()
    }

    /// Keys of all accesses, and the lengths of their values.
    pub fn each(&self) -> impl Iterator<Item = (&[u8], u32)> {
        self.all.iter().flat_map(Accesses::each).map(|(_, key, value_len)| (key, value_len))
    }

    /// Where all accesses lie.
    pub fn places(&self) -> Vec<Place> {
        let mut keys = self.each().map(|(key, _)| key);
        let first = keys.next().unwrap_or_default();
        let alike = keys.fold(first.len(), |alike, key| {
            first[..alike].iter().zip(key).take_while(|(a, b)| a == b).count()
        });
        let mut places = Vec::with_capacity(self.count());
        for (number, accesses) in self.all.iter().enumerate() {
            let place = |(at, key, _): (usize, &[u8], u32)| {
                let mut prefix = [0; 4];
                prefix.iter_mut().zip(&key[alike..]).for_each(|(to, from)| *to = *from);
                // The buffer takes far less than can be counted here.
                let offset = u32::try_from(number << self.offset_bits | at).unwrap_or(u32::MAX);
                Place { prefix: u32::from_be_bytes(prefix), offset }
            };
            places.extend(accesses.each().map(place));
        }
        places
    }

    /// The access at `place`: key and length of the value.
    pub fn at(&self, place: Place) -> Option<(&[u8], u32)> {
        let offset = usize::try_from(place.offset).ok()?;
        let (number, at) = (offset >> self.offset_bits, offset & ((1 << self.offset_bits) - 1));
        next_of(&mut self.all.get(number)?.bytes.get(at..)?)
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

/// The shard of this thread: it follows from the thread's number.
fn own_shard() -> usize {
    usize::try_from(sync::current_number() % SHARDS as u64).unwrap_or(0)
}

impl AccessBuffer {
    /// A buffer that takes about `bytes`, four fifths of them in shards that are full and wait.
    pub fn new(bytes: usize) -> Self {
        let bytes = bytes.min(BYTES_MAX);
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

    /// Notes an access; true if enough waits to be sorted. Of a key that no run could hold nothing is noted.
    pub fn push(&self, key: &[u8], value_len: u32) -> bool {
        key.len() <= KEY_BYTES_MAX && self.push_from(own_shard(), key, value_len)
    }

    /// The same for a thread whose shard is `own`.
    fn push_from(&self, own: usize, key: &[u8], value_len: u32) -> bool {
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
            self.lost.fetch_add(accesses.count as u64, Ordering::Relaxed);
            return true;
        }
        full.push(accesses);
        self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes >= self.sorted_bytes()
    }

    /// What waits when it is time to sort it, bytes; beyond it there is room for what comes until that is done.
    const fn sorted_bytes(&self) -> usize {
        self.waiting_bytes_max / 5 * 4
    }

    /// Takes what is full.
    pub fn take_full(&self) -> Taken {
        Taken::new(self.full_ones())
    }

    fn full_ones(&self) -> Vec<Accesses> {
        let full = std::mem::take(&mut *self.full.lock());
        self.waiting_bytes.fetch_sub(full.iter().map(Accesses::bytes).sum(), Ordering::Relaxed);
        full
    }

    /// Takes everything, also what is not full.
    pub fn take_all(&self) -> Taken {
        let mut all = self.full_ones();
        all.extend(self.shards.iter().map(|shard| std::mem::take(&mut *shard.lock())));
        Taken::new(all)
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

    fn all(taken: &Taken) -> Vec<(Vec<u8>, u32)> {
        let mut all: Vec<_> = taken.each().map(|(key, len)| (key.to_vec(), len)).collect();
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
        assert_eq!(buffer.take_all().count(), 0);
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
        let bytes: usize = taken.all.iter().map(Accesses::bytes).sum();
        assert!(bytes <= buffer.memory_bytes_max(), "{bytes}");
        assert_eq!(taken.count() as u64 + buffer.lost(), 10_000);
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
            let sorted: usize = taken.all.iter().map(|one| held(one) + one.count * size_of::<Place>()).sum();
            let full: usize = buffer.full.lock().iter().map(held).sum();
            let filling: usize = buffer.shards.iter().map(|shard| held(&shard.lock())).sum();
            let all = sorted + full + filling;
            let told = buffer.memory_bytes_max();
            assert!(all <= told && all > told / 4, "{all} of {told} with keys of {key_bytes} bytes");
        }
    }

    #[test]
    fn places_lead_to_the_accesses_and_prefixes_are_in_the_order_of_the_keys() {
        let keys: [&[u8]; 9] = [
            b"user",
            b"user\0",
            b"user0001",
            b"user00010",
            b"user0002",
            b"user1",
            b"user\xff\xff\xff\xff\x01",
            b"user\xff\xff\xff\xff",
            b"user0001",
        ];
        let buffer = AccessBuffer::new(1 << 20);
        let sorted = |mut keys: Vec<&[u8]>| {
            keys.sort_unstable();
            keys.concat()
        };
        for some in [&keys[..], &keys[2..5], &keys[2..3], &[]] {
            for (at, key) in (0..).zip(some) {
                buffer.push(key, at);
            }
            let taken = buffer.take_all();
            let places = taken.places();
            let found = places.iter().map(|place| taken.at(*place).unwrap().0).collect();
            assert_eq!(sorted(found), sorted(some.to_vec()));
            for (a, b) in places.iter().flat_map(|a| places.iter().map(move |b| (a, b))) {
                let [key, other] = [a, b].map(|place| taken.at(*place).unwrap().0);
                assert!(a.prefix >= b.prefix || key < other, "{key:?} {other:?}");
            }
        }
        assert_eq!(AccessBuffer::new(0).take_all().at(Place { prefix: 0, offset: 0 }), None);
    }

    #[test]
    fn of_a_key_that_no_run_could_hold_nothing_is_noted() {
        let buffer = AccessBuffer::new(1 << 20);
        buffer.push(&[1; KEY_BYTES_MAX + 1], 1);
        buffer.push(&[1; KEY_BYTES_MAX], 1);
        assert_eq!(all(&buffer.take_all()), [(vec![1; KEY_BYTES_MAX], 1)]);
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
