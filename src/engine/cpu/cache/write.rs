//! Rounding and writing of appended positions.

use std::ops::Range;

use half::{bf16, f16};

use super::shape::{CacheShape, HeadRows, Q8_BLOCK, TILE};

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
    Q8_0(*mut i8, *mut f32),
}

// SAFETY: threads write disjoint tiles.
unsafe impl Send for Writer {}
// SAFETY: threads write disjoint tiles.
unsafe impl Sync for Writer {}

impl Writer {
    /// Stores one value; `scale` as its inverse for [`Writer::Q8_0`].
    ///
    /// # Safety
    /// `index` lies inside the buffer and belongs to this thread.
    #[inline(always)]
    unsafe fn put(self, index: usize, x: f32, inverse_scale: f32) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::F32(to) => *to.add(index) = x,
                Self::F16(to) => *to.add(index) = f16::from_f32(x).to_bits(),
                Self::BF16(to) => *to.add(index) = bf16::from_f32(x).to_bits(),
                Self::Q8_0(to, _) => *to.add(index) = (x * inverse_scale).round_ties_even() as i8,
            }
        }
    }

    /// Stores the scale of `block` and returns its inverse; 0 for a block of zeros. A block with a value that is not
    /// finite gets a scale that is not a number, so that the loss shows.
    ///
    /// # Safety
    /// As [`Writer::put`].
    #[inline(always)]
    unsafe fn put_scale(self, index: usize, block: impl Iterator<Item = f32>) -> f32 {
        let Self::Q8_0(_, scales) = self else { return 1.0 };
        let (mut largest, mut finite) = (0.0f32, true);
        for x in block {
            largest = largest.max(x.abs());
            finite &= x.is_finite();
        }
        if !finite {
            largest = f32::NAN;
        }
        let scale = largest / 127.0;
        // SAFETY: the caller's promise.
        unsafe { *scales.add(index) = scale };
        if scale > 0.0 { 1.0 / scale } else { 0.0 }
    }

    /// # Safety
    /// The tile of `place` lies inside the buffer and belongs to this thread.
    pub unsafe fn write_keys(self, shape: &CacheShape, place: &Place, order: &[usize], rows: HeadRows<'_>) {
        let tile = place.tile * shape.key_tile();
        let scales = place.tile * shape.key_scales();
        for (block, lanes) in order.chunks(Q8_BLOCK).enumerate() {
            let mut inverse = [1.0f32; TILE];
            if matches!(self, Self::Q8_0(..)) {
                for position in place.positions.clone() {
                    let row = rows.row(place.head, position - place.start, shape.head_dim);
                    let index = scales + block * TILE + position % TILE;
                    // SAFETY: scales `[blocks, TILE]` of this tile.
                    inverse[position % TILE] =
                        unsafe { self.put_scale(index, lanes.iter().map(|&lane| row[lane])) };
                }
            }
            for (pair, lanes) in lanes.chunks(2).enumerate() {
                let pair = block * (Q8_BLOCK / 2) + pair;
                for position in place.positions.clone() {
                    let row = rows.row(place.head, position - place.start, shape.head_dim);
                    let key = position % TILE;
                    for (side, &lane) in lanes.iter().enumerate() {
                        let index = tile + (pair * TILE + key) * 2 + side;
                        // SAFETY: elements `[pairs, TILE, 2]` of this tile.
                        unsafe { self.put(index, row[lane], inverse[key]) };
                    }
                }
            }
        }
    }

    /// # Safety
    /// The tile of `place` lies inside the buffer and belongs to this thread.
    pub unsafe fn write_values(self, shape: &CacheShape, place: &Place, rows: HeadRows<'_>) {
        let lanes = shape.value_lanes();
        let blocks = lanes.div_ceil(Q8_BLOCK);
        for position in place.positions.clone() {
            let row = rows.row(place.head, position - place.start, shape.head_dim);
            let key = position % TILE;
            for (block, part) in row.chunks(Q8_BLOCK).enumerate() {
                let index = place.tile * shape.value_scales() + (key / 2 * blocks + block) * 2 + key % 2;
                // SAFETY: scales `[TILE / 2, blocks, 2]` of this tile.
                let inverse = unsafe { self.put_scale(index, part.iter().copied()) };
                for (lane, &x) in part.iter().enumerate() {
                    let column = key / 2 * lanes + block * Q8_BLOCK + lane;
                    // SAFETY: elements `[TILE / 2, lanes, 2]` of this tile.
                    unsafe { self.put(place.tile * shape.value_tile() + column * 2 + key % 2, x, inverse) };
                }
            }
        }
    }
}
