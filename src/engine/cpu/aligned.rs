//! Zeroed buffers that start on a cache line, on huge pages when they are large.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// Bytes in a cache line and in the widest vector.
pub const ALIGNMENT: usize = 64;

/// From this size on a buffer is mapped on its own and asks for huge pages: fewer page faults while it is
/// filled, fewer address translations while it is streamed.
const MAPPED_FROM_BYTES: usize = 4 << 20;

mod sealed {
    /// Types for which any bytes are a value.
    pub trait Plain: Copy + Default + PartialEq + std::fmt::Debug + Send + Sync + 'static {}
    impl Plain for f32 {}
    impl Plain for u8 {}
    impl Plain for i8 {}
    impl Plain for u16 {}
    impl Plain for i16 {}
    impl Plain for u32 {}
    impl Plain for i32 {}
}

/// Element types of an [`Aligned`] buffer: plain numbers.
pub trait Element: sealed::Plain {}
impl<T: sealed::Plain> Element for T {}

enum Storage {
    Heap { bytes: Vec<u8>, offset: usize },
    Mapped(MmapMut),
}

/// A `[T]` on the heap whose first element is 64-byte aligned. New elements are zero.
pub struct Aligned<T: Element> {
    storage: Storage,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Element> Aligned<T> {
    /// `len` zeros.
    ///
    /// # Panics
    /// When the size overflows, as `Vec` does.
    pub fn zeroed(len: usize) -> Self {
        let size_bytes = len.checked_mul(size_of::<T>()).expect("capacity overflow");
        let mapped = if size_bytes >= MAPPED_FROM_BYTES { MmapMut::map_anon(size_bytes).ok() } else { None };
        let storage = match mapped {
            Some(map) => {
                #[cfg(target_os = "linux")]
                // Only a wish: without huge pages the buffer works the same.
                let _ = map.advise(memmap2::Advice::HugePage);
                Storage::Mapped(map)
            }
            None => {
                let bytes = vec![0u8; size_bytes.checked_add(ALIGNMENT).expect("capacity overflow")];
                let offset = bytes.as_ptr().align_offset(ALIGNMENT);
                Storage::Heap { bytes, offset }
            }
        };
        Self { storage, len, element: PhantomData }
    }

    /// A copy of `values`.
    pub fn from_slice(values: &[T]) -> Self {
        let mut copy = Self::zeroed(values.len());
        copy.copy_from_slice(values);
        copy
    }

    /// Makes the buffer at least `len` long. The contents are kept when it is, and zero when it had to grow.
    pub fn reserve(&mut self, len: usize) {
        if self.len < len {
            *self = Self::zeroed(len);
        }
    }
}

impl<T: Element> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let start = match &self.storage {
            Storage::Heap { bytes, offset } => bytes[*offset..].as_ptr(),
            Storage::Mapped(map) => map.as_ptr(),
        };
        // SAFETY: `zeroed` allocated `len * size_of::<T>()` initialised bytes from this address, which is
        // 64-byte aligned (maps start on a page); any bytes are a `T` (sealed trait).
        unsafe { std::slice::from_raw_parts(start.cast(), self.len) }
    }
}

impl<T: Element> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let start = match &mut self.storage {
            Storage::Heap { bytes, offset } => bytes[*offset..].as_mut_ptr(),
            Storage::Mapped(map) => map.as_mut_ptr(),
        };
        // SAFETY: as in `deref`; the storage is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(start.cast(), self.len) }
    }
}

impl<T: Element> Default for Aligned<T> {
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl<T: Element> Clone for Aligned<T> {
    fn clone(&self) -> Self {
        Self::from_slice(self)
    }
}

impl<T: Element> fmt::Debug for Aligned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_zero_at_every_size() {
        for len in [0, 1, 15, 16, 17, 1000, MAPPED_FROM_BYTES / 4, MAPPED_FROM_BYTES / 4 + 3] {
            let mut buffer = Aligned::<f32>::zeroed(len);
            assert_eq!(buffer.as_ptr().align_offset(ALIGNMENT), 0, "{len}");
            assert_eq!(buffer.len(), len);
            assert!(buffer.iter().all(|x| *x == 0.0));
            buffer.fill(2.5);
            assert!(buffer.clone().iter().all(|x| *x == 2.5));
        }
    }

    #[test]
    fn reserving_less_keeps_the_contents() {
        let mut buffer = Aligned::from_slice(&[1u8, 2, 3]);
        buffer.reserve(2);
        assert_eq!(buffer[..], [1, 2, 3]);
        buffer.reserve(4);
        assert_eq!(buffer[..], [0; 4]);
    }
}
