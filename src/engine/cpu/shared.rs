//! A slice that several threads write, each its own part.

use std::marker::PhantomData;

/// A mutable slice handed to all threads of a region, which take disjoint parts of it.
#[derive(Clone, Copy)]
pub struct SharedMut<'a, T> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: only `slice` gives access, and its caller promises disjoint parts: as sending each part to its thread.
unsafe impl<T: Send> Send for SharedMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SharedMut<'_, T> {}

impl<'a, T> SharedMut<'a, T> {
    pub fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// Elements `from..from + len`.
    ///
    /// # Safety
    /// No two slices alive at the same time overlap.
    ///
    /// # Panics
    /// When the range is not inside the slice.
    pub unsafe fn slice(&self, from: usize, len: usize) -> &'a mut [T] {
        assert!(from <= self.len && len <= self.len - from, "{from}+{len} is beyond {}", self.len);
        // SAFETY: inside the borrowed slice; the caller promises that nothing else refers to this part.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(from), len) }
    }
}
