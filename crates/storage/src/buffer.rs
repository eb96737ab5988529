//! Memory aligned for direct I/O.
//!
//! Invariant: `ptr` is either dangling with `capacity == 0` or an allocation of `capacity` bytes at
//! [`ALIGNMENT`], all of them initialised (zeroed at allocation, copied on growth).

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use crate::ALIGNMENT;

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

    /// A zeroed buffer of at least `capacity` bytes.
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
    pub fn grow(&mut self, capacity: usize) {
        if capacity <= self.capacity {
            return;
        }
        let rounded = capacity.next_multiple_of(ALIGNMENT);
        let layout = Self::layout(rounded);
        // SAFETY: the layout's size is not zero, as `capacity > self.capacity >= 0`.
        let Some(ptr) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        // SAFETY: both are valid for `self.capacity` bytes (the old one is not read when that is 0), and a new
        // allocation does not overlap the old.
        unsafe { std::ptr::copy_nonoverlapping(self.ptr.as_ptr(), ptr.as_ptr(), self.capacity) };
        self.free();
        self.ptr = ptr;
        self.capacity = rounded;
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
        Layout::from_size_align(capacity, ALIGNMENT).unwrap_or_else(|_| Layout::new::<u8>())
    }

    fn free(&mut self) {
        if self.capacity > 0 {
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
}
