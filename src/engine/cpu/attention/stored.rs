//! The stored forms of a tile, read as f32.

use crate::engine::cpu::cache::Q8_BLOCK;
use crate::engine::cpu::lanes::Lanes;

/// A stored tile `[rows, columns, 2]`, read as f32.
pub trait Stored<L: Lanes>: Copy {
    /// `N / 2` pairs from `(row, column)` on.
    ///
    /// # Safety
    /// They lie inside the tile; the instruction set of `L`.
    unsafe fn load(self, row: usize, column: usize) -> L::F;
    /// Asks for the cache lines of `N` pairs from `(row, column)` on, one tile further.
    fn prefetch(self, row: usize, column: usize);
}

/// A tile of plain numbers `[rows, columns, 2]`.
pub struct Plain<T> {
    pub from: *const T,
    pub columns: usize,
    /// Elements of a tile.
    pub tile: usize,
}

/// A tile of 8-bit integers and its scales.
#[derive(Clone, Copy)]
pub struct Scaled<'a> {
    pub integers: Plain<i8>,
    pub scales: &'a [f32],
    /// Keys share scales down the rows, values along them.
    pub keys: bool,
}

impl<T> Clone for Plain<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Plain<T> {}

impl<T> Plain<T> {
    /// # Safety
    /// `(row, column)` lies inside the tile.
    #[inline(always)]
    unsafe fn at(self, row: usize, column: usize) -> *const T {
        // SAFETY: the caller's promise.
        unsafe { self.from.add((row * self.columns + column) * 2) }
    }

    /// [`Stored::prefetch`]
    #[inline(always)]
    fn ahead<L: Lanes>(self, row: usize, column: usize) {
        prefetch::<L, _>(self.from.wrapping_add(self.tile + (row * self.columns + column) * 2));
    }
}

impl<L: Lanes> Stored<L> for Plain<f32> {
    #[inline(always)]
    unsafe fn load(self, row: usize, column: usize) -> L::F {
        // SAFETY: the caller's promise.
        unsafe { L::load(self.at(row, column)) }
    }

    #[inline(always)]
    fn prefetch(self, row: usize, column: usize) {
        self.ahead::<L>(row, column);
    }
}

/// bfloat16 in [`Plain`]; plain `u16` is half precision.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Bf16(#[allow(dead_code)] u16);

impl<L: Lanes> Stored<L> for Plain<u16> {
    #[inline(always)]
    unsafe fn load(self, row: usize, column: usize) -> L::F {
        // SAFETY: the caller's promise.
        unsafe { L::load_f16(self.at(row, column)) }
    }

    #[inline(always)]
    fn prefetch(self, row: usize, column: usize) {
        self.ahead::<L>(row, column);
    }
}

impl<L: Lanes> Stored<L> for Plain<Bf16> {
    #[inline(always)]
    unsafe fn load(self, row: usize, column: usize) -> L::F {
        // SAFETY: the caller's promise.
        unsafe { L::load_bf16(self.at(row, column).cast()) }
    }

    #[inline(always)]
    fn prefetch(self, row: usize, column: usize) {
        self.ahead::<L>(row, column);
    }
}

impl<L: Lanes> Stored<L> for Scaled<'_> {
    #[inline(always)]
    unsafe fn load(self, row: usize, column: usize) -> L::F {
        // SAFETY: the caller's promise; a block of scales spans `Q8_BLOCK` lanes: that many columns of values or half
        // as many pairs of keys, and vectors of `N / 2 <= 8` columns do not cross blocks.
        unsafe {
            let (x, columns) = (L::load_i8(self.integers.at(row, column)), self.integers.columns);
            let scale = if self.keys {
                L::load_doubled(self.scales.as_ptr().add(row / (Q8_BLOCK / 2) * columns + column))
            } else {
                let blocks = columns.div_ceil(Q8_BLOCK);
                L::load_pair(self.scales.as_ptr().add((row * blocks + column / Q8_BLOCK) * 2))
            };
            L::mul(x, scale)
        }
    }

    #[inline(always)]
    fn prefetch(self, row: usize, column: usize) {
        self.integers.ahead::<L>(row, column);
    }
}

/// A tile of 16-bit integers and the scales of its positions.
#[derive(Clone, Copy)]
pub struct Stepped<'a> {
    pub integers: Plain<i16>,
    /// `[TILE]`
    pub scales: &'a [f32],
    /// Keys lie side by side, values in pairs one below the other.
    pub keys: bool,
}

impl<L: Lanes> Stored<L> for Stepped<'_> {
    #[inline(always)]
    unsafe fn load(self, row: usize, column: usize) -> L::F {
        // SAFETY: the caller's promise; a tile has `TILE` columns of keys or `TILE / 2` rows of values.
        unsafe {
            let scale = if self.keys {
                L::load_doubled(self.scales.as_ptr().add(column))
            } else {
                L::load_pair(self.scales.as_ptr().add(2 * row))
            };
            L::mul(L::load_i16(self.integers.at(row, column)), scale)
        }
    }

    #[inline(always)]
    fn prefetch(self, row: usize, column: usize) {
        self.integers.ahead::<L>(row, column);
    }
}

/// The integers of 16-bit keys as they are, times `factor`: their scales do not change.
#[derive(Clone, Copy)]
pub struct Shrunk {
    pub integers: Plain<i16>,
    pub factor: f32,
}

impl<L: Lanes> Stored<L> for Shrunk {
    #[inline(always)]
    unsafe fn load(self, row: usize, column: usize) -> L::F {
        // SAFETY: the caller's promise.
        unsafe { L::mul(L::load_i16(self.integers.at(row, column)), L::splat(self.factor)) }
    }

    #[inline(always)]
    fn prefetch(self, row: usize, column: usize) {
        self.integers.ahead::<L>(row, column);
    }
}

/// Asks for the cache lines of `2 * N` elements.
#[inline(always)]
fn prefetch<L: Lanes, T>(at: *const T) {
    L::prefetch(at);
    if 2 * L::N * size_of::<T>() > 64 {
        L::prefetch(at.wrapping_add(L::N));
    }
}
