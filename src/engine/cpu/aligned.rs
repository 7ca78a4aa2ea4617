//! Zeroed buffers that start on a cache line, on huge pages when they are large.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use memmap2::MmapMut;

/// Bytes in a cache line and in the widest vector.
pub const ALIGNMENT: usize = 64;

/// From this size on a buffer is mapped on its own, so that its memory goes back to the system with it (an allocator
/// may keep it), and asks for huge pages: fewer page faults while it is filled, fewer address translations while it is streamed.
const MAPPED_FROM_BYTES: usize = 256 << 10;

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
    Heap {
        bytes: Vec<u8>,
        offset: usize,
    },
    Mapped(MmapMut),
    /// A part of a map that belongs to this buffer alone.
    Part {
        start: NonNull<u8>,
        /// Keeps the memory.
        _map: Arc<MmapMut>,
    },
}

// SAFETY: a part is owned like a map of its own: no other buffer sees its bytes, and the shared map is only kept.
unsafe impl Send for Storage {}
// SAFETY: as above.
unsafe impl Sync for Storage {}

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
        let mapped = if size_bytes >= MAPPED_FROM_BYTES { map_zeros(size_bytes) } else { None };
        let storage = match mapped {
            Some(map) => Storage::Mapped(map),
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

/// A map of zeros that asks for huge pages; `None` where the system refuses.
fn map_zeros(size_bytes: usize) -> Option<MmapMut> {
    let map = MmapMut::map_anon(size_bytes).ok()?;
    #[cfg(target_os = "linux")]
    // Only a wish: without huge pages the buffer works the same.
    let _ = map.advise(memmap2::Advice::HugePage);
    Some(map)
}

/// Bytes of a map of an [`Arena`].
const ARENA_MAP_BYTES: usize = 64 << 20;
/// Buffers from this size on get a map of their own.
const ARENA_MOST_BYTES: usize = 8 << 20;

/// Room for many buffers side by side: matrices of a small model that are no huge page each are some together.
#[derive(Default)]
pub struct Arena(Mutex<Option<Room>>);

struct Room {
    map: Arc<MmapMut>,
    /// First byte that no buffer has.
    free: NonNull<u8>,
    free_bytes: usize,
}

// SAFETY: the free bytes belong to the room alone, and the shared map is only kept.
unsafe impl Send for Room {}

impl Arena {
    /// `len` zeros.
    ///
    /// # Panics
    /// As [`Aligned::zeroed`].
    pub fn zeroed<T: Element>(&self, len: usize) -> Aligned<T> {
        let size_bytes = len.checked_mul(size_of::<T>()).expect("capacity overflow");
        if !(1..ARENA_MOST_BYTES).contains(&size_bytes) {
            return Aligned::zeroed(len);
        }
        let size_bytes = size_bytes.next_multiple_of(ALIGNMENT);
        let mut room = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if room.as_ref().is_none_or(|room| room.free_bytes < size_bytes) {
            *room = Room::new();
        }
        let Some(room) = room.as_mut() else { return Aligned::zeroed(len) };
        let start = room.free;
        // SAFETY: the map has `free_bytes` from here on, at least as many as are taken.
        room.free = unsafe { start.add(size_bytes) };
        room.free_bytes -= size_bytes;
        Aligned { storage: Storage::Part { start, _map: Arc::clone(&room.map) }, len, element: PhantomData }
    }
}

impl Room {
    fn new() -> Option<Self> {
        let mut map = map_zeros(ARENA_MAP_BYTES)?;
        let free = NonNull::new(map.as_mut_ptr())?;
        Some(Self { map: Arc::new(map), free, free_bytes: ARENA_MAP_BYTES })
    }
}

impl<T: Element> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let start = match &self.storage {
            Storage::Heap { bytes, offset } => bytes[*offset..].as_ptr(),
            Storage::Mapped(map) => map.as_ptr(),
            Storage::Part { start, .. } => start.as_ptr(),
        };
        // SAFETY: `zeroed` allocated `len * size_of::<T>()` initialised bytes from this address, which is
        // 64-byte aligned (maps start on a page, parts of them are whole lines); any bytes are a `T` (sealed trait).
        unsafe { std::slice::from_raw_parts(start.cast(), self.len) }
    }
}

impl<T: Element> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let start = match &mut self.storage {
            Storage::Heap { bytes, offset } => bytes[*offset..].as_mut_ptr(),
            Storage::Mapped(map) => map.as_mut_ptr(),
            Storage::Part { start, .. } => start.as_ptr(),
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
    fn parts_of_an_arena_are_apart_and_outlive_it() {
        let arena = Arena::default();
        let sizes = [1, 100, 0, 5 << 20, 1 << 20, 7 << 20, 3, 40 << 20, 16];
        let mut parts: Vec<Aligned<u8>> = (0..12).flat_map(|_| sizes.map(|len| arena.zeroed(len))).collect();
        drop(arena);
        for (index, part) in parts.iter_mut().enumerate() {
            assert_eq!((part.len(), part.as_ptr().align_offset(ALIGNMENT)), (sizes[index % sizes.len()], 0));
            assert!(part.iter().all(|x| *x == 0), "{index}");
            part.fill(index as u8 + 1);
        }
        for (index, part) in parts.iter().enumerate() {
            assert!(part.iter().all(|x| *x == index as u8 + 1), "{index}");
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
