//! Activations, quantised once for all matrices that read them.
//!
//! Each row becomes integers of magnitude at most [`ACTIVATION_LIMIT`] (15 bits with the sign) and one scale. For rows
//! of up to 3,800 values that is a smaller error than rounding to bfloat16 even when one value holds all the energy,
//! and some 100 times smaller for ordinary rows. Products with integer weights are then exact until their
//! scales are applied, whatever the instruction set and the order.

use super::format::{ACTIVATION_LIMIT, BLOCK, PAIRS};
use crate::engine::cpu::aligned::Aligned;
use crate::engine::cpu::isa::{Isa, Vectorised};
use crate::engine::cpu::pool::Pool;
use crate::engine::cpu::shared::SharedMut;

/// Rows of a tile of the many-rows kernels.
pub const TILE_ROWS: usize = 6;
/// Smallest largest-magnitude that is not taken for zero: below it the scale's inverse overflows.
const SMALLEST_MAXIMUM: f32 = 1e-30;

/// Rows `[rows, in]` packed for integer products, grouped in tiles of [`PackedRows::tile_rows`] rows.
///
/// A tile of `r` rows (the last one may be shorter) is stored as `[block, pair, r]` words of two 16-bit integers.
#[derive(Default)]
pub struct PackedRows {
    rows: usize,
    n_blocks: usize,
    tile_rows: usize,
    /// Pairs `[tile, block, pair, r]`.
    pairs: Aligned<u32>,
    /// Sums of the integers of each block: `[tile, block, r]`.
    sums: Aligned<f32>,
    /// Sums of the integers of the first and second 16 inputs of each block: `[tile, block, r, 2]`.
    half_sums: Aligned<i32>,
    /// Value of one integer step, per row. NaN when the row holds anything that is not finite.
    steps: Aligned<f32>,
}

/// Where one tile of [`PackedRows`] lies.
#[derive(Clone, Copy)]
pub struct TileOfRows<'a> {
    /// First row and number of rows.
    pub first: usize,
    pub rows: usize,
    /// `[block, pair, rows]`
    pub pairs: &'a [u32],
    /// `[block, rows]`
    pub sums: &'a [f32],
    /// `[block, rows, 2]`
    pub half_sums: &'a [i32],
    /// `[rows]`
    pub steps: &'a [f32],
}

impl PackedRows {
    /// Packs `x`, `[rows, in]`, in tiles of `tile_rows`. Any earlier contents are replaced, memory is reused.
    ///
    /// # Panics
    /// When the length of `x` is not a multiple of `rows`.
    pub fn pack(&mut self, pool: &Pool, isa: Isa, tile_rows: usize, x: &[f32], rows: usize) {
        let inputs = x.len() / rows.max(1);
        assert_eq!(x.len(), rows * inputs, "x must be [rows, inputs]");
        let n_blocks = inputs.div_ceil(BLOCK);
        (self.rows, self.n_blocks, self.tile_rows) = (rows, n_blocks, tile_rows);
        self.pairs.reserve(rows * n_blocks * PAIRS);
        self.sums.reserve(rows * n_blocks);
        self.half_sums.reserve(rows * n_blocks * 2);
        self.steps.reserve(rows);
        let pairs = SharedMut::new(&mut self.pairs);
        let sums = SharedMut::new(&mut self.sums);
        let half_sums = SharedMut::new(&mut self.half_sums);
        let steps = SharedMut::new(&mut self.steps);
        let tile = |index: usize| {
            let first = index * tile_rows;
            let n = tile_rows.min(rows - first);
            // SAFETY: tiles are disjoint parts of the four buffers, and each tile is packed by one call.
            let mut target = unsafe {
                Target {
                    rows: n,
                    pairs: pairs.slice(first * n_blocks * PAIRS, n * n_blocks * PAIRS),
                    sums: sums.slice(first * n_blocks, n * n_blocks),
                    half_sums: half_sums.slice(first * n_blocks * 2, n * n_blocks * 2),
                    steps: steps.slice(first, n),
                }
            };
            for row in 0..n {
                let values = &x[(first + row) * inputs..][..inputs];
                isa.vectorise(PackRow { values, row, target: &mut target });
            }
        };
        if tile_rows == 1 {
            (0..rows).for_each(tile);
        } else {
            let n_tiles = rows.div_ceil(tile_rows);
            pool.for_each(n_tiles, 2, |range| range.for_each(tile));
        }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Value of one integer step, per row.
    pub fn steps(&self) -> &[f32] {
        &self.steps[..self.rows]
    }

    pub fn n_blocks(&self) -> usize {
        self.n_blocks
    }

    pub fn n_tiles(&self) -> usize {
        self.rows.div_ceil(self.tile_rows)
    }

    /// Tile `index`.
    pub fn tile(&self, index: usize) -> TileOfRows<'_> {
        let first = index * self.tile_rows;
        let rows = self.tile_rows.min(self.rows - first);
        let (at, n) = (first * self.n_blocks, rows * self.n_blocks);
        TileOfRows {
            first,
            rows,
            pairs: &self.pairs[at * PAIRS..][..n * PAIRS],
            sums: &self.sums[at..][..n],
            half_sums: &self.half_sums[at * 2..][..n * 2],
            steps: &self.steps[first..][..rows],
        }
    }
}

/// One tile being packed.
struct Target<'a> {
    rows: usize,
    pairs: &'a mut [u32],
    sums: &'a mut [f32],
    half_sums: &'a mut [i32],
    steps: &'a mut [f32],
}

/// Packs one row of a tile.
struct PackRow<'a, 'b> {
    values: &'a [f32],
    row: usize,
    target: &'a mut Target<'b>,
}

impl Vectorised for PackRow<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { values, row, target } = self;
        let largest_bits = values.iter().fold(0, |all, x| all.max(x.to_bits() & 0x7fff_ffff));
        let largest = f32::from_bits(largest_bits);
        let (step, inverse) = match largest {
            _ if !largest.is_finite() => (f32::NAN, 0.0),
            _ if largest < SMALLEST_MAXIMUM => (0.0, 0.0),
            _ => (largest / ACTIVATION_LIMIT as f32, ACTIVATION_LIMIT as f32 / largest),
        };
        target.steps[row] = step;
        let rows = target.rows;
        for block in 0..target.sums.len() / rows {
            let from = block * BLOCK;
            let mut integers = [0i32; BLOCK];
            if step > 0.0 {
                match values[from..].first_chunk::<BLOCK>() {
                    Some(chunk) => quantise(chunk, inverse, &mut integers),
                    None => {
                        let mut padded = [0.0; BLOCK];
                        padded[..values.len() - from].copy_from_slice(&values[from..]);
                        quantise(&padded, inverse, &mut integers);
                    }
                }
            }
            let low: i32 = integers[..PAIRS].iter().sum();
            let high: i32 = integers[PAIRS..].iter().sum();
            target.sums[block * rows + row] = (low + high) as f32;
            target.half_sums[(block * rows + row) * 2..][..2].copy_from_slice(&[low, high]);
            let words = &mut target.pairs[block * PAIRS * rows..][..PAIRS * rows];
            for (pair, word) in integers.as_chunks::<2>().0.iter().zip(words.chunks_exact_mut(rows)) {
                word[row] = (pair[0] as u32 & 0xffff) | (pair[1] as u32) << 16;
            }
        }
    }
}

/// Rounds `values * inverse`, of magnitude below 2^22, to the nearest integers, ties to even.
#[inline(always)]
fn quantise(values: &[f32; BLOCK], inverse: f32, integers: &mut [i32; BLOCK]) {
    /// Adding it leaves the rounded integer in the low bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    for (integer, value) in integers.iter_mut().zip(values) {
        *integer = (value * inverse + ROUND).to_bits() as i32 - ROUND.to_bits() as i32;
    }
}
