//! Rounding and writing of appended positions.
//!
//! A row is first rounded as a whole, in the order in which it will lie, by loops that the compiler turns into vector
//! instructions; then its elements are moved to their places, the two lanes of a pair of keys at a time.

use std::ops::Range;

use half::slice::HalfFloatSliceExt;

use super::shape::{CacheShape, HeadRows, Q8_BLOCK, TILE};

/// Euclidean norm of a key or query in 16-bit integers before they are rounded, at most: a product of two stays below
/// 2^31, and so does every part of its sum (Cauchy and Schwarz), whatever the number of lanes up to 4096.
const KEY_NORM: f32 = 46_300.0;

/// The largest of these integers.
const LARGEST_KEY: f32 = 32_767.0;

/// What the integers of a key are multiplied by before they turn: a pair may then lie along one of its lanes.
pub const BEFORE_TURNING: f32 = LARGEST_KEY / KEY_NORM;

/// The largest of the 16-bit integers of a value: sums over keys with weights that add up to 2^17 fit 32 bits.
const LARGEST_VALUE: f32 = 16_383.0;

/// Adding 1.5 * 2^23 leaves a whole number, rounded to even, in the low bits.
const ROUND: f32 = 12_582_912.0;

/// Positions of one tile that an append fills.
pub(super) struct Place {
    /// Counted over all heads.
    pub tile: usize,
    pub head: usize,
    /// Position of the first appended token.
    pub start: usize,
    pub positions: Range<usize>,
}

/// Where to write, shared by the threads of an append.
#[derive(Clone, Copy)]
pub(super) enum Writer {
    F32(*mut f32),
    F16(*mut u16),
    BF16(*mut u16),
    Q16(*mut i16, *mut f32),
    Q8_0(*mut i8, *mut f32),
}

// SAFETY: threads write disjoint tiles.
unsafe impl Send for Writer {}
// SAFETY: threads write disjoint tiles.
unsafe impl Sync for Writer {}

impl Writer {
    /// # Safety
    /// The tile of `place` lies inside the buffer and belongs to this thread.
    pub unsafe fn write_keys(self, shape: &CacheShape, place: &Place, order: &[usize], rows: HeadRows<'_>) {
        let (tile, scales) = (place.tile * shape.key_tile(), place.tile * shape.key_scales());
        // SAFETY: elements `[pairs, TILE, 2]` and scales `[blocks, TILE]` of this tile.
        unsafe {
            match self {
                Self::F32(to) => {
                    keys(to.add(tile), place, order, rows, |_, from, to| to.copy_from_slice(from))
                }
                Self::F16(to) => keys(to.add(tile), place, order, rows, |_, from, to| round_to_f16(from, to)),
                Self::BF16(to) => {
                    keys(to.add(tile), place, order, rows, |_, from, to| round_to_bf16(from, to))
                }
                Self::Q16(to, all) => keys(to.add(tile), place, order, rows, |position, from, to| {
                    *all.add(place.tile * TILE + position % TILE) = round_to_steps(from, to, key_step(from));
                }),
                Self::Q8_0(to, all) => keys(to.add(tile), place, order, rows, |position, from, to| {
                    round_to_q8(from, to, |block| all.add(scales + block * TILE + position % TILE));
                }),
            }
        }
    }

    /// # Safety
    /// The tile of `place` lies inside the buffer and belongs to this thread.
    pub unsafe fn write_values(self, shape: &CacheShape, place: &Place, rows: HeadRows<'_>) {
        let (tile, scales) = (place.tile * shape.value_tile(), place.tile * shape.value_scales());
        let blocks = shape.value_lanes().div_ceil(Q8_BLOCK);
        // SAFETY: elements `[TILE / 2, lanes, 2]` and scales `[TILE / 2, blocks, 2]` of this tile.
        unsafe {
            match self {
                Self::F32(to) => {
                    values(to.add(tile), shape, place, rows, |_, from, to| to.copy_from_slice(from));
                }
                Self::F16(to) => {
                    values(to.add(tile), shape, place, rows, |_, from, to| round_to_f16(from, to));
                }
                Self::BF16(to) => {
                    values(to.add(tile), shape, place, rows, |_, from, to| round_to_bf16(from, to));
                }
                Self::Q16(to, all) => values(to.add(tile), shape, place, rows, |position, from, to| {
                    let step = largest(from) / LARGEST_VALUE;
                    *all.add(place.tile * TILE + position % TILE) = round_to_steps(from, to, step);
                }),
                Self::Q8_0(to, all) => values(to.add(tile), shape, place, rows, |position, from, to| {
                    let key = position % TILE;
                    round_to_q8(from, to, |block| all.add(scales + (key / 2 * blocks + block) * 2 + key % 2));
                }),
            }
        }
    }
}

/// Writes keys to a tile `[pairs, TILE, 2]`; `round(position, row, elements)` rounds one of them.
///
/// # Safety
/// `to` has room for the tile, which nobody else uses.
#[inline(always)]
unsafe fn keys<T: Copy + Default>(
    to: *mut T,
    place: &Place,
    order: &[usize],
    rows: HeadRows<'_>,
    round: impl Fn(usize, &[f32], &mut [T]),
) {
    let head_dim = order.len();
    let mut row = vec![0.0; head_dim];
    let mut rounded = vec![T::default(); head_dim.next_multiple_of(2)];
    for position in place.positions.clone() {
        let from = rows.row(place.head, position - place.start, head_dim);
        for (x, &lane) in row.iter_mut().zip(order) {
            *x = from[lane];
        }
        round(position, &row, &mut rounded[..head_dim]);
        let (pairs, _) = rounded.as_chunks::<2>();
        for (pair, lanes) in pairs.iter().enumerate() {
            // SAFETY: pair and key lie inside the tile.
            unsafe { to.cast::<[T; 2]>().add(pair * TILE + position % TILE).write(*lanes) };
        }
    }
}

/// Writes values to a tile `[TILE / 2, lanes, 2]`; `round(position, row, elements)` rounds one of them.
///
/// # Safety
/// `to` has room for the tile, which nobody else uses.
#[inline(always)]
unsafe fn values<T: Copy + Default>(
    to: *mut T,
    shape: &CacheShape,
    place: &Place,
    rows: HeadRows<'_>,
    round: impl Fn(usize, &[f32], &mut [T]),
) {
    let mut rounded = vec![T::default(); shape.head_dim];
    for position in place.positions.clone() {
        round(position, rows.row(place.head, position - place.start, shape.head_dim), &mut rounded);
        let key = position % TILE;
        // SAFETY: lanes of this position lie inside the tile.
        unsafe {
            let to = to.add(key / 2 * shape.value_lanes() * 2 + key % 2);
            for (lane, x) in rounded.iter().enumerate() {
                to.add(2 * lane).write(*x);
            }
        }
    }
}

fn round_to_f16(from: &[f32], to: &mut [u16]) {
    use half::slice::HalfBitsSliceExt;
    to.reinterpret_cast_mut::<half::f16>().convert_from_f32_slice(from);
}

/// Nearest, ties to even; what is not a number stays so.
fn round_to_bf16(from: &[f32], to: &mut [u16]) {
    for (x, to) in from.iter().zip(to) {
        let bits = x.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        // A quiet NaN keeps its sign; rounding could turn it into infinity.
        let quiet = bits >> 16 | 0x40;
        *to = if x.is_nan() { quiet } else { rounded } as u16;
    }
}

/// The largest magnitude; not a number where one of the values is none.
#[inline(always)]
fn largest(values: &[f32]) -> f32 {
    // Bits of positive floats are ordered as their values, with NaN above infinity.
    values.iter().map(|x| x.to_bits() & 0x7fff_ffff).max().map_or(0.0, f32::from_bits)
}

/// What the lanes of a key or query are rounded to multiples of, as 16-bit integers; not a number where one of them is none.
#[inline(always)]
pub fn key_step(lanes: &[f32]) -> f32 {
    const SUMS: usize = 16;
    let mut sums = [0.0f32; SUMS];
    for chunk in lanes.chunks(SUMS) {
        for (sum, x) in sums.iter_mut().zip(chunk) {
            *sum += x * x;
        }
    }
    let (by_norm, by_largest) = (sums.iter().sum::<f32>().sqrt() / KEY_NORM, largest(lanes) / LARGEST_KEY);
    if by_norm < by_largest { by_largest } else { by_norm }
}

/// Rounds to multiples of `step` and returns it: 0 and zeros where it is too small to divide by, not a number where it
/// is not finite, so that the loss shows.
#[inline(always)]
pub fn round_to_steps(from: &[f32], to: &mut [i16], step: f32) -> f32 {
    if step < f32::MIN_POSITIVE {
        to.fill(0);
        return 0.0;
    }
    let inverse = 1.0 / step;
    for (x, to) in from.iter().zip(to) {
        *to = (x * inverse + ROUND).to_bits() as i16;
    }
    if step.is_finite() { step } else { f32::NAN }
}

/// 127 steps up to the largest value of each block; `scale(block)` is where the size of a step goes. A block with a
/// value that is not finite gets a scale that is not a number, so that the loss shows.
///
/// # Safety
/// `scale` gives addresses that may be written.
#[inline(always)]
unsafe fn round_to_q8(from: &[f32], to: &mut [i8], scale: impl Fn(usize) -> *mut f32) {
    let blocks = from.chunks(Q8_BLOCK).zip(to.chunks_mut(Q8_BLOCK)).enumerate();
    for (block, (from, to)) in blocks {
        let largest = largest(from);
        let step = if largest.is_finite() { largest / 127.0 } else { f32::NAN };
        let inverse = if step > 0.0 { 1.0 / step } else { 0.0 };
        // SAFETY: the caller's promise.
        unsafe { *scale(block) = step };
        for (x, to) in from.iter().zip(to) {
            *to = (x * inverse + ROUND).to_bits() as i8;
        }
    }
}
