//! A bump allocator for many threads: memory is handed out without a lock and freed all at once.
//!
//! Invariants
//! - Every allocation is [`ALIGN`]-aligned, lies inside one chunk, and overlaps no other.
//! - A chunk is freed only by the arena's drop, so an allocation lives as long as the arena.
//! - The bytes of an allocation are uninitialised and belong to the caller alone until the caller shares them.
//!
//! The current chunk is claimed by adding to its `used`; a thread that finds it full installs the next under
//! `grow`. Chunks grow from [`CHUNK_BYTES_MIN`] by doubling to [`CHUNK_BYTES_MAX`], so a small memtable stays
//! small; a large allocation gets a chunk of its own and leaves the current one in use.
//! Tests: below, and model tests in `loom_tests.rs`.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};

use kelvin_base::pages;
use kelvin_base::sync::Mutex;
use kelvin_base::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Alignment of every allocation, bytes.
pub(super) const ALIGN: usize = 8;
/// The first chunk, bytes.
const CHUNK_BYTES_MIN: usize = 4 * 1024;
/// From this size on a chunk comes from the system by the page: what is freed is then no longer resident.
const MAPPED_BYTES_MIN: usize = 64 * 1024;
/// The largest chunk that is shared, bytes.
const CHUNK_BYTES_MAX: usize = 1024 * 1024;

/// In front of a chunk's memory.
struct Chunk {
    /// The chunk installed before, or null. Written before the chunk is shared.
    older: *mut Chunk,
    /// Bytes behind the header.
    capacity: usize,
    /// Bytes claimed; runs past `capacity` by the claims that did not fit.
    used: AtomicUsize,
}

const HEADER_BYTES: usize = size_of::<Chunk>().next_multiple_of(ALIGN);

/// What growing needs, under the lock.
struct Grow {
    /// Every chunk, linked through `older`.
    newest: *mut Chunk,
    /// Capacity of the next shared chunk, bytes.
    next_bytes: usize,
}

/// The allocator. See the module's documentation.
pub(super) struct Arena {
    /// The chunk that allocations are claimed from, or null before the first.
    current: AtomicPtr<Chunk>,
    /// Bytes taken from the system allocator, headers included.
    reserved: AtomicUsize,
    /// Bytes of chunks that are no longer current, wasted tails included.
    closed: AtomicUsize,
    grow: Mutex<Grow>,
}

// SAFETY: chunks are owned by the arena alone and reached through atomics and the lock; handing the arena to
// another thread hands over everything.
unsafe impl Send for Arena {}
// SAFETY: `allocate` is the only shared operation that touches chunks; claims are atomic additions, and the raw
// pointers in `grow` are only used under its lock.
unsafe impl Sync for Arena {}

impl Arena {
    pub(super) fn new() -> Self {
        Self {
            current: AtomicPtr::new(ptr::null_mut()),
            reserved: AtomicUsize::new(0),
            closed: AtomicUsize::new(0),
            grow: Mutex::new(Grow { newest: ptr::null_mut(), next_bytes: CHUNK_BYTES_MIN }),
        }
    }

    /// `size` bytes (at least 1) at [`ALIGN`], uninitialised, valid until the arena drops.
    pub(super) fn allocate(&self, size: usize) -> NonNull<u8> {
        let size = size.max(1).next_multiple_of(ALIGN);
        loop {
            let current = self.current.load(Ordering::Acquire);
            if let Some(memory) = Self::claim(current, size) {
                return memory;
            }
            if let Some(memory) = self.allocate_slow(current, size) {
                return memory;
            }
        }
    }

    /// Claims `size` bytes of `chunk`, which is null or a chunk of this arena.
    fn claim(chunk: *mut Chunk, size: usize) -> Option<NonNull<u8>> {
        if chunk.is_null() {
            return None;
        }
        // SAFETY: chunks live as long as the arena, and `current` was read with Acquire, so the header is written.
        let header = unsafe { &*chunk };
        // The check in front keeps `used` from growing without bound while a new chunk is on its way.
        if header.used.load(Ordering::Relaxed) + size > header.capacity {
            return None;
        }
        // Relaxed: the claim only has to be exclusive; the memory is shared later, by its owner.
        let start = header.used.fetch_add(size, Ordering::Relaxed);
        if start + size > header.capacity {
            return None;
        }
        // SAFETY: `start + size <= capacity`, and the chunk has `capacity` bytes behind its header. The addition to
        // `used` gave `start..start + size` to this call alone.
        NonNull::new(unsafe { chunk.cast::<u8>().add(HEADER_BYTES + start) })
    }

    /// Makes room after `full` could not serve `size` bytes: a chunk of its own for a large one, else a new current
    /// chunk. `None` if another thread made room first.
    #[cold]
    fn allocate_slow(&self, full: *mut Chunk, size: usize) -> Option<NonNull<u8>> {
        let mut grow = self.grow.lock();
        if self.current.load(Ordering::Acquire) != full {
            return None;
        }
        // A large allocation would waste too much of the current chunk's tail if it replaced it.
        if size > CHUNK_BYTES_MAX / 4 {
            let chunk = self.new_chunk(&mut grow, size);
            self.closed.fetch_add(HEADER_BYTES + size, Ordering::Relaxed);
            return Self::claim(chunk, size);
        }
        while grow.next_bytes < size * 2 + HEADER_BYTES {
            grow.next_bytes *= 2;
        }
        let capacity = grow.next_bytes - HEADER_BYTES;
        grow.next_bytes = (grow.next_bytes * 2).min(CHUNK_BYTES_MAX);
        if !full.is_null() {
            // SAFETY: `full` is a chunk of this arena, alive until drop.
            let closed = HEADER_BYTES + unsafe { &*full }.capacity;
            self.closed.fetch_add(closed, Ordering::Relaxed);
        }
        let chunk = self.new_chunk(&mut grow, capacity);
        let memory = Self::claim(chunk, size);
        self.current.store(chunk, Ordering::Release);
        memory
    }

    /// A chunk of `capacity` bytes, owned by the arena from now on.
    fn new_chunk(&self, grow: &mut Grow, capacity: usize) -> *mut Chunk {
        let layout = chunk_layout(capacity);
        let memory = if layout.size() >= MAPPED_BYTES_MIN {
            pages::map(layout.size()).as_ptr().cast::<Chunk>()
        } else {
            // SAFETY: the layout has at least the header's size.
            unsafe { alloc(layout) }.cast::<Chunk>()
        };
        if memory.is_null() {
            handle_alloc_error(layout);
        }
        let header = Chunk { older: grow.newest, capacity, used: AtomicUsize::new(0) };
        // SAFETY: the memory is large enough and aligned for a header by `chunk_layout`, and nobody else has it.
        unsafe { memory.write(header) };
        grow.newest = memory;
        self.reserved.fetch_add(layout.size(), Ordering::Relaxed);
        memory
    }

    /// Bytes taken from the system, used or not.
    #[cfg(all(test, not(loom)))]
    pub(super) fn reserved_bytes(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Bytes that cannot be allocated any more: handed out, headers, wasted tails.
    pub(super) fn used_bytes(&self) -> usize {
        let current = self.current.load(Ordering::Acquire);
        let open = if current.is_null() {
            0
        } else {
            // SAFETY: chunks live as long as the arena.
            let header = unsafe { &*current };
            HEADER_BYTES + header.used.load(Ordering::Relaxed).min(header.capacity)
        };
        self.closed.load(Ordering::Relaxed) + open
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let mut chunk = self.grow.lock().newest;
        while !chunk.is_null() {
            // SAFETY: nobody else holds the arena, so every chunk in the list is alive and reached only here; its
            // `older` was written before it entered the list.
            let (older, capacity) = unsafe { ((*chunk).older, (*chunk).capacity) };
            let layout = chunk_layout(capacity);
            match NonNull::new(chunk.cast::<u8>()).filter(|_| layout.size() >= MAPPED_BYTES_MIN) {
                // SAFETY: mapped by `new_chunk` with this size, and left behind right after.
                Some(start) => unsafe { pages::unmap(start, layout.size()) },
                // SAFETY: allocated by `new_chunk` with this layout, and left behind right after.
                None => unsafe { dealloc(chunk.cast(), layout) },
            }
            chunk = older;
        }
    }
}

fn chunk_layout(capacity: usize) -> Layout {
    let size = HEADER_BYTES.checked_add(capacity);
    let layout = size.and_then(|size| Layout::from_size_align(size, ALIGN.max(align_of::<Chunk>())).ok());
    // More than `isize::MAX` bytes cannot be asked for: keys and values are bounded far below.
    layout.unwrap_or_else(|| handle_alloc_error(Layout::new::<Chunk>()))
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_aligned_disjoint_and_counted() {
        let arena = Arena::new();
        assert_eq!((arena.used_bytes(), arena.reserved_bytes()), (0, 0), "an empty arena holds nothing");
        let sizes = [1, 7, 8, 9, 1000, 4096, 100, 3_000_000, 24];
        let rounds = if cfg!(miri) { 2 } else { 200 };
        let mut all = Vec::new();
        for (index, size) in sizes.iter().cycle().take(sizes.len() * rounds).enumerate() {
            let size = if index > 60 { size % 5000 + 1 } else { *size };
            let memory = arena.allocate(size);
            assert_eq!(memory.as_ptr().align_offset(ALIGN), 0);
            // SAFETY: the allocation has `size` bytes and this test alone uses it.
            unsafe { memory.write_bytes(0xab, size) };
            all.push((memory.addr().get(), size));
        }
        let payload: usize = all.iter().map(|(_, size)| size.next_multiple_of(ALIGN)).sum();
        assert!(payload <= arena.used_bytes());
        assert!(arena.used_bytes() <= arena.reserved_bytes());
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "no two overlap");
    }

    #[test]
    fn a_small_arena_reserves_one_small_chunk() {
        let arena = Arena::new();
        arena.allocate(24);
        assert_eq!(arena.reserved_bytes(), CHUNK_BYTES_MIN);
        assert_eq!(arena.used_bytes(), HEADER_BYTES + 24);
    }

    #[test]
    fn threads_never_get_the_same_bytes() {
        let arena = Arena::new();
        let (threads, each) = if cfg!(miri) { (3, 40) } else { (8, 20_000) };
        let mut all: Vec<usize> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|_| {
                    scope.spawn(|| (0..each).map(|_| arena.allocate(40).addr().get()).collect::<Vec<_>>())
                })
                .collect();
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
        });
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] + 40 <= pair[1]));
        assert!(arena.used_bytes() >= 40 * all.len());
    }
}
