//! Memory aligned for direct I/O.
//!
//! Invariant: `ptr` is either dangling with `capacity == 0` or an allocation of `capacity` bytes at
//! [`ALIGNMENT`], all of them initialised (zeroed, or used by an earlier buffer; copied on growth). `capacity` is a multiple of
//! [`ALIGNMENT`] and at most [`CAPACITY_MAX`]. Tests below run under Miri.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use kelvin_base::pages;

use crate::ALIGNMENT;

/// The most bytes a buffer can hold: what a Rust allocation may span, in whole units of [`ALIGNMENT`].
pub const CAPACITY_MAX: usize = isize::MAX.unsigned_abs() / ALIGNMENT * ALIGNMENT;

/// From this size on memory comes from the system by the page, and all but a little of it is no longer resident once freed.
const MAPPED_BYTES_MIN: usize = 16 << 10;

/// A buffer whose memory starts at a multiple of [`ALIGNMENT`] and grows by multiples of it.
#[derive(Debug)]
pub struct AlignedBuf {
    ptr: NonNull<u8>,
    capacity: usize,
}

// SAFETY: the buffer owns its memory alone, like a `Vec<u8>`.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// A buffer without memory.
    #[must_use]
    pub const fn new() -> Self {
        Self { ptr: NonNull::dangling(), capacity: 0 }
    }

    /// A buffer of at least `capacity` bytes of any value.
    ///
    /// # Panics
    /// As [`AlignedBuf::grow`].
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        let mut buf = Self::new();
        buf.grow(capacity);
        buf
    }

    /// Bytes of memory held.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Makes room for `capacity` bytes; what the buffer held stays.
    ///
    /// # Panics
    /// If `capacity` is above [`CAPACITY_MAX`], which no machine can hold: lengths are bounded before they get here.
    pub fn grow(&mut self, capacity: usize) {
        if capacity <= self.capacity {
            return;
        }
        assert!(
            capacity <= CAPACITY_MAX,
            "a buffer of {capacity} bytes was asked for; the most is {CAPACITY_MAX}"
        );
        let rounded = capacity.next_multiple_of(ALIGNMENT);
        let ptr = Self::allocate(rounded);
        // SAFETY: both are valid for `self.capacity` bytes (the old one is not read when that is 0), and a new
        // allocation does not overlap the old.
        unsafe { std::ptr::copy_nonoverlapping(self.ptr.as_ptr(), ptr.as_ptr(), self.capacity) };
        self.free();
        self.ptr = ptr;
        self.capacity = rounded;
    }

    /// Makes room for `capacity` bytes; what the buffer held is lost.
    ///
    /// # Panics
    /// As [`AlignedBuf::grow`].
    pub fn renew(&mut self, capacity: usize) {
        if capacity > self.capacity {
            *self = Self::with_capacity(capacity);
        }
    }

    /// Initialised memory of `capacity` bytes, a multiple of [`ALIGNMENT`] that is not 0.
    fn allocate(capacity: usize) -> NonNull<u8> {
        if capacity >= MAPPED_BYTES_MIN {
            return pages::lend(capacity);
        }
        let layout = Self::layout(capacity);
        // SAFETY: the layout's size is not zero.
        NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
    }

    /// All of the memory.
    #[must_use]
    pub const fn as_slice(&self) -> &[u8] {
        // SAFETY: the type's invariant: `capacity` initialised bytes, or none.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.capacity) }
    }

    /// All of the memory, to write.
    pub const fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the type's invariant, and `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.capacity) }
    }

    fn layout(capacity: usize) -> Layout {
        match Layout::from_size_align(capacity, ALIGNMENT) {
            Ok(layout) => layout,
            Err(error) => panic!("{capacity} bytes are no layout, though `grow` bounds them: {error}"),
        }
    }

    fn free(&mut self) {
        if self.capacity >= MAPPED_BYTES_MIN {
            // SAFETY: `ptr` was lent with this length, and the caller lets go of it.
            unsafe { pages::take_back(self.ptr, self.capacity) };
        } else if self.capacity > 0 {
            // SAFETY: `ptr` was allocated with this layout.
            unsafe { dealloc(self.ptr.as_ptr(), Self::layout(self.capacity)) };
        }
    }
}

impl Default for AlignedBuf {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        self.free();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_zeroed_and_kept_on_growth() {
        let mut buf = AlignedBuf::with_capacity(1);
        assert_eq!(buf.capacity(), ALIGNMENT);
        assert_eq!(buf.as_slice().as_ptr().align_offset(ALIGNMENT), 0);
        buf.as_mut_slice()[..3].copy_from_slice(b"abc");
        buf.grow(3 * ALIGNMENT - 1);
        assert_eq!(buf.capacity(), 3 * ALIGNMENT);
        assert_eq!(&buf.as_slice()[..4], b"abc\0");
        assert!(AlignedBuf::new().as_slice().is_empty());
    }

    #[test]
    fn a_buffer_that_outgrows_the_allocator_keeps_its_bytes_and_gives_all_memory_back() {
        let mut buf = AlignedBuf::with_capacity(MAPPED_BYTES_MIN - ALIGNMENT);
        for capacity in [MAPPED_BYTES_MIN, 3 * MAPPED_BYTES_MIN + 1] {
            let marked = buf.capacity() - 1;
            buf.as_mut_slice()[marked] = 7;
            buf.grow(capacity);
            assert_eq!(buf.capacity(), capacity.next_multiple_of(ALIGNMENT));
            assert_eq!(buf.as_slice()[marked], 7);
            assert_eq!(buf.as_slice().as_ptr().align_offset(ALIGNMENT), 0);
        }
        buf.renew(4 * MAPPED_BYTES_MIN);
        buf.as_mut_slice().fill(9);
    }

    #[test]
    fn growing_to_what_is_there_keeps_the_memory_in_place() {
        let mut buf = AlignedBuf::with_capacity(ALIGNMENT);
        let before = buf.as_slice().as_ptr();
        buf.grow(0);
        buf.grow(ALIGNMENT);
        assert_eq!(buf.as_slice().as_ptr(), before);
    }

    #[test]
    fn a_buffer_can_be_taken_and_sent_to_another_thread() {
        let mut buf = AlignedBuf::with_capacity(10);
        buf.as_mut_slice()[9] = 7;
        let taken = std::mem::take(&mut buf);
        let ninth = std::thread::scope(|scope| scope.spawn(move || taken.as_slice()[9]).join().unwrap());
        assert_eq!((ninth, buf.capacity()), (7, 0));
    }

    #[test]
    #[should_panic(expected = "bytes was asked for")]
    fn an_absurd_capacity_panics_instead_of_allocating_less() {
        drop(AlignedBuf::with_capacity(usize::MAX - 1));
    }

    #[test]
    #[should_panic(expected = "bytes was asked for")]
    fn the_first_capacity_above_the_bound_panics() {
        drop(AlignedBuf::with_capacity(CAPACITY_MAX + 1));
    }
}
